//! Runs that are cancelled in every state.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentloop::run_loop::RunErrorKind;
use agentloop::testing::{Gate, RecordedRequest, Reply, Script, Server};
use agentloop::{CancellationToken, RunEvent, Tool, ToolContext, ToolRunner};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::replies::{Break, Clients, call, events, run_all, text};
use crate::support::{Log, object, others, result_of, sent, soon};
use crate::told::{Way, told};

/// Where a run is when it is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The head of the response did not come.
    Head,
    /// The head came, and no event.
    FirstEvent,
    MidStream,
    /// The wait before a retry.
    Retry,
    /// The wait before a stream that broke is restarted.
    Restart,
    Inline,
    /// One of two tasks ended.
    Tasks,
}

impl State {
    const ALL: [Self; 7] = [
        Self::Head,
        Self::FirstEvent,
        Self::MidStream,
        Self::Retry,
        Self::Restart,
        Self::Inline,
        Self::Tasks,
    ];

    /// Whether a run can be in this state.
    fn exists(self, way: Way) -> bool {
        match self {
            Self::FirstEvent | Self::MidStream => way != Way::Plain,
            Self::Restart => Way::TOLD.contains(&way),
            _ => true,
        }
    }

    fn in_a_tool(self) -> bool {
        matches!(self, Self::Inline | Self::Tasks)
    }
}

fn turn(number: usize) -> Vec<Value> {
    let step = |id: String| call(&id, "step", &["{}"]);
    match number {
        1 | 2 => {
            let calls = [text(&["I ", "call"]), step(format!("t{number}1")), step(format!("t{number}2"))];
            events(&format!("msg_{number}"), "tool_use", &calls)
        }
        _ => events("msg_3", "end_turn", &[text(&["the ", "end"])]),
    }
}

/// The turn as a message, for a request that does not ask for a stream.
fn reply(request: &RecordedRequest, number: usize) -> Reply {
    if request.json().get("stream").is_some() {
        return Reply::events(turn(number));
    }
    match number {
        1 | 2 => {
            Reply::tool_use([1, 2].map(|call| (format!("t{number}{call}"), "step", serde_json::json!({}))))
        }
        _ => Reply::text("the end"),
    }
}

/// In every state, in the first turn and in the second, in every way to run.
#[tokio::test]
async fn a_cancelled_run_ends_at_once_and_its_loop_goes_on() {
    // A connection that nobody uses is closed, so that one which is open is in use.
    let clients = Clients::without_pool();
    let mut cases = Vec::new();
    for state in State::ALL {
        for number in [1, 2] {
            for way in Way::ALL.into_iter().filter(|way| state.exists(*way)) {
                cases.push(cancelled(clients.clone(), state, number, way));
            }
        }
    }
    let count = run_all(cases).await;
    println!("{count} cases");
    assert_eq!(count, (7 * 5 - 2 - 2) * 2);
}

async fn cancelled(clients: Clients, state: State, number: usize, way: Way) {
    let case = format!("{state:?}, turn {number}, {way:?}");
    let (token, log, there) = (CancellationToken::new(), Log::default(), Arc::new(Notify::new()));
    let tool = {
        let (log, there) = (log.clone(), there.clone());
        Tool::new("step", "", object()).handler_with(move |(): (), cx: ToolContext| {
            let (log, there) = (log.clone(), there.clone());
            async move {
                log.note(cx.call_id());
                if state.in_a_tool() && log.count("resumed") == 0 && cx.call_id() == format!("t{number}2") {
                    there.notify_one();
                    pending::<()>().await;
                }
                format!("done {}", cx.call_id())
            }
        })
    };
    let gate = Gate::new();
    let busy = Reply::error(529, "overloaded_error", "busy").header("retry-after", "50");
    let server = Server::start(Script::from_fn(move |request| {
        if request.number() != number || state.in_a_tool() {
            return reply(request, request.json()["messages"].as_array().unwrap().len().div_ceil(2));
        }
        match state {
            State::Head => reply(request, number).hold(&gate),
            State::FirstEvent => reply(request, number).hold_after_events(0, &gate),
            State::MidStream => reply(request, number).hold_after_events(4, &gate),
            State::Retry => busy.clone(),
            _ => Break::Fin.without_hint(&turn(number), 4, &gate).header("retry-after", "50"),
        }
    }))
    .await;
    let client = clients.builder(&server).max_retries(2).build().unwrap();
    let runner = ToolRunner::new().tool(tool).restart_streams(true);
    let runner = if state == State::Tasks { runner.max_concurrency(2) } else { runner };

    // The sign that the state is reached, where there is one to see.
    let see = {
        let there = there.clone();
        let seen = std::sync::atomic::AtomicUsize::new(0);
        move |event: &RunEvent| match event {
            RunEvent::Retry { .. } if state == State::Retry => there.notify_one(),
            RunEvent::Restart { .. } if state == State::Restart => there.notify_one(),
            RunEvent::Stream(_)
                if state == State::MidStream
                    && seen.fetch_add(1, Ordering::SeqCst) + 1 == (number - 1) * turn(1).len() + 4 =>
            {
                there.notify_one();
            }
            _ => {}
        }
    };
    let cancel = async {
        match state {
            State::Retry | State::MidStream if !Way::TOLD.contains(&way) => {
                server.wait_for_requests(number).await;
                others().await;
            }
            State::Head | State::FirstEvent => {
                server.wait_for_requests(number).await;
                others().await;
            }
            _ => there.notified().await,
        }
        token.cancel();
    };
    let cancelled = runner.clone().cancel(token.clone());
    let run = way.run_with(&cancelled, &client, way.request("go"), see);
    let ((_, outcome), ()) = soon(async { tokio::join!(run, cancel) }).await;
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.error_type()), (RunErrorKind::Cancelled, "cancelled"), "{case}");
    assert_eq!(server.request_count(), number, "{case}");
    if matches!(state, State::Head | State::FirstEvent | State::MidStream) {
        soon(server.wait_for_open_connections(0)).await;
    }
    let begun = log.all();
    let run_loop = error.into_run_loop();
    let whole = run_loop.clone().into_conversation();
    whole.check().unwrap();
    if state.in_a_tool() {
        assert_eq!(result_of(&whole, &format!("t{number}1")), (format!("done t{number}1"), false), "{case}");
        let (told, is_error) = result_of(&whole, &format!("t{number}2"));
        assert_eq!((told.as_str(), is_error), ("interrupted while it ran, its effects are unknown", true));
    } else {
        assert_eq!(whole.to_json(), sent(&server, number - 1), "{case}");
        assert_eq!(begun.len(), 2 * (number - 1), "{case}: {begun:?}");
    }

    // A token that is cancelled lets nothing start; the loop goes on with another.
    let mut run_loop = run_loop;
    let stop = cancelled.drive(&client, &mut run_loop).await.unwrap_err();
    assert_eq!((stop.kind(), server.request_count()), (RunErrorKind::Cancelled, number), "{case}");
    log.note("resumed");
    runner.drive(&client, &mut run_loop).await.unwrap();
    assert_eq!(run_loop.into_run().unwrap().text(), "the end", "{case}");
    for id in ["t11", "t12", "t21", "t22"] {
        assert_eq!(log.count(id), 1, "{case}: {:?}", log.all());
    }
}

/// Cancelled while an event waits to be taken, whichever it is: at most the next one still comes,
/// and what is there counts.
#[tokio::test]
async fn a_run_that_is_cancelled_between_two_events_tells_at_most_one_more() {
    let quick = |log: &Log| {
        let log = log.clone();
        Tool::new("step", "", object()).handler_with(move |(): (), cx: ToolContext| {
            log.note(cx.call_id());
            async move {
                yield_now().await;
                cx.call_id().to_owned()
            }
        })
    };
    let clients = Clients::new();
    let server = || {
        Server::start(Script::from_fn(|request| {
            reply(request, request.json()["messages"].as_array().unwrap().len().div_ceil(2))
        }))
    };
    let mut cases = 0;
    for concurrency in [1, 2] {
        let whole = {
            let (server, log) = (server().await, Log::default());
            let client = clients.builder(&server).build().unwrap();
            let runner = ToolRunner::new().tool(quick(&log)).max_concurrency(concurrency);
            Way::Stream.run(&runner, &client, "go").await.0
        };
        for count in 0..=whole.len() {
            let (server, log, token) = (server().await, Log::default(), CancellationToken::new());
            let client = clients.builder(&server).build().unwrap();
            let runner = ToolRunner::new().tool(quick(&log)).max_concurrency(concurrency);
            let cancelled = runner.clone().cancel(token.clone());
            let mut run_loop = cancelled.run_loop("go");
            let mut stream = cancelled.drive_stream(&client, &mut run_loop);
            for event in &whole[..count] {
                assert_eq!(told(&stream.next().await.unwrap().unwrap()), *event);
            }
            token.cancel();
            let mut more = Vec::new();
            let mut stopped = None;
            while let Some(event) = soon(stream.next()).await {
                match event {
                    Ok(event) => more.push(told(&event)),
                    Err(stop) => stopped = Some(stop.kind()),
                }
            }
            drop(stream);
            let case = format!("{count} of {} events, {concurrency} at once: {more:?}", whole.len());
            assert!(more.len() <= 1 && more[..] == whole[count..count + more.len()], "{case}");
            // Behind the last reply there is nothing to cancel.
            let is_over = count + 1 >= whole.len();
            assert_eq!(stopped, (!is_over).then_some(RunErrorKind::Cancelled), "{case}");
            let requests = server.request_count();
            if !is_over {
                assert!(log.all().len() <= 2 * requests, "{case}");
                run_loop.clone().into_request().user("and now?").check().unwrap();
                runner.drive(&client, &mut run_loop).await.unwrap();
            }
            assert_eq!(run_loop.into_run().unwrap().text(), "the end", "{case}");
            for id in ["t11", "t12", "t21", "t22"] {
                assert!(log.count(id) <= 1, "{case}: {:?}", log.all());
            }
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert!(cases > 2 * 30, "{cases}");
}

/// One call cancels the run when it ends, while another can't be stopped: what it was about to do
/// is done when the run returns, and both have their results.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_cancelled_run_returns_when_its_tasks_have_ended() {
    let clients = Clients::new();
    for way in Way::ALL {
        let (token, entered, ended) =
            (CancellationToken::new(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let receiver = Arc::new(std::sync::Mutex::new(receiver));
        let tools = {
            let (token, is_entered, ended) = (token.clone(), entered.clone(), ended.clone());
            [
                Tool::new("cancels", "", object()).handler(move |(): ()| {
                    let (token, is_entered) = (token.clone(), is_entered.clone());
                    async move {
                        // No waker: the thread that is stuck could keep the task that it woke.
                        while !is_entered.load(Ordering::SeqCst) {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        token.cancel();
                        "cancelled"
                    }
                }),
                Tool::new("stuck", "", object()).handler(move |(): ()| {
                    let (entered, ended, receiver) = (entered.clone(), ended.clone(), receiver.clone());
                    async move {
                        entered.store(true, Ordering::SeqCst);
                        let _released = receiver.lock().unwrap().recv();
                        ended.store(true, Ordering::SeqCst);
                        "late"
                    }
                }),
            ]
        };
        let calls = [("t1", "cancels", serde_json::json!({})), ("t2", "stuck", serde_json::json!({}))];
        let server = Server::start([Reply::tool_use(calls)]).await;
        let client = clients.builder(&server).build().unwrap();
        let runner = ToolRunner::new().tools(tools).max_concurrency(2).cancel(token.clone());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let (_, outcome) = way.run(&runner, &client, way.request("go")).await;
            (outcome.unwrap_err(), ended.load(Ordering::SeqCst))
        });
        token.cancelled().await;
        // A run that returns too early has the time for it.
        let early = timeout(Duration::from_millis(100), tasks.join_next()).await;
        assert!(early.is_err(), "{way:?}: it returned while a task was running");
        sender.send(()).unwrap();
        let (error, ended) = soon(tasks.join_next()).await.unwrap().unwrap();
        assert!(ended, "{way:?}");
        assert_eq!(error.kind(), RunErrorKind::Cancelled, "{way:?}");
        let conversation = error.into_conversation();
        assert_eq!(result_of(&conversation, "t1"), ("cancelled".to_owned(), false), "{way:?}");
        assert_eq!(result_of(&conversation, "t2"), ("late".to_owned(), false), "{way:?}");
    }
}
