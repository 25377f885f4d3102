//! What calls tell of themselves while they run.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::yield_now;

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
    /// What is being done, for people. That of an MCP server is cleaned, and cut to 1 KiB.
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

/// The last report of each call that runs, if nobody has read it. A reader who is slow misses the
/// ones before it, so they take no more memory than there are calls.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    calls: Mutex<VecDeque<Call>>,
    told: Notify,
}

/// The id of a call, and what it told last.
type Call = (String, Option<ToolProgress>);

impl Reports {
    /// Listens to a call from here on.
    pub(crate) fn open(&self, call: &str) {
        self.lock().push_back((call.to_owned(), None));
    }

    /// Listens no longer, whoever still has the call's context, and gives the last report.
    pub(crate) fn close(&self, call: &str) -> Option<ToolProgress> {
        let mut calls = self.lock();
        let at = calls.iter().position(|(id, _)| id == call)?;
        calls.remove(at).and_then(|(_, unread)| unread)
    }

    pub(super) fn put(&self, call: &str, progress: ToolProgress) {
        if let Some((_, unread)) = self.lock().iter_mut().find(|(id, _)| id == call) {
            *unread = Some(progress);
            self.told.notify_one();
        }
    }

    /// The next report, and the id of its call.
    pub(crate) async fn next(&self) -> (String, ToolProgress) {
        loop {
            let told = self.told.notified();
            if self.lock().iter().any(|(_, unread)| unread.is_some()) {
                // A call that always has something to tell does not keep the thread, and limits of
                // time are seen.
                yield_now().await;
                if let Some(report) = self.take() {
                    return report;
                }
            }
            told.await;
        }
    }

    fn take(&self) -> Option<(String, ToolProgress)> {
        let mut calls = self.lock();
        let at = calls.iter().position(|(_, unread)| unread.is_some())?;
        let (id, unread) = calls.remove(at)?;
        // It comes last then, so that each has its turn.
        calls.push_back((id.clone(), None));
        Some((id, unread?))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
