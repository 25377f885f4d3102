//! The main cases over TLS and HTTP/2, which is what the API speaks.

mod answer;
mod certificates;
#[path = "../support/everything.rs"]
mod everything;
mod keep_alive;
mod secrets;
mod server;
mod streams;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use agentloop::client::Auth;
use agentloop::testing;
use agentloop::{Client, ClientBuilder, ErrorKind, MessageRequest, Run, Tool, ToolRunner};
use answer::Answer;
use http::Version;
use serde_json::{Value, json};
use server::{PIECE, Server};
use support::{Log, add, object, result_of};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// A client that trusts this server, made as the docs of `http_client` advise.
fn builder(server: &Server) -> ClientBuilder {
    builder_with(server, http(server))
}

fn builder_with(server: &Server, http: reqwest::ClientBuilder) -> ClientBuilder {
    Client::builder().base_url(server.url()).auth(Auth::None).http_client(http.build().unwrap())
}

fn http(server: &Server) -> reqwest::ClientBuilder {
    let authority = reqwest::Certificate::from_der(server.authority().der()).unwrap();
    reqwest::Client::builder()
        .tls_backend_rustls()
        .tls_certs_only([authority])
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
}

fn client(server: &Server) -> Client {
    builder(server).build().unwrap()
}

fn runner() -> ToolRunner {
    let upper = Tool::new("upper", "Makes a text loud", object())
        .handler(|input: Value| async move { input["text"].as_str().unwrap().to_uppercase() });
    ToolRunner::new().tools([add(&Log::default()), upper])
}

fn calls() -> [(&'static str, &'static str, Value); 2] {
    [("t1", "add", json!({"a": 2, "b": 3})), ("t2", "upper", json!({"text": "größer"}))]
}

fn two_turns() -> [Answer; 2] {
    [Answer::tool_use(&calls()), Answer::text("done")]
}

/// Text of more bytes than any window holds, no two parts of it alike.
fn long_text() -> String {
    (0..400_000).map(|number| format!("ü{number} ")).collect()
}

/// Runs two turns and compares what arrived with what the same run sends in the clear.
async fn run_of_two_tools(server: &Server, version: Version) -> Run {
    let run = runner().run(&client(server), "go").await.unwrap();
    assert_eq!(run.text(), "done");
    assert_eq!(result_of(run.conversation(), "t1"), ("5".to_owned(), false));
    assert_eq!(result_of(run.conversation(), "t2"), ("GRÖSSER".to_owned(), false));

    let plain =
        testing::Server::start([testing::Reply::tool_use(calls()), testing::Reply::text("done")]).await;
    runner().run(&plain.client(), "go").await.unwrap();
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    for (seen, plain) in seen.iter().zip(plain.requests()) {
        assert_eq!(seen.version, version);
        assert_eq!(seen.body, plain.body());
        assert_eq!(seen.header("content-length"), Some(seen.body.len().to_string().as_str()));
        assert_eq!(seen.header("transfer-encoding"), None);
        assert_eq!(seen.header("content-type"), Some("application/json"));
    }
    assert_eq!(server.counts().opened, 1);
    run
}

#[tokio::test]
async fn a_run_with_two_tools_over_http2() {
    let server = Server::start(two_turns()).await;
    let run = run_of_two_tools(&server, Version::HTTP_2).await;
    assert_eq!(run.request_ids(), ["req_h", "req_h"]);
    assert_eq!(server.protocols(), [Some("h2".to_owned())]);
}

#[tokio::test]
async fn a_run_with_two_tools_over_tls_and_http1() {
    let server = Server::with_protocols(&["http/1.1"], two_turns()).await;
    run_of_two_tools(&server, Version::HTTP_11).await;
    assert_eq!(server.protocols(), [Some("http/1.1".to_owned())]);
}

#[tokio::test]
async fn a_server_without_alpn_gets_http1() {
    let server = Server::with_protocols(&[], two_turns()).await;
    run_of_two_tools(&server, Version::HTTP_11).await;
    assert_eq!(server.protocols(), [None]);
}

/// Does nothing unless the next test runs it in a process of its own.
#[tokio::test]
async fn in_a_process_of_its_own() {
    let Ok(url) = std::env::var(URL) else { return };
    let client = Client::builder().base_url(url).auth(Auth::None).no_proxy().build().unwrap();
    assert_eq!(runner().run(&client, "go").await.unwrap().text(), "done");
}

/// The certificates of the system are read from a variable, which only a new process can have.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_http_client_of_this_crate_trusts_the_system_and_picks_http2() {
    let server = Server::start(two_turns()).await;
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = directory.join(format!("authority-{}.pem", std::process::id()));
    std::fs::write(&file, server.authority().pem()).unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "in_a_process_of_its_own"])
        .env("SSL_CERT_FILE", &file)
        .env_remove("SSL_CERT_DIR")
        .env(URL, server.url());
    let output = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    std::fs::remove_file(file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(server.protocols(), [Some("h2".to_owned())]);
    let versions: Vec<_> = server.seen().iter().map(|seen| seen.version).collect();
    assert_eq!(versions, [Version::HTTP_2, Version::HTTP_2]);
}

/// Where `in_a_process_of_its_own` finds its server.
const URL: &str = "AGENTLOOP_TEST_URL";

#[tokio::test]
async fn a_conversation_beyond_the_window_arrives_whole() {
    let text = long_text();
    assert!(text.len() > 3_000_000);
    for protocols in [&["h2"], &["http/1.1"]] {
        let server = Server::with_protocols(protocols, [Answer::text("short"), Answer::text(&text)]).await;
        let client = client(&server);
        let run = ToolRunner::new().run(&client, text.as_str()).await.unwrap();
        let run = ToolRunner::new().run(&client, run.into_request().user("again")).await.unwrap();
        assert!(run.text() == text);
        for seen in server.seen() {
            assert_eq!(seen.header("content-length"), Some(seen.body.len().to_string().as_str()));
            let body: Value = serde_json::from_slice(&seen.body).unwrap();
            assert!(body["messages"][0]["content"] == text.as_str());
        }
        assert_eq!((server.counts().opened, server.counts().requests), (1, 2));
    }
}

#[tokio::test]
async fn runs_at_once_share_one_connection() {
    const RUNS: usize = 8;
    let barrier = Arc::new(Barrier::new(RUNS));
    // No first turn is answered before all have come.
    let first = (0..RUNS).map(|_| Answer::tool_use(&calls()).meet(&barrier));
    let second = (0..RUNS).map(|_| Answer::text("done"));
    let server = Server::start([Answer::text("hello")].into_iter().chain(first).chain(second)).await;
    let client = client(&server);
    client.create(&"Hello".into()).await.unwrap();

    let mut runs = JoinSet::new();
    for number in 0..RUNS {
        let client = client.clone();
        runs.spawn(async move { runner().run(&client, format!("run {number}")).await.unwrap() });
    }
    let runs = runs.join_all().await;
    assert!(runs.iter().all(|run| run.text() == "done" && run.iterations() == 2));
    let seen = server.seen();
    for number in 0..RUNS {
        let prompt = json!(format!("run {number}"));
        let messages = seen.iter().filter_map(|seen| {
            let body: Value = serde_json::from_slice(&seen.body).unwrap();
            (body["messages"][0]["content"] == prompt).then(|| body["messages"].as_array().unwrap().len())
        });
        assert_eq!(messages.collect::<Vec<_>>(), [1, 3]);
    }
    assert_eq!((server.counts().opened, server.counts().requests), (1, 1 + 2 * RUNS));
}

#[tokio::test]
async fn errors_of_the_api_are_told_and_retried() {
    let server = Server::start([
        Answer::error(400, "invalid_request_error"),
        Answer::error(529, "overloaded_error").header("retry-after-ms", "1"),
        Answer::text("ok"),
    ])
    .await;
    let client = client(&server);
    let error = client.create(&"Hello".into()).await.unwrap_err();
    assert_eq!((error.kind(), error.status(), error.attempts()), (ErrorKind::Api, Some(400), 1));
    assert_eq!((error.api_type(), error.request_id()), (Some("invalid_request_error"), Some("req_h")));
    assert_eq!(client.create(&"Hello".into()).await.unwrap().text(), "ok");
    assert_eq!((server.counts().opened, server.counts().requests), (1, 3));
}

/// A server that refuses a request need not read all of it first.
#[tokio::test]
async fn an_error_before_the_body_was_read_is_still_the_apis() {
    let server = Server::start([Answer::error(413, "request_too_large").early(), Answer::text("ok")]).await;
    let client = client(&server);
    let error = client.create(&long_text().into()).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Api, Some(413)), "{error:?}");
    assert_eq!(error.api_type(), Some("request_too_large"));
    assert_eq!(client.create(&"Hello".into()).await.unwrap().text(), "ok");
    assert_eq!((server.counts().opened, server.counts().requests), (1, 2));
}

#[tokio::test]
async fn a_reset_stream_is_a_transport_error_and_retried() {
    let broken: [(fn() -> Answer, MessageRequest); 2] =
        [(Answer::refuse, long_text().into()), (|| Answer::reset_after(long_text()), "Hello".into())];
    for (broken, request) in broken {
        let server = Server::start([broken(), broken(), Answer::text("ok")]).await;
        let error = builder(&server).max_retries(0).build().unwrap().create(&request).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (ErrorKind::Transport, 1), "{error:?}");
        assert!(error.is_retryable() && error.to_string().contains("the connection broke"), "{error}");
        let client = client(&server);
        assert_eq!(client.create(&request).await.unwrap().text(), "ok");
        // Only the stream is lost: the second client needs one connection for both attempts.
        assert_eq!((server.counts().opened, server.counts().requests), (2, 3));
    }
    let server = Server::start([Answer::reset_after(long_text()), Answer::text("done")]).await;
    let run = ToolRunner::new().run(&client(&server), "go").await.unwrap();
    assert_eq!((run.text().as_str(), run.iterations()), ("done", 1));
}

#[tokio::test]
async fn a_lost_connection_is_retried_on_a_new_one() {
    let server = Server::start([Answer::drop_connection(), Answer::text("ok")]).await;
    assert_eq!(client(&server).create(&"Hello".into()).await.unwrap().text(), "ok");
    assert_eq!((server.counts().opened, server.counts().requests), (2, 2));
}

#[tokio::test]
async fn a_connection_that_went_away_is_replaced() {
    let first = Answer::tool_use(&calls()).go_away();
    let server = Server::start([first, Answer::text("done"), Answer::text("more")]).await;
    let client = builder(&server).max_retries(0).build().unwrap();
    let run = runner().run(&client, "go").await.unwrap();
    server.until(|counts| counts.closed == 1).await;
    runner().run(&client, run.into_request().user("more")).await.unwrap();
    assert_eq!((server.counts().opened, server.counts().requests), (2, 3));
    assert_eq!(server.counts().abandoned, 0);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_a_connect_error() {
    let server = Server::start([]).await;
    let other = Server::start([]).await;
    let own = Client::builder().auth(Auth::None).no_proxy();
    for builder in [own, builder(&other)] {
        let client = builder.base_url(server.url()).max_retries(0).build().unwrap();
        let error = client.create(&"Hello".into()).await.unwrap_err();
        assert_eq!((error.kind(), error.attempts()), (ErrorKind::Connect, 1), "{error:?}");
        assert_eq!(error.to_string(), "no connection to the server");
        let chain = error.chain();
        assert!(chain.contains("certificate") && chain.contains("UnknownIssuer"), "{chain}");
    }
    assert_eq!(server.counts().requests, 0);
}

#[tokio::test]
async fn dropping_a_run_resets_its_stream_and_no_other() {
    let half = Answer::stall_after(r#"{"id":"#);
    let server = Server::start([Answer::silence(), half, Answer::text("ok")]).await;
    let client = client(&server);
    for number in 1..=2 {
        let runner = runner();
        tokio::select! {
            biased;
            ended = runner.run(&client, "go") => panic!("{ended:?}"),
            () = server.until(|counts| counts.requests == number) => {}
        }
        server.until(|counts| counts.abandoned == number).await;
    }
    assert_eq!(client.create(&"Hello".into()).await.unwrap().text(), "ok");
    let counts = server.counts();
    assert_eq!((counts.opened, counts.closed, counts.requests), (1, 0, 3));
}

/// The window of a stream is all that is sent to a reader who stops; a pause is no timeout, and other
/// requests of the connection go on.
#[tokio::test]
async fn a_reader_that_stops_stops_the_server_within_the_window() {
    const IDLE: Duration = Duration::from_millis(300);
    for window in [128 * 1024, 1024 * 1024] {
        for read in [1, 40] {
            let server = Server::start([Answer::endless(), Answer::text("ok")]).await;
            let http = http(&server)
                .http2_initial_stream_window_size(window)
                .http2_initial_connection_window_size(8 * window);
            let client = builder_with(&server, http).idle_timeout(IDLE).max_retries(0).build().unwrap();
            let mut stream = ToolRunner::new().stream(&client, "go");
            for _ in 0..read {
                stream.next().await.unwrap();
            }
            // Nobody reads, and still the whole window is sent.
            let window = window as usize;
            server.until(|counts| counts.pieces * PIECE >= window).await;
            tokio::time::sleep(2 * IDLE).await;
            let sent = server.counts().pieces;
            // Besides: the piece that waits for its window, and what TLS and the frames add.
            let bound = read + window / PIECE + 4;
            assert!(sent <= bound, "{sent} pieces were sent where {bound} fit, {window}, {read}");
            assert_eq!(client.create(&"Hello".into()).await.unwrap().text(), "ok");
            while server.counts().pieces < sent + 2 * bound {
                stream.next().await.unwrap();
            }
            drop(stream);
            server.until(|counts| counts.abandoned == 1).await;
            assert_eq!((server.counts().opened, server.counts().closed), (1, 0));
        }
    }
}
