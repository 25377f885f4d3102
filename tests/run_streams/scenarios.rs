//! What is told beside turns and calls, and of what ends a run.

use agentloop::run_loop::RunErrorKind;
use agentloop::testing::{Reply, Server};
use agentloop::{MessageRequest, ToolRunner};
use serde_json::{Value, json};

use crate::replies::{Clients, an_add, call, events, run_all, text, whole};
use crate::support::{Log, add};
use crate::told::{Way, finished, started, turn_done};

/// A run that is not only turns and calls.
struct Scenario {
    name: &'static str,
    replies: Vec<Reply>,
    expected: Vec<Value>,
    ended: Result<&'static str, RunErrorKind>,
}

/// The events of a turn and its end.
fn whole_turn(events: &[Value]) -> Vec<Value> {
    events.iter().cloned().chain([turn_done(events)]).collect()
}

fn scenarios() -> Vec<Scenario> {
    let busy = || Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1");
    let done = || events("msg_done", "end_turn", &[text(&["do", "ne"])]);
    let finished_by = |reason: &str| json!({"Finished": reason});
    let retry = |attempt: u32, error: &str| json!({"Retry": attempt, "error": error});
    let add_1 = || started("t1", "add", r#"{"b": 1, "a":1}"#);

    let turn = events("msg_1", "tool_use", &[an_add("t1", 1, 1)]);
    let retried = Scenario {
        name: "retries before the first event, in two turns",
        replies: vec![
            busy(),
            Reply::events([]).header("retry-after-ms", "1"),
            Reply::events(turn.clone()),
            Reply::events([json!({"type": "ping"})]).header("retry-after-ms", "1"),
            Reply::events(done()),
        ],
        expected: [
            vec![retry(1, "overloaded_error"), retry(2, "Decode")],
            whole_turn(&turn),
            vec![add_1(), finished("t1", "2", false), retry(1, "Transport")],
            whole_turn(&done()),
            vec![finished_by("end_turn")],
        ]
        .concat(),
        ended: Ok("done"),
    };

    let search =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}});
    let paused = events("msg_1", "pause_turn", &[text(&["I search"]), whole(search)]);
    let pause = Scenario {
        name: "a pause",
        replies: vec![Reply::events(paused.clone()), Reply::events(done())],
        expected: [whole_turn(&paused), whole_turn(&done()), vec![finished_by("end_turn")]].concat(),
        ended: Ok("done"),
    };

    let second = events("msg_2", "tool_use", &[an_add("t2", 2, 2)]);
    let third = events("msg_3", "tool_use", &[an_add("t3", 3, 3), text(&["more"])]);
    let cap = Scenario {
        name: "the cap",
        replies: [&turn, &second, &third].map(|turn| Reply::events(turn.clone())).to_vec(),
        expected: [
            whole_turn(&turn),
            vec![add_1(), finished("t1", "2", false)],
            whole_turn(&second),
            vec![started("t2", "add", r#"{"b": 2, "a":2}"#), finished("t2", "4", false)],
            whole_turn(&third),
            vec![json!({"MaxIterations": 3})],
        ]
        .concat(),
        ended: Err(RunErrorKind::MaxIterations),
    };

    let refused = events("msg_1", "refusal", &[text(&["I ", "can't"]), an_add("t1", 1, 1).left_open()]);
    let refusal = Scenario {
        name: "a refusal",
        replies: vec![Reply::events(refused.clone())],
        expected: [whole_turn(&refused), vec![finished_by("refusal")]].concat(),
        ended: Ok("I can't"),
    };

    let odd = [
        call("t0", "no_such_tool", &["{}"]),
        an_add("t1", 1, 1),
        call("t2", "add", &["{\"a\":"]),
        call("t3", "add", &["[1]"]),
        call("t4", "add", &["{\"a\":", "1}"]),
    ];
    let odd = events("msg_1", "tool_use", &odd);
    let unusable = Scenario {
        name: "an unknown tool, and inputs of all kinds",
        replies: vec![Reply::events(odd.clone()), Reply::events(done())],
        expected: [
            whole_turn(&odd),
            // The handler may judge what is an object.
            vec![add_1(), finished("t1", "2", false), started("t4", "add", r#"{"a":1}"#)],
            vec![finished("t4", MISSING, true)],
            whole_turn(&done()),
            vec![finished_by("end_turn")],
        ]
        .concat(),
        ended: Ok("done"),
    };

    let empty = events("msg_1", "end_turn", &[]);
    let nothing = Scenario {
        name: "a reply of nothing",
        replies: vec![Reply::events(empty.clone())],
        expected: [whole_turn(&empty), vec![finished_by("a reply without content")]].concat(),
        ended: Ok(""),
    };
    let broken = Scenario {
        name: "a request that fails",
        replies: vec![Reply::events(turn.clone()), Reply::error(400, "invalid_request_error", "no")],
        expected: [whole_turn(&turn), vec![add_1(), finished("t1", "2", false)]].concat(),
        ended: Err(RunErrorKind::Client),
    };
    let mut nameless = turn;
    nameless[1]["content_block"].as_object_mut().unwrap().remove("id");
    let protocol = Scenario {
        name: "a call without id",
        replies: vec![Reply::events(nameless.clone())],
        expected: nameless,
        ended: Err(RunErrorKind::Protocol),
    };
    vec![retried, pause, cap, refusal, unusable, nothing, broken, protocol]
}

/// What the reader of an input says when `b` is not there.
const MISSING: &str = "the input of the tool does not fit: missing field `b`";

#[tokio::test]
async fn j14_retries_pauses_the_cap_and_what_ends_a_run_are_told_in_their_place() {
    let clients = Clients::new();
    let names: Vec<_> = scenarios().iter().map(|scenario| scenario.name).collect();
    let cases = names.iter().enumerate().flat_map(|(which, _)| Way::TOLD.map(|way| (which, way)));
    let cases = cases.map(|(which, way)| {
        let clients = clients.clone();
        async move {
            let Scenario { name, replies, expected, ended } = scenarios().swap_remove(which);
            let server = Server::start(replies).await;
            let client = clients.builder(&server).max_retries(2).build().unwrap();
            let runner = ToolRunner::new().tool(add(&Log::default())).max_iterations(3);
            let search = json!({"type": "web_search_20260318", "name": "web_search"});
            let request = MessageRequest::prompt("go").tool(search);
            let (mut told, outcome) = way.run(&runner, &client, request).await;
            // The words of the error are not the matter here.
            for event in &mut told {
                if event["text"].as_str().is_some_and(|text| text.contains("missing field `b`")) {
                    event["text"] = MISSING.into();
                }
            }
            assert_eq!(told, expected, "{name}, {way:?}");
            let outcome = outcome.map(|run| run.text());
            assert_eq!(outcome.map_err(|error| error.kind()), ended.map(Into::into), "{name}, {way:?}");
            server.finish().unwrap();
        }
    });
    let count = run_all(cases).await;
    println!("{count} cases: {names:?}");
    assert_eq!(count, 8 * 3);
}
