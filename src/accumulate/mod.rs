//! Events in, the reply out: the partial one at any time, the whole one at the end. No IO.

mod block;
mod object;
mod written;

use block::Block;
use object::{Object, Value};
use written::Written;

use crate::error::{Error, ErrorKind, Result};
use crate::messages::json;
use crate::messages::{ContentBlock, Delta, Message, StopReason, StreamEvent, TextDelta, TextField};

/// The reply as far as it came.
///
/// It is built as the JSON that a plain reply would have: the fields of the start in their order,
/// each block as its start event had it, and what the deltas say in its place.
#[derive(Debug)]
pub(crate) struct Accumulator {
    /// The fields of the message, `None` until it begins.
    message: Option<Object>,
    /// The index of a block is its place.
    blocks: Vec<Block>,
    stop_reason: Option<StopReason>,
    /// The stop reason came, and no block began behind it.
    ended: bool,
    /// The JSON of the first blocks, which are closed, and of the input that comes behind them.
    written: Written,
    /// How many bytes came, and how many may.
    size: usize,
    cap: usize,
}

impl Accumulator {
    /// An accumulator that takes up to `cap` bytes.
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            message: None,
            blocks: Vec::new(),
            stop_reason: None,
            ended: false,
            written: Written::default(),
            size: 0,
            cap,
        }
    }

    /// Takes an event in.
    ///
    /// # Errors
    /// The event can't come here: a second start, a block out of turn, a delta for a block that is
    /// not open. Or the reply is longer than the cap.
    pub(crate) fn apply(&mut self, event: &StreamEvent) -> Result<()> {
        match event {
            StreamEvent::Ping => return self.grow(if self.has_begun() { 0 } else { PER_EVENT }),
            StreamEvent::Other { data, .. } => {
                // They wait in memory until the reply begins.
                return self.grow(if self.has_begun() { 0 } else { PER_EVENT + data.len() });
            }
            StreamEvent::MessageStart(start) => return self.begin(start),
            // Some servers leave the start out. What it would have said is missing then, and no more.
            StreamEvent::ContentBlockStart { index: 0, .. } | StreamEvent::MessageDelta(_)
                if !self.has_begun() =>
            {
                tracing::warn!(event = event.kind(), "the reply began without message_start");
                self.message = Some(Object::message("{}")?);
            }
            _ => {}
        }
        let Some(message) = &mut self.message else {
            return Err(no_reply(&format!("{} came before message_start", event.kind())));
        };
        match event {
            StreamEvent::ContentBlockStart { index, block, json } => {
                let next = self.blocks.len();
                if *index != next {
                    return Err(no_reply(&format!("block {index} began where block {next} is next")));
                }
                let block = Block::new(block.kind(), json);
                if let Some(model) = block.taken_over_by() {
                    message.set("model", Value::Json(model));
                }
                self.blocks.push(block);
                self.ended = false;
                self.grow(PER_EVENT + json.get().len())
            }
            StreamEvent::ContentBlockDelta { index, delta } => {
                let block = open(&mut self.blocks, *index, delta.kind())?;
                let input = match delta {
                    Delta::InputJson(_) => self.written.input(message, *index, block)?,
                    _ => None,
                };
                block.add(delta, input)?;
                self.grow(delta.len())
            }
            StreamEvent::ContentBlockStop { index } => {
                let block = open(&mut self.blocks, *index, event.kind())?;
                if *index != self.written.blocks {
                    return block.close();
                }
                self.written.begin_once(message);
                self.written.close(block)?;
                block.fields = None;
                self.write_closed();
                Ok(())
            }
            StreamEvent::MessageDelta(delta) => {
                let usage = message.end(delta)?;
                self.stop_reason = message.text("stop_reason").map(|reason| StopReason::from(&*reason));
                self.ended = self.stop_reason.is_some();
                // All counters are gone through for each event.
                self.grow(delta.json.get().len() + usage)
            }
            _ => Ok(()),
        }
    }

    /// Takes a delta in that adds text, if it may come here and its text can be read in one go.
    /// Everything else is for [`apply`](Self::apply).
    ///
    /// # Errors
    /// The reply is longer than the cap, or its block has very many fields.
    pub(crate) fn add(&mut self, delta: TextDelta<'_>) -> Result<bool> {
        let block = self.blocks.get_mut(delta.index).filter(|block| !block.closed);
        let Some(block) = block else { return Ok(false) };
        let input = match (&self.message, delta.field) {
            (Some(message), TextField::Input) => self.written.input(message, delta.index, block)?,
            _ => None,
        };
        match block.add_text(delta.field, delta.text, input)? {
            Some(length) => self.grow(length).map(|()| true),
            None => Ok(false),
        }
    }

    fn begin(&mut self, start: &Message) -> Result<()> {
        if self.has_begun() {
            return Err(no_reply("it began a second time"));
        }
        self.message = Some(Object::message(start.json())?);
        self.stop_reason = start.stop_reason().cloned();
        // Empty as a rule. What is there is whole.
        for json in json::items(start.content_json()).unwrap_or_default() {
            let mut block = Block::new(ContentBlock::from_raw(json).kind(), json);
            block.close()?;
            self.blocks.push(block);
        }
        if let Some(message) = &self.message {
            self.written.begin_once(message);
        }
        self.write_closed();
        self.grow(start.json().len() + PER_EVENT * self.blocks.len())
    }

    /// Writes the blocks that are closed, up to the first that is not.
    fn write_closed(&mut self) {
        while let Some(block) = self.blocks.get_mut(self.written.blocks)
            && block.closed
        {
            self.written.add(block);
            block.fields = None;
        }
    }

    fn grow(&mut self, bytes: usize) -> Result<()> {
        self.size = self.size.saturating_add(bytes);
        if self.size <= self.cap {
            return Ok(());
        }
        Err(too_long(self.cap))
    }

    /// True once the reply has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.message.is_some()
    }

    /// True if nothing is missing but the event that says so: the stop reason came behind all
    /// blocks, and no block is open.
    pub(crate) fn is_whole(&self) -> bool {
        self.ended && self.blocks.iter().all(|block| block.closed)
    }

    /// The `type` of a block.
    pub(crate) fn kind(&self, index: usize) -> Option<&str> {
        self.blocks.get(index).map(|block| &*block.kind)
    }

    /// The reply as far as it came; `None` until it begins.
    pub(crate) fn snapshot(&self) -> Option<Message> {
        self.message.as_ref().and_then(|message| self.render(message, self.written.clone()).ok())
    }

    /// The whole reply, once the stream said that it is whole. The accumulator is of no use then.
    ///
    /// # Errors
    /// The reply did not begin, or a block is open although no limit cut the reply off.
    pub(crate) fn finish(&mut self) -> Result<Message> {
        let Some(message) = &self.message else {
            return Err(no_reply("it ended before it began"));
        };
        match self.blocks.iter().position(|block| !block.closed) {
            Some(index) if !self.may_be_cut() => {
                Err(no_reply(&format!("it ended while block {index} was open")))
            }
            _ => {
                let written = std::mem::take(&mut self.written);
                self.render(message, written)
            }
        }
    }

    /// True if the model may have been stopped in the middle of a block.
    fn may_be_cut(&self) -> bool {
        use StopReason::{MaxTokens, ModelContextWindowExceeded, Other, Refusal};
        matches!(self.stop_reason, Some(MaxTokens | ModelContextWindowExceeded | Refusal | Other(_)))
    }

    /// Puts what is missing around what is written.
    fn render(&self, message: &Object, mut written: Written) -> Result<Message> {
        written.begin(message);
        for block in &self.blocks[written.blocks..] {
            match block.closed {
                true => written.add(block),
                false => written.close(&mut block.clone())?,
            }
        }
        Ok(written.end(message))
    }
}

/// The block that an event is for.
fn open<'a>(blocks: &'a mut [Block], index: usize, event: &str) -> Result<&'a mut Block> {
    match blocks.get_mut(index) {
        Some(block) if !block.closed => Ok(block),
        Some(_) => Err(no_reply(&format!("{} for block {index}, which is closed", json::shown(event)))),
        None => Err(no_reply(&format!("{} for block {index}, which did not begin", json::shown(event)))),
    }
}

/// The error for a reply that is longer than the limit, as a stream or plain.
pub(crate) fn too_long(cap: usize) -> Error {
    let message = format!("the reply is longer than {cap} bytes (the limit of `max_response_bytes`)");
    Error::new(ErrorKind::TooLarge, message)
}

fn no_reply(what: &str) -> Error {
    Error::new(ErrorKind::Decode, format!("the events of the stream make no reply: {what}"))
}

/// What an event or a block takes beside its bytes, about.
const PER_EVENT: usize = 128;

#[cfg(test)]
mod tests;
