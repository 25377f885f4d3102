//! One attempt: a request out, the head of its response in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use reqwest::{Body, Request, Response, Url};

use super::body::{Progress, SegmentBody, Sent};
use super::idle::{Phase, within};
use crate::error::{Error, ErrorKind, Result};

/// The limits of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) idle: Duration,
    /// The connect limit of the HTTP client, where it is known.
    pub(crate) connect: Option<Duration>,
}

/// Sends a request and waits for the head of the response, whatever its status.
pub(crate) async fn send(
    http: &reqwest::Client,
    url: &Url,
    headers: &HeaderMap,
    segments: &[Bytes],
    limits: Limits,
) -> Result<Response> {
    let progress = Arc::new(Progress::new());
    let mut request = Request::new(Method::POST, url.clone());
    *request.headers_mut() = headers.clone();
    *request.body_mut() = Some(Body::wrap(SegmentBody::new(segments, Arc::clone(&progress))));

    match within(http.execute(request), limits.idle, || progress.last()).await {
        Some(outcome) => outcome.map_err(|error| failed(error, limits.connect)),
        None => Err(match progress.sent() {
            Sent::Nothing => Phase::Connect,
            Sent::Some => Phase::Send,
            Sent::All => Phase::Headers,
        }
        .timed_out(limits.idle, "idle_timeout")),
    }
}

/// The next piece of a response body, `None` at its end.
pub(crate) async fn read(response: &mut Response, idle: Duration) -> Result<Option<Bytes>> {
    let start = tokio::time::Instant::now();
    match within(response.chunk(), idle, || start).await {
        Some(outcome) => outcome.map_err(|error| failed(error, None)),
        None => Err(Phase::Body.timed_out(idle, "idle_timeout")),
    }
}

/// Classifies by type and never by text. The URL is left out, since its query may hold a key.
fn failed(error: reqwest::Error, connect: Option<Duration>) -> Error {
    let error = error.without_url();
    if error.is_timeout() && error.is_connect() {
        return match connect {
            Some(limit) => Phase::Connect.timed_out(limit, "connect_timeout"),
            None => Error::new(ErrorKind::Timeout, "no connection within the limit of the HTTP client"),
        }
        .with_source(error);
    }
    let (kind, message) = if error.is_builder() {
        (ErrorKind::Request, "the request can't be sent as it is")
    } else if error.is_redirect() {
        (ErrorKind::Decode, "the HTTP client did not follow a redirect")
    } else if error.is_timeout() {
        (ErrorKind::Timeout, "the connection stopped answering")
    } else if error.is_connect() {
        (ErrorKind::Connect, "no connection to the server")
    } else {
        (ErrorKind::Transport, "the connection broke")
    };
    Error::new(kind, message).with_source(error)
}
