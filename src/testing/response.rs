//! A reply as what goes over the wire.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::events;
use super::http::reason;
use super::reply::{After, End, Gate, Kind, Reply};

/// What a reply has to know of its request.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) number: usize,
    pub(super) model: String,
    /// A message is wanted as events.
    pub(super) stream: bool,
}

/// A part of playing a response.
#[derive(Debug)]
pub(super) enum Step {
    Wait(Gate),
    Write(Bytes),
}

struct Body {
    bytes: Bytes,
    content_type: Option<&'static str>,
    /// Where its events end, as far as that is known; `None` if the body is no stream.
    events: Option<Vec<usize>>,
}

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

impl Reply {
    /// The whole response, as far as it is sent at all.
    pub(super) fn response(&self, asked: &Asked) -> Vec<Step> {
        let id = format!("req_{}", asked.number);
        let id = find(&self.headers, "request-id").unwrap_or(&id);
        let (status, body) = self.body(asked, id);
        let chunked = body.events.is_some()
            && self.end != End::Close
            && find(&self.headers, "content-length").is_none();
        let mut response = match self.kind {
            Kind::Garbage(_) => Vec::new(),
            _ => self.head(status, id, &body, chunked).into_bytes(),
        };

        // Places in the body, and where they are in the response.
        let mut places = vec![(0, response.len())];
        let mut at = 0;
        for end in self.ends_of_pieces(&body) {
            let piece = &body.bytes[at..end];
            if chunked {
                response.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            }
            response.extend_from_slice(piece);
            if chunked {
                response.extend_from_slice(b"\r\n");
            }
            places.push((end, response.len()));
            at = end;
        }
        if chunked {
            response.extend_from_slice(b"0\r\n\r\n");
        }

        let holds = self.holds.iter().map(|(after, gate)| {
            let at = match after {
                After::Bytes(bytes) => Some(*bytes),
                After::Events(events) => {
                    let end = body.end_of_event(*events);
                    places.iter().find(|(place, _)| *place == end).map(|(_, at)| *at)
                }
            };
            (at.unwrap_or(usize::MAX), gate.clone())
        });
        let holds = holds.collect();
        let with_head = body.events.is_none() && self.piece.is_none();
        let writes = places.into_iter().skip(usize::from(with_head)).map(|(_, at)| at);
        match self.end {
            End::CutAfter(bytes) | End::ResetAfter(bytes) => response.truncate(bytes),
            End::Close | End::KeepAlive => {}
        }
        steps(response.into(), writes, holds)
    }

    /// The status and the body.
    fn body(&self, asked: &Asked, id: &str) -> (u16, Body) {
        let message = |text: String| {
            let streamed = asked.stream.then(|| events::of_message(&text)).flatten();
            streamed.map_or_else(|| Body::json(text), Body::stream)
        };
        match &self.kind {
            Kind::Error { status, error_type, message } => {
                let error = json!({"type": error_type, "message": message});
                let body = json!({"type": "error", "error": error, "request_id": id});
                (*status, Body::json(body.to_string()))
            }
            Kind::Events(events) => (200, Body::stream(events.iter().map(events::event).collect())),
            Kind::Garbage(bytes) => (200, Body::raw(bytes)),
            Kind::JsonText(text) => (200, message(text.clone())),
            Kind::Message(fields) => (200, message(filled(fields, asked).to_string())),
            Kind::Raw { status, body } => (*status, Body::raw(body)),
            Kind::Sse(bytes) => {
                let body =
                    Body { content_type: Some(EVENT_STREAM), events: Some(Vec::new()), ..Body::raw(bytes) };
                (200, body)
            }
        }
    }

    fn head(&self, status: u16, id: &str, body: &Body, chunked: bool) -> String {
        let named = |name| find(&self.headers, name).is_some();
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        let mut line = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        if let Some(content_type) = body.content_type {
            if !named("content-type") {
                line("content-type", content_type);
            }
            if !named("request-id") {
                line("request-id", id);
            }
        }
        for (name, value) in &self.headers {
            line(name, value);
        }
        if !named("content-length") && !named("transfer-encoding") {
            if chunked {
                line("transfer-encoding", "chunked");
            } else if body.events.is_none() {
                line("content-length", &body.bytes.len().to_string());
            }
        }
        if self.end == End::Close {
            line("connection", "close");
        }
        head.push_str("\r\n");
        head
    }

    /// Where the pieces of the body end, none of which is empty.
    fn ends_of_pieces(&self, body: &Body) -> Vec<usize> {
        let length = body.bytes.len();
        let Some(size) = self.piece else {
            return match body.events.as_deref() {
                Some(ends @ [_, ..]) => ends.to_vec(),
                _ if length == 0 => Vec::new(),
                _ => vec![length],
            };
        };
        let held = self.holds.iter().filter_map(|(after, _)| match after {
            After::Bytes(_) => None,
            After::Events(events) => Some(body.end_of_event(*events)),
        });
        let held: Vec<_> = held.collect();
        let mut ends = Vec::new();
        let mut at = 0;
        while at < length {
            let next = held.iter().copied().filter(|end| *end > at).min();
            at = at.saturating_add(size).min(next.unwrap_or(length)).min(length);
            ends.push(at);
        }
        ends
    }
}

impl Body {
    fn json(text: String) -> Self {
        Self { bytes: text.into(), content_type: Some(JSON), events: None }
    }

    fn raw(bytes: &Bytes) -> Self {
        Self { bytes: bytes.clone(), content_type: None, events: None }
    }

    fn stream(events: Vec<String>) -> Self {
        let mut at = 0;
        let ends = events.iter().map(|event| {
            at += event.len();
            at
        });
        let ends = ends.collect();
        Self { bytes: events.concat().into(), content_type: Some(EVENT_STREAM), events: Some(ends) }
    }

    /// The place behind this many events, or behind the last.
    fn end_of_event(&self, events: usize) -> usize {
        let ends = self.events.as_deref().unwrap_or_default();
        events.min(ends.len()).checked_sub(1).map_or(0, |last| ends[last])
    }
}

/// Writes up to each of these places and to the end, and waits wherever it is held.
fn steps(response: Bytes, writes: impl Iterator<Item = usize>, mut holds: Vec<(usize, Gate)>) -> Vec<Step> {
    let length = response.len();
    holds.sort_by_key(|(at, _)| *at);
    let mut holds = holds.into_iter().peekable();
    let mut steps = Vec::new();
    let mut at = 0;
    let mut write = |steps: &mut Vec<Step>, end: usize| {
        if end > at {
            steps.push(Step::Write(response.slice(at..end)));
            at = end;
        }
    };
    for end in writes.chain([length]) {
        let end = end.min(length);
        while let Some((held, gate)) = holds.next_if(|(held, _)| (*held).min(length) <= end) {
            write(&mut steps, held.min(length));
            steps.push(Step::Wait(gate));
        }
        write(&mut steps, end);
    }
    steps
}

/// A message with all fields that every message has, in the API's order.
fn filled(message: &Map<String, Value>, asked: &Asked) -> Value {
    let content = message.get("content").cloned().unwrap_or_else(|| json!([]));
    let is_call = |block: &Value| block.get("type").and_then(Value::as_str) == Some("tool_use");
    let calls = content.as_array().is_some_and(|blocks| blocks.iter().any(is_call));
    let mut whole = Map::new();
    for (name, default) in [
        ("id", json!(format!("msg_{}", asked.number))),
        ("type", json!("message")),
        ("role", json!("assistant")),
        ("model", json!(asked.model)),
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
