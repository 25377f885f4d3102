//! Servers that do what they should not: nothing hangs, grows or is told twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use agentloop::mcp::rmcp::ClientHandler;
use agentloop::mcp::rmcp::model::{ProgressNotificationParam, ProtocolVersion};
use agentloop::mcp::rmcp::service::{ClientLifecycleMode, NotificationContext, RoleClient};
use agentloop::mcp::{Connector, Server, Servers};
use agentloop::testing::{Reply, Server as Api};
use agentloop::{Run, RunError, ToolRunner};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::runtime::Handle;
use tokio::task::{JoinSet, yield_now};

use crate::fake::{Answer, connected, connected_by, list_changed, page, text, tool};
use crate::unasked::{Person, asking};
use crate::{guarded, run_of, texts, until};

/// A server that answers what it must, and reads no more then.
async fn deaf(room: usize) -> (Server, BufReader<DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(room);
    let mut theirs = BufReader::new(theirs);
    let hello = async {
        let mut lines = 0;
        while lines < 3 {
            let mut line = String::new();
            theirs.read_line(&mut line).await.unwrap();
            lines += 1;
            let message: Value = serde_json::from_str(&line).unwrap();
            let result = match message["method"].as_str().unwrap() {
                "initialize" => json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "deaf", "version": "1"},
                }),
                "tools/list" => json!({"tools": [tool("read")]}),
                _ => continue,
            };
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            theirs.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
        theirs
    };
    let (server, theirs) = guarded(async { tokio::join!(Connector::new("deaf").connect(ours), hello) }).await;
    (server.unwrap(), theirs)
}

/// Starts a run of one call in the background.
async fn calling(server: Server, input: Value, runs: &mut JoinSet<Result<Run, RunError>>) -> Api {
    let api = Api::start([Reply::tool_use([("c1", "read", input)]), Reply::text("done")]).await;
    let (client, runner) = (api.client(), ToolRunner::new().mcp(server));
    runs.spawn(async move { runner.run(&client, "go").await });
    guarded(api.wait_for_requests(1)).await;
    api
}

fn result(api: &Api) -> String {
    api.requests()[1].json()["messages"][2]["content"][0]["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_server_that_reads_nothing_is_shut_down_all_the_same() {
    let before = Handle::current().metrics().num_alive_tasks();
    let (server, mut theirs) = deaf(1024).await;
    let mut runs = JoinSet::new();
    let api = calling(server.clone(), json!({"text": "x".repeat(100_000)}), &mut runs).await;
    // The call is being written, and gets no further.
    guarded(theirs.fill_buf()).await.unwrap();
    guarded(server.clone().shutdown()).await;
    assert!(!server.is_connected());
    guarded(runs.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(result(&api), "the server `deaf` is not connected any more: whether the call ran is unknown");
    let (_, results) = run_of(&ToolRunner::new().mcp(server.clone()), vec![("c1", "read", json!({}))]).await;
    assert_eq!(texts(&results), ["the server `deaf` is not connected: the call did not run"]);
    drop((api, server));
    until(|| Handle::current().metrics().num_alive_tasks() <= before).await;
    drop(theirs);
}

/// Each request has a task until its answer is written.
#[tokio::test]
async fn requests_whose_answers_nobody_reads_do_not_pile_up() {
    type Flood = fn(u32) -> Vec<Value>;
    fn ping(id: u32) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
    }
    let floods: [(&str, Flood); 3] = [
        ("ids of their own", |id| vec![ping(id)]),
        ("one id", |_| vec![ping(7)]),
        ("taken back", |id| {
            let params = json!({"requestId": id});
            vec![ping(id), json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})]
        }),
    ];
    for (name, messages) in floods {
        let before = Handle::current().metrics().num_alive_tasks();
        let (server, theirs) = deaf(1024).await;
        let written = Arc::new(AtomicUsize::new(0));
        let mut flood = JoinSet::new();
        let (count, mut stream) = (Arc::clone(&written), theirs.into_inner());
        flood.spawn(async move {
            for id in 0..10_000 {
                for message in messages(id) {
                    stream.write_all(format!("{message}\n").as_bytes()).await.unwrap();
                }
                count.fetch_add(1, Relaxed);
            }
        });
        // It goes on until nobody reads any more. What is taken back in time needs no answer.
        let (mut most, mut last) = (0, usize::MAX);
        while last != written.load(Relaxed) {
            last = written.load(Relaxed);
            for _ in 0..5000 {
                yield_now().await;
                most = most.max(Handle::current().metrics().num_alive_tasks() - before);
            }
        }
        println!("{name}: {last} requests, {most} tasks at most");
        assert!(last >= 64 && most < 150, "{name}: {last} requests, {most} tasks");
        drop((server, flood));
        until(|| Handle::current().metrics().num_alive_tasks() <= before).await;
    }
}

#[tokio::test]
async fn requests_that_wait_for_a_person_are_bounded_and_keep_nothing_up() {
    let answer = |method: &str, _: &Value| if method == "tools/list" { page(&["read"]) } else { text("ok") };
    let connector = Connector::new("files").handler(Person::waiting());
    let (server, fake) = connected_by(connector, answer).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for id in 0..200 {
        fake.say(asking(json!(id), "Which day?")).await;
    }
    until(|| fake.seen.answers().len() == 200 - 64).await;
    assert!(
        fake.seen.answers().iter().all(|answer| answer["error"]["message"] == "there are too many requests")
    );
    let runner = ToolRunner::new().mcp(server.unwrap());
    let (_, results) = run_of(&runner, vec![("c1", "read", json!({}))]).await;
    assert_eq!(texts(&results), ["ok"]);

    for id in 0..200 {
        let params = json!({"requestId": id, "reason": "never mind"});
        fake.say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
    }
    // The handlers end, and there is room again.
    until(|| tasks() <= before).await;
    fake.say(asking(json!("one more"), "Which day?")).await;
    until(|| tasks() > before).await;
}

/// Never done with what it is told.
struct Slow(Arc<AtomicUsize>);

impl ClientHandler for Slow {
    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.fetch_add(1, Relaxed);
        std::future::pending().await
    }
}

#[tokio::test]
async fn notifications_for_a_slow_handler_do_not_pile_up() {
    let answer = |method: &str, _: &Value| if method == "tools/list" { page(&["read"]) } else { text("ok") };
    let told = Arc::new(AtomicUsize::new(0));
    let connector = Connector::new("files").handler(Slow(Arc::clone(&told)));
    let (server, fake) = connected_by(connector, answer).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for at in 0..1000 {
        let params = json!({"progressToken": "of nobody", "progress": at});
        fake.say(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})).await;
    }
    // The answer comes behind them.
    let (_, results) = run_of(&ToolRunner::new().mcp(server.unwrap()), vec![("c1", "read", json!({}))]).await;
    assert_eq!(texts(&results), ["ok"]);
    until(|| tasks() <= before + 64).await;
    assert_eq!(told.load(Relaxed), 64);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_changes_does_not_end_the_listening() {
    let discover = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let connector = Connector::new("files").lifecycle(discover);
    let list = |_: &str, _: &Value| page(&["read"]);
    let (server, fake) = connected_by(connector, list).await;
    let server = server.unwrap();
    guarded(fake.seen.until("subscriptions/listen", 1)).await;
    let listened = fake.seen.ids_of("subscriptions/listen");
    let mut change = list_changed();
    change["params"] = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": listened[0]}});
    // In one write, so that `rmcp` takes them in faster than they are read one by one, and gives up.
    fake.say(Value::Array(vec![change; 500])).await;
    until(|| server.has_changed()).await;
    let server = guarded(server.refresh()).await.unwrap();
    assert!(!server.has_changed());
    // What changed until it listens again, nobody has heard.
    guarded(fake.seen.until("subscriptions/listen", 2)).await;
    until(|| server.has_changed()).await;
}

#[tokio::test]
async fn a_list_of_many_bytes_has_an_end() {
    let large = |_: &str, params: &Value| {
        let next = params["cursor"].as_str().map_or(0, |cursor| cursor.parse::<u32>().unwrap()) + 1;
        let mut tool = tool(&format!("t{next}"));
        tool["description"] = "x".repeat(4 << 20).into();
        Answer::Result(json!({"tools": [tool], "nextCursor": next.to_string()}))
    };
    let (server, fake) = guarded(connected("files", large)).await;
    assert_eq!(Servers::new([server.unwrap()]).into_tools().0.len(), 4);
    assert_eq!(fake.seen.of("tools/list").len(), 4);
}

#[tokio::test]
async fn a_change_while_the_list_is_read_is_not_missed() {
    let list = |_: &str, _: &Value| Answer::Behind(vec![list_changed()], json!({"tools": [tool("read")]}));
    let (server, _fake) = connected("files", list).await;
    assert!(server.unwrap().has_changed());
}

/// A call that has its answer is not called off, and one that is called off was there before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_called_off_behind_themselves_and_only_if_nobody_waits() {
    let answer = |method: &str, params: &Value| match (method, params["name"].as_str()) {
        ("tools/list", _) => page(&["read", "wait"]),
        (_, Some("wait")) => Answer::Silence,
        _ => text("ok"),
    };
    let (server, fake) = connected("files", answer).await;
    let server = server.unwrap();
    let runner = ToolRunner::new().mcp(server.clone());
    let calls: Vec<_> = (0..20).map(|id| (format!("c{id}"), "read", json!({}))).collect();
    run_of(&runner, calls.iter().map(|(id, name, input)| (&**id, *name, input.clone())).collect()).await;
    guarded(server.refresh()).await.unwrap();
    assert_eq!(fake.seen.of("notifications/cancelled"), [] as [Value; 0]);

    let reply = r#"{"role":"assistant","stop_reason":"tool_use","content":[{"type":"tool_use","id":"c1","name":"wait","input":{}}]}"#;
    for turn in 0..300 {
        let mut run_loop = runner.run_loop("go");
        let agentloop::run_loop::Step::Send(step) = run_loop.step() else { panic!("it sends first") };
        step.complete(agentloop::Message::from_json(reply).unwrap()).unwrap();
        let agentloop::run_loop::Step::Call(mut step) = run_loop.step() else { panic!("it calls then") };
        let mut call = Box::pin(runner.answer(&mut step));
        for _ in 0..turn % 8 {
            tokio::select! {
                biased;
                _ = &mut call => panic!("nobody answers"),
                () = yield_now() => {}
            }
        }
        drop(call);
    }
    guarded(server.refresh()).await.unwrap();
    let waits = fake.seen.of("tools/call").len() - calls.len();
    assert!(waits > 0);
    guarded(fake.seen.until("notifications/cancelled", waits)).await;
    println!("{waits} called off");
    let mut known = std::collections::HashSet::new();
    for message in fake.seen.all() {
        match message["method"].as_str() {
            Some("tools/call") => drop(known.insert(message["id"].clone())),
            Some("notifications/cancelled") => {
                assert!(known.contains(&message["params"]["requestId"]), "{message}");
            }
            _ => {}
        }
    }
}
