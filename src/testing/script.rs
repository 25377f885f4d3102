//! What a server answers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::{RecordedRequest, Reply};

type Answer = dyn Fn(&RecordedRequest) -> Reply + Send + Sync;

/// Where a [`Server`](super::Server) takes its replies from: a list, played in order, one for each
/// request, or a function of the request.
///
/// Requests that the server refuses by itself use up no reply.
pub struct Script {
    pub(super) source: Source,
}

pub(super) enum Source {
    Function(Arc<Answer>),
    List(VecDeque<Reply>),
}

impl Script {
    /// A reply for each request by a function. A panic in it, such as that of a failed `assert!`,
    /// is answered with status 500 and fails the test when the server is finished or dropped.
    #[must_use]
    pub fn from_fn(answer: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self { source: Source::Function(Arc::new(answer)) }
    }
}

impl From<Vec<Reply>> for Script {
    fn from(replies: Vec<Reply>) -> Self {
        Self { source: Source::List(replies.into()) }
    }
}

impl<const N: usize> From<[Reply; N]> for Script {
    fn from(replies: [Reply; N]) -> Self {
        Self { source: Source::List(replies.into()) }
    }
}

impl From<Reply> for Script {
    fn from(reply: Reply) -> Self {
        [reply].into()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Function(_) => f.write_str("Script::from_fn(..)"),
            Source::List(replies) => f.debug_tuple("Script").field(replies).finish(),
        }
    }
}
