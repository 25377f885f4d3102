//! What a response that is no reply becomes.

use agentloop::{Error, ErrorKind};

use crate::server::{OK, Reply, Server};
use crate::{builder, client};

/// The error of one attempt, with no retry to blur it.
async fn error(reply: Reply) -> Error {
    let server = Server::start([reply]);
    let error = builder(&server).max_retries(0).build().unwrap().create(&"Hello".into()).await.unwrap_err();
    assert_eq!((server.seen().len(), error.attempts()), (1, 1));
    error
}

#[tokio::test]
async fn the_apis_error_keeps_everything() {
    let body = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down","details":{"error_code":"ramp_limit_exceeded"}},"request_id":"req_body"}"#;
    let headers = [
        ("content-type", "application/json"),
        ("request-id", "req_head"),
        ("retry-after", "171"),
        ("anthropic-ratelimit-tokens-remaining", "7000"),
        ("set-cookie", "a=b"),
    ];
    let error = error(Reply::new(429, &headers, body)).await;
    assert_eq!((error.kind(), error.status()), (ErrorKind::Api, Some(429)));
    assert_eq!(error.api_type(), Some("rate_limit_error"));
    assert_eq!(error.api_error().unwrap().error_code(), Some("ramp_limit_exceeded"));
    assert_eq!(error.request_id(), Some("req_head"));
    assert_eq!(error.retry_after().unwrap().as_secs(), 171);
    assert_eq!(error.header("Anthropic-RateLimit-Tokens-Remaining"), Some("7000"));
    assert_eq!(error.header("set-cookie"), None);
    assert!(error.is_rate_limit() && error.is_retryable());
    assert_eq!(
        error.to_string(),
        "the API answered 429 Too Many Requests: rate_limit_error: slow down (request id req_head)"
    );
}

#[tokio::test]
async fn the_request_id_of_the_body_counts_where_the_header_is_missing() {
    let body =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"m"},"request_id":"req_body"}"#;
    let error = error(Reply::new(529, &[], body)).await;
    assert_eq!((error.request_id(), error.is_overloaded()), (Some("req_body"), true));
    assert!(error.to_string().starts_with("the API answered 529: overloaded_error"), "{error}");
}

#[tokio::test]
async fn pages_of_proxies_are_cut_short() {
    let page = format!("<html>{}</html>", "é".repeat(10_000));
    for (status, kind, retryable) in
        [(200, ErrorKind::Decode, false), (502, ErrorKind::Api, true), (413, ErrorKind::Api, false)]
    {
        let headers = [("content-type", "text/html; charset=utf-8"), ("request-id", "req_1")];
        let error = error(Reply::new(status, &headers, &page)).await;
        assert_eq!((error.kind(), error.status(), error.is_retryable()), (kind, Some(status), retryable));
        assert_eq!((error.request_id(), error.header("content-type")), (Some("req_1"), Some(headers[0].1)));
        let text = error.to_string();
        assert!(text.contains("text/html: <html>éé") && text.contains("…") && text.len() < 400, "{text}");
        assert!(format!("{error:?}").len() < 800);
    }
}

#[tokio::test]
async fn an_event_stream_is_no_reply() {
    let error = error(Reply::hold(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: ping\ndata: SENTINEL\n\n",
    ))
    .await;
    assert_eq!((error.kind(), error.status()), (ErrorKind::Decode, Some(200)));
    let shown = format!("{error:?}");
    assert!(shown.contains("text/event-stream") && !shown.contains("SENTINEL"), "{shown}");
}

#[tokio::test]
async fn broken_json_tells_the_place_and_not_the_text() {
    let error = error(Reply::json(200, "{\"text\":\n\"SENTINEL\"")).await;
    assert_eq!((error.kind(), error.status(), error.is_retryable()), (ErrorKind::Decode, Some(200), false));
    assert_eq!(error.request_id(), Some("req_1"));
    let shown = format!("{error:?} {}", error.chain());
    assert!(shown.contains("line 2") && !shown.contains("SENTINEL"), "{shown}");
}

#[tokio::test]
async fn an_error_inside_a_200() {
    let body =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"},"request_id":"req_2"}"#;
    let error = error(Reply::json(200, body)).await;
    assert_eq!((error.kind(), error.status()), (ErrorKind::Api, Some(200)));
    assert!(error.is_overloaded() && error.is_retryable());
}

#[tokio::test]
async fn a_status_survives_a_body_that_breaks() {
    for (status, retryable) in [(400, false), (500, true)] {
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nrequest-id: r\r\n");
        let error = error(Reply::cut(&format!("{head}content-length: 1000\r\n\r\n{{\"type\":"))).await;
        assert_eq!(
            (error.kind(), error.status(), error.is_retryable()),
            (ErrorKind::Api, Some(status), retryable)
        );
        assert_eq!(error.request_id(), Some("r"));
        assert!(error.chain().contains("the connection broke"), "{}", error.chain());
    }
}

#[tokio::test]
async fn a_reply_that_announces_too_much_is_refused() {
    let length = 256 * 1024 * 1024 + 1;
    let error = error(Reply::hold(&format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{{"
    )))
    .await;
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::TooLarge, false));
    assert!(error.to_string().contains("longer than"), "{error}");
}

#[tokio::test]
async fn what_is_no_http_is_a_transport_error() {
    let error = error(Reply::cut("SSH-2.0-OpenSSH\r\n")).await;
    assert_eq!((error.kind(), error.status(), error.is_retryable()), (ErrorKind::Transport, None, true));
}

#[tokio::test]
async fn redirects_are_refused_and_nothing_reaches_the_target() {
    let target = Server::start(vec![Reply::ok(); 8]);
    for status in [301, 302, 303, 307, 308] {
        let location = format!("{}/there?key=SENTINEL#SENTINEL", target.url());
        let server = Server::start([Reply::new(status, &[("location", &location), ("request-id", "r")], "")]);
        let client = builder(&server).header("x-own", "SENTINEL").build().unwrap();
        let error = client.create(&"Hello".into()).await.unwrap_err();
        assert_eq!((error.kind(), error.status(), error.attempts()), (ErrorKind::Decode, Some(status), 1));
        assert_eq!((error.request_id(), error.is_retryable()), (Some("r"), false));
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(&format!("{}/there", target.url())), "{shown}");
        assert!(shown.contains("not followed") && !shown.contains("SENTINEL"), "{shown}");
    }
    let error = error(Reply::new(304, &[], "")).await;
    assert_eq!((error.kind(), error.status()), (ErrorKind::Decode, Some(304)));
    assert_eq!((target.seen().len(), target.opened()), (0, 0));
}

#[tokio::test]
async fn headers_of_a_reply_can_be_read() {
    let headers = [
        ("content-type", "application/json"),
        ("anthropic-ratelimit-requests-limit", "50"),
        ("request-id", "req_7"),
    ];
    let server = Server::start([Reply::new(200, &headers, OK)]);
    let message = client(&server).create(&"Hello".into()).await.unwrap();
    assert_eq!(message.header("anthropic-ratelimit-requests-limit"), Some("50"));
    assert_eq!(message.request_id(), Some("req_7"));
}

#[tokio::test]
async fn a_long_message_of_the_api_is_cut_where_it_is_shown() {
    let message = "ü".repeat(400_000);
    let body = format!(r#"{{"error":{{"type":"api_error","message":"{message}"}}}}"#);
    let error = error(Reply::json(400, &body)).await;
    assert_eq!(error.api_error().unwrap().message, message);
    for shown in [error.to_string(), format!("{error:?}"), error.chain()] {
        assert!(shown.contains("üü…") && shown.len() < 3000, "{} bytes", shown.len());
    }
}
