//! The decoders without IO, for the fuzz targets and the tests: there is no other way to them
//! without a socket.

use crate::accumulate::Accumulator;
use crate::messages::{Message, Parsed, StreamEvent};
use crate::sse::Decoder;

/// The frames of a body that comes in these pieces, as name and data, and the error that ended it.
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

/// The reply that a body makes: whole if its end came, else as far as it came without a fault.
pub fn reply(body: &[u8]) -> Option<Message> {
    let mut decoder = Decoder::new(1 << 20);
    decoder.push(body);
    let mut accumulator = Accumulator::new(1 << 20);
    while let Ok(Some(frame)) = decoder.next() {
        let Ok(Parsed::Event(event)) = StreamEvent::parse(frame.event, frame.data) else { break };
        if accumulator.apply(&event).is_err() {
            break;
        }
        assert_eq!(accumulator.snapshot().is_some(), accumulator.has_begun());
        if matches!(event, StreamEvent::MessageStop) {
            return accumulator.finish().ok();
        }
    }
    accumulator.snapshot()
}
