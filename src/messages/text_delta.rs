//! The deltas that add text: most events of a stream are of this kind.

use std::borrow::Cow;

use serde::Deserialize;

use super::event::{Delta, StreamEvent};
use super::json::Str;
use super::json_check::plain_length;

/// A delta that adds text to a field of its block. It is read in one pass and borrows from its
/// frame.
#[derive(Debug)]
pub(crate) struct TextDelta<'a> {
    pub(crate) index: usize,
    pub(crate) field: TextField,
    pub(crate) text: Cow<'a, str>,
    estimated_tokens: Option<u64>,
}

/// Where a [`TextDelta`] adds its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextField {
    Input,
    Text,
    Thinking,
}

/// How a delta goes on behind its `"type":"`, up to its text.
const SPELLINGS: [(TextField, &str); 3] = [
    (TextField::Text, r#"text_delta","text":""#),
    (TextField::Input, r#"input_json_delta","partial_json":""#),
    (TextField::Thinking, r#"thinking_delta","thinking":""#),
];

impl<'a> TextDelta<'a> {
    /// Reads a delta that says what it should. Everything else, faults among it, is for
    /// [`StreamEvent::parse`].
    pub(super) fn parse(data: &'a str) -> Option<Self> {
        Self::as_spelled(data).or_else(|| Self::as_json(data))
    }

    /// Reads the very spelling of the API, which pads its events with spaces before the last brace.
    fn as_spelled(data: &'a str) -> Option<Self> {
        let rest = data.strip_prefix(r#"{"type":"content_block_delta","index":"#)?;
        let (index, rest) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
        if index.len() > 1 && index.starts_with('0') {
            return None;
        }
        let rest = rest.strip_prefix(r#","delta":{"type":""#)?;
        let (field, rest) =
            SPELLINGS.iter().find_map(|(field, spelling)| Some((*field, rest.strip_prefix(spelling)?)))?;
        let text = rest.strip_suffix('}')?.trim_end_matches(' ').strip_suffix("\"}")?;
        Some(Self { index: index.parse().ok()?, field, text: unescaped(text)?, estimated_tokens: None })
    }

    /// Reads any spelling.
    fn as_json(data: &'a str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Wire<'a> {
            #[serde(rename = "type", borrow)]
            kind: Str<'a>,
            index: usize,
            #[serde(borrow)]
            delta: WireDelta<'a>,
        }

        #[derive(Deserialize)]
        struct WireDelta<'a> {
            #[serde(rename = "type", borrow)]
            kind: Str<'a>,
            #[serde(borrow)]
            text: Option<Str<'a>>,
            #[serde(borrow)]
            partial_json: Option<Str<'a>>,
            #[serde(borrow)]
            thinking: Option<Str<'a>>,
            estimated_tokens: Option<u64>,
        }

        let Wire { kind, index, delta } = serde_json::from_str(data).ok()?;
        if kind.0 != "content_block_delta" {
            return None;
        }
        let (field, text) = match &*delta.kind.0 {
            "text_delta" => (TextField::Text, delta.text?),
            "input_json_delta" => (TextField::Input, delta.partial_json?),
            "thinking_delta" => (TextField::Thinking, delta.thinking?),
            _ => return None,
        };
        Some(Self { index, field, text: text.0, estimated_tokens: delta.estimated_tokens })
    }

    /// The event that the caller gets.
    pub(crate) fn into_event(self) -> StreamEvent {
        let Self { index, field, text, estimated_tokens } = self;
        let text = text.into_owned();
        let delta = match field {
            TextField::Input => Delta::InputJson(text),
            TextField::Text => Delta::Text(text),
            TextField::Thinking => Delta::Thinking { thinking: text, estimated_tokens },
        };
        StreamEvent::ContentBlockDelta { index, delta }
    }
}

/// The text of a JSON string without its quotes; `None` where it has an escape that takes a number,
/// or is none.
fn unescaped(json: &str) -> Option<Cow<'_, str>> {
    let mut plain = plain_length(json.as_bytes());
    if plain == json.len() {
        return Some(Cow::Borrowed(json));
    }
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    loop {
        let (before, escape) = rest.split_at(plain);
        text.push_str(before);
        let [b'\\', escaped, ..] = escape.as_bytes() else {
            return escape.is_empty().then_some(Cow::Owned(text));
        };
        text.push(match escaped {
            b'"' | b'\\' | b'/' => char::from(*escaped),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            _ => return None,
        });
        rest = &escape[2..];
        plain = plain_length(rest.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::messages::Parsed;
    use crate::messages::json::Fields;

    /// What the long way reads, if this is a delta at all.
    fn long(data: &str) -> Option<String> {
        let event = StreamEvent::known("content_block_delta", &Fields::parse(data)?, data).ok()?;
        Some(format!("{event:?}"))
    }

    fn shown(delta: Option<TextDelta<'_>>) -> Option<String> {
        delta.map(|delta| format!("{:?}", delta.into_event()))
    }

    /// What is read in one pass is what the long way reads.
    #[test]
    fn the_short_way_is_the_long_one() {
        let mut short = 0;
        for delta in [
            r#"{"type":"text_delta","text":"a"}"#,
            r#"{"text":"\u00e9\n","new":[{}],"type":"text_delta"}"#,
            r#"{"type":"input_json_delta","partial_json":"{\"a\":"}"#,
            r#"{"type":"thinking_delta","thinking":"","estimated_tokens":3}"#,
            r#"{"type":"thinking_delta","thinking":"x","estimated_tokens":null}"#,
            // These take the long way.
            r#"{"type":"text_delta","text":"\ud83d"}"#,
            r#"{"type":"text_delta","text":"a","text":"b"}"#,
            r#"{"type":"thinking_delta","thinking":"x","estimated_tokens":1.5}"#,
            r#"{"type":"thinking_delta","estimated_tokens":1}"#,
            r#"{"type":"signature_delta","signature":"s"}"#,
        ] {
            let data = format!(r#"{{"index":3,"type":"content_block_delta","delta":{delta},"more":1}}"#);
            let parsed = match StreamEvent::parse("content_block_delta", &data).unwrap() {
                Parsed::Text(delta) => {
                    short += 1;
                    delta.into_event()
                }
                Parsed::Event(event) => event,
                other => panic!("{other:?}"),
            };
            assert_eq!(Some(format!("{parsed:?}")), long(&data));
        }
        assert_eq!(short, 5);
    }

    #[test]
    fn the_spelling_of_the_api_is_read_without_a_parser() {
        for (index, spaces) in [("0", ""), ("1", "    "), ("10", " ")] {
            for field in
                [r#"text_delta","text"#, r#"input_json_delta","partial_json"#, r#"thinking_delta","thinking"#]
            {
                for text in ["", "plain é漢😀 text", "/", r#"\"\\\/\b\f\n\r\t"#, r#" before \n after\""#]
                {
                    let data = format!(
                        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{field}":"{text}"}}{spaces}}}"#
                    );
                    let spelled = TextDelta::as_spelled(&data).unwrap();
                    assert_eq!(matches!(spelled.text, Cow::Borrowed(_)), !text.contains('\\'), "{data}");
                    assert_eq!(shown(Some(spelled)), long(&data));
                }
            }
        }
    }

    /// A delta as it is spelled, or nearly.
    fn deltas() -> impl Strategy<Value = String> {
        let kind = prop::sample::select(vec![
            r#"text_delta","text"#,
            r#"input_json_delta","partial_json"#,
            r#"thinking_delta","thinking"#,
            r#"text_delta","thinking"#,
            r#"signature_delta","signature"#,
        ]);
        let index = prop::sample::select(vec![
            "0",
            "1",
            "12",
            "01",
            "-1",
            "+1",
            "1.0",
            "",
            " 1",
            "18446744073709551616",
        ]);
        let plain = prop::sample::select(vec![
            "a",
            "words of eight bytes or more",
            "é漢😀",
            " ",
            "/",
            "\u{7f}",
            "x\\n",
        ]);
        let odd = prop::sample::select(vec![
            r#"\""#,
            r"\\",
            r"\/",
            r"\t",
            r"\u00e9",
            r"\ud83d\ude00",
            r"\ud83d",
            r"\x",
            r"\",
            "\"",
            "\n",
            "\0",
            "\u{1f}",
            "}",
            "}}",
        ]);
        let text = prop::collection::vec(prop_oneof![6 => plain, 1 => odd], 0..9);
        let end = prop_oneof![
            6 => Just("\"}}"),
            1 => prop::sample::select(vec!["\"}   }", "\" }}", "\"}} ", "\"}", "\"}}}", "}}", r#"","estimated_tokens":3}}"#]),
        ];
        let usual = (prop_oneof![4 => Just("0"), 1 => index], kind, text, end).prop_map(
            |(index, kind, text, end)| {
                let text = text.concat();
                format!(
                    r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}":"{text}{end}"#
                )
            },
        );
        // A character may be missing, and another one stand in its place.
        let fault =
            (any::<prop::sample::Index>(), prop::sample::select(vec!["", " ", "\"", "{", ",", "1", "\\"]));
        (usual, prop::option::weighted(0.3, fault)).prop_map(|(mut data, fault)| {
            if let Some((at, instead)) = fault {
                let at = at.index(data.len());
                if data.is_char_boundary(at) && data.is_char_boundary(at + 1) {
                    data.replace_range(at..=at, instead);
                }
            }
            data
        })
    }

    #[test]
    fn no_spelling_is_read_otherwise_than_by_the_parser() {
        let counts: [(&str, Cell<u32>); 5] = [
            ("as spelled, borrowed", Cell::new(0)),
            ("as spelled, with escapes", Cell::new(0)),
            ("as JSON", Cell::new(0)),
            ("by the long way", Cell::new(0)),
            ("no delta", Cell::new(0)),
        ];
        let config = ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() };
        let checked = TestRunner::new(config).run(&deltas(), |data| {
            let (spelled, json, long) =
                (TextDelta::as_spelled(&data), TextDelta::as_json(&data), long(&data));
            let class = match (&spelled, &json, &long) {
                (Some(TextDelta { text: Cow::Borrowed(_), .. }), ..) => 0,
                (Some(_), ..) => 1,
                (_, Some(_), _) => 2,
                (_, _, Some(_)) => 3,
                _ => 4,
            };
            counts[class].1.set(counts[class].1.get() + 1);
            if spelled.is_some() {
                prop_assert_eq!(&shown(spelled), &long);
                prop_assert!(json.is_some());
            }
            if json.is_some() {
                prop_assert_eq!(&shown(json), &long);
            }
            Ok(())
        });
        checked.unwrap();
        for (class, count) in &counts {
            println!("{class}: {}", count.get());
            assert!(count.get() > 0, "no delta was read {class}");
        }
    }
}
