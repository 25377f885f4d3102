//! The JSON of the reply, as it is put together.

use super::block::Block;
use super::object::Object;
use crate::error::Result;
use crate::messages::{BrokenInput, Message};

/// The beginning of the reply's JSON: blocks are long, and each is copied once.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    json: String,
    /// How long the part before the first block is. It may still change.
    pub(super) head: usize,
    /// How many blocks there are.
    pub(super) blocks: usize,
    broken: Vec<BrokenInput>,
}

impl Written {
    /// Writes the part before the first block, again if the message has changed.
    pub(super) fn begin(&mut self, message: &Object) {
        let head = message.up_to_content();
        if self.json.get(..self.head) != Some(&head) {
            self.json.replace_range(..self.head, &head);
            self.head = head.len();
        }
    }

    pub(super) fn add(&mut self, block: &Block) -> Result<()> {
        if self.blocks > 0 {
            self.json.push(',');
        }
        let place = block.write(&mut self.json)?;
        self.broken.extend(place.map(|place| BrokenInput { block: self.blocks, place }));
        self.blocks += 1;
        Ok(())
    }

    /// Puts what is missing around the blocks.
    pub(super) fn end(self, message: &Object) -> Message {
        let Self { mut json, head, broken, .. } = self;
        json.push(']');
        let content = head - 1..json.len();
        message.write_after_content(&mut json);
        json.shrink_to_fit();
        Message::assembled(json, content, &message.without_content()).with_broken_inputs(broken)
    }
}
