//! What calls tell of themselves while they run.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::coop::consume_budget;

/// How far a call is; told with [`ToolContext::report`](super::ToolContext::report).
///
/// ```
/// use agentloop::tool::ToolProgress;
///
/// let progress = ToolProgress::new(3.0).total(10.0).message("3 of 10 files");
/// assert_eq!((progress.progress, progress.total), (3.0, Some(10.0)));
/// ```
///
/// `Debug` shows the numbers, and whether there is a message.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolProgress {
    /// How much is done, in any unit. It should grow.
    pub progress: f64,
    /// How much there is to do, in the same unit, where that is known.
    pub total: Option<f64>,
    /// What is being done, for people.
    pub message: Option<String>,
}

impl ToolProgress {
    /// This much is done.
    #[must_use]
    pub fn new(progress: f64) -> Self {
        Self { progress, total: None, message: None }
    }

    /// Sets how much there is to do.
    #[must_use]
    pub fn total(mut self, total: f64) -> Self {
        self.total = Some(total);
        self
    }

    /// Sets what is being done.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
}

impl fmt::Debug for ToolProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolProgress")
            .field("progress", &self.progress)
            .field("total", &self.total)
            .field("has_message", &self.message.is_some())
            .finish()
    }
}

/// The last report of each call that nobody has read. A reader who is slow misses the ones before
/// it, so they take no more memory than there are calls.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    unread: Mutex<VecDeque<Report>>,
    told: Notify,
}

/// The id of a call, and what it told.
type Report = (String, ToolProgress);

impl Reports {
    pub(crate) fn put(&self, call: &str, progress: ToolProgress) {
        let mut unread = self.lock();
        match unread.iter_mut().find(|(id, _)| id == call) {
            Some((_, unread)) => *unread = progress,
            None => unread.push_back((call.to_owned(), progress)),
        }
        self.told.notify_one();
    }

    /// What a call told last, if nobody has read it.
    pub(crate) fn take(&self, call: &str) -> Option<ToolProgress> {
        let mut unread = self.lock();
        let at = unread.iter().position(|(id, _)| id == call)?;
        unread.remove(at).map(|(_, progress)| progress)
    }

    /// The next report of any call.
    pub(crate) async fn next(&self) -> Report {
        // A call that always has something to tell does not keep the thread.
        consume_budget().await;
        loop {
            let told = self.told.notified();
            let first = self.lock().pop_front();
            match first {
                Some(report) => return report,
                None => told.await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Report>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
