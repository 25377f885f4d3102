//! What is known of a connection from the messages that go over it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rmcp::model::{
    ClientRequest, GetMeta as _, JsonRpcMessage, ProgressNotificationParam, ProgressToken, RequestId,
    ServerNotification,
};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::clean::clean;
use crate::tool::{ToolContext, ToolProgress};

/// What was heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// How often the list of tools has changed.
    changes: Arc<AtomicU64>,
    calls: Mutex<Calls>,
    /// How many answers to requests of the server are being written.
    answers: AtomicUsize,
    written: Notify,
    /// Cancelled once no answer can come any more.
    closed: CancellationToken,
}

/// The calls under way, by the token that their progress comes with.
type Calls = HashMap<ProgressToken, (RequestId, Weak<ToolContext>)>;

/// Goes with the request of a call, and stays behind when that is written.
#[derive(Clone)]
pub(super) struct OfCall(Weak<ToolContext>);

impl OfCall {
    pub(super) fn new(context: &Arc<ToolContext>) -> Self {
        Self(Arc::downgrade(context))
    }
}

impl Heard {
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Takes it that the list has changed, where a change can't have been heard.
    pub(super) fn may_have_changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// The counter itself.
    pub(super) fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.changes)
    }

    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Waits until no answer can come any more.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Waits while too many answers are still to be written: a server that asks without end and reads
    /// nothing is not read either.
    pub(super) async fn room(&self) {
        loop {
            let written = self.written.notified();
            if self.answers.load(Ordering::Acquire) < MAX_ANSWERS {
                return;
            }
            written.await;
        }
    }

    /// Notes the token of a call before the request is gone, so that no answer is too fast; and an
    /// answer, until what this gives is dropped.
    pub(super) fn sends(self: &Arc<Self>, message: &TxJsonRpcMessage<RoleClient>) -> Option<Writing> {
        match message {
            JsonRpcMessage::Request(message) => {
                if let ClientRequest::CallToolRequest(call) = &message.request
                    && let Some(OfCall(context)) = call.extensions.get()
                    && let Some(token) = message.request.get_meta().get_progress_token()
                {
                    let mut calls = self.calls();
                    calls.retain(|_, (_, context)| context.strong_count() > 0);
                    calls.insert(token, (message.id.clone(), context.clone()));
                }
                None
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                self.answers.fetch_add(1, Ordering::AcqRel);
                Some(Writing(Arc::clone(self)))
            }
            JsonRpcMessage::Notification(_) => None,
        }
    }

    pub(super) fn receives(&self, message: &RxJsonRpcMessage<RoleClient>) {
        match message {
            JsonRpcMessage::Request(_) => {}
            JsonRpcMessage::Notification(message) => match &message.notification {
                ServerNotification::ToolListChangedNotification(_) => {
                    self.may_have_changed();
                }
                ServerNotification::ProgressNotification(told) => self.progress(&told.params),
                _ => {}
            },
            JsonRpcMessage::Response(message) => self.ended(&message.id),
            JsonRpcMessage::Error(message) => message.id.iter().for_each(|id| self.ended(id)),
        }
    }

    /// A call that has its answer makes no progress. In an answer `rmcp` takes a number that is written
    /// as a string for the number.
    fn ended(&self, call: &RequestId) {
        let call = call.to_string();
        self.calls().retain(|_, (id, _)| id.to_string() != call);
    }

    fn progress(&self, told: &ProgressNotificationParam) {
        let call = self.calls().get(&told.progress_token).and_then(|(_, context)| context.upgrade());
        let Some(call) = call else { return };
        let mut progress = ToolProgress::new(told.progress);
        progress.total = told.total;
        progress.message = told.message.as_deref().map(|text| clean(text, MAX_MESSAGE).into_owned());
        call.report(progress);
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is being written.
pub(super) struct Writing(Arc<Heard>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::AcqRel);
        self.0.written.notify_one();
    }
}

/// A message of progress is cut to this many bytes.
const MAX_MESSAGE: usize = 1024;

/// So many answers may be under way before no more is read.
const MAX_ANSWERS: usize = 64;
