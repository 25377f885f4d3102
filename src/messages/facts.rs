//! What later steps need to know of a message, found once when it is frozen.

use serde_json::value::RawValue;

use super::image;
use super::json::{self, Fields};
use super::open::open_enum;

open_enum! {
    /// Who speaks in a message.
    Role {
        /// The model.
        Assistant = "assistant",
        /// An instruction in the middle of a conversation.
        System = "system",
        /// The caller; results of tools are the caller's too.
        User = "user",
    }
}

/// The facts of one message.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) role: Role,
    /// The client calls, in order.
    pub(crate) calls: Box<[Call]>,
    /// The ids that `tool_result` blocks answer, in order.
    pub(crate) results: Box<[Box<str>]>,
    /// Calls that the API runs itself.
    pub(crate) server_calls: Box<[ServerCall]>,
    /// The calls of earlier messages that result blocks of the API answer.
    pub(crate) server_results: Box<[Box<str>]>,
    /// True if there is anything but `tool_result` blocks.
    pub(crate) has_other: bool,
    /// True if there is a `tool_result` behind something else.
    pub(crate) results_late: bool,
    pub(crate) cache_marks: u8,
    /// True if there is a compaction block: the API reads nothing before it.
    pub(crate) compacts: bool,
    /// True for a system message that sets an effort and says nothing: it may stand anywhere.
    pub(crate) effort_only: bool,
    /// What is wrong with the message taken by itself.
    pub(crate) flaw: Option<Box<str>>,
}

/// A client call: a block whose `type` is `tool_use`, whatever else it holds.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// `None` if the block has no usable id.
    pub(crate) id: Option<Box<str>>,
    /// Empty if the block has no usable name.
    pub(crate) name: Box<str>,
    /// The JSON of `toolset_name`, whatever it is: no plain tool answers such a call.
    pub(crate) toolset: Option<Box<str>>,
    /// True if code that the API runs made the call.
    pub(crate) programmatic: bool,
}

/// A call of a tool that the API runs itself.
#[derive(Clone, Debug)]
pub(crate) struct ServerCall {
    pub(crate) id: Box<str>,
    /// True if its result stands behind it in the same message, or a compaction block does.
    pub(crate) finished: bool,
}

impl Facts {
    /// Finds the facts of a message with this role and `content`. `config` is true if it has an
    /// `output_config`.
    pub(crate) fn find(role: Role, content: &RawValue, config: bool) -> Self {
        let mut finder =
            Finder { user: role == Role::User, assistant: role == Role::Assistant, ..Finder::default() };
        if config && role == Role::System && matches!(content.get(), "null" | "\"\"" | "[]") {
            finder.effort_only = true;
        } else if let Some(text) = json::string(content) {
            finder.other();
            if text.trim().is_empty() {
                finder.flaw("the content is blank text");
            }
        } else if let Some(blocks) = json::items(content.get()) {
            if blocks.is_empty() {
                finder.flaw("the content is an empty list");
            }
            for (index, block) in blocks.into_iter().enumerate() {
                finder.block(index, block);
            }
        } else {
            finder.other();
            finder.flaw("the content is neither a string nor a list of blocks");
        }
        finder.finish(role)
    }

    /// Reads one block of an assistant message as a client call, from its JSON alone.
    pub(crate) fn call(fields: &Fields<'_>) -> Option<Call> {
        if fields.str("type")? != "tool_use" {
            return None;
        }
        let usable =
            |name| fields.str(name).filter(|text| !text.trim().is_empty()).map(|text| Box::from(&*text));
        let caller = fields.get("caller").and_then(|caller| Fields::parse(caller.get()));
        Some(Call {
            id: usable("id"),
            name: usable("name").unwrap_or_default(),
            toolset: fields
                .get("toolset_name")
                .filter(|name| !json::is_null(name))
                .map(|name| name.get().into()),
            programmatic: caller.and_then(|caller| caller.str("type")).is_some_and(|kind| kind != "direct"),
        })
    }
}

#[derive(Default)]
struct Finder {
    user: bool,
    assistant: bool,
    calls: Vec<Call>,
    results: Vec<Box<str>>,
    server_calls: Vec<ServerCall>,
    server_results: Vec<Box<str>>,
    has_other: bool,
    results_late: bool,
    cache_marks: u8,
    compacts: bool,
    effort_only: bool,
    flaw: Option<Box<str>>,
}

impl Finder {
    fn other(&mut self) {
        self.has_other = true;
    }

    /// Keeps the first flaw.
    fn flaw(&mut self, text: impl Into<Box<str>>) {
        self.flaw.get_or_insert_with(|| text.into());
    }

    fn block(&mut self, index: usize, block: &RawValue) {
        let Some(fields) = Fields::parse(block.get()) else {
            self.other();
            return self.flaw(format!("content[{index}] is not an object"));
        };
        if fields.get("cache_control").is_some_and(|mark| !json::is_null(mark)) {
            self.cache_marks = self.cache_marks.saturating_add(1);
        }
        let kind = fields.str("type").unwrap_or_default();
        if kind == "tool_result" {
            return self.result(index, &fields);
        }
        self.other();
        if let Some(call) = Facts::call(&fields) {
            return self.call(index, call, &fields);
        }
        match &*kind {
            "" => self.flaw(format!("content[{index}] has no type")),
            "text" => match fields.str("text") {
                Some(text) if text.trim().is_empty() => {
                    self.flaw(format!("content[{index}] is a blank text block"))
                }
                Some(_) => {}
                None => self.flaw(format!("content[{index}] is a text block without text")),
            },
            "image" => {
                if let Some(flaw) = image_flaw(&fields) {
                    self.flaw(format!("content[{index}]: {flaw}"));
                }
            }
            "compaction" => {
                self.compacts = true;
                self.server_calls.iter_mut().for_each(|call| call.finished = true);
            }
            "server_tool_use" | "mcp_tool_use" => {
                if let Some(id) = fields.str("id") {
                    self.server_calls.push(ServerCall { id: (&*id).into(), finished: false });
                }
            }
            _ if kind.ends_with("_tool_result") => {
                if let Some(id) = fields.str("tool_use_id") {
                    match self.server_calls.iter_mut().find(|call| *call.id == *id) {
                        Some(call) => call.finished = true,
                        None => self.server_results.push((&*id).into()),
                    }
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, index: usize, call: Call, fields: &Fields<'_>) {
        if !self.assistant {
            self.flaw(format!(
                "content[{index}] is a tool_use block, which only an assistant message may hold"
            ));
        } else if !fields.get("input").is_some_and(json::is_object) {
            self.flaw(format!("content[{index}]: the input of a tool_use block must be a JSON object"));
        } else if call.name.is_empty() || call.id.is_none() {
            self.flaw(format!("content[{index}]: a tool_use block needs an id and a name"));
        }
        self.calls.push(call);
    }

    fn result(&mut self, index: usize, fields: &Fields<'_>) {
        if !self.user {
            self.flaw(format!("content[{index}] is a tool_result block, which only a user message may hold"));
        }
        self.results_late |= self.has_other;
        match fields.str("tool_use_id") {
            Some(id) if !id.is_empty() => self.results.push((&*id).into()),
            _ => self.flaw(format!("content[{index}]: a tool_result block needs a tool_use_id")),
        }
        let Some(content) = fields.get("content") else { return };
        let is_error = fields.bool("is_error") == Some(true);
        let blocks = json::items(content.get()).unwrap_or_default();
        let mut searches = 0;
        for (at, block) in blocks.iter().enumerate() {
            let place = format!("content[{index}].content[{at}]");
            let Some(block) = Fields::parse(block.get()) else {
                return self.flaw(format!("{place} is not an object"));
            };
            let kind = block.str("type").unwrap_or_default();
            if is_error && kind != "text" {
                self.flaw(format!("{place}: an error result may hold text only"));
            }
            match &*kind {
                "" => self.flaw(format!("{place} has no type")),
                "text" if block.str("text").is_none_or(|text| text.trim().is_empty()) => {
                    self.flaw(format!("{place} is a blank text block"));
                }
                "image" => {
                    if let Some(flaw) = image_flaw(&block) {
                        self.flaw(format!("{place}: {flaw}"));
                    }
                }
                "search_result" => searches += 1,
                "redacted_thinking" | "server_tool_use" | "thinking" | "tool_result" | "tool_use" => {
                    self.flaw(format!("{place}: a result may not hold a {kind} block"));
                }
                _ => {}
            }
        }
        if searches > 0 && searches < blocks.len() {
            self.flaw(format!("content[{index}]: search results may not stand beside other blocks"));
        }
    }

    fn finish(self, role: Role) -> Facts {
        Facts {
            role,
            calls: self.calls.into(),
            results: self.results.into(),
            server_calls: self.server_calls.into(),
            server_results: self.server_results.into(),
            has_other: self.has_other,
            results_late: self.results_late,
            cache_marks: self.cache_marks,
            compacts: self.compacts,
            effort_only: self.effort_only,
            flaw: self.flaw,
        }
    }
}

/// What is wrong with an image block.
fn image_flaw(block: &Fields<'_>) -> Option<String> {
    let Some(source) = block.get("source").and_then(|source| Fields::parse(source.get())) else {
        return Some("an image has no source".to_owned());
    };
    if source.str("type").is_none_or(|kind| kind != "base64") {
        return None;
    }
    image::flaw(&source.str("media_type").unwrap_or_default(), &source.str("data").unwrap_or_default())
}
