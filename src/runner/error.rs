//! The error of a run: why it stopped, and everything that is needed to go on.

use std::error::Error as StdError;
use std::fmt;

use crate::error::{self, Error};
use crate::messages::{Conversation, Message, MessageRequest, Usage};
use crate::run_loop::{RunErrorKind, RunLoop, Stop};

/// A run that was stopped: the reason, and the loop with the conversation (row J10 of the
/// contract). One word wide.
///
/// After a failed request the conversation is exactly the one that the request sent: running
/// [`into_request`](Self::into_request) again sends it once more, and no tool runs twice.
/// [`into_run_loop`](Self::into_run_loop) gives the loop, which can go on where it stopped, with
/// a raised cap for instance.
#[must_use = "the error holds the conversation"]
pub struct RunError {
    inner: Box<Inner>,
}

struct Inner {
    stop: Stop,
    run_loop: RunLoop,
}

impl RunError {
    /// An error around the loop that was stopped; for drivers other than the runner.
    pub fn new(stop: Stop, run_loop: RunLoop) -> Self {
        Self { inner: Box::new(Inner { stop, run_loop }) }
    }

    /// Why the run stopped.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.inner.stop
    }

    /// What kind of reason it was.
    #[must_use]
    pub fn kind(&self) -> RunErrorKind {
        self.inner.stop.kind()
    }

    /// A name to match: the API's own type where the API answered with an error
    /// (`overloaded_error`), else that of the kind (`max_iterations`).
    #[must_use]
    pub fn error_type(&self) -> &str {
        self.inner.stop.error_type()
    }

    /// The client's error, where a request failed.
    #[must_use]
    pub fn client_error(&self) -> Option<&Error> {
        self.inner.stop.client_error()
    }

    /// True if the same conversation may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.inner.stop.is_retryable()
    }

    /// This error and its sources on one line, each once.
    #[must_use]
    pub fn chain(&self) -> String {
        error::chain(self)
    }

    /// The conversation so far. It ends before the results of a turn whose calls were being
    /// answered; [`into_conversation`](Self::into_conversation) adds them.
    #[must_use]
    pub fn conversation(&self) -> &Conversation {
        self.inner.run_loop.conversation()
    }

    /// The conversation, taken out of the error. See
    /// [`RunLoop::into_conversation`] for what it holds of a turn that was cut short.
    #[must_use]
    pub fn into_conversation(self) -> Conversation {
        self.inner.run_loop.into_conversation()
    }

    /// The whole request to try again with, with a fresh cap.
    pub fn into_request(self) -> MessageRequest {
        self.inner.run_loop.into_request()
    }

    /// The loop, to go on where it stopped.
    #[must_use]
    pub fn into_run_loop(self) -> RunLoop {
        self.inner.run_loop
    }

    /// The last reply, if there was one.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        self.inner.run_loop.message()
    }

    /// The tokens of all replies together.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        self.inner.run_loop.usage()
    }

    /// How many requests got a reply.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.inner.run_loop.iterations()
    }

    /// The request ids of the replies. The one of a failed request is on
    /// [`client_error`](Self::client_error).
    #[must_use]
    pub fn request_ids(&self) -> &[String] {
        self.inner.run_loop.request_ids()
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (replies so far: {})", self.inner.stop, self.iterations())
    }
}

impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunError")
            .field("stop", &self.inner.stop)
            .field("run_loop", &self.inner.run_loop)
            .finish()
    }
}

impl StdError for RunError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.stop.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_word_and_crosses_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<RunError>();
        assert_eq!(size_of::<RunError>(), size_of::<usize>());
        assert_eq!(size_of::<RunLoop>(), size_of::<usize>());
        assert_eq!(size_of::<Stop>(), size_of::<usize>());
    }
}
