//! The conversation as the API sees it: messages of one role in a row are one turn.

use serde_json::Value;

use super::{Object, list, present, text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Assistant,
    System,
    User,
}

pub(super) struct Turn<'a> {
    pub(super) role: Role,
    /// The index of the first message.
    pub(super) message: usize,
    pub(super) blocks: Vec<Block<'a>>,
}

/// A block and where it stands. A content that is a string counts as one text block.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) message: usize,
    pub(super) index: usize,
    pub(super) value: &'a Value,
}

impl<'a> Block<'a> {
    pub(super) fn path(&self) -> String {
        format!("messages.{}.content.{}", self.message, self.index)
    }

    pub(super) fn kind(&self) -> &'a str {
        if self.value.is_string() { "text" } else { self.field("type") }
    }

    /// A text field, empty where there is none.
    pub(super) fn field(&self, name: &str) -> &'a str {
        self.value.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The text of a text block.
    pub(super) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_else(|| self.field("text"))
    }

    pub(super) fn is_server_call(&self) -> bool {
        matches!(self.kind(), "server_tool_use" | "mcp_tool_use")
    }

    pub(super) fn is_server_result(&self) -> bool {
        self.kind() != "tool_result" && self.kind().ends_with("_tool_result")
    }

    /// Whether code that runs on the server made this call.
    pub(super) fn is_programmatic(&self) -> bool {
        let caller = self.value.get("caller").and_then(|caller| caller.get("type")).and_then(Value::as_str);
        caller.is_some_and(|caller| caller != "direct")
    }
}

impl<'a> Turn<'a> {
    pub(super) fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &Block<'a>> {
        self.blocks.iter().filter(move |block| block.kind() == kind)
    }

    /// Server calls of this turn that have no result in it.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = &Block<'a>> {
        self.blocks.iter().filter(|block| block.is_server_call()).filter(|call| {
            !self
                .blocks
                .iter()
                .any(|block| block.is_server_result() && block.field("tool_use_id") == call.field("id"))
        })
    }
}

/// Whether a message only changes the effort, and so has no place in the order of turns.
pub(super) fn is_effort_only(message: &Object) -> bool {
    let empty = match message.get("content") {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(blocks)) => blocks.is_empty(),
        Some(_) => false,
    };
    let effort = present(message, "output_config").and_then(|config| config.get("effort"));
    text(message, "role") == Some("system") && empty && effort.is_some()
}

pub(super) fn joined(messages: &[Value]) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let Some(message) = message.as_object().filter(|message| !is_effort_only(message)) else { continue };
        let role = match text(message, "role") {
            Some("assistant") => Role::Assistant,
            Some("system") => Role::System,
            _ => Role::User,
        };
        let content = match message.get("content") {
            Some(value @ Value::String(_)) => std::slice::from_ref(value),
            _ => list(message, "content"),
        };
        let blocks = content.iter().enumerate().map(|(at, value)| Block { message: index, index: at, value });
        match turns.last_mut() {
            Some(turn) if turn.role == role => turn.blocks.extend(blocks),
            _ => turns.push(Turn { role, message: index, blocks: blocks.collect() }),
        }
    }
    turns
}
