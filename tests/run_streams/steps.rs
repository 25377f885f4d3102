//! A run of three turns whose tool awaits, to be stopped anywhere.

use std::time::Duration;

use agentloop::testing::{RecordedRequest, Reply, Script, Server};
use agentloop::{Tool, ToolContext, ToolRunner};
use serde_json::Value;
use tokio::task::yield_now;

use crate::replies::{call, events, text};
use crate::support::{Log, object};
use crate::told::Way;

pub(crate) const TURNS: usize = 3;
pub(crate) const CALLS: [&str; 3] = ["t1", "t2", "t3"];

pub(crate) fn turn(number: usize) -> Vec<Value> {
    let step = |id| call(id, "step", &["{}"]);
    match number {
        1 => events("msg_1", "tool_use", &[text(&["first"]), step("t1"), step("t2")]),
        2 => events("msg_2", "tool_use", &[step("t3")]),
        _ => events("msg_3", "end_turn", &[text(&["the ", "end"])]),
    }
}

/// Which turn a request is for, also when it is made again.
pub(crate) fn turn_of(request: &RecordedRequest) -> usize {
    request.json()["messages"].as_array().unwrap().len().div_ceil(2)
}

pub(crate) async fn server() -> Server {
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
pub(crate) const MODES: [(&str, usize, bool); 3] =
    [("inline", 1, false), ("one task", 1, true), ("tasks", 2, false)];

pub(crate) fn runner((_, concurrency, timed): (&str, usize, bool), log: &Log) -> ToolRunner {
    let runner = ToolRunner::new().tool(step(log)).max_concurrency(concurrency);
    if timed { runner.tool_timeout(Duration::from_secs(3600)) } else { runner }
}

/// All that a whole run tells.
pub(crate) async fn whole_run(mode: (&str, usize, bool)) -> Vec<Value> {
    let server = server().await;
    let (told, run) = Way::Stream.run(&runner(mode, &Log::default()), &server.client(), "go").await;
    assert_eq!(run.unwrap().text(), "the end");
    told
}
