//! A reply of the API.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::content::{ContentBlock, ToolUseBlock};
use super::freeze::freeze;
use super::json::{self, Fields};
use super::open::open_enum;
use super::param::MessageParam;
use super::rate_limits::RateLimits;
use super::usage::Usage;
use crate::error::{Error, ErrorKind, Result};

open_enum! {
    /// Why the model stopped.
    StopReason {
        /// A compaction block was made.
        Compaction = "compaction",
        /// The model is done.
        EndTurn = "end_turn",
        /// The limit of output tokens was reached.
        MaxTokens = "max_tokens",
        /// The model's context is full.
        ModelContextWindowExceeded = "model_context_window_exceeded",
        /// The API paused a long turn; sent back, it goes on.
        PauseTurn = "pause_turn",
        /// A classifier declined.
        Refusal = "refusal",
        /// One of the caller's stop sequences came up.
        StopSequence = "stop_sequence",
        /// Calls wait for results.
        ToolUse = "tool_use",
    }
}

/// A reply, as received. Cheap to clone.
///
/// ```
/// use agentloop::Message;
///
/// let reply = Message::from_json(
///     r#"{"id":"msg_1","model":"m","content":[{"type":"text","text":"Hi."}],"stop_reason":"end_turn"}"#,
/// )?;
/// assert_eq!(reply.text(), "Hi.");
/// # Ok::<(), agentloop::Error>(())
/// ```
#[derive(Clone)]
pub struct Message {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    json: String,
    /// Where `content` stands in `json`; `None` where the reply has none.
    content: Option<Range<usize>>,
    id: Box<str>,
    model: Box<str>,
    stop_reason: Option<StopReason>,
    stop_sequence: Option<Box<str>>,
    stop_details: Option<StopDetails>,
    container: Option<Container>,
    usage: Usage,
    headers: HeaderMap,
    broken_inputs: Vec<BrokenInput>,
    blocks: OnceLock<Vec<ContentBlock>>,
}

/// An input of a streamed call that is no JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokenInput {
    /// The index of the block.
    pub(crate) block: usize,
    /// What is wrong, and where.
    pub(crate) place: String,
}

/// What the API says beside the stop reason, on a refusal above all.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StopDetails {
    /// The category of a refusal.
    pub category: Option<String>,
    /// Words for a person.
    pub explanation: Option<String>,
    /// The whole object.
    pub json: Box<RawValue>,
}

/// The container in which the API runs code.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Container {
    /// Its id, sent with later requests.
    pub id: String,
    /// When it ends, as RFC 3339.
    pub expires_at: Option<String>,
}

impl Message {
    /// Reads a reply. What is missing or unknown is no error; a stop reason or block of a new
    /// kind is kept.
    ///
    /// # Errors
    /// The text is not a JSON object, or its `content` is not a list.
    pub fn from_json(text: impl Into<String>) -> Result<Self> {
        let json: String = text.into();
        let fields: Fields<'_> = serde_json::from_str(&json).map_err(|error| {
            Error::new(ErrorKind::Decode, "the reply is not a JSON object").with_source(json::place(&error))
        })?;
        let content = match fields.get("content").filter(|content| !json::is_null(content)) {
            Some(content) if content.get().starts_with('[') => Some(range_in(&json, content.get())),
            Some(_) => return Err(Error::new(ErrorKind::Decode, "the content of the reply is not a list")),
            None => None,
        };
        let inner = Inner::read(&fields, content);
        drop(fields);
        Ok(Self { inner: Arc::new(Inner { json, ..inner }) })
    }

    /// A reply whose JSON was put together here. `rest` is the object without its content, which
    /// stands at `content`.
    pub(crate) fn assembled(json: String, content: Range<usize>, rest: &str) -> Self {
        let fields = Fields::parse(rest).unwrap_or_default();
        Self { inner: Arc::new(Inner { json, ..Inner::read(&fields, Some(content)) }) }
    }

    pub(crate) fn with_response(mut self, headers: HeaderMap) -> Self {
        Arc::make_mut(&mut self.inner).headers = headers;
        self
    }

    pub(crate) fn with_broken_inputs(mut self, broken: Vec<BrokenInput>) -> Self {
        if !broken.is_empty() {
            Arc::make_mut(&mut self.inner).broken_inputs = broken;
        }
        self
    }

    /// The id, empty where the reply has none.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// The model that answered, which may be another than the one asked for.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.inner.model
    }

    /// The content as typed blocks, in order.
    #[must_use]
    pub fn content(&self) -> &[ContentBlock] {
        self.inner.blocks.get_or_init(|| {
            let items = json::items(self.content_json()).unwrap_or_default();
            items.into_iter().map(ContentBlock::from_raw).collect()
        })
    }

    /// The content as the server sent it.
    #[must_use]
    pub fn content_json(&self) -> &str {
        self.inner.content.clone().and_then(|range| self.inner.json.get(range)).unwrap_or("[]")
    }

    /// The text blocks, joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.content().iter().filter_map(ContentBlock::as_text).collect()
    }

    /// The client calls that have the expected shape.
    pub fn tool_uses(&self) -> impl Iterator<Item = &ToolUseBlock> {
        self.content().iter().filter_map(|block| match block {
            ContentBlock::ToolUse(call) => Some(call),
            _ => None,
        })
    }

    /// What is wrong with the input of a call, if it came as a stream and is no JSON. Its text is
    /// kept, as a string in the place of the object. A message that is read from JSON does not know
    /// it.
    #[must_use]
    pub fn broken_input(&self, block: usize) -> Option<&str> {
        let broken = &self.inner.broken_inputs;
        let at = broken.binary_search_by_key(&block, |broken| broken.block).ok()?;
        broken.get(at).map(|broken| &*broken.place)
    }

    /// Why the model stopped; `None` where the reply does not say.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&StopReason> {
        self.inner.stop_reason.as_ref()
    }

    /// The stop sequence that came up.
    #[must_use]
    pub fn stop_sequence(&self) -> Option<&str> {
        self.inner.stop_sequence.as_deref()
    }

    /// What the API says beside the stop reason.
    #[must_use]
    pub fn stop_details(&self) -> Option<&StopDetails> {
        self.inner.stop_details.as_ref()
    }

    /// What the reply cost.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.inner.usage
    }

    /// The container that was used.
    #[must_use]
    pub fn container(&self) -> Option<&Container> {
        self.inner.container.as_ref()
    }

    /// The id of the request that got this reply.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.header("request-id")
    }

    /// A header of the response.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.inner.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The rate limits as the response told them. A message that is read from JSON knows none.
    #[must_use]
    pub fn rate_limits(&self) -> RateLimits {
        RateLimits::from_headers(&self.inner.headers)
    }

    /// The whole reply as received.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.inner.json
    }

    /// The message that a conversation keeps of this reply: its content as received, but for
    /// what the API would refuse of its own words. `None` if nothing is left of it.
    #[must_use]
    pub fn to_param(&self) -> Option<MessageParam> {
        freeze(self).message
    }
}

impl Inner {
    fn read(fields: &Fields<'_>, content: Option<Range<usize>>) -> Self {
        let text = |name| fields.str(name).map(|text| Box::from(&*text));
        let object = |name| fields.get(name).filter(|value| json::is_object(value));
        Self {
            content,
            id: text("id").unwrap_or_default(),
            model: text("model").unwrap_or_default(),
            stop_reason: fields.str("stop_reason").map(|reason| StopReason::from(&*reason)),
            stop_sequence: text("stop_sequence"),
            stop_details: object("stop_details").map(StopDetails::from_raw),
            container: object("container").and_then(Container::from_raw),
            usage: fields.get("usage").map(Usage::from_raw).unwrap_or_default(),
            headers: HeaderMap::new(),
            broken_inputs: Vec::new(),
            blocks: OnceLock::new(),
            json: String::new(),
        }
    }
}

/// Where a part of a text stands in it.
fn range_in(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

impl StopDetails {
    fn from_raw(raw: &RawValue) -> Self {
        let fields = Fields::parse(raw.get()).unwrap_or_default();
        Self {
            category: fields.str("category").map(Into::into),
            explanation: fields.str("explanation").map(Into::into),
            json: raw.to_owned(),
        }
    }
}

impl Container {
    fn from_raw(raw: &RawValue) -> Option<Self> {
        let fields = Fields::parse(raw.get())?;
        let id = fields.str("id").filter(|id| !id.is_empty())?.into();
        Some(Self { id, expires_at: fields.str("expires_at").map(Into::into) })
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json::serialize_text(self.json(), serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = json::raw(deserializer, "Message::from_json")?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id())
            .field("model", &self.model())
            .field("stop_reason", &self.stop_reason().map(StopReason::as_str))
            .field("usage", self.usage())
            .field("content", &self.content())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_is_tolerant() {
        for text in [
            r#"{"content":[]}"#,
            r#"{"content":null,"usage":null,"stop_reason":null,"container":null,"id":7}"#,
            r#"{"stop_reason":"brand_new","usage":{"input_tokens":null}}"#,
            "{}",
        ] {
            let reply = Message::from_json(text).unwrap();
            assert!(reply.content().is_empty());
            assert_eq!(reply.json(), text);
        }
        assert!(Message::from_json("[]").is_err());
        assert!(Message::from_json(r#"{"content":"text"}"#).is_err());
        let odd = Message::from_json(r#"{"stop_reason":"brand_new"}"#).unwrap();
        assert_eq!(odd.stop_reason().unwrap().as_str(), "brand_new");
    }

    #[test]
    fn the_content_is_the_text_that_came() {
        let reply =
            Message::from_json("{\"content\": [ {\"type\":\"text\",\"text\":\"\\u00e9\"} ] }").unwrap();
        assert_eq!(reply.content_json(), "[ {\"type\":\"text\",\"text\":\"\\u00e9\"} ]");
        assert_eq!(reply.text(), "é");
    }
}
