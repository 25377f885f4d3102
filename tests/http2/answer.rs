//! What the server answers.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;

/// What the server does with one request.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: String,
    pub(crate) meet: Option<Arc<Barrier>>,
    pub(crate) then: Then,
    pub(crate) until: Option<CancellationToken>,
}

pub(crate) enum Then {
    /// Drops the connection, with whatever else is on it.
    Drop,
    End,
    /// Sends text for ever.
    Endless,
    /// Answers before the request's body was read.
    Early,
    /// Ends the connection the orderly way once the response is out: GOAWAY in HTTP/2.
    GoAway,
    /// Resets the stream without a response, before the request's body was read.
    Refuse,
    /// Resets the stream after the body, which is not the whole one.
    Reset,
    /// Never gets to the end of the body.
    Stall,
    /// Never gets to the head of a response.
    Silence,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "application/json",
            headers: Vec::new(),
            body: body.into(),
            meet: None,
            then: Then::End,
            until: None,
        }
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::message(json!([{"type": "text", "text": text}]), "end_turn")
    }

    pub(crate) fn tool_use(calls: &[(&str, &str, Value)]) -> Self {
        let block = |(id, name, input): &(&str, &str, Value)| json!({"type": "tool_use", "id": id, "name": name, "input": input});
        Self::message(calls.iter().map(block).collect(), "tool_use")
    }

    fn message(content: Value, stop_reason: &str) -> Self {
        let message = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": stop_reason, "usage": {"input_tokens": 1, "output_tokens": 1},
        });
        Self::new(200, message.to_string())
    }

    pub(crate) fn error(status: u16, error_type: &str) -> Self {
        let error =
            json!({"type": "error", "error": {"type": error_type, "message": "no"}, "request_id": "req_e"});
        Self::new(status, error.to_string())
    }

    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The events of a stream, each with its type as its name.
    pub(crate) fn events(events: &[Value]) -> Self {
        let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        let body: String = events.iter().map(event).collect();
        Self { content_type: "text/event-stream; charset=utf-8", ..Self::new(200, body) }
    }

    /// A stream of events that sends text for ever, in pieces of [`PIECE`](crate::server::PIECE) bytes.
    pub(crate) fn endless() -> Self {
        let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}});
        let block = json!({"type": "text", "text": ""});
        let answer = Self::events(&[
            json!({"type": "message_start", "message": message}),
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
        ]);
        Self { then: Then::Endless, ..answer }
    }

    /// Never gets to the end of the body.
    pub(crate) fn stall(self) -> Self {
        Self { then: Then::Stall, ..self }
    }

    /// Resets the stream behind the body once it is told to: a reset overtakes what was not sent yet.
    pub(crate) fn reset_when(self, told: &CancellationToken) -> Self {
        Self { then: Then::Reset, until: Some(told.clone()), ..self }
    }

    /// Waits until as many requests have come as the barrier is for.
    pub(crate) fn meet(mut self, barrier: &Arc<Barrier>) -> Self {
        self.meet = Some(Arc::clone(barrier));
        self
    }

    pub(crate) fn early(self) -> Self {
        Self { then: Then::Early, ..self }
    }

    pub(crate) fn go_away(self) -> Self {
        Self { then: Then::GoAway, ..self }
    }

    pub(crate) fn drop_connection() -> Self {
        Self { then: Then::Drop, ..Self::new(200, "") }
    }

    pub(crate) fn refuse() -> Self {
        Self { then: Then::Refuse, ..Self::new(200, "") }
    }

    /// Resets the stream in the middle of this body. What is beyond the client's window is only
    /// sent when the client has read what was before it, so a long body breaks in its middle.
    pub(crate) fn reset_after(body: impl Into<String>) -> Self {
        Self { then: Then::Reset, ..Self::new(200, body) }
    }

    pub(crate) fn stall_after(body: impl Into<String>) -> Self {
        Self { then: Then::Stall, ..Self::new(200, body) }
    }

    pub(crate) fn silence() -> Self {
        Self { then: Then::Silence, ..Self::new(200, "") }
    }
}
