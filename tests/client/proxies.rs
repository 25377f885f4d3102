//! Proxies, from the builder and from the environment.

use std::env;
use std::process::Command;

use agentloop::{Client, ErrorKind};

use crate::server::{OK, Reply, Server};

/// Where no server is; only a proxy gets there.
const ELSEWHERE: &str = "http://api.invalid/prefix";

#[tokio::test]
async fn a_proxy_of_the_builder_gets_every_request() {
    let proxy = Server::start([Reply::ok(), Reply::ok()]);
    let url = proxy.url().replace("http://", "http://user:SENTINEL@");
    let builder = Client::builder().api_key("k").base_url(ELSEWHERE).proxy(url);
    let client = builder.clone().build().unwrap();
    assert_eq!(client.create(&"Hello".into()).await.unwrap().json(), OK);
    let seen = &proxy.seen()[0];
    assert_eq!(seen.line, "POST http://api.invalid/prefix/v1/messages HTTP/1.1");
    assert_eq!(seen.all("proxy-authorization"), ["Basic dXNlcjpTRU5USU5FTA=="]);
    assert_eq!(seen.all("authorization").len(), 0);
    let shown = format!("{builder:?} {builder:#?} {client:?} {client:#?}");
    assert!(shown.contains("proxy") && !shown.contains("SENTINEL"), "{shown}");
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_a_connect_error_without_its_password() {
    let url = "http://user:SENTINEL@127.0.0.1:1";
    let client =
        Client::builder().api_key("k").base_url(ELSEWHERE).proxy(url).max_retries(0).build().unwrap();
    let error = client.create(&"Hello".into()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Connect, true), "{error:?}");
    let shown = format!("{error:?} {}", error.chain());
    assert!(!shown.contains("SENTINEL"), "{shown}");
}

#[tokio::test]
async fn a_proxy_that_gives_its_password_back_does_not_show_it() {
    // `user:SENTI/NEL pass` as it is sent.
    let page = "no entry with Basic dXNlcjpTRU5USS9ORUwgcGFzcw== or SENTI/NEL pass";
    let page = Reply::new(407, &[("content-type", "text/html")], page);
    for streamed in [false, true] {
        let proxy = Server::start([page.clone()]);
        let url = proxy.url().replace("http://", "http://user:SENTI%2FNEL%20pass@");
        let builder = Client::builder().api_key("k").base_url(ELSEWHERE).max_retries(0).proxy(url);
        let client = builder.build().unwrap();
        let request = "Hello".into();
        let error = match streamed {
            false => client.create(&request).await.unwrap_err(),
            true => client.create_streamed(&request).await.unwrap_err(),
        };
        assert_eq!(proxy.seen()[0].all("proxy-authorization"), ["Basic dXNlcjpTRU5USS9ORUwgcGFzcw=="]);
        let shown = format!("{error:?} {}", error.chain());
        assert!(
            error.status() == Some(407) && shown.contains("no entry with Basic [redacted] or"),
            "{shown}"
        );
        assert!(!shown.contains("SENTI") && !shown.contains("dXNl"), "{shown}");
    }
}

#[tokio::test]
async fn of_a_proxy_and_none_the_last_word_counts() {
    let server = Server::start(vec![Reply::ok(); 2]);
    let here = Client::builder().api_key("k").base_url(server.url()).max_retries(0);
    let direct = here.clone().proxy("http://127.0.0.1:1").no_proxy().build().unwrap();
    direct.create(&"Hello".into()).await.unwrap();
    let elsewhere = here.base_url(ELSEWHERE).no_proxy().proxy(server.url()).build().unwrap();
    elsewhere.create(&"Hello".into()).await.unwrap();
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn a_proxy_of_no_kind_is_refused_without_showing_it() {
    for url in ["ftp://u:SENTINEL@h:1", "socks9://SENTINEL", "http://", "http://SENTI NEL", ""] {
        let error = Client::builder().api_key("k").base_url("http://h").proxy(url).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        let shown = format!("{error:?} {}", error.chain());
        assert!(
            shown.contains("`proxy`") && shown.contains("socks5h://") && !shown.contains("SENTI"),
            "{shown}"
        );
    }
}

/// Does nothing unless the next test runs it in a process of its own, whose environment names the
/// proxies.
#[tokio::test]
async fn in_an_environment_with_proxies() {
    let Ok(url) = env::var("TEST_BASE_URL") else { return };
    let client = Client::builder().api_key("k").base_url(url).max_retries(0);
    let client = if env::var_os("TEST_NO_PROXY").is_some() { client.no_proxy() } else { client };
    let kind = match client.build().unwrap().create(&"Hello".into()).await {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.kind().as_str().to_owned(),
    };
    println!("outcome: {kind}.");
}

#[test]
fn the_environment_names_proxies_and_exceptions() {
    let server = Server::start(vec![Reply::ok(); 9]);
    let (here, dead) = (server.url(), "http://127.0.0.1:1");
    let socks = "socks5h://127.0.0.1:1";
    for (vars, base_url, outcome) in [
        (&[("HTTP_PROXY", here.as_str())][..], ELSEWHERE, "ok"),
        (&[("ALL_PROXY", here.as_str())], ELSEWHERE, "ok"),
        (&[("HTTP_PROXY", dead)], here.as_str(), "connect"),
        (&[("ALL_PROXY", socks)], here.as_str(), "connect"),
        (&[("ALL_PROXY", socks), ("NO_PROXY", "127.0.0.1")], here.as_str(), "ok"),
        (&[("HTTP_PROXY", dead), ("no_proxy", "localhost,127.0.0.0/8")], here.as_str(), "ok"),
        (&[("HTTP_PROXY", dead), ("TEST_NO_PROXY", "1")], here.as_str(), "ok"),
    ] {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "proxies::in_an_environment_with_proxies", "--nocapture"]);
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        let output = command.env("TEST_BASE_URL", base_url).envs(vars.iter().copied()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!("outcome: {outcome}.")), "{vars:?} {base_url}: {text}");
    }
}
