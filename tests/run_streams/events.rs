//! What is told of a run, and when.

use std::sync::Arc;
use std::time::Duration;

use agentloop::messages::Role;
use agentloop::testing::{Reply, Server};
use agentloop::{RunEvent, Tool, ToolContext, ToolRunner};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::replies::{Clients, an_add, call, events, text};
use crate::support::{Log, add, object, results, sent, soon};
use crate::told::{Way, finished, started, turn_done};

/// How calls are run: the name, how many at once, and whether they have a limit of time.
const MODES: [(&str, usize, bool); 4] =
    [("inline", 1, false), ("timed", 1, true), ("two tasks", 2, false), ("tasks", 4, false)];

fn runner((_, concurrency, timed): (&str, usize, bool)) -> ToolRunner {
    let runner = ToolRunner::new().max_concurrency(concurrency);
    if timed { runner.tool_timeout(Duration::from_secs(3600)) } else { runner }
}

/// The three turns of a run, as events.
fn three_turns() -> [Vec<Value>; 3] {
    let mut second = events("msg_2", "tool_use", &[an_add("t4", 4, 4)]);
    second.insert(1, json!({"type": "ping"}));
    second.insert(0, json!({"type": "ping"}));
    [
        events(
            "msg_1",
            "tool_use",
            &[text(&["Let ", "me ", "see"]), an_add("t1", 1, 2), an_add("t2", 3, 4), an_add("t3", 5, 6)],
        ),
        second,
        events("msg_3", "end_turn", &[text(&["It is ", "8", "."])]),
    ]
}

#[tokio::test]
async fn j14_all_events_of_all_turns_are_told_in_order_whichever_way_they_are_asked_for() {
    let turns = three_turns();
    let mut expected = turns[0].clone();
    expected.push(turn_done(&turns[0]));
    for (id, input, sum) in [
        ("t1", r#"{"b": 2, "a":1}"#, "3"),
        ("t2", r#"{"b": 4, "a":3}"#, "7"),
        ("t3", r#"{"b": 6, "a":5}"#, "11"),
    ] {
        expected.extend([started(id, "add", input), finished(id, sum, false)]);
    }
    // The start is told first, also where a ping came before it.
    expected.extend([1, 0].into_iter().chain(2..turns[1].len()).map(|at| turns[1][at].clone()));
    expected.push(turn_done(&turns[1][1..]));
    expected.extend([started("t4", "add", r#"{"b": 4, "a":4}"#), finished("t4", "8", false)]);
    expected.extend(turns[2].clone());
    expected.extend([turn_done(&turns[2]), json!({"Finished": "end_turn"})]);

    let clients = Clients::new();
    for way in Way::TOLD {
        let log = Log::default();
        let server = Server::start(three_turns().map(Reply::events).to_vec()).await;
        let client = clients.builder(&server).build().unwrap();
        let (told, run) = way.run(&ToolRunner::new().tool(add(&log)), &client, "go").await;
        assert_eq!(told, expected, "{way:?}");
        let run = run.unwrap();
        assert_eq!((run.text().as_str(), run.iterations(), log.count("add")), ("It is 8.", 3, 4));
        assert!(server.requests().iter().all(|request| request.json()["stream"] == true), "{way:?}");
        // Each turn begins with its own start.
        let is_api = |event: &Value| event["type"].is_string();
        let mut firsts = vec![told[0].clone()];
        firsts.extend(
            told.windows(2).filter(|pair| !is_api(&pair[0]) && is_api(&pair[1])).map(|pair| pair[1].clone()),
        );
        let ids: Vec<_> = firsts.iter().map(|event| event["message"]["id"].clone()).collect();
        assert_eq!(ids, ["msg_1", "msg_2", "msg_3"]);
        server.finish().unwrap();
    }
}

/// Each task ends only when the one behind it was told to have ended.
#[tokio::test]
async fn j14_tasks_are_told_as_they_end_while_results_go_out_in_the_order_of_the_calls() {
    let calls = ["t1", "t2", "t3", "t4"];
    let turn = events("msg_1", "tool_use", &calls.map(|id| call(id, "step", &["{}"])));
    let mut expected = turn.clone();
    expected.push(turn_done(&turn));
    expected.extend(calls.map(|id| started(id, "step", "{}")));
    expected.extend(calls.iter().rev().map(|id| finished(id, &format!("end of {id}"), false)));
    let clients = Clients::new();
    for way in Way::TOLD {
        let may_end = Arc::new(calls.map(|_| Notify::new()));
        may_end[3].notify_one();
        let tool = {
            let may_end = may_end.clone();
            Tool::new("step", "", object()).handler_with(move |(): (), cx: ToolContext| {
                let may_end = may_end.clone();
                async move {
                    let at = calls.iter().position(|id| *id == cx.call_id()).unwrap();
                    may_end[at].notified().await;
                    format!("end of {}", cx.call_id())
                }
            })
        };
        let see = move |event: &RunEvent| {
            let RunEvent::ToolFinished { call, .. } = event else { return };
            let at = calls.iter().position(|id| *id == call.id()).unwrap();
            if let Some(next) = at.checked_sub(1) {
                may_end[next].notify_one();
            }
        };
        let server = Server::start([Reply::events(turn.clone()), Reply::text("done")]).await;
        let client = clients.builder(&server).build().unwrap();
        let runner = ToolRunner::new().tool(tool).max_concurrency(4);
        let (told, run) = soon(way.run_with(&runner, &client, "go", see)).await;
        assert_eq!(told[..expected.len()], expected, "{way:?}");
        let ids: Vec<_> =
            results(run.unwrap().conversation().get(2).unwrap()).into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids, calls);
        server.finish().unwrap();
    }
}

/// The body of a call waits for what is done when its start was told, and the log says which was
/// first.
#[tokio::test]
async fn j14_a_start_is_told_before_the_body_is_entered_and_long_before_it_ends() {
    let calls = ["t1", "t2", "t3"];
    let clients = Clients::new();
    let mut cases = 0;
    for mode in MODES {
        for way in Way::TOLD {
            let (log, told) = (Log::default(), Arc::new(Notify::new()));
            let tool = {
                let (log, told) = (log.clone(), told.clone());
                Tool::new("step", "", object()).handler_with(move |(): (), cx: ToolContext| {
                    let (log, told) = (log.clone(), told.clone());
                    async move {
                        log.note(format!("body of {}", cx.call_id()));
                        // Given with the start of the last call, or of this one.
                        told.notified().await;
                        told.notify_one();
                        log.note(format!("end of {}", cx.call_id()));
                    }
                })
            };
            let see = {
                let log = log.clone();
                move |event: &RunEvent| match event {
                    RunEvent::ToolStarted { call, .. } => {
                        log.note(format!("told of {}", call.id()));
                        told.notify_one();
                    }
                    RunEvent::ToolFinished { call, .. } => log.note(format!("told the end of {}", call.id())),
                    _ => {}
                }
            };
            let server =
                Server::start([Reply::tool_use(calls.map(|id| (id, "step", json!({})))), Reply::text("ok")])
                    .await;
            let client = clients.builder(&server).build().unwrap();
            let (_, run) = soon(way.run_with(&runner(mode).tool(tool), &client, "go", see)).await;
            run.unwrap();
            let all = log.all();
            assert_eq!(all.len(), 4 * calls.len());
            let at = |note: String| all.iter().position(|other| *other == note).unwrap();
            for id in calls {
                let places = ["told of", "body of", "end of", "told the end of"];
                let places = places.map(|what| at(format!("{what} {id}")));
                assert!(places.is_sorted(), "{mode:?}, {way:?}, {id}: {all:?}");
            }
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, MODES.len() * 3);
}

/// What is told of a retry says how long it waits, and comes before the wait.
#[tokio::test]
async fn j14_a_retry_is_told_before_its_wait() {
    let clients = Clients::new();
    for way in Way::TOLD {
        let busy = Reply::error(529, "overloaded_error", "busy").header("retry-after", "50");
        let server = Server::start([busy]).await;
        let client = clients.builder(&server).max_retries(2).build().unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let see = move |event: &RunEvent| {
            if let RunEvent::Retry { attempt, wait, error, .. } = event {
                sender.try_send((*attempt, *wait, error.status())).unwrap();
            }
        };
        let runner = ToolRunner::new();
        tokio::select! {
            ended = way.run_with(&runner, &client, "go", see) => panic!("{ended:?}"),
            retry = soon(receiver.recv()) => {
                let (attempt, wait, status) = retry.unwrap();
                assert_eq!((attempt, status), (1, Some(529)));
                // The server's wait, and up to 10 seconds by chance.
                assert!((50..=60).contains(&wait.as_secs()), "{wait:?}");
            }
        }
        server.finish().unwrap();
    }
}

/// The messages that a run sends are those of a plain run, and so is what it returns.
#[tokio::test]
async fn a_streamed_run_sends_and_returns_what_a_plain_one_does() {
    let replies = || {
        [
            Reply::tool_use([("t1", "add", json!({"a": 1, "b": 2})), ("t2", "add", json!({"b": 1, "a": 4}))]),
            Reply::message(json!({"content": [
                {"type": "text", "text": "größer \"now\""},
                {"type": "tool_use", "id": "t3", "name": "add", "input": {"a": 123456789012u64, "b": -1}},
            ]})),
            Reply::text("done").usage(7, 9),
        ]
    };
    let clients = Clients::new();
    let mut plain = None;
    for way in Way::ALL {
        let server = Server::start(replies()).await;
        let client = clients.builder(&server).build().unwrap();
        let runner = ToolRunner::new().tool(add(&Log::default()));
        let (_, run) = way.run(&runner, &client, way.request("go")).await;
        let run = run.unwrap();
        assert_eq!(run.conversation().last().unwrap().role(), Role::Assistant);
        let messages: Vec<_> = (0..3).map(|request| sent(&server, request)).collect();
        let seen = (
            messages,
            run.conversation().to_json(),
            (run.text(), run.iterations(), run.ended().clone()),
            (run.usage().input_tokens, run.usage().output_tokens),
            (run.request_ids().to_vec(), run.repairs().to_vec()),
        );
        assert_eq!(*plain.get_or_insert_with(|| seen.clone()), seen, "{way:?}");
        for request in server.requests() {
            assert_eq!(request.json()["stream"].as_bool(), (way != Way::Plain).then_some(true));
        }
        server.finish().unwrap();
    }
}
