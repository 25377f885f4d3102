//! Whether a text is JSON, found out while it comes.
//!
//! It says what `serde_json` says, in less time, but not what is wrong.

/// Reads a text piece by piece.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonCheck {
    state: State,
    /// What the open containers end with.
    open: Vec<u8>,
    /// The string names a field.
    is_name: bool,
    /// What is missing of `true`, `false` or `null`.
    word: &'static [u8],
}

/// What was read last, or has to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Nothing,
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    AfterValue,
    String,
    Escape,
    Hex4,
    Hex3,
    Hex2,
    Hex1,
    Word,
    Number(NumberPart),
    Broken,
}

/// How far a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberPart {
    Start,
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl NumberPart {
    /// The part that a byte leads to; `None` if it does not belong to the number.
    pub(super) fn then(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Start, b'-') => Self::Minus,
            (Self::Start | Self::Minus, b'0') => Self::Zero,
            (Self::Start | Self::Minus, b'1'..=b'9') | (Self::Integer, b'0'..=b'9') => Self::Integer,
            (Self::Zero | Self::Integer, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Self::E,
            (Self::E, b'+' | b'-') => Self::Sign,
            (Self::E | Self::Sign | Self::Exponent, b'0'..=b'9') => Self::Exponent,
            _ => return None,
        })
    }

    /// True if the number may end here.
    fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::Exponent)
    }
}

impl JsonCheck {
    /// Reads the next piece.
    pub(crate) fn push(&mut self, mut text: &str) {
        while !text.is_empty() {
            let first = usize::from(text.as_bytes()[0].is_ascii());
            let (part, rest) = text.split_at(first + plain_length(&text.as_bytes()[first..]));
            self.push_part(part);
            text = rest;
        }
    }

    /// Reads a piece in which only the first byte may be a quote, a backslash or a control character.
    #[inline]
    pub(crate) fn push_part(&mut self, part: &str) {
        let mut state = self.state;
        for (at, byte) in part.bytes().enumerate() {
            // Nothing else ends a string.
            if at > 0 && state == State::String {
                break;
            }
            state = self.step(state, byte);
        }
        self.state = state;
    }

    /// Leaves the question open: what was read is not known to be a value any more.
    pub(crate) fn give_up(&mut self) {
        self.state = State::Broken;
    }

    /// True if all of it is one JSON value, and nothing stands around that. As in `serde_json` a
    /// number may be too large, half of a surrogate pair stand alone, and containers stand in each
    /// other without limit.
    pub(crate) fn is_value(&self) -> bool {
        let is_complete = match self.state {
            State::AfterValue => true,
            State::Number(part) => part.may_end(),
            _ => false,
        };
        is_complete && self.open.is_empty()
    }

    fn step(&mut self, state: State, byte: u8) -> State {
        use State::*;
        match (state, byte) {
            (String, b'"') if self.is_name => Colon,
            (String, b'"') => AfterValue,
            (String, b'\\') => Escape,
            (String, b' '..) => String,
            (Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => String,
            (Escape, b'u') => Hex4,
            (Hex4, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => Hex3,
            (Hex3, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => Hex2,
            (Hex2, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => Hex1,
            (Hex1, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => String,

            (Value | ValueOrEnd | Name | NameOrEnd | Colon, b' ' | b'\t' | b'\n' | b'\r') => state,
            (AfterValue, _) | (NameOrEnd, b'}') | (ValueOrEnd, b']') => self.after_value(byte),
            (Name | NameOrEnd, b'"') => self.string(true),
            (Colon, b':') => Value,
            (Nothing | Value | ValueOrEnd, _) => self.begin(byte),

            (Word, _) => match self.word {
                [next] if *next == byte => AfterValue,
                [next, rest @ ..] if *next == byte => {
                    self.word = rest;
                    Word
                }
                _ => Broken,
            },

            (Number(part), _) => match part.then(byte) {
                Some(part) => Number(part),
                None if part.may_end() => self.after_value(byte),
                None => Broken,
            },
            _ => Broken,
        }
    }

    #[inline]
    fn after_value(&mut self, byte: u8) -> State {
        match (byte, self.open.last()) {
            (b',', Some(b'}')) => State::Name,
            (b',', Some(_)) => State::Value,
            (b' ' | b'\t' | b'\n' | b'\r', Some(_)) => State::AfterValue,
            (_, Some(end)) if byte == *end => {
                self.open.pop();
                State::AfterValue
            }
            _ => State::Broken,
        }
    }

    fn begin(&mut self, byte: u8) -> State {
        match byte {
            b'"' => self.string(false),
            b'{' => self.container(b'}', State::NameOrEnd),
            b'[' => self.container(b']', State::ValueOrEnd),
            b't' => self.word(b"rue"),
            b'f' => self.word(b"alse"),
            b'n' => self.word(b"ull"),
            _ => NumberPart::Start.then(byte).map_or(State::Broken, State::Number),
        }
    }

    fn string(&mut self, is_name: bool) -> State {
        self.is_name = is_name;
        State::String
    }

    fn container(&mut self, end: u8, inner: State) -> State {
        self.open.push(end);
        inner
    }

    fn word(&mut self, rest: &'static [u8]) -> State {
        self.word = rest;
        State::Word
    }
}

/// How many bytes come before a quote, a backslash or a control character. Eight are looked at at
/// once: of the bytes whose highest bit is set in `found` the first is always one of these.
#[inline]
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
    use crate::messages::unescape;

    fn is_value(text: &str) -> bool {
        in_pieces([text])
    }

    fn in_pieces<'a>(pieces: impl IntoIterator<Item = &'a str>) -> bool {
        let mut check = JsonCheck::default();
        for piece in pieces {
            check.push(piece);
        }
        check.is_value()
    }

    /// As the parts that the escapes of a JSON string make.
    fn in_parts(text: &str) -> Option<bool> {
        let json = serde_json::to_string(text).unwrap();
        let mut check = JsonCheck::default();
        unescape(&json[1..json.len() - 1], |part| check.push_part(part))?;
        Some(check.is_value())
    }

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
            assert_eq!(in_pieces(text.split_inclusive(|_: char| true)), is_json, "{text}");
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
        let parts = Cell::new(0);
        let config = ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() };
        let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
        let checked = TestRunner::new(config).run(&(texts(), cuts), |(text, cuts)| {
            prop_assert_eq!(is_value(&text), by_serde(&text));
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.retain(|cut| text.is_char_boundary(*cut));
            cuts.sort_unstable();
            prop_assert_eq!(in_pieces(cuts.windows(2).map(|cut| &text[cut[0]..cut[1]])), by_serde(&text));
            if let Some(is_value) = in_parts(&text) {
                parts.set(parts.get() + 1);
                prop_assert_eq!(is_value, by_serde(&text));
            }
            let class = match is_value(&text) {
                true => usize::from(text.starts_with(['{', '['])),
                false => 2 + usize::from(is_value(text.trim_matches([' ', '\n', '\t']))),
            };
            counts[class].1.set(counts[class].1.get() + 1);
            Ok(())
        });
        checked.unwrap();
        println!("in parts: {}", parts.get());
        assert!(parts.get() > 10_000);
        for (class, count) in &counts {
            println!("{class}: {}", count.get());
            assert!(count.get() > 0, "no text was {class}");
        }
    }
}
