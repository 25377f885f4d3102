//! What the scripted server refuses and lets pass where tokens are counted.

use std::sync::LazyLock;

use agentloop::testing::{Reply, Server};
use reqwest::Method;
use serde_json::{Value, json};

/// The path, and the betas of all fields.
const COUNT: &str = "/v1/messages/count_tokens";
const BETAS: &str = "compact-2026-09-04, context-management-1, fallback-credit-1, mcp-client-2026-09-15, \
                     message-threads-1, server-side-fallback-1, user-profiles-billing-1";

/// Connections are not kept: each test has a runtime of its own.
static HTTP: LazyLock<reqwest::Client> =
    LazyLock::new(|| reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap());

/// A legal request, to which a case changes one thing.
fn count_request() -> Value {
    json!({"model": "claude-opus-5", "messages": [{"role": "user", "content": "Go"}]})
}

/// A request by hand, since the client leaves out what is refused here.
async fn send(server: &Server, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let request = HTTP
        .request(method, format!("{}{path}", server.url()))
        .header("anthropic-version", "2026-10-21")
        .header("anthropic-beta", BETAS)
        .header("content-type", "application/json")
        .body(body.to_string());
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

async fn count(server: &Server, body: &Value) -> (u16, Value) {
    send(server, Method::POST, COUNT, body).await
}

#[track_caller]
fn assert_refused((status, body): (u16, Value), message: &str) {
    assert_eq!((status, &body["error"]["type"]), (400, &json!("invalid_request_error")), "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains(message), "{body}");
}

#[tokio::test]
async fn tokens_are_counted_at_a_path_of_their_own_and_no_other() {
    let server = Server::start([Reply::token_count(7), Reply::token_count(8)]).await;
    for (number, path) in [COUNT, "/gate/v1/messages/count_tokens?x=1"].iter().enumerate() {
        let answer = send(&server, Method::POST, path, &count_request()).await;
        assert_eq!(answer, (200, json!({"input_tokens": number + 7})), "{path}");
    }
    for path in [
        "/v1/messages/count_tokens/",
        "/v1/messages/count_tokens/x",
        "/v1/messages/count",
        "/v1/count_tokens",
        "/v1/messages/batches",
    ] {
        let (status, body) = send(&server, Method::POST, path, &count_request()).await;
        assert_eq!((status, &body["error"]["type"]), (404, &json!("not_found_error")), "{path}");
    }
    // What stands behind the path is no path.
    let answer =
        send(&server, Method::POST, "/v1/messages?/v1/messages/count_tokens", &count_request()).await;
    assert_refused(answer, "max_tokens: Field required");
    assert_eq!(send(&server, Method::GET, COUNT, &count_request()).await.0, 405);
    assert_eq!(server.finish(), Ok(()));
}

#[tokio::test]
async fn a_request_to_count_tokens_may_have_no_field_of_a_reply() {
    let fields = [
        ("max_tokens", json!(64)),
        ("stop_sequences", json!(["END"])),
        ("stream", json!(false)),
        ("metadata", json!({"user_id": "u"})),
        ("container", json!("container_1")),
        ("service_tier", json!("auto")),
        ("inference_geo", json!("us")),
        ("diagnostics", json!({"previous_message_id": null})),
        ("fallbacks", json!("default")),
        ("fallback_credit_token", json!("t")),
        ("thread", json!({"type": "create"})),
        ("billing_policy", json!({"type": "billing_policy", "bill_to": "self"})),
    ];
    for (name, value) in fields {
        let server = Server::start([Reply::text("a"), Reply::token_count(7)]).await;
        let mut body = count_request();
        body[name] = value;
        assert_refused(count(&server, &body).await, &format!("{name}: Extra inputs are not permitted"));
        // The same field is legal where a reply is asked for.
        body["max_tokens"] = json!(64);
        assert_eq!(send(&server, Method::POST, "/v1/messages", &body).await.0, 200, "{name}");
        assert_eq!(count(&server, &count_request()).await.0, 200, "{name}");
        assert_eq!(server.finish(), Ok(()), "{name}");
    }
}

#[tokio::test]
async fn a_request_to_count_tokens_is_judged_like_one_for_a_message() {
    let user = |blocks: Value| json!([{"role": "user", "content": blocks}]);
    let called = |after: Value| {
        let call = json!({"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}});
        let mut list =
            vec![json!({"role": "user", "content": "Go"}), json!({"role": "assistant", "content": [call]})];
        list.extend(after.as_array().unwrap().iter().cloned());
        Value::Array(list)
    };
    let source = |kind: &str, name: &str| json!({"type": kind, name: "https://x/y"});
    for (field, value, message) in [
        ("new_field", json!(1), "new_field: Extra inputs are not permitted"),
        ("model", json!(7), "model: Input should be a valid string"),
        ("messages", json!([]), "messages: at least one message is required"),
        ("messages", user(json!(" ")), "must contain non-whitespace text"),
        ("messages", user(json!([])), "user messages must have non-empty content"),
        ("messages", called(json!([])), "The conversation must end with a user message"),
        ("messages", called(json!([{"role": "user", "content": "?"}])), "`tool_use` ids were found without"),
        ("tool_choice", json!({"type": "tool", "name": "now"}), "tool_choice"),
        ("output_config", json!({"effort": "huge"}), "output_config.effort: Input should be"),
        ("thinking", json!({"type": "enabled", "budget_tokens": 2000}), "is not supported for this model"),
        ("mcp_servers", json!([{"type": "url"}]), "are not supported in the token counting endpoint"),
        (
            "messages",
            user(json!([{"type": "document", "source": source("file", "file_id")}])),
            "File sources are not supported in the token counting endpoint",
        ),
        (
            "messages",
            user(json!([{"type": "image", "source": source("url", "url")}])),
            "URL sources are not supported in the token counting endpoint",
        ),
    ] {
        let server = Server::start([]).await;
        let mut body = count_request();
        body[field] = value;
        assert_refused(count(&server, &body).await, message);
    }
}

#[tokio::test]
async fn a_count_needs_nothing_that_only_a_reply_needs() {
    let pending = json!([
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}},
            {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {},
             "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "12:00"}]},
    ]);
    let code = json!([{"type": "code_execution_20260120", "name": "code_execution"}]);
    let old = json!({"model": "claude-opus-4-5", "thinking": {"type": "enabled", "budget_tokens": 2000}});
    let cases = [
        ("the container of pending code", json!({"messages": pending, "tools": code})),
        ("the limit above a budget", old),
        ("beta fields", json!({"context_management": {"edits": []}})),
        ("compaction", json!({"compaction": {"type": "summarize"}})),
    ];
    for (name, changes) in cases {
        let server = Server::start([Reply::token_count(7)]).await;
        let mut body = count_request();
        for (field, value) in changes.as_object().unwrap() {
            body[field] = value.clone();
        }
        assert_eq!(count(&server, &body).await, (200, json!({"input_tokens": 7})), "{name}");
    }
    let allowing = Server::start([Reply::token_count(7)]).await.allow_field("new_field");
    let mut body = count_request();
    body["new_field"] = json!(1);
    assert_eq!(count(&allowing, &body).await.0, 200);
    // Also where a body wrongly asks for events, a count is none.
    let lenient = Server::start([Reply::token_count(7)]).await.lenient();
    body["stream"] = json!(true);
    assert_eq!(count(&lenient, &body).await, (200, json!({"input_tokens": 7})));
}
