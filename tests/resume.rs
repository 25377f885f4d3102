//! What every error of a run hands back, and how a run goes on from it.

mod support;

use std::time::Duration;

use agentloop::Client;
use agentloop::MessageRequest;
use agentloop::client::Auth;
use agentloop::run_loop::{RunErrorKind, RunLoop};
use agentloop::testing::{Gate, Reply, Script, Server};
use agentloop::{ErrorKind, RunError, Tool, ToolRunner};
use serde_json::json;
use support::faults::{Fault, client, faults, good};
use support::{Log, add, object, result_of, sent};

/// Every kind of error at every request of the run: the conversation is exactly what the failed
/// request sent, and giving it back sends that request again; no tool runs twice.
#[tokio::test]
async fn j10_every_error_hands_back_the_conversation_that_the_request_sent() {
    let mut cases = 0;
    let gate = Gate::new();
    let count = faults(&gate).len();
    for which in 0..count {
        for failing in 1..=4 {
            for again in ["into_request", "into_conversation", "into_run_loop"] {
                let Fault { name, reply, kind, client: client_kind } = faults(&gate).swap_remove(which);
                let case = format!("{name}, request {failing}, {again}");
                let script = Script::from_fn(move |request| match request.number() {
                    number if number < failing => good(number),
                    number if number == failing => reply.clone(),
                    number => good(number - 1),
                });
                let server = Server::start(script).await;
                let (client, log) = (client(&server), Log::default());
                let runner = ToolRunner::new().tool(add(&log)).max_iterations(4);
                let request = MessageRequest::new("m", 64).system("be brief").user("go").beta("b-1");
                let error = runner.run(&client, request).await.unwrap_err();

                assert_eq!(error.kind(), kind, "{case}: {error:?}");
                assert_eq!(
                    error.client_error().map(agentloop::Error::kind),
                    client_kind,
                    "{case}: {error:?}"
                );
                assert_eq!(server.request_count(), failing, "{case}");
                assert_eq!(error.conversation().to_json(), sent(&server, failing - 1), "{case}");
                assert_eq!(log.count("add"), failing - 1, "{case}");
                let counted = failing - 1 + usize::from(kind == RunErrorKind::Protocol);
                assert_eq!(error.iterations() as usize, counted, "{case}");
                error.conversation().check().unwrap();

                let run = match again {
                    "into_request" => runner.run(&client, error.into_request()).await,
                    "into_conversation" => runner.run(&client, error.into_conversation()).await,
                    _ => {
                        let mut run_loop = error.into_run_loop();
                        run_loop.set_max_iterations(5);
                        match runner.drive(&client, &mut run_loop).await {
                            Ok(()) => Ok(run_loop.into_run().unwrap()),
                            Err(stop) => Err(RunError::new(stop, run_loop)),
                        }
                    }
                };
                let run = run.unwrap_or_else(|error| panic!("{case}: {error:?}"));
                assert_eq!((run.text().as_str(), log.count("add")), ("done", 3), "{case}");
                assert_eq!(sent(&server, failing), sent(&server, failing - 1), "{case}");
                if again != "into_conversation" {
                    let (one, two) = (&server.requests()[failing - 1], &server.requests()[failing]);
                    assert_eq!(one.body(), two.body(), "{case}");
                    assert_eq!(two.header("anthropic-beta"), Some("b-1"), "{case}");
                }
                cases += 1;
            }
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, count * 12);
}

/// Nobody listens: the request of every iteration can fail before it reaches a server.
#[tokio::test]
async fn j10_a_connection_that_is_refused_hands_the_conversation_back() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let refused =
        Client::builder().base_url(&url).auth(Auth::None).no_proxy().max_retries(0).build().unwrap();
    for failing in 1..=4_u32 {
        let server = Server::start(Script::from_fn(|request| good(request.number()))).await;
        let log = Log::default();
        let runner = ToolRunner::new().tool(add(&log));
        let mut run_loop = RunLoop::clone(&runner.clone().max_iterations(failing).run_loop("go"));
        if failing > 1 {
            run_loop = runner.clone().max_iterations(failing - 1).run_loop("go");
            assert_eq!(
                runner.drive(&server.client(), &mut run_loop).await.unwrap_err().kind(),
                RunErrorKind::MaxIterations
            );
            run_loop.set_max_iterations(4);
        }
        let stop = runner.drive(&refused, &mut run_loop).await.unwrap_err();
        assert_eq!(stop.client_error().unwrap().kind(), ErrorKind::Connect, "{stop:?}");
        assert_eq!(run_loop.iterations(), failing - 1);
        run_loop.conversation().check().unwrap();
        runner.drive(&server.client(), &mut run_loop).await.map_or_else(
            |stop| assert!(failing == 1 && stop.kind() == RunErrorKind::MaxIterations, "{stop:?}"),
            |()| assert_eq!(log.count("add"), 3),
        );
    }
}

/// The client's own retries send the same bytes, and the runner adds none.
#[tokio::test]
async fn retries_are_the_clients_alone() {
    let busy = || Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1");
    let server = Server::start([good(1), busy(), busy(), busy()]).await;
    let client =
        Client::builder().base_url(server.url()).auth(Auth::None).no_proxy().max_retries(2).build().unwrap();
    let error = ToolRunner::new().tool(add(&Log::default())).run(&client, "go").await.unwrap_err();
    assert_eq!((server.request_count(), error.client_error().unwrap().attempts()), (4, 3));
    let requests = server.requests();
    assert!(requests[1..].iter().all(|request| request.body() == requests[1].body()));
}

#[tokio::test]
async fn a_runner_without_the_loops_handlers_stops_before_anything_runs() {
    let server = Server::start(Vec::<Reply>::new()).await;
    let log = Log::default();
    let mut run_loop = ToolRunner::new().tool(add(&log)).run_loop("go");
    for other in [
        ToolRunner::new(),
        ToolRunner::new().tool(Tool::new("other", "", object()).handler(|(): ()| async {})),
    ] {
        let stop = other.drive(&server.client(), &mut run_loop).await.unwrap_err();
        assert_eq!(stop.kind(), RunErrorKind::MissingTool);
        assert!(stop.to_string().contains("`add`"), "{stop}");
    }
    assert_eq!(server.request_count(), 0);
}

/// A request in flight is dropped: it did not count, and driving again sends it again.
#[tokio::test]
async fn a_request_that_was_dropped_is_sent_again() {
    let gate = Gate::new();
    let server = Server::start([Reply::text("never seen").hold(&gate), Reply::text("ok")]).await;
    let runner = ToolRunner::new();
    let client = server.client();
    let mut run_loop = runner.run_loop("go");
    tokio::select! {
        outcome = runner.drive(&client, &mut run_loop) => panic!("{outcome:?}"),
        () = server.wait_for_requests(1) => {}
    }
    assert_eq!((run_loop.iterations(), run_loop.conversation().len()), (0, 1));
    runner.drive(&client, &mut run_loop).await.unwrap();
    assert_eq!(server.requests()[0].body(), server.requests()[1].body());
    assert_eq!(run_loop.into_run().unwrap().iterations(), 1);
}

/// The drive is dropped at each of its polls, in every way of running tools, and driven again:
/// no body starts twice, each call has one result, and what was started says so.
#[tokio::test]
async fn no_tool_starts_twice_wherever_the_driver_is_dropped() {
    let calls = ["t1", "t2", "t3", "t4"];
    let mut cases = 0;
    let mut interrupted = 0;
    for (way, concurrency, limit) in [
        ("inline", 1, None),
        ("task", 1, Some(Duration::from_secs(60))),
        ("tasks", 4, None),
        ("two tasks", 2, None),
    ] {
        for polls in 1.. {
            let log = Log::default();
            let tool = |log: &Log| {
                let log = log.clone();
                Tool::new("step", "", object()).handler_with(move |(): (), cx: agentloop::ToolContext| {
                    let log = log.clone();
                    async move {
                        log.note(cx.call_id());
                        tokio::task::yield_now().await;
                        tokio::task::yield_now().await;
                        log.note(format!("end of {}", cx.call_id()));
                        "done"
                    }
                })
            };
            let runner = ToolRunner::new().tool(tool(&log)).max_concurrency(concurrency);
            let runner = match limit {
                Some(limit) => runner.tool_timeout(limit),
                None => runner,
            };
            let server =
                Server::start([Reply::tool_use(calls.map(|id| (id, "step", json!({})))), Reply::text("ok")])
                    .await;
            let client = server.client();
            let mut run_loop = runner.clone().max_iterations(1).run_loop("go");
            assert!(runner.drive(&client, &mut run_loop).await.is_err());
            run_loop.set_max_iterations(2);

            let whole = {
                let mut left = polls;
                let mut drive = std::pin::pin!(runner.drive(&client, &mut run_loop));
                std::future::poll_fn(|cx| {
                    left -= 1;
                    match drive.as_mut().poll(cx) {
                        std::task::Poll::Ready(outcome) => std::task::Poll::Ready(Some(outcome)),
                        std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
                        std::task::Poll::Pending => std::task::Poll::Pending,
                    }
                })
                .await
            };
            // Stopped tasks end before the log is read.
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            match &whole {
                Some(outcome) => assert!(outcome.is_ok(), "{outcome:?}"),
                None => {
                    let handed_back = run_loop.clone().into_conversation();
                    handed_back.check().unwrap();
                    runner.drive(&client, &mut run_loop).await.unwrap();
                }
            }
            for id in calls {
                assert!(log.count(id) <= 1, "{way}, dropped after {polls} polls: {:?}", log.all());
                let (text, is_error) = result_of(run_loop.conversation(), id);
                let (started, ended) = (log.count(id) == 1, log.count(&format!("end of {id}")) == 1);
                match is_error {
                    true => {
                        assert_eq!(text, "interrupted while it ran, its effects are unknown");
                        interrupted += 1;
                    }
                    false => assert!(text == "done" && started && ended, "{way}, {polls}: {:?}", log.all()),
                }
            }
            cases += 1;
            server.finish().unwrap_or_else(|error| panic!("{way}, {polls}: {error}"));
            if whole.is_some() {
                break;
            }
        }
    }
    println!("{cases} cases, {interrupted} calls interrupted");
    assert!(cases > 12 && interrupted > 4, "{cases} cases, {interrupted} calls interrupted");
}

/// The driver is dropped while a call runs, and the loop is driven again: a call of an idempotent
/// tool runs again, with the same id, any other is answered as interrupted.
#[tokio::test]
async fn what_ran_when_the_driver_was_dropped_runs_again_only_where_it_may() {
    for idempotent in [false, true] {
        let (log, started) = (Log::default(), std::sync::Arc::new(tokio::sync::Notify::new()));
        let tool = {
            let (log, started) = (log.clone(), started.clone());
            Tool::new("step", "", object()).handler_with(move |(): (), cx: agentloop::ToolContext| {
                let (log, started) = (log.clone(), started.clone());
                async move {
                    log.note(cx.call_id());
                    if log.all().len() == 1 {
                        started.notify_one();
                        std::future::pending::<()>().await;
                    }
                    "done"
                }
            })
        };
        let runner = ToolRunner::new().tool(tool.idempotent(idempotent));
        let server = Server::start([Reply::tool_use([("t1", "step", json!({}))]), Reply::text("ok")]).await;
        let client = server.client();
        let mut run_loop = runner.run_loop("go");
        tokio::select! {
            outcome = runner.drive(&client, &mut run_loop) => panic!("{outcome:?}"),
            () = started.notified() => {}
        }
        runner.drive(&client, &mut run_loop).await.unwrap();
        let (text, is_error) = result_of(run_loop.conversation(), "t1");
        match idempotent {
            true => assert_eq!((text.as_str(), is_error, log.count("t1")), ("done", false, 2)),
            false => assert_eq!((is_error, log.count("t1")), (true, 1), "{text}"),
        }
    }
}
