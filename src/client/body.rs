//! A request body of shared segments.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

/// A body of one attempt: handles on the segments that all attempts share, and their exact length,
/// so that it goes out with a `content-length` and not in chunks.
#[derive(Debug)]
pub(crate) struct SegmentBody {
    segments: VecDeque<Bytes>,
    left: u64,
    progress: Arc<Progress>,
}

impl SegmentBody {
    pub(crate) fn new(segments: &[Bytes], progress: Arc<Progress>) -> Self {
        let segments: VecDeque<Bytes> =
            segments.iter().filter(|segment| !segment.is_empty()).cloned().collect();
        let left = segments.iter().map(|segment| segment.len() as u64).sum();
        Self { segments, left, progress }
    }
}

impl Body for SegmentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let Some(segment) = this.segments.front_mut() else {
            return Poll::Ready(None);
        };
        // A piece is a handle on a part of the segment, so that a slow upload shows its progress.
        let piece = segment.split_to(segment.len().min(PIECE));
        if segment.is_empty() {
            this.segments.pop_front();
        }
        this.left -= piece.len() as u64;
        this.progress.mark(this.segments.is_empty());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.segments.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// How far the sending of a body has come, told from the connection's task to the waiting one.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    /// Nanoseconds from `start` to the last piece, doubled; odd once the last piece is gone. Zero
    /// before the first piece.
    last: AtomicU64,
}

/// How much of a body the connection has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Nothing,
    Some,
    All,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    /// When the last piece was taken, or when the attempt began.
    pub(crate) fn last(&self) -> Instant {
        self.start + Duration::from_nanos(self.last.load(Ordering::Relaxed) >> 1)
    }

    pub(crate) fn sent(&self) -> Sent {
        match self.last.load(Ordering::Relaxed) {
            0 => Sent::Nothing,
            last if last & 1 == 1 => Sent::All,
            _ => Sent::Some,
        }
    }

    fn mark(&self, is_last: bool) {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX) & (u64::MAX >> 1);
        self.last.store((nanos.max(1) << 1) | u64::from(is_last), Ordering::Relaxed);
    }
}

const PIECE: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn gives_the_same_bytes_with_an_exact_length_each_time() {
        let big = Bytes::from(vec![b'x'; PIECE * 2 + 1]);
        let segments =
            [Bytes::new(), Bytes::from_static(b"{\"a\":"), Bytes::new(), big, Bytes::from_static(b"}")];
        let whole = segments.concat();
        for _ in 0..2 {
            let progress = Arc::new(Progress::new());
            let mut body = pin!(SegmentBody::new(&segments, Arc::clone(&progress)));
            let mut cx = Context::from_waker(Waker::noop());
            let mut got = Vec::new();
            assert_eq!(progress.sent(), Sent::Nothing);
            while !body.is_end_stream() {
                assert_eq!(body.size_hint().exact(), Some((whole.len() - got.len()) as u64));
                tokio::time::advance(Duration::from_secs(1)).await;
                let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut cx) else {
                    panic!("no frame")
                };
                got.extend_from_slice(&frame.into_data().unwrap());
                assert_eq!(progress.last(), Instant::now());
                assert_eq!(progress.sent(), if got.len() == whole.len() { Sent::All } else { Sent::Some });
            }
            assert!(got == whole);
            assert_eq!(body.size_hint().exact(), Some(0));
            assert!(matches!(body.as_mut().poll_frame(&mut cx), Poll::Ready(None)));
        }
    }
}
