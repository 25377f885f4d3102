//! Streams that break off behind every event, in every way, in every turn.

use agentloop::ToolRunner;
use agentloop::testing::{Gate, Reply, Script, Server};
use serde_json::{Value, json};

use crate::replies::{Break, Clients, call, events, run_all, text};
use crate::support::{Log, add, sent};
use crate::told::{Way, finished, started, turn_done};

/// The turns of a run: one that asks for calls, and the answer.
const TURNS: usize = 2;

fn good(turn: usize) -> Vec<Value> {
    let id = format!("msg_{turn}");
    if turn == TURNS {
        return events(&id, "end_turn", &[text(&["All ", "done."])]);
    }
    let calls = [1, 2].map(|at| {
        call(&format!("t{turn}{at}"), "add", &[format!("{{\"a\":{turn},"), format!("\"b\":{at}}}")])
    });
    events(&id, "tool_use", &[text(&["I add."]), calls[0].clone(), calls[1].clone()])
}

/// What the broken attempt sends: nothing of it is in the attempt that follows. It begins with a
/// ping, which is no reply yet.
fn bad() -> Vec<Value> {
    let blocks = [text(&["LOST"]), call("lost_1", "add", &["{\"a\":", "6,\"b\":7}"])];
    let mut events = events("lost", "tool_use", &blocks);
    events[0]["message"]["usage"]["input_tokens"] = 5000.into();
    events.insert(0, json!({"type": "ping"}));
    events
}

/// A break of the attempts from `turn` on, behind so many events.
#[derive(Clone, Copy, Debug)]
struct Case {
    how: Break,
    turn: usize,
    events: usize,
    /// How many attempts break.
    breaks: usize,
    restarts: bool,
    way: Way,
}

impl Case {
    async fn server(self) -> Server {
        let gate = Gate::new();
        Server::start(Script::from_fn(move |request| {
            let number = request.number();
            if number >= self.turn && number < self.turn + self.breaks {
                return self.how.after(&bad(), self.events, &gate);
            }
            let before = if number < self.turn { 0 } else { self.breaks };
            Reply::events(good(number - before))
        }))
        .await
    }

    /// A ping is no reply yet, and is not told without one.
    fn has_begun(self) -> bool {
        self.events >= 2
    }

    /// One retry, where there may be any.
    fn attempts(self) -> usize {
        let retried = self.way == Way::Collected || self.restarts || !self.has_begun();
        if retried { 2 } else { 1 }
    }

    /// What is told of the turns before.
    fn told_before(self) -> Vec<Value> {
        (1..self.turn).flat_map(told_of).collect()
    }

    /// What is told from the turn of the breaks on, when so many are still to come, and whether the
    /// run gets to its end.
    fn told_from_there(self, breaks: usize) -> (Vec<Value>, bool) {
        let mut told = Vec::new();
        for attempt in 1..=self.attempts().min(breaks) {
            if self.has_begun() {
                // The start is told first, also where a ping came before it.
                told.extend([1, 0].into_iter().chain(2..self.events).map(|at| bad()[at].clone()));
            }
            if attempt == self.attempts() {
                return (told, false);
            }
            let name = if self.has_begun() { "Restart" } else { "Retry" };
            told.push(json!({name: attempt, "error": self.error()}));
        }
        told.extend((self.turn..=TURNS).flat_map(told_of));
        told.push(json!({"Finished": "end_turn"}));
        (told, true)
    }

    fn error(self) -> &'static str {
        match self.how {
            Break::Overloaded => "overloaded_error",
            Break::Stall => "Timeout",
            // A body of nothing.
            Break::End | Break::Close if self.events == 0 => "Decode",
            _ => "Transport",
        }
    }

    /// Runs it, and again from each error, until it gets to its end.
    async fn check(self, clients: Clients) {
        let server = self.server().await;
        let client = clients.for_break(&server, self.how, 1);
        let log = Log::default();
        let runner =
            ToolRunner::new().tool(add(&log)).max_iterations(TURNS as u32).restart_streams(self.restarts);
        let mut request = self.way.request("go");
        let mut told_before = self.told_before();
        let mut left = self.breaks;
        let run = loop {
            let (told, outcome) = self.way.run(&runner, &client, request).await;
            let (mut expected, is_ok) = self.told_from_there(left);
            expected.splice(0..0, std::mem::take(&mut told_before));
            if self.way == Way::Collected {
                expected.clear();
            }
            assert_eq!(told, expected, "{self:?}");
            assert_eq!(outcome.is_ok(), is_ok, "{self:?}: {outcome:?}");
            let error = match outcome {
                Ok(run) => break run,
                Err(error) => error,
            };
            let before = self.breaks - left;
            left -= self.attempts();
            let cause = error.client_error().unwrap();
            let kind = cause.api_type().map_or_else(|| format!("{:?}", cause.kind()), Into::into);
            assert_eq!(
                (cause.attempts() as usize, kind.as_str()),
                (self.attempts(), self.error()),
                "{self:?}"
            );
            assert_eq!(cause.partial_message().is_some(), self.has_begun(), "{self:?}");
            assert!(error.is_retryable(), "{self:?}");
            // Nothing was sent behind the attempts that broke, and no tool ran for them.
            let sent_so_far = self.turn - 1 + before + self.attempts();
            assert_eq!(server.request_count(), sent_so_far, "{self:?}");
            assert_eq!(log.count("add"), 2 * (self.turn - 1), "{self:?}");
            assert_eq!(error.conversation().to_json(), sent(&server, sent_so_far - 1), "{self:?}");
            request = error.into_request();
        };
        assert_eq!(server.request_count(), TURNS + self.breaks, "{self:?}");
        let requests = server.requests();
        for again in self.turn..self.turn + self.breaks {
            assert_eq!(requests[again].body(), requests[self.turn - 1].body(), "{self:?}");
        }
        assert_eq!((run.text().as_str(), log.count("add")), ("All done.", 2 * (TURNS - 1)), "{self:?}");
        let conversation = run.conversation().to_json();
        assert!(!conversation.contains("LOST") && !conversation.contains("lost"), "{conversation}");
        // A run that began again counts from there.
        let first = if self.breaks >= self.attempts() { self.turn } else { 1 };
        let turns = (TURNS + 1 - first) as u64;
        let counted = (run.usage().input_tokens, run.usage().output_tokens, u64::from(run.iterations()));
        assert_eq!(counted, (10 * turns, 7 * turns, turns), "{self:?}");
        let numbers = (first..=TURNS).map(|turn| if turn < self.turn { turn } else { turn + self.breaks });
        assert_eq!(
            run.request_ids(),
            numbers.map(|number| format!("req_{number}")).collect::<Vec<_>>(),
            "{self:?}"
        );
    }
}

fn told_of(turn: usize) -> Vec<Value> {
    let mut told = good(turn);
    told.push(turn_done(&good(turn)));
    if turn < TURNS {
        for at in [1, 2] {
            let id = format!("t{turn}{at}");
            told.push(started(&id, "add", &format!("{{\"a\":{turn},\"b\":{at}}}")));
            told.push(finished(&id, &(turn + at).to_string(), false));
        }
    }
    told
}

/// Every place, turn and way to break: how many attempts do, and whether streams are restarted.
fn product(ways: &[Way], settings: &[(usize, bool)]) -> Vec<Case> {
    let mut cases = Vec::new();
    for turn in 1..=TURNS {
        for events in 0..bad().len() {
            for how in Break::ALL {
                // There the reply is whole, unless the API says that it is not.
                if events == bad().len() - 1 && how != Break::Overloaded {
                    continue;
                }
                for way in ways {
                    for (breaks, restarts) in settings {
                        cases.push(Case {
                            how,
                            turn,
                            events,
                            breaks: *breaks,
                            restarts: *restarts,
                            way: *way,
                        });
                    }
                }
            }
        }
    }
    cases
}

/// How many of them there are for each way and setting.
fn size() -> usize {
    (bad().len() * Break::ALL.len() - (Break::ALL.len() - 1)) * TURNS
}

/// Nobody saw anything: the attempt is thrown away whole and made again, for as long as there are
/// retries. Bug kinds 76, 78, 79, 101, 106.
#[tokio::test]
async fn j10_a_stream_that_breaks_unseen_leaves_nothing_behind() {
    let clients = Clients::new();
    let cases = product(&[Way::Collected], &[(1, false), (1, true), (2, false)]);
    let count = run_all(cases.into_iter().map(|case| case.check(clients.clone()))).await;
    println!("{count} cases");
    assert_eq!(count, size() * 3);
}

/// What was told can't be taken back: from the first event on a break is an error with the
/// conversation that was sent, before it a retry that is told.
#[tokio::test]
async fn j10_a_stream_that_breaks_while_it_is_told_is_an_error_with_what_was_sent() {
    let clients = Clients::new();
    let cases = product(&Way::TOLD, &[(1, false)]);
    let count = run_all(cases.into_iter().map(|case| case.check(clients.clone()))).await;
    println!("{count} cases");
    assert_eq!(count, size() * 3);
}

#[tokio::test]
async fn restarts_tell_the_turn_anew_and_keep_nothing_of_the_attempt_that_broke() {
    let clients = Clients::new();
    let cases = product(&Way::TOLD, &[(1, true), (2, true)]);
    let count = run_all(cases.into_iter().map(|case| case.check(clients.clone()))).await;
    println!("{count} cases");
    assert_eq!(count, size() * 3 * 2);
}

/// The stop reason is there and each block is closed: that the end is not said changes nothing,
/// and the request is not made again.
#[tokio::test]
async fn a_stream_that_ends_behind_the_whole_reply_is_no_break() {
    let clients = Clients::new();
    let mut cases = Vec::new();
    for turn in 1..=TURNS {
        for how in Break::ALL.into_iter().filter(|how| *how != Break::Overloaded) {
            for way in Way::STREAMED {
                let clients = clients.clone();
                cases.push(async move {
                    let gate = Gate::new();
                    let script = Script::from_fn(move |request| match good(request.number()) {
                        events if request.number() == turn => how.after(&events, events.len() - 1, &gate),
                        events => Reply::events(events),
                    });
                    let server = Server::start(script).await;
                    let client = clients.for_break(&server, how, 1);
                    let log = Log::default();
                    let runner = ToolRunner::new().tool(add(&log));
                    let (mut told, run) = way.run(&runner, &client, way.request("go")).await;
                    let run = run.unwrap_or_else(|error| panic!("turn {turn}, {how:?}, {way:?}: {error:?}"));
                    assert_eq!((run.text().as_str(), log.count("add")), ("All done.", 2 * (TURNS - 1)));
                    assert_eq!((server.request_count(), run.iterations() as usize), (TURNS, TURNS));
                    if way != Way::Collected {
                        let mut expected: Vec<_> = (1..=TURNS).flat_map(told_of).collect();
                        let ends = expected.iter().enumerate();
                        let mut ends = ends.filter(|(_, event)| event["type"] == "message_stop");
                        let (end, _) = ends.nth(turn - 1).unwrap();
                        expected.remove(end);
                        assert_eq!(told.pop(), Some(json!({"Finished": "end_turn"})));
                        assert_eq!(told, expected);
                    }
                });
            }
        }
    }
    let count = run_all(cases).await;
    println!("{count} cases");
    assert_eq!(count, TURNS * 5 * 4);
}

/// The head itself does not come.
#[tokio::test]
async fn j10_a_head_that_breaks_is_retried_and_told() {
    let clients = Clients::new();
    let mut cases = 0;
    for way in Way::STREAMED {
        for (bytes, reset) in [(0, false), (0, true), (20, false), (20, true)] {
            for turn in 1..=TURNS {
                let server = Server::start(Script::from_fn(move |request| match request.number() {
                    number if number == turn => {
                        let reply = Reply::events(good(turn));
                        if reset { reply.reset_after(bytes) } else { reply.cut_after(bytes) }
                    }
                    number => Reply::events(good(number - usize::from(number > turn))),
                }))
                .await;
                let client = clients.builder(&server).max_retries(1).build().unwrap();
                let log = Log::default();
                let runner = ToolRunner::new().tool(add(&log));
                let (told, run) = way.run(&runner, &client, way.request("go")).await;
                assert_eq!((run.unwrap().text().as_str(), log.count("add")), ("All done.", 2 * (TURNS - 1)));
                let retries = told.iter().filter(|event| event.get("Retry").is_some()).count();
                assert_eq!(retries, usize::from(way != Way::Collected), "{told:?}");
                assert_eq!(server.request_count(), TURNS + 1);
                cases += 1;
            }
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, 4 * 4 * TURNS);
}
