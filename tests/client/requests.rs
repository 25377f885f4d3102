//! What goes over the socket: headers, credential, body, URL.

use crate::server::{OK, Reply, Seen, Server};
use agentloop::client::{Auth, Client, ClientBuilder};
use agentloop::messages::MessageRequest;

fn builder(server: &Server) -> ClientBuilder {
    Client::builder().no_proxy().base_url(server.url()).api_key("sk-key")
}

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
    let client = builder(&server).build().unwrap();
    let message = client.create(&"Hello".into()).await.unwrap();
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
