//! An MCP server of our own, a line of JSON for each message, that can do what it should not.

use std::sync::{Arc, Mutex};

use agentloop::mcp::rmcp::service::{RoleClient, RunningService};
use agentloop::mcp::rmcp::{self, ServiceExt as _};
use agentloop::mcp::{ListError, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// What the server does with a request.
pub(crate) enum Answer {
    Result(Value),
    /// The same, behind word that its tools have changed.
    Changed(Value),
    Error(i64, &'static str),
    /// Nothing.
    Silence,
    /// Closes the connection.
    Close,
}

/// What came, in order.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Value>>>, Arc<Notify>);

impl Seen {
    /// The params of every message of a method.
    pub(crate) fn of(&self, method: &str) -> Vec<Value> {
        let all = self.0.lock().unwrap();
        all.iter()
            .filter(|message| message["method"] == method)
            .map(|message| message["params"].clone())
            .collect()
    }

    pub(crate) async fn until(&self, method: &str, count: usize) {
        loop {
            let changed = self.1.notified();
            if self.of(method).len() >= count {
                return;
            }
            changed.await;
        }
    }
}

/// A running server. Dropping it closes the connection.
pub(crate) struct Fake {
    pub(crate) seen: Seen,
    pub(crate) is_open: watch::Receiver<bool>,
    task: JoinSet<()>,
}

impl Fake {
    pub(crate) fn stop(&mut self) {
        self.task.abort_all();
    }
}

/// Starts a server and connects to it.
pub(crate) async fn service(
    answer: impl Fn(&str, &Value) -> Answer + Send + 'static,
) -> (RunningService<RoleClient, ()>, Fake) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let seen = Seen::default();
    let (open, is_open) = watch::channel(true);
    let mut task = JoinSet::new();
    let log = seen.clone();
    task.spawn(async move {
        serve(theirs, answer, log).await;
        open.send_replace(false);
    });
    let (read, write) = tokio::io::split(ours);
    let service = ().serve((read, write)).await.expect("it says hello");
    (service, Fake { seen, is_open, task })
}

pub(crate) async fn connected(
    name: &str,
    answer: impl Fn(&str, &Value) -> Answer + Send + 'static,
) -> (Result<Server, ListError>, Fake) {
    let (service, fake) = service(answer).await;
    (Server::connect(name, service).await, fake)
}

/// A list of one page.
pub(crate) fn page(names: &[&str]) -> Answer {
    let tools: Vec<_> = names.iter().map(|name| tool(name)).collect();
    Answer::Result(json!({"tools": tools}))
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"name": name, "description": format!("Does {name}"), "inputSchema": {"type": "object"}})
}

pub(crate) fn text(text: &str) -> Answer {
    Answer::Result(json!({"content": [{"type": "text", "text": text}]}))
}

async fn serve(stream: DuplexStream, answer: impl Fn(&str, &Value) -> Answer, seen: Seen) {
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        seen.0.lock().unwrap().push(message.clone());
        seen.1.notify_waiters();
        let Some(id) = message.get("id") else { continue };
        let method = message["method"].as_str().unwrap_or_default();
        let reply = match method {
            "initialize" => Answer::Result(json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "fake", "version": "1"},
            })),
            _ => answer(method, &message["params"]),
        };
        let reply = match reply {
            Answer::Result(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Answer::Changed(result) => {
                let word = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                let result = json!({"jsonrpc": "2.0", "id": id, "result": result});
                // Both go out as they are: a line each.
                Value::String(format!("{word}\n{result}"))
            }
            Answer::Error(code, text) => {
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})
            }
            Answer::Silence => continue,
            Answer::Close => return,
        };
        let lines = reply.as_str().map_or_else(|| reply.to_string(), ToOwned::to_owned);
        if write.write_all(format!("{lines}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// `rmcp` is there under one path.
#[expect(dead_code, reason = "it has to compile")]
fn one_path(service: RunningService<RoleClient, ()>) -> rmcp::Peer<RoleClient> {
    service.peer().clone()
}
