//! One connection: read a request, judge it, play a reply, until either side closes.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::http::{Received, Wire, is_malformed};
use super::reply::{End, Reply};
use super::response::{Asked, Step};
use super::rules::{Setting, violation};
use super::server::{Next, Settings, Shared};

const MESSAGES: &str = "/v1/messages";
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";
const VERSIONS: &[&str] = &["2023-06-01", "2026-10-21"];

pub(super) async fn serve(socket: TcpStream, shared: Arc<Shared>) {
    let connection = shared.opened();
    let _open = Open(&shared);
    // A client that breaks the connection is a case like others: the test sees it from its side.
    let _ended = serve_requests(Wire::new(socket), &shared, connection).await;
}

/// Counts the connection as open, however its task ends.
struct Open<'a>(&'a Shared);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.closed();
    }
}

async fn serve_requests(mut wire: Wire, shared: &Shared, connection: usize) -> io::Result<()> {
    loop {
        let received = match wire.request().await {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(()),
            Err(error) if is_malformed(&error) => {
                let reply = Reply::error(400, "invalid_request_error", error.to_string()).close();
                return play(&mut wire, reply.response(&Asked::default())).await;
            }
            Err(error) => return Err(error),
        };
        let close = received.wants_close();
        let (asked, reply) = answer(received, shared, connection);
        let wait = async {
            if let Some(delay) = reply.delay {
                sleep(delay).await;
            }
            if let Some(gate) = &reply.gate {
                gate.passed().await;
            }
        };
        wire.wait(wait).await?;
        play(&mut wire, reply.response(&asked)).await?;
        match reply.end {
            End::KeepAlive if !close => {}
            End::ResetAfter(_) => return wire.socket.set_zero_linger(),
            _ => return wire.socket.shutdown().await,
        }
    }
}

async fn play(wire: &mut Wire, response: Vec<Step>) -> io::Result<()> {
    for step in response {
        match step {
            Step::Wait(gate) => wire.wait(gate.passed()).await?,
            Step::Write(bytes) => {
                wire.send(&bytes).await?;
                // A client on the same thread gets to read what was written by itself.
                yield_now().await;
            }
        }
    }
    Ok(())
}

fn answer(received: Received, shared: &Shared, connection: usize) -> (Asked, Reply) {
    let body = serde_json::from_slice::<Value>(&received.body);
    let field = |name| body.as_ref().ok().and_then(|body| body.get(name));
    let model = field("model").and_then(Value::as_str).unwrap_or_default().to_owned();
    let stream = field("stream") == Some(&Value::Bool(true)) && !counts(&received);
    let compacts = field("compaction").is_some_and(|field| !field.is_null());
    let (request, next) = shared.record(received, connection, |settings, received| {
        refusal(settings, received, body.as_ref().map_err(ToString::to_string))
    });
    let reply = match next {
        Next::Play(reply) => reply,
        Next::Ask(answer) => catch_unwind(AssertUnwindSafe(|| answer(&request))).unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            shared.failed(format!("the script panicked at request {}: {message}", request.number()))
        }),
    };
    shared.remember_pause(&reply, compacts);
    (Asked { number: request.number(), model, stream }, reply)
}

/// Why the API would refuse this, as the reply that says so and its message.
fn refusal(
    settings: &Settings,
    received: &Received,
    body: Result<&Value, String>,
) -> Option<(Reply, String)> {
    let refuse = |status, error_type: &str, message: String| {
        Some((Reply::error(status, error_type, message.as_str()), message))
    };
    let path = path(received);
    if !path.ends_with(MESSAGES) && !counts(received) {
        return refuse(404, "not_found_error", format!("Not found: {path}"));
    }
    if received.method != "POST" {
        return refuse(405, "invalid_request_error", format!("Method not allowed: {}", received.method));
    }
    if let Some(key) = &settings.key {
        let bearer = received.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        match received.header("x-api-key").or(bearer) {
            Some(sent) if sent == key => {}
            Some(_) => return refuse(401, "authentication_error", "invalid x-api-key".into()),
            None => return refuse(401, "authentication_error", "x-api-key header is required".into()),
        }
    }
    let judged = if settings.lenient {
        body.map(drop).map_err(|error| not_json(&error))
    } else {
        judge(settings, received, body)
    };
    judged.err().and_then(|message| refuse(400, "invalid_request_error", message))
}

/// The path without its query.
fn path(received: &Received) -> &str {
    received.path.split('?').next().unwrap_or_default()
}

fn counts(received: &Received) -> bool {
    path(received).ends_with(COUNT_TOKENS)
}

fn judge(settings: &Settings, received: &Received, body: Result<&Value, String>) -> Result<(), String> {
    let version = received.header("anthropic-version").ok_or("anthropic-version: header is required")?;
    if !VERSIONS.contains(&version) {
        return Err(format!("anthropic-version: \"{version}\" is not a valid version"));
    }
    let content =
        received.header("content-type").and_then(|value| value.split(';').next()).unwrap_or_default();
    if !content.trim().eq_ignore_ascii_case("application/json") {
        return Err("content-type: must be `application/json`".into());
    }
    let setting = Setting {
        betas: received.header_list("anthropic-beta"),
        counts: counts(received),
        old_version: version == "2023-06-01",
        allowed: &settings.allowed,
        paused: &settings.paused,
    };
    violation(body.map_err(|error| not_json(&error))?, &setting)
}

fn not_json(error: &str) -> String {
    format!("The request body is not valid JSON: {error}")
}
