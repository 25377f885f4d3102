//! The deltas that add text: most events of a stream are of this kind.

use std::borrow::Cow;

use serde::Deserialize;

use super::event::{Delta, StreamEvent};
use super::json::Str;
use super::json_check::plain_length;

/// A delta that adds text to a field of its block. It borrows from its frame, and long texts are read
/// once, where they are added.
#[derive(Debug)]
pub(crate) struct TextDelta<'a> {
    pub(crate) index: usize,
    pub(crate) field: TextField,
    pub(crate) text: Text<'a>,
    estimated_tokens: Option<u64>,
}

/// The text of a delta.
#[derive(Debug)]
pub(crate) enum Text<'a> {
    Plain(Cow<'a, str>),
    /// What stands between the quotes of a JSON string, if it is one: nobody looked at its escapes.
    Spelled(&'a str),
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
    /// Finds a delta that says what it should, but for the escapes of its text. Everything else,
    /// faults among it, is for [`StreamEvent::parse`].
    pub(crate) fn parse(event: &str, data: &'a str) -> Option<Self> {
        match event {
            "content_block_delta" | "" => Self::as_spelled(data).or_else(|| Self::as_json(data)),
            _ => None,
        }
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
        let text = match plain_length(text.as_bytes()) == text.len() {
            true => Text::Plain(Cow::Borrowed(text)),
            false => Text::Spelled(text),
        };
        Some(Self { index: index.parse().ok()?, field, text, estimated_tokens: None })
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
        let text = Text::Plain(text.0);
        Some(Self { index, field, text, estimated_tokens: delta.estimated_tokens })
    }

    /// The event that the caller gets; `None` if the text is for the parser.
    pub(super) fn into_event(self) -> Option<StreamEvent> {
        let Self { index, field, text, estimated_tokens } = self;
        let text = text.read()?.into_owned();
        let delta = match field {
            TextField::Input => Delta::InputJson(text),
            TextField::Text => Delta::Text(text),
            TextField::Thinking => Delta::Thinking { thinking: text, estimated_tokens },
        };
        Some(StreamEvent::ContentBlockDelta { index, delta })
    }
}

impl<'a> Text<'a> {
    /// The text itself; `None` if it is for the parser.
    pub(crate) fn read(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Plain(text) => Some(text),
            Self::Spelled(json) => {
                let mut text = String::with_capacity(json.len());
                unescape(json, |part| text.push_str(part))?;
                Some(Cow::Owned(text))
            }
        }
    }
}

/// Gives the text of a JSON string in parts, in which only the first byte may be a quote, a backslash
/// or a control character. `None` at an escape that takes a number, or is none.
pub(crate) fn unescape(json: &str, mut take: impl FnMut(&str)) -> Option<()> {
    let mut rest = json;
    let mut length = plain_length(rest.as_bytes());
    loop {
        let (part, escape) = rest.split_at(length);
        take(part);
        let [b'\\', escaped, ..] = escape.as_bytes() else { return escape.is_empty().then_some(()) };
        // What stands for itself begins the next part.
        let itself = match escaped {
            b'"' | b'\\' | b'/' => 1,
            b'b' | b'f' | b'n' | b'r' | b't' => {
                take(match escaped {
                    b'b' => "\u{8}",
                    b'f' => "\u{c}",
                    b'n' => "\n",
                    b'r' => "\r",
                    _ => "\t",
                });
                0
            }
            _ => return None,
        };
        rest = &escape[2 - itself..];
        length = itself + plain_length(&rest.as_bytes()[itself..]);
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
        delta.and_then(TextDelta::into_event).map(|event| format!("{event:?}"))
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
            let found = TextDelta::parse("content_block_delta", &data);
            short += i32::from(found.is_some());
            assert!(found.is_none() || shown(found) == long(&data), "{data}");
            let Parsed::Event(event) = StreamEvent::parse("content_block_delta", &data).unwrap() else {
                panic!("{data}");
            };
            assert_eq!(Some(format!("{event:?}")), long(&data));
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
                    assert_eq!(matches!(spelled.text, Text::Plain(_)), !text.contains('\\'), "{data}");
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
            ("as spelled, plain", Cell::new(0)),
            ("as spelled, with escapes", Cell::new(0)),
            ("as JSON", Cell::new(0)),
            ("by the long way", Cell::new(0)),
            ("no delta", Cell::new(0)),
        ];
        let config = ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() };
        let checked = TestRunner::new(config).run(&deltas(), |data| {
            let spelled = TextDelta::as_spelled(&data);
            let is_plain = matches!(spelled, Some(TextDelta { text: Text::Plain(_), .. }));
            let (spelled, json, long) = (shown(spelled), TextDelta::as_json(&data), long(&data));
            let class = match (&spelled, &json, &long) {
                (Some(_), ..) => usize::from(!is_plain),
                (_, Some(_), _) => 2,
                (_, _, Some(_)) => 3,
                _ => 4,
            };
            counts[class].1.set(counts[class].1.get() + 1);
            if spelled.is_some() {
                prop_assert_eq!(&spelled, &long);
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
