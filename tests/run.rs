//! The loop over a socket, row by row of the contract.

use agentloop::testing::{Reply, Server};
use agentloop::{Tool, ToolRunner};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Add {
    a: i64,
    b: i64,
}

fn add() -> Tool {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    Tool::new("add", "Adds two integers", schema)
        .handler(|add: Add| async move { (add.a + add.b).to_string() })
}

#[tokio::test]
async fn j03_a_run_returns_the_final_reply_and_the_whole_conversation() {
    let server =
        Server::start([Reply::tool_use([("t1", "add", json!({"a": 2, "b": 3}))]), Reply::text("It is 5.")])
            .await;
    let run = ToolRunner::new().tool(add()).run(&server.client(), "2 and 3?").await.unwrap();
    assert_eq!(run.text(), "It is 5.");
    assert!(run.ended().is_complete());
    let sent = server.requests()[1].json();
    assert_eq!(
        sent["messages"][2]["content"],
        json!([{"type": "tool_result", "tool_use_id": "t1", "content": "5"}])
    );
    assert_eq!(run.conversation().len(), 4);
    server.finish().unwrap();
}
