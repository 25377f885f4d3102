//! A server that keeps nothing of what it is sent, and fails a fifth of all attempts.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agentloop::testing::check_request;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::wire::Wire;

pub(crate) struct Server {
    url: String,
    shared: Arc<Shared>,
    /// The accepting task owns those of the connections, so dropping it stops all of them.
    _accepting: JoinSet<()>,
}

struct Shared {
    turns: usize,
    /// How often each run asked so far: what it gets depends on nothing else.
    attempts: Vec<AtomicUsize>,
    open: AtomicUsize,
    /// How often each fault came up.
    faults: Mutex<BTreeMap<&'static str, usize>>,
    /// What no run may send.
    wrong: Mutex<Vec<String>>,
}

impl Server {
    pub(crate) async fn start(runs: usize, turns: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback should have a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        let shared = Arc::new(Shared {
            turns,
            attempts: (0..runs).map(|_| AtomicUsize::new(0)).collect(),
            open: AtomicUsize::new(0),
            faults: Mutex::default(),
            wrong: Mutex::default(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, shared.clone()));
        Self { url, shared, _accepting: accepting }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    pub(crate) fn summary(&self) -> String {
        let attempts: usize = self.shared.attempts.iter().map(|run| run.load(Ordering::Relaxed)).sum();
        let faults = self.shared.faults.lock().expect("nothing panics with it");
        let count: usize = faults.values().sum();
        format!("{attempts} attempts, {count} of them failed: {faults:?}")
    }

    /// All that came was legal.
    pub(crate) fn check(&self) {
        let wrong = self.shared.wrong.lock().expect("nothing panics with it");
        assert!(wrong.is_empty(), "{} requests were wrong: {:?}", wrong.len(), wrong.first());
    }
}

/// Counts the connection as open, however its task ends.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((socket, _)) = accepted {
                shared.open.fetch_add(1, Ordering::Relaxed);
                let open = Open(shared.clone());
                connections.spawn(async move {
                    // A client that breaks the connection is a case like others.
                    let _ended = serve(socket, &open.0).await;
                });
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(socket: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut wire = Wire::new(socket);
    while let Some(request) = wire.message().await? {
        let body: Value = serde_json::from_slice(&request.body)?;
        if let Err(wrong) = check_request(&body, &[]) {
            shared.wrong.lock().expect("nothing panics with it").push(wrong);
        }
        let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let run: usize = text(&messages[0]["content"]).parse().map_err(io::Error::other)?;
        let attempt = shared.attempts[run].fetch_add(1, Ordering::Relaxed);
        let chance = random((run << 16 | attempt) as u64);
        let reply = reply(run, messages.len().div_ceil(2), shared.turns);
        let response = response(&reply, body["stream"] == true);
        if !chance.is_multiple_of(5) {
            wire.send(&response).await?;
            continue;
        }
        let fault = match chance / 5 % 1_000 {
            0..10 => "stall",
            other => FAULTS[other as usize % FAULTS.len()],
        };
        *shared.faults.lock().expect("nothing panics with it").entry(fault).or_default() += 1;
        match fault {
            "429" => wire.send(&error(429, "rate_limit_error")).await?,
            "500" => wire.send(&error(500, "api_error")).await?,
            "529" => wire.send(&error(529, "overloaded_error")).await?,
            "empty" => wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?,
            "garbage" => return wire.send(b"SSH-2.0-OpenSSH\r\n").await,
            "reset" => return wire.socket.set_zero_linger(),
            "cut" => return wire.send(&response[..response.len() * 2 / 3]).await,
            _ => {
                wire.until_closed().await;
                return Ok(());
            }
        }
    }
    Ok(())
}

const FAULTS: [&str; 7] = ["429", "500", "529", "empty", "garbage", "reset", "cut"];

/// A text as a message holds it: plain, or as its only block.
fn text(content: &Value) -> &str {
    content.as_str().or_else(|| content[0]["text"].as_str()).unwrap_or_default()
}

fn reply(run: usize, turn: usize, turns: usize) -> Value {
    let (block, reason) = if turn < turns {
        let id = format!("call_{}", run * turns + turn);
        (json!({"type": "tool_use", "id": id, "name": "count", "input": {"turn": turn}}), "tool_use")
    } else {
        (json!({"type": "text", "text": format!("{run} is done")}), "end_turn")
    };
    json!({
        "id": format!("msg_{run}_{turn}"), "type": "message", "role": "assistant", "model": "m",
        "content": [block], "stop_reason": reason, "stop_sequence": null,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    })
}

fn response(reply: &Value, streamed: bool) -> Vec<u8> {
    let (kind, body) = match streamed {
        true => ("text/event-stream", events(reply)),
        false => ("application/json", reply.to_string()),
    };
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into()
}

/// The reply as a stream.
fn events(reply: &Value) -> String {
    let mut start = reply.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    let mut block = reply["content"][0].clone();
    let delta = match block["text"].take() {
        Value::String(text) => {
            block["text"] = json!("");
            json!({"type": "text_delta", "text": text})
        }
        _ => {
            block.as_object_mut().expect("a block is an object").remove("text");
            let input = std::mem::replace(&mut block["input"], json!({}));
            json!({"type": "input_json_delta", "partial_json": input.to_string()})
        }
    };
    let end = json!({"stop_reason": reply["stop_reason"], "stop_sequence": null});
    let events = [
        json!({"type": "message_start", "message": start}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ];
    let frame =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(frame).collect()
}

fn error(status: u16, error_type: &str) -> Vec<u8> {
    let body = json!({"type": "error", "error": {"type": error_type, "message": "no"}}).to_string();
    let wait = if status == 429 { "retry-after-ms: 5\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} Error\r\ncontent-type: application/json\r\n{wait}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into()
}

/// A number that looks random, the same each time.
pub(crate) fn random(seed: u64) -> u64 {
    let mut number = seed.wrapping_add(SEED).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

const SEED: u64 = 2026;
