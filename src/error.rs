//! The one error of the client and of everything that makes a request.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;

use crate::client::retry;
use crate::messages::rate_limits::RateLimits;
use crate::messages::{ApiError, ApiErrorType, Message, json};

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Arc<dyn StdError + Send + Sync>;

/// An error of the client, or of making a request.
///
/// [`kind`](Self::kind) says what failed, the accessors give what is known about it, and
/// `Display` speaks for this layer alone: [`source`](StdError::source) has the rest, and
/// [`chain`](Self::chain) prints both. It is one word wide and cheap to clone. It never holds a
/// key, and never shows the text of a prompt or a reply.
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Source>,
    api: Option<ApiError>,
    status: Option<StatusCode>,
    headers: HeaderMap,
    retry_after: Option<Duration>,
    timeout_phase: Option<TimeoutPhase>,
    attempts: u32,
    retryable: bool,
    partial: Option<Message>,
    delivered: bool,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The API answered with an error. The request was sent; statuses 408, 409, 429 and from 500
    /// on are retried, an error inside a 2xx by its type, and `x-should-retry` wins over both;
    /// spend limits are never retried.
    Api,
    /// The client can't be built, or has no credential. Nothing was sent; never retried.
    Config,
    /// No connection to the server. Nothing was sent; retried.
    Connect,
    /// The provider gave no credential; its own error is the source. Nothing was sent, or nothing
    /// but an attempt whose credential was refused; not retried, since the provider knows better
    /// whether that would help.
    Credential,
    /// A response that is not what the API sends: another content type, broken JSON, a redirect,
    /// an empty body. The request was sent; only an empty body is retried.
    Decode,
    /// The request breaks a rule that can be checked here. Nothing was sent; never retried.
    Request,
    /// No progress within the limit. The request may have been sent; retried.
    Timeout,
    /// A response is longer than the limit. The request was sent; never retried. The text names the
    /// setter of the limit.
    TooLarge,
    /// The connection broke while sending or reading. The request may have been sent; retried.
    Transport,
}

impl ErrorKind {
    /// A name for logs and matches, `timeout` for instance.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Config => "config",
            Self::Connect => "connect",
            Self::Credential => "credential",
            Self::Decode => "decode",
            Self::Request => "request",
            Self::Timeout => "timeout",
            Self::TooLarge => "too_large",
            Self::Transport => "transport",
        }
    }
}

/// Where a call stood when its time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeoutPhase {
    /// Reading the response's body.
    Body,
    /// Making the connection, TLS included.
    Connect,
    /// Waiting for the credential from its provider. Nothing was sent.
    Credential,
    /// Waiting for the first event of a stream.
    FirstEvent,
    /// Waiting for the response's headers.
    Headers,
    /// Sending the request's body.
    Send,
    /// Waiting for a place among the requests in flight. Nothing was sent.
    Slot,
    /// Anywhere: the call as a whole took too long.
    Total,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                message: message.into(),
                source: None,
                api: None,
                status: None,
                headers: HeaderMap::new(),
                retry_after: None,
                timeout_phase: None,
                attempts: 0,
                retryable: matches!(kind, ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Transport),
                partial: None,
                delivered: false,
            }),
        }
    }

    pub(crate) fn request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Request, message)
    }

    pub(crate) fn config(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.inner));
        self
    }

    pub(crate) fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.edit(|inner| inner.source = Some(Arc::from(source.into())))
    }

    pub(crate) fn with_api(self, api: ApiError) -> Self {
        self.edit(|inner| inner.api = Some(api))
    }

    pub(crate) fn with_response(self, status: StatusCode, headers: HeaderMap) -> Self {
        self.edit(|inner| {
            inner.status = Some(status);
            inner.retry_after = retry::server_wait(&headers, SystemTime::now());
            inner.headers = headers;
        })
    }

    pub(crate) fn with_retryable(self, retryable: bool) -> Self {
        self.edit(|inner| inner.retryable = retryable)
    }

    pub(crate) fn with_timeout_phase(self, phase: TimeoutPhase) -> Self {
        self.edit(|inner| inner.timeout_phase = Some(phase))
    }

    pub(crate) fn with_attempts(self, attempts: u32) -> Self {
        self.edit(|inner| inner.attempts = attempts)
    }

    pub(crate) fn with_partial(self, partial: Option<Message>) -> Self {
        self.edit(|inner| inner.partial = partial)
    }

    /// Says that something of the reply reached the caller already.
    pub(crate) fn with_delivered(self) -> Self {
        self.edit(|inner| inner.delivered = true)
    }

    pub(crate) fn was_delivered(&self) -> bool {
        self.inner.delivered
    }

    /// What failed.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The status of the response, where there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.inner.status.map(|status| status.as_u16())
    }

    pub(crate) fn status_code(&self) -> Option<StatusCode> {
        self.inner.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.inner.headers
    }

    /// The error as the API told it.
    #[must_use]
    pub fn api_error(&self) -> Option<&ApiError> {
        self.inner.api.as_ref()
    }

    /// The API's type string, `overloaded_error` for instance (row J17 of the contract).
    #[must_use]
    pub fn api_type(&self) -> Option<&str> {
        self.api_error().map(|api| api.error_type.as_str())
    }

    /// The API's finest name for the error: `details.error_code`, `ramp_limit_exceeded` for
    /// instance.
    #[must_use]
    pub fn error_code(&self) -> Option<&str> {
        self.api_error().and_then(ApiError::error_code)
    }

    /// The details of the API's error as JSON, where it gave some. They may quote the request.
    #[must_use]
    pub fn details(&self) -> Option<&RawValue> {
        self.api_error().and_then(|api| api.details.as_deref())
    }

    /// The request id: the header's, else the one of the error body. Give it to support.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.header("request-id").or_else(|| self.api_error().and_then(|api| api.request_id.as_deref()))
    }

    /// A header of the response, where there was one and it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.inner.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The rate limits as the response told them: on a 429, which of them was reached.
    #[must_use]
    pub fn rate_limits(&self) -> RateLimits {
        RateLimits::from_headers(&self.inner.headers)
    }

    /// The reply as far as it came, where a stream broke after its beginning. Calls in it must not
    /// be run, and it can't be part of a conversation: the request has to be sent again.
    #[must_use]
    pub fn partial_message(&self) -> Option<&Message> {
        self.inner.partial.as_ref()
    }

    /// How many times the request was tried; 0 when nothing was sent.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.inner.attempts
    }

    /// The wait that the server asked for, counted from its answer; `None` if it asked for none or
    /// for a useless one: zero, negative, in the past, or no number and no date.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.inner.retry_after
    }

    /// Where the call stood when its time ran out. `None` if it did not, and where the HTTP client
    /// gave up by itself: nobody answered its pings, or your own client has limits of its own.
    #[must_use]
    pub fn timeout_phase(&self) -> Option<TimeoutPhase> {
        self.inner.timeout_phase
    }

    /// True if the same request may succeed later. The client's own retries are spent by then.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.inner.retryable
    }

    /// True if a limit of time ended the request.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.inner.kind == ErrorKind::Timeout
    }

    /// True if the API has no capacity at the moment.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.status() == Some(529)
            || self.api_error().is_some_and(|api| api.error_type == ApiErrorType::Overloaded)
    }

    /// True if a rate or spend limit was reached.
    #[must_use]
    pub fn is_rate_limit(&self) -> bool {
        self.status() == Some(429)
            || self.api_error().is_some_and(|api| api.error_type == ApiErrorType::RateLimit)
    }

    /// True if the conversation is longer than the model's context. The API has no code for it,
    /// so this reads the start of its message.
    #[must_use]
    pub fn is_context_overflow(&self) -> bool {
        self.api_error().is_some_and(|api| {
            api.error_type == ApiErrorType::InvalidRequest && api.message.starts_with("prompt is too long")
        })
    }

    /// This error and all its sources on one line, each once.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// The beginning of a text that may be as long as a response.
fn excerpt(text: &str) -> Cow<'_, str> {
    match text.get(..json::floor(text, LONGEST)) {
        Some(beginning) if beginning.len() < text.len() => format!("{beginning}…").into(),
        _ => text.into(),
    }
}

/// An error shows this much of what the API says, and [`Error::api_error`] has all of it.
const LONGEST: usize = 1000;

/// An error and all its sources on one line, each once.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        line.push_str(": ");
        line.push_str(&error.to_string());
        source = error.source();
    }
    line
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)?;
        if let Some(api) = &self.inner.api {
            write!(f, ": {}: {}", excerpt(api.error_type.as_str()), excerpt(&api.message))?;
        }
        if let Some(id) = self.request_id() {
            write!(f, " (request id {id})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.inner.kind).field("message", &self.inner.message);
        if let Some(status) = self.status() {
            debug.field("status", &status);
        }
        if let Some(api) = &self.inner.api {
            debug.field("api_type", &excerpt(api.error_type.as_str()));
            debug.field("api_message", &excerpt(&api.message));
        }
        if let Some(id) = self.request_id() {
            debug.field("request_id", &id);
        }
        if let Some(partial) = &self.inner.partial {
            // Without its words.
            debug.field("partial_blocks", &partial.content().len());
        }
        if self.inner.attempts > 0 {
            debug.field("attempts", &self.inner.attempts);
        }
        if let Some(source) = &self.inner.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_word_and_crosses_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Error>();
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn chain_prints_each_layer_once() {
        let error = Error::new(ErrorKind::Transport, "the connection broke").with_source("reset by peer");
        assert_eq!(error.to_string(), "the connection broke");
        assert_eq!(error.chain(), "the connection broke: reset by peer");
        assert!(error.is_retryable());
    }
}
