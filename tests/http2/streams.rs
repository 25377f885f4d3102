//! Streamed replies over TLS and HTTP/2, seen from the server's side.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use agentloop::{ErrorKind, MessageRequest};
use http::Version;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;
use crate::server::Server;
use crate::{client, long_text};

fn events(pieces: &[&str]) -> Vec<Value> {
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    let text = |text: &&str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
    let mut events = vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ];
    events.extend(pieces.iter().map(text));
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ]);
    events
}

/// The beginning of a reply, up to the middle of its text.
fn half() -> Vec<Value> {
    events(&["Par", "t"])[..3].to_vec()
}

fn hello() -> MessageRequest {
    MessageRequest::from("Hello").max_retries(0)
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), work).await.expect("it should not hang")
}

/// The connection goes on: it takes one more request.
async fn goes_on(server: &Server, client: &agentloop::Client, requests: usize, abandoned: usize) {
    in_time(server.until(|counts| counts.abandoned == abandoned)).await;
    assert_eq!(client.create(&"Hello".into()).await.unwrap().text(), "ok");
    let counts = server.counts();
    assert_eq!((counts.opened, counts.closed, counts.requests), (1, 0, requests));
    assert_eq!(counts.abandoned, abandoned);
}

#[tokio::test]
async fn streams_in_a_row_come_whole_over_one_connection() {
    let long = long_text();
    let (one, two) = long.split_at(long.find(" ").unwrap() + 1);
    let server = Server::start([
        Answer::events(&events(&["é漢", "😀"])),
        // More than any window holds.
        Answer::events(&events(&[one, two])),
        Answer::events(&events(&["third"])),
    ])
    .await;
    let client = client(&server);
    let mut stream = client.stream(&hello()).await.unwrap();
    assert_eq!(stream.request_id(), Some("req_h"));
    let mut kinds = Vec::new();
    while let Some(event) = stream.next().await {
        kinds.push(event.unwrap().kind().to_owned());
    }
    let expected = events(&["", ""]);
    assert_eq!(kinds, expected.iter().map(|event| event["type"].as_str().unwrap()).collect::<Vec<_>>());
    assert_eq!(stream.final_message().await.unwrap().text(), "é漢😀");
    assert!(client.create_streamed(&hello()).await.unwrap().text() == long);
    assert_eq!(client.create_streamed(&hello()).await.unwrap().text(), "third");
    let seen = server.seen();
    assert!(seen.iter().all(|seen| seen.version == Version::HTTP_2));
    assert!(seen.iter().all(|seen| seen.header("accept-encoding").is_none()));
    let counts = server.counts();
    assert_eq!((counts.opened, counts.requests), (1, 3));
}

#[tokio::test]
async fn dropping_a_stream_resets_it_and_the_connection_goes_on() {
    // How many events come, and how many of them are read.
    for (come, read) in [(0, 0), (1, 1), (3, 1), (3, 3)] {
        for asked in [false, true] {
            let first = match come {
                0 => Answer::events(&[]),
                come => Answer::events(&half()[..come]),
            };
            let server = Server::start([first.stall(), Answer::text("ok")]).await;
            let client = client(&server);
            let request = hello();
            {
                let mut call = pin!(client.stream(&request));
                if read == 0 {
                    tokio::select! {
                        biased;
                        opened = call.as_mut() => panic!("{opened:?}"),
                        () = server.until(|counts| counts.requests == 1) => {}
                    }
                } else {
                    let mut stream = call.await.unwrap();
                    for _ in 0..read {
                        stream.next().await.unwrap().unwrap();
                    }
                    if asked && come == read {
                        let mut next = pin!(stream.next());
                        assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
                    }
                }
                assert_eq!(server.counts().abandoned, 0, "not yet");
            }
            goes_on(&server, &client, 2, 1).await;
        }
    }
}

#[tokio::test]
async fn a_stream_that_stalls_is_reset_and_the_connection_goes_on() {
    let idle = Duration::from_millis(300);
    for (come, phase) in [(0, "no event of the stream had come yet"), (3, "reading the response body")] {
        let server = Server::start([Answer::events(&half()[..come]).stall(), Answer::text("ok")]).await;
        let client = client(&server);
        let error = in_time(client.create_streamed(&hello().idle_timeout(idle))).await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Timeout, Some(200)), "{error:?}");
        assert!(error.to_string().contains(phase) && error.to_string().contains("`idle_timeout`"), "{error}");
        assert_eq!(error.request_id(), Some("req_h"));
        assert_eq!(error.partial_message().map(|partial| partial.text()), (come > 0).then(|| "Par".into()));
        goes_on(&server, &client, 2, 1).await;
    }
}

#[tokio::test]
async fn nothing_is_awaited_behind_message_stop() {
    let server = Server::start([Answer::events(&events(&["x"])).stall(), Answer::text("ok")]).await;
    let client = client(&server);
    assert_eq!(in_time(client.create_streamed(&hello())).await.unwrap().text(), "x");
    goes_on(&server, &client, 2, 1).await;
}

#[tokio::test]
async fn a_stream_that_is_reset_or_ends_early_is_an_error_and_a_collected_one_is_retried() {
    for is_reset in [true, false] {
        let told = [CancellationToken::new(), CancellationToken::new()];
        let broken = |told: &CancellationToken| match is_reset {
            true => Answer::events(&half()).reset_when(told),
            false => Answer::events(&half()),
        };
        let whole = Answer::events(&events(&["whole"]));
        let server = Server::start([broken(&told[0]), broken(&told[1]), whole, Answer::text("ok")]).await;
        let client = client(&server);
        let mut stream = client.stream(&hello().max_retries(3)).await.unwrap();
        for _ in 0..half().len() {
            stream.next().await.unwrap().unwrap();
        }
        told[0].cancel();
        let error = in_time(stream.next()).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.status(), error.attempts()), (ErrorKind::Transport, Some(200), 1));
        assert!(error.is_retryable() && error.request_id() == Some("req_h"), "{error:?}");
        assert_eq!(error.partial_message().unwrap().text(), "Par");
        assert_eq!(server.counts().requests, 1, "nothing is asked for again");

        let request = hello().max_retries(1);
        let breaks = async {
            server.until(|counts| counts.requests == 2).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            told[1].cancel();
        };
        let (message, ()) = in_time(async { tokio::join!(client.create_streamed(&request), breaks) }).await;
        assert_eq!(message.unwrap().text(), "whole");
        goes_on(&server, &client, 4, 0).await;
    }
}

#[tokio::test]
async fn a_stream_that_stalls_holds_no_other_up() {
    let barrier = Arc::new(Barrier::new(2));
    let server = Server::start([
        Answer::text("ok"),
        Answer::events(&half()).stall().meet(&barrier),
        Answer::events(&half()).stall().meet(&barrier),
        Answer::events(&events(&["x"])),
        Answer::text("ok"),
    ])
    .await;
    let client = client(&server);
    client.create(&"Hello".into()).await.unwrap();
    let request = hello();
    let (one, two) = tokio::join!(client.stream(&request), client.stream(&request));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(in_time(client.create_streamed(&request)).await.unwrap().text(), "x");
    drop(one);
    in_time(server.until(|counts| counts.abandoned == 1)).await;
    drop(two);
    goes_on(&server, &client, 5, 2).await;
}
