//! What several test files need: tools that keep a log, and bodies of requests.
#![allow(dead_code, reason = "no test file uses all of it")]

pub(crate) mod faults;

use std::sync::{Arc, Mutex};

use agentloop::Tool;
use agentloop::messages::MessageRef;
use agentloop::testing::Server;
use agentloop::{ContentBlock, Conversation};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What the tools of a test did, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, text: &str) -> usize {
        self.all().iter().filter(|note| *note == text).count()
    }
}

#[derive(Deserialize)]
pub(crate) struct Add {
    pub(crate) a: i64,
    pub(crate) b: i64,
}

/// Lets everything else on the runtime go on for a while.
pub(crate) async fn others() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// The outcome of what hangs only if it is broken.
pub(crate) async fn soon<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(std::time::Duration::from_secs(30), work).await.expect("it should not hang")
}

/// A schema of any object.
pub(crate) fn object() -> Value {
    json!({"type": "object"})
}

pub(crate) fn add(log: &Log) -> Tool {
    let log = log.clone();
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    });
    Tool::new("add", "Adds two integers", schema).handler(move |add: Add| {
        log.note("add");
        async move { (add.a + add.b).to_string() }
    })
}

/// The results in a message: id, text, whether it is an error.
pub(crate) fn results(message: MessageRef<'_>) -> Vec<(String, String, bool)> {
    let blocks = message.content();
    blocks
        .iter()
        .map(|block| match block {
            ContentBlock::ToolResult(result) => (result.tool_use_id.clone(), result.text(), result.is_error),
            other => panic!("not a result: {other:?}"),
        })
        .collect()
}

/// The text of the result for a call, wherever it stands.
pub(crate) fn result_of(conversation: &Conversation, id: &str) -> (String, bool) {
    let mut found =
        conversation.iter().flat_map(|message| message.content()).filter_map(|block| match block {
            ContentBlock::ToolResult(result) if result.tool_use_id == id => {
                Some((result.text(), result.is_error))
            }
            _ => None,
        });
    let result = found.next().unwrap_or_else(|| panic!("no result for {id}"));
    assert!(found.next().is_none(), "two results for {id}");
    result
}

/// The `messages` that the nth request sent (from 0), as JSON text.
pub(crate) fn sent(server: &Server, number: usize) -> String {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        messages: &'a RawValue,
    }
    let requests = server.requests();
    let body: Body<'_> = serde_json::from_slice(requests[number].body()).unwrap();
    body.messages.get().to_owned()
}
