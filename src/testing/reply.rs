//! Replies as data.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::http::reason;

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
#[derive(Clone, Debug)]
#[must_use = "a reply does nothing until a script holds it"]
pub struct Reply {
    kind: Kind,
    headers: Vec<(String, String)>,
    pub(super) delay: Option<Duration>,
    pub(super) gate: Option<Gate>,
    pub(super) end: End,
}

#[derive(Clone, Debug)]
enum Kind {
    Error { status: u16, error_type: String, message: String },
    Garbage(Bytes),
    JsonText(String),
    Message(Map<String, Value>),
    Raw { status: u16, body: Bytes },
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

    /// A body with status 200, sent as it is: spelling, spaces, key order and unknown fields.
    pub fn json_text(text: impl Into<String>) -> Self {
        Self::of(Kind::JsonText(text.into()))
    }

    /// An error as the API tells it: `{"type":"error","error":{…},"request_id":"req_N"}`.
    pub fn error(status: u16, error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of(Kind::Error { status, error_type: error_type.into(), message: message.into() })
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
    /// `request_id` of the body.
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

    /// Says `connection: close`, and closes the connection after the reply.
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

    /// The whole response to a request of this number.
    pub(super) fn render(&self, number: usize, model: &str) -> Vec<u8> {
        let id = format!("req_{number}");
        let id = find(&self.headers, "request-id").unwrap_or(&id);
        let (status, body) = match &self.kind {
            Kind::Garbage(bytes) => return bytes.to_vec(),
            Kind::Raw { status, body } => (*status, body.clone()),
            Kind::JsonText(text) => (200, Bytes::copy_from_slice(text.as_bytes())),
            Kind::Message(message) => (200, filled(message, number, model).to_string().into()),
            Kind::Error { status, error_type, message } => {
                let error = json!({"type": error_type, "message": message});
                (*status, json!({"type": "error", "error": error, "request_id": id}).to_string().into())
            }
        };
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        let mut line = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        if !matches!(self.kind, Kind::Raw { .. }) {
            if find(&self.headers, "content-type").is_none() {
                line("content-type", "application/json");
            }
            if find(&self.headers, "request-id").is_none() {
                line("request-id", id);
            }
        }
        for (name, value) in &self.headers {
            line(name, value);
        }
        if find(&self.headers, "content-length").is_none()
            && find(&self.headers, "transfer-encoding").is_none()
        {
            line("content-length", &body.len().to_string());
        }
        if self.end == End::Close {
            line("connection", "close");
        }
        let mut response = head.into_bytes();
        response.extend_from_slice(b"\r\n");
        response.extend_from_slice(&body);
        response
    }

    /// The content of a turn that stops with one of these reasons.
    pub(super) fn content_if_stopped_by(&self, reasons: &[&str]) -> Option<Vec<Value>> {
        let parsed;
        let message = match &self.kind {
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
        Self { kind, headers: Vec::new(), delay: None, gate: None, end: End::KeepAlive }
    }

    fn message_mut(&mut self, setting: &str) -> &mut Map<String, Value> {
        match &mut self.kind {
            Kind::Message(message) => message,
            _ => panic!("`{setting}` is of messages, and this reply is none"),
        }
    }
}

/// A message with all fields that every message has, in the API's order.
fn filled(message: &Map<String, Value>, number: usize, model: &str) -> Value {
    let content = message.get("content").cloned().unwrap_or_else(|| json!([]));
    let is_call = |block: &Value| block.get("type").and_then(Value::as_str) == Some("tool_use");
    let calls = content.as_array().is_some_and(|blocks| blocks.iter().any(is_call));
    let mut whole = Map::new();
    for (name, default) in [
        ("id", json!(format!("msg_{number}"))),
        ("type", json!("message")),
        ("role", json!("assistant")),
        ("model", json!(model)),
        ("content", content),
        ("stop_reason", json!(if calls { "tool_use" } else { "end_turn" })),
        ("stop_sequence", Value::Null),
        ("usage", json!({"input_tokens": 10, "output_tokens": 5})),
    ] {
        whole.insert(name.into(), message.get(name).cloned().unwrap_or(default));
    }
    for (name, value) in message {
        whole.entry(name.as_str()).or_insert_with(|| value.clone());
    }
    Value::Object(whole)
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}
