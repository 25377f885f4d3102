//! MCP servers in the loop.

#[cfg(unix)]
mod children;
mod fake;
mod hostile;
mod unasked;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use agentloop::mcp::{Prefix, Servers};
use agentloop::run_loop::RunErrorKind;
use agentloop::testing::{Reply, Server};
use agentloop::{MessageRequest, Run, Tool, ToolRunner};
use fake::{Answer, connected, list_changed, page, service, text, tool};
use serde_json::{Value, json};

const GUARD: Duration = Duration::from_secs(20);

async fn guarded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(GUARD, work).await.expect("nothing waits for ever")
}

/// Waits until something is so.
async fn until(is_so: impl Fn() -> bool) {
    guarded(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Runs a turn of these calls, and gives the run with the results that were sent.
async fn run_of(runner: &ToolRunner, calls: Vec<(&str, &str, Value)>) -> (Run, Vec<Value>) {
    let server = Server::start([Reply::tool_use(calls), Reply::text("done")]).await;
    let request = MessageRequest::new("m", 100).user("go");
    let run = guarded(runner.run(&server.client(), request)).await.unwrap();
    assert_eq!(run.text(), "done");
    let results = server.requests()[1].json()["messages"][2]["content"].as_array().unwrap().clone();
    server.finish().unwrap();
    (run, results)
}

/// The one text of each result.
fn texts(results: &[Value]) -> Vec<&str> {
    fn text(result: &Value) -> Option<&str> {
        match &result["content"] {
            Value::String(_) => result["content"].as_str(),
            blocks => blocks
                .as_array()
                .filter(|blocks| blocks.len() == 1)
                .and_then(|blocks| blocks[0]["text"].as_str()),
        }
    }
    results.iter().map(|result| text(result).unwrap()).collect()
}

#[tokio::test]
async fn m09_the_calls_of_a_reply_run_at_their_servers() {
    let answers = |who: &'static str| {
        move |method: &str, params: &Value| match method {
            "tools/list" => page(&["search", who]),
            _ => text(&format!("{who}: {} {}", params["name"].as_str().unwrap(), params["arguments"])),
        }
    };
    let (files, files_fake) = connected("files", answers("read")).await;
    let (git, git_fake) = connected("git", answers("log")).await;
    let native = Tool::new("log", "", json!({"type": "object"})).handler(|(): ()| async { "native" });
    let runner = ToolRunner::new().tool(native).mcp_servers([files.unwrap(), git.unwrap()]);
    let calls = vec![
        ("c1", "files__search", json!({"q": 1})),
        ("c2", "git__search", json!({})),
        ("c3", "read", json!({"path": "größer"})),
        ("c4", "log", json!({})),
        ("c5", "git__log", json!({"a": [1.50, null]})),
    ];
    let (_, results) = run_of(&runner, calls).await;
    assert_eq!(
        texts(&results),
        [
            r#"read: search {"q":1}"#,
            "log: search {}",
            r#"read: read {"path":"größer"}"#,
            "native",
            r#"log: log {"a":[1.5,null]}"#,
        ]
    );
    assert_eq!((files_fake.seen.of("tools/call").len(), git_fake.seen.of("tools/call").len()), (2, 2));
}

#[tokio::test]
async fn all_pages_are_read_and_those_without_end_have_one() {
    let pages = |method: &str, params: &Value| match (method, params["cursor"].as_str()) {
        ("tools/list", None) => Answer::Result(json!({"tools": [tool("a")], "nextCursor": "1"})),
        ("tools/list", Some("1")) => Answer::Result(json!({"tools": [tool("b")], "nextCursor": "2"})),
        // And round again for ever.
        _ => Answer::Result(json!({"tools": [tool("c")], "nextCursor": "1"})),
    };
    let (server, fake) = guarded(connected("s", pages)).await;
    let (tools, set, _) = Servers::new([server.unwrap()]).into_tools();
    assert_eq!(tools.len(), 3);
    assert_eq!(set.iter().map(|tool| tool.mcp_name()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(fake.seen.of("tools/list").len(), 3);

    // Every page names another one.
    let endless = |_: &str, params: &Value| {
        let next = params["cursor"].as_str().map_or(0, |cursor| cursor.parse::<u32>().unwrap()) + 1;
        Answer::Result(json!({"tools": [tool(&format!("t{next}"))], "nextCursor": next.to_string()}))
    };
    let (server, fake) = guarded(connected("s", endless)).await;
    assert_eq!(Servers::new([server.unwrap()]).into_tools().0.len(), 1001);
    assert_eq!(fake.seen.of("tools/list").len(), 1001);
}

#[tokio::test]
async fn a_list_that_changes_stays_as_it_was_until_it_is_asked_for() {
    let is_changed = AtomicBool::new(false);
    let answer = move |method: &str, params: &Value| match (method, is_changed.load(Relaxed)) {
        ("tools/list", false) => page(&["old"]),
        ("tools/list", true) => page(&["new"]),
        (_, false) => {
            is_changed.store(true, Relaxed);
            Answer::Behind(vec![list_changed()], json!({"content": [{"type": "text", "text": "ok"}]}))
        }
        _ if params["name"] == "old" => Answer::Error(-32602, "there is no such tool"),
        _ => text("ok"),
    };
    let (service, fake) = service(answer).await;
    let server = agentloop::mcp::Server::of("s", &service).await.unwrap();
    let runner = ToolRunner::new().mcp(server);
    let script = [
        Reply::tool_use([("c1", "old", json!({}))]),
        Reply::tool_use([("c2", "old", json!({}))]),
        Reply::text("done"),
    ];
    let api = Server::start(script).await;
    guarded(runner.run(&api.client(), "go")).await.unwrap();
    let bodies: Vec<_> = api.requests().iter().map(|request| request.json()).collect();
    assert!(bodies.iter().all(|body| body["tools"] == bodies[0]["tools"]));
    let results = bodies[2]["messages"].as_array().unwrap();
    assert_eq!(texts(results[2]["content"].as_array().unwrap()), ["ok"]);
    let gone = &results[4]["content"][0];
    assert_eq!(gone["is_error"], true);
    assert!(gone["content"].as_str().unwrap().contains("there is no such tool"), "{gone}");
    assert_eq!(fake.seen.of("tools/list").len(), 1);

    let server = agentloop::mcp::Server::of("s", &service).await.unwrap();
    let (_, results) = run_of(&ToolRunner::new().mcp(server), vec![("c1", "new", json!({}))]).await;
    assert_eq!(texts(&results), ["ok"]);
}

#[tokio::test]
async fn two_servers_with_one_name_are_an_error_before_any_request() {
    let one = |method: &str, _: &Value| if method == "tools/list" { page(&["one"]) } else { text("first") };
    let two = |method: &str, _: &Value| if method == "tools/list" { page(&["two"]) } else { text("second") };
    let (first, _fake) = connected("fs", one).await;
    let (second, _other) = connected("fs", two).await;
    let servers = [first.unwrap(), second.unwrap()];
    let api = Server::start([]).await;
    let runner = ToolRunner::new().mcp_servers(servers.clone());
    assert_eq!(runner.run(&api.client(), "go").await.unwrap_err().kind(), RunErrorKind::Request);
    let error = runner.check().unwrap_err();
    assert!(error.to_string().contains("two MCP servers are named `fs`"), "{error}");
    assert_eq!(api.request_count(), 0);

    let (tools, set, report) = Servers::new(servers).into_tools();
    assert_eq!(tools.len(), 1);
    assert_eq!((set.iter().next().unwrap().mcp_name(), report.dropped().count()), ("one", 1), "{report}");
    let runner = ToolRunner::new().tools(tools);
    assert_eq!(texts(&run_of(&runner, vec![("c1", "one", json!({}))]).await.1), ["first"]);
}

#[tokio::test]
async fn one_tool_that_can_not_be_read_costs_none_of_the_others() {
    let list = |_: &str, _: &Value| {
        Answer::Result(json!({"tools": [tool("a"), {"name": "b", "inputSchema": 7}, tool("c")]}))
    };
    let (server, _fake) = guarded(connected("s", list)).await;
    let (_, set, report) = Servers::new([server.unwrap()]).into_tools();
    assert_eq!(set.iter().map(|tool| tool.mcp_name()).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(report.dropped().count(), 1);
}

#[tokio::test]
async fn a_server_that_does_not_list_is_an_error_that_names_it() {
    for answer in [|| Answer::Error(-32601, "no"), || Answer::Close, || Answer::Result(json!({"nothing": 1}))]
    {
        let (server, _fake) = guarded(connected("files", move |_: &str, _: &Value| answer())).await;
        let error = server.unwrap_err();
        assert!(error.to_string().contains("`files`"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[tokio::test]
async fn every_failure_of_a_server_is_an_error_result_and_the_loop_goes_on() {
    type Case = (fn() -> Answer, &'static str);
    let cases: [Case; 8] = [
        (|| Answer::Error(-32602, "no such path"), "refused the call: no such path (code -32602)"),
        (|| Answer::Close, "whether the call ran is unknown"),
        (
            || Answer::Result(json!({"content": [{"type": "text", "text": "disk full"}], "isError": true})),
            "disk full",
        ),
        (|| Answer::Result(json!(7)), "not a tool result"),
        (|| Answer::Result(json!({"unknown": 1})), "not a tool result"),
        (
            || {
                Answer::Result(
                    json!({"resultType": "input_required", "inputRequests": {}, "requestState": "s"}),
                )
            },
            "asks for more input",
        ),
        (
            || {
                Answer::Result(
                    json!({"resultType": "task", "taskId": "t", "status": "working", "createdAt": "2026-11-30T00:00:00Z", "lastUpdatedAt": "2026-11-30T00:00:00Z", "ttlMs": null}),
                )
            },
            "made a task",
        ),
        (|| Answer::Silence, "tool timed out after 300 ms"),
    ];
    for (answer, word) in cases {
        let (server, fake) = connected("files", move |method: &str, _: &Value| match method {
            "tools/list" => page(&["read"]),
            _ => answer(),
        })
        .await;
        let runner = ToolRunner::new().mcp(server.unwrap()).tool_timeout(Duration::from_millis(300));
        let (_, results) = run_of(&runner, vec![("c1", "read", json!({}))]).await;
        assert_eq!(results[0]["is_error"], true, "{word}: {results:?}");
        assert!(texts(&results)[0].contains(word), "{word}: {results:?}");
        assert_eq!(fake.seen.of("tools/call").len(), 1, "{word}: it was sent once");
    }
}

#[tokio::test]
async fn a_dead_connection_is_seen_at_once() {
    let (server, mut fake) = connected("files", |_: &str, _: &Value| page(&["read"])).await;
    let server = server.unwrap();
    assert!(server.is_connected());
    let runner = ToolRunner::new().mcp(server.clone());
    fake.stop();
    while server.is_connected() {
        tokio::task::yield_now().await;
    }
    let (_, results) = run_of(&runner, vec![("c1", "read", json!({}))]).await;
    assert_eq!(texts(&results), ["the server `files` is not connected: the call did not run"]);
    assert!(format!("{server:?}").contains("is_connected: false"));
}

#[tokio::test]
async fn a_call_that_is_dropped_or_takes_too_long_is_told_to_the_server() {
    let silent = |method: &str, _: &Value| match method {
        "tools/list" => page(&["read"]),
        _ => Answer::Silence,
    };
    let (server, fake) = connected("files", silent).await;
    let runner = ToolRunner::new().mcp(server.unwrap());
    let script = || [Reply::tool_use([("c1", "read", json!({}))]), Reply::text("done")];

    let api = Server::start(script()).await;
    let limited = runner.clone().tool_timeout(Duration::from_millis(50));
    guarded(limited.run(&api.client(), "go")).await.unwrap();
    guarded(fake.seen.until("notifications/cancelled", 1)).await;

    let api = Server::start(script()).await;
    let client = api.client();
    tokio::select! {
        _ = runner.run(&client, "go") => panic!("nobody answers"),
        () = guarded(fake.seen.until("tools/call", 2)) => {}
    }
    guarded(fake.seen.until("notifications/cancelled", 2)).await;
    let ids: Vec<_> =
        fake.seen.of("notifications/cancelled").iter().map(|params| params["requestId"].clone()).collect();
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn kinds_of_content_that_nobody_knows_cost_none_of_the_others() {
    let answer = |method: &str, _: &Value| match method {
        "tools/list" => page(&["read"]),
        _ => Answer::Result(json!({"content": [
            {"type": "text", "text": "before"},
            {"type": "hologram", "data": "AAAA"},
            {"type": "resource_link", "uri": "r://x/1", "name": "n", "mimeType": "application/pdf"},
            {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        ]})),
    };
    let (server, _fake) = connected("files", answer).await;
    let (_, results) = run_of(&ToolRunner::new().mcp(server.unwrap()), vec![("c1", "read", json!({}))]).await;
    let content = results[0]["content"].as_array().unwrap();
    assert_eq!(content[0]["text"], "before");
    assert!(content[1]["text"].as_str().unwrap().contains("hologram"), "{content:?}");
    assert_eq!(content[2]["text"], "[resource] n <r://x/1> (application/pdf)");
    assert_eq!(content[3]["source"]["media_type"], "image/png");
}

#[tokio::test]
async fn a_number_that_would_change_on_its_way_is_not_sent() {
    let exact = "1e400".parse::<serde_json::Number>().is_ok();
    let answer = |method: &str, _: &Value| match method {
        "tools/list" => page(&["read"]),
        _ => text("ok"),
    };
    let (server, fake) = connected("files", answer).await;
    let runner = ToolRunner::new().mcp(server.unwrap());
    let reply = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","stop_reason":"tool_use","usage":{},
        "content":[{"type":"tool_use","id":"c1","name":"read","input":{"id":1234567890123456789012345}}]}"#;
    let api = Server::start([Reply::json_text(reply), Reply::text("done")]).await;
    guarded(runner.run(&api.client(), "go")).await.unwrap();
    let result = api.requests()[1].json()["messages"][2]["content"][0].clone();
    let refused = texts(std::slice::from_ref(&result))[0].contains("1234567890123456789012345 can't be sent");
    assert_eq!((refused, fake.seen.of("tools/call").len()), (!exact, usize::from(exact)), "{result}");
}

#[tokio::test]
async fn calls_of_one_server_run_at_once_where_the_runner_allows_it() {
    // The answer to the second call comes before that to the first, which waits for it.
    let (first, second) = (std::sync::Arc::new(std::sync::Mutex::new(0)), ());
    let count = first.clone();
    let answer = move |method: &str, _: &Value| match method {
        "tools/list" => page(&["read"]),
        _ => {
            *count.lock().unwrap() += 1;
            if *count.lock().unwrap() == 1 { Answer::Silence } else { text("second") }
        }
    };
    let ((), (server, fake)) = (second, connected("files", answer).await);
    let runner =
        ToolRunner::new().mcp(server.unwrap()).max_concurrency(2).tool_timeout(Duration::from_millis(500));
    let calls = vec![("c1", "read", json!({})), ("c2", "read", json!({}))];
    let (_, results) = run_of(&runner, calls).await;
    assert!(texts(&results)[0].starts_with("tool timed out"), "{results:?}");
    assert_eq!(texts(&results)[1], "second");
    assert_eq!(fake.seen.of("tools/call").len(), 2);
}

#[tokio::test]
async fn the_connection_lives_as_long_as_somebody_may_call() {
    let list = |method: &str, _: &Value| if method == "tools/list" { page(&["read"]) } else { text("ok") };
    let (server, mut fake) = connected("files", list).await;
    let runner = ToolRunner::new().mcp(server.unwrap());
    let (_, results) = run_of(&runner, vec![("c1", "read", json!({}))]).await;
    assert_eq!(texts(&results), ["ok"]);
    assert!(*fake.is_open.borrow());
    drop(runner);
    guarded(fake.is_open.wait_for(|open| !open)).await.unwrap();

    // One that the caller keeps is the caller's.
    let (service, fake) = service(list).await;
    let server = agentloop::mcp::Server::of("files", &service).await.unwrap();
    let runner = ToolRunner::new().mcp_servers(Servers::new([server]).prefix(Prefix::Always));
    let (_, results) = run_of(&runner, vec![("c1", "files__read", json!({}))]).await;
    assert_eq!(texts(&results), ["ok"]);
    drop(runner);
    assert!(*fake.is_open.borrow() && !service.is_closed());
}
