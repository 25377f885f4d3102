//! What a server says unasked, heard on the way in.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rmcp::model::{
    ClientRequest, GetMeta as _, JsonRpcMessage, ProgressNotificationParam, ProgressToken, RequestId,
    ServerNotification,
};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use super::clean::clean;
use crate::tool::{ToolContext, ToolProgress};

/// A transport that is listened to. `rmcp` hands each notification to a task of its own, where
/// their order is lost; here it is that of the wire.
pub(super) struct Tap<T> {
    inner: T,
    heard: Arc<Heard>,
}

/// What was heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// How often the list of tools has changed.
    changes: Arc<AtomicU64>,
    /// The calls under way, by the token that their progress comes with.
    calls: Mutex<Calls>,
}

type Calls = HashMap<ProgressToken, (RequestId, Weak<ToolContext>)>;

/// Goes with the request of a call, and stays behind when that is written.
#[derive(Clone)]
pub(super) struct OfCall(Weak<ToolContext>);

impl OfCall {
    pub(super) fn new(context: &Arc<ToolContext>) -> Self {
        Self(Arc::downgrade(context))
    }
}

impl<T> Tap<T> {
    pub(super) fn new(inner: T, heard: Arc<Heard>) -> Self {
        Self { inner, heard }
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

    /// Notes the token of a call before the request is gone, so that no answer is too fast.
    fn sends(&self, message: &TxJsonRpcMessage<RoleClient>) {
        if let JsonRpcMessage::Request(message) = message
            && let ClientRequest::CallToolRequest(call) = &message.request
            && let Some(OfCall(context)) = call.extensions.get()
            && let Some(token) = message.request.get_meta().get_progress_token()
        {
            let mut calls = self.calls();
            calls.retain(|_, (_, context)| context.strong_count() > 0);
            calls.insert(token, (message.id.clone(), context.clone()));
        }
    }

    fn receives(&self, message: &RxJsonRpcMessage<RoleClient>) {
        let answered = match message {
            JsonRpcMessage::Notification(message) => {
                return match &message.notification {
                    ServerNotification::ToolListChangedNotification(_) => {
                        self.changes.fetch_add(1, Ordering::Release);
                    }
                    ServerNotification::ProgressNotification(told) => self.progress(&told.params),
                    _ => {}
                };
            }
            JsonRpcMessage::Response(message) => Some(&message.id),
            JsonRpcMessage::Error(message) => message.id.as_ref(),
            JsonRpcMessage::Request(_) => None,
        };
        // A call that has its answer makes no progress.
        if let Some(answered) = answered {
            self.calls().retain(|_, (id, _)| id != answered);
        }
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

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.heard.sends(&message);
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await;
        if let Some(message) = &message {
            self.heard.receives(message);
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// A message of progress is cut to this many bytes.
const MAX_MESSAGE: usize = 1024;
