//! The rate limits of a response, and the details of an error, wherever they are asked for.

use std::time::{Duration, UNIX_EPOCH};

use agentloop::client::RateLimits;
use agentloop::testing::{Reply, Server};
use agentloop::{Message, MessageRequest, ToolRunner};

fn hello() -> MessageRequest {
    MessageRequest::from("Hello")
}

fn limited(reply: Reply) -> Reply {
    reply
        .header("anthropic-ratelimit-requests-limit", "50")
        .header("anthropic-ratelimit-requests-remaining", "0")
        .header("anthropic-ratelimit-requests-reset", "2026-11-30T12:00:30Z")
        .header("anthropic-ratelimit-input-tokens-remaining", "a lot")
}

#[track_caller]
fn assert_limited(limits: RateLimits) {
    let requests = limits.requests;
    assert_eq!((requests.limit, requests.remaining), (Some(50), Some(0)));
    assert_eq!(requests.reset, Some(UNIX_EPOCH + Duration::from_secs(1_796_040_030)));
    let mut others = limits;
    others.requests = RateLimits::default().requests;
    assert_eq!(others, RateLimits::default());
}

#[tokio::test]
async fn a_message_a_stream_and_an_error_tell_the_rate_limits() {
    let server = Server::start([
        limited(Reply::text("Hi")),
        limited(Reply::text("Hi")),
        limited(Reply::text("Hi")),
        limited(Reply::error(429, "rate_limit_error", "slow down")),
        Reply::text("Hi"),
    ])
    .await;
    let client = server.client();

    let message = client.create(&hello()).await.unwrap();
    assert_limited(message.rate_limits());
    assert_eq!(Message::from_json(message.json()).unwrap().rate_limits(), RateLimits::default());

    let stream = client.stream(&hello()).await.unwrap();
    assert_limited(stream.rate_limits());
    assert_limited(stream.snapshot().unwrap().rate_limits());
    assert_limited(stream.final_message().await.unwrap().rate_limits());

    let run = ToolRunner::new().run(&client, "Hello").await.unwrap();
    assert_limited(run.message().rate_limits());

    let error = client.create(&hello()).await.unwrap_err();
    assert!(error.is_rate_limit());
    assert_limited(error.rate_limits());

    assert_eq!(client.create(&hello()).await.unwrap().rate_limits(), RateLimits::default());
    server.finish().unwrap();
}

#[tokio::test]
async fn an_error_gives_its_code_and_its_details() {
    let body = |details: &str| {
        format!(r#"{{"type":"error","error":{{"type":"invalid_request_error","message":"m"{details}}}}}"#)
    };
    let cases = [
        (
            r#","details":{"error_code":"thread_unsupported_request","unsupported":["thinking"], "n":1e2}"#,
            Some("thread_unsupported_request"),
            Some(r#"{"error_code":"thread_unsupported_request","unsupported":["thinking"], "n":1e2}"#),
        ),
        (r#","details":{"unsupported":[]}"#, None, Some(r#"{"unsupported":[]}"#)),
        (r#","details":{"error_code":7}"#, None, Some(r#"{"error_code":7}"#)),
        (r#","details":"text""#, None, Some(r#""text""#)),
        (r#","details":null"#, None, None),
        ("", None, None),
    ];
    for (details, code, json) in cases {
        let json_type = [("content-type", "application/json")];
        let server = Server::start([Reply::raw(400, json_type, body(details))]).await;
        let error = server.client().create(&hello()).await.unwrap_err();
        assert_eq!(error.error_code(), code, "{details}");
        assert_eq!(error.details().map(|raw| raw.get()), json, "{details}");
    }

    let server = Server::start([Reply::garbage(*b"no HTTP")]).await;
    let error = server.client().create(&hello()).await.unwrap_err();
    assert_eq!((error.error_code(), error.details().is_none()), (None, true));
}
