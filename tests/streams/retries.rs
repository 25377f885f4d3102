//! Which streams are asked for again. The clock is paused, so waits take no time.

use std::time::Duration;

use agentloop::testing::{Gate, Reply, Server};
use agentloop::{Client, ErrorKind, MessageRequest};
use serde_json::{Value, json};

use crate::{
    Classes, Way, begin, block, builder, call_block, close, end, hello, input, kinds, ping, read, reply_of,
    stop, text, text_block, ticking, wire,
};

const IDLE: Duration = Duration::from_secs(1);

/// How long the head of a response is.
const HEAD: usize = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nrequest-id: req_1\r\ntransfer-encoding: chunked\r\n\r\n".len();

fn error_event(kind: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": "no"}})
}

fn client(server: &Server, max_retries: u32) -> Client {
    builder(server).max_retries(max_retries).idle_timeout(IDLE).build().unwrap()
}

/// What breaks before the reply begins, and may not the next time.
fn early_breaks() -> Vec<(&'static str, ErrorKind, Reply)> {
    let pinged = || Reply::events([ping(), begin(), text_block(0), text(0, "never read")]);
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"no"}}"#;
    let silent = || pinged().hold_after_events(1, &Gate::new());
    vec![
        ("503", ErrorKind::Api, Reply::error(503, "api_error", "no")),
        ("529", ErrorKind::Api, Reply::error(529, "overloaded_error", "no")),
        ("no response", ErrorKind::Transport, pinged().cut_after(0)),
        ("no response, reset", ErrorKind::Transport, pinged().reset_after(0)),
        ("half a head", ErrorKind::Transport, pinged().cut_after(HEAD / 2)),
        ("a head alone", ErrorKind::Transport, pinged().cut_after(HEAD)),
        ("half a ping", ErrorKind::Transport, pinged().cut_after(HEAD + 20)),
        ("half a start", ErrorKind::Transport, pinged().cut_after(HEAD + 100)),
        ("half a start, reset", ErrorKind::Transport, pinged().reset_after(HEAD + 100)),
        ("half a start and the end of the body", ErrorKind::Transport, Reply::sse(&wire(&[begin()])[..90])),
        ("pings alone", ErrorKind::Transport, Reply::events([ping(), ping()])),
        ("an empty body", ErrorKind::Decode, Reply::events([])),
        ("an empty body that ends with its connection", ErrorKind::Decode, Reply::events([]).close()),
        ("an empty page", ErrorKind::Decode, Reply::raw(200, [("content-type", "text/html")], "")),
        ("an error event", ErrorKind::Api, Reply::events([error_event("overloaded_error")])),
        ("an error event after a ping", ErrorKind::Api, Reply::events([ping(), error_event("api_error")])),
        (
            "an error object",
            ErrorKind::Api,
            Reply::raw(200, [("content-type", "application/json")], overloaded),
        ),
        ("silence", ErrorKind::Timeout, silent()),
        ("silence before the head", ErrorKind::Timeout, pinged().hold(&Gate::new())),
    ]
}

#[tokio::test(start_paused = true)]
async fn everything_before_the_reply_begins_is_retried_within_the_limit() {
    let (mut cases, mut classes) = (0, Classes::default());
    for (name, kind, broken) in early_breaks() {
        for way in [Way::Collected, Way::Stream] {
            for (max_retries, breaks) in [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3)] {
                let mut script = vec![broken.clone(); breaks];
                let recovers = breaks as u32 <= max_retries;
                if recovers {
                    script.push(Reply::text("fine"));
                }
                let server = Server::start(script).await;
                let outcome = ticking(way.ask(&client(&server, max_retries), &hello())).await;
                let name = format!("{name} {way:?} {max_retries} {breaks}");
                match outcome {
                    Ok(message) => assert!(recovers && message.text() == "fine", "{name}"),
                    Err(error) => {
                        assert!(!recovers, "{name}: {error:?}");
                        assert_eq!(
                            (error.kind(), error.attempts()),
                            (kind, breaks as u32),
                            "{name}: {error:?}"
                        );
                        assert!(error.is_retryable() && error.partial_message().is_none(), "{name}");
                    }
                }
                assert_eq!(server.request_count(), breaks + usize::from(recovers), "{name}");
                server.finish().unwrap();
                classes.add(if recovers { "recovered" } else { "given up" });
                cases += 1;
            }
        }
    }
    println!("{cases} cases: {classes:?}");
    assert_eq!(cases, early_breaks().len() * 2 * 6);
}

#[tokio::test(start_paused = true)]
async fn what_no_retry_can_help_is_asked_for_once() {
    let html = || Reply::raw(200, [("content-type", "text/html")], "<p>");
    for (reply, kind) in [
        (Reply::events([error_event("invalid_request_error")]), ErrorKind::Api),
        (Reply::events([error_event("new_kind")]), ErrorKind::Api),
        (Reply::events([error_event("overloaded_error")]).header("x-should-retry", "false"), ErrorKind::Api),
        (Reply::sse("data: {\n\n"), ErrorKind::Decode),
        (Reply::sse(b"data: \xff\n\n".to_vec()), ErrorKind::Decode),
        (Reply::events([text(0, "x")]), ErrorKind::Decode),
        (html(), ErrorKind::Decode),
        (Reply::events(reply_of(&["x"])).header("content-encoding", "gzip"), ErrorKind::Decode),
        (Reply::error(400, "invalid_request_error", "no"), ErrorKind::Api),
    ] {
        for way in [Way::Collected, Way::Stream] {
            let server = Server::start([reply.clone()]).await;
            let error = ticking(way.ask(&client(&server, 3), &hello())).await.unwrap_err();
            assert_eq!((error.kind(), error.attempts(), error.is_retryable()), (kind, 1, false), "{error:?}");
            assert_eq!(server.request_count(), 1);
            server.finish().unwrap();
        }
    }
}

/// A reply whose every part would be seen in another one.
fn first() -> Vec<Value> {
    vec![
        begin(),
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        close(0),
        text_block(1),
        text(1, "FIRST"),
        close(1),
        call_block(2, "t_first", "rm"),
        input(2, r#"{"cmd":"#),
        input(2, r#""rm tmp"}"#),
        close(2),
        end("tool_use"),
        stop(),
    ]
}

/// The ways in which a stream breaks behind its first `events` events.
fn breaks_after(events: usize) -> Vec<(&'static str, Reply)> {
    let some = || first()[..events].to_vec();
    let length = HEAD + some().iter().map(|event| wire(std::slice::from_ref(event)).len() + 7).sum::<usize>();
    let (held, half) = (Gate::new(), length + 12);
    vec![
        ("the body ends", Reply::events(some())),
        ("the connection ends", Reply::events(some()).close()),
        ("cut", Reply::events(first()).cut_after(half)),
        ("reset", Reply::events(first()).reset_after(half)),
        ("error event", Reply::events([some(), vec![error_event("overloaded_error")]].concat())),
        ("silence", Reply::events(first()).hold_after_events(events, &held)),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_begun_is_never_asked_for_again() {
    let mut classes = Classes::default();
    for events in 1..first().len() - 1 {
        for (name, broken) in breaks_after(events) {
            let server = Server::start([broken]).await;
            let client = client(&server, 3);
            ticking(async {
                let mut stream = client.stream(&hello()).await.unwrap();
                let (got, error) = read(&mut stream).await;
                let error = error.unwrap();
                assert!(error.is_retryable(), "for whoever asks again: {name} {error:?}");
                assert_eq!(error.attempts(), 1);
                // A reset may overtake what was sent before it.
                assert!(got.len() == events || name == "reset", "{name} {events} {:?}", kinds(&got));
                assert!(error.partial_message().is_some(), "{name} {events}");
                stream.final_message().await.unwrap_err();
            })
            .await;
            assert_eq!(server.request_count(), 1);
            server.finish().unwrap();
            classes.add(name);
        }
    }
    println!("{classes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_collected_reply_has_nothing_of_the_attempts_that_broke() {
    let second = [begin(), text_block(0), text(0, "second"), close(0), end("end_turn"), stop()];
    let plain = Server::start([Reply::events(second.clone())]).await;
    let plain = plain.client().create_streamed(&hello()).await.unwrap();
    let mut classes = Classes::default();
    for events in 1..first().len() - 1 {
        for (name, broken) in breaks_after(events) {
            let server = Server::start([broken.clone(), broken, Reply::events(second.clone())]).await;
            let message = ticking(client(&server, 2).create_streamed(&hello())).await.unwrap();
            assert_eq!(message.json(), plain.json(), "{name} {events}");
            assert_eq!((message.request_id(), server.request_count()), (Some("req_3"), 3));
            server.finish().unwrap();
            classes.add(name);
        }
    }
    println!("{classes:?}");
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_collected_reply_has_what_came_of_the_last_attempt() {
    let half = |text_of: &str| Reply::events([begin(), text_block(0), text(0, text_of)]);
    let server = Server::start([half("one"), half("two"), half("three")]).await;
    let request = MessageRequest::from("Hello").max_retries(2);
    let error = ticking(server.client().create_streamed(&request)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.attempts(), error.request_id()),
        (ErrorKind::Transport, 3, Some("req_3"))
    );
    assert_eq!(error.partial_message().unwrap().text(), "three");
    let server = Server::start([half("one"), Reply::error(503, "api_error", "no")]).await;
    let error = ticking(client(&server, 1).create_streamed(&hello())).await.unwrap_err();
    assert_eq!((error.status(), error.attempts()), (Some(503), 2));
    assert!(error.partial_message().is_none(), "nothing came of the last attempt");
}
