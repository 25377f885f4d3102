//! Who answers what servers ask.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use rmcp::ClientHandler;
use rmcp::model::{ClientConfig, ClientResult, ErrorData, ServerNotification, ServerRequest};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, Service};
use tokio::sync::Semaphore;

use crate::execute::discard;

/// A handler of any type.
pub(super) type Handler = dyn rmcp::service::DynService<RoleClient>;

/// A handler that answers everything: what is too much, and where it panics, with an error. It stops
/// when nobody waits for the answer any longer.
pub(super) struct Guarded<H> {
    handler: Arc<H>,
    requests: Semaphore,
    notifications: Semaphore,
}

impl<H> Guarded<H> {
    pub(super) fn new(handler: Arc<H>) -> Self {
        let places = || Semaphore::new(AT_ONCE);
        Self { handler, requests: places(), notifications: places() }
    }
}

impl<H: ClientHandler> Service<RoleClient> for Guarded<H> {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let failed = |why| Err(ErrorData::internal_error(why, None));
        let Ok(_place) = self.requests.try_acquire() else { return failed("there are too many requests") };
        let taken_back = context.ct.clone();
        let answer = caught(self.handler.handle_request(request, context));
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|| failed("the handler failed unexpectedly")),
            () = taken_back.cancelled() => failed("nobody waits for the answer any longer"),
        }
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        // Each has a task. What a slow handler can't take is lost, for nothing else holds a server back.
        let Ok(_place) = self.notifications.try_acquire() else { return Ok(()) };
        caught(self.handler.handle_notification(notification, context)).await.unwrap_or(Ok(()))
    }

    fn get_info(&self) -> ClientConfig {
        ClientHandler::get_info(&self.handler)
    }
}

/// The output of a future; `None` if it panics.
async fn caught<F: Future>(work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Some),
        Err(payload) => {
            tracing::error!("the handler of an MCP server panicked");
            discard(payload);
            Poll::Ready(None)
        }
    })
    .await
}

/// So many requests, and notifications, of a server are handled at once.
const AT_ONCE: usize = 64;
