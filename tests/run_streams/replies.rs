//! Replies as events that are written by hand, and every way in which one may break off.

use std::fmt::Write as _;
use std::time::Duration;

use agentloop::client::Auth;
use agentloop::testing::{Gate, Reply, Server};
use agentloop::{Client, ClientBuilder};
use serde_json::{Value, json};

/// A block and what it comes in.
#[derive(Clone)]
pub(crate) struct Block {
    start: Value,
    deltas: Vec<Value>,
    open: bool,
}

pub(crate) fn text(pieces: &[&str]) -> Block {
    let deltas = pieces.iter().map(|piece| json!({"type": "text_delta", "text": piece}));
    Block { start: json!({"type": "text", "text": ""}), deltas: deltas.collect(), open: false }
}

/// A call, and its input as the deltas spell it.
pub(crate) fn call(id: &str, name: &str, pieces: &[impl AsRef<str>]) -> Block {
    let delta = |piece: &str| json!({"type": "input_json_delta", "partial_json": piece});
    Block {
        start: json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
        deltas: pieces.iter().map(|piece| delta(piece.as_ref())).collect(),
        open: false,
    }
}

/// A call of `add`, in pieces, with spaces of its own.
pub(crate) fn an_add(id: &str, a: i64, b: i64) -> Block {
    call(id, "add", &["", &format!("{{\"b\": {b},"), &format!(" \"a\":{a}}}")])
}

/// A block that comes whole in its start.
pub(crate) fn whole(block: Value) -> Block {
    Block { start: block, deltas: Vec::new(), open: false }
}

impl Block {
    /// Without the event that closes it.
    pub(crate) fn left_open(self) -> Self {
        Self { open: true, ..self }
    }
}

/// All events of a reply.
pub(crate) fn events(id: &str, stop_reason: &str, blocks: &[Block]) -> Vec<Value> {
    let mut events = vec![json!({"type": "message_start", "message": {
        "id": id, "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 1},
    }})];
    for (index, block) in blocks.iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block.start}));
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(block.deltas.iter().map(delta));
        if !block.open {
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
    }
    events.push(json!({
        "type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": null},
        "usage": {"output_tokens": 7},
    }));
    events.push(json!({"type": "message_stop"}));
    events
}

/// How a stream breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// The body says that it is at its end.
    End,
    /// The body ends where the connection does, and that ends.
    Close,
    /// The connection is closed in the middle of the body.
    Fin,
    /// The connection is reset.
    Rst,
    /// The API says that it is overloaded.
    Overloaded,
    /// Nothing comes any more.
    Stall,
}

impl Break {
    pub(crate) const ALL: [Self; 6] =
        [Self::End, Self::Close, Self::Fin, Self::Rst, Self::Overloaded, Self::Stall];

    /// A stream of these events that breaks off behind the first `count`. A retry need not wait.
    pub(crate) fn after(self, events: &[Value], count: usize, gate: &Gate) -> Reply {
        let reply = self.without_hint(events, count, gate);
        reply.header("request-id", "req_broken").header("retry-after-ms", "1")
    }

    /// The same, and nothing says how long a retry has to wait.
    pub(crate) fn without_hint(self, events: &[Value], count: usize, gate: &Gate) -> Reply {
        let first = events[..count].to_vec();
        match self {
            Self::End => Reply::events(first),
            Self::Close => Reply::events(first).close(),
            Self::Fin => unfinished(&first).cut_after(usize::MAX),
            Self::Rst => unfinished(&first).reset_after(usize::MAX),
            Self::Overloaded => {
                let error =
                    json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
                Reply::events(first.into_iter().chain([error]))
            }
            Self::Stall => Reply::events(events.to_vec()).hold_after_events(count, gate),
        }
    }
}

/// A chunked body without its end.
fn unfinished(events: &[Value]) -> Reply {
    let mut body = String::new();
    for event in events {
        let frame = format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        write!(body, "{:x}\r\n{frame}\r\n", frame.len()).unwrap();
    }
    let headers = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")];
    Reply::raw(200, headers, body)
}

/// Clients share what is costly to make. None gives up on a server for being slow, unless it is
/// told to.
#[derive(Clone)]
pub(crate) struct Clients(reqwest::Client);

impl Clients {
    pub(crate) fn new() -> Self {
        Self(http().build().unwrap())
    }

    /// Clients that keep no connection for later.
    pub(crate) fn without_pool() -> Self {
        Self(http().pool_max_idle_per_host(0).build().unwrap())
    }

    pub(crate) fn builder(&self, server: &Server) -> ClientBuilder {
        Client::builder().base_url(server.url()).auth(Auth::None).http_client(self.0.clone())
    }

    /// A client for a reply that breaks off like this.
    pub(crate) fn for_break(&self, server: &Server, how: Break, retries: u32) -> Client {
        let idle = match how {
            Break::Stall => STALLED,
            _ => Duration::from_secs(60),
        };
        self.builder(server).max_retries(retries).idle_timeout(idle).build().unwrap()
    }
}

fn http() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
}

/// Longer than a busy machine takes for one event.
const STALLED: Duration = Duration::from_millis(400);

/// Runs the cases, some at once, and gives their number.
pub(crate) async fn run_all<F>(cases: impl IntoIterator<Item = F>) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    const AT_ONCE: usize = 16;
    let (mut running, mut count) = (tokio::task::JoinSet::new(), 0);
    for case in cases {
        if running.len() == AT_ONCE {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(case);
        count += 1;
    }
    running.join_all().await;
    count
}
