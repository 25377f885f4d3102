//! The results of servers as the API takes them.

use serde_json::value::RawValue;

use super::clean::{clean, clean_json};
use super::content::Part;
use crate::error::Result;
use crate::messages::content::ContentBlock;
use crate::messages::json::{self, Fields};
use crate::messages::param::MessageParam;
use crate::run_loop::{MAX_ERROR_BYTES, MAX_RESULT_BYTES, shaped};
use crate::tool::{ToolError, ToolOutput};

/// How a call of a server ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// The server answered: the JSON of its `CallToolResult`.
    Result(&'a str),
    /// There is no answer, for a reason that the model is told: the server is down, the time is
    /// up, the call was refused, the protocol was broken.
    Failed(&'a str),
}

/// What becomes of structured content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structured {
    /// It is used where there is no other content.
    #[default]
    Auto,
    /// It is used in place of the other content. An error keeps its text.
    Prefer,
    /// It follows the other content.
    Append,
    /// It is not used.
    Ignore,
}

/// How results become blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResultOptions {
    /// What becomes of structured content.
    pub structured: Structured,
    /// Whether a PDF becomes a document; if not, a placeholder.
    pub pdf: bool,
    /// How much base64 an image or a PDF may have. What is larger becomes a placeholder, for one
    /// that the API refuses would be refused in each later request too.
    pub max_media_bytes: usize,
    /// How much text a result may have; the middle of a longer one is left out, with a note.
    pub max_text_bytes: usize,
    /// The same for the text of an error.
    pub max_error_bytes: usize,
}

impl Default for ResultOptions {
    fn default() -> Self {
        Self {
            structured: Structured::Auto,
            pdf: false,
            max_media_bytes: MAX_MEDIA_BYTES,
            max_text_bytes: MAX_RESULT_BYTES,
            max_error_bytes: MAX_ERROR_BYTES,
        }
    }
}

impl ResultOptions {
    /// Structured content where there is no other, no PDFs, and the limits of the loop.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what becomes of structured content.
    #[must_use]
    pub fn structured(mut self, structured: Structured) -> Self {
        self.structured = structured;
        self
    }

    /// Sets whether a PDF becomes a document.
    #[must_use]
    pub fn pdf(mut self, pdf: bool) -> Self {
        self.pdf = pdf;
        self
    }

    /// Sets how much base64 an image or a PDF may have.
    #[must_use]
    pub fn max_media_bytes(mut self, bytes: usize) -> Self {
        self.max_media_bytes = bytes;
        self
    }

    /// Sets how much text a result may have.
    #[must_use]
    pub fn max_text_bytes(mut self, bytes: usize) -> Self {
        self.max_text_bytes = bytes;
        self
    }

    /// Sets how much text an error may have.
    #[must_use]
    pub fn max_error_bytes(mut self, bytes: usize) -> Self {
        self.max_error_bytes = bytes;
        self
    }
}

/// The `tool_result` block that answers a call.
///
/// The content keeps its order. What the API takes is passed on as text, images and, if asked for,
/// documents; for all else stands a short text that says what there was. An error holds text
/// alone. Every text is [cleaned](super::clean()). A result without output says so, for the API
/// refuses blank text.
///
/// ```
/// use agentloop::mcp::{self, Outcome, ResultOptions};
///
/// let answer = r#"{"content": [
///     {"type": "text", "text": "Found:"},
///     {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "mimeType": "text/plain"},
///     {"type": "audio", "data": "AAAA", "mimeType": "audio/ogg"}
/// ]}"#;
/// let block = mcp::tool_result("toolu_1", Outcome::Result(answer), ResultOptions::new());
/// assert_eq!(
///     serde_json::to_value(&block)?["content"],
///     serde_json::json!([
///         {"type": "text", "text": "Found:"},
///         {"type": "text", "text": "[resource] a.txt <file:///a.txt> (text/plain)"},
///         {"type": "text", "text": "[audio: audio/ogg, 3 bytes]"},
///     ])
/// );
///
/// let block = mcp::tool_result("toolu_2", Outcome::Failed("the server `files` is down"), ResultOptions::new());
/// assert_eq!(
///     serde_json::to_string(&block)?,
///     r#"{"type":"tool_result","tool_use_id":"toolu_2","content":"the server `files` is down","is_error":true}"#
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn tool_result(id: &str, outcome: Outcome<'_>, options: ResultOptions) -> ContentBlock {
    block(id, None, output(outcome, options), options)
}

/// The same as what a [handler](crate::Tool::handler) returns, for a tool of one's own that calls
/// a server.
///
/// # Errors
/// The result says that it is one, there is none, or it is no finished result of a tool.
pub fn output(outcome: Outcome<'_>, options: ResultOptions) -> Result<ToolOutput, ToolError> {
    let failed = |text: &str| Err(ToolError::new(clean(text, usize::MAX)));
    let answer = match outcome {
        Outcome::Result(answer) => answer,
        Outcome::Failed(text) => return failed(text),
    };
    let Some(fields) = Fields::parse(answer) else {
        return failed("the server answered with something that is not a tool result");
    };
    if let Some(kind) = fields.str("resultType").filter(|kind| kind != "complete") {
        return failed(&format!(
            "the server answered with `{}`, which is not a finished result",
            json::shown(&kind)
        ));
    }
    if !["content", "structuredContent", "isError"].iter().any(|name| fields.get(name).is_some()) {
        return failed("the server answered with something that is not a tool result");
    }
    let is_error = fields.bool("isError") == Some(true);
    let blocks = parts(&fields, is_error, options).into_iter().map(Part::block).collect();
    match is_error {
        true => Err(ToolError::blocks(blocks)),
        false => Ok(ToolOutput::blocks(blocks)),
    }
}

/// The user message that answers a reply: results first, in their order, whatever follows behind
/// them. The API takes no other order.
///
/// ```
/// use agentloop::ContentBlock;
/// use agentloop::mcp;
///
/// let blocks = vec![ContentBlock::text("And now?"), ContentBlock::tool_result("toolu_1", "done")];
/// let message = mcp::next_turn(blocks)?;
/// assert_eq!(message.content()[0].kind(), "tool_result");
/// # Ok::<(), agentloop::Error>(())
/// ```
///
/// # Errors
/// There is no block, or one that the API refuses.
pub fn next_turn(blocks: impl IntoIterator<Item = ContentBlock>) -> Result<MessageParam> {
    let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult(_));
    let (mut turn, rest): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_result);
    turn.extend(rest);
    MessageParam::user(turn)
}

/// An error result with this text.
pub(super) fn error_block(
    id: &str,
    text: &str,
    toolset: Option<&RawValue>,
    options: ResultOptions,
) -> ContentBlock {
    block(id, toolset, Err(ToolError::new(clean(text, usize::MAX))), options)
}

fn block(
    id: &str,
    toolset: Option<&RawValue>,
    result: Result<ToolOutput, ToolError>,
    options: ResultOptions,
) -> ContentBlock {
    let toolset = toolset.map(RawValue::get);
    ContentBlock::from_raw(&shaped(id, toolset, result, options.max_text_bytes, options.max_error_bytes))
}

fn parts(fields: &Fields<'_>, is_error: bool, options: ResultOptions) -> Vec<Part> {
    let content = fields.get("content").filter(|content| !json::is_null(content));
    let mut parts: Vec<Part> = match content.map(|content| json::items(content.get())) {
        None => Vec::new(),
        Some(Some(items)) => items.into_iter().map(|item| Part::read(item, options)).collect(),
        Some(None) => vec![Part::Text("[content: not shown]".to_owned())],
    };
    parts.retain(|part| !part.is_blank());
    if is_error {
        parts = parts.into_iter().map(Part::without_media).collect();
    }
    let structured = fields.get("structuredContent").filter(|content| !json::is_null(content));
    let Some(structured) = structured else { return parts };
    let text = || Part::Text(clean_json(structured));
    match options.structured {
        Structured::Ignore => {}
        Structured::Append => parts.push(text()),
        Structured::Prefer if !is_error => parts = vec![text()],
        Structured::Auto | Structured::Prefer if parts.is_empty() => parts.push(text()),
        Structured::Auto | Structured::Prefer => {}
    }
    parts
}

/// The API takes 10 MB of base64.
const MAX_MEDIA_BYTES: usize = 10_000_000;
