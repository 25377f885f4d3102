//! One call: its attempts, the waits between them, and its total limit.

use std::collections::hash_map::RandomState;
use std::error::Error as _;
use std::fmt;
use std::future::ready;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use reqwest::Url;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};
use tracing::{Instrument as _, Span};

use super::auth::is_credential;
use super::credential::Issued;
use super::handle::{Client, Endpoint};
use super::idle::within;
use super::response::{Answer, Reading, Reply, Secrets};
use super::retry::{self, Failure, RetryPolicy, Situation, Verdict};
use super::transport::{self, Limits, Total};
use crate::error::{Error, Result, TimeoutPhase};
use crate::messages::MessageRequest;
use crate::telemetry;

/// A call ready to be sent, as often as it takes: every attempt sends the same bytes.
pub(crate) struct Call {
    client: Client,
    path: &'static str,
    url: Url,
    /// What it does and with which model: what rate limits count.
    name: String,
    /// Without the credential where a provider gives it.
    headers: HeaderMap,
    segments: Vec<Bytes>,
    idle: Duration,
    total: Option<Total>,
    retry: RetryPolicy,
    span: Span,
}

/// One attempt at a call.
pub(crate) struct Attempt {
    /// From 1.
    pub(crate) number: u32,
    /// All headers, the credential among them.
    pub(crate) headers: HeaderMap,
    /// The place among the requests in flight, given back when it is dropped.
    pub(crate) slot: Option<Slot>,
    /// The number of the credential, where a provider gave it.
    credential: Option<u64>,
    span: Span,
}

pub(crate) type Slot = OwnedSemaphorePermit;

/// An attempt that failed and is followed by another one.
#[derive(Debug)]
pub(crate) struct Retry {
    /// The number of the attempt that failed, from 1.
    pub(crate) attempt: u32,
    pub(crate) wait: Duration,
    pub(crate) error: Error,
}

impl Call {
    /// Prepares a call to an endpoint. Its total limit counts from here.
    pub(crate) fn new(
        client: &Client,
        endpoint: &Endpoint,
        request: &MessageRequest,
        segments: Vec<Bytes>,
    ) -> Result<Self> {
        let options = request.options();
        for (limit, setter) in [(options.timeout, "timeout"), (options.idle_timeout, "idle_timeout")] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Err(Error::request(format!("`{setter}` is zero: nothing could be sent in no time")));
            }
        }
        let inner = &client.inner;
        let total = options.timeout.or(inner.timeout).map(|limit| Total { start: Instant::now(), limit });
        let url = inner.base_url.endpoint(endpoint.path);
        let model = request.model_or(&inner.defaults);
        let name = format!("{} {model}", endpoint.operation);
        let span = telemetry::request(&name, endpoint.operation, &model, &url);
        Ok(Self {
            path: endpoint.path,
            headers: inner.headers.for_call(options)?,
            segments,
            idle: options.idle_timeout.unwrap_or(inner.idle_timeout),
            total,
            retry: RetryPolicy {
                max_retries: options.max_retries.unwrap_or(inner.retry.max_retries),
                ..inner.retry
            },
            client: client.clone(),
            url,
            name,
            span,
        })
    }

    /// One attempt, up to the head of a 2xx response.
    async fn send(&self, attempt: &Attempt) -> Result<Answer> {
        let inner = &self.client.inner;
        let limits = Limits { idle: self.idle, connect: inner.connect_timeout };
        let response =
            transport::send(&inner.http, &self.url, &attempt.headers, &self.segments, limits).await?;
        attempt.span.record("http.response.status_code", response.status().as_u16());
        self.reading(attempt).success(response).await
    }

    /// One attempt, up to the JSON text of a 2xx response.
    pub(crate) async fn send_for_json(&self, attempt: &Attempt) -> Result<Reply> {
        self.reading(attempt).json(self.send(attempt).await?).await
    }

    /// One attempt, up to the head of a stream of events.
    pub(crate) async fn send_for_events(&self, attempt: &Attempt) -> Result<Answer> {
        self.reading(attempt).events(self.send(attempt).await?).await
    }

    /// Repeats an attempt as the retry policy says, within the total limit.
    pub(crate) async fn run<T, F: Future<Output = Result<T>>>(
        &self,
        attempt: impl Fn(Attempt) -> F,
    ) -> Result<T> {
        self.run_with(attempt, |_| ready(())).await
    }

    /// As [`run`](Self::run), and tells of each retry before its wait.
    pub(crate) async fn run_with<T, F, N>(
        &self,
        attempt: impl Fn(Attempt) -> F,
        on_retry: impl Fn(Retry) -> N,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
        N: Future<Output = ()>,
    {
        let mut trail = Trail::default();
        let attempts = self.attempts(&mut trail, attempt, on_retry).instrument(self.span.clone());
        let outcome = match self.total {
            None => attempts.await,
            Some(Total { start, limit }) => {
                // The attempts before may have used up some of the limit already.
                match within(attempts, limit, || start).await {
                    Some(outcome) => outcome,
                    None => {
                        let error = TimeoutPhase::Total.timed_out(limit, "timeout");
                        Err(match trail.last.take() {
                            Some(last) => error.with_source(last),
                            None => error,
                        })
                    }
                }
            }
        };
        outcome.map_err(|error| {
            let error = error.with_attempts(trail.attempts);
            telemetry::failed(&self.span, &error);
            error
        })
    }

    async fn attempts<T, F, N>(
        &self,
        trail: &mut Trail,
        attempt: impl Fn(Attempt) -> F,
        on_retry: impl Fn(Retry) -> N,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
        N: Future<Output = ()>,
    {
        loop {
            let next = match self.admit(trail).await {
                Ok(next) => next,
                Err(error) => {
                    return Err(match trail.last.take() {
                        // Why there was to be another attempt.
                        Some(last) if error.source().is_none() => error.with_source(last),
                        _ => error,
                    });
                }
            };
            let (credential, span) = (next.credential, next.span.clone());
            trail.attempts = next.number;
            // The task of a pooled connection gets a turn first: where a server sent what nobody asked
            // for, it sees that now and closes, and the next reply is not taken for this one.
            tokio::task::yield_now().await;
            let error = match attempt(next).instrument(span.clone()).await {
                Ok(done) => {
                    if let Some(cool_downs) = &self.client.inner.cool_downs {
                        cool_downs.succeeded(&self.name);
                    }
                    return Ok(done);
                }
                Err(error) => retry::judged(error).with_attempts(trail.attempts),
            };
            telemetry::failed(&span, &error);

            let wait = match self.judge(&error, trail) {
                _ if error.status() == Some(401) && credential.is_some() && trail.refused.is_none() => {
                    trail.refused = credential;
                    Duration::ZERO
                }
                Verdict::Retry(wait) => {
                    trail.retries += 1;
                    wait
                }
                Verdict::Stop => {
                    // The total limit, which may end a stream from within the attempt.
                    return Err(match trail.last.take() {
                        Some(last) if error.timeout_phase() == Some(TimeoutPhase::Total) => {
                            error.with_source(last)
                        }
                        _ => error,
                    });
                }
            };
            tracing::warn!(
                attempt = trail.attempts,
                kind = error.kind().as_str(),
                status = error.status(),
                request_id = error.request_id(),
                ?wait,
                "the attempt failed, trying again after a wait"
            );
            trail.last = Some(error.clone());
            on_retry(Retry { attempt: trail.attempts, wait, error }).await;
            sleep(wait).await;
        }
    }

    /// What follows from a failed attempt, for this call and for the others of its model.
    fn judge(&self, error: &Error, trail: &Trail) -> Verdict {
        let failure = Failure::of(error);
        let left = self.total.map(Total::left);
        let situation = Situation { retries: trail.retries, left, jitter: jitter() };
        if let Some(cool_downs) = &self.client.inner.cool_downs
            && let Some(wait) = retry::cool_down(failure, situation, self.retry)
        {
            cool_downs.begin(&self.name, wait, error);
        }
        retry::verdict(failure, situation, self.retry)
    }

    /// Waits until an attempt may go out, and gets what it needs. What was waited for may be over
    /// once the next wait is, so it may take several rounds, within the limits of one.
    async fn admit(&self, trail: &mut Trail) -> Result<Attempt> {
        let mut waits = Waits::default();
        loop {
            self.cool_down(trail, &mut waits).await?;
            let issued = self.credential(trail.refused, &mut waits).await?;
            let held = issued.as_ref().is_none_or(Issued::holds);
            let slot = self.slot(&mut waits).await?;
            let cool_downs = self.client.inner.cool_downs.as_ref();
            if cool_downs.is_some_and(|cool_downs| cool_downs.is_cooling(&self.name)) {
                continue;
            }
            // One that had run out when the provider gave it is the API's to refuse.
            if held && !issued.as_ref().is_none_or(Issued::holds) {
                continue;
            }
            let mut headers = self.headers.clone();
            let credential = issued.as_ref().map(|issued| issued.number);
            headers.extend(issued.map(|issued| (issued.name, issued.value)));
            let span = telemetry::attempt(self.path, trail.attempts);
            return Ok(Attempt { number: trail.attempts + 1, headers, slot, credential, span });
        }
    }

    /// Waits as long as a rate limit holds calls of this name back.
    async fn cool_down(&self, trail: &mut Trail, waits: &mut Waits) -> Result<()> {
        let Some(cool_downs) = &self.client.inner.cool_downs else { return Ok(()) };
        let own = trail.last.clone();
        let waiting_for = |cause: &Error| {
            tracing::debug!(of = self.name, "waiting for the end of a rate limit");
            // If a total limit ends the call here, this is why.
            trail.last = own.clone().or_else(|| Some(cause.clone()));
        };
        let since = *waits.cool_down.get_or_insert_with(Instant::now);
        let deadline = since.checked_add(self.retry.longest_wait);
        let passed = cool_downs.pass(&self.name, deadline, waiting_for).await;
        trail.last = own;
        passed
    }

    /// The credential of a provider, where this call does not bring its own.
    async fn credential(&self, refused: Option<u64>, waits: &mut Waits) -> Result<Option<Issued>> {
        let credentials = self.client.inner.credentials.as_ref();
        let Some(credentials) = credentials.filter(|_| !self.headers.keys().any(is_credential)) else {
            return Ok(None);
        };
        let since = *waits.credential.get_or_insert_with(Instant::now);
        let issued = credentials.get(refused, self.idle / 2);
        self.within_idle(TimeoutPhase::Credential, since, issued).await?.map(Some)
    }

    async fn slot(&self, waits: &mut Waits) -> Result<Option<Slot>> {
        let Some(slots) = &self.client.inner.slots else { return Ok(None) };
        let since = *waits.slot.get_or_insert_with(Instant::now);
        let slot = Arc::clone(slots).acquire_owned();
        // It is never closed.
        Ok(self.within_idle(TimeoutPhase::Slot, since, slot).await?.ok())
    }

    async fn within_idle<T>(
        &self,
        phase: TimeoutPhase,
        since: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T> {
        let done = within(work, self.idle, || since).await;
        done.ok_or_else(|| phase.timed_out(self.idle, "idle_timeout"))
    }

    fn reading<'a>(&'a self, attempt: &'a Attempt) -> Reading<'a> {
        let secrets = self.secrets(&attempt.headers);
        Reading { idle: self.idle, cap: self.max_response_bytes(), secrets }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn proxy_secrets(&self) -> &Arc<[String]> {
        &self.client.inner.proxy_secrets
    }

    /// What an attempt with these headers sends and nobody may see.
    pub(crate) fn secrets<'a>(&'a self, headers: &'a HeaderMap) -> Secrets<'a> {
        Secrets { headers, url: &self.url, proxy: self.proxy_secrets() }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// The total limit, for a reply that is read after the call has returned.
    pub(crate) fn total(&self) -> Option<Total> {
        self.total
    }

    /// The longest reply that is taken in.
    pub(crate) fn max_response_bytes(&self) -> usize {
        self.client.inner.max_response_bytes
    }

    /// The longest event that a stream may have.
    pub(crate) fn max_event_bytes(&self) -> usize {
        self.client.inner.max_event_bytes
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("path", &self.path).field("retry", &self.retry).finish_non_exhaustive()
    }
}

/// Since when an attempt waits for what it needs, each for the first time.
#[derive(Default)]
struct Waits {
    cool_down: Option<Instant>,
    credential: Option<Instant>,
    slot: Option<Instant>,
}

/// What a call leaves behind, readable also when its limit cuts it off.
#[derive(Default)]
struct Trail {
    attempts: u32,
    retries: u32,
    last: Option<Error>,
    /// The credential that the API did not take. Another one is asked for once.
    refused: Option<u64>,
}

/// A number in `0.0..1.0`, different each time: every `RandomState` has keys of its own.
fn jitter() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_spread_over_its_range() {
        let all: Vec<f64> = (0..400).map(|_| jitter()).collect();
        assert!(all.iter().all(|x| (0.0..1.0).contains(x)));
        let low = all.iter().filter(|x| **x < 0.5).count();
        assert!((100..300).contains(&low), "{low} of 400 below a half");
    }
}
