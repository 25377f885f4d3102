//! Errors that the API sends in a stream, and what errors show.

use agentloop::testing::{Reply, Server};
use agentloop::{Client, Error, ErrorKind, Message};
use serde_json::{Value, json};

use crate::{Classes, Way, begin, builder, close, end, hello, ping, read, text, text_block, wire};

/// What stands before an error: its name, the events, and the text of the reply so far.
fn places() -> Vec<(&'static str, Vec<Value>, Option<&'static str>)> {
    let open = vec![begin(), text_block(0), text(0, "Par")];
    let with = |more: &[Value]| [&open[..], more].concat();
    vec![
        ("first", vec![], None),
        ("after a ping", vec![ping(), json!({"type": "future_event"})], None),
        ("after the start", vec![begin()], Some("")),
        ("mid-text", open.clone(), Some("Par")),
        ("between blocks", with(&[close(0)]), Some("Par")),
        ("in place of the end", with(&[close(0), end("end_turn")]), Some("Par")),
    ]
}

/// An error as it stands on the wire, what the error of the client says, and a word of its text.
type Told = (&'static str, Option<&'static str>, bool, &'static str);

const FAILURES: &[Told] = &[
    (
        r#"event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_body"}"#,
        Some("overloaded_error"),
        true,
        "overloaded_error: Overloaded",
    ),
    (
        r#"event: error
data: {"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#,
        Some("rate_limit_error"),
        true,
        "rate_limit_error: slow down",
    ),
    (
        r#"data: {"type":"error","error":{"type":"api_error","message":"m1"}}"#,
        Some("api_error"),
        true,
        "api_error: m1",
    ),
    (
        r#"event: error
data: {"type":"error","error":{"type":"invalid_request_error","message":"m2"}}"#,
        Some("invalid_request_error"),
        false,
        "invalid_request_error: m2",
    ),
    (
        r#"event: error
data: {"type":"error","error":{"type":"new_error_kind","message":"m3"}}"#,
        Some("new_error_kind"),
        false,
        "new_error_kind: m3",
    ),
    (
        r#"event: error
data: {"type":"error","error":{"type":"rate_limit_error","message":"m4","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
        Some("rate_limit_error"),
        false,
        "rate_limit_error: m4",
    ),
    // llama.cpp's form, with and without a name of the event.
    (
        r#"event: error
data: {"code":400,"message":"m5","type":"x"}"#,
        Some("x"),
        false,
        "x: m5",
    ),
    (
        r#"event: error
data: {"error":{"type":"overloaded_error","message":"m6"}}"#,
        Some("overloaded_error"),
        true,
        "overloaded_error: m6",
    ),
    ("event: error\ndata: upstream died", None, false, "with an error in the stream: upstream died"),
    ("event: error\ndata: {\"error\":\"SENTINEL\"}", None, false, "with an error in the stream"),
    ("event: error\ndata: [\"SENTINEL\"]", None, false, "with an error in the stream"),
    ("event: error\ndata:", None, false, "with an error in the stream"),
];

fn shown(error: &Error) -> String {
    format!("{error} {error:?} {error:#?} {}", error.chain())
}

#[tokio::test]
async fn an_error_event_is_the_apis_error_wherever_it_stands() {
    let mut classes = Classes::default();
    let mut cases = 0;
    for (told, api_type, retryable, word) in FAILURES {
        for (place, before, so_far) in places() {
            // What comes behind it changes nothing.
            let body = wire(&before) + told + "\n\n" + &wire(&[text(0, "more")]);
            let server = Server::start(vec![Reply::sse(body); Way::ALL.len()]).await;
            for way in Way::ALL {
                let error = way.ask(&server.client(), &hello()).await.unwrap_err();
                let name = format!("{told} {place} {way:?}: {error:?}");
                assert_eq!((error.kind(), error.status()), (ErrorKind::Api, Some(200)), "{name}");
                assert_eq!((error.api_type(), error.is_retryable()), (*api_type, *retryable), "{name}");
                assert_eq!(error.is_overloaded(), *api_type == Some("overloaded_error"));
                assert_eq!(error.is_rate_limit(), *api_type == Some("rate_limit_error"));
                assert_eq!(error.attempts(), 1);
                // The header's, which is there in each of these.
                assert_eq!(error.request_id(), Some(&*format!("req_{}", server.request_count())), "{name}");
                assert_eq!(error.partial_message().map(Message::text).as_deref(), so_far, "{name}");
                assert!(error.to_string().contains(word), "{name}");
                assert!(!shown(&error).contains("SENTINEL") && !shown(&error).contains("Par"), "{name}");
                classes.add(place);
                cases += 1;
            }
            server.finish().unwrap();
        }
    }
    println!("{cases} cases: {classes:?}");
    assert_eq!(cases, FAILURES.len() * places().len() * Way::ALL.len());
}

#[tokio::test]
async fn the_request_id_of_an_error_event_counts_where_the_header_is_missing() {
    let told =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"m"},"request_id":"req_body"}"#;
    for before in [vec![], vec![begin()]] {
        let body = wire(&before) + &format!("event: error\ndata: {told}\n\n");
        let reply = Reply::raw(200, [("content-type", "text/event-stream")], body);
        let server = Server::start([reply]).await;
        let error = Way::Stream.ask(&server.client(), &hello()).await.unwrap_err();
        assert_eq!(error.request_id(), Some("req_body"));
    }
}

#[tokio::test]
async fn a_stream_that_failed_stays_failed() {
    let told = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let server =
        Server::start(vec![
            Reply::events([begin(), text_block(0), text(0, "Par"), told, text(0, "more")]);
            2
        ])
        .await;
    let client = server.client();
    let mut stream = client.stream(&hello()).await.unwrap();
    let (events, error) = read(&mut stream).await;
    assert_eq!(events.len(), 3);
    let error = error.unwrap();
    assert!(stream.next().await.is_none() && stream.next().await.is_none());
    assert_eq!(stream.snapshot().unwrap().text(), "Par");
    let again = stream.final_message().await.unwrap_err();
    assert_eq!((again.to_string(), again.attempts()), (error.to_string(), 1));
    assert_eq!(again.partial_message().unwrap().text(), "Par");
    let mut texts = client.stream(&hello()).await.unwrap().text_stream();
    assert_eq!(texts.next().await.unwrap().unwrap(), "Par");
    assert!(texts.next().await.unwrap().unwrap_err().is_overloaded());
    assert!(texts.next().await.is_none());
    assert!(texts.final_message().await.unwrap_err().is_overloaded());
}

const KEY: &str = "sk-ant-SENTINEL-0123456789";

/// Keys that came back in an error, as they are and escaped.
fn echoes() -> Vec<String> {
    let escaped = KEY.replace('-', "\\u002d");
    vec![
        format!(
            r#"{{"type":"error","error":{{"type":"authentication_error","message":"no such key: {KEY}"}}}}"#
        ),
        format!(r#"{{"type":"error","error":{{"type":"api_error","message":"x-api-key={escaped}; x"}}}}"#),
        format!(r#"{{"code":400,"message":"{KEY}","type":"x"}}"#),
        format!("your request had x-api-key: {KEY}"),
        format!(r#"{{"x-own":"{KEY}"}}"#),
    ]
}

async fn errors_of(client: &Client, texts: &mut String) -> usize {
    let mut count = 0;
    for way in Way::ALL {
        let error = way.ask(client, &hello()).await.unwrap_err();
        texts.push_str(&shown(&error));
        texts.push_str(&error.api_error().map(|api| format!("{} {api:?}", api.message)).unwrap_or_default());
        count += 1;
    }
    count
}

#[tokio::test]
async fn errors_and_streams_show_neither_the_reply_nor_a_key_that_came_back() {
    let reply = "REPLY-SENTINEL";
    let before = [vec![], vec![begin(), text_block(0), text(0, reply)]];
    let mut bodies = Vec::new();
    for before in &before {
        bodies.extend(echoes().iter().map(|echo| wire(before) + &format!("event: error\ndata: {echo}\n\n")));
        // And streams that break in other ways.
        for rest in
            ["", "data: {\"REPLY-SENTINEL\n\n", "event: content_block_delta\ndata: [\"REPLY-SENTINEL\"]\n\n"]
        {
            bodies.push(wire(before) + rest);
        }
    }
    let mut replies: Vec<_> = bodies.iter().map(|body| Reply::sse(body.clone())).collect();
    replies.extend(
        echoes().iter().map(|echo| Reply::raw(200, [("content-type", "application/json")], echo.as_str())),
    );
    replies.push(Reply::raw(200, [("content-type", "text/html")], format!("<p>{KEY}</p>")));
    let asked: Vec<_> = replies.iter().flat_map(|reply| vec![reply.clone(); Way::ALL.len()]).collect();
    let server = Server::start(asked).await;
    let client = builder(&server).api_key(KEY).header("x-own", KEY).max_retries(0).build().unwrap();
    let (mut texts, mut count) = (String::new(), 0);
    for _ in &replies {
        count += errors_of(&client, &mut texts).await;
    }

    let server = Server::start(vec![Reply::events([begin(), text_block(0), text(0, reply)]); 2]).await;
    let client = builder(&server).api_key(KEY).header("x-own", KEY).build().unwrap();
    let mut stream = client.stream(&hello()).await.unwrap();
    for _ in 0..3 {
        texts.push_str(&format!("{stream:?} {stream:#?}"));
        stream.next().await.unwrap().unwrap();
    }
    texts.push_str(&format!("{stream:?} {stream:#?}"));
    texts.push_str(&format!("{:?}", stream.text_stream()));

    let at = texts.find("SENTINEL").map(|at| &texts[at.saturating_sub(200)..texts.len().min(at + 50)]);
    assert_eq!(at, None);
    // What was looked at is what could have shown it.
    assert!(texts.contains("no such key: [redacted]") && texts.contains("<p>"), "{texts}");
    assert!(texts.contains("partial_blocks: 1") && texts.contains("MessageStream"), "{texts}");
    println!("{count} errors, {} bytes of text", texts.len());
}
