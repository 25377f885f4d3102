//! What the API refuses, read from plain JSON.
//!
//! These rules share no code with the rest of the crate on purpose: they are a second opinion,
//! against which the crate's own checks can be held. Each of them takes JSON as it came over the
//! wire and gives the message that the API would put into its error, the first violation only.

mod blocks;
mod cache;
mod media;
mod messages;
mod models;
mod pairing;
mod request;
mod schema;
mod system;
mod tools;
mod turns;

use serde_json::{Map, Value};

/// `Err` holds the message of the API's error.
type Verdict = Result<(), String>;

type Object = Map<String, Value>;

/// What the rules know about a request besides its body.
#[derive(Debug, Default)]
pub(super) struct Setting<'a> {
    pub(super) betas: Vec<&'a str>,
    /// The request asks how many tokens it has, and for no reply.
    pub(super) counts: bool,
    /// The request names `2023-06-01`.
    pub(super) old_version: bool,
    /// Fields that pass without being known: `name` at the top level, `tools.name` in a tool.
    pub(super) allowed: &'a [String],
    /// Contents of the turns that this server paused, which may end a request.
    pub(super) paused: &'a [Vec<Value>],
}

impl Setting<'_> {
    fn beta(&self, prefixes: &[&str]) -> bool {
        self.betas.iter().any(|beta| prefixes.iter().any(|prefix| beta.starts_with(prefix)))
    }

    fn allows(&self, field: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == field)
    }
}

/// Judges a request body by the rules of the API, without a socket.
///
/// The version is `2026-10-21`; `betas` are the values of the `anthropic-beta` header. A body that
/// ends in an assistant message passes only where the body itself shows why: a server tool call
/// without its result, a server tool result or a compaction block at the end, a compaction
/// request, a fallback credit, or a model that still takes a prefill. [`Server`](super::Server)
/// also lets pass what it paused itself.
///
/// # Errors
///
/// The message that the API's `invalid_request_error` would carry, for the first violation found.
///
/// # Examples
///
/// ```
/// use agentloop::testing::check_request;
/// use serde_json::json;
///
/// let body = json!({"model": "claude-opus-5-5", "max_tokens": 64, "messages": []});
/// let refused = check_request(&body, &[]).unwrap_err();
/// assert_eq!(refused, "messages: at least one message is required");
/// ```
pub fn check_request(body: &Value, betas: &[&str]) -> Verdict {
    violation(body, &Setting { betas: betas.to_vec(), ..Setting::default() })
}

pub(super) fn violation(body: &Value, setting: &Setting<'_>) -> Verdict {
    let body = body.as_object().ok_or("Input should be a valid dictionary or object")?;
    request::check(body, setting)?;
    tools::check(body, setting)?;
    messages::check(body, setting)?;
    let turns = turns::joined(list(body, "messages"));
    system::check(&turns)?;
    pairing::check(&turns, body, setting)?;
    cache::check(body)
}

/// A field that is there and not `null`, which the API takes for absence.
fn present<'a>(object: &'a Object, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

fn text<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

fn list<'a>(object: &'a Object, name: &str) -> &'a [Value] {
    object.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Requires a field to be text with something in it.
fn require_text<'a>(object: &'a Object, name: &str, path: &str) -> Result<&'a str, String> {
    match object.get(name) {
        None => Err(format!("{path}.{name}: Field required")),
        Some(Value::String(text)) if text.is_empty() => {
            Err(format!("{path}.{name}: String should have at least 1 character"))
        }
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("{path}.{name}: Input should be a valid string")),
    }
}

fn optional_bool(object: &Object, name: &str, path: &str) -> Verdict {
    match present(object, name) {
        None | Some(Value::Bool(_)) => Ok(()),
        Some(_) => Err(format!("{path}{name}: Input should be a valid boolean")),
    }
}

/// Refuses fields that are in none of the lists.
fn only_fields(object: &Object, known: &[&str], path: &str) -> Verdict {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("{path}.{name}: Extra inputs are not permitted")),
        None => Ok(()),
    }
}
