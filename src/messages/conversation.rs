//! The messages so far: frozen JSON that grows and is cut only at its end.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::content::ContentBlock;
use super::facts::{Facts, Role};
use super::json;
use super::pairing::{self, OpenCall, Pairing};
use super::param::{self, MessageParam};
use crate::error::{Error, Result};

/// A chunk is sealed, and from then on shared, once it holds this many bytes.
const SEAL: usize = 64 * 1024;

/// The API's limit for a whole request.
const MAX_CACHE_MARKS: u32 = 4;

/// The text that answers an open call when nothing else is known of it.
const NOT_RUN: &str = "not executed as far as is known: the conversation went on without this call";

/// The messages so far.
///
/// Serialized, it is exactly the API's `messages` array. Each message keeps its wire text, so a
/// conversation that is stored and read back is sent with the same bytes. Store it as text, with
/// [`to_json`](Self::to_json) and [`from_json`](Self::from_json): a `serde_json::Value` or a
/// `jsonb` column changes numbers and the order of keys, which the API's thinking blocks and its
/// prompt cache may not survive.
///
/// It grows with [`push`](Self::push) and is cut at its end alone, by
/// [`truncate`](Self::truncate) and [`pop_turn`](Self::pop_turn). What is in it never changes.
///
/// ```
/// use agentloop::{Conversation, MessageParam};
///
/// let mut conversation = Conversation::new();
/// conversation.push(MessageParam::user("Hello.")?)?;
/// let stored = conversation.to_json();
/// assert_eq!(stored, r#"[{"role":"user","content":"Hello."}]"#);
/// assert_eq!(Conversation::from_json(&stored)?, conversation);
/// # Ok::<(), agentloop::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Conversation {
    sealed: Vec<Chunk>,
    /// The chunk that still grows. Messages are separated by commas, so that all chunks together
    /// are the inside of the array.
    open: String,
    messages: Vec<Entry>,
    pairing: Pairing,
    /// What answers the calls that are open at the end, where a run knows.
    why_open: Option<Cow<'static, str>>,
}

/// A chunk that is shared with every request that was made of it.
#[derive(Clone)]
struct Chunk {
    text: Arc<String>,
    bytes: Bytes,
}

#[derive(Clone)]
struct Entry {
    /// The index of the chunk; that of the growing one is the number of sealed ones.
    chunk: usize,
    start: usize,
    end: usize,
    facts: Arc<Facts>,
}

/// A message of a conversation.
#[derive(Clone, Copy)]
pub struct MessageRef<'a> {
    json: &'a str,
    facts: &'a Arc<Facts>,
}

impl Conversation {
    /// A conversation without messages.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a stored conversation. Only the shape is checked; whether it may be sent is
    /// [`check`](Self::check)'s to say.
    ///
    /// # Errors
    /// The text is not a JSON array of objects with `role` and `content`.
    pub fn from_json(text: &str) -> Result<Self> {
        let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| {
            Error::request("a conversation is not a JSON array").with_source(json::place(&error))
        })?;
        let mut conversation = Self::new();
        for (index, item) in items.into_iter().enumerate() {
            let message = MessageParam::from_raw(item).map_err(|error| {
                Error::request(format!("messages[{index}] can't be read")).with_source(error)
            })?;
            conversation.append(&message);
        }
        Ok(conversation)
    }

    /// The API's `messages` array.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = String::with_capacity(self.bytes() + 2);
        text.push('[');
        for chunk in &self.sealed {
            text.push_str(&chunk.text);
        }
        text.push_str(&self.open);
        text.push(']');
        text
    }

    /// The number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// True if there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// A message by its index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<MessageRef<'_>> {
        self.messages.get(index).map(|entry| self.view(entry))
    }

    /// The last message.
    #[must_use]
    pub fn last(&self) -> Option<MessageRef<'_>> {
        self.messages.last().map(|entry| self.view(entry))
    }

    /// The messages in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = MessageRef<'_>> + ExactSizeIterator {
        self.messages.iter().map(|entry| self.view(entry))
    }

    /// Adds a message.
    ///
    /// A user message that says something after open calls first answers them, in a message of
    /// results of its own: each call is told that it was not executed, and why. The user's
    /// message follows as it was made. A user message that holds results alone answers just
    /// those calls.
    ///
    /// # Errors
    /// The conversation could not be sent with the message: its content is flawed, its results
    /// answer no open call or come too late, an assistant message would follow open calls or
    /// repeat an id, or the API is still to finish the turn before (send the results alone
    /// first, or remove that turn with [`pop_turn`](Self::pop_turn)). The conversation is then
    /// what it was.
    pub fn push(&mut self, message: MessageParam) -> Result<()> {
        message.sound()?;
        let facts = message.facts();
        let index = self.messages.len();
        if let Some(problem) = self.pairing.judge(index, facts) {
            return Err(Error::request(format!("messages[{index}] can't be added: {}", problem.text)));
        }
        if facts.role == Role::User && facts.has_other {
            let results: HashSet<_> = facts.results.iter().collect();
            let unanswered: Vec<_> = self
                .pairing
                .answerable()
                .iter()
                .filter(|call| !results.contains(&call.id))
                .cloned()
                .collect();
            if !unanswered.is_empty() {
                if self.pairing.user_spoke() {
                    return Err(Error::request(format!(
                        "messages[{index}] can't be added: these calls have no result before the text that follows them: {}; repair it with `close_open_calls`",
                        pairing::ids(&unanswered)
                    )));
                }
                let answers = answered(&unanswered, self.why_open.as_deref().unwrap_or(NOT_RUN));
                self.append(&answers);
            }
        }
        self.append(&message);
        Ok(())
    }

    /// Adds a message whatever it breaks.
    pub(crate) fn append(&mut self, message: &MessageParam) {
        let index = self.messages.len();
        if index > 0 {
            self.open.push(',');
        }
        let start = self.open.len();
        self.open.push_str(message.json());
        self.pairing.add(index, message.facts());
        if self.pairing.answerable().is_empty() {
            self.why_open = None;
        }
        self.messages.push(Entry {
            chunk: self.sealed.len(),
            start,
            end: self.open.len(),
            facts: Arc::clone(message.facts()),
        });
        if self.open.len() >= SEAL {
            self.sealed.push(Chunk::seal(std::mem::take(&mut self.open)));
        }
    }

    /// Keeps the first `len` messages. Does nothing if there are no more.
    ///
    /// # Errors
    /// The cut would part a call from its result. The conversation is then what it was.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        if len >= self.messages.len() {
            return Ok(());
        }
        let pairing = Pairing::of(self.messages[..len].iter().map(|entry| &*entry.facts));
        let answered: HashSet<_> =
            self.messages[len..].iter().flat_map(|entry| entry.facts.results.iter()).collect();
        let parted = pairing.open().find(|call| answered.contains(&call.id));
        if let Some(call) = parted {
            return Err(Error::request(format!(
                "cutting to {len} messages would part the call {} of messages[{}] from its result: cut before that message, or behind its results",
                json::shown(&call.id),
                call.message
            )));
        }
        self.cut(len, pairing);
        Ok(())
    }

    /// Removes the last assistant turn and everything behind it, and returns it: the parts of a
    /// paused turn, their results, and what was said after them. Empty if there is no assistant
    /// turn.
    pub fn pop_turn(&mut self) -> Vec<MessageParam> {
        let is_assistant = |entry: &Entry| entry.facts.role == Role::Assistant;
        let Some(last) = self.messages.iter().rposition(is_assistant) else { return Vec::new() };
        let before = self.messages[..last].iter().rposition(|entry| !is_assistant(entry));
        let len = before.map_or(0, |before| before + 1);
        let removed = self.iter().skip(len).map(MessageRef::to_param).collect();
        let pairing = Pairing::of(self.messages[..len].iter().map(|entry| &*entry.facts));
        self.cut(len, pairing);
        removed
    }

    fn cut(&mut self, len: usize, pairing: Pairing) {
        match len.checked_sub(1).map(|last| (self.messages[last].chunk, self.messages[last].end)) {
            Some((chunk, end)) if chunk < self.sealed.len() => {
                self.open = self.sealed[chunk].text[..end].to_owned();
                self.sealed.truncate(chunk);
            }
            Some((_, end)) => self.open.truncate(end),
            None => {
                self.sealed.clear();
                self.open.clear();
            }
        }
        self.messages.truncate(len);
        self.pairing = pairing;
        self.why_open = None;
    }

    /// The client calls that have no result, in order.
    #[must_use]
    pub fn open_calls(&self) -> Vec<OpenCall> {
        self.pairing.open().cloned().collect()
    }

    /// Answers every open call with an error result that reads `not executed: ` and the reason.
    /// The results of a turn are a message of their own, right behind the turn: this alone puts
    /// something into the middle of a conversation, which the API would not take as it is. Calls
    /// of server tools are the API's to answer and stay as they are.
    pub fn close_open_calls(&mut self, reason: &str) {
        let reason = &format!("not executed: {reason}");
        if !self.pairing.has_abandoned() && !self.pairing.user_spoke() {
            let answers = answered(self.pairing.answerable(), reason);
            if !self.pairing.answerable().is_empty() {
                self.append(&answers);
            }
            return;
        }
        // Without those that stand before a compaction block.
        let open: HashSet<_> = self.pairing.open().map(|call| &call.id).collect();
        let messages: Vec<_> = self.iter().map(MessageRef::to_param).collect();
        let mut repaired = Self::new();
        for (index, message) in messages.iter().enumerate() {
            if message.role() != Role::Assistant && repaired.pairing.ends_in_assistant() {
                let until_next =
                    messages[index..].iter().take_while(|message| message.role() != Role::Assistant);
                let has_result: HashSet<_> =
                    until_next.flat_map(|message| message.facts().results.iter()).collect();
                let calls = repaired.pairing.answerable().iter();
                let unanswered: Vec<_> = calls
                    .filter(|call| open.contains(&call.id) && !has_result.contains(&call.id))
                    .cloned()
                    .collect();
                if !unanswered.is_empty() {
                    repaired.append(&answered(&unanswered, reason));
                }
            }
            repaired.append(message);
        }
        if !repaired.pairing.answerable().is_empty() {
            repaired.append(&answered(repaired.pairing.answerable(), reason));
        }
        *self = repaired;
    }

    /// Tells whether the API would take the conversation, as far as it can be known here.
    ///
    /// # Errors
    /// It would not: the error names the message and the id. A run refuses by itself only open
    /// calls, results without calls and repeated ids; what else is doubted here is sent.
    pub fn check(&self) -> Result<()> {
        let fail = |index: usize, text: &str| Err(Error::request(format!("messages[{index}]: {text}")));
        let Some(first) = self.messages.first() else {
            return Err(Error::request("the conversation has no message"));
        };
        if first.facts.role != Role::User && !self.begins_compacted() {
            return fail(0, "the first message must be a user message");
        }
        let flawed = self.messages.iter().position(|entry| entry.facts.flaw.is_some());
        let problem = self.pairing.problems().first();
        match (flawed, problem) {
            (Some(index), _) if problem.is_none_or(|problem| index <= problem.message) => {
                return fail(index, self.messages[index].facts.flaw.as_deref().unwrap_or_default());
            }
            (_, Some(problem)) => return fail(problem.message, &problem.text),
            _ => {}
        }
        let mut marks = 0_u32;
        for (index, entry) in self.messages.iter().enumerate() {
            marks += u32::from(entry.facts.cache_marks);
            if marks > MAX_CACHE_MARKS {
                return fail(index, "more than four blocks carry a `cache_control`");
            }
        }
        self.refuse_open()
    }

    /// Fails for what a run would have to guess about.
    pub(crate) fn sendable(&self) -> Result<()> {
        if let Some(problem) = self.pairing.problems().iter().find(|problem| problem.refused) {
            return Err(Error::request(format!("messages[{}]: {}", problem.message, problem.text)));
        }
        self.refuse_open()
    }

    /// The messages from `first` on.
    pub(crate) fn iter_from(&self, first: usize) -> impl Iterator<Item = MessageRef<'_>> {
        self.messages[first.min(self.len())..].iter().map(|entry| self.view(entry))
    }

    fn refuse_open(&self) -> Result<()> {
        let Some(first) = self.pairing.open().next() else { return Ok(()) };
        Err(Error::request(format!(
            "messages[{}]: these calls have no result: {}; a run does not guess whether they ran: answer them by adding a user message or with `close_open_calls`, or, where the cap of a run left them open, go on with its run loop",
            first.message,
            pairing::ids(self.pairing.open())
        )))
    }

    fn begins_compacted(&self) -> bool {
        self.messages.first().is_some_and(|first| first.facts.compacts)
    }

    pub(crate) fn pairing(&self) -> &Pairing {
        &self.pairing
    }

    /// Sets the text that answers the calls at the end if the conversation goes on without them.
    pub(crate) fn set_why_open(&mut self, why: impl Into<Cow<'static, str>>) {
        self.why_open = Some(why.into());
    }

    /// The body of a request as shared segments: the head, the sealed chunks, and one copy of the
    /// growing chunk with the tail.
    pub(crate) fn segments(&self, head: String, tail: &str) -> Vec<Bytes> {
        let mut segments = Vec::with_capacity(self.sealed.len() + 2);
        segments.push(Bytes::from(head));
        segments.extend(self.sealed.iter().map(|chunk| chunk.bytes.clone()));
        let mut end = String::with_capacity(self.open.len() + tail.len());
        end.push_str(&self.open);
        end.push_str(tail);
        segments.push(Bytes::from(end));
        segments
    }

    fn bytes(&self) -> usize {
        self.sealed.iter().map(|chunk| chunk.bytes.len()).sum::<usize>() + self.open.len()
    }

    fn view<'a>(&'a self, entry: &'a Entry) -> MessageRef<'a> {
        let chunk = self.sealed.get(entry.chunk).map_or(&self.open, |chunk| &*chunk.text);
        MessageRef { json: &chunk[entry.start..entry.end], facts: &entry.facts }
    }
}

/// One user message with the same error result for each call.
fn answered(calls: &[OpenCall], text: &str) -> MessageParam {
    let results: Vec<_> = calls
        .iter()
        .map(|call| {
            let mut block = ContentBlock::tool_error(&*call.id, text);
            if let (Some(toolset), ContentBlock::ToolResult(result)) = (&call.toolset, &mut block) {
                result.extra.set("toolset_name", json::text(toolset));
            }
            block
        })
        .collect();
    MessageParam::frozen(Role::User, &json::to_raw(&results))
}

impl Chunk {
    fn seal(text: String) -> Self {
        struct Shared(Arc<String>);

        impl AsRef<[u8]> for Shared {
            fn as_ref(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }

        let text = Arc::new(text);
        Self { bytes: Bytes::from_owner(Shared(Arc::clone(&text))), text }
    }
}

impl<'a> MessageRef<'a> {
    /// Who speaks.
    #[must_use]
    pub fn role(self) -> Role {
        self.facts.role.clone()
    }

    /// The wire text.
    #[must_use]
    pub fn json(self) -> &'a str {
        self.json
    }

    /// The content as typed blocks; a string is one text block.
    #[must_use]
    pub fn content(self) -> Vec<ContentBlock> {
        param::content_of(self.json)
    }

    /// A copy of the message.
    #[must_use]
    pub fn to_param(self) -> MessageParam {
        MessageParam::stored(self.json, Arc::clone(self.facts))
    }
}

impl PartialEq for Conversation {
    /// Two conversations are equal if they are the same bytes on the wire.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(one, two)| one.json == two.json)
    }
}

impl Eq for Conversation {}

impl Serialize for Conversation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.len()))?;
        for message in self.iter() {
            let raw: &RawValue = serde_json::from_str(message.json).map_err(serde::ser::Error::custom)?;
            list.serialize_element(raw)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for Conversation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = json::raw(deserializer, "Conversation::from_json")?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}

/// Counts alone: a conversation is somebody's words.
impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("messages", &self.len())
            .field("bytes", &self.bytes())
            .field("open_calls", &self.pairing.open().count())
            .finish()
    }
}

impl fmt::Debug for MessageRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRef")
            .field("role", &self.facts.role.as_str())
            .field("bytes", &self.json.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body is a few shared segments, however many messages there are.
    #[test]
    fn a_body_has_few_segments_and_shares_them() {
        let mut conversation = Conversation::new();
        for number in 0..3_000_usize {
            let text = "x".repeat(if number % 500 == 0 { 100_000 } else { 200 });
            conversation.push(MessageParam::user(&text).unwrap()).unwrap();
            let segments = conversation.segments("[".to_owned(), "]");
            let bytes: usize = segments.iter().map(Bytes::len).sum();
            assert!(segments.len() <= 3 + bytes / SEAL, "{} segments for {bytes} bytes", segments.len());
            if number % 600 == 0 {
                assert_eq!(segments.concat(), conversation.to_json().as_bytes());
            }
        }
        let (one, two) = (conversation.segments(String::new(), ""), conversation.segments(String::new(), ""));
        assert!(one.len() > 10);
        for (one, two) in one.iter().zip(&two).take(one.len() - 1).skip(1) {
            assert_eq!(one.as_ptr(), two.as_ptr());
        }
    }
}
