//! The events of a streamed reply.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::content::ContentBlock;
use super::json::{self, Fields};
use super::message::{Message, StopReason};
use super::text_delta::TextDelta;
use super::usage::Usage;
use crate::error::{Error, ErrorKind, Result};

/// One event of a streamed reply.
///
/// A reply begins with [`MessageStart`](Self::MessageStart). Each block has a start, any number of
/// deltas and a stop, all of which name it by its index. [`MessageDelta`](Self::MessageDelta) brings
/// the stop reason and [`MessageStop`](Self::MessageStop) ends the reply. A ping may come anywhere.
/// An error that the API sends in a stream is no event but the stream's error.
///
/// The API adds events: a match needs an arm for the rest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StreamEvent {
    /// More of a block.
    #[non_exhaustive]
    ContentBlockDelta {
        /// The index of the block in the reply.
        index: usize,
        /// What is added.
        delta: Delta,
    },
    /// A block begins; some come whole, and have no deltas.
    #[non_exhaustive]
    ContentBlockStart {
        /// The index of the block in the reply, counted from 0.
        index: usize,
        /// The block as it begins: a call with its name and the placeholder `{}` as its input.
        block: ContentBlock,
        /// The block as the server sent it.
        json: Box<RawValue>,
    },
    /// A block is complete.
    #[non_exhaustive]
    ContentBlockStop {
        /// The index of the block in the reply.
        index: usize,
    },
    /// The stop reason and the counters so far.
    MessageDelta(MessageDelta),
    /// The reply begins: id, model and input tokens, and no content.
    MessageStart(Message),
    /// The reply is complete.
    MessageStop,
    /// A sign of life.
    Ping,
    /// An event that this version does not know. It changes nothing.
    #[non_exhaustive]
    Other {
        /// The event's name.
        kind: Box<str>,
        /// Its data, JSON as a rule.
        data: Box<str>,
    },
}

/// What a [`ContentBlockDelta`](StreamEvent::ContentBlockDelta) adds to its block.
///
/// The API adds kinds: a match needs an arm for the rest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Delta {
    /// One more citation.
    Citation(Box<RawValue>),
    /// What a compaction block gets: `content` and `encrypted_content`.
    Compaction(Box<RawValue>),
    /// More of the JSON text of a call's input. The pieces make sense only together;
    /// [`PartialInput`](super::PartialInput) reads what there is.
    InputJson(String),
    /// The signature, set as a whole.
    Signature(String),
    /// More text.
    Text(String),
    /// More thinking.
    #[non_exhaustive]
    Thinking {
        /// The text; empty where the API does not display it.
        thinking: String,
        /// About how many tokens were thought since the delta before, where the API tells.
        estimated_tokens: Option<u64>,
    },
    /// A delta that this version does not know. It changes nothing.
    #[non_exhaustive]
    Other {
        /// The delta's `type`.
        kind: Box<str>,
        /// The whole delta.
        json: Box<RawValue>,
    },
}

/// What the end of a reply brings. There may be several; the last one counts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageDelta {
    /// Why the model stopped.
    pub stop_reason: Option<StopReason>,
    /// The stop sequence that came up.
    pub stop_sequence: Option<String>,
    /// Counters of the whole reply, not of a part of it. Those that are missing keep the value of
    /// the start, and read 0 here.
    pub usage: Option<Usage>,
    /// The whole event.
    pub json: Box<RawValue>,
}

/// What a frame of the stream holds.
#[derive(Debug)]
pub(crate) enum Parsed {
    Event(StreamEvent),
    /// The API's error, which ends the stream; its text is the frame's data.
    Failure,
    /// Nothing at all.
    Empty,
}

impl StreamEvent {
    /// Reads a frame. `type` inside the data names the event, else the frame's own name does.
    pub(crate) fn parse(event: &str, data: &str) -> Result<Parsed> {
        if let Some(delta) = TextDelta::parse(event, data).and_then(TextDelta::into_event) {
            return Ok(Parsed::Event(delta));
        }
        let data = match data.trim() {
            // The second is how other APIs end a stream.
            "" | "[DONE]" if event.is_empty() => return Ok(Parsed::Empty),
            "" => "{}",
            _ => data,
        };
        // Some servers name the type of the error where others name the event.
        if event == "error" {
            return Ok(Parsed::Failure);
        }
        let fields = serde_json::from_str::<Fields<'_>>(data);
        let field = |name| fields.as_ref().ok().and_then(|fields| fields.get(name));
        let kind = field("type").and_then(json::string).unwrap_or(Cow::Borrowed(event));
        // Gateways leave out the name and the outer `type`.
        let is_bare = kind.is_empty() && field("error").is_some_and(|error| !json::is_null(error));
        if kind == "error" || is_bare {
            return Ok(Parsed::Failure);
        }
        if !KNOWN.contains(&&*kind) && !kind.is_empty() {
            return Ok(Parsed::Event(Self::Other { kind: (&*kind).into(), data: data.into() }));
        }
        let fields = fields.map_err(|error| {
            let name = if kind.is_empty() { "event without a name" } else { &*kind };
            bad(name, "is not a JSON object").with_source(json::place(&error))
        })?;
        Self::known(&kind, &fields, data).map(Parsed::Event)
    }

    pub(super) fn known(kind: &str, fields: &Fields<'_>, data: &str) -> Result<Self> {
        let index = || {
            let index = fields.get("index").and_then(|index| index.get().parse::<usize>().ok());
            index.ok_or_else(|| bad(kind, "has no `index`"))
        };
        let object = |name: &str| {
            let value = fields.get(name).filter(|value| json::is_object(value));
            value.ok_or_else(|| bad(kind, &format!("has no object `{name}`")))
        };
        Ok(match kind {
            "message_start" => Self::MessageStart(Message::from_json(object("message")?.get())?),
            "content_block_start" => {
                let (index, json) = (index()?, object("content_block")?);
                Self::ContentBlockStart { index, block: started(json), json: json.to_owned() }
            }
            "content_block_delta" => {
                Self::ContentBlockDelta { index: index()?, delta: Delta::parse(object("delta")?)? }
            }
            "content_block_stop" => Self::ContentBlockStop { index: index()? },
            "message_delta" => Self::MessageDelta(MessageDelta::parse(fields, data)?),
            "message_stop" => Self::MessageStop,
            "ping" => Self::Ping,
            _ => return Err(bad("event without a name", "has no `type`")),
        })
    }

    /// The event's name on the wire.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta(_) => "message_delta",
            Self::MessageStart(_) => "message_start",
            Self::MessageStop => "message_stop",
            Self::Ping => "ping",
            Self::Other { kind, .. } => kind,
        }
    }

    /// The text of a text delta. [`MessageStream::text_stream`](crate::MessageStream::text_stream)
    /// gives the text of text blocks, also where a block begins with some.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::ContentBlockDelta { delta: Delta::Text(text), .. } => Some(text),
            _ => None,
        }
    }
}

/// The events that mean something here.
const KNOWN: [&str; 7] = [
    "content_block_delta",
    "content_block_start",
    "content_block_stop",
    "message_delta",
    "message_start",
    "message_stop",
    "ping",
];

/// The view of a block as it begins. Some servers leave the placeholder of a call's input out.
fn started(json: &RawValue) -> ContentBlock {
    let block = ContentBlock::from_raw(json);
    match &block {
        ContentBlock::Other(other) if super::content::is_call(&other.kind) => {
            ContentBlock::from_raw(&json::with_field(json.get(), "input", "{}"))
        }
        _ => block,
    }
}

impl Delta {
    fn parse(delta: &RawValue) -> Result<Self> {
        let fields = Fields::parse(delta.get()).unwrap_or_default();
        let kind = fields.str("type").ok_or_else(|| bad("content_block_delta", "has no `type`"))?;
        let text = |name: &str| {
            let text = fields.str(name).map(Cow::into_owned);
            text.ok_or_else(|| bad(&kind, &format!("has no text `{name}`")))
        };
        Ok(match &*kind {
            "citations_delta" => {
                let citation = fields.get("citation").filter(|citation| json::is_object(citation));
                Self::Citation(citation.ok_or_else(|| bad(&kind, "has no `citation`"))?.to_owned())
            }
            "compaction_delta" => Self::Compaction(delta.to_owned()),
            "input_json_delta" => Self::InputJson(text("partial_json")?),
            "signature_delta" => Self::Signature(text("signature")?),
            "text_delta" => Self::Text(text("text")?),
            "thinking_delta" => {
                let tokens = fields.get("estimated_tokens").and_then(|tokens| tokens.get().parse().ok());
                let thinking = match text("thinking") {
                    // A mere estimate has no text.
                    Err(_) if tokens.is_some() => String::new(),
                    thinking => thinking?,
                };
                Self::Thinking { thinking, estimated_tokens: tokens }
            }
            _ => Self::Other { kind: (&*kind).into(), json: delta.to_owned() },
        })
    }

    /// How many bytes it takes, about.
    pub(crate) fn len(&self) -> usize {
        match self {
            // A citation is an item of its own.
            Self::Citation(json) | Self::Compaction(json) => json.get().len() + 64,
            Self::InputJson(text) | Self::Signature(text) | Self::Text(text) => text.len(),
            Self::Thinking { thinking, .. } => thinking.len(),
            Self::Other { .. } => 0,
        }
    }

    /// The delta's `type` on the wire.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Citation(_) => "citations_delta",
            Self::Compaction(_) => "compaction_delta",
            Self::InputJson(_) => "input_json_delta",
            Self::Signature(_) => "signature_delta",
            Self::Text(_) => "text_delta",
            Self::Thinking { .. } => "thinking_delta",
            Self::Other { kind, .. } => kind,
        }
    }
}

impl MessageDelta {
    fn parse(fields: &Fields<'_>, data: &str) -> Result<Self> {
        let object = |name: &str| match fields.get(name).filter(|value| !json::is_null(value)) {
            Some(value) if !json::is_object(value) => {
                Err(bad("message_delta", &format!("has a `{name}` that is no object")))
            }
            value => Ok(value),
        };
        let delta = object("delta")?.and_then(|delta| Fields::parse(delta.get())).unwrap_or_default();
        let text = |name: &str| match delta.get(name).filter(|value| !json::is_null(value)) {
            Some(value) if json::string(value).is_none() => {
                Err(bad("message_delta", &format!("has a `{name}` that is no text")))
            }
            value => Ok(value.and_then(json::string)),
        };
        Ok(Self {
            stop_reason: text("stop_reason")?.map(|reason| StopReason::from(&*reason)),
            stop_sequence: text("stop_sequence")?.map(Cow::into_owned),
            usage: object("usage")?.map(Usage::from_raw),
            json: json::text(data),
        })
    }
}

fn bad(what: &str, problem: &str) -> Error {
    Error::new(
        ErrorKind::Decode,
        format!("an event of the stream is broken: {} {problem}", json::shown(what)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(event: &str, data: &str) -> Result<String, String> {
        match StreamEvent::parse(event, data) {
            Ok(Parsed::Event(event)) => Ok(event.kind().to_owned()),
            Ok(other) => Ok(format!("{other:?}")),
            Err(error) => Err(error.chain()),
        }
    }

    #[test]
    fn the_type_in_the_data_names_the_event() {
        for (event, data, kind) in [
            ("ping", r#"{"type":"ping"}"#, "ping"),
            ("", r#"{"type":"ping"}"#, "ping"),
            ("ping", "{}", "ping"),
            ("ping", "", "ping"),
            ("message", r#"{"type":"message_stop"}"#, "message_stop"),
            ("message_stop", " ", "message_stop"),
            ("future", r#"{"type":"future","x":1}"#, "future"),
            ("future", "no JSON", "future"),
            ("", "", "Empty"),
            ("", "[DONE]", "Empty"),
            ("", r#"{"error":{"type":"api_error","message":"m"}}"#, "Failure"),
            ("ping", r#"{"error":null}"#, "ping"),
            ("error", r#"{"type":"overloaded_error","message":"m"}"#, "Failure"),
            ("error", "Bad gateway", "Failure"),
            ("", r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#, "Failure"),
        ] {
            assert_eq!(parse(event, data).as_deref(), Ok(kind), "{event} {data}");
        }
    }

    #[test]
    fn known_events_with_a_broken_payload_are_errors() {
        let delta = |delta: &str| format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#);
        for (data, word) in [
            ("{oops".to_owned(), "without a name is not a JSON object"),
            ("[]".to_owned(), "without a name is not a JSON object"),
            ("{}".to_owned(), "has no `type`"),
            (r#"{"type":"content_block_stop"}"#.to_owned(), "has no `index`"),
            (r#"{"type":"content_block_stop","index":-1}"#.to_owned(), "has no `index`"),
            (r#"{"type":"content_block_stop","index":"0"}"#.to_owned(), "has no `index`"),
            (r#"{"type":"content_block_start","index":0}"#.to_owned(), "no object `content_block`"),
            (r#"{"type":"message_start","message":[]}"#.to_owned(), "no object `message`"),
            (r#"{"type":"message_start","message":{"content":"x"}}"#.to_owned(), "content of the reply"),
            (delta("7"), "no object `delta`"),
            (delta(r#"{"text":"x"}"#), "has no `type`"),
            (delta(r#"{"type":"text_delta"}"#), "has no text `text`"),
            (delta(r#"{"type":"text_delta","text":null}"#), "has no text `text`"),
            (delta(r#"{"type":"input_json_delta","partial_json":{}}"#), "has no text `partial_json`"),
            (delta(r#"{"type":"thinking_delta"}"#), "has no text `thinking`"),
            (delta(r#"{"type":"signature_delta"}"#), "has no text `signature`"),
            (delta(r#"{"type":"citations_delta","citation":"x"}"#), "has no `citation`"),
            (r#"{"type":"message_delta","delta":7}"#.to_owned(), "`delta` that is no object"),
            (r#"{"type":"message_delta","usage":[]}"#.to_owned(), "`usage` that is no object"),
            (
                r#"{"type":"message_delta","delta":{"stop_reason":5}}"#.to_owned(),
                "`stop_reason` that is no text",
            ),
        ] {
            let error = parse("", &data).unwrap_err();
            assert!(error.contains(word), "{data}: {error}");
        }
        assert!(parse("ping", "{oops").unwrap_err().contains("ping is not a JSON object"));
    }

    #[test]
    fn a_message_delta_needs_nothing() {
        for (data, reason, output) in [
            (
                r#"{"type":"message_delta","delta":{"stop_reason":"new","stop_sequence":null},"usage":{"output_tokens":7}}"#,
                Some("new"),
                Some(7),
            ),
            (r#"{"type":"message_delta","delta":{},"usage":null}"#, None, None),
            (r#"{"type":"message_delta"}"#, None, None),
        ] {
            let Ok(Parsed::Event(StreamEvent::MessageDelta(delta))) = StreamEvent::parse("", data) else {
                panic!("{data}");
            };
            assert_eq!(delta.stop_reason.as_ref().map(StopReason::as_str), reason);
            assert_eq!(delta.usage.map(|usage| usage.output_tokens), output);
            assert_eq!(delta.json.get(), data);
        }
    }

    #[test]
    fn a_call_may_begin_without_its_placeholder() {
        let data = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f"}}"#;
        let Ok(Parsed::Event(StreamEvent::ContentBlockStart { block, json, .. })) =
            StreamEvent::parse("", data)
        else {
            panic!();
        };
        assert!(matches!(block, ContentBlock::ToolUse(call) if call.name == "f" && call.input.get() == "{}"));
        assert_eq!(json.get(), r#"{"type":"tool_use","id":"t","name":"f"}"#);
    }
}
