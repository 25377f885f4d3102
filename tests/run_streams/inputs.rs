//! Inputs of calls, as deltas spell them.

use agentloop::messages::RepairKind;
use agentloop::run_loop::Ended;
use agentloop::testing::{Reply, Server};
use agentloop::{MessageRequest, Tool, ToolContext, ToolRunner};
use serde_json::json;
use serde_json::value::RawValue;

use crate::replies::{Block, Clients, call, events, run_all, text};
use crate::support::{Log, object, result_of, sent};
use crate::told::Way;

/// What comes as an input, and what becomes of it.
#[derive(Clone, Copy)]
enum Input {
    /// It is replayed like this, and given to the tool like this.
    Good(&'static str),
    /// The model reads this, up to the semicolon.
    Bad(&'static str),
}

use Input::{Bad, Good};

const INPUTS: [(&str, Input); 22] = [
    (
        r#"{"z":1e2,"a":12345678901234567890123,"m":-0.10}"#,
        Good(r#"{"z":1e2,"a":12345678901234567890123,"m":-0.10}"#),
    ),
    (
        r#"{ "b" : [ 1,2 ] , "a":"\u00e4\ud83d\ude00ü" }"#,
        Good(r#"{ "b" : [ 1,2 ] , "a":"\u00e4\ud83d\ude00ü" }"#),
    ),
    (r#"{"a":1,"a":2}"#, Good(r#"{"a":1,"a":2}"#)),
    (" {\"a\":\n1}\t", Good("{\"a\":\n1}")),
    ("{}", Good("{}")),
    ("", Good("{}")),
    (" \n", Good("{}")),
    ("{", Bad("the tool input is not valid JSON: it ends too early (line 1, column 1)")),
    (r#"{"a":"#, Bad("the tool input is not valid JSON: it ends too early (line 1, column 5)")),
    (r#"{"a":"b"#, Bad("the tool input is not valid JSON: it ends too early (line 1, column 7)")),
    ("{\"a\":1,\n\"b\":", Bad("the tool input is not valid JSON: it ends too early (line 2, column 4)")),
    ("{\"a\":\n1,}", Bad("the tool input is not valid JSON: the fault is at line 2, column 3")),
    (r#"{"a": 1} x"#, Bad("the tool input is not valid JSON: the fault is at line 1, column 10")),
    (r#"{"a": 1}{"a": 1}"#, Bad("the tool input is not valid JSON: the fault is at line 1, column 9")),
    ("{'a':1}", Bad("the tool input is not valid JSON: the fault is at line 1, column 2")),
    ("SENTINEL", Bad("the tool input is not valid JSON: the fault is at line 1, column 1")),
    ("[1]", Bad("the tool input is not an object: it is an array")),
    (r#""{\"a\":1}""#, Bad("the tool input is not an object: it is a string")),
    ("null", Bad("the tool input is not an object: it is null")),
    ("true", Bad("the tool input is not an object: it is a boolean")),
    ("7", Bad("the tool input is not an object: it is a number")),
    (r#""""#, Bad("the tool input is not an object: it is a string")),
];

/// A text in deltas: none if it is empty, one, one of each character, or each with empty ones
/// around it.
fn cut(text: &str) -> Vec<Vec<String>> {
    let chars: Vec<_> = text.chars().map(String::from).collect();
    let mut spread = vec![String::new()];
    spread.extend(chars.iter().flat_map(|piece| [piece.clone(), String::new()]));
    let whole = if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
    vec![whole, chars, spread]
}

/// A tool that notes its call and its input, and answers with the id.
fn echo(log: &Log) -> Tool {
    let log = log.clone();
    Tool::new("echo", "", object()).handler_with(move |input: Box<RawValue>, cx: ToolContext| {
        log.note(format!("{}: {input}", cx.call_id()));
        async move { cx.call_id().to_owned() }
    })
}

/// Every input, in every kind of pieces, at every place among three calls, in every way to stream.
#[tokio::test]
async fn j15_an_input_that_is_no_json_object_runs_no_tool_and_the_model_reads_why() {
    let clients = Clients::new();
    let mut cases = Vec::new();
    for (input, becomes) in INPUTS {
        for pieces in cut(input) {
            for place in 0..3 {
                for way in Way::STREAMED {
                    cases.push(of_one_input(clients.clone(), input, becomes, pieces.clone(), place, way));
                }
            }
        }
    }
    let count = run_all(cases).await;
    println!("{count} cases");
    assert_eq!(count, INPUTS.len() * 3 * 3 * 4);
}

async fn of_one_input(
    clients: Clients,
    input: &'static str,
    becomes: Input,
    pieces: Vec<String>,
    place: usize,
    way: Way,
) {
    let case = format!("{input:?} in {} pieces as call {place}, {way:?}", pieces.len());
    let mut blocks: Vec<Block> = vec![text(&["I call"])];
    let mut replayed = Vec::new();
    let mut ran = Vec::new();
    for at in 0..3 {
        let id = format!("t{at}");
        let sibling = [r#"{"n":"#, "1e1}"];
        blocks.push(if at == place { call(&id, "echo", &pieces) } else { call(&id, "echo", &sibling) });
        let input = match becomes {
            _ if at != place => r#"{"n":1e1}"#,
            Good(input) => input,
            Bad(_) => "{}",
        };
        replayed.push(format!(r#"{{"type":"tool_use","id":"{id}","name":"echo","input":{input}}}"#));
        if at != place || matches!(becomes, Good(_)) {
            ran.push(format!("{id}: {input}"));
        }
    }
    let log = Log::default();
    let server =
        Server::start([Reply::events(events("msg_1", "tool_use", &blocks)), Reply::text("done")]).await;
    let client = clients.builder(&server).build().unwrap();
    let runner = ToolRunner::new().tool(echo(&log));
    let (told, run) = way.run(&runner, &client, way.request("go")).await;
    let run = run.unwrap_or_else(|error| panic!("{case}: {error:?}"));

    assert_eq!(log.all(), ran, "{case}");
    let starts = told.iter().filter(|event| event.get("ToolStarted").is_some()).count();
    assert_eq!(starts, if way == Way::Collected { 0 } else { ran.len() }, "{case}");
    // What the deltas spelled goes back byte for byte; no whitespace around it is part of it.
    let turn = format!(r#"[{{"type":"text","text":"I call"}},{}]"#, replayed.join(","));
    let sent = sent(&server, 1);
    assert!(sent.contains(&turn), "{case}: {sent} should hold {turn}");
    for at in 0..3 {
        let (told, is_error) = result_of(run.conversation(), &format!("t{at}"));
        match becomes {
            Bad(why) if at == place => {
                assert_eq!((told, is_error), (format!("{why}; the tool did not run"), true), "{case}");
            }
            _ => assert_eq!((told, is_error), (format!("t{at}"), false), "{case}"),
        }
    }
    let repairs: Vec<_> = run.repairs().iter().map(|repair| (repair.block, repair.kind)).collect();
    let repaired = matches!(becomes, Bad(_)).then_some((place + 1, RepairKind::Input));
    assert_eq!(repairs, repaired.into_iter().collect::<Vec<_>>(), "{case}");
    server.finish().unwrap();
}

/// The limit of tokens cuts the reply in an input, or behind it: nothing runs, also not what came
/// whole, and the conversation goes on.
#[tokio::test]
async fn j15_a_call_that_a_limit_cut_off_does_not_run_and_is_replayed_with_an_object() {
    let clients = Clients::new();
    let cut = [
        (r#"{"path":"a.txt","te"#, "{}"),
        (r#"{"path":"a.txt"}"#, r#"{"path":"a.txt"}"#),
        (r#"{"n":1"#, "{}"),
        ("", "{}"),
    ];
    let reasons = [("max_tokens", Ended::MaxTokens), ("model_context_window_exceeded", Ended::ContextWindow)];
    let mut cases = Vec::new();
    for (input, replayed) in cut {
        for (reason, ended) in reasons.clone() {
            for open in [false, true] {
                for way in Way::STREAMED {
                    let (clients, ended) = (clients.clone(), ended.clone());
                    cases.push(async move {
                        let case = format!("{input:?}, {reason}, left open: {open}, {way:?}");
                        let last = call("t2", "echo", &[input]);
                        let last = if open { last.left_open() } else { last };
                        let blocks = [call("t1", "echo", &[r#"{"z":1,"#, r#""a":1e3}"#]), last];
                        let cut = Reply::events(events("msg_1", reason, &blocks));
                        let server = Server::start([cut, Reply::text("done")]).await;
                        let client = clients.builder(&server).build().unwrap();
                        let log = Log::default();
                        let runner = ToolRunner::new().tool(echo(&log));
                        let (_, run) = way.run(&runner, &client, way.request("go")).await;
                        let run = run.unwrap();
                        assert_eq!(*run.ended(), ended, "{case}");
                        assert_eq!((log.all().len(), run.conversation().open_calls().len()), (0, 2), "{case}");

                        let (_, run) = way.run(&runner, &client, run.into_request().user("go on")).await;
                        let run = run.unwrap();
                        assert_eq!((run.text().as_str(), log.all().len()), ("done", 0), "{case}");
                        let turn = format!(
                            r#"[{{"type":"tool_use","id":"t1","name":"echo","input":{{"z":1,"a":1e3}}}},{{"type":"tool_use","id":"t2","name":"echo","input":{replayed}}}]"#
                        );
                        let sent = sent(&server, 1);
                        assert!(sent.contains(&turn), "{case}: {sent}");
                        for id in ["t1", "t2"] {
                            let (told, is_error) = result_of(run.conversation(), id);
                            assert!(is_error && told.contains("cut off by a limit"), "{case}: {told}");
                        }
                        server.finish().unwrap();
                    });
                }
            }
        }
    }
    let count = run_all(cases).await;
    println!("{count} cases");
    assert_eq!(count, 4 * 2 * 2 * 4);
}

#[tokio::test]
async fn j15_eager_input_streaming_is_sent_as_given_and_never_set_by_us() {
    let clients = Clients::new();
    let mut cases = 0;
    for given in [None, Some(true), Some(false)] {
        for way in Way::ALL {
            let log = Log::default();
            let tool = match given {
                None => echo(&log),
                Some(eager) => echo(&log).eager_input_streaming(eager),
            };
            let own = match given {
                None => json!({"name": "own", "input_schema": {"type": "object"}}),
                Some(eager) => {
                    json!({"name": "own", "input_schema": {"type": "object"}, "eager_input_streaming": eager})
                }
            };
            let call = || Reply::tool_use([("t1", "echo", json!({}))]);
            let server = Server::start([call(), Reply::text("done")]).await;
            let client = clients.builder(&server).build().unwrap();
            let from_json = Tool::from_definition(own.to_string()).handler(|(): ()| async {});
            let runner = ToolRunner::new().tools([tool, from_json]);
            let (_, run) = way.run(&runner, &client, way.request(MessageRequest::prompt("go"))).await;
            run.unwrap();
            for request in server.requests() {
                let tools = request.json()["tools"].clone();
                for tool in tools.as_array().unwrap() {
                    let sent = tool.get("eager_input_streaming").map(|eager| eager.as_bool().unwrap());
                    assert_eq!(sent, given, "{way:?}: {tool}");
                }
                assert_eq!((&tools[1], tools.as_array().map(Vec::len)), (&own, Some(2)));
                assert_eq!(request.header("anthropic-beta"), None);
            }
            server.finish().unwrap();
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, 3 * 5);
}
