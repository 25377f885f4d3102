//! A run as a stream of events.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::builder::ToolRunner;
use super::error::RunError;
use super::events::{RunEvent, Slot};
use crate::client::Client;
use crate::messages::MessageRequest;
use crate::run_loop::{Run, RunLoop, Stop};

/// A run that goes on while its events are asked for; made by [`ToolRunner::stream`].
///
/// [`next`](Self::next) gives the events, in the order that [`RunEvent`] tells, and so does its
/// [`Stream`]. [`finish`](Self::finish) goes on to the end and alone says how that is.
///
/// Nothing runs behind it: a reader that stops asking stops the reading of the reply and the
/// tools that run inline. Tools in tasks of their own go on to their end. Dropping it drops the
/// run, as [`ToolRunner::run`] tells; who needs the conversation after a drop uses
/// [`ToolRunner::drive_stream`].
#[must_use = "a run goes on only while it is asked for events"]
pub struct RunStream {
    driver: Driver<'static, Result<Run, RunError>>,
}

/// A loop that is driven while its events are asked for; made by [`ToolRunner::drive_stream`].
///
/// It ends after the last event, or after the reason that stopped the loop. Dropping it leaves the
/// loop valid, and it can be driven again.
#[must_use = "a loop is driven only while it is asked for events"]
pub struct DriveStream<'a> {
    driver: Driver<'a, Result<(), Stop>>,
}

/// A future, and the events that it tells.
struct Driver<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    slot: Arc<Slot>,
    outcome: Option<T>,
}

impl ToolRunner {
    /// Runs a request and gives its events as they come.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use agentloop::testing::{Reply, Server};
    /// use agentloop::{RunEvent, ToolRunner};
    ///
    /// let server = Server::start([Reply::text("Hello!")]).await;
    /// let mut events = ToolRunner::new().stream(&server.client(), "Hi");
    /// let mut text = String::new();
    /// while let Some(event) = events.next().await {
    ///     if let RunEvent::Stream(event) = event {
    ///         text.push_str(event.as_text().unwrap_or_default());
    ///     }
    /// }
    /// let run = events.finish().await?;
    /// assert_eq!(text, run.text());
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(&self, client: &Client, request: impl Into<MessageRequest>) -> RunStream {
        let (runner, client, run_loop) = (self.clone(), client.clone(), self.run_loop(request));
        let driver = Driver::new(|slot| async move { runner.finish(&client, run_loop, Some(&slot)).await });
        RunStream { driver }
    }

    /// Drives a loop and gives its events as they come; the loop stays the caller's, and is valid
    /// wherever this is dropped.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use agentloop::ToolRunner;
    /// use agentloop::testing::{Reply, Server};
    ///
    /// let server = Server::start([Reply::text("Hello!"), Reply::text("Hello!")]).await;
    /// let (client, runner) = (server.client(), ToolRunner::new());
    /// let mut run_loop = runner.run_loop("Hi");
    /// // The reader leaves after the first event, and the reply with it.
    /// drop(runner.drive_stream(&client, &mut run_loop).next().await);
    /// assert_eq!(run_loop.iterations(), 0);
    ///
    /// runner.drive(&client, &mut run_loop).await?;
    /// assert_eq!(run_loop.iterations(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn drive_stream<'a>(&'a self, client: &'a Client, run_loop: &'a mut RunLoop) -> DriveStream<'a> {
        let driver =
            Driver::new(|slot| async move { self.drive_observed(client, run_loop, Some(&slot)).await });
        DriveStream { driver }
    }
}

impl RunStream {
    /// The next event; `None` after the last one.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with IO and time switched on.
    pub async fn next(&mut self) -> Option<RunEvent> {
        poll_fn(|cx| self.driver.poll_event(cx)).await
    }

    /// Goes on to the end of the run, whatever events there are, and gives its outcome.
    ///
    /// # Errors
    /// As [`ToolRunner::run`].
    ///
    /// # Panics
    /// As [`next`](Self::next).
    ///
    /// # Cancel safety
    /// As [`ToolRunner::run`]: dropping the future drops the run.
    pub async fn finish(mut self) -> Result<Run, RunError> {
        poll_fn(|cx| self.driver.poll_outcome(cx)).await
    }
}

impl DriveStream<'_> {
    /// The next event, or the reason that stopped the loop; `None` after the last one.
    ///
    /// # Errors
    /// As [`ToolRunner::drive`].
    ///
    /// # Panics
    /// Outside of a Tokio runtime with IO and time switched on.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<Result<RunEvent, Stop>> {
        poll_fn(|cx| self.poll_item(cx)).await
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RunEvent, Stop>>> {
        self.driver.poll_event(cx).map(|event| match event {
            Some(event) => Some(Ok(event)),
            None => self.driver.outcome.take().and_then(Result::err).map(Err),
        })
    }
}

impl<'a, T> Driver<'a, T> {
    fn new<F: Future<Output = T> + Send + 'a>(future: impl FnOnce(Arc<Slot>) -> F) -> Self {
        let slot = Arc::new(Slot::default());
        Self { future: Some(Box::pin(future(Arc::clone(&slot)))), slot, outcome: None }
    }

    /// Polls the future until it has told something, is done or has to wait.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        if let Some(future) = &mut self.future
            && let Poll::Ready(outcome) = future.as_mut().poll(cx)
        {
            self.future = None;
            self.outcome = Some(outcome);
        }
        match (self.slot.take(), &self.future) {
            (Some(event), _) => Poll::Ready(Some(event)),
            (None, None) => Poll::Ready(None),
            (None, Some(_)) => Poll::Pending,
        }
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        loop {
            match self.poll_event(cx) {
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => match self.outcome.take() {
                    Some(outcome) => return Poll::Ready(outcome),
                    // Only a second call after the outcome gets here, and `finish` makes none.
                    None => return Poll::Pending,
                },
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Stream for RunStream {
    type Item = RunEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        self.driver.poll_event(cx)
    }
}

impl Stream for DriveStream<'_> {
    type Item = Result<RunEvent, Stop>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_item(cx)
    }
}

impl fmt::Debug for RunStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStream").field("is_done", &self.driver.future.is_none()).finish_non_exhaustive()
    }
}

impl fmt::Debug for DriveStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveStream").field("is_done", &self.driver.future.is_none()).finish_non_exhaustive()
    }
}
