//! Events in, the reply out: the partial one at any time, the whole one at the end. No IO.

use std::borrow::Cow;
use std::io;

use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};
use crate::messages::content::is_call;
use crate::messages::json::{self, Fields};
use crate::messages::json_check::JsonCheck;
use crate::messages::{
    BrokenInput, ContentBlock, Delta, Message, MessageDelta, StopReason, StreamEvent, Text, TextDelta,
    TextField, unescape,
};

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
    /// The JSON of the first blocks, which are closed.
    written: Written,
    /// How many bytes came, and how many may.
    size: usize,
    cap: usize,
}

/// The beginning of the reply's JSON: blocks are long, and each is copied once.
#[derive(Clone, Debug, Default)]
struct Written {
    json: String,
    /// How long the part before the first block is. It may still change.
    head: usize,
    /// How many blocks there are.
    blocks: usize,
    broken: Vec<BrokenInput>,
}

#[derive(Clone, Debug)]
struct Block {
    kind: Box<str>,
    start: Box<RawValue>,
    /// The fields, once a delta changed one. Until then the block is what its start was.
    fields: Option<Object>,
    /// The input of a call, as the deltas spell it.
    input: String,
    check: JsonCheck,
    /// Why that is no JSON.
    broken: Option<String>,
    closed: bool,
}

/// The fields of an object, in order.
#[derive(Clone, Debug)]
struct Object {
    fields: Vec<(Box<str>, Value)>,
    /// The place of the field that was asked for last.
    last: usize,
}

/// A value that deltas may add to.
#[derive(Clone, Debug)]
enum Value {
    Json(Box<RawValue>),
    /// An input, checked to be JSON.
    Input(String),
    List(Vec<Box<RawValue>>),
    Text(String),
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
                open(&mut self.blocks, *index, delta.kind())?.add(delta)?;
                self.grow(delta.len())
            }
            StreamEvent::ContentBlockStop { index } => {
                open(&mut self.blocks, *index, event.kind())?.close()?;
                if self.written.head == 0 {
                    self.written.begin(message);
                }
                while let Some(block) = self.blocks.get_mut(self.written.blocks)
                    && block.closed
                {
                    self.written.add(block)?;
                    block.fields = None;
                }
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
    /// The reply is longer than the cap.
    pub(crate) fn add(&mut self, delta: TextDelta<'_>) -> Result<bool> {
        let block = self.blocks.get_mut(delta.index).filter(|block| !block.closed);
        let Some(block) = block else { return Ok(false) };
        match block.add_text(delta.field, delta.text)? {
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
        self.grow(start.json().len() + PER_EVENT * self.blocks.len())
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
            written.add(block)?;
        }
        let Written { mut json, head, broken, .. } = written;
        json.push(']');
        let content = head - 1..json.len();
        message.write_after_content(&mut json);
        json.shrink_to_fit();
        Ok(Message::assembled(json, content, &message.without_content()).with_broken_inputs(broken))
    }
}

impl Written {
    /// Writes the part before the first block, again if the message has changed.
    fn begin(&mut self, message: &Object) {
        let head = message.up_to_content();
        if self.json.get(..self.head) != Some(&head) {
            self.json.replace_range(..self.head, &head);
            self.head = head.len();
        }
    }

    fn add(&mut self, block: &Block) -> Result<()> {
        if self.blocks > 0 {
            self.json.push(',');
        }
        let place = block.write(&mut self.json)?;
        self.broken.extend(place.map(|place| BrokenInput { block: self.blocks, place }));
        self.blocks += 1;
        Ok(())
    }
}

impl Block {
    fn new(kind: &str, start: &RawValue) -> Self {
        Self {
            kind: kind.into(),
            start: start.to_owned(),
            fields: None,
            input: String::new(),
            check: JsonCheck::default(),
            broken: None,
            closed: false,
        }
    }

    /// The model that goes on from this block, if it says that another one does.
    fn taken_over_by(&self) -> Option<Box<RawValue>> {
        if &*self.kind != "fallback" {
            return None;
        }
        let to = Fields::parse(Fields::parse(self.start.get())?.get("to")?.get())?;
        to.get("model").filter(|model| json::string(model).is_some()).map(ToOwned::to_owned)
    }

    fn fields(&mut self) -> Result<&mut Object> {
        match &mut self.fields {
            Some(fields) => Ok(fields),
            none => Ok(none.insert(Object::of(self.start.get())?)),
        }
    }

    /// Adds a delta, whatever the kind of the block.
    fn add(&mut self, delta: &Delta) -> Result<()> {
        match delta {
            Delta::InputJson(text) => self.add_whole(TextField::Input, text)?,
            Delta::Text(text) => self.add_whole(TextField::Text, text)?,
            Delta::Thinking { thinking, .. } => self.add_whole(TextField::Thinking, thinking)?,
            Delta::Signature(signature) => self.fields()?.set("signature", Value::Text(signature.clone())),
            Delta::Citation(citation) => self.fields()?.push("citations", citation),
            Delta::Compaction(delta) => {
                let delta = Fields::parse(delta.get()).unwrap_or_default();
                for name in ["content", "encrypted_content"] {
                    if let Some(value) = delta.get(name) {
                        self.fields()?.set(name, Value::Json(value.to_owned()));
                    }
                }
            }
            Delta::Other { .. } => {}
        }
        Ok(())
    }

    fn add_whole(&mut self, field: TextField, text: &str) -> Result<()> {
        self.add_text(field, Text::Plain(Cow::Borrowed(text))).map(drop)
    }

    /// Adds a text and gives its length; `None` if it is for the parser.
    fn add_text(&mut self, field: TextField, text: Text<'_>) -> Result<Option<usize>> {
        let name = match field {
            TextField::Input => return Ok(self.add_input(text)),
            TextField::Text => "text",
            TextField::Thinking => "thinking",
        };
        let Some(text) = text.read() else { return Ok(None) };
        self.fields()?.append(name, &text);
        Ok(Some(text.len()))
    }

    fn add_input(&mut self, text: Text<'_>) -> Option<usize> {
        let Self { input, check, .. } = self;
        let before = input.len();
        match text {
            Text::Plain(text) => {
                input.push_str(&text);
                check.push(&text);
            }
            Text::Spelled(json) => {
                let read = unescape(json, |part| {
                    input.push_str(part);
                    check.push_part(part);
                });
                if read.is_none() {
                    input.truncate(before);
                    check.give_up();
                    return None;
                }
            }
        }
        Some(input.len() - before)
    }

    fn close(&mut self) -> Result<()> {
        self.closed = true;
        self.settle_input()
    }

    /// Puts the input in its place. What is no JSON is kept as a string, so that no handler can
    /// take it for an input.
    fn settle_input(&mut self) -> Result<()> {
        let input = std::mem::take(&mut self.input);
        if self.check.is_value() {
            self.fields()?.set("input", Value::Input(input));
            return Ok(());
        }
        let value = match serde_json::from_str::<&RawValue>(&input) {
            // Spaces around it do not belong to it.
            Ok(value) => Value::Json(value.to_owned()),
            Err(_) if input.trim().is_empty() => {
                if !is_call(&self.kind) {
                    return Ok(());
                }
                let given = Fields::parse(self.start.get()).and_then(|fields| fields.get("input"));
                if given.is_some_and(|input| !matches!(input.get(), "null" | "\"\"")) {
                    return Ok(());
                }
                Value::Json(json::text("{}"))
            }
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                self.broken = Some(match error.is_eof() {
                    true => format!("it ends too early (line {line}, column {column})"),
                    false => format!("the fault is at line {line}, column {column}"),
                });
                Value::Text(input)
            }
        };
        self.fields()?.set("input", value);
        Ok(())
    }

    /// Writes the block as far as it came, and says why its input is no JSON.
    fn write(&self, json: &mut String) -> Result<Option<String>> {
        if !self.closed {
            let mut block = self.clone();
            block.close()?;
            return block.write(json);
        }
        match &self.fields {
            Some(fields) => fields.write(json),
            None => json.push_str(self.start.get()),
        }
        Ok(self.broken.clone())
    }
}

impl Object {
    /// The fields of an object. Every change looks for its field, so their number has a limit, far
    /// above what the API sends.
    fn of(json: &str) -> Result<Self> {
        let fields = Fields::parse(json).unwrap_or_default();
        let own = |(name, value): (&str, &RawValue)| (name.into(), Value::Json(value.to_owned()));
        let fields: Vec<_> = fields.iter().take(MAX_FIELDS + 1).map(own).collect();
        let object = Self { fields, last: 0 };
        object.check()?;
        Ok(object)
    }

    /// The fields of a message, `content` among them.
    fn message(json: &str) -> Result<Self> {
        let mut message = Self::of(json)?;
        message.field_or("content", || Value::List(Vec::new()));
        Ok(message)
    }

    fn check(&self) -> Result<()> {
        match self.fields.len() > MAX_FIELDS {
            true => Err(no_reply(&format!("an object has more than {MAX_FIELDS} fields"))),
            false => Ok(()),
        }
    }

    /// The value of a field; put at the end where there is none. Of equal names the last counts.
    fn field_or(&mut self, name: &str, missing: impl FnOnce() -> Value) -> &mut Value {
        if self.fields.get(self.last).is_none_or(|(field, _)| &**field != name) {
            self.last = self.fields.iter().rposition(|(field, _)| &**field == name).unwrap_or_else(|| {
                self.fields.push((name.into(), missing()));
                self.fields.len() - 1
            });
        }
        &mut self.fields[self.last].1
    }

    fn set(&mut self, name: &str, value: Value) {
        *self.field_or(name, || Value::List(Vec::new())) = value;
    }

    fn append(&mut self, name: &str, more: &str) {
        let value = self.field_or(name, || Value::Text(String::new()));
        if let Value::Json(start) = value {
            *value = Value::Text(json::string(start).unwrap_or_default().into_owned());
        }
        if let Value::Text(text) = value {
            text.push_str(more);
        }
    }

    fn push(&mut self, name: &str, item: &RawValue) {
        let value = self.field_or(name, || Value::List(Vec::new()));
        if let Value::Json(start) = value {
            let items = json::items(start.get()).unwrap_or_default();
            *value = Value::List(items.into_iter().map(ToOwned::to_owned).collect());
        }
        if let Value::List(items) = value {
            items.push(item.to_owned());
        }
    }

    /// A field that is a string.
    fn text(&self, name: &str) -> Option<String> {
        match &self.fields.iter().rfind(|(field, _)| &**field == name)?.1 {
            Value::Json(value) => json::string(value).map(Into::into),
            Value::Text(text) => Some(text.clone()),
            Value::Input(_) | Value::List(_) => None,
        }
    }

    /// Takes over what the end of the reply says: what is null there says nothing, but for the
    /// stop fields, and counters are those of the whole reply. Gives the size of all counters.
    fn end(&mut self, event: &MessageDelta) -> Result<usize> {
        let event = Fields::parse(event.json.get()).unwrap_or_default();
        let delta = event.get("delta").and_then(|delta| Fields::parse(delta.get())).unwrap_or_default();
        let says = |name: &str, value: &RawValue| name.starts_with("stop_") || !json::is_null(value);
        let beside = event.iter().filter(|(name, _)| !matches!(*name, "delta" | "usage"));
        for (name, value) in delta.iter().chain(beside) {
            if !matches!(name, "type" | "id" | "role" | "content") && says(name, value) {
                self.set(name, Value::Json(value.to_owned()));
                self.check()?;
            }
        }
        let Some(usage) = event.get("usage").filter(|usage| json::is_object(usage)) else { return Ok(0) };
        let old = self.field_or("usage", || Value::List(Vec::new()));
        let merged = match old {
            Value::Json(old) => json::merged(old, usage, USAGE_DEPTH),
            _ => usage.to_owned(),
        };
        let size = merged.get().len();
        *old = Value::Json(merged);
        Ok(size)
    }

    fn write(&self, json: &mut String) {
        json.push('{');
        write_fields(json, &self.fields);
        json.push('}');
    }

    /// Where a message has its content. Of equal names the last counts.
    fn content(&self) -> usize {
        self.fields.iter().rposition(|(name, _)| &**name == "content").unwrap_or(self.fields.len())
    }

    /// What a message's JSON begins with, the bracket of its content at the end.
    fn up_to_content(&self) -> String {
        let mut json = String::from("{");
        let before = self.fields[..self.content()].iter().filter(|(name, _)| &**name != "content");
        write_fields(&mut json, before);
        begin_field(&mut json, "content");
        json.push('[');
        json
    }

    /// Writes what follows on a message's content.
    fn write_after_content(&self, json: &mut String) {
        write_fields(json, self.fields.iter().skip(self.content() + 1));
        json.push('}');
    }

    /// The JSON of a message but for its content.
    fn without_content(&self) -> String {
        let mut json = String::from("{");
        write_fields(&mut json, self.fields.iter().filter(|(name, _)| &**name != "content"));
        json.push('}');
        json
    }
}

impl Value {
    fn write(&self, json: &mut String) {
        match self {
            Self::Json(value) => json.push_str(value.get()),
            Self::Input(value) => json.push_str(value),
            Self::Text(value) => write_text(json, value),
            Self::List(items) => {
                json.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        json.push(',');
                    }
                    json.push_str(item.get());
                }
                json.push(']');
            }
        }
    }
}

fn write_fields<'a>(json: &mut String, fields: impl IntoIterator<Item = &'a (Box<str>, Value)>) {
    for (name, value) in fields {
        begin_field(json, name);
        value.write(json);
    }
}

fn begin_field(json: &mut String, name: &str) {
    if !json.ends_with('{') {
        json.push(',');
    }
    write_text(json, name);
    json.push(':');
}

fn write_text(json: &mut String, text: &str) {
    /// Takes what is written to it as text, piece by piece.
    struct Utf8<'a>(&'a mut String);

    impl io::Write for Utf8<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push_str(std::str::from_utf8(bytes).map_err(io::Error::other)?);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    // serde writes whole characters, and memory takes them.
    let _written = serde_json::to_writer(Utf8(json), text);
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

/// Counters inside of objects are merged this deep; the API has one level.
const USAGE_DEPTH: usize = 4;

const MAX_FIELDS: usize = 1000;

/// What an event or a block takes beside its bytes, about.
const PER_EVENT: usize = 128;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::messages::Parsed;

    const CAP: usize = 1 << 30;

    fn event(data: &str) -> StreamEvent {
        match StreamEvent::parse("", data) {
            Ok(Parsed::Event(event)) => event,
            other => panic!("{data}: {other:?}"),
        }
    }

    fn accumulated<'a>(events: impl IntoIterator<Item = &'a str>) -> Result<Accumulator> {
        let mut accumulator = Accumulator::new(CAP);
        for data in events {
            accumulator.apply(&event(data))?;
            // The partial reply is readable at any time.
            assert_eq!(accumulator.snapshot().is_some(), accumulator.has_begun());
        }
        Ok(accumulator)
    }

    const START: &str = r#"{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"container":null,"diagnostics":null,"usage":{"input_tokens":9,"cache_creation_input_tokens":null,"cache_creation":{"ephemeral_5m_input_tokens":0},"output_tokens":3,"service_tier":"standard"}}}"#;
    const STOP: &str = r#"{"type":"message_stop"}"#;

    fn start(index: usize, block: &str) -> String {
        format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
    }

    fn delta(index: usize, delta: &str) -> String {
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
    }

    fn stop(index: usize) -> String {
        format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
    }

    fn end(reason: &str) -> String {
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":7}}}}"#
        )
    }

    fn input(text: &str) -> String {
        delta(0, &format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, json::to_raw(text)))
    }

    /// A value with its strings spelled one way; numbers, keys and their order are left alone.
    fn canonical(value: &str) -> String {
        let inner = |items: Vec<String>| items.join(",");
        if let Some(fields) = Fields::parse(value) {
            let fields = fields.iter().map(|(name, value)| format!("{name:?}:{}", canonical(value.get())));
            format!("{{{}}}", inner(fields.collect()))
        } else if let Some(items) = json::items(value) {
            format!("[{}]", inner(items.iter().map(|item| canonical(item.get())).collect()))
        } else {
            let raw = json::text(value);
            json::string(&raw).map_or_else(|| value.to_owned(), |text| format!("{text:?}"))
        }
    }

    /// A block as a plain reply has it, as its start event does, and its deltas.
    type Fixture = (&'static str, &'static str, &'static [&'static str]);

    const WHOLE: &[&str] = &[];

    /// One of each kind of block that the API has, and more where a kind has several shapes.
    const FIXTURES: &[Fixture] = &[
        (
            r#"{"type":"text","text":"The limit: 40 \"rps\" é漢😀\n"}"#,
            r#"{"type":"text","text":""}"#,
            &[
                r#"{"type":"text_delta","text":"The limit: "}"#,
                r#"{"type":"text_delta","text":""}"#,
                r#"{"type":"text_delta","text":"40 \"rps\" \u00e9漢\ud83d\ude00\n"}"#,
            ],
        ),
        (
            r#"{"type":"text","text":"abc","citations":[{"type":"char_location","cited_text":"x","start_char_index":118},{"type":"page_location","n":1e2}],"more":1}"#,
            r#"{"type":"text","text":"ab","citations":[{"type":"char_location","cited_text":"x","start_char_index":118}],"more":1}"#,
            &[
                r#"{"type":"text_delta","text":"c"}"#,
                r#"{"type":"citations_delta","citation":{"type":"page_location","n":1e2}}"#,
            ],
        ),
        (
            r#"{"type":"thinking","thinking":"abc","signature":"S2"}"#,
            r#"{"type":"thinking","thinking":"ab","signature":""}"#,
            &[
                r#"{"type":"thinking_delta","thinking":"c","estimated_tokens":4}"#,
                r#"{"type":"signature_delta","signature":"S1"}"#,
                r#"{"type":"signature_delta","signature":"S2"}"#,
            ],
        ),
        (
            r#"{"type":"thinking","thinking":"","signature":"S"}"#,
            r#"{"type":"thinking","thinking":"","signature":""}"#,
            &[
                r#"{"type":"thinking_delta","estimated_tokens":4}"#,
                r#"{"type":"signature_delta","signature":"S"}"#,
            ],
        ),
        (
            r#"{"type":"thinking","thinking":"a","signature":"S"}"#,
            r#"{"type":"thinking","thinking":null}"#,
            &[r#"{"type":"thinking_delta","thinking":"a"}"#, r#"{"type":"signature_delta","signature":"S"}"#],
        ),
        (
            r#"{"type":"redacted_thinking","data":"Zm9v"}"#,
            r#"{"type":"redacted_thinking","data":"Zm9v"}"#,
            WHOLE,
        ),
        (
            r#"{"type":"tool_use","id":"t1","name":"f","input":{"z":1e2,"a":{"y":1234567890123456789012345,"b":1.10},"s":"\u00e9\/\ud83d\ude00"},"caller":{"type":"direct"},"toolset_name":"c"}"#,
            r#"{"type":"tool_use","id":"t1","name":"f","input":{},"caller":{"type":"direct"},"toolset_name":"c"}"#,
            &[
                r#"{"type":"input_json_delta","partial_json":""}"#,
                r#"{"type":"input_json_delta","partial_json":"{\"z\":1"}"#,
                r#"{"type":"input_json_delta","partial_json":"e2,\"a\":{\"y\":12345678901"}"#,
                r#"{"type":"input_json_delta","partial_json":"23456789012345,\"b\":1.10},\"s\":\"\\u00"}"#,
                r#"{"type":"input_json_delta","partial_json":"e9\\/\\ud83d\\ude00\"}"}"#,
            ],
        ),
        (
            r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#,
            r#"{"type":"tool_use","id":"t1","name":"f"}"#,
            &[
                r#"{"type":"input_json_delta","partial_json":""}"#,
                r#"{"type":"input_json_delta","partial_json":" "}"#,
            ],
        ),
        (
            r#"{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}"#,
            r#"{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}"#,
            WHOLE,
        ),
        (
            r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#,
            r#"{"type":"tool_use","id":"t1","name":"f","input":""}"#,
            WHOLE,
        ),
        (
            r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"tokio"},"caller":{"type":"direct"}}"#,
            r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{},"caller":{"type":"direct"}}"#,
            &[r#"{"type":"input_json_delta","partial_json":"{\"query\":\"tokio\"}"}"#],
        ),
        (
            r#"{"type":"mcp_tool_use","id":"m1","name":"find","server_name":"crm","input":{"email":"kim@example.com"}}"#,
            r#"{"type":"mcp_tool_use","id":"m1","name":"find","server_name":"crm","input":{}}"#,
            &[
                r#"{"type":"input_json_delta","partial_json":"{\"email\":"}"#,
                r#"{"type":"input_json_delta","partial_json":"\"kim@example.com\"}"}"#,
            ],
        ),
        (
            r#"{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","url":"u"}]}"#,
            "",
            WHOLE,
        ),
        (
            r#"{"type":"web_fetch_tool_result","tool_use_id":"s1","content":{"type":"web_fetch_tool_result_error","error_code":"unavailable"}}"#,
            "",
            WHOLE,
        ),
        (
            r#"{"type":"code_execution_tool_result","tool_use_id":"s1","content":{"type":"code_execution_result","stdout":"42\n","return_code":0,"content":[]}}"#,
            "",
            WHOLE,
        ),
        (
            r#"{"type":"bash_code_execution_tool_result","tool_use_id":"s1","content":{"type":"bash_code_execution_result","stdout":"ok"}}"#,
            "",
            WHOLE,
        ),
        (
            r#"{"type":"text_editor_code_execution_tool_result","tool_use_id":"s1","content":{"type":"text_editor_code_execution_create_result","is_file_update":false}}"#,
            "",
            WHOLE,
        ),
        (
            r#"{"type":"tool_search_tool_result","tool_use_id":"s1","content":{"type":"tool_search_tool_search_result","tool_references":[]}}"#,
            "",
            WHOLE,
        ),
        (r#"{"type":"mcp_tool_result","tool_use_id":"m1","is_error":false,"content":"1 match"}"#, "", WHOLE),
        (
            r#"{"type":"advisor_tool_result","tool_use_id":"s1","content":{"type":"advisor_result","text":"Check."}}"#,
            "",
            WHOLE,
        ),
        (r#"{"type":"container_upload","file_id":"file_1"}"#, "", WHOLE),
        (r#"{"type":"mcp_tool_listing","mcp_server_name":"crm","tools":[{"name":"find"}]}"#, "", WHOLE),
        (
            r#"{"type":"fallback","from":{"model":"m"},"to":{"model":"m"},"trigger":{"type":"refusal"}}"#,
            "",
            WHOLE,
        ),
        (
            r#"{"type":"compaction","content":"Goal","signature":"E","encrypted_content":null,"tool_changes":[]}"#,
            "",
            WHOLE,
        ),
        (
            r#"{"type":"compaction","content":"Goal","signature":"E","encrypted_content":"x","tool_changes":[]}"#,
            r#"{"type":"compaction","content":null,"signature":"E","encrypted_content":null,"tool_changes":[]}"#,
            &[r#"{"type":"compaction_delta","content":"Goal","encrypted_content":"x"}"#],
        ),
        (
            r#"{"type":"connector_text","text":"Now the tests.","signature":"C"}"#,
            r#"{"type":"connector_text","text":"","signature":""}"#,
            &[
                r#"{"type":"text_delta","text":"Now the tests."}"#,
                r#"{"type":"signature_delta","signature":"C"}"#,
            ],
        ),
        (
            r#"{ "type": "future", "x": [1.0], "thinking": "t", "citations": [{}], "input": {"a":1} }"#,
            r#"{ "type": "future", "x": [1.0] }"#,
            &[
                r#"{"type":"input_json_delta","partial_json":"{\"a\":1}"}"#,
                r#"{"type":"thinking_delta","thinking":"t"}"#,
                r#"{"type":"citations_delta","citation":{}}"#,
                r#"{"type":"future_delta","x":2}"#,
            ],
        ),
        (r#"{ "type" : "future", "\u0078" : [ 1.0 , "\u00e9" ] }"#, "", WHOLE),
        (r#"{"type":"document","source":{"type":"text","data":"x"}}"#, "", WHOLE),
        (r#"{"type":"image","source":{"type":"url","url":"u"}}"#, "", WHOLE),
        (r#"{"type":"tool_result","tool_use_id":"t1","content":"x"}"#, "", WHOLE),
    ];

    /// The kinds that a view stands for. There is no arm for the rest: a new kind of block has to
    /// come with a fixture.
    fn kinds(view: &ContentBlock) -> &'static [&'static str] {
        match view {
            ContentBlock::Document(_) => &["document"],
            ContentBlock::Image(_) => &["image"],
            ContentBlock::RedactedThinking(_) => &["redacted_thinking"],
            ContentBlock::ServerToolResult(_) => &[
                "advisor_tool_result",
                "bash_code_execution_tool_result",
                "code_execution_tool_result",
                "mcp_tool_result",
                "text_editor_code_execution_tool_result",
                "tool_search_tool_result",
                "web_fetch_tool_result",
                "web_search_tool_result",
            ],
            ContentBlock::ServerToolUse(_) => &["mcp_tool_use", "server_tool_use"],
            ContentBlock::Text(_) => &["text"],
            ContentBlock::Thinking(_) => &["thinking"],
            ContentBlock::ToolResult(_) => &["tool_result"],
            ContentBlock::ToolUse(_) => &["tool_use"],
            ContentBlock::Other(_) => &[
                "compaction",
                "connector_text",
                "container_upload",
                "fallback",
                "future",
                "mcp_tool_listing",
            ],
        }
    }

    #[test]
    fn a_streamed_reply_is_the_plain_one() {
        let (mut seen, mut needed) = (BTreeSet::new(), BTreeSet::new());
        for (plain, begun, deltas) in FIXTURES {
            let view = ContentBlock::from_json(plain).unwrap();
            seen.insert(view.kind().to_owned());
            needed.extend(kinds(&view).iter().map(|kind| (*kind).to_owned()));
            let begun = if begun.is_empty() { plain } else { begun };
            let mut events = vec![START.to_owned(), start(0, begun)];
            events.extend(deltas.iter().map(|fixture| delta(0, fixture)));
            events.extend([stop(0), end("end_turn"), STOP.to_owned()]);
            let reply = accumulated(events.iter().map(String::as_str)).unwrap().finish().unwrap();
            assert_eq!(canonical(reply.content_json()), canonical(&format!("[{plain}]")));
            assert_eq!(reply.broken_input(0), None);
            if deltas.is_empty() && *begun == *plain {
                assert_eq!(reply.content_json(), format!("[{plain}]"), "what came whole stays byte for byte");
            }
        }
        println!("{} fixtures, {} kinds of block", FIXTURES.len(), seen.len());
        assert_eq!(seen, needed, "each kind needs a fixture");
    }

    #[test]
    fn blocks_that_interleave_keep_their_places() {
        let picked: Vec<_> = FIXTURES.iter().filter(|(_, begun, _)| !begun.is_empty()).collect();
        let mut events = vec![START.to_owned()];
        events.extend(picked.iter().enumerate().map(|(at, (_, begun, _))| start(at, begun)));
        for round in 0..8 {
            for (at, (.., deltas)) in picked.iter().enumerate().rev() {
                events.extend(deltas.get(round).map(|fixture| delta(at, fixture)));
            }
        }
        events.extend((0..picked.len()).map(stop));
        events.extend([end("end_turn"), STOP.to_owned()]);
        let reply = accumulated(events.iter().map(String::as_str)).unwrap().finish().unwrap();
        let plain: Vec<_> = picked.iter().map(|(plain, ..)| *plain).collect();
        assert_eq!(canonical(reply.content_json()), canonical(&format!("[{}]", plain.join(","))));
    }

    /// The text of a call's input is the model's, and replaying it keeps each digit.
    #[test]
    fn the_input_is_the_text_of_the_deltas() {
        for text in [
            r#"{"z": 1e2 ,"a":{"y":2,"b":3}}"#,
            r#"{"id":7300000000000000001,"n":18446744073709551615}"#,
            "{ }",
        ] {
            for size in 1..=text.len() {
                let pieces =
                    text.as_bytes().chunks(size).map(|piece| input(std::str::from_utf8(piece).unwrap()));
                let mut events = vec![
                    START.to_owned(),
                    start(0, r#"{"type":"tool_use","id":"t","name":"f","input":{"placeholder":1}}"#),
                ];
                events.extend(pieces);
                events.extend([stop(0), end("tool_use")]);
                let reply = accumulated(events.iter().map(String::as_str)).unwrap().finish().unwrap();
                let expected = format!(r#"[{{"type":"tool_use","id":"t","name":"f","input":{text}}}]"#);
                assert_eq!(reply.content_json(), expected);
                assert_eq!(
                    reply.to_param().unwrap().json(),
                    format!(r#"{{"role":"assistant","content":{expected}}}"#)
                );
            }
        }
    }

    #[test]
    fn j15_an_input_that_is_no_json_is_kept_as_a_string_and_told_apart() {
        for (text, kept, place) in [
            (r#"{"a": "b"#, r#""{\"a\": \"b""#, Some("it ends too early (line 1, column 8)")),
            (r#"{"a": 1} x"#, r#""{\"a\": 1} x""#, Some("the fault is at line 1, column 10")),
            ("{\"a\":\n1,}", r#""{\"a\":\n1,}""#, Some("the fault is at line 2, column 3")),
            (r#""hello""#, r#""hello""#, None),
            ("null", "null", None),
            ("[1]", "[1]", None),
        ] {
            let begun = start(0, r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#);
            let events = [START, &begun, &input(text), &stop(0), &end("tool_use"), STOP].map(str::to_owned);
            let reply = accumulated(events.iter().map(String::as_str)).unwrap().finish().unwrap();
            assert_eq!(
                reply.content_json(),
                format!(r#"[{{"type":"tool_use","id":"t","name":"f","input":{kept}}}]"#)
            );
            assert_eq!(reply.broken_input(0), place);
            assert_eq!(reply.tool_uses().count(), 0);
            let replayed =
                r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}"#;
            assert_eq!(reply.to_param().unwrap().json(), replayed);
        }
    }

    #[test]
    fn counters_are_those_of_the_whole_reply_and_the_last_end_counts() {
        let ends = [
            r#"{"type":"message_delta","delta":{"stop_reason":"pause_turn","stop_sequence":"x","container":{"id":"c1"},"new":{"a":1}},"usage":{"output_tokens":40,"cache_creation_input_tokens":5,"server_tool_use":{"web_search_requests":1}},"context_management":{"applied_edits":[]}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal"},"container":null,"id":"other","content":[1]},"usage":{"output_tokens":96,"input_tokens":null,"cache_creation":{"ephemeral_1h_input_tokens":4}},"input_transformations":[],"context_management":null}"#,
        ];
        let reply = accumulated([START].into_iter().chain(ends)).unwrap().finish().unwrap();
        assert_eq!(
            reply.json(),
            r#"{"id":"m1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal"},"container":{"id":"c1"},"diagnostics":null,"usage":{"input_tokens":9,"cache_creation_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":4},"output_tokens":96,"service_tier":"standard","server_tool_use":{"web_search_requests":1}},"new":{"a":1},"context_management":{"applied_edits":[]},"input_transformations":[]}"#
        );
        assert_eq!((reply.usage().input_tokens, reply.usage().output_tokens), (9, 96));

        let mut bare =
            accumulated([START, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#]).unwrap();
        assert_eq!(bare.finish().unwrap().usage().output_tokens, 3);
        let mut none = accumulated([r#"{"type":"message_start","message":{}}"#, &end("end_turn")]).unwrap();
        assert_eq!(
            none.finish().unwrap().json(),
            r#"{"content":[],"stop_reason":"end_turn","stop_sequence":null,"usage":{"output_tokens":7}}"#
        );
    }

    #[test]
    fn a_reply_without_its_start_has_no_id_and_all_of_its_content() {
        let text = start(0, r#"{"type":"text","text":"a"}"#);
        let reply = accumulated([&*text, &stop(0), &end("end_turn"), STOP]).unwrap().finish().unwrap();
        assert_eq!(
            reply.json(),
            r#"{"content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"output_tokens":7}}"#
        );
        assert_eq!((reply.id(), reply.model()), ("", ""));
    }

    #[test]
    fn content_of_the_start_is_kept() {
        let begun = START.replace(r#""content":[]"#, r#""content":[{"type":"text","text":"a"}]"#);
        let more = start(1, r#"{"type":"text","text":"b"}"#);
        let reply = accumulated([&*begun, &more, &stop(1), &end("end_turn")]).unwrap().finish().unwrap();
        assert_eq!(reply.content_json(), r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#);
        assert!(accumulated([&*begun, &start(0, r#"{"type":"text"}"#)]).is_err());
    }

    #[test]
    fn what_stands_before_the_content_may_change_behind_the_first_blocks() {
        let fallback = start(1, r#"{"type":"fallback","to":{"model":"a longer name"}}"#);
        let late = start(2, r#"{"type":"text","text":"b"}"#);
        let first = start(0, r#"{"type":"text","text":"a"}"#);
        let stops = [stop(0), stop(1), stop(2)];
        let [stop_0, stop_1, stop_2] = &stops;
        let end = end("end_turn");
        for events in [
            [START, &first, stop_0, &fallback, stop_1, &late, stop_2],
            [START, &first, &fallback, &late, stop_2, stop_0, stop_1],
            [START, &first, &fallback, stop_1, stop_0, &late, stop_2],
        ] {
            let reply = accumulated(events.into_iter().chain([&*end])).unwrap().finish().unwrap();
            let read = Message::from_json(reply.json()).unwrap();
            assert_eq!((reply.model(), read.model(), read.id()), ("a longer name", "a longer name", "m1"));
            assert_eq!(
                reply.content_json(),
                r#"[{"type":"text","text":"a"},{"type":"fallback","to":{"model":"a longer name"}},{"type":"text","text":"b"}]"#
            );
            assert_eq!(read.content_json(), reply.content_json());
        }
        let twice =
            r#"{"type":"message_start","message":{"content":[{"x":1}],"id":"m","content":[],"new":1}}"#;
        let reply = accumulated([twice, &first, &stops[0]]).unwrap().finish().unwrap();
        assert_eq!(reply.json(), r#"{"id":"m","content":[{"type":"text","text":"a"}],"new":1}"#);
    }

    #[test]
    fn a_fallback_names_the_model_that_goes_on() {
        let fallback = start(0, r#"{"type":"fallback","from":{"model":"m"},"to":{"model":"other"}}"#);
        let reply = accumulated([START, &fallback, &stop(0), &end("end_turn")]).unwrap().finish().unwrap();
        assert_eq!(reply.model(), "other");
    }

    #[test]
    fn events_out_of_turn_are_errors_with_the_index() {
        let text = start(0, r#"{"type":"text","text":""}"#);
        let more = delta(0, r#"{"type":"text_delta","text":"x"}"#);
        for (events, word) in [
            (vec![START, START], "began a second time"),
            (vec![&*text, START], "began a second time"),
            (vec![&*more], "content_block_delta came before message_start"),
            (vec![&*stop(0)], "content_block_stop came before message_start"),
            (vec![STOP], "message_stop came before message_start"),
            (vec![START, &*start(1, "{}")], "block 1 began where block 0 is next"),
            (vec![START, &*text, &*text], "block 0 began where block 1 is next"),
            (
                vec![START, &*delta(3, r#"{"type":"text_delta","text":"x"}"#)],
                "text_delta for block 3, which did not begin",
            ),
            (vec![START, &*delta(3, r#"{"type":"future"}"#)], "future for block 3, which did not begin"),
            (vec![START, &*stop(0)], "content_block_stop for block 0, which did not begin"),
            (vec![START, &*text, &*stop(0), &*more], "text_delta for block 0, which is closed"),
            (vec![START, &*text, &*stop(0), &*stop(0)], "content_block_stop for block 0, which is closed"),
        ] {
            let error = accumulated(events.iter().copied()).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Decode);
            assert!(error.to_string().contains(word) && !error.is_retryable(), "{error}");
        }
        let early = [r#"{"type":"ping"}"#, r#"{"type":"future"}"#, START, r#"{"type":"ping"}"#];
        assert!(accumulated(early).unwrap().finish().is_ok());
    }

    #[test]
    fn a_block_stays_open_only_where_the_reply_may_be_cut_off() {
        let begun = start(0, r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#);
        for (reason, may_be_cut) in [
            ("max_tokens", true),
            ("model_context_window_exceeded", true),
            ("refusal", true),
            ("brand_new", true),
            ("tool_use", false),
            ("end_turn", false),
            ("pause_turn", false),
            ("stop_sequence", false),
            ("compaction", false),
        ] {
            let mut accumulator =
                accumulated([START, &begun, &input(r#"{"path":"a""#), &end(reason)]).unwrap();
            assert!(!accumulator.is_whole());
            match accumulator.finish() {
                Ok(reply) => {
                    assert!(may_be_cut, "{reason}");
                    assert_eq!(reply.broken_input(0), Some("it ends too early (line 1, column 11)"));
                }
                Err(error) => {
                    assert!(!may_be_cut && error.to_string().contains("block 0 was open"), "{error}")
                }
            }
        }
        assert!(accumulated([START]).unwrap().finish().is_ok());
        assert!(Accumulator::new(CAP).finish().is_err());
    }

    #[test]
    fn only_a_stop_reason_behind_all_blocks_makes_a_reply_whole() {
        let with_reason = START.replace(r#""stop_reason":null"#, r#""stop_reason":"end_turn""#);
        let (text, call) = (start(0, r#"{"type":"text","text":"a"}"#), start(1, r#"{"type":"tool_use"}"#));
        let no_reason = r#"{"type":"message_delta","delta":{"stop_reason":null}}"#;
        let (end, stop_0, stop_1) = (end("tool_use"), stop(0), stop(1));
        for (events, is_whole) in [
            (vec![&*with_reason, &text, &stop_0], false),
            (vec![START, &end, &text, &stop_0], false),
            (vec![START, &text, &stop_0, &end, &call, &stop_1], false),
            (vec![START, &text, &end], false),
            (vec![START, &text, &stop_0, no_reason], false),
            (vec![START, &text, &stop_0, &end, no_reason], false),
            (vec![START, &text, &stop_0, &end], true),
            (vec![START, &text, &end, &stop_0], true),
            (vec![START, &text, &stop_0, &call, &stop_1, &end, &end], true),
        ] {
            assert_eq!(accumulated(events.iter().copied()).unwrap().is_whole(), is_whole, "{events:?}");
        }
    }

    /// What is small on the wire and large in memory has its price, and so has what waits.
    #[test]
    fn everything_that_is_kept_counts_towards_the_cap() {
        let citation = delta(0, r#"{"type":"citations_delta","citation":{}}"#);
        let ends = end("end_turn");
        let (block, text) = (start(0, "{}"), start(0, r#"{"type":"text"}"#));
        type Flood<'a> = (&'a str, Vec<&'a str>, Box<dyn Fn(usize) -> String + 'a>);
        let floods: [Flood<'_>; 5] = [
            ("blocks", vec![START], Box::new(|at| start(at, "{}"))),
            ("citations", vec![START, &text], Box::new(|_| citation.clone())),
            ("ends", vec![START, &block], Box::new(|_| ends.clone())),
            ("pings before the start", vec![], Box::new(|_| r#"{"type":"ping"}"#.to_owned())),
            ("unknown events before the start", vec![], Box::new(|_| r#"{"type":"x"}"#.to_owned())),
        ];
        for (name, before, more) in floods {
            let mut accumulator = Accumulator::new(100_000);
            for data in before {
                accumulator.apply(&event(data)).unwrap();
            }
            let ended = (0..3000).find(|at| accumulator.apply(&event(&more(*at))).is_err());
            assert!(ended.is_some(), "{name} are taken without end");
        }
    }

    #[test]
    fn an_object_of_very_many_fields_is_refused_once_it_is_changed() {
        let fields: String = (0..=MAX_FIELDS).map(|at| format!(r#","f{at}":1"#)).collect();
        let text = start(0, &format!(r#"{{"type":"text","text":""{fields}}}"#));
        let more = delta(0, r#"{"type":"text_delta","text":"x"}"#);
        let error = accumulated([START, &text, &more]).err().unwrap();
        assert!(error.to_string().contains("more than 1000 fields"), "{error}");
        // Whole it is kept as it came.
        assert!(accumulated([START, &text, &stop(0), &end("end_turn")]).unwrap().finish().is_ok());
        let begun = format!(r#"{{"type":"message_start","message":{{"id":"m"{fields}}}}}"#);
        assert!(accumulated([&*begun]).is_err());
        let ends = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"{fields}}}}}"#);
        assert!(accumulated([START, &ends]).is_err());
    }

    #[test]
    fn the_cap_ends_a_reply_without_end() {
        let mut accumulator = Accumulator::new(10_000);
        accumulator.apply(&event(START)).unwrap();
        accumulator.apply(&event(&start(0, r#"{"type":"text","text":""}"#))).unwrap();
        let more = event(&delta(0, r#"{"type":"text_delta","text":"0123456789"}"#));
        let error = (0..2000).find_map(|_| accumulator.apply(&more).err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("longer than 10000 bytes"), "{error}");
        assert!(accumulator.snapshot().unwrap().text().len() < 10_020);
    }
}
