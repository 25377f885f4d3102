//! Responses that are no stream, and streams that are no reply.

use agentloop::testing::{Gate, Reply, Server};
use agentloop::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::{
    Classes, Way, begin, builder, close, delta, end, hello, in_time, ping, reply_of, stop, text, text_block,
    wire,
};

const SECRET: &str = "SENTINEL";

/// The error of one attempt, the same whichever way it is asked for.
async fn error_of(reply: Reply, max_event_bytes: Option<usize>) -> Error {
    let server = Server::start(vec![reply; Way::ALL.len()]).await;
    let mut builder = builder(&server).max_retries(0);
    if let Some(bytes) = max_event_bytes {
        builder = builder.max_event_bytes(bytes);
    }
    let client = builder.build().unwrap();
    let mut errors = Vec::new();
    for way in Way::ALL {
        let error = way.ask(&client, &hello()).await.unwrap_err();
        let id = format!("req_{}", server.request_count());
        assert!(error.request_id().is_none_or(|named| named == id), "{error:?}");
        assert_eq!(error.attempts(), 1);
        let facts = (error.kind(), error.status(), error.api_type().map(str::to_owned), error.is_retryable());
        let partial = error.partial_message().map(|message| message.json().to_owned());
        errors.push((facts, partial, error.chain().replace(&id, "req_N"), error));
    }
    for other in &errors[1..] {
        assert_eq!((&other.0, &other.1, &other.2), (&errors[0].0, &errors[0].1, &errors[0].2));
    }
    server.finish().unwrap();
    errors.swap_remove(0).3
}

fn shown(error: &Error) -> String {
    format!("{error} {error:?} {error:#?} {}", error.chain())
}

#[tokio::test]
async fn a_response_that_is_no_stream_is_a_typed_error() {
    let mut classes = Classes::default();
    let message = format!(r#"{{"type":"message","content":[{{"type":"text","text":"{SECRET}"}}]}}"#);
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;
    let gateway = r#"{"error":{"type":"invalid_request_error","message":"busy"}}"#;
    let (decode, api) = (ErrorKind::Decode, ErrorKind::Api);
    // Content type, body, kind, the API's type, retryable, and a word of the text.
    for (content_type, body, kind, api_type, retryable, word) in [
        ("text/html", "<html>login</html>", decode, None, false, "text/html: <html>login</html>"),
        ("text/html; charset=utf-8", "", decode, None, true, "empty body"),
        ("application/json", &message, decode, None, false, "with application/json"),
        ("Application/JSON; charset=utf-8", &message, decode, None, false, "with application/json"),
        ("application/json", "", decode, None, true, "empty body"),
        ("application/json", " \r\n", decode, None, true, "empty body"),
        ("application/json", "[", decode, None, false, "with application/json"),
        ("application/json", overloaded, api, Some("overloaded_error"), true, "busy"),
        ("text/plain", overloaded, api, Some("overloaded_error"), true, "busy"),
        // Called a stream, and none.
        ("text/event-stream", overloaded, api, Some("overloaded_error"), true, "busy"),
        ("text/event-stream", gateway, api, Some("invalid_request_error"), false, "busy"),
        ("text/event-stream", &message, decode, None, false, "holds no event"),
        ("text/event-stream", "<html>\nlogin\n\n</html>\n", decode, None, false, "holds no event"),
        ("application/json", gateway, api, Some("invalid_request_error"), false, "busy"),
        ("text/event-stream-not", "data: x\n\n", decode, None, false, "text/event-stream-not"),
        ("text/event-stream", "", decode, None, true, "empty body"),
    ] {
        let reply = Reply::raw(200, [("content-type", content_type)], body);
        let error = error_of(reply, None).await;
        assert_eq!((error.kind(), error.status()), (kind, Some(200)), "{content_type} {body}");
        assert_eq!((error.api_type(), error.is_retryable()), (api_type, retryable), "{content_type} {body}");
        assert_eq!(error.header("content-type"), Some(content_type));
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.partial_message().is_none() && !shown(&error).contains(SECRET), "{error:?}");
        if kind == decode && !retryable {
            assert!(error.chain().contains("text/event-stream) was asked for"), "{}", error.chain());
        }
        classes.add(format!("{kind:?}, retryable {retryable}"));
    }
    println!("{classes:?}");
}

#[tokio::test]
async fn the_id_of_the_request_is_in_the_error_of_a_response_that_is_no_stream() {
    for reply in [
        Reply::json_text("[]"),
        Reply::raw(200, [("content-type", "text/html"), ("request-id", "req_1")], "x"),
        Reply::sse(""),
        Reply::events([begin(), begin()]),
    ] {
        let server = Server::start([reply]).await;
        let error = Way::Stream.ask(&server.client(), &hello()).await.unwrap_err();
        assert_eq!(error.request_id(), Some("req_1"));
        assert!(error.to_string().ends_with("(request id req_1)"), "{error}");
    }
}

#[tokio::test]
async fn a_content_type_counts_without_its_parameters_and_letter_case() {
    for content_type in [
        "text/event-stream",
        "text/event-stream; charset=utf-8",
        "text/event-stream;charset=UTF-8",
        "Text/Event-Stream",
        "TEXT/EVENT-STREAM ; x=y",
        "",
    ] {
        let body = wire(&reply_of(&["x"]));
        let headers = if content_type.is_empty() { vec![] } else { vec![("content-type", content_type)] };
        let server = Server::start(vec![Reply::raw(200, headers, body); Way::ALL.len()]).await;
        for way in Way::ALL {
            let message = way.ask(&server.client(), &hello()).await.unwrap();
            assert_eq!(message.text(), "x", "{content_type} {way:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_in_answer_to_a_plain_request_is_a_typed_error_at_once() {
    let shut = Gate::new();
    let server = Server::start([Reply::events(reply_of(&[SECRET])).hold_after_events(3, &shut)]).await;
    let error = in_time(server.client().create(&hello())).await.unwrap_err();
    assert_eq!((error.kind(), error.status(), error.is_retryable()), (ErrorKind::Decode, Some(200), false));
    assert_eq!(error.request_id(), Some("req_1"));
    assert!(error.to_string().contains("text/event-stream") && !shown(&error).contains(SECRET), "{error}");
    server.wait_for_open_connections(0).await;
}

#[tokio::test]
async fn a_coded_stream_is_refused_and_not_read_as_text() {
    for (coding, is_coded) in
        [("gzip", true), ("BR", true), ("gzip, identity", true), ("identity", false), ("", false)]
    {
        let reply = || Reply::events(reply_of(&[SECRET])).header("content-encoding", coding);
        if !is_coded {
            let server = Server::start([reply()]).await;
            assert_eq!(Way::Stream.ask(&server.client(), &hello()).await.unwrap().text(), SECRET);
            continue;
        }
        let error = error_of(reply(), None).await;
        assert_eq!((error.kind(), error.status()), (ErrorKind::Decode, Some(200)));
        assert!(!error.is_retryable() && error.partial_message().is_none());
        let text = format!("content encoding {}", coding.to_lowercase());
        assert!(error.to_string().contains(&text) && !shown(&error).contains(SECRET), "{error}");
    }
}

/// What is wrong in a stream, how it is spelled, and a word of the error.
fn broken() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let bytes = |events: &[Value]| wire(events).into_bytes();
    let data = |data: &str| format!("data: {data}\n\n").into_bytes();
    let mut no_utf8 = bytes(&[text(0, "?")]);
    let at = no_utf8.iter().rposition(|byte| *byte == b'?').unwrap();
    no_utf8[at] = 0xff;
    let started = |kind: &str, rest: &str| data(&format!(r#"{{"type":"{kind}"{rest}}}"#));
    vec![
        ("bytes that are no UTF-8", no_utf8, "is not UTF-8"),
        (
            "a known event that is no JSON",
            format!("event: content_block_delta\ndata: {{\"x\":{SECRET}\n\n").into(),
            "content_block_delta is not a JSON object",
        ),
        ("an event that is no JSON and has no name", data(SECRET), "without a name is not a JSON object"),
        ("an event without a type", data("{}"), "has no `type`"),
        ("an index that is none", started("content_block_stop", r#","index":"0""#), "has no `index`"),
        (
            "a delta without its text",
            started("content_block_delta", r#","index":0,"delta":{"type":"text_delta"}"#),
            "has no text `text`",
        ),
        ("a delta for a block that never began", bytes(&[text(3, SECRET)]), "block 3, which did not begin"),
        (
            "an unknown delta for a block that never began",
            bytes(&[delta(3, json!({"type": "future_delta"}))]),
            "block 3, which did not begin",
        ),
        ("the stop of a block that never began", bytes(&[close(3)]), "block 3, which did not begin"),
        ("a block out of turn", bytes(&[text_block(2)]), "block 2 began"),
        ("a second start", bytes(&[begin(), begin()]), "began a second time"),
        ("a stop while a block is open", bytes(&[end("end_turn"), stop()]), "block 0 was open"),
    ]
}

#[tokio::test]
async fn a_broken_event_is_a_typed_error_with_the_reply_so_far() {
    let mut classes = Classes::default();
    for (name, broken, word) in broken() {
        let needs_start = matches!(name, "a stop while a block is open" | "a second start");
        for mid_stream in [false, true] {
            if !mid_stream && needs_start {
                continue;
            }
            let before =
                if mid_stream { vec![begin(), text_block(0), text(0, SECRET), ping()] } else { vec![ping()] };
            let mut body = wire(&before).into_bytes();
            body.extend_from_slice(&broken);
            // What comes behind the broken event changes nothing.
            body.extend_from_slice(wire(&reply_of(&["more"])).as_bytes());
            let error = error_of(Reply::sse(body), None).await;
            assert_eq!(
                (error.kind(), error.status(), error.api_type()),
                (ErrorKind::Decode, Some(200), None)
            );
            assert!(!error.is_retryable(), "{name}");
            let is_early = error.to_string().contains("came before message_start");
            assert!(error.to_string().contains(word) || (!mid_stream && is_early), "{name}: {error}");
            let partial = error.partial_message().map(agentloop::Message::text);
            assert_eq!(partial.as_deref(), mid_stream.then_some(SECRET), "{name}");
            assert!(!shown(&error).contains(SECRET), "{name}: {}", shown(&error));
            classes.add(if mid_stream { "mid-stream" } else { "at first place" });
        }
    }
    println!("{classes:?}");
    assert!(classes.of("mid-stream") == broken().len() && classes.of("at first place") >= 10);
}

#[tokio::test]
async fn the_limit_of_an_event_is_exact_and_holds_before_the_event_ends() {
    let long = format!("event: content_block_delta\ndata: {}\n", text(0, &"x".repeat(2000)));
    let events = |piece: usize| {
        let body =
            wire(&[begin(), text_block(0)]) + &long + "\n" + &wire(&[close(0), end("end_turn"), stop()]);
        Reply::sse(body).in_pieces(piece)
    };
    for piece in [1, 64, usize::MAX] {
        let server = Server::start([events(piece)]).await;
        let client = builder(&server).max_retries(0).max_event_bytes(long.len()).build().unwrap();
        assert_eq!(Way::Stream.ask(&client, &hello()).await.unwrap().text().len(), 2000);
        let error = error_of(events(piece), Some(long.len() - 1)).await;
        assert_eq!(
            (error.kind(), error.status(), error.is_retryable()),
            (ErrorKind::TooLarge, Some(200), false)
        );
        let text = format!("longer than {} bytes (the limit of `max_event_bytes`)", long.len() - 1);
        assert!(error.to_string().contains(&text), "{error}");
        assert_eq!(error.partial_message().unwrap().text(), "");
    }
    // Nobody waits for the end of such an event, nor of such a line.
    for endless in ["data: ", "event: ", ": ", "data: x\ndata: "] {
        let shut = Gate::new();
        let body = wire(&[begin()]) + endless + &"x".repeat(5000);
        let reply = Reply::sse(body).in_pieces(1000).hold_after(4500, &shut);
        let error = in_time(error_of(reply, Some(3000))).await;
        assert!(error.to_string().contains("`max_event_bytes`"), "{endless}: {error}");
    }
}
