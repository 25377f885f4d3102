//! How calls run: in order or at once, timed, cancelled, dropped.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentloop::Conversation;
use agentloop::run_loop::RunErrorKind;
use agentloop::testing::{Gate, Reply, Server};
use agentloop::{Tool, ToolContext, ToolError, ToolRunner};
use serde_json::{Value, json};
use support::{Log, object, result_of};
use tokio::sync::{Barrier, Notify, Semaphore};
use tokio_util::sync::CancellationToken;

/// A limit that no test waits for.
const LONG: Duration = Duration::from_secs(3600);

async fn server(calls: &[(&str, &str)]) -> Server {
    let calls: Vec<_> = calls.iter().map(|(id, name)| (*id, *name, json!({}))).collect();
    Server::start([Reply::tool_use(calls), Reply::text("done")]).await
}

async fn conversation(runner: &ToolRunner, calls: &[(&str, &str)]) -> Conversation {
    let server = server(calls).await;
    let run = runner.run(&server.client(), "go").await.unwrap();
    server.finish().unwrap();
    run.into_conversation()
}

/// A tool that never returns.
fn hangs(name: &str) -> Tool {
    Tool::new(name, "", object()).handler(|(): ()| std::future::pending::<String>())
}

fn quick(name: &str) -> Tool {
    Tool::new(name, "", object()).handler(|(): ()| async { "quick" })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j12_calls_run_one_after_another_in_the_calling_task_by_default() {
    let (log, ids) = (Log::default(), Log::default());
    let tool = {
        let (log, ids) = (log.clone(), ids.clone());
        Tool::new("step", "", object()).handler_with(move |(): (), cx: ToolContext| {
            let (log, ids) = (log.clone(), ids.clone());
            async move {
                ids.note(format!("{:?}", tokio::task::try_id()));
                log.note(format!("start {}", cx.call_id()));
                tokio::task::yield_now().await;
                log.note(format!("end {}", cx.call_id()));
            }
        })
    };
    let calls = [("t1", "step"), ("t2", "step"), ("t3", "step")];
    let runner = ToolRunner::new().tool(tool);
    conversation(&runner, &calls).await;
    assert_eq!(log.all(), ["start t1", "end t1", "start t2", "end t2", "start t3", "end t3"]);
    // The test itself is in no task, and neither is a tool.
    assert_eq!(ids.count("None"), 3, "{:?}", ids.all());

    // A limit of time, or a higher concurrency, puts each call in a task of its own.
    for runner in [runner.clone().tool_timeout(LONG), runner.max_concurrency(2)] {
        let before = ids.all().len();
        conversation(&runner, &calls).await;
        let tasks: std::collections::HashSet<_> = ids.all().split_off(before).into_iter().collect();
        assert_eq!(tasks.len(), 3, "{tasks:?}");
        assert!(!tasks.contains("None"));
    }
}

/// A barrier of n opens only when n calls run at once, and a counter sees that never more do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j12_up_to_n_calls_run_at_once() {
    for limit in 1..=4 {
        let (barrier, running, most) =
            (Arc::new(Barrier::new(limit)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tool = {
            let (running, most) = (running.clone(), most.clone());
            Tool::new("step", "", object()).handler_with(move |(): (), cx: ToolContext| {
                let (barrier, running, most) = (barrier.clone(), running.clone(), most.clone());
                async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    barrier.wait().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    cx.call_id().to_owned()
                }
            })
        };
        let ids: Vec<_> = (0..limit * 3).map(|number| format!("t{number}")).collect();
        let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "step")).collect();
        let conversation = conversation(&ToolRunner::new().tool(tool).max_concurrency(limit), &calls).await;
        assert_eq!(most.load(Ordering::SeqCst), limit);
        let results = support::results(conversation.get(2).unwrap());
        assert!(results.iter().zip(&ids).all(|((id, text, _), expected)| id == expected && text == expected));
    }
}

#[tokio::test]
async fn j13_there_is_no_limit_of_time_by_default() {
    // The tool ends only when the test has seen it run and let other work pass.
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let tool = {
        let (started, go) = (started.clone(), go.clone());
        Tool::new("waits", "", object()).handler_with(move |(): (), cx: ToolContext| {
            let (started, go) = (started.clone(), go.clone());
            async move {
                assert!(cx.deadline().is_none());
                started.notify_one();
                go.notified().await;
                "at last"
            }
        })
    };
    let release = async {
        started.notified().await;
        go.notify_one();
    };
    let runner = ToolRunner::new().tool(tool);
    let (conversation, ()) = tokio::join!(conversation(&runner, &[("t1", "waits")]), release);
    assert_eq!(result_of(&conversation, "t1"), ("at last".to_owned(), false));
}

/// The hung call gives its place back: at concurrency 1 the next call runs.
#[tokio::test]
async fn j13_a_call_that_reaches_its_limit_is_stopped_and_the_next_runs() {
    let log = Log::default();
    struct OnDrop(Log);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.note("dropped");
        }
    }
    let stuck = {
        let log = log.clone();
        Tool::new("stuck", "", object()).handler_with(move |(): (), cx: ToolContext| {
            let guard = OnDrop(log.clone());
            async move {
                let _guard = guard;
                assert!(cx.deadline().is_some());
                std::future::pending::<()>().await;
            }
        })
    };
    for concurrency in [1, 2] {
        let runner = ToolRunner::new()
            .tools([stuck.clone(), quick("quick")])
            .max_concurrency(concurrency)
            .tool_timeout(Duration::from_millis(50));
        let conversation = conversation(&runner, &[("t1", "stuck"), ("t2", "stuck"), ("t3", "quick")]).await;
        for id in ["t1", "t2"] {
            let (text, is_error) = result_of(&conversation, id);
            assert!(is_error && text.starts_with("tool timed out after 50 ms"), "{text}");
            assert!(text.contains("unknown"), "{text}");
        }
        assert_eq!(result_of(&conversation, "t3"), ("quick".to_owned(), false));
    }
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(log.count("dropped"), 4);
}

#[tokio::test]
async fn j13_a_tools_own_limit_is_the_one_that_counts() {
    let runner = ToolRunner::new()
        .tools([hangs("own").timeout(Duration::from_millis(20)), quick("other")])
        .tool_timeout(LONG);
    let conversation = conversation(&runner, &[("t1", "own"), ("t2", "other")]).await;
    assert!(result_of(&conversation, "t1").0.starts_with("tool timed out after 20 ms"));
    assert_eq!(result_of(&conversation, "t2").0, "quick");
}

/// A queue is not work: with one place, calls that wait longer than their limit still run.
#[tokio::test(start_paused = true)]
async fn j13_the_limit_counts_from_the_start_of_the_call() {
    // No socket here: the clock is paused, so the loop is driven by hand.
    use agentloop::Message;
    use agentloop::run_loop::Step;
    let tool = Tool::new("slow", "", object()).handler(|(): ()| async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        "slow"
    });
    let runner = ToolRunner::new().tool(tool).tool_timeout(Duration::from_secs(5));
    let mut run_loop = runner.run_loop("go");
    let content: Vec<_> = (0..3)
        .map(|number| json!({"type": "tool_use", "id": format!("t{number}"), "name": "slow", "input": {}}))
        .collect();
    let reply = json!({"content": content, "stop_reason": "tool_use"}).to_string();
    let Step::Send(step) = run_loop.step() else { panic!() };
    step.complete(Message::from_json(reply).unwrap()).unwrap();
    let Step::Call(mut step) = run_loop.step() else { panic!() };
    runner.answer(&mut step).await.unwrap();
    step.finish();
    for (_, text, is_error) in support::results(run_loop.conversation().last().unwrap()) {
        assert_eq!((text.as_str(), is_error), ("slow", false));
    }
}

#[tokio::test]
async fn j13_a_blocking_tool_times_out_and_may_go_on() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = Arc::new(std::sync::Mutex::new(receiver));
    let told = Arc::new(Notify::new());
    let tool = {
        let told = told.clone();
        Tool::new("blocks", "", object()).blocking_with(move |(): (), cx: ToolContext| {
            let released = receiver.lock().unwrap().recv();
            assert!(released.is_ok() && cx.is_cancelled());
            told.notify_one();
        })
    };
    let runner = ToolRunner::new().tools([tool, quick("quick")]).tool_timeout(Duration::from_millis(50));
    let conversation = conversation(&runner, &[("t1", "blocks"), ("t2", "quick")]).await;
    let (text, is_error) = result_of(&conversation, "t1");
    assert!(
        is_error && text.starts_with("tool timed out after 50 ms") && text.contains("may still go on"),
        "{text}"
    );
    assert_eq!(result_of(&conversation, "t2").0, "quick");
    // It runs to its end, and sees that nobody waits.
    sender.send(()).unwrap();
    told.notified().await;
}

/// On a runtime with another thread the timer goes on while a tool never awaits.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn j13_a_tool_that_never_yields_still_times_out() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = Arc::new(std::sync::Mutex::new(receiver));
    let tool = Tool::new("spins", "", object()).handler(move |(): ()| {
        let receiver = receiver.clone();
        async move { assert!(receiver.lock().unwrap().recv().is_err()) }
    });
    let runner = ToolRunner::new().tool(tool).tool_timeout(Duration::from_millis(50));
    let conversation = conversation(&runner, &[("t1", "spins")]).await;
    assert!(result_of(&conversation, "t1").0.starts_with("tool timed out after 50 ms"));
    drop(sender);
}

/// What a tool's own limit says is the tool's error, not the runner's.
#[tokio::test]
async fn an_inner_timeout_is_an_ordinary_error() {
    let tool = Tool::new("inner", "", object()).handler(|(): ()| async {
        tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await?;
        Ok::<_, ToolError>("never")
    });
    let conversation =
        conversation(&ToolRunner::new().tool(tool).tool_timeout(LONG), &[("t1", "inner")]).await;
    let (text, is_error) = result_of(&conversation, "t1");
    assert!(is_error && text.contains("elapsed") && !text.contains("tool timed out"), "{text}");
}

/// Panics wherever user code runs: reading the input, making the future, polling it, dropping
/// it, converting the output. Inline and in tasks.
#[tokio::test]
async fn j08_a_panic_anywhere_in_a_tool_is_its_own_error_result() {
    struct BadInput;
    impl<'de> serde::Deserialize<'de> for BadInput {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("SENTINEL")
        }
    }
    struct BadOutput;
    impl agentloop::tool::IntoToolOutput for BadOutput {
        fn into_tool_output(self) -> Result<agentloop::ToolOutput, ToolError> {
            panic!("SENTINEL")
        }
    }
    struct BadDrop;
    impl Drop for BadDrop {
        fn drop(&mut self) {
            panic!("SENTINEL")
        }
    }
    struct BadPayload;
    impl Drop for BadPayload {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("SENTINEL")
            }
        }
    }
    fn boom() -> bool {
        panic!("SENTINEL")
    }
    let tools = || {
        [
            Tool::new("input", "", object()).handler(|_: BadInput| async {}),
            Tool::new("closure", "", object()).handler(|(): ()| {
                let boomed = boom();
                async move { format!("{boomed}") }
            }),
            Tool::new("poll", "", object()).handler(|(): ()| async { format!("{}", boom()) }),
            Tool::new("drop", "", object()).handler(|(): ()| {
                let bad = BadDrop;
                async move {
                    let _bad = &bad;
                    "value"
                }
            }),
            Tool::new("output", "", object()).handler(|(): ()| async { BadOutput }),
            Tool::new("payload", "", object()).handler(|(): ()| async {
                let payload: Box<dyn std::any::Any + Send> = Box::new(BadPayload);
                std::panic::resume_unwind(payload);
                #[allow(unreachable_code, reason = "gives the block its type")]
                ()
            }),
            quick("quick"),
        ]
    };
    let names = ["input", "closure", "poll", "drop", "output", "payload", "quick"];
    let ids: Vec<_> = names.iter().map(|name| format!("t_{name}")).collect();
    let calls: Vec<_> = ids.iter().map(String::as_str).zip(names).collect();
    for runner in
        [ToolRunner::new(), ToolRunner::new().max_concurrency(3), ToolRunner::new().tool_timeout(LONG)]
    {
        let conversation = conversation(&runner.tools(tools()), &calls).await;
        for (id, name) in &calls {
            let (text, is_error) = result_of(&conversation, id);
            match *name {
                "quick" => assert_eq!((text.as_str(), is_error), ("quick", false)),
                name => {
                    assert_eq!((text.as_str(), is_error), ("the tool failed unexpectedly", true), "{name}")
                }
            }
        }
        assert!(!conversation.to_json().contains("SENTINEL"));
    }
}

#[tokio::test]
async fn a_panic_while_a_timed_out_tool_is_dropped_leaves_the_timeout() {
    struct BadDrop;
    impl Drop for BadDrop {
        fn drop(&mut self) {
            panic!("while dropped")
        }
    }
    let tool = Tool::new("stuck", "", object()).handler(|(): ()| async {
        let _bad = BadDrop;
        std::future::pending::<()>().await;
    });
    let runner = ToolRunner::new().tools([tool, quick("quick")]).tool_timeout(Duration::from_millis(30));
    let conversation = conversation(&runner, &[("t1", "stuck"), ("t2", "quick")]).await;
    assert!(result_of(&conversation, "t1").0.starts_with("tool timed out after 30 ms"));
    assert_eq!(result_of(&conversation, "t2").0, "quick");
}

#[tokio::test]
async fn a_call_sees_its_context() {
    #[derive(Debug)]
    struct Session(&'static str);
    let tool = Tool::new("look", "", object()).handler_with(|(): (), cx: ToolContext| async move {
        let session = cx.state::<Session>()?;
        Ok(format!("{} {} {} {:?} {}", cx.call_id(), cx.tool_name(), cx.iteration(), cx.caller(), session.0))
    });
    let lacking = Tool::new("lacks", "", object())
        .handler_with(|(): (), cx: ToolContext| async move { Ok(format!("{:?}", cx.state::<Log>()?.all())) });
    let caller = r#"{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}"#;
    let content = format!(
        r#"[{{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{{}}}},{{"type":"tool_use","id":"t1","name":"look","input":{{}},"caller":{caller}}},{{"type":"tool_use","id":"t2","name":"lacks","input":{{}}}}]"#
    );
    let reply = format!(
        r#"{{"id":"m","type":"message","role":"assistant","model":"m","content":{content},"stop_reason":"tool_use","usage":{{}}}}"#
    );
    let server = Server::start([Reply::json_text(reply), Reply::text("done")]).await.lenient();
    let runner = ToolRunner::new().tools([tool, lacking]).state(Session("kim"));
    let run = runner.run(&server.client(), "go").await.unwrap();
    assert_eq!(result_of(run.conversation(), "t1").0, format!("t1 look 1 Some({caller:?}) kim"));
    let (text, is_error) = result_of(run.conversation(), "t2");
    assert!(is_error && text.contains("Log"), "{text}");
}

/// Cancelled in a request, in a wait before a retry, in an inline tool and in a task: it ends at
/// once, nothing starts any more, and the conversation can go on.
#[tokio::test]
async fn a_cancelled_run_ends_at_once_wherever_it_is() {
    let token = CancellationToken::new();
    let gate = Gate::new();
    let held = Server::start([Reply::text("never").hold(&gate)]).await;
    let runner = ToolRunner::new().cancel(token.clone());
    let client = held.client();
    let (outcome, ()) = tokio::join!(runner.run(&client, "go"), async {
        held.wait_for_requests(1).await;
        token.cancel();
    });
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.error_type()), (RunErrorKind::Cancelled, "cancelled"));
    assert_eq!(error.conversation().len(), 1);

    let token = CancellationToken::new();
    let busy =
        Server::start([Reply::error(529, "overloaded_error", "busy").header("retry-after", "50")]).await;
    let client = agentloop::Client::builder()
        .base_url(busy.url())
        .auth(agentloop::client::Auth::None)
        .no_proxy()
        .build()
        .unwrap();
    let runner = ToolRunner::new().cancel(token.clone());
    let (outcome, ()) = tokio::join!(runner.run(&client, "go"), async {
        busy.wait_for_requests(1).await;
        token.cancel();
    });
    assert_eq!(outcome.unwrap_err().kind(), RunErrorKind::Cancelled);

    for (concurrency, limit) in [(1, None), (1, Some(LONG)), (2, None)] {
        let (token, log, started) = (CancellationToken::new(), Log::default(), Arc::new(Notify::new()));
        let tool = {
            let (log, started) = (log.clone(), started.clone());
            Tool::new("hangs", "", object()).handler_with(move |(): (), cx: ToolContext| {
                let (log, started) = (log.clone(), started.clone());
                async move {
                    log.note(cx.call_id());
                    if cx.call_id() == "t2" {
                        started.notify_one();
                        std::future::pending::<()>().await;
                    }
                    "done"
                }
            })
        };
        let runner = ToolRunner::new().tool(tool).max_concurrency(concurrency).cancel(token.clone());
        let runner = match limit {
            Some(limit) => runner.tool_timeout(limit),
            None => runner,
        };
        let server = server(&[("t1", "hangs"), ("t2", "hangs"), ("t3", "hangs"), ("t4", "hangs")]).await;
        let client = server.client();
        let (outcome, ()) = tokio::join!(runner.run(&client, "go"), async {
            started.notified().await;
            token.cancel();
        });
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), RunErrorKind::Cancelled);
        let begun = log.all();
        assert!(begun.len() < 4 && begun.contains(&"t2".to_owned()), "{begun:?}");
        assert_eq!(error.conversation().len(), 2);
        let conversation = error.into_conversation();
        conversation.check().unwrap();
        assert_eq!(result_of(&conversation, "t1"), ("done".to_owned(), false));
        assert_eq!(result_of(&conversation, "t2").0, "interrupted while it ran, its effects are unknown");
        assert_eq!(result_of(&conversation, "t4").0, "not executed: this call was not started");
        // A run of a runner that is cancelled already does nothing.
        let error = runner.run(&server.client(), conversation).await.unwrap_err();
        assert_eq!((error.kind(), server.request_count()), (RunErrorKind::Cancelled, 1));
        assert_eq!(log.all(), begun);
    }
}

/// The user stops a run while a tool works, and goes on with other words.
#[tokio::test]
async fn a_cancelled_conversation_goes_on_with_the_next_message() {
    let (token, started) = (CancellationToken::new(), Arc::new(Notify::new()));
    let tool = {
        let started = started.clone();
        Tool::new("slow", "", object()).handler(move |(): ()| {
            let started = started.clone();
            async move {
                started.notify_one();
                std::future::pending::<()>().await;
            }
        })
    };
    let server = server(&[("t1", "slow")]).await;
    let (client, runner) = (server.client(), ToolRunner::new().tool(tool));
    let cancelled = runner.clone().cancel(token.clone());
    let (outcome, ()) = tokio::join!(cancelled.run(&client, "go"), async {
        started.notified().await;
        token.cancel();
    });
    let request = outcome.unwrap_err().into_request().user("go on");
    let run = runner.run(&client, request).await.unwrap();
    let (text, is_error) = result_of(run.conversation(), "t1");
    assert_eq!((text.as_str(), is_error), ("interrupted while it ran, its effects are unknown", true));
    assert_eq!(server.requests()[1].json()["messages"][3], json!({"role": "user", "content": "go on"}));
    server.finish().unwrap();
}

/// The second call fails before the others are done; they keep their results.
#[tokio::test]
async fn a_call_that_fails_at_once_costs_its_siblings_nothing() {
    let failed = Arc::new(Semaphore::new(0));
    let waits = {
        let failed = failed.clone();
        Tool::new("waits", "", object()).handler(move |(): ()| {
            let failed = failed.clone();
            async move {
                let _permit = failed.acquire().await?;
                Ok::<_, ToolError>("done")
            }
        })
    };
    let fails = Tool::new("fails", "", object()).handler(move |(): ()| {
        failed.add_permits(1);
        async { Err::<(), _>(ToolError::new("no such row")) }
    });
    let runner = ToolRunner::new().tools([waits, fails]).max_concurrency(3);
    let conversation = conversation(&runner, &[("t1", "waits"), ("t2", "fails"), ("t3", "waits")]).await;
    let results = support::results(conversation.get(2).unwrap());
    let results: Vec<_> = results.iter().map(|(id, text, error)| (&**id, &**text, *error)).collect();
    assert_eq!(results, [("t1", "done", false), ("t2", "no such row", true), ("t3", "done", false)]);
}

/// A tool counts its own polls; after the run is dropped the counter stands still.
#[tokio::test]
async fn a_dropped_run_polls_no_tool_again() {
    for (concurrency, limit) in [(1, None), (1, Some(LONG)), (3, None)] {
        let polls = Arc::new(AtomicUsize::new(0));
        let enough = Arc::new(Semaphore::new(0));
        let tool = {
            let (polls, enough) = (polls.clone(), enough.clone());
            Tool::new("spins", "", object()).handler(move |(): ()| {
                let (polls, enough) = (polls.clone(), enough.clone());
                async move {
                    loop {
                        polls.fetch_add(1, Ordering::SeqCst);
                        enough.add_permits(1);
                        tokio::task::yield_now().await;
                    }
                    #[allow(unreachable_code, reason = "gives the block its type")]
                    ()
                }
            })
        };
        let runner = ToolRunner::new().tool(tool).max_concurrency(concurrency);
        let runner = match limit {
            Some(limit) => runner.tool_timeout(limit),
            None => runner,
        };
        let server = server(&[("t1", "spins"), ("t2", "spins"), ("t3", "spins")]).await;
        let client = server.client();
        tokio::select! {
            outcome = runner.run(&client, "go") => panic!("{outcome:?}"),
            _ = enough.acquire_many(20) => {}
        }
        let at_the_drop = polls.load(Ordering::SeqCst);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert_eq!(polls.load(Ordering::SeqCst), at_the_drop);
        assert_eq!(server.request_count(), 1);
    }
}

/// A tool that runs an agent of its own on the same client.
#[tokio::test]
async fn nested_runs_on_one_client_do_not_wait_for_each_other() {
    for concurrency in [1, 4] {
        let inner = Server::start(vec![Reply::text("inner"); 4]).await;
        let client = inner.client();
        let nested = client.clone();
        let tool = Tool::new("ask", "", object()).handler(move |(): ()| {
            let client = nested.clone();
            async move { Ok(ToolRunner::new().run(&client, "sub").await?.text()) }
        });
        let outer = server(&[("t1", "ask"), ("t2", "ask"), ("t3", "ask"), ("t4", "ask")]).await;
        let run = ToolRunner::new()
            .tool(tool)
            .max_concurrency(concurrency)
            .run(&outer.client(), "go")
            .await
            .unwrap();
        for id in ["t1", "t2", "t3", "t4"] {
            assert_eq!(result_of(run.conversation(), id), ("inner".to_owned(), false));
        }
    }
}

/// Two calls of the same tool with the same input are two calls.
#[tokio::test]
async fn equal_calls_both_run() {
    let log = Log::default();
    let tool = {
        let log = log.clone();
        Tool::new("step", "", object()).handler(move |input: Value| {
            log.note(input.to_string());
            async { "ok" }
        })
    };
    let conversation = conversation(&ToolRunner::new().tool(tool), &[("t1", "step"), ("t2", "step")]).await;
    assert_eq!(log.count("{}"), 2);
    assert_eq!(support::results(conversation.get(2).unwrap()).len(), 2);
}

/// What panics while it is dropped.
struct BadDrop;

impl Drop for BadDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("while dropped")
        }
    }
}

/// The destructors of a tool may panic wherever it is dropped: the run goes on or ends as it would.
#[tokio::test]
async fn a_panic_in_a_destructor_costs_no_conversation() {
    for concurrency in [1, 2] {
        let (token, started) = (CancellationToken::new(), Arc::new(Notify::new()));
        let tool = {
            let started = started.clone();
            Tool::new("stuck", "", object()).handler(move |(): ()| {
                let started = started.clone();
                async move {
                    let _bad = BadDrop;
                    started.notify_one();
                    std::future::pending::<()>().await;
                }
            })
        };
        let runner = ToolRunner::new().tool(tool).max_concurrency(concurrency);
        let server = server(&[("t1", "stuck")]).await;
        let client = server.client();
        let cancellable = runner.clone().cancel(token.clone());
        let (outcome, ()) = tokio::join!(cancellable.run(&client, "go"), async {
            started.notified().await;
            token.cancel();
        });
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), RunErrorKind::Cancelled);
        let conversation = error.into_conversation();
        assert_eq!(result_of(&conversation, "t1").0, "interrupted while it ran, its effects are unknown");

        // The same where the run is dropped.
        let server = self::server(&[("t1", "stuck")]).await;
        let client = server.client();
        let mut run_loop = runner.run_loop("go");
        tokio::select! {
            outcome = runner.drive(&client, &mut run_loop) => panic!("{outcome:?}"),
            () = started.notified() => {}
        }
        assert_eq!(
            result_of(&run_loop.into_conversation(), "t1").0,
            "interrupted while it ran, its effects are unknown"
        );
    }
}

/// An error whose destructor panics, and a payload that does so behind a limit of time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_tool_leaves_behind_can_not_end_the_run() {
    #[derive(Debug)]
    struct BadError(#[allow(dead_code, reason = "dropped with the error")] BadDropDebug);
    #[derive(Debug)]
    struct BadDropDebug;
    impl Drop for BadDropDebug {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("while dropped")
            }
        }
    }
    impl std::fmt::Display for BadError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bad")
        }
    }
    impl std::error::Error for BadError {}

    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = Arc::new(std::sync::Mutex::new(receiver));
    let ended = Arc::new(Notify::new());
    let late = {
        let ended = ended.clone();
        Tool::new("late", "", object())
            .handler(move |(): ()| {
                let (receiver, ended) = (receiver.clone(), ended.clone());
                async move {
                    // Past its limit it panics, with a payload that panics when it is dropped.
                    assert!(receiver.lock().unwrap().recv().is_err());
                    ended.notify_one();
                    std::panic::resume_unwind(Box::new(BadDrop));
                    #[allow(unreachable_code, reason = "gives the block its type")]
                    ()
                }
            })
            .timeout(Duration::from_millis(30))
    };
    let fails = Tool::new("fails", "", object())
        .handler(|(): ()| async { Err::<(), _>(ToolError::from(BadError(BadDropDebug))) });
    let waits = {
        let sender = std::sync::Mutex::new(Some(sender));
        Tool::new("waits", "", object()).handler(move |(): ()| {
            let (sender, ended) = (sender.lock().unwrap().take(), ended.clone());
            async move {
                drop(sender);
                ended.notified().await;
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            }
        })
    };
    let runner = ToolRunner::new().tools([late, fails, waits]).tool_timeout(LONG);
    let conversation = conversation(&runner, &[("t1", "late"), ("t2", "fails"), ("t3", "waits")]).await;
    assert!(result_of(&conversation, "t1").0.starts_with("tool timed out after 30 ms"));
    let (text, is_error) = result_of(&conversation, "t2");
    assert!(is_error && (text == "bad" || text == "the tool failed unexpectedly"), "{text}");
    assert!(!result_of(&conversation, "t3").1);
}

#[tokio::test]
async fn a_runner_that_is_refused_drives_no_loop() {
    let server = Server::start(Vec::<Reply>::new()).await;
    let mut run_loop = ToolRunner::new().run_loop("go");
    for runner in [
        ToolRunner::new().max_concurrency(0),
        ToolRunner::new().tool_timeout(Duration::ZERO),
        ToolRunner::new().tool(quick("q").timeout(Duration::ZERO)),
    ] {
        let stop = runner.drive(&server.client(), &mut run_loop).await.unwrap_err();
        assert_eq!((stop.kind(), server.request_count()), (RunErrorKind::Request, 0));
    }
}

/// `answer` with a runner that lacks the tool runs nothing, and says so.
#[tokio::test]
async fn calls_without_a_handler_are_not_left_to_chance() {
    use agentloop::Message;
    use agentloop::run_loop::Step;
    let log = Log::default();
    let has_both = ToolRunner::new().tools([support::add(&log), quick("quick")]);
    let mut run_loop = has_both.run_loop("go");
    let content = json!([{"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 1}}, {"type": "tool_use", "id": "t2", "name": "quick", "input": {}}]);
    let Step::Send(step) = run_loop.step() else { panic!() };
    step.complete(
        Message::from_json(json!({"content": content, "stop_reason": "tool_use"}).to_string()).unwrap(),
    )
    .unwrap();
    let Step::Call(mut step) = run_loop.step() else { panic!() };
    let stop = ToolRunner::new().tool(support::add(&log)).answer(&mut step).await.unwrap_err();
    assert_eq!(stop.kind(), RunErrorKind::MissingTool);
    assert!(stop.to_string().contains("`quick`") && log.all().is_empty(), "{stop}");
    has_both.answer(&mut step).await.unwrap();
    step.finish();
    assert_eq!(log.count("add"), 1);
}

/// What a tool logs belongs to the caller's span, inline and in a task, also where the crate's own
/// spans are switched off.
#[tokio::test]
async fn tools_run_in_the_callers_span() {
    use std::cell::RefCell;
    use tracing::{Instrument as _, Metadata, span};
    use tracing_core::span::Current;

    thread_local!(static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });
    static CALLER: std::sync::OnceLock<&'static Metadata<'static>> = std::sync::OnceLock::new();

    struct Recorder(Log);

    impl tracing::Subscriber for Recorder {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            !metadata.target().starts_with("agentloop")
        }
        fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
            match attributes.metadata().name() {
                "caller" => {
                    let _ = CALLER.set(attributes.metadata());
                    span::Id::from_u64(1)
                }
                _ => span::Id::from_u64(2),
            }
        }
        fn current_span(&self) -> Current {
            match (STACK.with_borrow(|stack| stack.last().copied()), CALLER.get()) {
                (Some(1), Some(caller)) => Current::new(span::Id::from_u64(1), caller),
                _ => Current::none(),
            }
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            if event.metadata().target() == "the_tool" {
                self.0.note(STACK.with_borrow(|stack| format!("{:?}", stack.last())));
            }
        }
        fn enter(&self, id: &span::Id) {
            STACK.with_borrow_mut(|stack| stack.push(id.into_u64()));
        }
        fn exit(&self, _: &span::Id) {
            STACK.with_borrow_mut(|stack| assert!(stack.pop().is_some()));
        }
    }

    let seen = Log::default();
    let guard = tracing::subscriber::set_default(Recorder(seen.clone()));
    let tool = Tool::new("logs", "", object()).handler(|(): ()| async {
        tracing::info!(target: "the_tool", "inside");
    });
    for runner in [ToolRunner::new(), ToolRunner::new().max_concurrency(2)] {
        let calls = [("t1", "logs")];
        conversation(&runner.tool(tool.clone()), &calls).instrument(tracing::info_span!("caller")).await;
    }
    drop(guard);
    assert_eq!(seen.all(), ["Some(1)", "Some(1)"]);
}

/// A call that reached its limit is stopped then, and not when its turn ends: the next call sees
/// it go.
#[tokio::test]
async fn j13_a_call_is_stopped_at_its_limit() {
    struct OnDrop(Arc<Notify>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let gone = Arc::new(Notify::new());
    let stuck = {
        let gone = gone.clone();
        Tool::new("stuck", "", object()).handler(move |(): ()| {
            let guard = OnDrop(gone.clone());
            async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            }
        })
    };
    let next = Tool::new("next", "", object()).handler(move |(): ()| {
        let gone = gone.clone();
        async move {
            gone.notified().await;
            "it is gone"
        }
    });
    let tools = [stuck.timeout(Duration::from_millis(20)), next.timeout(Duration::from_secs(20))];
    let conversation =
        conversation(&ToolRunner::new().tools(tools), &[("t1", "stuck"), ("t2", "next")]).await;
    assert_eq!(result_of(&conversation, "t2"), ("it is gone".to_owned(), false));
}
