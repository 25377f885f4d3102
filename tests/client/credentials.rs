//! Credentials that a provider gives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agentloop::client::{Auth, Credential, TimeoutPhase};
use agentloop::{Client, ErrorKind, MessageRequest};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::builder;
use crate::server::{Reply, Server};

const UNAUTHORIZED: &str = r#"{"error":{"type":"authentication_error","message":"expired"}}"#;

fn refused() -> Reply {
    Reply::json(401, UNAUTHORIZED)
}

/// A client whose provider gives `token-1`, `token-2`, …, and how often it was asked.
fn counted(server: &Server, lifetime: Option<Duration>) -> (Client, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let auth = Auth::provider(move || {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let token = Credential::bearer(format!("token-{number}"));
        let token = match lifetime {
            Some(lifetime) => token.expires_in(lifetime),
            None => token,
        };
        async move { Ok::<_, io::Error>(token) }
    });
    (builder(server).auth(auth).build().unwrap(), asked)
}

fn sent(server: &Server) -> Vec<String> {
    server.seen().iter().map(|seen| seen.all("authorization").join("+")).collect()
}

#[tokio::test]
async fn a_credential_is_asked_for_once_and_kept() {
    let server = Server::start([Reply::ok(), Reply::ok(), Reply::ok()]);
    let (client, asked) = counted(&server, None);
    for _ in 0..3 {
        client.create(&"Hello".into()).await.unwrap();
    }
    assert_eq!(sent(&server), ["Bearer token-1"; 3]);
    assert!(server.seen().iter().all(|seen| seen.all("x-api-key").is_empty()));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_api_key_of_a_provider_is_sent_as_one() {
    let server = Server::start([Reply::ok()]);
    let auth = Auth::provider(|| async { Ok::<_, io::Error>(Credential::api_key(" rotated\n")) });
    builder(&server).auth(auth).build().unwrap().create(&"Hello".into()).await.unwrap();
    let seen = &server.seen()[0];
    assert_eq!((seen.all("x-api-key"), seen.all("authorization")), (vec!["rotated"], vec![]));
}

#[tokio::test]
async fn one_that_runs_out_is_asked_for_again_before_that() {
    let server = Server::start([Reply::ok(), Reply::ok()]);
    let (client, asked) = counted(&server, Some(Duration::ZERO));
    for _ in 0..2 {
        client.create(&"Hello".into()).await.unwrap();
    }
    assert_eq!(sent(&server), ["Bearer token-1", "Bearer token-2"]);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_refused_one_is_renewed_once_and_no_retry_is_spent() {
    // The first call gets through with its second token, the next one meets 401 for good.
    let server = Server::start([refused(), Reply::ok(), refused(), refused()]);
    let (client, asked) = counted(&server, None);
    let request = MessageRequest::from("Hello").max_retries(0);
    client.create(&request).await.unwrap();
    let error = client.create(&request).await.unwrap_err();
    assert_eq!((error.status(), error.attempts(), error.is_retryable()), (Some(401), 2, false));
    assert_eq!(sent(&server), ["Bearer token-1", "Bearer token-2", "Bearer token-2", "Bearer token-3"]);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert!(server.seen().iter().all(|seen| seen.body == server.seen()[0].body));
}

#[tokio::test]
async fn a_fixed_key_is_not_tried_twice() {
    let server = Server::start([refused(), Reply::ok()]);
    let error = builder(&server).build().unwrap().create(&"Hello".into()).await.unwrap_err();
    assert_eq!((error.status(), error.attempts()), (Some(401), 1));
}

#[tokio::test]
async fn a_credential_of_the_request_goes_before_the_providers() {
    let server = Server::start([Reply::ok(), refused()]);
    let (client, asked) = counted(&server, None);
    let request = MessageRequest::from("Hello").header("x-api-key", "own");
    client.create(&request).await.unwrap();
    assert_eq!(client.create(&request).await.unwrap_err().attempts(), 1);
    let seen = server.seen();
    assert!(seen.iter().all(|seen| seen.all("x-api-key") == ["own"] && seen.all("authorization").is_empty()));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn calls_at_the_same_moment_share_one_answer() {
    const CALLS: usize = 20;
    let server = Server::start(vec![Reply::ok(); CALLS]);
    let asked = Arc::new(AtomicU32::new(0));
    let (count, barrier) = (Arc::clone(&asked), Arc::new(Barrier::new(2)));
    let gate = Arc::clone(&barrier);
    let auth = Auth::provider(move || {
        count.fetch_add(1, Ordering::SeqCst);
        let gate = Arc::clone(&gate);
        async move {
            gate.wait().await;
            Ok::<_, io::Error>(Credential::bearer("shared"))
        }
    });
    let client = builder(&server).auth(auth).build().unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let client = client.clone();
        calls.spawn(async move { client.create(&"Hello".into()).await.map(drop) });
    }
    // The provider waits for this, and the calls wait for the provider.
    barrier.wait().await;
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_provider_that_fails_is_an_error_and_nothing_is_sent() {
    let server = Server::start([]);
    for (auth, source) in [
        (Auth::provider(|| async { Err::<Credential, _>("the vault is sealed") }), "the vault is sealed"),
        (Auth::provider(|| async { Ok::<_, io::Error>(Credential::bearer(" ")) }), "is empty"),
        (
            Auth::provider(|| async { Ok::<_, io::Error>(Credential::bearer("SEN\nTINEL")) }),
            "no header may hold",
        ),
    ] {
        let error = builder(&server).auth(auth).build().unwrap().create(&"Hello".into()).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (ErrorKind::Credential, 0), "{error:?}");
        assert!(error.chain().contains(source) && error.chain().contains("provider"), "{}", error.chain());
        assert!(!format!("{error:?} {}", error.chain()).contains("SEN"));
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_provider_that_hangs_is_a_timeout_of_its_own_phase() {
    let server = Server::start([]);
    let auth = Auth::provider(std::future::pending::<Result<Credential, io::Error>>);
    let client = builder(&server).auth(auth).idle_timeout(Duration::from_millis(50)).build().unwrap();
    let error = client.create(&"Hello".into()).await.unwrap_err();
    assert_eq!((error.timeout_phase(), error.attempts()), (Some(TimeoutPhase::Credential), 0), "{error:?}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_token_that_comes_back_in_an_error_is_hidden() {
    let body = r#"{"error":{"type":"permission_error","message":"no access with long-token-1"}}"#;
    let server = Server::start([Reply::json(403, body)]);
    let auth = Auth::provider(|| async { Ok::<_, io::Error>(Credential::bearer("long-token-1")) });
    let client = builder(&server).auth(auth).build().unwrap();
    let error = client.create(&"Hello".into()).await.unwrap_err();
    assert!(error.to_string().contains("[redacted]"), "{error}");
    let shown = format!("{error:?} {} {client:?} {client:#?}", error.chain());
    assert!(!shown.contains("long-token"), "{shown}");
}
