//! Replies as data.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::events;

/// Holds replies back until the test opens it. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Never has a permit: it is shut until it is closed for good.
    shut: Arc<Semaphore>,
}

impl Gate {
    /// A gate that is shut.
    #[must_use]
    pub fn new() -> Self {
        Self { shut: Arc::new(Semaphore::new(0)) }
    }

    /// Opens the gate, for the replies that wait at it and for all that come later.
    pub fn release(&self) {
        self.shut.close();
    }

    pub(super) async fn passed(&self) {
        let closed = self.shut.acquire().await;
        debug_assert!(closed.is_err(), "a gate gives no permits");
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// What the server sends back for one request.
///
/// Every reply but [`raw`](Self::raw) and [`garbage`](Self::garbage) has the headers
/// `content-type: application/json` and `request-id: req_N`, N being the number of the request.
///
/// A message ([`text`](Self::text), [`tool_use`](Self::tool_use), [`message`](Self::message),
/// [`json_text`](Self::json_text)) is sent as an event stream where the request has
/// `"stream": true`: `content-type: text/event-stream; charset=utf-8`, in HTTP chunks, one for each
/// event. Text, thinking and inputs come in three or more deltas if they are long enough, inputs
/// spelled as in the message. [`events`](Self::events) and [`sse`](Self::sse) are always streams.
#[derive(Clone, Debug)]
#[must_use = "a reply does nothing until a script holds it"]
pub struct Reply {
    pub(super) kind: Kind,
    pub(super) headers: Vec<(String, String)>,
    pub(super) delay: Option<Duration>,
    pub(super) gate: Option<Gate>,
    pub(super) holds: Vec<(After, Gate)>,
    /// The size of a piece of the body.
    pub(super) piece: Option<usize>,
    pub(super) end: End,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Error { status: u16, error_type: String, message: String },
    Events(Vec<Value>),
    Garbage(Bytes),
    JsonText(String),
    Message(Map<String, Value>),
    Raw { status: u16, body: Bytes },
    Sse(Bytes),
}

/// How much of a response goes out before a hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    Bytes(usize),
    Events(usize),
}

/// How a reply leaves the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Close,
    CutAfter(usize),
    KeepAlive,
    ResetAfter(usize),
}

impl Reply {
    /// A message of one text block that ends with `end_turn`.
    pub fn text(text: impl Into<String>) -> Self {
        Self::message(json!({"content": [{"type": "text", "text": text.into()}], "stop_reason": "end_turn"}))
    }

    /// A message of `tool_use` blocks, given as id, name and input, that ends with `tool_use`.
    pub fn tool_use(calls: impl IntoIterator<Item = (impl Into<String>, impl Into<String>, Value)>) -> Self {
        let calls = calls.into_iter().map(|(id, name, input)| {
            json!({"type": "tool_use", "id": id.into(), "name": name.into(), "input": input})
        });
        Self::message(json!({"content": calls.collect::<Vec<_>>(), "stop_reason": "tool_use"}))
    }

    /// A message object. What it does not name is filled in: an id `msg_N`, the model of the
    /// request, a usage, and a stop reason that fits the content.
    ///
    /// # Panics
    ///
    /// When the value is not a JSON object.
    pub fn message(message: Value) -> Self {
        match message {
            Value::Object(message) => Self::of(Kind::Message(message)),
            other => panic!("a message is a JSON object, not {other}"),
        }
    }

    /// A body with status 200, sent as it is: spelling, spaces, key order and unknown fields. As a
    /// stream it is a message of which nothing is filled in; what is no JSON object is never one.
    pub fn json_text(text: impl Into<String>) -> Self {
        Self::of(Kind::JsonText(text.into()))
    }

    /// The answer to a request that counts tokens. One with more fields is
    /// [`json_text`](Self::json_text).
    pub fn token_count(input_tokens: u64) -> Self {
        Self::json_text(json!({"input_tokens": input_tokens}).to_string())
    }

    /// An error as the API tells it: `{"type":"error","error":{…},"request_id":"req_N"}`.
    pub fn error(status: u16, error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(Kind::Error { status, error_type: error_type.into(), message: message.into() })
    }

    /// A stream of these events, whatever the request asked for. Each goes out as
    /// `event: <its type>`, `data: <itself>` and an empty line.
    ///
    /// # Panics
    ///
    /// When an event has no `type` that is a string.
    pub fn events(events: impl IntoIterator<Item = Value>) -> Self {
        let events: Vec<_> = events.into_iter().collect();
        if let Some(other) =
            events.iter().find(|event| event.get("type").is_none_or(|kind| !kind.is_string()))
        {
            panic!("an event is a JSON object with a type, not {other}");
        }
        Self::of(Kind::Events(events))
    }

    /// A stream with this body, untouched, whatever the request asked for.
    pub fn sse(body: impl Into<Vec<u8>>) -> Self {
        Self::of(Kind::Sse(Bytes::from(body.into())))
    }

    /// Any status, headers and body. Only `content-length` is added, unless the headers name it or
    /// a `transfer-encoding`.
    pub fn raw(
        status: u16,
        headers: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
        body: impl Into<Vec<u8>>,
    ) -> Self {
        let headers = headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { headers, ..Self::of(Kind::Raw { status, body: Bytes::from(body.into()) }) }
    }

    /// Bytes that need not be HTTP, after which the connection is closed.
    pub fn garbage(bytes: impl Into<Vec<u8>>) -> Self {
        Self { end: End::CutAfter(usize::MAX), ..Self::of(Kind::Garbage(Bytes::from(bytes.into()))) }
    }

    /// Adds a header, or replaces one of the server's own. In an error, `request-id` also sets the
    /// `request_id` of the body; in a stream, `content-length` takes the place of the chunks.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Waits before the first byte.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Waits before the first byte until the gate is open, after the delay if there is one. A
    /// client that hangs up meanwhile is noticed.
    pub fn hold(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Sends the first `bytes` of the whole response, head and chunk sizes included, and waits
    /// until the gate is open. A number beyond what is sent waits at its end, before the connection
    /// is closed or used again. May be given several times. A client that hangs up meanwhile is
    /// noticed.
    pub fn hold_after(mut self, bytes: usize, gate: &Gate) -> Self {
        self.holds.push((After::Bytes(bytes), gate.clone()));
        self
    }

    /// Like [`hold_after`](Self::hold_after), but counts the events of a stream. 0 waits after the
    /// head, as any number does for a message that the request did not want as a stream; a number
    /// beyond the last event waits after that.
    ///
    /// # Panics
    ///
    /// When the reply is neither a message nor [`events`](Self::events).
    pub fn hold_after_events(mut self, events: usize, gate: &Gate) -> Self {
        if !matches!(self.kind, Kind::Events(_) | Kind::JsonText(_) | Kind::Message(_)) {
            panic!("`hold_after_events` is of messages and events, and this reply is neither");
        }
        self.holds.push((After::Events(events), gate.clone()));
        self
    }

    /// Sends the body in pieces of so many bytes, each a write and, in a stream, an HTTP chunk of
    /// its own. The last one may be shorter, and the one before a
    /// [`hold_after_events`](Self::hold_after_events). A client that is slow to read may get several
    /// at once.
    ///
    /// # Panics
    ///
    /// When the size is 0.
    pub fn in_pieces(mut self, bytes: usize) -> Self {
        assert!(bytes > 0, "a piece has at least one byte");
        self.piece = Some(bytes);
        self
    }

    /// Sends only the first `bytes` of the whole response, head included, and closes the
    /// connection. A number beyond its length sends all of it and closes without having said so.
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.end = End::CutAfter(bytes);
        self
    }

    /// Like [`cut_after`](Self::cut_after), but resets the connection (RST) instead of closing it.
    pub fn reset_after(mut self, bytes: usize) -> Self {
        self.end = End::ResetAfter(bytes);
        self
    }

    /// Says `connection: close`, and closes the connection after the reply. A stream has no chunks
    /// then: it ends where the connection does.
    pub fn close(mut self) -> Self {
        self.end = End::Close;
        self
    }

    /// Sets the stop reason of a message.
    ///
    /// # Panics
    ///
    /// When the reply is not [`text`](Self::text), [`tool_use`](Self::tool_use) or
    /// [`message`](Self::message).
    pub fn stop_reason(mut self, reason: impl Into<String>) -> Self {
        self.message_mut("stop_reason").insert("stop_reason".into(), Value::String(reason.into()));
        self
    }

    /// Sets the input and output tokens of a message.
    ///
    /// # Panics
    ///
    /// When the reply is not [`text`](Self::text), [`tool_use`](Self::tool_use) or
    /// [`message`](Self::message).
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        let usage = json!({"input_tokens": input, "output_tokens": output});
        self.message_mut("usage").insert("usage".into(), usage);
        self
    }

    /// The content of a turn that stops with one of these reasons.
    pub(super) fn content_if_stopped_by(&self, reasons: &[&str]) -> Option<Vec<Value>> {
        let parsed;
        let message = match &self.kind {
            Kind::Events(events) => {
                let (content, reason) = events::summed(events);
                return reasons.contains(&reason?).then_some(content);
            }
            Kind::Message(message) => message,
            Kind::JsonText(text) => {
                parsed = serde_json::from_str::<Map<String, Value>>(text).ok()?;
                &parsed
            }
            _ => return None,
        };
        let reason = message.get("stop_reason")?.as_str()?;
        if reasons.contains(&reason) { message.get("content")?.as_array().cloned() } else { None }
    }

    fn of(kind: Kind) -> Self {
        Self {
            kind,
            headers: Vec::new(),
            delay: None,
            gate: None,
            holds: Vec::new(),
            piece: None,
            end: End::KeepAlive,
        }
    }

    fn message_mut(&mut self, setting: &str) -> &mut Map<String, Value> {
        match &mut self.kind {
            Kind::Message(message) => message,
            _ => panic!("`{setting}` is of messages, and this reply is none"),
        }
    }
}
