//! How a run ends: well, or with a reason to stop.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{self, Error, ErrorKind};
use crate::messages::StopReason;

/// How a run ended that was not stopped by an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The API made a compaction block and paused.
    Compaction,
    /// The model's context is full; the reply is cut off.
    ContextWindow,
    /// The model stopped by itself, or at a stop sequence, and said nothing: the reply has no
    /// content that may be sent back.
    Empty,
    /// The model is done.
    EndTurn,
    /// The limit of output tokens was reached; the reply is cut off.
    MaxTokens,
    /// The stop reason was `tool_use`, but there was no call to answer.
    NoCalls,
    /// A classifier declined; [`stop_details`](crate::messages::Message::stop_details) says more.
    Refusal,
    /// One of the caller's stop sequences came up.
    StopSequence,
    /// A stop reason that this version does not know, or none.
    Other(Option<StopReason>),
}

impl Ended {
    /// True if the model finished what it had to say.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::EndTurn | Self::StopSequence)
    }

    /// True if a limit cut the reply off.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        matches!(self, Self::ContextWindow | Self::MaxTokens)
    }

    /// Why a call of the last turn was not executed, for the model.
    pub(super) fn why_open(&self) -> String {
        match self {
            Self::ContextWindow | Self::MaxTokens => {
                "the reply was cut off by a limit, the call may be incomplete".to_owned()
            }
            Self::Refusal => "the reply was refused".to_owned(),
            ended => format!("the turn ended with {ended}"),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compaction => "compaction",
            Self::ContextWindow => "model_context_window_exceeded",
            Self::Empty => "a reply without content",
            Self::EndTurn => "end_turn",
            Self::MaxTokens => "max_tokens",
            Self::NoCalls => "tool_use without a call",
            Self::Refusal => "refusal",
            Self::StopSequence => "stop_sequence",
            Self::Other(Some(reason)) => reason.as_str(),
            Self::Other(None) => "no stop reason",
        })
    }
}

/// What stopped a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunErrorKind {
    /// The caller cancelled the run.
    Cancelled,
    /// The client's error, which [`Stop::client_error`] gives: a request failed.
    Client,
    /// The cap on requests was reached. The loop can go on once the cap is raised.
    MaxIterations,
    /// The runner that drives the loop lacks a handler that the loop's rules name.
    MissingTool,
    /// A reply breaks the rules of the API, so that nothing of it may be kept or run.
    Protocol,
    /// The request or the rules can't be used as they are. Nothing was sent.
    Request,
    /// The run as a whole took longer than the caller allows.
    Timeout,
}

impl RunErrorKind {
    /// A name for logs and matches, `max_iterations` for instance.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Client => "client",
            Self::MaxIterations => "max_iterations",
            Self::MissingTool => "missing_tool",
            Self::Protocol => "protocol",
            Self::Request => "request",
            Self::Timeout => "timeout",
        }
    }
}

/// The reason why a loop stopped, without the loop. One word wide and cheap to clone.
#[derive(Clone)]
pub struct Stop {
    inner: Arc<Inner>,
}

struct Inner {
    kind: RunErrorKind,
    text: String,
    client: Option<Error>,
}

impl Stop {
    pub(crate) fn new(kind: RunErrorKind, text: impl Into<String>) -> Self {
        Self { inner: Arc::new(Inner { kind, text: text.into(), client: None }) }
    }

    pub(crate) fn max_iterations(cap: u32) -> Self {
        Self::new(
            RunErrorKind::MaxIterations,
            format!("the run reached its limit of requests (`max_iterations` is {cap})"),
        )
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(RunErrorKind::Cancelled, "the run was cancelled")
    }

    /// `last` is the failure whose wait or repetition was under way.
    pub(crate) fn timed_out(limit: Duration, last: Option<Error>) -> Self {
        let text = format!("the run did not end within {limit:?} (the limit of `timeout` on the runner)");
        Self { inner: Arc::new(Inner { kind: RunErrorKind::Timeout, text, client: last }) }
    }

    /// What stopped the run.
    #[must_use]
    pub fn kind(&self) -> RunErrorKind {
        self.inner.kind
    }

    /// A name to match: the API's own type where the API answered with an error
    /// (`overloaded_error`), else that of the kind (`max_iterations`).
    #[must_use]
    pub fn error_type(&self) -> &str {
        let of_client = self.client_error().filter(|_| self.kind() == RunErrorKind::Client);
        of_client.and_then(Error::api_type).unwrap_or_else(|| self.kind().as_str())
    }

    /// The client's error, where a request failed or was refused before it was sent. Of a run that
    /// took too long, why its last request was being sent again, if it was.
    #[must_use]
    pub fn client_error(&self) -> Option<&Error> {
        self.inner.client.as_ref()
    }

    /// True if the same conversation may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind() == RunErrorKind::Client && self.client_error().is_some_and(Error::is_retryable)
    }

    /// This reason and its sources on one line, each once.
    #[must_use]
    pub fn chain(&self) -> String {
        error::chain(self)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        let (kind, text) = match error.kind() {
            ErrorKind::Request => (RunErrorKind::Request, "the request can't be sent"),
            _ => (RunErrorKind::Client, "a request of the run failed"),
        };
        Self { inner: Arc::new(Inner { kind, text: text.to_owned(), client: Some(error) }) }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.text)
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Stop");
        debug.field("kind", &self.inner.kind).field("text", &self.inner.text);
        if let Some(client) = &self.inner.client {
            debug.field("client", client);
        }
        debug.finish()
    }
}

impl StdError for Stop {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.client.as_ref().map(|error| error as _)
    }
}
