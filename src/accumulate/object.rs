//! Objects whose fields change: a message, or a block.

use std::io;

use serde_json::value::RawValue;

use super::no_reply;
use crate::error::Result;
use crate::messages::MessageDelta;
use crate::messages::json::{self, Fields};

/// The fields of an object, in order.
#[derive(Clone, Debug)]
pub(super) struct Object {
    fields: Vec<(Box<str>, Value)>,
    /// The place of the field that was asked for last.
    last: usize,
}

/// A value that deltas may add to.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Json(Box<RawValue>),
    /// An input, checked to be JSON.
    Input(String),
    List(Vec<Box<RawValue>>),
    Text(String),
}

impl Object {
    /// The fields of an object. Every change looks for its field, so their number has a limit, far
    /// above what the API sends.
    pub(super) fn of(json: &str) -> Result<Self> {
        let fields = Fields::parse(json).unwrap_or_default();
        let own = |(name, value): (&str, &RawValue)| (name.into(), Value::Json(value.to_owned()));
        let fields: Vec<_> = fields.iter().take(MAX_FIELDS + 1).map(own).collect();
        let object = Self { fields, last: 0 };
        object.check()?;
        Ok(object)
    }

    /// The fields of a message, `content` once among them.
    pub(super) fn message(json: &str) -> Result<Self> {
        let mut message = Self::of(json)?;
        message.field_or("content", || Value::List(Vec::new()));
        let content = message.place("content");
        let mut at = 0..;
        message.fields.retain(|(name, _)| at.next() == Some(content) || &**name != "content");
        message.last = 0;
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

    pub(super) fn set(&mut self, name: &str, value: Value) {
        *self.field_or(name, || Value::List(Vec::new())) = value;
    }

    pub(super) fn append(&mut self, name: &str, more: &str) {
        let value = self.field_or(name, || Value::Text(String::new()));
        if let Value::Json(start) = value {
            *value = Value::Text(json::string(start).unwrap_or_default().into_owned());
        }
        if let Value::Text(text) = value {
            text.push_str(more);
        }
    }

    pub(super) fn push(&mut self, name: &str, item: &RawValue) {
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
    pub(super) fn text(&self, name: &str) -> Option<String> {
        match &self.fields.iter().rfind(|(field, _)| &**field == name)?.1 {
            Value::Json(value) => json::string(value).map(Into::into),
            Value::Text(text) => Some(text.clone()),
            Value::Input(_) | Value::List(_) => None,
        }
    }

    /// Takes over what the end of the reply says: what is null there says nothing, but for the
    /// stop fields, and counters are those of the whole reply. Gives the size of all counters.
    pub(super) fn end(&mut self, event: &MessageDelta) -> Result<usize> {
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

    pub(super) fn write(&self, json: &mut String) {
        json.push('{');
        write_fields(json, &self.fields);
        json.push('}');
    }

    /// Where a field is. Of equal names the last counts.
    fn place(&self, name: &str) -> usize {
        self.fields.iter().rposition(|(field, _)| &**field == name).unwrap_or(self.fields.len())
    }

    /// What the JSON begins with, up to the value of a field.
    pub(super) fn up_to(&self, name: &str) -> String {
        let mut json = String::from("{");
        write_fields(&mut json, &self.fields[..self.place(name)]);
        begin_field(&mut json, name);
        json
    }

    /// Writes what follows on the value of a field.
    pub(super) fn write_after(&self, name: &str, json: &mut String) {
        write_fields(json, self.fields.iter().skip(self.place(name) + 1));
        json.push('}');
    }

    /// The JSON of a message but for its content.
    pub(super) fn without_content(&self) -> String {
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

/// Counters inside of objects are merged this deep; the API has one level.
const USAGE_DEPTH: usize = 4;

pub(super) const MAX_FIELDS: usize = 1000;
