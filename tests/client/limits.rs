//! How much a response may bring.

use agentloop::testing::{Reply, Server};
use agentloop::{Client, ClientBuilder, Error, ErrorKind, MessageRequest, ToolRunner};
use serde_json::json;

/// A client that would try again twice.
fn builder(server: &Server) -> ClientBuilder {
    Client::builder().no_proxy().base_url(server.url()).api_key("sk-key")
}

fn hello() -> MessageRequest {
    MessageRequest::from("Hello")
}

/// One request was made and it is not worth another, whatever the server says.
#[track_caller]
fn assert_too_large(error: &Error, server: &Server, limit: &str) {
    assert_eq!(
        (error.kind(), error.status(), error.attempts(), error.is_retryable()),
        (ErrorKind::TooLarge, Some(200), 1, false),
        "{error:?}"
    );
    assert!(error.to_string().contains(limit), "{error}");
    assert_eq!(error.request_id(), Some("req_1"));
    assert_eq!(server.request_count(), 1);
}

/// A body of unknown length.
fn chunked(text: &str) -> Reply {
    let headers =
        [("content-type", "application/json"), ("request-id", "req_1"), ("transfer-encoding", "chunked")];
    Reply::raw(200, headers, format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len()))
}

#[tokio::test]
async fn the_limit_of_a_plain_reply_is_exact() {
    let text = json!({"content": [{"type": "text", "text": "x".repeat(5000)}]}).to_string();
    let length = text.len();
    let replies = [
        ("announced", Reply::json_text(&*text)),
        ("in pieces", Reply::json_text(&*text).in_pieces(700)),
        ("of unknown length", chunked(&text)),
    ];
    for (name, reply) in replies {
        let server = Server::start([reply.clone()]).await;
        let client = builder(&server).max_response_bytes(length).build().unwrap();
        assert_eq!(client.create(&hello()).await.unwrap().text().len(), 5000, "{name}");

        let server = Server::start([reply.header("x-should-retry", "true")]).await;
        let client = builder(&server).max_response_bytes(length - 1).build().unwrap();
        let error = client.create(&hello()).await.unwrap_err();
        let limit = format!("longer than {} bytes (the limit of `max_response_bytes`)", length - 1);
        assert_too_large(&error, &server, &limit);
    }
}

#[tokio::test]
async fn a_streamed_reply_has_the_same_limit_and_is_an_error_with_what_came() {
    let reply = || Reply::text("x".repeat(5000)).header("x-should-retry", "true");
    let limit = "longer than 3000 bytes (the limit of `max_response_bytes`)";
    let server = Server::start([reply()]).await;
    let client = builder(&server).max_response_bytes(3000).build().unwrap();
    let error = client.create_streamed(&hello()).await.unwrap_err();
    assert_too_large(&error, &server, limit);
    let partial = error.partial_message().unwrap().text().len();
    assert!((1..5000).contains(&partial), "{partial}");

    let server = Server::start([reply()]).await;
    let client = builder(&server).max_response_bytes(3000).build().unwrap();
    let mut stream = client.stream(&hello()).await.unwrap();
    let error = loop {
        if let Err(error) = stream.next().await.expect("an error before the end") {
            break error;
        }
    };
    assert_too_large(&error, &server, limit);
    assert_too_large(&stream.final_message().await.unwrap_err(), &server, limit);

    let server = Server::start([reply()]).await;
    let client = builder(&server).max_response_bytes(6000).build().unwrap();
    assert_eq!(client.create_streamed(&hello()).await.unwrap().text().len(), 5000);
}

#[tokio::test]
async fn an_event_that_is_too_long_is_never_asked_for_again() {
    let server = Server::start([Reply::text("x".repeat(5000)).header("x-should-retry", "true")]).await;
    let client = builder(&server).max_event_bytes(1000).build().unwrap();
    let error = client.create_streamed(&hello()).await.unwrap_err();
    assert_too_large(&error, &server, "longer than 1000 bytes (the limit of `max_event_bytes`)");
}

#[tokio::test]
async fn a_run_hands_its_conversation_back_where_a_reply_is_too_long() {
    let server = Server::start([Reply::text("x".repeat(5000))]).await;
    let client = builder(&server).max_response_bytes(3000).build().unwrap();
    let error = ToolRunner::new().run(&client, "Hello").await.unwrap_err();
    assert_too_large(error.client_error().unwrap(), &server, "`max_response_bytes`");
    assert_eq!(error.conversation().len(), 1);
}
