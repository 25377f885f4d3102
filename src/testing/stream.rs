//! Recorded streams, read as the client reads them and without a socket.

use crate::accumulate::Accumulator;
use crate::client::DEFAULT_MAX_RESPONSE;
use crate::error::{Error, ErrorKind, Result};
use crate::messages::{Message, Parsed, StreamEvent, TextDelta};
use crate::sse::{DEFAULT_CAP, Decoder};

/// Puts a reply together from the body of a recorded event stream, given in any pieces.
///
/// # Errors
/// What a client with the default limits would say of such a stream: it is broken or too long, tells
/// an error, or ends too early.
///
/// ```
/// let body = concat!(
///     "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\"}}\n\n",
///     "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
/// );
/// let message = agentloop::testing::read_stream([body.as_bytes()])?;
/// assert_eq!(message.id(), "msg_1");
/// # Ok::<(), agentloop::Error>(())
/// ```
pub fn read_stream<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Message> {
    let mut decoder = Decoder::new(DEFAULT_CAP);
    let mut accumulator = Accumulator::new(DEFAULT_MAX_RESPONSE);
    for piece in pieces {
        decoder.push(piece);
        while let Some(frame) = decoder.next()? {
            if let Some(delta) = TextDelta::parse(frame.event, frame.data)
                && accumulator.add(delta)?
            {
                continue;
            }
            match StreamEvent::parse(frame.event, frame.data)? {
                Parsed::Event(StreamEvent::MessageStop) => return accumulator.finish(),
                Parsed::Event(event) => accumulator.apply(&event)?,
                Parsed::Failure => return Err(Error::new(ErrorKind::Api, "the stream tells an error")),
                Parsed::Empty => {}
            }
        }
    }
    match accumulator.is_whole() {
        true => accumulator.finish(),
        false => Err(Error::new(ErrorKind::Transport, "the stream ended before the reply was complete")),
    }
}

/// The frames of a body that comes in these pieces, as name and data, and the error that ended it.
#[doc(hidden)]
pub fn frames<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    cap: usize,
) -> (Vec<(String, String)>, Option<String>) {
    let mut decoder = Decoder::new(cap);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push((frame.event.to_owned(), frame.data.to_owned())),
                Ok(None) => break,
                Err(error) => return (frames, Some(error.to_string())),
            }
        }
    }
    (frames, None)
}
