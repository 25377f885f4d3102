//! What goes over the socket: headers, credential, body, URL.

use std::time::Duration;

use agentloop::ErrorKind;
use agentloop::MessageRequest;
use agentloop::client::Auth;
use agentloop::{Client, ClientBuilder};

use crate::server::{OK, Reply, Seen, Server};
use crate::{builder, client};

async fn one(builder: ClientBuilder, server: &Server, request: MessageRequest) -> Seen {
    let before = server.seen().len();
    builder.build().unwrap().create(&request).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen.len(), before + 1);
    seen[before].clone()
}

#[tokio::test]
async fn the_plain_case() {
    let server = Server::start([Reply::ok()]);
    let message = client(&server).create(&"Hello".into()).await.unwrap();
    assert_eq!(message.json(), OK);
    assert_eq!(message.request_id(), Some("req_1"));

    let [seen] = &server.seen()[..] else { panic!("not one request") };
    assert_eq!(seen.line, "POST /v1/messages HTTP/1.1");
    for (name, value) in [
        ("x-api-key", "sk-key"),
        ("anthropic-version", "2026-10-21"),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("user-agent", concat!("agentloop/", env!("CARGO_PKG_VERSION"))),
        ("content-length", &seen.body.len().to_string()),
    ] {
        assert_eq!(seen.all(name), [value], "{name}");
    }
    for absent in [
        "authorization",
        "transfer-encoding",
        "accept-encoding",
        "anthropic-beta",
        "referer",
        "cookie",
        "expect",
    ] {
        assert_eq!(seen.all(absent), [""; 0], "{absent}");
    }
    assert_eq!(
        String::from_utf8_lossy(&seen.body),
        r#"{"model":"claude-opus-5-5","max_tokens":16000,"messages":[{"role":"user","content":"Hello"}]}"#
    );
}

#[tokio::test]
async fn any_model_is_sent_and_the_reply_tells_its_own() {
    let server = Server::start(vec![Reply::ok(); 2]);
    for model in ["claude-next-9-20990101", "claude-next-latest"] {
        let request = MessageRequest::new(model, 100).user("Hello");
        let message = client(&server).create(&request).await.unwrap();
        assert_eq!(message.model(), "m");
        let body = String::from_utf8(server.seen().last().unwrap().body.clone()).unwrap();
        assert!(body.contains(&format!(r#""model":"{model}""#)), "{body}");
    }
}

#[tokio::test]
async fn a_key_may_come_from_a_variable_of_ones_own() {
    let server = Server::start(vec![Reply::ok(); 2]);
    // Cargo sets it where it runs tests.
    let seen = one(builder(&server).api_key_from("CARGO_PKG_NAME"), &server, "Hello".into()).await;
    assert_eq!(seen.all("x-api-key"), [env!("CARGO_PKG_NAME")]);
    // The last word counts.
    let seen =
        one(builder(&server).api_key_from("AGENTLOOP_NONE").api_key("own"), &server, "Hello".into()).await;
    assert_eq!(seen.all("x-api-key"), ["own"]);

    let error = builder(&server).api_key_from("AGENTLOOP_NONE").build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("`AGENTLOOP_NONE`") && error.to_string().contains("not set"),
        "{error}"
    );
    // The key in place of its variable.
    let error = builder(&server).api_key_from("sk-ant-SENTINEL").build().unwrap_err();
    assert!(
        error.to_string().contains("`api_key_from`") && !format!("{error:?}").contains("SENTINEL"),
        "{error:?}"
    );
}

#[tokio::test]
async fn one_credential_of_each_kind() {
    let server = Server::start(vec![Reply::ok(); 5]);
    let hello = || MessageRequest::from("Hello");
    let check = |seen: Seen, key: &[&str], bearer: &[&str]| {
        assert_eq!(seen.all("x-api-key"), key);
        assert_eq!(seen.all("authorization"), bearer);
    };
    check(one(builder(&server).auth_token(" tok\n"), &server, hello()).await, &[], &["Bearer tok"]);
    check(one(builder(&server).auth(Auth::None), &server, hello()).await, &[], &[]);
    check(
        one(builder(&server).header("Authorization", "Basic x"), &server, hello()).await,
        &[],
        &["Basic x"],
    );
    check(
        one(builder(&server), &server, hello().header("AUTHORIZATION", "Bearer call")).await,
        &[],
        &["Bearer call"],
    );
    check(one(builder(&server), &server, hello().header("X-API-KEY", "call")).await, &["call"], &[]);
}

#[tokio::test]
async fn every_form_of_the_base_url_requests_the_same_path() {
    let server = Server::start(vec![Reply::ok(); 6]);
    for (suffix, target) in [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/v1/", "/v1/messages"),
        ("/gate/way/", "/gate/way/v1/messages"),
        ("/gate/v1?k=1", "/gate/v1/messages?k=1"),
    ] {
        let builder = builder(&server).base_url(server.url() + suffix);
        let seen = one(builder, &server, "Hello".into()).await;
        assert_eq!(seen.line, format!("POST {target} HTTP/1.1"));
    }
}

#[tokio::test]
async fn headers_of_the_request_replace_those_of_the_client() {
    let server = Server::start([Reply::ok()]);
    let builder = builder(&server)
        .header("X-One", "client")
        .header("x-two", "client")
        .api_version("2023-06-01")
        .user_agent("mine/1")
        .beta("a")
        .header("anthropic-beta", "d, a");
    let request = MessageRequest::from("Hello").header("x-ONE", "call").beta("b").beta("c");
    let seen = one(builder, &server, request).await;
    for (name, value) in [
        ("x-one", "call"),
        ("x-two", "client"),
        ("anthropic-version", "2023-06-01"),
        ("user-agent", "mine/1"),
        ("anthropic-beta", "a,b,c,d"),
    ] {
        assert_eq!(seen.all(name), [value], "{name}");
    }
}

#[tokio::test]
async fn defaults_fill_what_a_request_leaves_out() {
    let server = Server::start(vec![Reply::ok(); 2]);
    let builder = || builder(&server).default_model("my-model").default_max_tokens(7);
    let seen = one(builder(), &server, "Hello".into()).await;
    assert!(seen.body.starts_with(br#"{"model":"my-model","max_tokens":7,"#));
    let seen = one(builder(), &server, MessageRequest::new("other", 9).user("Hello")).await;
    assert!(seen.body.starts_with(br#"{"model":"other","max_tokens":9,"#));
}

#[tokio::test]
async fn a_large_body_goes_out_whole_each_time() {
    let again = Reply::new(503, &[("retry-after-ms", "1")], "");
    let server = Server::start([again.clone(), again, Reply::ok()]);
    let text: String = (0..3_000_000_u32).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    client(&server).create(&text.as_str().into()).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    for seen in &seen {
        assert_eq!(seen.all("content-length"), [seen.body.len().to_string()]);
        assert_eq!(seen.all("transfer-encoding"), [""; 0]);
        assert!(seen.body.len() > text.len() && seen.body == server.seen()[0].body);
        assert!(seen.body.windows(text.len()).any(|window| window == text.as_bytes()));
    }
}

#[tokio::test]
async fn more_than_21_333_tokens_need_a_total_limit() {
    let server = Server::start(vec![Reply::ok(); 3]);
    let with = |max_tokens| MessageRequest::new("m", max_tokens).user("Hello");
    let hour = Duration::from_secs(3600);
    let client = client(&server);

    let error = client.create(&with(21_334)).await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Request, 0));
    let text = error.to_string();
    assert!(text.contains("21334") && text.contains("stream") && text.contains("`timeout`"), "{text}");
    let by_default = builder(&server).default_max_tokens(21_334).build().unwrap();
    assert_eq!(by_default.create(&"Hello".into()).await.unwrap_err().kind(), ErrorKind::Request);
    // A limit without progress bounds no call as a whole.
    let error = client.create(&with(21_334).idle_timeout(hour)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    assert_eq!(server.seen().len(), 0);

    client.create(&with(21_333)).await.unwrap();
    client.create(&with(21_334).timeout(hour)).await.unwrap();
    builder(&server).timeout(hour).build().unwrap().create(&with(128_000)).await.unwrap();
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_request_that_is_wrong_is_not_sent() {
    let server = Server::start([]);
    let hello = || MessageRequest::from("Hello");
    for (request, word) in [
        (MessageRequest::from(""), "blank"),
        (hello().header("x one", "v"), "`x one`"),
        (hello().header("x-one", "a\nb"), "`x-one`"),
        (hello().header("content-length", "1"), "`content-length`"),
        (hello().header("x-api-key", "k").header("authorization", "a"), "one credential"),
        (hello().beta("a\nb"), "beta"),
        (hello().timeout(Duration::ZERO), "`timeout`"),
        (hello().idle_timeout(Duration::ZERO), "`idle_timeout`"),
    ] {
        let error = client(&server).create(&request).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts(), error.is_retryable()), (ErrorKind::Request, 0, false));
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn connections_are_shared_by_clones_and_calls() {
    let server = Server::start(vec![Reply::ok(); 4]);
    let client = client(&server);
    for _ in 0..2 {
        client.create(&"Hello".into()).await.unwrap();
        client.clone().create(&"Hello".into()).await.unwrap();
    }
    assert_eq!(server.opened(), 1);
}

#[tokio::test]
async fn a_call_may_move_between_threads() {
    let server = Server::start([Reply::ok()]);
    let client = client(&server);
    let mut calls = tokio::task::JoinSet::new();
    calls.spawn(async move { client.create(&MessageRequest::from("Hello")).await });
    calls.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn your_own_http_client_is_used() {
    let server = Server::start([Reply::ok()]);
    let http = reqwest::Client::builder().no_proxy().user_agent("theirs").build().unwrap();
    let builder = Client::builder().api_key("sk-key").base_url(server.url()).http_client(http);
    let seen = one(builder.header("x-one", "1"), &server, "Hello".into()).await;
    assert_eq!(seen.all("x-api-key"), ["sk-key"]);
    assert_eq!(seen.all("user-agent"), [concat!("agentloop/", env!("CARGO_PKG_VERSION"))]);
}
