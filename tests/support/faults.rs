//! Failures of a request, one of each kind, and a run in which they happen.

use std::time::Duration;

use agentloop::client::Auth;
use agentloop::run_loop::RunErrorKind;
use agentloop::testing::{Gate, Reply, Server};
use agentloop::{Client, ErrorKind};
use serde_json::json;

/// A failure of one request, and the kind that it must be.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) reply: Reply,
    pub(crate) kind: RunErrorKind,
    pub(crate) client: Option<ErrorKind>,
}

pub(crate) fn faults(gate: &Gate) -> Vec<Fault> {
    let api = |status: u16, error_type: &str| Reply::error(status, error_type, "words");
    let html = || [("content-type".to_owned(), "text/html".to_owned())];
    let json_type = || [("content-type".to_owned(), "application/json".to_owned())];
    let fault = |name, reply, client| Fault { name, reply, kind: RunErrorKind::Client, client: Some(client) };
    let mut faults = vec![
        fault("401", api(401, "authentication_error"), ErrorKind::Api),
        fault("400", api(400, "invalid_request_error"), ErrorKind::Api),
        fault("403", api(403, "permission_error"), ErrorKind::Api),
        fault("404", api(404, "not_found_error"), ErrorKind::Api),
        fault("409", api(409, "conflict_error"), ErrorKind::Api),
        fault("413", api(413, "request_too_large"), ErrorKind::Api),
        fault("429", api(429, "rate_limit_error"), ErrorKind::Api),
        fault("500", api(500, "api_error"), ErrorKind::Api),
        fault("529", api(529, "overloaded_error"), ErrorKind::Api),
        fault(
            "prompt too long",
            Reply::error(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
            ErrorKind::Api,
        ),
        fault("502 HTML", Reply::raw(502, html(), "<html>bad gateway</html>"), ErrorKind::Api),
        fault(
            "200 with an error object",
            Reply::raw(
                200,
                json_type(),
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
            ),
            ErrorKind::Api,
        ),
        fault(
            "302",
            Reply::raw(302, [("location".to_owned(), "/elsewhere".to_owned())], ""),
            ErrorKind::Decode,
        ),
        fault("200 HTML", Reply::raw(200, html(), "<html>login</html>"), ErrorKind::Decode),
        fault("200 of broken JSON", Reply::raw(200, json_type(), r#"{"content":["#), ErrorKind::Decode),
        fault(
            "200 of another JSON",
            Reply::raw(200, json_type(), r#"{"content":"text"}"#),
            ErrorKind::Decode,
        ),
        fault("200 empty", Reply::raw(200, json_type(), ""), ErrorKind::Decode),
        fault("closed at once", Reply::text("lost").cut_after(0), ErrorKind::Transport),
        fault("cut in the head", Reply::text("lost").cut_after(20), ErrorKind::Transport),
        fault("cut in the body", Reply::text("lost").cut_after(260), ErrorKind::Transport),
        fault("reset in the body", Reply::text("lost").reset_after(260), ErrorKind::Transport),
        fault("not HTTP", Reply::garbage(&b"SSH-2.0-OpenSSH\r\n"[..]), ErrorKind::Transport),
        fault("silence", Reply::text("late").hold(gate), ErrorKind::Timeout),
    ];
    faults.push(Fault {
        name: "a call without id",
        reply: Reply::message(
            json!({"content": [{"type": "tool_use", "name": "add", "input": {}}], "stop_reason": "tool_use"}),
        ),
        kind: RunErrorKind::Protocol,
        client: None,
    });
    faults
}

pub(crate) fn client(server: &Server) -> Client {
    let builder = Client::builder().base_url(server.url()).auth(Auth::None).no_proxy();
    builder.max_retries(0).idle_timeout(Duration::from_millis(150)).build().unwrap()
}

/// The reply to the nth request of a run of four: three calls and an answer.
pub(crate) fn good(number: usize) -> Reply {
    match number {
        1..=3 => Reply::tool_use([(format!("t{number}"), "add", json!({"a": number, "b": 1}))]).usage(10, 1),
        _ => Reply::text("done").usage(10, 1),
    }
}
