//! The loop over a socket, row by row of the contract.

mod support;

use agentloop::messages::Effort;
use agentloop::run_loop::{Ended, RunErrorKind};
use agentloop::testing::{Gate, Reply, Script, Server};
use agentloop::{Client, Tool, ToolError, ToolRunner};
use agentloop::{ContentBlock, MessageRequest, StopReason};
use agentloop::{Json, ToolOutput};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use support::{Log, add, object, result_of, results, sent};

/// A run of one turn with these calls, and the results that it sent.
async fn results_of(runner: ToolRunner, calls: Vec<(&str, &str, Value)>) -> Vec<(String, String, bool)> {
    let server = Server::start([Reply::tool_use(calls), Reply::text("done")]).await;
    let run = runner.run(&server.client(), "go").await.unwrap();
    server.finish().unwrap();
    results(run.conversation().get(2).unwrap())
}

#[tokio::test]
async fn j01_a_handler_gets_the_input_and_returns_content_or_an_error_with_content() {
    let png = || ContentBlock::image_base64("image/png", "iVBORw0KGgoAAAANSUhEUg==");
    let runner = ToolRunner::new().tools([
        Tool::new("text", "", object()).handler(|input: Box<RawValue>| async move { input.get().to_owned() }),
        Tool::new("value", "", object()).handler(|input: Value| async move { input["z"].clone() }),
        Tool::new("json", "", object()).handler(|(): ()| async { Json(vec![1, 2]) }),
        Tool::new("none", "", object()).handler(|(): ()| async {}),
        Tool::new("blocks", "", object())
            .handler(move |(): ()| async move { vec![ContentBlock::text("a"), png()] }),
        Tool::new("output", "", object()).blocking(|(): ()| ToolOutput::text("o")),
        Tool::new("error", "", object())
            .handler(|(): ()| async { Err::<(), _>(ToolError::blocks(vec![ContentBlock::text("e")])) }),
        Tool::new("io", "", object()).handler(|(): ()| async {
            Err::<String, std::io::Error>(std::io::Error::other("disk full"))?;
            Ok("unreachable")
        }),
    ]);
    let reply = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","stop_reason":"tool_use","usage":{},"content":[
        {"type":"tool_use","id":"t1","name":"text","input":{"z":1e2,"a":1234567890123456789012345}},
        {"type":"tool_use","id":"t2","name":"value","input":{"z":"zed"}},
        {"type":"tool_use","id":"t3","name":"json","input":{"ignored":true}},
        {"type":"tool_use","id":"t4","name":"none","input":{}},
        {"type":"tool_use","id":"t5","name":"blocks","input":{}},
        {"type":"tool_use","id":"t6","name":"output","input":{}},
        {"type":"tool_use","id":"t7","name":"error","input":{}},
        {"type":"tool_use","id":"t8","name":"io","input":{}}]}"#;
    let server = Server::start([Reply::json_text(reply), Reply::text("done")]).await;
    let run = runner.run(&server.client(), "go").await.unwrap();
    let results = server.requests()[1].json()["messages"][2]["content"].clone();
    assert_eq!(results[0]["content"], r#"{"z":1e2,"a":1234567890123456789012345}"#);
    assert_eq!(results[1]["content"], "zed");
    assert_eq!(results[2]["content"], "[1,2]");
    assert_eq!(results[3]["content"], "(no output)");
    assert_eq!(results[4]["content"][0], json!({"type": "text", "text": "a"}));
    assert_eq!(results[4]["content"][1]["source"]["media_type"], "image/png");
    assert_eq!(results[5]["content"], "o");
    assert_eq!(
        results[6],
        json!({"type": "tool_result", "tool_use_id": "t7", "content": "e", "is_error": true})
    );
    assert_eq!(results[7]["content"], "disk full");
    // What the model wrote is replayed digit by digit.
    assert!(sent(&server, 1).contains(r#""input":{"z":1e2,"a":1234567890123456789012345}"#));
    assert_eq!(run.text(), "done");
}

#[tokio::test]
async fn j02_definitions_reach_the_api_unchanged_and_in_order() {
    let server = Server::start([Reply::text("ok")]).await.allow_field("tools.brand_new");
    let verbatim =
        r#"{"type":"bash_20250124","name":"bash","cache_control":{"ttl":"1h","type":"ephemeral"}}"#;
    let runner = ToolRunner::new()
        .tool(
            Tool::new("z_tool", "d", json!({"type": "object", "properties": {"b": {}, "a": {}}}))
                .strict(false)
                .input_examples([json!({"b": 1})])
                .allowed_callers(["direct"])
                .defer_loading(false)
                .eager_input_streaming(true)
                .set("brand_new", json!({"z": 1, "a": 2}))
                .timeout(std::time::Duration::from_secs(1))
                .idempotent(true)
                .handler(|(): ()| async {}),
        )
        .tool(Tool::from_definition(verbatim).handler(|(): ()| async {}));
    let request = MessageRequest::prompt("go")
        .tool(json!({"type": "web_search_20260318", "name": "web_search", "max_uses": 2}));
    let run = runner.run(&server.client(), request).await.unwrap();
    let body = String::from_utf8(server.requests()[0].body().to_vec()).unwrap();
    let own = r#"{"type":"web_search_20260318","name":"web_search","max_uses":2}"#;
    let made = r#"{"name":"z_tool","description":"d","input_schema":{"type":"object","properties":{"b":{},"a":{}}},"strict":false,"input_examples":[{"b":1}],"allowed_callers":["direct"],"defer_loading":false,"eager_input_streaming":true,"brand_new":{"z":1,"a":2}}"#;
    assert!(body.contains(&format!(r#""tools":[{own},{made},{verbatim}]"#)), "{body}");
    // The next request holds the caller's own again, and the runner adds its own once.
    let server = Server::start([Reply::text("ok")]).await.allow_field("tools.brand_new");
    runner.run(&server.client(), run.into_request().user("more")).await.unwrap();
    assert_eq!(server.requests()[0].json()["tools"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn j03_a_run_returns_the_final_reply_and_the_whole_conversation() {
    let server = Server::start([
        Reply::tool_use([("t1", "add", json!({"a": 2, "b": 3}))]).usage(10, 2),
        Reply::text("It is 5.").usage(20, 4),
    ])
    .await;
    let run = ToolRunner::new().tool(add(&Log::default())).run(&server.client(), "2 and 3?").await.unwrap();
    assert_eq!(run.text(), "It is 5.");
    assert_eq!(*run.ended(), Ended::EndTurn);
    assert!(run.ended().is_complete());
    assert_eq!((run.iterations(), run.usage().input_tokens, run.usage().output_tokens), (2, 30, 6));
    assert_eq!(run.request_ids(), ["req_1", "req_2"]);
    assert_eq!(run.repairs(), []);
    let conversation: Value = serde_json::from_str(&run.conversation().to_json()).unwrap();
    assert_eq!(
        conversation,
        json!([
            {"role": "user", "content": "2 and 3?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2, "b": 3}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "5"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "It is 5."}]},
        ])
    );
    server.finish().unwrap();
}

#[tokio::test]
async fn j04_a_prompt_works_in_place_of_a_body() {
    let server = Server::start([Reply::text("ok"), Reply::text("ok"), Reply::text("ok")]).await;
    let runner = ToolRunner::new();
    runner.run(&server.client(), "Weather in Berlin?").await.unwrap();
    let client = Client::builder()
        .base_url(server.url())
        .auth(agentloop::client::Auth::None)
        .no_proxy()
        .default_model("my-model")
        .default_max_tokens(77)
        .build()
        .unwrap();
    runner.run(&client, String::from("text")).await.unwrap();
    let request =
        MessageRequest::prompt("go").model("other").max_tokens(5).system("be brief").effort(Effort::Low);
    runner.run(&client, request).await.unwrap();
    let bodies: Vec<_> = server.requests().iter().map(|request| request.json()).collect();
    assert_eq!(
        bodies[0],
        json!({"model": "claude-opus-5-5", "max_tokens": 16000, "messages": [{"role": "user", "content": "Weather in Berlin?"}]})
    );
    assert_eq!((&bodies[1]["model"], &bodies[1]["max_tokens"]), (&json!("my-model"), &json!(77)));
    assert_eq!((&bodies[2]["model"], &bodies[2]["max_tokens"]), (&json!("other"), &json!(5)));
    assert_eq!(
        (&bodies[2]["system"], &bodies[2]["output_config"]),
        (&json!("be brief"), &json!({"effort": "low"}))
    );
}

/// Whatever finishes first, the bytes of the next request are the same.
#[tokio::test]
async fn j05_results_go_out_in_the_order_of_the_calls() {
    let mut bodies = Vec::new();
    for first in ["slow", "fast"] {
        let done = std::sync::Arc::new(tokio::sync::Notify::new());
        let tool = |name: &'static str| {
            let done = done.clone();
            Tool::new(name, "", object()).handler(move |(): ()| {
                let done = done.clone();
                async move {
                    match name == first {
                        true => done.notify_one(),
                        false => done.notified().await,
                    }
                    name
                }
            })
        };
        let runner = ToolRunner::new().tools([tool("slow"), tool("fast")]).max_concurrency(2);
        let calls = [("t1", "slow", json!({})), ("t2", "fast", json!({}))];
        let server = Server::start([Reply::tool_use(calls), Reply::text("done")]).await;
        runner.run(&server.client(), "go").await.unwrap();
        bodies.push(server.requests()[1].body().to_vec());
    }
    assert_eq!(bodies[0], bodies[1]);
}

#[tokio::test]
async fn j06_the_loop_goes_on_until_the_stop_reason_is_another() {
    let calls = |id: &str| Reply::tool_use([(id.to_owned(), "add", json!({"a": 1, "b": 1}))]);
    for (reason, ended) in [
        ("max_tokens", Ended::MaxTokens),
        ("refusal", Ended::Refusal),
        ("stop_sequence", Ended::StopSequence),
        ("model_context_window_exceeded", Ended::ContextWindow),
        ("brand_new", Ended::Other(Some(StopReason::from("brand_new")))),
    ] {
        let log = Log::default();
        let server = Server::start([calls("t1"), calls("t2"), calls("t3").stop_reason(reason)]).await;
        let run = ToolRunner::new().tool(add(&log)).run(&server.client(), "go").await.unwrap();
        assert_eq!(*run.ended(), ended);
        assert_eq!((run.iterations(), log.count("add")), (3, 2));
        assert_eq!(run.conversation().open_calls().len(), 1);
        server.finish().unwrap();
    }
}

#[tokio::test]
async fn j07_a_finished_conversation_can_be_continued() {
    let server = Server::start([
        Reply::tool_use([("t1", "add", json!({"a": 1, "b": 1}))]),
        Reply::message(json!({"content": []})),
        Reply::text("again"),
        Reply::tool_use([("t2", "add", json!({"a": 1}))]).stop_reason("max_tokens"),
        Reply::text("end"),
    ])
    .await;
    let (client, runner) = (server.client(), ToolRunner::new().tool(add(&Log::default())));
    let run = runner.run(&client, "go").await.unwrap();
    // An empty final turn is in the reply, but not in the conversation.
    assert_eq!(*run.ended(), Ended::Empty);
    assert_eq!(run.conversation().len(), 3);
    let run = runner.run(&client, run.into_request().user("next")).await.unwrap();
    assert_eq!(run.text(), "again");
    let run = runner.run(&client, run.into_request().user("more")).await.unwrap();
    assert!(run.ended().is_cut_off());
    let run = runner.run(&client, run.into_request().user("go on")).await.unwrap();
    assert!(result_of(run.conversation(), "t2").0.contains("cut off"));
    assert_eq!(run.text(), "end");
    server.finish().unwrap();
}

#[tokio::test]
async fn j08_what_a_tool_does_wrong_is_a_result_and_the_others_run() {
    let log = Log::default();
    let runner = ToolRunner::new().tools([
        add(&log),
        Tool::new("fails", "", object())
            .handler(|(): ()| async { Err::<(), _>(ToolError::new("no such row")) }),
        Tool::new("panics", "", object()).handler(|(): ()| async {
            std::hint::black_box(true).then(|| panic!("SENTINEL"));
        }),
        Tool::new("panics_blocking", "", object()).blocking(|(): ()| -> String { panic!("SENTINEL") }),
    ]);
    let calls = || {
        vec![
            ("t1", "add", json!({"a": 1, "b": 2})),
            ("t2", "fails", json!({})),
            ("t3", "panics", json!({})),
            ("t4", "add", json!({"a": 1, "b": "two"})),
            ("t5", "add", json!({"a": 1})),
            ("t6", "no_such_tool", json!({})),
            ("t7", "panics_blocking", json!({})),
            ("t8", "add", json!({"a": 3, "b": 4})),
        ]
    };
    for runner in [
        runner.clone(),
        runner.clone().max_concurrency(3),
        runner.tool_timeout(std::time::Duration::from_secs(60)),
    ] {
        let results = results_of(runner, calls()).await;
        let ids: Vec<_> = results.iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!(ids, ["t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"]);
        let errors: Vec<_> = results.iter().map(|(.., is_error)| *is_error).collect();
        assert_eq!(errors, [false, true, true, true, true, true, true, false]);
        let texts: Vec<_> = results.iter().map(|(_, text, _)| text.as_str()).collect();
        assert_eq!((texts[0], texts[1], texts[7]), ("3", "no such row", "7"));
        assert_eq!((texts[2], texts[6]), ("the tool failed unexpectedly", "the tool failed unexpectedly"));
        assert!(
            texts[3].contains("`b`") && texts[3].contains("integer") || texts[3].contains("i64"),
            "{}",
            texts[3]
        );
        assert!(texts[4].contains("missing field `b`"), "{}", texts[4]);
        assert!(texts[5].contains("no_such_tool") && texts[5].contains("add, fails"), "{}", texts[5]);
    }
    assert_eq!(log.count("add"), 6);
}

#[tokio::test]
async fn j09_the_cap_is_an_error_of_its_own_and_retries_are_not_counted() {
    let forever = Script::from_fn(|request| {
        Reply::tool_use([(format!("t{}", request.number()), "add", json!({"a": 1, "b": 1}))])
    });
    let server = Server::start(forever).await;
    let log = Log::default();
    let error = ToolRunner::new().tool(add(&log)).run(&server.client(), "go").await.unwrap_err();
    assert_eq!((error.kind(), error.error_type()), (RunErrorKind::MaxIterations, "max_iterations"));
    assert_eq!((server.request_count(), error.iterations(), log.count("add")), (10, 10, 9));

    let server = Server::start([
        Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1"),
        Reply::message(json!({"content": [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}], "stop_reason": "pause_turn"})),
        Reply::error(500, "api_error", "oops").header("retry-after-ms", "1"),
        Reply::text("done"),
    ])
    .await;
    let client = Client::builder()
        .base_url(server.url())
        .auth(agentloop::client::Auth::None)
        .no_proxy()
        .build()
        .unwrap();
    let request =
        MessageRequest::prompt("go").tool(json!({"type": "web_search_20260318", "name": "web_search"}));
    let run = ToolRunner::new().max_iterations(2).run(&client, request).await.unwrap();
    assert_eq!((server.request_count(), run.iterations()), (4, 2));
}

#[tokio::test]
async fn j11_after_the_cap_the_conversation_ends_with_the_last_assistant_turn() {
    let log = Log::default();
    let server =
        Server::start([Reply::tool_use([("t1", "add", json!({"a": 1, "b": 1}))]), Reply::text("2")]).await;
    let runner = ToolRunner::new().tool(add(&log)).max_iterations(1);
    let error = runner.run(&server.client(), "go").await.unwrap_err();
    assert_eq!(log.count("add"), 0);
    assert_eq!(error.conversation().len(), 2);
    let mut run_loop = error.into_run_loop();
    run_loop.set_max_iterations(2);
    runner.drive(&server.client(), &mut run_loop).await.unwrap();
    assert_eq!((log.count("add"), run_loop.into_run().unwrap().text().as_str()), (1, "2"));

    // A pause at the cap: sending the conversation again continues it.
    let paused = json!([{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}]);
    let server = Server::start([
        Reply::message(json!({"content": paused, "stop_reason": "pause_turn"})),
        Reply::text("found"),
    ])
    .await;
    let request =
        MessageRequest::prompt("go").tool(json!({"type": "web_search_20260318", "name": "web_search"}));
    let error = runner.run(&server.client(), request).await.unwrap_err();
    assert_eq!(error.kind(), RunErrorKind::MaxIterations);
    let run = runner.run(&server.client(), error.into_request()).await.unwrap();
    assert_eq!(run.text(), "found");
}

#[tokio::test]
async fn j16_server_tools_pass_and_a_pause_goes_back_as_received() {
    let paused = r#"[ {"type":"thinking","thinking":"","signature":"S"}, {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q","n":1e2}} ]"#;
    let reply = format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":{paused},"stop_reason":"pause_turn","usage":{{}}}}"#
    );
    let server = Server::start([Reply::json_text(reply), Reply::text("found")]).await;
    let search = json!({"type": "web_search_20260318", "name": "web_search"});
    let run =
        ToolRunner::new().run(&server.client(), MessageRequest::prompt("go").tool(&search)).await.unwrap();
    assert_eq!(
        sent(&server, 1),
        format!(r#"[{{"role":"user","content":"go"}},{{"role":"assistant","content":{paused}}}]"#)
    );
    assert_eq!(server.requests()[1].json()["tools"], json!([search]));
    assert_eq!(run.text(), "found");
    server.finish().unwrap();
}

/// Thinking, redacted thinking, server tools, an unknown caller: the turn goes back whole and in
/// order, also where the request no longer declares the server tool.
#[tokio::test]
async fn j16_a_turn_of_many_blocks_goes_back_whole_and_in_order() {
    let content = r#"[{"type":"thinking","thinking":"","signature":"S1"},{"type":"redacted_thinking","data":"Zm9v"},{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":1e2}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]},{"type":"thinking","thinking":"b","signature":"S2"},{"type":"text","text":"one "},{"type":"tool_use","id":"t1","name":"add","input":{"b":1,"a":2},"caller":{"type":"code_execution_20990101","tool_id":"srvtoolu_9"}},{"type":"text","text":"two"}]"#;
    let reply = format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":{content},"stop_reason":"tool_use","usage":{{}}}}"#
    );
    // The rules of the server do not know this caller.
    let server = Server::start([Reply::json_text(reply), Reply::text("done")]).await.lenient();
    let runner = ToolRunner::new().tool(add(&Log::default())).max_iterations(1);
    let mut run_loop = runner.run_loop("go");
    let client = server.client();
    runner.drive(&client, &mut run_loop).await.unwrap_err();
    assert_eq!(run_loop.message().unwrap().text(), "one two");
    run_loop.set_max_iterations(2);
    runner.drive(&client, &mut run_loop).await.unwrap();
    assert_eq!(
        sent(&server, 1),
        format!(
            r#"[{{"role":"user","content":"go"}},{{"role":"assistant","content":{content}}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","content":"3"}}]}}]"#
        )
    );
    server.finish().unwrap();
}

/// No result is invented for a server tool that the API is still to finish.
#[tokio::test]
async fn j16_an_unfinished_server_call_beside_a_client_call_stays() {
    let content = json!([
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}},
    ]);
    let server = Server::start([
        Reply::message(json!({"content": content, "stop_reason": "tool_use"})),
        Reply::message(json!({"content": [
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "text", "text": "done"},
        ]})),
    ])
    .await;
    let search = json!({"type": "web_search_20260318", "name": "web_search"});
    let runner = ToolRunner::new().tool(add(&Log::default()));
    let run = runner.run(&server.client(), MessageRequest::prompt("go").tool(search)).await.unwrap();
    let messages = server.requests()[1].json()["messages"].clone();
    assert_eq!(messages[1]["content"], content);
    assert_eq!(messages[2]["content"], json!([{"type": "tool_result", "tool_use_id": "t1", "content": "3"}]));
    assert_eq!(run.text(), "done");
    server.finish().unwrap();
}

#[tokio::test]
async fn a_container_goes_with_every_later_request() {
    let reply = |id: &str, container: &str| {
        Reply::message(json!({
            "content": [{"type": "tool_use", "id": id, "name": "add", "input": {"a": 1, "b": 1}}],
            "container": {"id": container, "expires_at": "2099-01-01T00:00:00Z"},
        }))
    };
    let server =
        Server::start([reply("t1", "c1"), reply("t2", "c2"), Reply::text("done"), Reply::text("again")])
            .await;
    let (client, runner) = (server.client(), ToolRunner::new().tool(add(&Log::default())));
    let run = runner.run(&client, "go").await.unwrap();
    runner.run(&client, run.into_request().user("more")).await.unwrap();
    let containers: Vec<_> =
        server.requests().iter().map(|request| request.json()["container"].clone()).collect();
    assert_eq!(containers, [Value::Null, json!("c1"), json!("c2"), json!("c2")]);
    server.finish().unwrap();
}

/// The API refuses its own blank text: it does not go back, and the reply still shows it.
#[tokio::test]
async fn a_blank_text_block_does_not_go_back() {
    for blank in ["", " \n"] {
        let content = json!([
            {"type": "text", "text": blank},
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 1}},
        ]);
        let server = Server::start([Reply::message(json!({"content": content})), Reply::text("done")]).await;
        let runner = ToolRunner::new().tool(add(&Log::default())).max_iterations(1);
        let error = runner.run(&server.client(), "go").await.unwrap_err();
        let received: Value = serde_json::from_str(error.message().unwrap().json()).unwrap();
        assert_eq!(received["content"], content);
        let mut run_loop = error.into_run_loop();
        assert_eq!(run_loop.repairs()[0].kind, agentloop::messages::RepairKind::BlankText);
        run_loop.set_max_iterations(2);
        runner.drive(&server.client(), &mut run_loop).await.unwrap();
        assert_eq!(server.requests()[1].json()["messages"][1]["content"], json!([content[1]]));
        server.finish().unwrap();
    }
}

#[tokio::test]
async fn j17_an_api_error_is_matched_by_its_type_and_by_kind() {
    for (status, error_type) in
        [(529, "overloaded_error"), (429, "rate_limit_error"), (400, "brand_new_error")]
    {
        let server = Server::start([Reply::error(status, error_type, "words of the API")]).await;
        let error = ToolRunner::new().run(&server.client(), "go").await.unwrap_err();
        assert_eq!((error.kind(), error.error_type()), (RunErrorKind::Client, error_type));
        let client = error.client_error().unwrap();
        assert_eq!((client.kind(), client.status()), (agentloop::ErrorKind::Api, Some(status)));
        assert_eq!(client.api_type(), Some(error_type));
        assert_eq!(client.is_overloaded(), status == 529);
        assert_eq!(error.is_retryable(), status != 400);
        assert_eq!(client.request_id(), Some("req_1"));
        let stop = error.stop().clone();
        assert!(std::error::Error::source(&stop).unwrap().to_string().contains("words of the API"));
    }
}

#[tokio::test]
async fn setters_keep_their_first_error_and_nothing_is_sent() {
    let server = Server::start(Vec::<Reply>::new()).await;
    let plain = || Tool::new("add", "", object());
    for (runner, part) in [
        (ToolRunner::new().max_iterations(0), "max_iterations"),
        (ToolRunner::new().max_concurrency(0), "max_concurrency"),
        (ToolRunner::new().tool(plain()), "no handler answers"),
        (
            ToolRunner::new().tool(add(&Log::default())).tool(add(&Log::default())),
            "two tools are named `add`",
        ),
        (
            ToolRunner::new().tool(Tool::new("files.v2/read", "", object()).handler(|(): ()| async {})),
            "files.v2/read",
        ),
        (
            ToolRunner::new().tool(Tool::new("x".repeat(129), "", object()).handler(|(): ()| async {})),
            "1 to 128",
        ),
        (ToolRunner::new().tool(Tool::new("", "", object()).handler(|(): ()| async {})), "name"),
    ] {
        let kept = runner.check().unwrap_err();
        assert!(kept.to_string().contains(part), "{kept}");
        let error = runner.run(&server.client(), "go").await.unwrap_err();
        assert_eq!(error.kind(), RunErrorKind::Request);
        assert_eq!(error.client_error().unwrap().to_string(), kept.to_string());
        // Nothing of the request is lost.
        assert_eq!(error.into_conversation().len(), 1);
    }
    let error =
        ToolRunner::new().run(&server.client(), MessageRequest::prompt("go").user("")).await.unwrap_err();
    assert_eq!(error.kind(), RunErrorKind::Request);
    // Taken out of the error, the request no longer holds what was refused.
    error.into_request().check().unwrap();
    // An empty prompt is not dropped, and nothing is put in its place.
    let error = ToolRunner::new().run(&server.client(), "").await.unwrap_err();
    assert_eq!(error.kind(), RunErrorKind::Request);
    assert!(error.client_error().unwrap().to_string().contains("blank"));
    assert_eq!(server.request_count(), 0);
}

/// A reply that may take too long for a plain request is streamed, and nobody has to ask for it.
#[tokio::test]
async fn a_run_streams_by_itself_where_a_plain_request_would_be_refused() {
    for (max_tokens, stream) in [(21_333, None), (21_334, Some(true))] {
        let call = Reply::tool_use([("toolu_1", "echo", json!({"text": "a"}))]);
        let server = Server::start([call, Reply::text("ok")]).await;
        let echo =
            Tool::new("echo", "", json!({"type": "object"})).handler(|input: Value| async { Ok(input) });
        let request = MessageRequest::new("claude-opus-5-5", max_tokens).user("go");
        let run = ToolRunner::new().tool(echo).run(&server.client(), request).await.unwrap();
        assert_eq!((run.text().as_str(), run.iterations()), ("ok", 2));
        for request in server.requests() {
            assert_eq!(request.json().get("stream").and_then(Value::as_bool), stream);
        }
        server.finish().unwrap();
    }
}

/// The end of a body may come behind that of the reply. Nobody waits for it, and while the tools
/// run it arrives.
#[tokio::test]
async fn a_connection_is_used_again_although_the_end_of_a_stream_comes_late() {
    let gate = Gate::new();
    let call = Reply::tool_use([("toolu_1", "open", json!({}))]).hold_after_events(usize::MAX, &gate);
    let server = Server::start([call, Reply::text("ok")]).await;
    let open = Tool::new("open", "", object()).handler(move |(): ()| {
        let gate = gate.clone();
        async move {
            gate.release();
            // The server has the same thread: it gets its turns.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
    });
    let run = ToolRunner::new().tool(open).on_event(|_| {}).run(&server.client(), "go").await.unwrap();
    assert_eq!((run.text().as_str(), server.request_count()), ("ok", 2));
    assert_eq!(server.connections_opened(), 1);
}

/// Futures of a run can be spawned, and what they give crosses threads.
#[test]
fn runs_can_be_spawned() {
    fn crosses<T: Send>(_: &T) {}
    fn is_static<T: Send + 'static>(_: &T) {}
    fn is_shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    let client =
        Client::builder().base_url("http://127.0.0.1:9").auth(agentloop::client::Auth::None).build().unwrap();
    let runner = ToolRunner::new();
    let mut run_loop = runner.run_loop("go");
    is_shared(&client);
    is_shared(&runner);
    is_shared(&run_loop);
    crosses(&runner.run(&client, "go"));
    crosses(&runner.run(&client, MessageRequest::prompt("go")));
    crosses(&runner.drive(&client, &mut run_loop));
    crosses(&client.create(&MessageRequest::prompt("go")));
    crosses(&client.create_streamed(&MessageRequest::prompt("go")));
    crosses(&client.stream(&MessageRequest::prompt("go")));
    is_static(&runner.stream(&client, "go"));
    crosses(&runner.drive_stream(&client, &mut run_loop));
}

/// Gateways put `"error": null` into what is a reply.
#[tokio::test]
async fn an_error_of_null_is_none() {
    let reply = r#"{"error":null,"content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}"#;
    let server = Server::start([Reply::json_text(reply)]).await;
    assert_eq!(ToolRunner::new().run(&server.client(), "go").await.unwrap().text(), "ok");
}
