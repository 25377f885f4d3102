//! One attempt: a request out, the head of its response in.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body::Body as _;
use reqwest::{Body, Request, Response, Url};
use tokio::task::coop::poll_proceed;
use tokio::time::{Instant, Sleep, sleep};

use super::body::{Progress, SegmentBody, Sent};
use super::idle::{poll_expired, within};
use crate::error::{Error, ErrorKind, Result, TimeoutPhase};

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
            Sent::Nothing => TimeoutPhase::Connect,
            Sent::Some => TimeoutPhase::Send,
            Sent::All => TimeoutPhase::Headers,
        }
        .timed_out(limits.idle, "idle_timeout")),
    }
}

/// The body of a response, read against the clock. Time counts while somebody waits for it: a
/// reader that pauses is not timed out, unless the total limit passed meanwhile.
pub(crate) struct Incoming {
    body: Body,
    idle: Duration,
    total: Option<Total>,
    timers: Option<Timers>,
    /// Since when the next piece is waited for.
    waiting: Option<Instant>,
}

struct Timers {
    idle: Pin<Box<Sleep>>,
    total: Pin<Box<Sleep>>,
}

/// The total limit of a call, and the moment from which it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Total {
    pub(crate) start: Instant,
    pub(crate) limit: Duration,
}

impl Total {
    /// How much of it is left.
    pub(crate) fn left(self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }
}

impl Incoming {
    pub(crate) fn new(body: Body, idle: Duration) -> Self {
        Self { body, idle, total: None, timers: None, waiting: None }
    }

    /// Lets a total limit end the reading too: nothing around it does where the caller reads, or
    /// where there always is more to read.
    pub(crate) fn limit(&mut self, total: Option<Total>) {
        self.total = total;
        self.timers = None;
    }

    /// The next piece, `None` at the end. `phase` is what a limit of time tells.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        phase: TimeoutPhase,
    ) -> Poll<Result<Option<Bytes>>> {
        loop {
            // A server that is always faster must not keep the thread: timers and cancellation are
            // looked at when the reader waits.
            let coop = ready!(poll_proceed(cx));
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    coop.made_progress();
                    // Trailers are no part of the body.
                    let Ok(bytes) = frame.into_data() else { continue };
                    // Where there always is more, nobody ever waits.
                    if let Some(total) = self.total.filter(|total| total.left().is_zero()) {
                        return Poll::Ready(Err(TimeoutPhase::Total.timed_out(total.limit, "timeout")));
                    }
                    self.waiting = None;
                    return Poll::Ready(Ok(Some(bytes)));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(failed(error, None))),
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Pending => {
                    let (limit, setter, phase) = ready!(self.poll_limits(cx, phase));
                    return Poll::Ready(Err(phase.timed_out(limit, setter)));
                }
            }
        }
    }

    fn poll_limits(
        &mut self,
        cx: &mut Context<'_>,
        phase: TimeoutPhase,
    ) -> Poll<(Duration, &'static str, TimeoutPhase)> {
        let since = *self.waiting.get_or_insert_with(Instant::now);
        let total = self.total;
        let timers = self.timers.get_or_insert_with(|| Timers {
            idle: Box::pin(sleep(self.idle)),
            total: Box::pin(sleep(total.map_or(Duration::MAX, Total::left))),
        });
        if let Some(Total { start, limit }) = total
            && poll_expired(timers.total.as_mut(), limit, || start, cx).is_ready()
        {
            return Poll::Ready((limit, "timeout", TimeoutPhase::Total));
        }
        poll_expired(timers.idle.as_mut(), self.idle, || since, cx)
            .map(|()| (self.idle, "idle_timeout", phase))
    }
}

/// Classifies by type and never by text. The URL is left out, since its query may hold a key.
fn failed(error: reqwest::Error, connect: Option<Duration>) -> Error {
    let error = error.without_url();
    if error.is_timeout() && error.is_connect() {
        return match connect {
            Some(limit) => TimeoutPhase::Connect.timed_out(limit, "connect_timeout"),
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
