//! Counting tokens: what goes out, what comes back, and what the API refuses.

use std::time::Duration;

use agentloop::messages::ToolChoice;
use agentloop::run_loop::Step;
use agentloop::testing::{Reply, Server};
use agentloop::{Client, ClientBuilder, ErrorKind, MessageRequest, Tool, ToolRunner};
use serde_json::{Value, json};

fn builder(server: &Server) -> ClientBuilder {
    Client::builder().no_proxy().base_url(server.url()).api_key("sk-key")
}

fn hello() -> MessageRequest {
    MessageRequest::from("Hello")
}

/// The body that a request is counted with, whatever the server thinks of it.
async fn counted(request: &MessageRequest) -> Value {
    let server = Server::start([Reply::token_count(7)]).await.lenient();
    assert_eq!(builder(&server).build().unwrap().count_tokens(request).await.unwrap().input_tokens, 7);
    server.requests()[0].json()
}

#[tokio::test]
async fn a_count_is_a_request_to_its_own_path_without_the_fields_of_a_reply() {
    let server = Server::start([Reply::token_count(2095)]).await;
    let client = builder(&server).default_model("my-model").default_max_tokens(9).beta("b").build().unwrap();
    let request = MessageRequest::prompt("Hello").system("Be brief").header("x-own", "1").beta("c");

    let count = client.count_tokens(&request).await.unwrap();
    assert_eq!((count.input_tokens, count.original_input_tokens), (2095, None));

    let [seen] = &server.requests()[..] else { panic!("not one request") };
    assert_eq!((seen.method(), seen.path()), ("POST", "/v1/messages/count_tokens"));
    let headers = [
        ("x-api-key", "sk-key"),
        ("anthropic-version", "2026-10-21"),
        ("anthropic-beta", "b,c"),
        ("x-own", "1"),
    ];
    for (name, value) in headers {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    assert_eq!(
        String::from_utf8_lossy(seen.body()),
        r#"{"model":"my-model","system":"Be brief","messages":[{"role":"user","content":"Hello"}]}"#
    );
    server.finish().unwrap();
}

/// Each field that a request of today may have.
#[tokio::test]
async fn every_field_is_kept_or_left_out() {
    let kept = [
        ("system", json!("Be brief")),
        ("tools", json!([{"name": "now", "input_schema": {"type": "object"}}])),
        ("tool_choice", json!({"type": "auto"})),
        ("thinking", json!({"type": "adaptive"})),
        ("output_config", json!({"effort": "low"})),
        ("cache_control", json!({"type": "ephemeral"})),
        ("speed", json!("fast")),
        ("context_management", json!({"edits": []})),
        ("compaction", json!({"type": "summarize"})),
        // What is refused there, or not known here, is for the API to say.
        ("mcp_servers", json!([])),
        ("temperature", json!(0.5)),
        ("brand_new", json!({"max_tokens": 1})),
    ];
    let left_out = [
        ("max_tokens", json!(100)),
        ("stop_sequences", json!(["END"])),
        ("metadata", json!({"user_id": "u"})),
        ("container", json!({"id": "container_1"})),
        ("service_tier", json!("auto")),
        ("inference_geo", json!("us")),
        ("diagnostics", json!({"previous_message_id": null})),
        ("fallbacks", json!("default")),
        ("fallback_credit_token", json!("t")),
        ("thread", json!({"type": "create"})),
        ("billing_policy", json!({"type": "billing_policy", "bill_to": "self"})),
    ];
    let mut all = hello().model("m");
    for (field, value) in kept.iter().chain(&left_out) {
        all = all.set(field, value);
    }
    let mut expected = json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}]});
    for (field, value) in kept {
        expected[field] = value;
    }
    assert_eq!(counted(&all).await, expected);
    // The request itself has them all, as before.
    let body: Value = serde_json::from_slice(&all.segments().unwrap().concat()).unwrap();
    for (field, value) in left_out {
        assert_eq!(body[field], value);
    }
}

/// What stays passes the rules of the endpoint, whatever was set for a reply.
#[tokio::test]
async fn a_request_that_can_be_sent_can_be_counted() {
    let server = Server::start([Reply::text("Hi"), Reply::token_count(7)]).await;
    let client = builder(&server).build().unwrap();
    let request = MessageRequest::new("claude-opus-4-5", 2000)
        .user("Hello")
        .thinking(json!({"type": "enabled", "budget_tokens": 1024}))
        .tool(json!({"name": "now", "input_schema": {"type": "object"}}))
        .tool_choice(ToolChoice::Auto { one_at_a_time: true })
        .stop_sequences(["END"])
        .set("container", "container_1")
        .set("metadata", json!({"user_id": "u"}))
        .set("fallbacks", "default")
        .beta("server-side-fallback-2026-06-01")
        .cached();
    client.create(&request).await.unwrap();
    assert_eq!(client.count_tokens(&request).await.unwrap().input_tokens, 7);
    server.finish().unwrap();
}

#[tokio::test]
async fn a_runners_tools_are_counted_with_the_request_of_its_loop() {
    let server = Server::start([Reply::token_count(14), Reply::token_count(380), Reply::text("Noon")]).await;
    let client = builder(&server).build().unwrap();
    let now =
        Tool::new("now", "Tells the time", json!({"type": "object"})).handler(|(): ()| async { "12:00" });
    let runner = ToolRunner::new().tool(now);
    let request = hello();
    client.count_tokens(&request).await.unwrap();

    let mut run_loop = runner.run_loop(request);
    let Step::Send(send) = run_loop.step() else { panic!("nothing to send") };
    client.count_tokens(send.request()).await.unwrap();
    runner.drive(&client, &mut run_loop).await.unwrap();

    let bodies: Vec<_> = server.requests().iter().map(|request| request.json()).collect();
    assert!(bodies[0].get("tools").is_none());
    for field in ["model", "tools", "messages"] {
        assert_eq!(bodies[1][field], bodies[2][field], "{field}");
    }
    assert_eq!(bodies[1]["tools"][0]["name"], "now");
    server.finish().unwrap();
}

#[tokio::test]
async fn a_reply_gives_its_counts_or_is_an_error() {
    let edited =
        r#"{"input_tokens":25000,"context_management":{"original_input_tokens":70000},"new_tokens":3}"#;
    let server = Server::start([
        Reply::json_text(edited),
        Reply::text("no count"),
        Reply::json_text("{}"),
        Reply::json_text("[]"),
    ])
    .await;
    let client = builder(&server).build().unwrap();
    let count = client.count_tokens(&hello()).await.unwrap();
    assert_eq!((count.input_tokens, count.original_input_tokens), (25_000, Some(70_000)));
    assert_eq!(count.counter("new_tokens"), Some(3));
    for number in 2..=4 {
        let error = client.count_tokens(&hello()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.status(), error.attempts(), error.is_retryable()),
            (ErrorKind::Decode, Some(200), 1, false)
        );
        assert_eq!(error.request_id(), Some(&*format!("req_{number}")));
    }
    server.finish().unwrap();
}

/// The endpoint has limits of its own.
#[tokio::test]
async fn a_rate_limit_of_counting_holds_back_no_reply() {
    let limited = || Reply::error(429, "rate_limit_error", "slow down").header("retry-after", "30");
    let server = Server::start([limited(), Reply::text("Hi"), limited(), Reply::token_count(7)]).await;
    let client = builder(&server).max_retries(0).build().unwrap();
    let request = || hello().timeout(Duration::from_secs(10));
    assert!(client.count_tokens(&request()).await.unwrap_err().is_rate_limit());
    assert_eq!(client.create(&request()).await.unwrap().text(), "Hi");

    // And the other way round, with a model whose limit was not reached before.
    let request = || request().model("other");
    assert!(client.create(&request()).await.unwrap_err().is_rate_limit());
    assert_eq!(client.count_tokens(&request()).await.unwrap().input_tokens, 7);
    server.finish().unwrap();
}

#[tokio::test]
async fn failures_are_retried_and_told_as_those_of_a_message() {
    let busy = || Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1");
    let server = Server::start([busy(), busy(), Reply::token_count(7), busy()]).await;
    let client = builder(&server).build().unwrap();
    assert_eq!(client.count_tokens(&hello()).await.unwrap().input_tokens, 7);
    let error = client.count_tokens(&hello().max_retries(0)).await.unwrap_err();
    assert!(error.is_overloaded() && error.is_retryable());
    assert_eq!((error.attempts(), error.request_id()), (1, Some("req_4")));
    server.finish().unwrap();

    let server = Server::start([Reply::token_count(7).delay(Duration::from_secs(60))]).await;
    let client = builder(&server).build().unwrap();
    let error = client.count_tokens(&hello().timeout(Duration::from_millis(50))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);

    // No limit of tokens, since there is no reply to wait for.
    let server = Server::start([Reply::token_count(7)]).await;
    let client = builder(&server).max_response_bytes(10).build().unwrap();
    let error = client.count_tokens(&hello().max_tokens(1_000_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);

    let error = client.count_tokens(&hello().user(" ")).await.unwrap_err();
    assert_eq!((error.kind(), server.request_count()), (ErrorKind::Request, 1));
}
