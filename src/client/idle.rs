//! Limits of time that count from the last progress.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::error::{Error, ErrorKind, TimeoutPhase};

impl TimeoutPhase {
    /// The error for a limit that was passed in this phase, and the setter of that limit.
    pub(crate) fn timed_out(self, limit: Duration, setter: &str) -> Error {
        let what = match self {
            Self::Body => "reading the response body made no progress",
            Self::Connect => "no connection was made",
            Self::Credential => "the provider gave no credential",
            Self::FirstEvent => "no event of the stream had come yet, and reading it made no progress",
            Self::Headers => "waiting for the response headers brought nothing",
            Self::Send => "sending the request body made no progress",
            Self::Slot => "no place among the requests in flight (`max_in_flight`) became free",
            Self::Total => "the call as a whole did not end",
        };
        Error::new(ErrorKind::Timeout, format!("{what} within {limit:?} (the limit of `{setter}`)"))
            .with_timeout_phase(self)
    }
}

/// Drives `work` until `limit` has passed since `last_progress()`; `None` if it has.
///
/// The work is polled before the clock is looked at: what is ready counts, however long nobody
/// asked for it.
pub(crate) async fn within<F: Future>(
    work: F,
    limit: Duration,
    last_progress: impl Fn() -> Instant,
) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut timer = pin!(sleep(limit));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => poll_expired(timer.as_mut(), limit, &last_progress, cx).map(|()| None),
    })
    .await
}

/// Ready once `limit` has passed since `last_progress()`. The timer may be set to any moment
/// before that.
pub(crate) fn poll_expired(
    mut timer: Pin<&mut Sleep>,
    limit: Duration,
    last_progress: impl Fn() -> Instant,
    cx: &mut Context<'_>,
) -> Poll<()> {
    loop {
        ready!(timer.as_mut().poll(cx));
        let now = Instant::now();
        match last_progress().checked_add(limit) {
            Some(deadline) if deadline > now => timer.as_mut().reset(deadline),
            // Nobody looked in time. What came meanwhile may wait for the task of the connection,
            // which gets a turn, once.
            Some(deadline) if timer.deadline() < deadline + LATE && now > deadline + LATE => {
                timer.as_mut().reset(now + LATE);
            }
            Some(_) => return Poll::Ready(()),
            // A limit beyond what the clock can hold is never reached.
            None => return Poll::Pending,
        }
    }
}

/// A timer that is looked at later than this was not looked at in time.
const LATE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn ends_at_the_limit_and_not_before() {
        let start = Instant::now();
        assert_eq!(within(pending::<()>(), SECOND, || start).await, None);
        assert!(start.elapsed() >= SECOND && start.elapsed() < SECOND + Duration::from_millis(5));
        let late = async { sleep(SECOND - Duration::from_millis(5)).await };
        assert_eq!(within(late, SECOND, Instant::now).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn progress_moves_the_limit() {
        let start = Instant::now();
        let last = Cell::new(start);
        let work = async {
            for _ in 0..10 {
                sleep(SECOND * 3 / 4).await;
                last.set(Instant::now());
            }
            pending::<()>().await;
        };
        assert_eq!(within(work, SECOND, || last.get()).await, None);
        let elapsed = start.elapsed();
        assert!(elapsed >= SECOND * 17 / 2 && elapsed < SECOND * 9, "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ready_wins_over_a_limit_long_passed() {
        let start = Instant::now();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut work = pin!(within(receiver, SECOND, || start));
        let first = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
        assert!(first.is_pending());
        sender.send(7).unwrap();
        advance(SECOND * 100).await;
        assert_eq!(work.await, Some(Ok(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_limit_is_none() {
        let done = within(async { sleep(SECOND * 100_000).await }, Duration::MAX, Instant::now).await;
        assert_eq!(done, Some(()));
    }

    #[test]
    fn errors_name_phase_limit_and_setter() {
        for (phase, word) in [
            (TimeoutPhase::Body, "body"),
            (TimeoutPhase::Connect, "connection"),
            (TimeoutPhase::Credential, "credential"),
            (TimeoutPhase::FirstEvent, "no event"),
            (TimeoutPhase::Headers, "headers"),
            (TimeoutPhase::Send, "sending"),
            (TimeoutPhase::Slot, "`max_in_flight`"),
            (TimeoutPhase::Total, "whole"),
        ] {
            let error = phase.timed_out(Duration::from_millis(1500), "the_setter");
            let text = error.to_string();
            assert!(text.contains(word) && text.contains("1.5s") && text.contains("`the_setter`"), "{text}");
            assert!(error.is_timeout() && error.is_retryable());
            assert_eq!(error.timeout_phase(), Some(phase));
        }
    }
}
