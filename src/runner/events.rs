//! What a run tells while it goes, and to whom.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use crate::error::Error;
use crate::execute;
use crate::messages::{Message, StreamEvent, ToolResultBlock};
use crate::run_loop::{Ended, PendingCall};
use crate::tool::ToolProgress;

/// Something that happened in a run.
///
/// The order, for each request of the run:
///
/// 1. any number of [`Retry`](Self::Retry), each for an attempt that failed before it brought an
///    event;
/// 2. a [`Stream`](Self::Stream) for each event of the reply, beginning with `message_start`
///    (unless a compatible server leaves it out); where restarts are on, a
///    [`Restart`](Self::Restart) may come in between, and the turn begins anew behind it;
/// 3. [`TurnDone`](Self::TurnDone) with the whole reply, which is part of the conversation from
///    here on, and not from `message_stop` on;
/// 4. for each call that runs, [`ToolStarted`](Self::ToolStarted) just before its handler is
///    called, in the order of the calls, and [`ToolFinished`](Self::ToolFinished) when it has its
///    result, in the order in which they end. In between come its
///    [`ToolProgress`](Self::ToolProgress), if it tells any. A call that the loop answers itself, one of an
///    unknown tool for instance, has neither. A run that is cancelled or dropped behind
///    `ToolStarted` may not start the call, which is told again then when the loop goes on; and
///    results that come in while a run is being cancelled are kept and not told.
///
/// [`ToolsChanged`](Self::ToolsChanged), if a server says so, comes before a request, before the calls
/// of a turn, or before the last event.
///
/// The last event is [`Finished`](Self::Finished), or [`MaxIterations`](Self::MaxIterations) if the
/// cap stopped the run. A run that any other error stops just ends: what it returns says why.
///
/// Events may be added: a match needs an arm for the rest. `Debug` shows kinds, names and ids and no
/// content.
#[derive(Clone)]
#[non_exhaustive]
pub enum RunEvent {
    /// The run is over.
    #[non_exhaustive]
    Finished {
        /// How it ended.
        ended: Ended,
    },
    /// The cap on requests keeps the run from going on.
    #[non_exhaustive]
    MaxIterations {
        /// The cap.
        max_iterations: u32,
    },
    /// A stream broke after events of it were told. They count no longer: after the wait the turn
    /// begins anew.
    #[non_exhaustive]
    Restart {
        /// The number of the attempt that failed, from 1.
        attempt: u32,
        /// How long the next one waits.
        wait: Duration,
        /// Why it failed.
        error: Error,
    },
    /// A request failed before it brought anything, and is sent again after the wait.
    #[non_exhaustive]
    Retry {
        /// The number of the attempt that failed, from 1.
        attempt: u32,
        /// How long the next one waits.
        wait: Duration,
        /// Why it failed.
        error: Error,
    },
    /// An event of the API.
    Stream(StreamEvent),
    /// A call has its result.
    #[non_exhaustive]
    ToolFinished {
        /// The call.
        call: PendingCall,
        /// The result, as the model will read it.
        result: ToolResultBlock,
    },
    /// A call tells how far it is: [`ToolContext::report`](crate::ToolContext::report), or an MCP
    /// server. Who reads slowly gets the last report of each call, and misses the ones before it.
    #[non_exhaustive]
    ToolProgress {
        /// The call.
        call: PendingCall,
        /// How far it is.
        progress: ToolProgress,
    },
    /// A call is about to start.
    #[non_exhaustive]
    ToolStarted {
        /// The call.
        call: PendingCall,
    },
    /// An MCP server says that its list of tools has changed. The run goes on with those that it has;
    /// `mcp::Server::refresh` takes the new list for the next one.
    #[non_exhaustive]
    ToolsChanged {
        /// The name of the server.
        server: String,
    },
    /// A reply is complete, and part of the conversation.
    #[non_exhaustive]
    TurnDone {
        /// The reply.
        message: Message,
    },
}

/// A list of tools that may change while runs use it: that of an MCP server.
#[derive(Clone)]
pub(crate) struct ListWatch {
    pub(crate) server: Arc<str>,
    /// How often it has changed.
    pub(crate) count: Arc<AtomicU64>,
    /// How often when it was read.
    pub(crate) seen: u64,
}

impl ListWatch {
    /// True once for each time that it has changed.
    pub(super) fn has_changed(&mut self) -> bool {
        let count = self.count.load(Ordering::Acquire);
        std::mem::replace(&mut self.seen, count) != count
    }
}

pub(super) type Callback = Arc<dyn Fn(&RunEvent) + Send + Sync>;

/// Who is told of what happens.
#[derive(Clone, Copy)]
pub(super) struct Observer<'a> {
    pub(super) callback: Option<&'a Callback>,
    pub(super) slot: Option<&'a Slot>,
}

impl Observer<'_> {
    /// True if nobody is told.
    pub(super) fn is_none(self) -> bool {
        self.callback.is_none() && self.slot.is_none()
    }

    /// Tells of an event, and waits until it was taken.
    pub(super) async fn tell(self, event: RunEvent) {
        if let Some(callback) = self.callback
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| callback(&event)))
        {
            tracing::error!(?event, "the function for events panicked");
            execute::discard(payload);
        }
        if let Some(slot) = self.slot {
            slot.put(event).await;
        }
    }
}

/// A queue of one between a run and the reader that polls it. The run goes on when its event was
/// taken, so a reader that stops asking stops the run.
#[derive(Default)]
pub(super) struct Slot {
    event: Mutex<Option<RunEvent>>,
}

impl Slot {
    /// Takes the event out that waits.
    pub(super) fn take(&self) -> Option<RunEvent> {
        self.lock().take()
    }

    /// Needs no waker: whoever takes the event polls the run next.
    async fn put(&self, event: RunEvent) {
        let mut event = Some(event);
        poll_fn(|_| {
            let mut slot = self.lock();
            match (slot.is_some(), event.take()) {
                (false, None) => return Poll::Ready(()),
                (false, Some(event)) => *slot = Some(event),
                (true, waiting) => event = waiting,
            }
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<RunEvent>> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RunEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished { ended } => f.debug_struct("Finished").field("ended", ended).finish(),
            Self::MaxIterations { max_iterations } => {
                f.debug_struct("MaxIterations").field("max_iterations", max_iterations).finish()
            }
            Self::Restart { attempt, wait, error } | Self::Retry { attempt, wait, error } => {
                let name = if matches!(self, Self::Retry { .. }) { "Retry" } else { "Restart" };
                let mut debug = f.debug_struct(name);
                debug.field("attempt", attempt).field("wait", wait).field("error", error).finish()
            }
            Self::Stream(event) => f.debug_tuple("Stream").field(&event.kind()).finish(),
            Self::ToolFinished { call, result } => f
                .debug_struct("ToolFinished")
                .field("call", call)
                .field("is_error", &result.is_error)
                .finish_non_exhaustive(),
            Self::ToolProgress { call, progress } => {
                f.debug_struct("ToolProgress").field("call", call).field("progress", progress).finish()
            }
            Self::ToolStarted { call } => f.debug_struct("ToolStarted").field("call", call).finish(),
            Self::ToolsChanged { server } => f.debug_struct("ToolsChanged").field("server", server).finish(),
            Self::TurnDone { message } => f
                .debug_struct("TurnDone")
                .field("stop_reason", &message.stop_reason())
                .field("blocks", &message.content().len())
                .finish_non_exhaustive(),
        }
    }
}
