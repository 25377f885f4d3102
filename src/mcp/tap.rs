//! A transport that is listened to.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::task::unconstrained;
use tokio::time::timeout;

use super::heard::Heard;

/// A transport that is listened to. `rmcp` hands each message to a task of its own, where their order
/// is lost; here it is that of the wire.
pub(super) struct Tap<T> {
    inner: T,
    heard: Arc<Heard>,
}

impl<T> Tap<T> {
    pub(super) fn new(inner: T, heard: Arc<Heard>) -> Self {
        Self { inner, heard }
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
        let writing = self.heard.sends(&message);
        let mut write = Box::pin(unconstrained(self.inner.send(message)));
        // Whoever is polled first writes first, and `rmcp` polls each in a task of its own. Here that is
        // whoever was sent first, so that word of a cancelled call does not come before the call.
        let first = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        async move {
            let _writing = writing;
            match first {
                Poll::Ready(sent) => sent,
                Poll::Pending => write.await,
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.heard.room().await;
        let message = self.inner.receive().await;
        match &message {
            Some(message) => self.heard.receives(message),
            None => self.heard.close(),
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.heard.close();
        // A server that does not read any more keeps the close waiting behind what is still to be sent.
        timeout(CLOSING, self.inner.close()).await.unwrap_or(Ok(()))
    }
}

/// How long a transport has to close.
const CLOSING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use rmcp::model::{ClientNotification, JsonRpcMessage};

    use super::*;

    /// Writes a message down when its future is polled for the first time.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<String>>>);

    impl Transport<RoleClient> for Paper {
        type Error = Infallible;

        fn send(
            &mut self,
            message: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
            let paper = self.clone();
            async move {
                paper.0.lock().unwrap().push(serde_json::to_string(&message).unwrap());
                tokio::task::yield_now().await;
                Ok(())
            }
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            None
        }

        async fn close(&mut self) -> Result<(), Infallible> {
            Ok(())
        }
    }

    /// `rmcp` polls each in a task of its own, in any order.
    #[tokio::test]
    async fn messages_are_written_in_the_order_in_which_they_are_sent() {
        let paper = Paper::default();
        let mut tap = Tap::new(paper.clone(), Arc::default());
        let message = |method: &str| {
            let json = format!(r#"{{"method":"notifications/{method}"}}"#);
            let notification: ClientNotification = serde_json::from_str(&json).unwrap();
            JsonRpcMessage::notification(notification)
        };
        let (first, second) = (tap.send(message("initialized")), tap.send(message("roots/list_changed")));
        second.await.unwrap();
        first.await.unwrap();
        let written = paper.0.lock().unwrap().join("\n");
        let at = |word: &str| written.find(word).unwrap();
        assert!(at("initialized") < at("roots/list_changed"), "{written}");
    }
}
