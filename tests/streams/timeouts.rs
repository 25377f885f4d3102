//! Limits of time. The clock is paused but for the last two tests, so the limits are exact.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use agentloop::testing::{Gate, Reply, Server};
use agentloop::{Client, ErrorKind, Message, MessageRequest};
use tokio::time::{Instant, sleep};

use crate::{
    Classes, TICK, Way, begin, builder, close, end, hello, ping, reply_of, stop, text, text_block, ticking,
    wire,
};

const IDLE: Duration = Duration::from_secs(1);

/// How far a time may be off: a few looks at the sockets.
const SLACK: Duration = Duration::from_millis(60);

fn client(server: &Server) -> Client {
    builder(server).max_retries(0).idle_timeout(IDLE).build().unwrap()
}

/// Works while the gates are opened one after another, with the same pause before each.
async fn opening<T>(gates: &[Gate], pause: Duration, work: impl Future<Output = T>) -> T {
    let open = async {
        for gate in gates {
            sleep(pause).await;
            gate.release();
        }
        std::future::pending::<()>().await;
    };
    ticking(async {
        tokio::select! {
            done = work => done,
            () = open => unreachable!(),
        }
    })
    .await
}

fn is_about(elapsed: Duration, expected: Duration) -> bool {
    elapsed >= expected && elapsed <= expected + SLACK
}

#[tokio::test(start_paused = true)]
async fn silence_is_measured_from_the_last_byte_and_the_error_tells_where() {
    let open = || vec![ping(), begin(), text_block(0), text(0, "Par"), text(0, "t")];
    let mut cases = 0;
    // How many events come, the last of them late; what the error tells, and the text so far.
    for (events, phase, so_far) in [
        (0, "no event of the stream had come yet", None),
        (1, "reading the response body", None),
        (2, "reading the response body", Some("")),
        (4, "reading the response body", Some("Par")),
        (5, "reading the response body", Some("Part")),
    ] {
        for way in Way::ALL {
            let (late, shut) = (Gate::new(), Gate::new());
            let reply = Reply::events(open()).hold_after_events(events, &shut);
            let reply = match events.checked_sub(1) {
                Some(before) => reply.hold_after_events(before, &late),
                None => reply.hold(&late),
            };
            let server = Server::start([reply]).await;
            let client = client(&server);
            let pause = IDLE * 3 / 4;
            let begun = Instant::now();
            let request = hello();
            let outcome = opening(std::slice::from_ref(&late), pause, way.ask(&client, &request)).await;
            let error = outcome.unwrap_err();
            let elapsed = begun.elapsed();
            assert!(is_about(elapsed, pause + IDLE), "{events} {way:?}: {elapsed:?}");
            assert_eq!((error.kind(), error.status()), (ErrorKind::Timeout, Some(200)), "{error:?}");
            assert!(error.is_timeout() && error.is_retryable());
            assert_eq!((error.request_id(), error.attempts()), (Some("req_1"), 1));
            let text = error.to_string();
            assert!(
                text.contains(phase) && text.contains("within 1s (the limit of `idle_timeout`)"),
                "{text}"
            );
            assert_eq!(error.partial_message().map(Message::text).as_deref(), so_far);
            ticking(server.wait_for_open_connections(0)).await;
            cases += 1;
        }
    }
    println!("{cases} cases");
}

#[tokio::test(start_paused = true)]
async fn whatever_comes_keeps_a_stream_alive() {
    const BYTES: usize = 12;
    let pause = IDLE * 9 / 10;
    let reply = reply_of(&["x"]);
    let body = wire(&reply);
    let pings = wire(&vec![ping(); BYTES]);
    let mut classes = Classes::default();
    // What comes between the pauses, and how long each is.
    for (name, filler) in [
        ("pings", pings.as_str()),
        ("comments", &": keep-alive\n\n".repeat(BYTES)),
        ("bytes of a comment", &format!(":{}\n", "x".repeat(BYTES - 2))),
        ("bytes of an event", &format!("event: {}\n", "y".repeat(BYTES - 8))),
    ] {
        // Before the reply begins, and in its middle.
        let start_ends = wire(&reply[..3]).len();
        for at in [0, start_ends] {
            let gates: Vec<_> = (0..BYTES).map(|_| Gate::new()).collect();
            let body = [&body[..at], filler, "\n", &body[at..]].concat();
            let piece = filler.len() / BYTES;
            // No chunks: the response is its head and the body.
            let mut held = Reply::sse(body).close();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nrequest-id: req_1\r\nconnection: close\r\n\r\n".len();
            for (number, gate) in gates.iter().enumerate() {
                held = held.hold_after(head + at + number * piece, gate);
            }
            let server = Server::start([held]).await;
            let client = client(&server);
            let begun = Instant::now();
            let (request, way) = (hello(), if at == 0 { Way::Stream } else { Way::Collected });
            let message = opening(&gates, pause, way.ask(&client, &request)).await;
            assert_eq!(message.unwrap().text(), "x", "{name} at {at}");
            let elapsed = begun.elapsed();
            assert!(is_about(elapsed, pause * BYTES as u32), "{name} at {at}: {elapsed:?}");
            classes.add(name);
        }
    }
    println!("{classes:?}, each for ten times the limit");
}

/// Polls the next event once and drops the future.
async fn look<T>(next: impl Future<Output = T>) -> Poll<T> {
    let mut next = Box::pin(next);
    poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_pauses_is_not_timed_out() {
    let events = reply_of(&["a", "b", "c"]);
    let mut classes = Classes::default();
    // Whether the reader asked for the event before it paused, and when that event comes.
    for asked in [false, true] {
        for (name, comes_after) in [("before the pause", None), ("in the pause", Some(IDLE * 2))] {
            for at in 1..events.len() {
                let gate = Gate::new();
                let server =
                    Server::start([Reply::events(events.clone()).hold_after_events(at, &gate)]).await;
                let client = client(&server);
                ticking(async {
                    let mut stream = client.stream(&hello()).await.unwrap();
                    for _ in 0..at {
                        stream.next().await.unwrap().unwrap();
                    }
                    if asked {
                        assert!(look(stream.next()).await.is_pending());
                    }
                    match comes_after {
                        Some(wait) => sleep(wait).await,
                        None => sleep(TICK * 5).await,
                    }
                    gate.release();
                    sleep(IDLE * 3).await;
                    let next = stream.next().await.unwrap().unwrap();
                    assert_eq!(next.kind(), events[at]["type"]);
                    assert_eq!(stream.final_message().await.unwrap().text(), "abc");
                })
                .await;
                classes.add(format!("asked {asked}, it came {name}"));
            }
        }
    }
    println!("{classes:?}");
}

#[tokio::test(start_paused = true)]
async fn the_pause_of_a_reader_is_no_part_of_the_silence_after_it() {
    let events = reply_of(&["a"]);
    for held in [2, 3, 4] {
        let gate = Gate::new();
        let server = Server::start([Reply::events(events.clone()).hold_after_events(held, &gate)]).await;
        let client = client(&server);
        ticking(async {
            let mut stream = client.stream(&hello()).await.unwrap();
            for _ in 0..held {
                stream.next().await.unwrap().unwrap();
                sleep(IDLE * 2).await;
            }
            let begun = Instant::now();
            let error = stream.next().await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            let elapsed = begun.elapsed();
            assert!(is_about(elapsed, IDLE), "{elapsed:?}");
        })
        .await;
    }
}

/// A reply of which an event comes every half second, for more than a minute.
fn long_reply() -> (Reply, Vec<Gate>) {
    let mut events = vec![begin(), text_block(0)];
    events.extend((0..150).map(|_| text(0, "x")));
    events.extend([close(0), end("end_turn"), stop()]);
    let gates: Vec<_> = (0..150).map(|_| Gate::new()).collect();
    let held = |reply: Reply, (at, gate): (usize, &Gate)| reply.hold_after_events(at + 2, gate);
    (gates.iter().enumerate().fold(Reply::events(events), held), gates)
}

#[tokio::test(start_paused = true)]
async fn a_total_limit_ends_a_stream_that_goes_on() {
    for way in Way::ALL {
        for of_request in [false, true] {
            let (reply, gates) = long_reply();
            let server = Server::start([reply]).await;
            let limit = Duration::from_millis(10_250);
            let mut builder = builder(&server).idle_timeout(IDLE).max_retries(2);
            let mut request = MessageRequest::from("Hello");
            match of_request {
                true => request = request.timeout(limit),
                false => builder = builder.timeout(limit),
            }
            let client = builder.build().unwrap();
            let begun = Instant::now();
            let outcome = opening(&gates, IDLE / 2, way.ask(&client, &request)).await;
            let error = outcome.unwrap_err();
            let elapsed = begun.elapsed();
            assert!(is_about(elapsed, limit), "{way:?}: {elapsed:?}");
            assert_eq!((error.kind(), error.attempts()), (ErrorKind::Timeout, 1), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("as a whole") && text.contains("`timeout`"), "{text}");
            assert_eq!(error.partial_message().unwrap().text(), "x".repeat(20));
            assert_eq!((error.status(), error.request_id()), (Some(200), Some("req_1")));
            ticking(server.wait_for_open_connections(0)).await;
            assert_eq!(server.request_count(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_total_limit_counts_from_the_call_and_not_from_the_stream() {
    for way in Way::ALL {
        for events in [0, 2] {
            let (late, shut) = (Gate::new(), Gate::new());
            let reply = Reply::events([begin(), text_block(0)]).hold_after_events(2, &shut);
            let reply = if events == 0 { reply.hold(&late) } else { reply.hold_after_events(1, &late) };
            let server = Server::start([reply]).await;
            let client = builder(&server).timeout(IDLE * 3).max_retries(0).build().unwrap();
            let (begun, request) = (Instant::now(), hello());
            let outcome = opening(&[late], IDLE * 2, way.ask(&client, &request)).await;
            let elapsed = begun.elapsed();
            assert!(is_about(elapsed, IDLE * 3), "{way:?}: {elapsed:?}");
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Timeout);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_total_limit_covers_all_attempts_and_its_error_has_the_one_before() {
    let open = [begin(), text_block(0), text(0, "Par")];
    for way in Way::ALL {
        for events in [0, 1, 3] {
            let shut = Gate::new();
            let silent = Reply::events(open.clone()).hold_after_events(events, &shut);
            let server = Server::start([Reply::error(503, "api_error", "no"), silent]).await;
            let client = builder(&server).timeout(IDLE * 3).build().unwrap();
            let begun = Instant::now();
            let error = ticking(way.ask(&client, &hello())).await.unwrap_err();
            let elapsed = begun.elapsed();
            assert!(is_about(elapsed, IDLE * 3), "{way:?} {events}: {elapsed:?}");
            assert_eq!((error.kind(), error.attempts()), (ErrorKind::Timeout, 2), "{error:?}");
            assert!(error.to_string().contains("within 3s (the limit of `timeout`)"), "{error}");
            // The attempt before is over once the stream has begun.
            let is_told = error.chain().contains("503");
            assert!(is_told || (way != Way::Collected && events > 0), "{way:?} {events}: {}", error.chain());
            assert_eq!(error.partial_message().is_some(), events > 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_total_limit_a_stream_goes_on_for_longer_than_any_idle_limit() {
    let (reply, gates) = long_reply();
    let server = Server::start([reply]).await;
    let client = client(&server);
    let message = opening(&gates, IDLE / 2, client.create_streamed(&hello())).await;
    assert_eq!(message.unwrap().text().len(), 150);
}
