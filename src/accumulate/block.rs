//! A block of the reply, as its events come.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::object::{Object, Value};
use crate::error::Result;
use crate::messages::content::is_call;
use crate::messages::json::{self, Fields};
use crate::messages::json_check::JsonCheck;
use crate::messages::{Delta, Text, TextField, unescape};

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) kind: Box<str>,
    start: Box<RawValue>,
    /// The fields, once a delta changed one. Until then the block is what its start was.
    pub(super) fields: Option<Object>,
    /// The input of a call, as the deltas spell it, unless it's written where it belongs at once.
    pub(super) input: String,
    check: JsonCheck,
    /// Why that is no JSON.
    broken: Option<String>,
    pub(super) closed: bool,
}

impl Block {
    pub(super) fn new(kind: &str, start: &RawValue) -> Self {
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
    pub(super) fn taken_over_by(&self) -> Option<Box<RawValue>> {
        if &*self.kind != "fallback" {
            return None;
        }
        let to = Fields::parse(Fields::parse(self.start.get())?.get("to")?.get())?;
        to.get("model").filter(|model| json::string(model).is_some()).map(ToOwned::to_owned)
    }

    pub(super) fn fields(&mut self) -> Result<&mut Object> {
        match &mut self.fields {
            Some(fields) => Ok(fields),
            none => Ok(none.insert(Object::of(self.start.get())?)),
        }
    }

    /// Adds a delta, whatever the kind of the block; an input to the one that is given.
    pub(super) fn add(&mut self, delta: &Delta, input: Option<&mut String>) -> Result<()> {
        let (field, text) = match delta {
            Delta::InputJson(text) => (TextField::Input, text),
            Delta::Text(text) => (TextField::Text, text),
            Delta::Thinking { thinking, .. } => (TextField::Thinking, thinking),
            _ => return self.add_other(delta),
        };
        self.add_text(field, Text::Plain(Cow::Borrowed(text)), input).map(drop)
    }

    fn add_other(&mut self, delta: &Delta) -> Result<()> {
        match delta {
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
            Delta::InputJson(_) | Delta::Text(_) | Delta::Thinking { .. } | Delta::Other { .. } => {}
        }
        Ok(())
    }

    /// Adds a text and gives its length; `None` if it is for the parser. An input goes to the one
    /// that is given.
    pub(super) fn add_text(
        &mut self,
        field: TextField,
        text: Text<'_>,
        input: Option<&mut String>,
    ) -> Result<Option<usize>> {
        let name = match field {
            TextField::Input => return Ok(self.add_input(text, input)),
            TextField::Text => "text",
            TextField::Thinking => "thinking",
        };
        let Some(text) = text.read() else { return Ok(None) };
        self.fields()?.append(name, &text);
        Ok(Some(text.len()))
    }

    fn add_input(&mut self, text: Text<'_>, input: Option<&mut String>) -> Option<usize> {
        let check = &mut self.check;
        let input = input.unwrap_or(&mut self.input);
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

    /// True if the input that came is JSON.
    pub(super) fn has_value(&self) -> bool {
        self.check.is_value()
    }

    pub(super) fn close(&mut self) -> Result<()> {
        self.closed = true;
        self.settle_input()
    }

    /// Puts the input in its place. What is no JSON is kept as a string, so that no handler can
    /// take it for an input.
    fn settle_input(&mut self) -> Result<()> {
        let input = std::mem::take(&mut self.input);
        if self.has_value() {
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

    /// Writes the block, which is closed, and says why its input is no JSON.
    pub(super) fn write(&self, json: &mut String) -> Option<String> {
        match &self.fields {
            Some(fields) => fields.write(json),
            None => json.push_str(self.start.get()),
        }
        self.broken.clone()
    }
}
