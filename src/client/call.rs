//! One call: its attempts, the waits between them, and its total limit.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::ready;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use reqwest::Url;
use tokio::time::{Instant, sleep};

use super::handle::Client;
use super::idle::{Phase, within};
use super::response::{Answer, MAX_REPLY, Reading, Reply, Secrets};
use super::retry::{self, Failure, RetryPolicy, Verdict};
use super::transport::{self, Limits, Total};
use crate::error::{Error, Result};
use crate::messages::ApiError;
use crate::messages::options::CallOptions;

/// A call ready to be sent, as often as it takes: every attempt sends the same bytes.
pub(crate) struct Call {
    client: Client,
    path: &'static str,
    url: Url,
    headers: HeaderMap,
    segments: Vec<Bytes>,
    idle: Duration,
    total: Option<Total>,
    retry: RetryPolicy,
}

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
        path: &'static str,
        segments: Vec<Bytes>,
        options: &CallOptions,
    ) -> Result<Self> {
        for (limit, setter) in [(options.timeout, "timeout"), (options.idle_timeout, "idle_timeout")] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Err(Error::request(format!("`{setter}` is zero: nothing could be sent in no time")));
            }
        }
        let inner = &client.inner;
        let total = options.timeout.or(inner.timeout).map(|limit| Total { start: Instant::now(), limit });
        Ok(Self {
            path,
            url: inner.base_url.endpoint(path),
            headers: inner.headers.for_call(options)?,
            segments,
            idle: options.idle_timeout.unwrap_or(inner.idle_timeout),
            total,
            retry: RetryPolicy {
                max_retries: options.max_retries.unwrap_or(inner.retry.max_retries),
                ..inner.retry
            },
            client: client.clone(),
        })
    }

    /// One attempt, up to the head of a 2xx response.
    async fn send(&self) -> Result<Answer> {
        let inner = &self.client.inner;
        let limits = Limits { idle: self.idle, connect: inner.connect_timeout };
        let response = transport::send(&inner.http, &self.url, &self.headers, &self.segments, limits).await?;
        self.reading().success(response).await
    }

    /// One attempt, up to the JSON text of a 2xx response.
    pub(crate) async fn send_for_json(&self) -> Result<Reply> {
        self.reading().json(self.send().await?).await
    }

    /// One attempt, up to the head of a stream of events.
    pub(crate) async fn send_for_events(&self) -> Result<Answer> {
        self.reading().events(self.send().await?).await
    }

    /// Repeats an attempt as the retry policy says, within the total limit. The attempt gets its
    /// number, from 1.
    pub(crate) async fn run<T, F: Future<Output = Result<T>>>(
        &self,
        attempt: impl Fn(u32) -> F,
    ) -> Result<T> {
        self.run_with(attempt, |_| ready(())).await
    }

    /// As [`run`](Self::run), and tells of each retry before its wait.
    pub(crate) async fn run_with<T, F, N>(
        &self,
        attempt: impl Fn(u32) -> F,
        on_retry: impl Fn(Retry) -> N,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
        N: Future<Output = ()>,
    {
        let mut trail = Trail::default();
        let attempts = self.attempts(&mut trail, attempt, on_retry);
        let outcome = match self.total {
            None => attempts.await,
            Some(Total { start, limit }) => {
                // The attempts before may have used up some of the limit already.
                match within(attempts, limit, || start).await {
                    Some(outcome) => outcome,
                    None => {
                        let error = Phase::Total.timed_out(limit, "timeout");
                        Err(match trail.last.take() {
                            Some(last) => error.with_source(last),
                            None => error,
                        })
                    }
                }
            }
        };
        outcome.map_err(|error| error.with_attempts(trail.attempts))
    }

    async fn attempts<T, F, N>(
        &self,
        trail: &mut Trail,
        attempt: impl Fn(u32) -> F,
        on_retry: impl Fn(Retry) -> N,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
        N: Future<Output = ()>,
    {
        loop {
            let retries = trail.attempts;
            trail.attempts += 1;
            tracing::debug!(path = self.path, attempt = trail.attempts, "sending a request");
            // The task of a pooled connection gets a turn first: where a server sent what nobody asked
            // for, it sees that now and closes, and the next reply is not taken for this one.
            tokio::task::yield_now().await;
            let error = match attempt(trail.attempts).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };

            let error_code = error.api_error().and_then(ApiError::error_code);
            let verdict =
                retry::verdict(Failure::of(&error, error_code.as_deref()), retries, self.retry, jitter());
            let verdict = match verdict {
                Verdict::Retry(wait) if self.is_beyond(wait) => Verdict::Stop,
                verdict => verdict,
            };
            let error = retry::judged(error).with_attempts(trail.attempts);
            let (kind, status, request_id) = (error.kind(), error.status(), error.request_id());
            match verdict {
                Verdict::Stop => {
                    tracing::debug!(
                        path = self.path,
                        attempt = trail.attempts,
                        ?kind,
                        status,
                        request_id,
                        "giving up"
                    );
                    // The total limit, which may end a stream from within the attempt.
                    return Err(match trail.last.take() {
                        Some(last) if error.is_timeout() && self.is_beyond(Duration::ZERO) => {
                            error.with_source(last)
                        }
                        _ => error,
                    });
                }
                Verdict::Retry(wait) => {
                    tracing::warn!(
                        path = self.path,
                        attempt = trail.attempts,
                        ?kind,
                        status,
                        request_id,
                        ?wait,
                        "the attempt failed, trying again after a wait"
                    );
                    trail.last = Some(error.clone());
                    on_retry(Retry { attempt: trail.attempts, wait, error }).await;
                    sleep(wait).await;
                }
            }
        }
    }

    /// True if the total limit ends before this wait does: the error at hand says more than that.
    fn is_beyond(&self, wait: Duration) -> bool {
        self.total.is_some_and(|total| total.left() <= wait)
    }

    fn reading(&self) -> Reading<'_> {
        Reading { idle: self.idle, cap: MAX_REPLY, secrets: self.secrets() }
    }

    pub(crate) fn secrets(&self) -> Secrets<'_> {
        Secrets { headers: &self.headers, url: &self.url }
    }

    /// The total limit, for a reply that is read after the call has returned.
    pub(crate) fn total(&self) -> Option<Total> {
        self.total
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

/// What a call leaves behind, readable also when its limit cuts it off.
#[derive(Default)]
struct Trail {
    attempts: u32,
    last: Option<Error>,
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
