//! An MCP server of our own, a line of JSON for each message, that can do what it should not.

use std::sync::{Arc, Mutex};

use agentloop::mcp::rmcp::service::{RoleClient, RunningService};
use agentloop::mcp::rmcp::{self, ClientHandler, ServiceExt as _};
use agentloop::mcp::{ConnectError, Connector, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::mpsc;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// What the server does with a request.
pub(crate) enum Answer {
    Result(Value),
    /// The same, behind these messages.
    Behind(Vec<Value>, Value),
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
    /// Every message without a method: what the client answers.
    pub(crate) fn answers(&self) -> Vec<Value> {
        self.all().into_iter().filter(|message| message.get("method").is_none()).collect()
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }

    /// The ids of every request of a method.
    pub(crate) fn ids_of(&self, method: &str) -> Vec<Value> {
        let of_method = |message: &Value| message["method"] == method;
        self.all().into_iter().filter(of_method).map(|message| message["id"].clone()).collect()
    }

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
    says: mpsc::Sender<Value>,
    pub(crate) is_open: watch::Receiver<bool>,
    task: JoinSet<()>,
}

impl Fake {
    /// Sends a message that nobody asked for, or a list of them in one write.
    pub(crate) async fn say(&self, message: Value) {
        self.says.send(message).await.unwrap();
    }

    pub(crate) fn stop(&mut self) {
        self.task.abort_all();
    }
}

/// Starts a server.
fn start(answer: impl Fn(&str, &Value) -> Answer + Send + 'static) -> (DuplexStream, Fake) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let seen = Seen::default();
    let (open, is_open) = watch::channel(true);
    let (says, said) = mpsc::channel(16);
    let mut task = JoinSet::new();
    let log = seen.clone();
    task.spawn(async move {
        serve(theirs, answer, log, said).await;
        open.send_replace(false);
    });
    (ours, Fake { seen, says, is_open, task })
}

/// Starts a server, and connects to it with `rmcp`.
pub(crate) async fn service(
    answer: impl Fn(&str, &Value) -> Answer + Send + 'static,
) -> (RunningService<RoleClient, ()>, Fake) {
    let (stream, fake) = start(answer);
    (().serve(stream).await.expect("it says hello"), fake)
}

pub(crate) async fn connected(
    name: &str,
    answer: impl Fn(&str, &Value) -> Answer + Send + 'static,
) -> (Result<Server, ConnectError>, Fake) {
    connected_by(Connector::new(name), answer).await
}

pub(crate) async fn connected_by<H: ClientHandler>(
    connector: Connector<H>,
    answer: impl Fn(&str, &Value) -> Answer + Send + 'static,
) -> (Result<Server, ConnectError>, Fake) {
    let (stream, fake) = start(answer);
    (connector.connect(stream).await, fake)
}

/// Word that the tools have changed.
pub(crate) fn list_changed() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
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

async fn serve(
    stream: DuplexStream,
    answer: impl Fn(&str, &Value) -> Answer,
    seen: Seen,
    mut said: mpsc::Receiver<Value>,
) {
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read).lines();
    loop {
        let messages = tokio::select! {
            Some(message) = said.recv() => vec![message],
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { return };
                let message: Value = serde_json::from_str(&line).unwrap();
                seen.0.lock().unwrap().push(message.clone());
                seen.1.notify_waiters();
                match replies(&message, &answer) {
                    Some(messages) => messages,
                    None => return,
                }
            }
        };
        let line = |message: &Value| match message {
            Value::Array(messages) => messages.iter().map(|message| format!("{message}\n")).collect(),
            message => format!("{message}\n"),
        };
        let lines: String = messages.iter().map(line).collect();
        if write.write_all(lines.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// What is sent for a message; `None` closes the connection.
fn replies(message: &Value, answer: &impl Fn(&str, &Value) -> Answer) -> Option<Vec<Value>> {
    let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
        return Some(Vec::new());
    };
    let reply = match method {
        "initialize" => Answer::Result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "fake", "version": "1"},
        })),
        "server/discover" => Answer::Result(json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": true}},
            "ttlMs": 0,
            "cacheScope": "private",
        })),
        "subscriptions/listen" => {
            let subscription = json!({"io.modelcontextprotocol/subscriptionId": id});
            let params = json!({"_meta": subscription, "notifications": {"toolsListChanged": true}});
            let method = "notifications/subscriptions/acknowledged";
            return Some(vec![json!({"jsonrpc": "2.0", "method": method, "params": params})]);
        }
        _ => answer(method, &message["params"]),
    };
    let (mut messages, reply) = match reply {
        Answer::Result(result) => (Vec::new(), json!({"result": result})),
        Answer::Behind(messages, result) => (messages, json!({"result": result})),
        Answer::Error(code, text) => (Vec::new(), json!({"error": {"code": code, "message": text}})),
        Answer::Silence => return Some(Vec::new()),
        Answer::Close => return None,
    };
    let mut message = json!({"jsonrpc": "2.0", "id": id});
    message.as_object_mut().unwrap().extend(reply.as_object().unwrap().clone());
    messages.push(message);
    Some(messages)
}

/// `rmcp` is there under one path.
#[expect(dead_code, reason = "it has to compile")]
fn one_path(service: RunningService<RoleClient, ()>) -> rmcp::Peer<RoleClient> {
    service.peer().clone()
}
