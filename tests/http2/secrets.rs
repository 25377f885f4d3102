//! What the crates below tell of headers when HTTP/2 is traced.

use agentloop::{Client, ToolRunner};

use crate::answer::Answer;
use crate::everything::{Everything, Logged};
use crate::server::{Identity, Server};

#[tokio::test]
async fn a_trace_of_http2_shows_no_secret() {
    const SENTINEL: &str = "sk-ant-SENTINEL";
    let identity = Identity::generate();
    let server = Server::that_asks_for(&identity, [Answer::text("a"), Answer::text("b")]).await;
    let log = Everything::default();
    let guards = log.install();
    let logged = Logged::install();
    for streamed in [false, true] {
        let client = Client::builder()
            .base_url(format!("{}/?k={SENTINEL}", server.url()))
            .api_key(SENTINEL)
            .header("x-own", SENTINEL)
            .no_proxy()
            .root_certificate(server.authority().pem())
            .client_certificate(identity.chain(), identity.key())
            .build()
            .unwrap();
        let runner = if streamed { ToolRunner::new().on_event(|_| {}) } else { ToolRunner::new() };
        drop(runner.run(&client, "Hello").await);
    }
    drop(guards);
    let sent = server.seen();
    assert!(sent.iter().all(|seen| seen.header("x-api-key") == Some(SENTINEL)) && sent.len() == 2);
    let log = log.text();
    let at = log.find("SENTINEL").map(|at| log.get(at.saturating_sub(200)..at + 8));
    assert_eq!(at, None);
    assert!(!log.contains("PRIVATE KEY"));
    let logged = logged.text();
    assert!(!logged.contains("SENTINEL") && logged.contains("reqwest"), "{logged}");
    assert!(log.contains("Headers") && log.contains("gen_ai.request.model"), "HTTP/2 was not traced");
}
