//! Streams of events that are finished or dropped at any point.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use agentloop::testing::{Gate, Reply, Script, Server};
use agentloop::{Run, RunEvent, RunStream};
use tokio::task::yield_now;

use crate::replies::Clients;
use crate::steps::{CALLS, MODES, runner, server, turn, turn_of, whole_run};
use crate::support::{Log, others, soon};
use crate::told::told;

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
        let (events, run) = soon(tasks.join_next()).await.unwrap().unwrap();
        assert!(matches!(events.last(), Some(RunEvent::Finished { .. })));
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
            let run = soon(stream.finish()).await.unwrap();
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
                    soon(server.wait_for_open_connections(0)).await;
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
