//! Handshakes that fail, in builds that have TLS.

use std::net::TcpListener;
use std::time::Duration;

use agentloop::Client;
use agentloop::ErrorKind;

use crate::builder;
use crate::server::Server;

const SHORT: Duration = Duration::from_millis(200);

/// A listener that nobody answers on: the system accepts, and TLS gets no reply.
#[tokio::test]
async fn a_handshake_without_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let client = Client::builder().no_proxy().api_key("k").base_url(&url).max_retries(0);

    let error =
        client.clone().connect_timeout(SHORT).build().unwrap().create(&"Hello".into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("connection") && text.contains("200ms") && text.contains("`connect_timeout`"),
        "{text}"
    );

    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let error = client
        .http_client(http)
        .idle_timeout(SHORT)
        .build()
        .unwrap()
        .create(&"Hello".into())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    let text = error.to_string();
    assert!(text.contains("connection") && text.contains("`idle_timeout`"), "{text}");
}

#[tokio::test]
async fn a_handshake_that_fails_is_a_connect_error() {
    let server = Server::start([]);
    let url = server.url().replace("http://", "https://");
    let error = builder(&server)
        .base_url(url)
        .max_retries(0)
        .build()
        .unwrap()
        .create(&"Hello".into())
        .await
        .unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Connect, true), "{error:?}");
}
