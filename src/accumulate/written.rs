//! The JSON of the reply, as it is put together.

use super::block::Block;
use super::object::Object;
use crate::error::Result;
use crate::messages::{BrokenInput, Message};

/// The beginning of the reply's JSON. Blocks are long: a text is copied once, and an input not at all
/// where it comes in its turn and is JSON.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    json: String,
    /// How long the part before the first block is. It may still change.
    head: usize,
    /// How many blocks there are.
    pub(super) blocks: usize,
    /// What stands behind them.
    open: Option<Open>,
    broken: Vec<BrokenInput>,
}

/// A block whose input is written as it comes.
#[derive(Clone, Debug)]
struct Open {
    /// Where the block begins, counted from the end of the head.
    block: usize,
    /// Where its input begins.
    input: usize,
}

impl Written {
    /// Writes the part before the first block, again if the message has changed.
    pub(super) fn begin(&mut self, message: &Object) {
        let head = message.up_to("content") + "[";
        if self.json.get(..self.head) != Some(&head) {
            self.json.replace_range(..self.head, &head);
            self.head = head.len();
        }
    }

    /// Writes the part before the first block if it is not there.
    pub(super) fn begin_once(&mut self, message: &Object) {
        if self.head == 0 {
            self.begin(message);
        }
    }

    /// Where a block's input can be written as it comes: behind the blocks before it, once they are
    /// all there, unless some of it came earlier.
    pub(super) fn input(
        &mut self,
        message: &Object,
        index: usize,
        block: &mut Block,
    ) -> Result<Option<&mut String>> {
        if index != self.blocks || !block.input.is_empty() {
            return Ok(None);
        }
        if self.open.is_none() {
            let before = block.fields()?.up_to(INPUT);
            self.begin_once(message);
            self.separate();
            let start = self.json.len() - self.head;
            self.json.push_str(&before);
            self.open = Some(Open { block: start, input: start + before.len() });
        }
        Ok(Some(&mut self.json))
    }

    /// Closes the next block, and writes what is missing of it.
    pub(super) fn close(&mut self, block: &mut Block) -> Result<()> {
        if let Some(open) = self.open.take() {
            let (start, input) = (self.head + open.block, self.head + open.input);
            let has_value = block.has_value();
            let fields = block.fields()?;
            // Other deltas may have changed what stands before it.
            if has_value && self.json[start..input] == fields.up_to(INPUT) {
                fields.write_after(INPUT, &mut self.json);
                self.blocks += 1;
                block.closed = true;
                return Ok(());
            }
            block.input = self.json.split_off(input);
            self.json.truncate(start);
        }
        block.close()?;
        self.add(block);
        Ok(())
    }

    /// Writes the next block, which is closed.
    pub(super) fn add(&mut self, block: &Block) {
        self.separate();
        let place = block.write(&mut self.json);
        self.broken.extend(place.map(|place| BrokenInput { block: self.blocks, place }));
        self.blocks += 1;
    }

    /// Writes what stands between two blocks. No block ends with it.
    fn separate(&mut self) {
        if self.blocks > 0 && !self.json.ends_with(',') {
            self.json.push(',');
        }
    }

    /// Puts what is missing around the blocks.
    pub(super) fn end(self, message: &Object) -> Message {
        let Self { mut json, head, broken, .. } = self;
        json.push(']');
        let content = head - 1..json.len();
        message.write_after("content", &mut json);
        json.shrink_to_fit();
        Message::assembled(json, content, &message.without_content()).with_broken_inputs(broken)
    }
}

const INPUT: &str = "input";
