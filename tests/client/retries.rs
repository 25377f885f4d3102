//! Which failures are tried again, how often, and what is left of them.

use std::net::TcpListener;
use std::time::Duration;

use agentloop::{Client, Error, ErrorKind, MessageRequest, ToolRunner};

use crate::server::{OK, Reply, Server};
use crate::{builder, client};

fn soon(status: u16, more: &[(&str, &str)]) -> Reply {
    let headers: Vec<_> =
        [("retry-after-ms", "1"), ("content-type", "application/json")].iter().chain(more).copied().collect();
    Reply::new(status, &headers, &format!(r#"{{"error":{{"type":"x","message":"m{status}"}}}}"#))
}

async fn fails(server: &Server) -> Error {
    client(server).create(&"Hello".into()).await.unwrap_err()
}

#[tokio::test]
async fn a_failure_that_passes_is_not_seen() {
    let server = Server::start([soon(529, &[]), soon(429, &[]), Reply::ok()]);
    assert_eq!(client(&server).create(&"Hello".into()).await.unwrap().json(), OK);
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|one| one.body == seen[0].body && one.headers == seen[0].headers));
}

#[tokio::test]
async fn the_last_error_is_kept() {
    let server = Server::start([soon(500, &[]), soon(503, &[]), soon(529, &[("request-id", "req_last")])]);
    let error = fails(&server).await;
    assert_eq!((error.status(), error.attempts(), server.seen().len()), (Some(529), 3, 3));
    assert_eq!((error.request_id(), error.is_retryable()), (Some("req_last"), true));
    assert!(error.to_string().contains("m529"), "{error}");
}

#[tokio::test]
async fn statuses_go_by_the_table_unless_the_server_says_otherwise() {
    for (status, should, attempts) in [
        (400, None, 1),
        (401, None, 1),
        (413, None, 1),
        (408, None, 3),
        (409, None, 3),
        (520, None, 3),
        (400, Some("true"), 3),
        (529, Some("false"), 1),
    ] {
        let should: Vec<_> = should.map(|should| ("x-should-retry", should)).into_iter().collect();
        let server = Server::start(vec![soon(status, &should); 5]);
        let error = fails(&server).await;
        assert_eq!((error.attempts(), server.seen().len()), (attempts, attempts as usize), "{status}");
        assert_eq!((error.status(), error.is_retryable()), (Some(status), attempts > 1));
    }
}

#[tokio::test]
async fn the_number_of_retries_is_the_requests_or_the_clients() {
    for (of_client, of_call, attempts) in [(0, None, 1), (1, None, 2), (0, Some(3), 4), (3, Some(0), 1)] {
        let server = Server::start(vec![soon(503, &[]); 9]);
        let mut request = MessageRequest::from("Hello");
        if let Some(retries) = of_call {
            request = request.max_retries(retries);
        }
        let client = builder(&server).max_retries(of_client).build().unwrap();
        assert_eq!(client.create(&request).await.unwrap_err().attempts(), attempts);
        assert_eq!(server.seen().len(), attempts as usize);
    }
}

#[tokio::test]
async fn a_spend_limit_is_final() {
    let body = r#"{"error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
    let server =
        Server::start([Reply::new(429, &[("x-should-retry", "true"), ("retry-after-ms", "1")], body)]);
    let error = fails(&server).await;
    assert_eq!((error.attempts(), error.is_retryable(), error.is_rate_limit()), (1, false, true));
}

#[tokio::test]
async fn a_wait_beyond_the_longest_is_told_and_not_waited() {
    for (longest, wait) in [(None, "61"), (Some(2), "2.5")] {
        let server = Server::start([Reply::new(429, &[("retry-after", wait)], "")]);
        let mut builder = builder(&server);
        if let Some(longest) = longest {
            builder = builder.max_retry_wait(Duration::from_secs(longest));
        }
        let error = builder.build().unwrap().create(&"Hello".into()).await.unwrap_err();
        assert_eq!((error.attempts(), error.is_retryable()), (1, true));
        assert_eq!(error.retry_after().unwrap().as_secs_f64().to_string(), wait);
    }
}

#[tokio::test]
async fn a_wait_may_be_a_date() {
    // The two dates are a second apart, whatever the clock here says.
    let dated = [("retry-after", "Tue, 03 Mar 2026 10:00:01 GMT"), ("date", "Tue, 03 Mar 2026 10:00:00 GMT")];
    let server = Server::start([Reply::new(529, &dated, ""), Reply::ok()]);
    client(&server).create(&"Hello".into()).await.unwrap();
    assert_eq!(server.seen().len(), 2);

    for (date, wait) in [("Fri, 31 Dec 9999 23:59:59 GMT", true), ("Tue, 03 Mar 2020 10:00:00 GMT", false)] {
        let server = Server::start([Reply::new(429, &[("retry-after", date)], "")]);
        let request = MessageRequest::from("Hello").max_retries(if wait { 2 } else { 0 });
        let error = client(&server).create(&request).await.unwrap_err();
        assert_eq!((error.attempts(), error.retry_after().is_some()), (1, wait), "{date}");
    }
}

#[tokio::test]
async fn a_run_adds_no_retries_of_its_own() {
    for streamed in [false, true] {
        let server = Server::start(vec![soon(429, &[]); 9]);
        let runner = ToolRunner::new();
        let runner = if streamed { runner.on_event(|_| {}) } else { runner };
        let error = runner.run(&client(&server), "Hello").await.unwrap_err();
        assert_eq!((error.client_error().unwrap().attempts(), server.seen().len()), (3, 3));
    }
}

#[tokio::test]
async fn a_host_without_an_address_is_a_connect_error() {
    let client = Client::builder().no_proxy().api_key("k").base_url("http://nowhere.invalid");
    let client = client.max_retries(1).build().unwrap();
    let error = client.create(&"Hello".into()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.attempts(), error.is_retryable()),
        (ErrorKind::Connect, 2, true),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_failed_attempt_gives_its_connection_back() {
    let page = "x".repeat(100_000);
    let html = [("retry-after-ms", "1"), ("content-type", "text/html")];
    let server = Server::start([Reply::new(500, &html, &page), Reply::new(502, &html, &page), Reply::ok()]);
    client(&server).create(&"Hello".into()).await.unwrap();
    assert_eq!((server.seen().len(), server.opened()), (3, 1));
}

#[tokio::test]
async fn a_wait_beyond_the_total_limit_is_not_begun() {
    let server = Server::start([Reply::new(429, &[("retry-after", "30")], "")]);
    let request = MessageRequest::from("Hello").timeout(Duration::from_secs(20));
    let error = client(&server).create(&request).await.unwrap_err();
    assert_eq!((error.kind(), error.status(), error.attempts()), (ErrorKind::Api, Some(429), 1));
}

#[tokio::test]
async fn broken_connections_and_empty_replies_are_tried_again() {
    let cut_body = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"id\":";
    let cut_chunk = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"id\"\r\n";
    for (reply, kind, status) in [
        (Reply::cut(""), ErrorKind::Transport, None),
        (Reply::cut(cut_body), ErrorKind::Transport, Some(200)),
        (Reply::cut(cut_chunk), ErrorKind::Transport, Some(200)),
        (Reply::json(200, ""), ErrorKind::Decode, Some(200)),
    ] {
        let server = Server::start([reply.clone(), Reply::ok()]);
        client(&server).create(&"Hello".into()).await.unwrap();
        assert_eq!(server.seen().len(), 2);

        let server = Server::start(vec![reply; 2]);
        let client = builder(&server).max_retries(1).build().unwrap();
        let error = client.create(&"Hello".into()).await.unwrap_err();
        assert_eq!((error.kind(), error.status(), error.attempts()), (kind, status, 2));
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn a_kept_connection_that_went_away_is_replaced() {
    let server = Server::start([Reply::ok(), Reply::cut(""), Reply::ok()]);
    let client = client(&server);
    client.create(&"Hello".into()).await.unwrap();
    client.create(&"Hello".into()).await.unwrap();
    assert_eq!((server.seen().len(), server.opened()), (3, 2));
}

#[tokio::test]
async fn a_refused_connection_is_its_own_kind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::builder().no_proxy().api_key("k").base_url(url).max_retries(1).build().unwrap();
    let error = client.create(&"Hello".into()).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts(), error.is_retryable()), (ErrorKind::Connect, 2, true));
    assert!(!error.chain().contains("/v1/messages"), "{}", error.chain());
}

#[tokio::test]
async fn an_overload_inside_a_200_is_tried_again() {
    let busy = r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#;
    let headers = [("content-type", "application/json"), ("retry-after-ms", "1")];
    let server = Server::start([Reply::new(200, &headers, busy), Reply::ok()]);
    client(&server).create(&"Hello".into()).await.unwrap();
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn dropping_a_call_ends_it_in_a_wait_and_in_flight() {
    let server =
        Server::start([Reply::new(503, &[("retry-after", "1"), ("connection", "close")], ""), Reply::ok()]);
    let short = Duration::from_millis(300);
    let (in_wait, message) = (client(&server), "Hello".into());
    assert!(tokio::time::timeout(short, in_wait.create(&message)).await.is_err());
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(server.seen().len(), 1);

    let server = Server::start([Reply::hold("")]);
    let in_flight = client(&server);
    let call = in_flight.create(&message);
    tokio::select! {
        _ = call => panic!("answered by nobody"),
        () = server.until_seen(1) => {}
    }
    server.until_closed(1).await;
}
