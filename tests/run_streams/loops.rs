//! Loops that are driven as streams, dropped and driven again.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use agentloop::testing::Server;
use serde_json::Value;
use tokio::task::yield_now;

use crate::replies::Clients;
use crate::steps::{CALLS, MODES, TURNS, runner, server, whole_run};
use crate::support::{Log, others, result_of};
use crate::told::{Way, told};

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
                let seen = Arc::new(Mutex::new(Vec::new()));
                let sink = seen.clone();
                let runner = runner.clone().on_event(move |event| sink.lock().unwrap().push(told(event)));
                runner.drive(&client, &mut run_loop).await.unwrap();
                std::mem::take(&mut *seen.lock().unwrap())
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
