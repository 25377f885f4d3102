//! Whether a text is JSON, for texts that are long and are JSON as a rule.
//!
//! It says what `serde_json` says, in less time, but not what is wrong.

/// True if the text is one JSON value, and nothing stands around it. As in `serde_json` a number may
/// be too large, and half of a surrogate pair stand alone.
pub(crate) fn is_value(text: &str) -> bool {
    after_value(text.as_bytes()).is_some_and(<[u8]>::is_empty)
}

/// What follows on a value. Containers may stand in each other without limit.
fn after_value(mut rest: &[u8]) -> Option<&[u8]> {
    let mut open = Vec::new();
    loop {
        rest = match rest {
            [b'"', rest @ ..] => after_string(rest)?,
            [begin @ (b'{' | b'['), inner @ ..] => {
                let end = begin + 2;
                let inner = after_space(inner);
                match inner.split_first() {
                    Some((byte, rest)) if *byte == end => rest,
                    _ => {
                        open.push(end);
                        rest = if end == b'}' { after_name(inner)? } else { inner };
                        continue;
                    }
                }
            }
            [b't', b'r', b'u', b'e', rest @ ..]
            | [b'f', b'a', b'l', b's', b'e', rest @ ..]
            | [b'n', b'u', b'l', b'l', rest @ ..] => rest,
            _ => after_number(rest)?,
        };
        loop {
            let Some(end) = open.last() else { return Some(rest) };
            match after_space(rest) {
                [b',', next @ ..] => {
                    let next = after_space(next);
                    rest = if *end == b'}' { after_name(next)? } else { next };
                    break;
                }
                [byte, outer @ ..] if byte == end => rest = outer,
                _ => return None,
            }
            open.pop();
        }
    }
}

/// What follows on the name of a field and its colon.
fn after_name(text: &[u8]) -> Option<&[u8]> {
    let rest = after_space(after_string(text.strip_prefix(b"\"")?)?);
    rest.strip_prefix(b":").map(after_space)
}

/// What follows on a string whose first quote was read.
fn after_string(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        rest = match &rest[plain_length(rest)..] {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => rest,
            [b'\\', b'u', a, b, c, d, rest @ ..]
                if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) =>
            {
                rest
            }
            _ => return None,
        };
    }
}

fn after_number(text: &[u8]) -> Option<&[u8]> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let after_digits = |text| Some(&text[Some(digits(text)).filter(|count| *count > 0)?..]);
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let mut rest = match text {
        [b'0', rest @ ..] => rest,
        _ => after_digits(text)?,
    };
    if let [b'.', fraction @ ..] = rest {
        rest = after_digits(fraction)?;
    }
    if let [b'e' | b'E', b'+' | b'-', exponent @ ..] | [b'e' | b'E', exponent @ ..] = rest {
        rest = after_digits(exponent)?;
    }
    Some(rest)
}

fn after_space(mut rest: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\n' | b'\r', more @ ..] = rest {
        rest = more;
    }
    rest
}

/// How many bytes come before a quote, a backslash or a control character. Eight are looked at at
/// once: of the bytes whose highest bit is set in `found` the first is always one of these.
pub(super) fn plain_length(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let mut length = 0;
    while let Some(word) = text[length..].first_chunk() {
        let word = u64::from_le_bytes(*word);
        let same = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let found = (below(word, b' ') | same(b'"') | same(b'\\')) & (ONES << 7);
        if found != 0 {
            return length + found.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    length + text[length..].iter().take_while(|byte| !matches!(byte, ..b' ' | b'"' | b'\\')).count()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;
    use serde_json::value::RawValue;

    use super::*;

    /// What `serde_json` says.
    fn by_serde(text: &str) -> bool {
        serde_json::from_str::<&RawValue>(text).is_ok_and(|value| value.get().len() == text.len())
    }

    #[test]
    fn what_is_json_and_what_is_not() {
        for (text, is_json) in [
            (r#"{}"#, true),
            (r#"{ "a" : [ 1 , -0.5e+3 , { } , [ ] ] , "b" : null }"#, true),
            (r#"[true,false,null,"",0,1e400,"\ud83d","\u00E9\"\\\/\b\f\n\r\t"]"#, true),
            ("\"\u{7f}é漢😀\"", true),
            ("-0", true),
            ("", false),
            (" {}", false),
            ("{} ", false),
            ("{}{}", false),
            (r#"{"a":1,}"#, false),
            (r#"{"a"}"#, false),
            (r#"{"a":}"#, false),
            (r#"{1:2}"#, false),
            (r#"{"a":1]"#, false),
            ("[1}", false),
            ("[1,]", false),
            ("[,1]", false),
            ("[1 2]", false),
            ("[", false),
            ("]", false),
            ("01", false),
            ("+1", false),
            ("1.", false),
            (".5", false),
            ("1e", false),
            ("1e+", false),
            ("-", false),
            ("tru", false),
            (r#""\u00e""#, false),
            (r#""\u00+9""#, false),
            (r#""\x""#, false),
            (r#""\"#, false),
            (r#""a"#, false),
            ("\"\n\"", false),
            ("\"eight bytes\u{1f}\"", false),
            ("[1,\u{a0}2]", false),
        ] {
            assert_eq!((is_value(text), by_serde(text)), (is_json, is_json), "{text}");
        }
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(is_value(&deep) && by_serde(&deep) && !is_value(&deep[1..]));
    }

    #[test]
    fn every_byte_that_is_not_plain_is_found_at_once() {
        for byte in 0..0x80_u8 {
            for at in 0..20 {
                let mut text = [b'\xf0'; 20];
                text[at] = byte;
                let is_plain = byte >= b' ' && byte != b'"' && byte != b'\\';
                assert_eq!(plain_length(&text), if is_plain { 20 } else { at }, "{byte} at {at}");
            }
        }
    }

    /// Values, and what is left of them where a part is missing or stands twice.
    fn texts() -> impl Strategy<Value = String> {
        let part = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\"a\":",
            "\"text of some words\"",
            r#"\""#,
            r"\\",
            r"\u00e9",
            r"\u00",
            r"\ud83d",
            "\\",
            " ",
            "\n",
            "\t",
            "\u{1}",
            "é漢😀",
            "0",
            "1",
            "-",
            ".",
            "e",
            "E+",
            "12.5e-3",
            "true",
            "false",
            "null",
            "nul",
            "x",
        ]);
        let scalar = prop::sample::select(vec![
            "0",
            "-1.5e3",
            "true",
            "false",
            "null",
            r#""""#,
            r#""a longer \"text\" with \n and \u00e9 in it""#,
            "\"é漢😀\"",
        ]);
        let value = scalar.prop_map(String::from).prop_recursive(4, 24, 4, |inner| {
            let items = prop::collection::vec((prop::sample::select(vec!["", " ", "\n  "]), inner), 0..4);
            (any::<bool>(), items).prop_map(|(is_list, items)| {
                let item = |(space, item): &(&str, String)| match is_list {
                    true => format!("{space}{item}{space}"),
                    false => format!("{space}\"k\"{space}:{space}{item}{space}"),
                };
                let inner = items.iter().map(item).collect::<Vec<_>>().join(",");
                if is_list { format!("[{inner}]") } else { format!("{{{inner}}}") }
            })
        });
        let fault = (any::<prop::sample::Index>(), part.clone());
        let changed = (value, prop::option::of(fault)).prop_map(|(mut text, fault)| {
            if let Some((at, part)) = fault {
                let at = at.index(text.len() + 1);
                match text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                    true if at < text.len() => text.replace_range(at..=at, part),
                    _ => text.push_str(part),
                }
            }
            text
        });
        prop_oneof![3 => changed, 1 => prop::collection::vec(part, 0..9).prop_map(|parts| parts.concat())]
    }

    #[test]
    fn it_says_what_serde_json_says() {
        let counts: [(&str, Cell<u32>); 4] =
            ["a scalar", "a container", "no JSON", "JSON within spaces"].map(|name| (name, Cell::new(0)));
        let config = ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() };
        let checked = TestRunner::new(config).run(&texts(), |text| {
            prop_assert_eq!(is_value(&text), by_serde(&text));
            let class = match is_value(&text) {
                true => usize::from(text.starts_with(['{', '['])),
                false => 2 + usize::from(is_value(text.trim_matches([' ', '\n', '\t']))),
            };
            counts[class].1.set(counts[class].1.get() + 1);
            Ok(())
        });
        checked.unwrap();
        for (class, count) in &counts {
            println!("{class}: {}", count.get());
            assert!(count.get() > 0, "no text was {class}");
        }
    }
}
