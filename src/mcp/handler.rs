//! Who answers what servers ask.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use rmcp::ClientHandler;
use rmcp::model::{ClientConfig, ClientResult, ErrorData, ServerNotification, ServerRequest};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, Service};

use crate::execute::discard;

/// A handler of any type.
pub(super) type Handler = dyn rmcp::service::DynService<RoleClient>;

/// A handler whose panics are errors: a request that gets no answer at all would wait for ever.
pub(super) struct Guarded<H>(pub(super) Arc<H>);

impl<H: ClientHandler> Service<RoleClient> for Guarded<H> {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let answer = caught(self.0.handle_request(request, context)).await;
        answer.unwrap_or_else(|| Err(ErrorData::internal_error("the handler failed unexpectedly", None)))
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        caught(self.0.handle_notification(notification, context)).await.unwrap_or(Ok(()))
    }

    fn get_info(&self) -> ClientConfig {
        ClientHandler::get_info(&self.0)
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
