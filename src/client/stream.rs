//! A reply that comes event by event.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use http::{HeaderMap, StatusCode};
use reqwest::Url;
use tracing::Span;

use super::call::{Attempt, Call, Slot};
use super::response::{self, Answer, Secrets};
use super::retry;
use super::transport::Incoming;
use crate::accumulate::Accumulator;
use crate::error::{Error, ErrorKind, Result, TimeoutPhase};
use crate::messages::rate_limits::RateLimits;
use crate::messages::{Delta, Message, Parsed, StreamEvent, TextDelta, json};
use crate::sse::Decoder;
use crate::telemetry;

/// The events of a reply, as they come.
///
/// [`next`](Self::next) gives them, and so does its [`Stream`]; the stream ends after
/// `message_stop` or its first error. [`final_message`](Self::final_message) takes what is left and
/// gives the whole reply, equal to the one of a plain request.
///
/// A stream that ends too early, or stalls for longer than the idle limit, is an error with the
/// reply as far as it came ([`Error::partial_message`]). Only where the stop reason is there and no
/// block is open, the end of the connection ends the reply.
///
/// Dropping it ends the exchange: the connection is closed (HTTP/1.1) or the stream is reset
/// (HTTP/2). What the model wrote until then is billed.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use agentloop::MessageRequest;
/// use agentloop::testing::{Reply, Server};
///
/// let server = Server::start([Reply::text("Hello!")]).await;
/// let client = server.client();
///
/// let mut stream = client.stream(&MessageRequest::from("Hi")).await?;
/// let mut text = String::new();
/// while let Some(event) = stream.next().await {
///     text.push_str(event?.as_text().unwrap_or_default());
/// }
/// assert_eq!(text, "Hello!");
/// assert_eq!(stream.final_message().await?.text(), "Hello!");
/// # Ok(())
/// # }
/// ```
#[must_use = "a stream reads only what it is asked for"]
pub struct MessageStream {
    /// `None` once the stream has failed.
    body: Option<Incoming>,
    decoder: Decoder,
    accumulator: Accumulator,
    /// The events that came before the stream was handed out.
    ready: VecDeque<StreamEvent>,
    /// The beginning of the body, until it is seen to be a stream of events.
    head: Option<Vec<u8>>,
    /// There once the stream has ended.
    outcome: Option<Result<Message>>,
    origin: Origin,
    /// Given back with the end of the reply: what follows may need it.
    slot: Option<Slot>,
    span: Span,
}

/// The body of a whole reply. Its end may still be on the way: dropped before that has come, the
/// connection can't be used again (HTTP/1.1), or the stream is reset for nothing (HTTP/2).
pub(crate) struct Rest {
    _body: Incoming,
}

/// What errors and messages tell of the response.
struct Origin {
    status: StatusCode,
    headers: HeaderMap,
    attempt: u32,
    /// What must not show up in an error.
    sent: HeaderMap,
    url: Url,
    proxy: Arc<[String]>,
}

/// The text of a reply, as it comes; made by [`MessageStream::text_stream`].
#[derive(Debug)]
#[must_use = "a stream reads only what it is asked for"]
pub struct TextStream {
    stream: MessageStream,
}

impl MessageStream {
    /// One attempt, up to the beginning of the reply.
    pub(super) async fn open(call: &Call, attempt: Attempt) -> Result<Self> {
        let Answer { status, headers, mut body } = call.send_for_events(&attempt).await?;
        body.limit(call.total());
        let mut stream = Self {
            body: Some(body),
            decoder: Decoder::new(call.max_event_bytes()),
            accumulator: Accumulator::new(call.max_response_bytes()),
            ready: VecDeque::new(),
            head: Some(Vec::new()),
            outcome: None,
            origin: Origin {
                status,
                headers: call.secrets(&attempt.headers).kept(&headers),
                attempt: attempt.number,
                sent: attempt.headers,
                url: call.url().clone(),
                proxy: Arc::clone(call.proxy_secrets()),
            },
            slot: attempt.slot,
            span: Span::none(),
        };
        while !stream.accumulator.has_begun() {
            match poll_fn(|cx| stream.poll_event(cx, Texts::Given)).await {
                // The start comes first, also where a ping came before it.
                Some(Ok(event @ StreamEvent::MessageStart(_))) => stream.ready.push_front(event),
                Some(event) => stream.ready.push_back(event?),
                None => break,
            }
        }
        Ok(stream)
    }

    /// Tells the outcome to a span: of a stream that outlives its call.
    pub(super) fn within(mut self, span: &Span) -> Self {
        self.span = span.clone();
        self
    }

    /// The next event; `None` once the reply is complete, and after an error.
    ///
    /// # Errors
    /// The API sent an error, the connection broke or stalled, or what came is no reply.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time switched on.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<Result<StreamEvent>> {
        poll_fn(|cx| self.poll_next_event(cx)).await
    }

    /// Reads what is left and gives the whole reply.
    ///
    /// # Errors
    /// As [`next`](Self::next); also the error that `next` gave before.
    ///
    /// # Panics
    /// As [`next`](Self::next).
    ///
    /// # Cancel safety
    /// Dropping the future ends the exchange, and the reply is lost.
    pub async fn final_message(self) -> Result<Message> {
        self.finish().await.map(|(message, _)| message)
    }

    /// The whole reply, and the rest of its body, to be dropped before the next request.
    pub(super) async fn finish(mut self) -> Result<(Message, Option<Rest>)> {
        let message = poll_fn(|cx| self.poll_outcome(cx)).await?;
        Ok((message, self.body.map(|body| Rest { _body: body })))
    }

    /// The text alone: of text blocks, piece by piece, as it comes. Put together it is
    /// [`Message::text`], unless text blocks overlap, which the API's do not.
    pub fn text_stream(self) -> TextStream {
        TextStream { stream: self }
    }

    /// The reply as far as it was read, `None` until its first event. It is put together anew each
    /// time. The input of a call that is not complete is a string here, and no object.
    #[must_use]
    pub fn snapshot(&self) -> Option<Message> {
        match &self.outcome {
            Some(Ok(message)) => Some(message.clone()),
            _ => Some(self.accumulator.snapshot()?.with_response(self.origin.headers.clone())),
        }
    }

    /// The id of the request.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.header("request-id")
    }

    /// The headers of the response, but for cookies.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.origin.headers
    }

    /// A header of the response.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.origin.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The rate limits as the response told them, before its first event.
    #[must_use]
    pub fn rate_limits(&self) -> RateLimits {
        RateLimits::from_headers(&self.origin.headers)
    }

    fn poll_next_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<StreamEvent>>> {
        match self.ready.pop_front() {
            Some(event) => Poll::Ready(Some(Ok(event))),
            None => self.poll_event(cx, Texts::Given),
        }
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message>> {
        loop {
            if let Some(outcome) = self.outcome.take() {
                return Poll::Ready(outcome);
            }
            // The end of the stream, or its error, leaves an outcome.
            drop(ready!(self.poll_event(cx, Texts::Skipped)));
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>, texts: Texts) -> Poll<Option<Result<StreamEvent>>> {
        let span = self.span.clone();
        let _entered = span.enter();
        loop {
            if self.outcome.is_some() {
                return Poll::Ready(None);
            }
            match self.take_event(texts) {
                Ok(None) => {}
                Ok(Some(StreamEvent::MessageStop)) => {
                    return Poll::Ready(Some(match self.accumulator.finish() {
                        Ok(message) => {
                            self.complete(message);
                            Ok(StreamEvent::MessageStop)
                        }
                        Err(error) => Err(self.fail(error)),
                    }));
                }
                Ok(Some(event)) => return Poll::Ready(Some(Ok(event))),
                Err(error) => return Poll::Ready(Some(Err(self.fail(error)))),
            }
            let phase = if self.head.is_none() { TimeoutPhase::Body } else { TimeoutPhase::FirstEvent };
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            match ready!(body.poll_read(cx, phase)) {
                Ok(Some(bytes)) => {
                    if let Some(head) = &mut self.head {
                        let room = MAX_HEAD - head.len();
                        head.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    }
                    self.decoder.push(&bytes);
                }
                Ok(None) => return Poll::Ready(self.end(None).map(Err)),
                Err(error) => return Poll::Ready(self.end(Some(error)).map(Err)),
            }
        }
    }

    /// The next event of what was received, already part of the reply.
    fn take_event(&mut self, texts: Texts) -> Result<Option<StreamEvent>> {
        while let Some(frame) = self.decoder.next()? {
            if texts == Texts::Skipped
                && let Some(delta) = TextDelta::parse(frame.event, frame.data)
                && self.accumulator.add(delta)?
            {
                continue;
            }
            let parsed = StreamEvent::parse(frame.event, frame.data)?;
            self.head = None;
            let event = match parsed {
                Parsed::Event(event) => event,
                Parsed::Failure => return Err(self.origin.error_event(frame.data)),
                Parsed::Empty => continue,
            };
            self.accumulator.apply(&event)?;
            match &event {
                StreamEvent::Other { kind, .. }
                | StreamEvent::ContentBlockDelta { delta: Delta::Other { kind, .. }, .. } => {
                    tracing::debug!(
                        kind = json::shown(&self.origin.secrets().without_secrets(kind.to_string())),
                        "an event that this version does not know"
                    );
                }
                _ => {}
            }
            return Ok(Some(event));
        }
        Ok(None)
    }

    /// The end of the body, or what broke it. The reply may be whole all the same.
    fn end(&mut self, cause: Option<Error>) -> Option<Error> {
        if self.accumulator.is_whole()
            && let Ok(message) = self.accumulator.finish()
        {
            let cause = cause.map(|cause| cause.kind());
            let request_id = self.request_id();
            tracing::warn!(
                ?cause,
                request_id,
                "the stream ended without message_stop, behind the whole reply"
            );
            self.complete(message);
            return None;
        }
        let error = cause.unwrap_or_else(|| match &self.head {
            Some(head) => self.origin.no_events(head),
            None => Error::new(ErrorKind::Transport, INCOMPLETE),
        });
        Some(self.fail(error))
    }

    fn complete(&mut self, message: Message) {
        self.slot = None;
        let message = message.with_response(self.origin.headers.clone());
        telemetry::replied(&std::mem::replace(&mut self.span, Span::none()), &message);
        self.outcome = Some(Ok(message));
    }

    fn fail(&mut self, error: Error) -> Error {
        self.body = None;
        self.slot = None;
        let Origin { status, headers, attempt, .. } = &self.origin;
        let error = error.with_response(*status, headers.clone()).with_partial(self.snapshot());
        let error = retry::judged(error).with_attempts(*attempt);
        telemetry::failed(&std::mem::replace(&mut self.span, Span::none()), &error);
        self.outcome = Some(Err(error.clone()));
        error
    }
}

/// Whether deltas of text are given out or only added to the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Texts {
    Given,
    Skipped,
}

impl Origin {
    fn error_event(&self, data: &str) -> Error {
        self.secrets().error_event(data, self.status)
    }

    /// The error for a body that ended without an event.
    fn no_events(&self, head: &[u8]) -> Error {
        let text = head.trim_ascii_start();
        match text.first() {
            None => response::empty(self.status),
            Some(b'{' | b'[' | b'<') => self.secrets().no_stream(text, self.status),
            Some(_) => Error::new(ErrorKind::Transport, INCOMPLETE),
        }
    }

    fn secrets(&self) -> Secrets<'_> {
        Secrets { headers: &self.sent, url: &self.url, proxy: &self.proxy }
    }
}

impl TextStream {
    /// The next piece of text; `None` once the reply is complete, and after an error.
    ///
    /// # Errors
    /// As [`MessageStream::next`].
    ///
    /// # Panics
    /// As [`MessageStream::next`].
    ///
    /// # Cancel safety
    /// Safe: no text is lost.
    pub async fn next(&mut self) -> Option<Result<String>> {
        poll_fn(|cx| self.poll_text(cx)).await
    }

    /// Reads what is left and gives the whole reply.
    ///
    /// # Errors
    /// As [`MessageStream::final_message`].
    ///
    /// # Panics
    /// As [`MessageStream::next`].
    ///
    /// # Cancel safety
    /// As [`MessageStream::final_message`].
    pub async fn final_message(self) -> Result<Message> {
        self.stream.final_message().await
    }

    fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<String>>> {
        loop {
            let text = match ready!(self.stream.poll_next_event(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // The reply and its blocks may begin with text.
                Some(Ok(StreamEvent::MessageStart(message))) => message.text(),
                Some(Ok(StreamEvent::ContentBlockStart { block, .. })) => {
                    block.as_text().unwrap_or_default().to_owned()
                }
                Some(Ok(StreamEvent::ContentBlockDelta { index, delta: Delta::Text(text) }))
                    if self.stream.accumulator.kind(index) == Some("text") =>
                {
                    text
                }
                Some(Ok(_)) => continue,
            };
            if !text.is_empty() {
                return Poll::Ready(Some(Ok(text)));
            }
        }
    }
}

impl Stream for MessageStream {
    type Item = Result<StreamEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_next_event(cx)
    }
}

impl Stream for TextStream {
    type Item = Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_text(cx)
    }
}

/// Without the words of the reply.
impl fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageStream")
            .field("status", &self.origin.status.as_u16())
            .field("request_id", &self.request_id())
            .field("has_ended", &self.outcome.is_some())
            .finish_non_exhaustive()
    }
}

/// As much of a body is kept as tells what it is instead of a stream.
const MAX_HEAD: usize = 16 * 1024;

const INCOMPLETE: &str = "the stream ended before the reply was complete";
