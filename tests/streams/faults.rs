//! Faults as products: a recorded reply that breaks at each of its bytes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentloop::testing::{Gate, RecordedRequest, Reply, Script, Server};
use agentloop::{Client, Error, Message, MessageRequest, RunEvent, Tool, ToolRunner};
use serde_json::{Value, json};

use crate::{
    Classes, at_once, builder, call_block, case, case_of, close, hello, in_time, input, stop, text,
    text_block, ticking, wire,
};

/// Short, since every byte is a case.
fn recorded() -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}}),
        text_block(0),
        text(0, "é"),
        close(0),
        call_block(1, "t1", "pay"),
        input(1, r#"{"to":"#),
        input(1, r#""a"}"#),
        close(1),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        stop(),
    ]
}

const CONTENT: &str =
    r#"[{"type":"text","text":"é"},{"type":"tool_use","id":"t1","name":"pay","input":{"to":"a"}}]"#;

/// A response that breaks, as a header of the request spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    at: usize,
    reset: bool,
    chunked: bool,
}

impl Fault {
    fn header(self) -> String {
        format!("{} {} {}", self.at, self.reset, self.chunked)
    }

    fn of(request: &RecordedRequest) -> Self {
        let header = request.header("x-fault").unwrap();
        let [at, reset, chunked] = header.split(' ').collect::<Vec<_>>()[..] else { panic!("{header}") };
        Self { at: at.parse().unwrap(), reset: reset == "true", chunked: chunked == "true" }
    }

    fn reply(self) -> Reply {
        let body = wire(&recorded());
        let mut head = vec![("content-type", "text/event-stream"), ("connection", "close")];
        let body = if self.chunked {
            head.push(("transfer-encoding", "chunked"));
            let chunk = |event: &Value| {
                let event = wire(std::slice::from_ref(event));
                format!("{:x}\r\n{event}\r\n", event.len())
            };
            recorded().iter().map(chunk).collect::<String>() + "0\r\n\r\n"
        } else {
            // Without a length a body ends where its connection does.
            body
        };
        let head: String = head.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let reply = Reply::garbage(format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}"));
        if self.reset { reply.reset_after(self.at) } else { reply.cut_after(self.at) }
    }

    fn length(chunked: bool) -> usize {
        let framing = |event: &Value| format!("{:x}\r\n\r\n", wire(std::slice::from_ref(event)).len()).len();
        let chunks =
            recorded().iter().map(framing).sum::<usize>() + "transfer-encoding: chunked\r\n0\r\n\r\n".len();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".len();
        head + wire(&recorded()).len() + if chunked { chunks } else { 0 }
    }

    /// Every place, and one beyond the end.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for chunked in [false, true] {
            for reset in [false, true] {
                all.extend((0..=Self::length(chunked)).map(|at| Self { at, reset, chunked }));
            }
        }
        all
    }

    /// The first place behind which the reply is whole: that of the event with the stop reason.
    fn whole_at(chunked: bool) -> usize {
        let last = wire(&[stop()]).len();
        // In chunks, the end of that event is read before the end of its chunk.
        let behind = if chunked { "\r\n26\r\n\r\n0\r\n\r\n".len() } else { 0 };
        Self::length(chunked) - last - behind
    }
}

/// A server that breaks the first reply of a conversation and answers the second.
async fn server() -> Server {
    let answer = |request: &RecordedRequest| match request.json()["messages"].as_array().unwrap().len() {
        1 => Fault::of(request).reply(),
        _ => Reply::text("done").close(),
    };
    Server::start(Script::from_fn(answer)).await
}

fn request(fault: Fault) -> MessageRequest {
    hello().max_tokens(30_000).header("x-fault", &fault.header()).max_retries(0)
}

fn classify(fault: Fault, is_right: bool, classes: &mut Classes) {
    let end = if fault.reset { "RST" } else { "FIN" };
    let framing = if fault.chunked { "chunked" } else { "close-delimited" };
    let outcome = if is_right { "right" } else { "error" };
    classes.add(format!("{end} {framing}: {outcome}"));
    let is_whole = fault.at >= Fault::whole_at(fault.chunked);
    assert!(!is_right || is_whole, "a reply that is not whole: {fault:?}");
    // A reset may overtake what was sent before it.
    assert!(is_right || !is_whole || fault.reset, "a whole reply is lost: {fault:?}");
}

#[tokio::test]
async fn a_reply_that_is_cut_at_any_byte_is_an_error_or_right() {
    let server = server().await;
    let faults = Fault::all();
    let mut classes = Classes::default();
    let client = server.client();
    for collected in [false, true] {
        let cases = faults.iter().map(|fault| {
            let (client, fault) = (client.clone(), *fault);
            async move { (fault, message(&client, collected, request(fault)).await) }
        });
        for (fault, outcome) in in_time(at_once(cases)).await {
            let is_right = match &outcome {
                Ok(message) => {
                    assert_eq!(message.content_json(), CONTENT, "{fault:?}");
                    assert_eq!(message.stop_reason().map(|reason| reason.as_str()), Some("tool_use"));
                    true
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{fault:?} {error:?}");
                    assert!(!format!("{error:?} {}", error.chain()).contains("\"to\""), "{fault:?}");
                    false
                }
            };
            classify(fault, is_right, &mut classes);
        }
    }
    println!("{} cases: {classes:?}", faults.len() * 2);
    assert_eq!(server.request_count(), faults.len() * 2);
}

async fn message(client: &Client, collected: bool, request: MessageRequest) -> Result<Message, Error> {
    match collected {
        true => client.create_streamed(&request).await,
        false => client.stream(&request).await?.final_message().await,
    }
}

/// What happened in one run.
#[derive(Debug, Default)]
struct Seen {
    paid: usize,
    turns: usize,
}

async fn run(client: &Client, told: bool, request: MessageRequest) -> (bool, Seen) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (in_tool, in_event) = (Arc::clone(&seen), Arc::clone(&seen));
    let pay = Tool::new("pay", "Pays", json!({"type": "object"})).handler(move |input: Value| {
        in_tool.lock().unwrap().paid += 1;
        async move {
            assert_eq!(input, json!({"to": "a"}));
            "paid"
        }
    });
    let mut runner = ToolRunner::new().tool(pay);
    if told {
        runner = runner.on_event(move |event| {
            if let RunEvent::TurnDone { .. } = event {
                in_event.lock().unwrap().turns += 1;
            }
        });
    }
    let outcome = runner.run(client, request).await;
    let is_right = match outcome {
        Ok(run) => {
            assert_eq!((run.text().as_str(), run.iterations()), ("done", 2));
            assert_eq!(run.conversation().len(), 4);
            true
        }
        Err(error) => {
            // What is left is what was sent, and nothing of the reply.
            assert_eq!((error.iterations(), error.conversation().len()), (0, 1), "{error:?}");
            false
        }
    };
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (is_right, seen)
}

#[tokio::test]
async fn a_run_whose_reply_is_cut_at_any_byte_runs_no_tool_unless_it_was_whole() {
    let server = server().await;
    let faults = Fault::all();
    let client = server.client();
    let (mut classes, mut runs) = (Classes::default(), 0);
    for told in [false, true] {
        let cases = faults.iter().map(|fault| {
            let (client, fault) = (client.clone(), *fault);
            async move { (fault, run(&client, told, request(fault)).await) }
        });
        for (fault, (is_right, seen)) in in_time(at_once(cases)).await {
            assert_eq!(seen.paid, usize::from(is_right), "{fault:?}");
            assert_eq!(seen.turns, if told && is_right { 2 } else { 0 }, "{fault:?}");
            classify(fault, is_right, &mut classes);
            runs += usize::from(is_right);
        }
    }
    println!("{} cases: {classes:?}", faults.len() * 2);
    assert_eq!(server.request_count(), faults.len() * 2 + runs);
}

/// A request that its header tells apart from the others, for a reply that is held or in pieces.
fn numbered(number: usize) -> MessageRequest {
    case(number).max_tokens(30_000).max_retries(0)
}

/// Answers the first request of each case with its reply.
async fn server_with(replies: Vec<Reply>) -> Server {
    let answer = move |request: &RecordedRequest| match request.json()["messages"].as_array().unwrap().len() {
        1 => replies[case_of(request)].clone(),
        _ => Reply::text("done"),
    };
    Server::start(Script::from_fn(answer)).await
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_stalls_at_any_event_is_an_error_or_right() {
    let shut = Gate::new();
    let events = recorded().len();
    let held = |count| Reply::events(recorded()).hold_after_events(count, &shut);
    let server = server_with((0..=events).map(held).collect()).await;
    let client = builder(&server).idle_timeout(Duration::from_secs(1)).build().unwrap();
    let mut classes = Classes::default();
    for count in 0..=events {
        // Nothing is missing then but the event that says so.
        let is_whole = count + 1 >= events;
        for collected in [false, true] {
            match ticking(message(&client, collected, numbered(count))).await {
                Ok(message) => assert!(is_whole && message.content_json() == CONTENT, "{count}"),
                Err(error) => assert!(!is_whole && error.is_timeout(), "{count} {error:?}"),
            }
        }
        for told in [false, true] {
            let (is_right, seen) = ticking(run(&client, told, numbered(count))).await;
            assert_eq!((is_right, seen.paid), (is_whole, usize::from(is_whole)), "{count}");
        }
        classes.add(if is_whole { "right" } else { "timed out" });
    }
    println!("{} cases: {classes:?}", 4 * (events + 1));
}

#[tokio::test]
async fn a_reply_that_comes_byte_for_byte_is_the_same_reply() {
    let server = server_with(vec![Reply::events(recorded()).in_pieces(1)]).await;
    let client = server.client();
    for collected in [false, true] {
        assert_eq!(message(&client, collected, numbered(0)).await.unwrap().content_json(), CONTENT);
    }
    for told in [false, true] {
        let (is_right, seen) = run(&client, told, numbered(0)).await;
        assert_eq!((is_right, seen.paid), (true, 1));
    }
}
