//! Streams of events that are finished or dropped at any point.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use agentloop::testing::{Gate, RecordedRequest, Reply, Script, Server};
use agentloop::{Run, RunEvent, RunStream, Tool, ToolContext, ToolRunner};
use serde_json::Value;
use tokio::task::yield_now;

use crate::replies::{Clients, call, events, text};
use crate::support::{Log, object, result_of};
use crate::told::{Way, told};

const TURNS: usize = 3;
const CALLS: [&str; 3] = ["t1", "t2", "t3"];

fn turn(number: usize) -> Vec<Value> {
    let step = |id| call(id, "step", &["{}"]);
    match number {
        1 => events("msg_1", "tool_use", &[text(&["first"]), step("t1"), step("t2")]),
        2 => events("msg_2", "tool_use", &[step("t3")]),
        _ => events("msg_3", "end_turn", &[text(&["the ", "end"])]),
    }
}

/// Which turn a request is for, also when it is made again.
fn turn_of(request: &RecordedRequest) -> usize {
    request.json()["messages"].as_array().unwrap().len().div_ceil(2)
}

async fn server() -> Server {
    Server::start(Script::from_fn(|request| Reply::events(turn(turn_of(request))))).await
}

/// A tool whose body awaits, and notes when it is entered, at its end and when it is gone.
fn step(log: &Log) -> Tool {
    struct Gone(Log, String);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.note(format!("gone {}", self.1));
        }
    }
    let log = log.clone();
    Tool::new("step", "", object()).handler_with(move |(): (), cx: ToolContext| {
        let log = log.clone();
        async move {
            log.note(format!("start {}", cx.call_id()));
            let _gone = Gone(log.clone(), cx.call_id().to_owned());
            yield_now().await;
            yield_now().await;
            log.note(format!("end {}", cx.call_id()));
            format!("done {}", cx.call_id())
        }
    })
}

/// Ways to run the calls of a turn.
const MODES: [(&str, usize, bool); 3] = [("inline", 1, false), ("one task", 1, true), ("tasks", 2, false)];

fn runner((_, concurrency, timed): (&str, usize, bool), log: &Log) -> ToolRunner {
    let runner = ToolRunner::new().tool(step(log)).max_concurrency(concurrency);
    if timed { runner.tool_timeout(Duration::from_secs(3600)) } else { runner }
}

/// All that a whole run tells.
async fn whole_run(mode: (&str, usize, bool)) -> Vec<Value> {
    let server = server().await;
    let (told, run) = Way::Stream.run(&runner(mode, &Log::default()), &server.client(), "go").await;
    assert_eq!(run.unwrap().text(), "the end");
    told
}

/// What a run leaves, but for the times.
fn outcome(run: &Run) -> (String, String, u32, u64, Vec<String>) {
    let (json, tokens) = (run.conversation().to_json(), run.usage().output_tokens);
    (json, run.text(), run.iterations(), tokens, run.request_ids().to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_stream_goes_on_in_a_task_of_another_thread() {
    for mode in MODES {
        let server = server().await;
        let log = Log::default();
        let mut stream = runner(mode, &log).stream(&server.client(), "go");
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let mut events = vec![stream.next().await.unwrap()];
            while let Some(event) = stream.next().await {
                events.push(event);
            }
            (events, stream.finish().await)
        });
        let (events, run) = tasks.join_next().await.unwrap().unwrap();
        assert!(matches!(events.last(), Some(RunEvent::Finished(_))));
        assert_eq!(run.unwrap().text(), "the end");
        for id in CALLS {
            assert_eq!((log.count(&format!("start {id}")), log.count(&format!("end {id}"))), (1, 1));
        }
    }
}

#[tokio::test]
async fn finishing_after_any_event_gives_the_same_run() {
    let clients = Clients::new();
    let mut cases = 0;
    for mode in MODES {
        let length = whole_run(mode).await.len();
        let mut first = None;
        for count in 0..=length + 1 {
            let server = server().await;
            let log = Log::default();
            let client = clients.builder(&server).build().unwrap();
            let mut stream = runner(mode, &log).stream(&client, "go");
            for at in 0..count {
                assert_eq!(stream.next().await.is_some(), at < length, "{mode:?}, event {at} of {length}");
            }
            let run = stream.finish().await.unwrap();
            let bodies: Vec<_> = server.requests().iter().map(|request| request.body().to_vec()).collect();
            let seen = (outcome(&run), bodies);
            assert!(*first.get_or_insert_with(|| seen.clone()) == seen, "{mode:?}, {count}: {seen:?}");
            assert_eq!(log.all().len(), 3 * CALLS.len(), "{mode:?}, {count}: {:?}", log.all());
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert!(cases > 3 * 25, "{cases}");
}

/// Polls a stream once: an event, or none yet.
async fn poll_once(stream: &mut RunStream) -> Option<RunEvent> {
    let mut next = pin!(stream.next());
    poll_fn(|cx| match next.as_mut().poll(cx) {
        Poll::Ready(event) => Poll::Ready(event),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Lets everything else go on for a while.
async fn others() {
    for _ in 0..16 {
        yield_now().await;
    }
}

/// Dropped behind each event, and some polls later: the server holds the rest of the reply back, so
/// a connection that is closed was closed by the drop.
#[tokio::test]
async fn dropping_a_run_stream_after_any_event_closes_the_connection_and_stops_the_tools() {
    let clients = Clients::new();
    let (mut cases, mut closed, mut stopped) = (0, 0, 0);
    for mode in MODES {
        let whole = whole_run(mode).await;
        for count in 0..=whole.len() {
            // Where the run is then: the turn, and how many events of its reply came.
            let mut at = (1, 0);
            for event in &whole[..count] {
                match event.get("type") {
                    Some(kind) if kind == "message_stop" => at = (at.0 + 1, 0),
                    Some(_) => at.1 += 1,
                    None => {}
                }
            }
            for polls in 0..4 {
                let (held, gate) = (at, Gate::new());
                let server = Server::start(Script::from_fn(move |request| {
                    let reply = Reply::events(turn(turn_of(request)));
                    if turn_of(request) == held.0 { reply.hold_after_events(held.1, &gate) } else { reply }
                }))
                .await;
                let client = clients.builder(&server).build().unwrap();
                let log = Log::default();
                let mut stream = runner(mode, &log).stream(&client, "go");
                for event in &whole[..count] {
                    assert_eq!(told(&stream.next().await.unwrap()), *event, "{mode:?}, {count}");
                }
                let mut early = false;
                for _ in 0..polls {
                    yield_now().await;
                    early = early || poll_once(&mut stream).await.is_some();
                }
                if early {
                    // That is the case of one event more.
                    continue;
                }
                // In a reply there is a request, whose head is all that need have come.
                let in_reply = at.1 > 0;
                if in_reply {
                    assert_eq!(server.connections_open(), 1);
                }
                drop(stream);
                if in_reply {
                    tokio::time::timeout(Duration::from_secs(30), server.wait_for_open_connections(0))
                        .await
                        .unwrap_or_else(|_| panic!("{mode:?}, {count} events, {polls} polls: still open"));
                    closed += 1;
                }
                others().await;
                let (notes, requests) = (log.all(), server.request_count());
                for id in CALLS {
                    let (entered, ended) =
                        (log.count(&format!("start {id}")), log.count(&format!("end {id}")));
                    assert_eq!(log.count(&format!("gone {id}")), entered, "{mode:?}, {count}, {polls}");
                    stopped += entered - ended;
                }
                others().await;
                assert_eq!(
                    (log.all(), server.request_count()),
                    (notes, requests),
                    "{mode:?}, {count}, {polls}"
                );
                cases += 1;
            }
        }
    }
    println!("{cases} cases, {closed} of them in a reply, {stopped} calls stopped");
    assert!(cases > 150 && closed > 100 && stopped > 5, "{cases}, {closed}, {stopped}");
}

/// A loop that is driven as a stream, dropped at any point, and driven to its end.
#[tokio::test]
async fn a_loop_goes_on_after_its_stream_was_dropped_and_no_tool_runs_twice() {
    let clients = Clients::new();
    let (mut cases, mut interrupted) = (0, [0; MODES.len()]);
    for (which, mode) in MODES.into_iter().enumerate() {
        let whole = whole_run(mode).await;
        for count in 0..=whole.len() {
            for polls in 0..5 {
                for again in [Way::OnEvent, Way::DriveStream] {
                    let dropped = Dropped { mode, count, polls, again };
                    if let Some(calls) = dropped.check(&clients, &whole).await {
                        interrupted[which] += calls;
                        cases += 1;
                    }
                }
            }
        }
    }
    println!("{cases} cases, {interrupted:?} calls interrupted");
    assert!(cases > 300 && interrupted.iter().all(|calls| *calls > 2), "{cases}, {interrupted:?}");
}

#[derive(Debug)]
struct Dropped {
    mode: (&'static str, usize, bool),
    count: usize,
    polls: usize,
    /// How the loop is driven to its end: `drive` with a callback, or as a stream again.
    again: Way,
}

fn is_of_tool(event: &Value) -> bool {
    event.get("ToolStarted").is_some() || event.get("ToolFinished").is_some()
}

impl Dropped {
    /// Gives the number of calls that were interrupted; `None` if another case is the same.
    async fn check(&self, clients: &Clients, whole: &[Value]) -> Option<usize> {
        let server = server().await;
        let client = clients.builder(&server).build().unwrap();
        let log = Log::default();
        let runner = runner(self.mode, &log);
        let mut run_loop = runner.run_loop("go");
        let mut first = Vec::new();
        {
            let mut stream = runner.drive_stream(&client, &mut run_loop);
            for event in &whole[..self.count] {
                first.push(told(&stream.next().await.unwrap().unwrap()));
                assert_eq!(first.last(), Some(event), "{self:?}");
            }
            for _ in 0..self.polls {
                let mut next = pin!(stream.next());
                let early = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_ready())).await;
                if early {
                    return None;
                }
                yield_now().await;
            }
        }
        others().await;
        let entered_before: Vec<_> = CALLS.map(|id| log.count(&format!("start {id}"))).to_vec();
        run_loop.clone().into_request().user("and now?").check().unwrap();

        let second = match self.again {
            Way::OnEvent => {
                let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
                let sink = seen.clone();
                let runner = runner.clone().on_event(move |event| sink.lock().unwrap().push(told(event)));
                runner.drive(&client, &mut run_loop).await.unwrap();
                let second = seen.lock().unwrap().clone();
                second
            }
            _ => {
                let mut second = Vec::new();
                let mut stream = runner.drive_stream(&client, &mut run_loop);
                while let Some(event) = stream.next().await {
                    second.push(told(&event.unwrap()));
                }
                second
            }
        };
        let run = run_loop.into_run().unwrap();
        assert_eq!((run.text().as_str(), run.iterations() as usize), ("the end", TURNS), "{self:?}");
        run.conversation().check().unwrap();

        // A turn that was cut off is told from its start, and everything else goes on from there.
        let turns: Vec<_> = whole.iter().filter(|event| !is_of_tool(event)).collect();
        let so_far = first.iter().filter(|event| !is_of_tool(event)).count();
        let ends = turns[..so_far].iter().rposition(|event| event.get("TurnDone").is_some());
        let from = match so_far == turns.len() {
            // It was over, and says so once more.
            true => so_far - 1,
            false => ends.map_or(0, |end| end + 1),
        };
        let then: Vec<_> = second.iter().filter(|event| !is_of_tool(event)).collect();
        assert_eq!(then, turns[from..], "{self:?}");
        assert_eq!(server.request_count(), TURNS + usize::from(server_saw_it_twice(&server)), "{self:?}");

        let mut interrupted = 0;
        for (id, entered_before) in CALLS.iter().zip(entered_before) {
            let count = |list: &[Value], name: &str| {
                list.iter().filter(|event| event.get(name).is_some_and(|told| told == id)).count()
            };
            let (start, end) = (log.count(&format!("start {id}")), log.count(&format!("end {id}")));
            // A task may be dropped before its body is entered, and counts as started all the same.
            assert!(start <= 1, "{self:?}, {id}: {:?}", log.all());
            let (text, is_error) = result_of(run.conversation(), id);
            let finishes = count(&first, "ToolFinished") + count(&second, "ToolFinished");
            let starts = count(&first, "ToolStarted") + count(&second, "ToolStarted");
            if is_error {
                assert_eq!(text, "interrupted while it ran, its effects are unknown");
                assert_eq!((starts, finishes), (1, 0), "{self:?}, {id}");
                interrupted += 1;
            } else {
                assert_eq!((text, start, end, finishes), (format!("done {id}"), 1, 1, 1), "{self:?}, {id}");
                // Told last of all, it was dropped before its body was entered.
                let twice =
                    first.last().is_some_and(|event| event.get("ToolStarted").is_some_and(|told| told == id))
                        && entered_before == 0;
                assert_eq!(starts, if twice { 2 } else { 1 }, "{self:?}, {id}");
            }
            // Inline nothing can end without being told.
            if self.mode.0 == "inline" {
                let was_running = entered_before == 1 && count(&first, "ToolFinished") == 0;
                assert_eq!(is_error, was_running, "{self:?}, {id}");
            }
        }
        Some(interrupted)
    }
}

/// A request that was in flight when the stream was dropped is made again, with the same bytes.
fn server_saw_it_twice(server: &Server) -> bool {
    let requests = server.requests();
    requests.windows(2).any(|pair| pair[0].body() == pair[1].body())
}
