//! The calls of a reply, sorted to the servers that they are for.

use std::collections::HashSet;
use std::fmt;

use serde_json::value::RawValue;

use super::result::{ResultOptions, error_block};
use super::set::ToolSet;
use crate::messages::content::ContentBlock;
use crate::messages::json::{self, Fields};
use crate::messages::{Message, MessageParam, MessageRef};

/// A call for a server.
#[derive(Clone)]
#[non_exhaustive]
pub struct Call {
    /// The id of the `tool_use` block, which the result has to name.
    pub id: String,
    /// The server.
    pub server: String,
    /// The tool's name at the server.
    pub tool: String,
    /// The name that the model used.
    pub name: String,
    /// The arguments, an object, as the model wrote it.
    pub arguments: Box<RawValue>,
}

/// Where calls can be: a reply, a message, a list of blocks, or the JSON of any of them.
pub trait CallSource: private::Sealed {
    #[doc(hidden)]
    fn blocks(&self) -> Vec<Box<RawValue>>;

    #[doc(hidden)]
    fn broken_input(&self, _block: usize) -> Option<String> {
        None
    }
}

/// Sorts the calls of a reply: those for servers, and the results of those for nobody.
///
/// Each `tool_use` whose name is in the set is a call. One whose name is not, or whose input is
/// not an object, is none: nothing is to be sent to a server, and a result with `is_error` answers
/// it, with a text that the model can use. Names that the set leaves to
/// [native tools](super::ToolSetBuilder::reserve) are left alone, and so is every other block. A
/// block without a usable id, or with that of an earlier one, can't be answered and is ignored.
///
/// ```
/// use agentloop::mcp::{self, ToolSet};
///
/// let tools = r#"[{"name": "read.file", "inputSchema": {"type": "object"}}]"#;
/// let (set, _) = ToolSet::builder().server("files", tools).build();
/// let content = r#"[
///     {"type": "text", "text": "I look."},
///     {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a"}},
///     {"type": "tool_use", "id": "toolu_2", "name": "read.file", "input": {}}
/// ]"#;
///
/// let (calls, rejected) = mcp::calls(content, &set);
///
/// assert_eq!((&*calls[0].server, &*calls[0].tool, calls[0].arguments.get()), ("files", "read.file", r#"{"path": "a"}"#));
/// assert_eq!(
///     serde_json::to_string(&rejected[0])?,
///     r#"{"type":"tool_result","tool_use_id":"toolu_2","content":"there is no tool named `read.file`; the tools are: read_file","is_error":true}"#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn calls<S: CallSource + ?Sized>(source: &S, set: &ToolSet) -> (Vec<Call>, Vec<ContentBlock>) {
    let (mut calls, mut rejected) = (Vec::new(), Vec::new());
    let mut ids = HashSet::new();
    for (at, block) in source.blocks().iter().enumerate() {
        let fields = Fields::parse(block.get()).unwrap_or_default();
        if fields.str("type").is_none_or(|kind| kind != "tool_use") {
            continue;
        }
        let Some(id) = fields.str("id").filter(|id| !id.trim().is_empty() && ids.insert(id.to_string()))
        else {
            continue;
        };
        let name = fields.str("name").unwrap_or_default();
        let toolset = fields.get("toolset_name").filter(|name| !json::is_null(name));
        if set.is_native(&name) && toolset.is_none() {
            continue;
        }
        let input = fields.get("input").filter(|input| json::is_object(input));
        let refusal = match (set.get(&name).filter(|_| toolset.is_none()), input) {
            (Some(tool), Some(input)) => {
                calls.push(Call {
                    id: id.into(),
                    server: tool.server().to_owned(),
                    tool: tool.mcp_name().to_owned(),
                    name: name.into(),
                    arguments: input.to_owned(),
                });
                continue;
            }
            (None, _) => unknown(&name, set),
            (Some(_), None) => match source.broken_input(at) {
                Some(place) => format!("the tool input is not valid JSON: {place}; the tool did not run"),
                None => NO_OBJECT.to_owned(),
            },
        };
        rejected.push(error_block(&id, &refusal, toolset, ResultOptions::new()));
    }
    (calls, rejected)
}

fn unknown(name: &str, set: &ToolSet) -> String {
    let known: Vec<_> = set.iter().take(LISTED).map(|tool| tool.name()).collect();
    let known = match known.is_empty() {
        true => "there are none".to_owned(),
        false => format!("the tools are: {}", known.join(", ")),
    };
    format!("there is no tool named `{}`; {known}", json::shown(name))
}

/// The blocks of JSON that is a list of them, or an object with a `content`.
fn blocks_of(text: &str) -> Vec<Box<RawValue>> {
    let fields = Fields::parse(text).unwrap_or_default();
    let list = fields.get("content").map_or(text, RawValue::get);
    json::items(list).unwrap_or_default().into_iter().map(ToOwned::to_owned).collect()
}

mod private {
    pub trait Sealed {}
}

macro_rules! sources {
    ($($type:ty: |$source:ident| $blocks:expr;)*) => {$(
        impl private::Sealed for $type {}

        impl CallSource for $type {
            fn blocks(&self) -> Vec<Box<RawValue>> {
                let $source = self;
                $blocks
            }
        }
    )*};
}

sources! {
    MessageParam: |message| blocks_of(message.json());
    MessageRef<'_>: |message| blocks_of(message.json());
    [ContentBlock]: |blocks| blocks.iter().map(json::to_raw).collect();
    Vec<ContentBlock>: |blocks| blocks.as_slice().blocks();
    RawValue: |json| blocks_of(json.get());
    Box<RawValue>: |json| blocks_of(json.get());
    String: |json| blocks_of(json);
    str: |json| blocks_of(json);
}

impl private::Sealed for Message {}

impl CallSource for Message {
    fn blocks(&self) -> Vec<Box<RawValue>> {
        blocks_of(self.content_json())
    }

    fn broken_input(&self, block: usize) -> Option<String> {
        Self::broken_input(self, block).map(ToOwned::to_owned)
    }
}

/// Names and size: the arguments are somebody's words.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("id", &self.id)
            .field("server", &self.server)
            .field("tool", &self.tool)
            .field("bytes", &self.arguments.get().len())
            .finish_non_exhaustive()
    }
}

const NO_OBJECT: &str = "the tool input must be a JSON object; the tool did not run";

/// At most this many names are listed to a model that called another.
const LISTED: usize = 50;
