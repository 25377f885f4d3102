//! What is known of a connection from the messages that go over it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// What the server has asked, and nobody has answered.
    asked: Mutex<HashSet<RequestId>>,
    answered: Notify,
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

    /// Waits while the server has too much to be answered. Each request has a task, and a server that
    /// asks without end would have as many as it likes.
    pub(super) async fn room(&self) {
        loop {
            let answered = self.answered.notified();
            if self.asked().len() < MAX_ASKED {
                return;
            }
            answered.await;
        }
    }

    pub(super) fn answered(&self, request: &RequestId) {
        self.asked().remove(request);
        self.answered.notify_one();
    }

    /// Notes the token of a call before the request is gone, so that no answer is too fast. Gives the
    /// request of the server that the message answers.
    pub(super) fn sends(&self, message: &TxJsonRpcMessage<RoleClient>) -> Option<RequestId> {
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
            JsonRpcMessage::Response(message) => Some(message.id.clone()),
            JsonRpcMessage::Error(message) => message.id.clone(),
            JsonRpcMessage::Notification(_) => None,
        }
    }

    pub(super) fn receives(&self, message: &RxJsonRpcMessage<RoleClient>) {
        match message {
            JsonRpcMessage::Request(message) => drop(self.asked().insert(message.id.clone())),
            JsonRpcMessage::Notification(message) => match &message.notification {
                ServerNotification::ToolListChangedNotification(_) => {
                    self.changes.fetch_add(1, Ordering::Release);
                }
                ServerNotification::ProgressNotification(told) => self.progress(&told.params),
                // What was taken back is not answered.
                ServerNotification::CancelledNotification(taken_back) => {
                    taken_back.params.request_id.iter().for_each(|request| self.answered(request));
                }
                _ => {}
            },
            JsonRpcMessage::Response(message) => self.ended(&message.id),
            JsonRpcMessage::Error(message) => message.id.iter().for_each(|id| self.ended(id)),
        }
    }

    /// A call that has its answer makes no progress. `rmcp` takes a number that is written as a string
    /// for the number.
    fn ended(&self, answered: &RequestId) {
        let answered = answered.to_string();
        self.calls().retain(|_, (id, _)| id.to_string() != answered);
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

    fn asked(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message of progress is cut to this many bytes.
const MAX_MESSAGE: usize = 1024;

/// So many requests of the server may wait for their answers before no more is read.
const MAX_ASKED: usize = 64;
