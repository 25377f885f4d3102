//! Where a stream ends: behind `message_stop`, before it, and what becomes of the connection.

use agentloop::testing::{Gate, Reply, Server};
use agentloop::{ErrorKind, Message};
use serde_json::{Value, json};

use crate::{
    Classes, Way, begin, call_block, close, end, hello, in_time, input, kinds, ping, read, reply_of, stop,
    text, text_block, types, wire,
};

fn error_event() -> Value {
    json!({"type": "error", "error": {"type": "api_error", "message": "too late"}})
}

#[tokio::test]
async fn nothing_is_awaited_behind_message_stop_though_the_connection_stays_open() {
    for way in Way::ALL {
        let (before_the_end, after_it) = (Gate::new(), Gate::new());
        let whole = reply_of(&["x"]);
        let behind = [&whole[..], &[ping(), error_event(), begin()]].concat();
        for reply in [
            Reply::events(whole.clone()).hold_after_events(whole.len(), &before_the_end),
            Reply::events(whole.clone()).close().hold_after(usize::MAX, &after_it),
            Reply::events(behind.clone()).hold_after_events(whole.len(), &before_the_end),
            // What came in the same piece is not looked at.
            Reply::sse(wire(&behind)),
            Reply::sse(wire(&whole) + "data: no JSON\n\n"),
        ] {
            let server = Server::start([reply]).await;
            let client = server.client();
            let message = in_time(way.ask(&client, &hello())).await.unwrap();
            assert_eq!(message.text(), "x");
            assert_eq!(server.request_count(), 1);
            drop(client);
            in_time(server.wait_for_open_connections(0)).await;
        }
    }
}

/// A response that ends together with its last event.
fn ended_at_once(body: &str, chunked: bool) -> Reply {
    let head = [("content-type", "text/event-stream")];
    match chunked {
        true => {
            let body = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            Reply::raw(200, head, body).header("transfer-encoding", "chunked")
        }
        false => Reply::raw(200, head, body),
    }
}

#[tokio::test]
async fn streams_in_a_row_use_one_connection_where_the_body_ends_with_them() {
    let body = wire(&reply_of(&["x"]));
    for chunked in [false, true] {
        for way in Way::ALL {
            let server = Server::start(vec![ended_at_once(&body, chunked); 5]).await;
            let client = server.client();
            for _ in 0..5 {
                assert_eq!(way.ask(&client, &hello()).await.unwrap().text(), "x");
            }
            assert_eq!(server.connections_opened(), 1, "chunked {chunked} {way:?}");
            server.finish().unwrap();
        }
    }
}

#[tokio::test]
async fn a_connection_whose_body_did_not_end_is_not_used_again() {
    let (shut, whole) = (Gate::new(), reply_of(&["x"]));
    let server = Server::start([
        Reply::events(whole.clone()).hold_after_events(whole.len(), &shut),
        Reply::events(reply_of(&["second"])),
    ])
    .await;
    let client = server.client();
    in_time(async {
        assert_eq!(client.create_streamed(&hello()).await.unwrap().text(), "x");
        assert_eq!(client.create_streamed(&hello()).await.unwrap().text(), "second");
    })
    .await;
    assert_eq!((server.connections_opened(), server.request_count()), (2, 2));
}

/// Two blocks, both of which must be whole.
fn two_blocks() -> Vec<Value> {
    vec![
        begin(),
        text_block(0),
        text(0, "half"),
        text(0, " and half"),
        close(0),
        call_block(1, "t1", "pay"),
        input(1, r#"{"a""#),
        input(1, ":1}"),
        close(1),
        ping(),
        end("tool_use"),
        ping(),
        stop(),
    ]
}

#[tokio::test]
async fn a_body_without_message_stop_is_whole_only_behind_the_stop_reason() {
    let whole = two_blocks();
    let plain = Server::start([Reply::events(whole.clone())]).await;
    let plain = plain.client().create_streamed(&hello()).await.unwrap();
    let is_end = |event: &Value| event["type"] == "message_delta";
    let ended = whole.iter().position(is_end).unwrap() + 1;
    let mut classes = Classes::default();
    for events in 0..=whole.len() {
        let some = whole[..events].to_vec();
        for (name, reply) in [
            ("the body ends", Reply::events(some.clone())),
            ("the connection ends", Reply::events(some.clone()).close()),
            ("the body breaks off", Reply::events(some.clone()).cut_after(114 + chunks(&some))),
        ] {
            for way in Way::ALL {
                let server = Server::start([reply.clone()]).await;
                let outcome = in_time(way.ask(&server.client(), &hello())).await;
                let case = format!("{name} behind {events} events, {way:?}: {outcome:?}");
                if events >= ended {
                    assert_eq!(outcome.expect(&case).json(), plain.json(), "{case}");
                    classes.add(if events == whole.len() { "whole" } else { "whole but for message_stop" });
                    continue;
                }
                let error = outcome.expect_err(&case);
                let empty = events == 0 && name != "the body breaks off";
                let kind = if empty { ErrorKind::Decode } else { ErrorKind::Transport };
                assert_eq!((error.kind(), error.is_retryable()), (kind, true), "{case}");
                assert_eq!((error.status(), error.request_id()), (Some(200), Some("req_1")), "{case}");
                let partial = error.partial_message();
                assert_eq!(partial.is_some(), events > 0, "{case}");
                let so_far = ["", "", "", "half"].get(events).copied().unwrap_or("half and half");
                assert_eq!(partial.map(Message::text).unwrap_or_default(), so_far, "{case}");
                assert_eq!(partial.map_or(0, |partial| partial.content().len()), blocks(&some), "{case}");
                classes.add(if empty { "empty" } else { "cut" });
            }
        }
    }
    println!("{classes:?}");
    assert!(classes.of("whole but for message_stop") > 0 && classes.of("empty") > 0);
}

/// How long events are in chunks of their own.
fn chunks(events: &[Value]) -> usize {
    let chunk = |event: &Value| {
        let length = wire(std::slice::from_ref(event)).len();
        format!("{length:x}\r\n\r\n").len() + length
    };
    events.iter().map(chunk).sum()
}

fn blocks(events: &[Value]) -> usize {
    types(events).iter().filter(|kind| **kind == "content_block_start").count()
}

#[tokio::test]
async fn without_message_stop_a_block_that_is_open_is_no_end_whatever_the_stop_reason() {
    for reason in ["tool_use", "end_turn", "max_tokens", "refusal", "brand_new"] {
        let open = vec![begin(), call_block(0, "t1", "pay"), input(0, "{}"), end(reason)];
        // And a block that is closed without a stop reason.
        let closed = [&open[..3], &[close(0)]].concat();
        for events in [open, closed] {
            for way in Way::ALL {
                let server = Server::start([Reply::events(events.clone())]).await;
                let error = way.ask(&server.client(), &hello()).await.unwrap_err();
                assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Transport, true), "{reason}");
                assert_eq!(error.partial_message().unwrap().content().len(), 1);
            }
        }
    }
}

#[tokio::test]
async fn the_events_of_a_reply_without_message_stop_end_without_an_error() {
    let whole = two_blocks();
    let server = Server::start([Reply::events(whole[..whole.len() - 1].to_vec())]).await;
    let mut stream = server.client().stream(&hello()).await.unwrap();
    let (events, error) = read(&mut stream).await;
    assert!(error.is_none());
    assert_eq!(kinds(&events), types(&whole[..whole.len() - 1]), "and none is made up");
    assert!(stream.next().await.is_none());
    assert_eq!(stream.final_message().await.unwrap().tool_uses().count(), 1);
}
