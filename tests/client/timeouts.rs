//! Limits of time in each phase. The limits are real and short; nothing measures time.

use std::time::Duration;

use agentloop::MessageRequest;
use agentloop::client::TimeoutPhase;
use agentloop::{Error, ErrorKind};

use crate::server::{OK, Reply, Server};
use crate::{builder, client};

const SHORT: Duration = Duration::from_millis(200);

async fn idle(reply: Reply, text: &str) -> Error {
    let server = Server::start([reply]);
    let client = builder(&server).max_retries(0).idle_timeout(SHORT).build().unwrap();
    let error = client.create(&text.into()).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Timeout, 1), "{error:?}");
    assert!(error.is_timeout() && error.is_retryable());
    let text = error.to_string();
    assert!(text.contains("200ms") && text.contains("`idle_timeout`"), "{text}");
    error
}

#[tokio::test]
async fn silence_before_the_headers() {
    let error = idle(Reply::hold(""), "Hello").await;
    assert!(error.to_string().contains("headers") && error.status().is_none(), "{error}");
    assert_eq!(error.timeout_phase(), Some(TimeoutPhase::Headers));
}

#[tokio::test]
async fn silence_within_the_body() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\nrequest-id: r\r\n\r\n";
    for rest in ["", "{\"id\":"] {
        let error = idle(Reply::hold(&format!("{head}{rest}")), "Hello").await;
        assert!(error.to_string().contains("reading the response body"), "{error}");
        assert_eq!((error.status(), error.request_id()), (Some(200), Some("r")));
        assert_eq!(error.timeout_phase(), Some(TimeoutPhase::Body));
    }
}

#[tokio::test]
async fn a_server_that_does_not_read_the_body() {
    let error = idle(Reply::ignore(), &"x".repeat(30_000_000)).await;
    assert!(error.to_string().contains("sending the request body"), "{error}");
    assert_eq!(error.timeout_phase(), Some(TimeoutPhase::Send));
}

/// A limit that reqwest keeps is a timeout too, and no broken reply.
#[tokio::test]
async fn a_limit_of_your_own_http_client() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let limits: [fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder; 2] =
        [|http| http.read_timeout(SHORT), |http| http.timeout(SHORT)];
    for limit in limits {
        for reply in [Reply::hold(""), Reply::hold(head)] {
            let server = Server::start([reply]);
            let http = limit(reqwest::Client::builder().no_proxy()).build().unwrap();
            let client = builder(&server).max_retries(0).http_client(http).build().unwrap();
            let error = client.create(&"Hello".into()).await.unwrap_err();
            assert_eq!((error.kind(), error.timeout_phase()), (ErrorKind::Timeout, None), "{error:?}");
            assert!(error.is_retryable());
        }
    }
}

#[tokio::test]
async fn a_slow_body_that_moves_is_no_timeout() {
    let server = Server::start([Reply::ok().in_pieces(8, SHORT)]);
    let client = builder(&server).max_retries(0).idle_timeout(SHORT * 5).build().unwrap();
    assert_eq!(client.create(&"Hello".into()).await.unwrap().json(), OK);
}

#[tokio::test]
async fn the_connection_of_a_call_that_timed_out_is_closed() {
    let server = Server::start([Reply::hold("")]);
    let client = builder(&server).max_retries(0).idle_timeout(SHORT).build().unwrap();
    client.create(&"Hello".into()).await.unwrap_err();
    server.until_closed(1).await;
}

#[tokio::test]
async fn a_timeout_is_tried_again_and_a_request_may_set_its_own() {
    let server = Server::start([Reply::hold(""), Reply::ok()]);
    let request = MessageRequest::from("Hello").idle_timeout(SHORT);
    client(&server).create(&request).await.unwrap();
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn the_total_limit_covers_all_attempts() {
    let server = Server::start([Reply::new(503, &[("retry-after-ms", "1")], ""), Reply::hold("")]);
    let error = client(&server).create(&MessageRequest::from("Hello").timeout(SHORT * 2)).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Timeout, 2));
    let text = error.to_string();
    assert!(text.contains("as a whole") && text.contains("400ms") && text.contains("`timeout`"), "{text}");
    assert!(error.chain().contains("503"), "{}", error.chain());

    let server = Server::start([Reply::hold("")]);
    let by_client = builder(&server).timeout(SHORT).build().unwrap();
    let error = by_client.create(&"Hello".into()).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts(), server.seen().len()), (ErrorKind::Timeout, 1, 1));
}
