//! The shape of a result on the wire: what the API takes, whatever a tool gave.

use serde_json::value::RawValue;

use super::batch::Call;
use super::rules::Limits;
use crate::messages::ContentBlock;
use crate::messages::facts::{Facts, Role};
use crate::messages::json;
use crate::tool::Content;
use crate::tool::{ToolError, ToolOutput};

/// What a success without output reads like.
const NO_OUTPUT: &str = "(no output)";
/// What an error without text reads like.
const NO_TEXT: &str = "the tool failed without saying why";

/// The `tool_result` block that answers a call.
pub(super) fn shape(call: &Call, result: Result<ToolOutput, ToolError>, limits: Limits) -> Box<RawValue> {
    match result {
        Ok(output) => success(call, output, limits),
        Err(error) => failure(call, error.content, limits),
    }
}

/// The `tool_result` block that answers a call of which only the id is known, and the JSON of its
/// `toolset_name`.
#[cfg(feature = "mcp")]
pub(crate) fn shaped(
    id: &str,
    toolset: Option<&str>,
    result: Result<ToolOutput, ToolError>,
    max_result_bytes: usize,
    max_error_bytes: usize,
) -> Box<RawValue> {
    let call = Call {
        id: id.into(),
        name: "".into(),
        input: RawValue::NULL.to_owned(),
        caller: None,
        toolset: toolset.map(Into::into),
    };
    shape(&call, result, Limits { result: max_result_bytes, error: max_error_bytes })
}

/// An error result with this text.
pub(super) fn refusal(call: &Call, text: &str, limits: Limits) -> Box<RawValue> {
    failure(call, Content::Text(text.to_owned()), limits)
}

fn success(call: &Call, output: ToolOutput, limits: Limits) -> Box<RawValue> {
    let content = match output.content {
        Content::Text(text) if text.trim().is_empty() => json::to_raw(NO_OUTPUT),
        Content::Text(text) => json::to_raw(&cut(text, limits.result)),
        Content::Blocks(blocks) => {
            let mut left = limits.result;
            let blocks: Vec<_> = blocks
                .into_iter()
                .filter(|block| !is_blank(block))
                .map(|block| shorten(block, &mut left))
                .collect();
            match blocks.is_empty() {
                true => json::to_raw(NO_OUTPUT),
                false => json::to_raw(&blocks),
            }
        }
    };
    let result = block(call, &content, false);
    let message = json::to_raw(&[&result]);
    match Facts::find(Role::User, &message, false).flaw {
        Some(flaw) => {
            let text = format!("the tool ran, but its result can't be sent: {flaw}");
            refusal(call, &text, limits)
        }
        None => result,
    }
}

/// An error result holds text alone (the API's rule), and never none.
fn failure(call: &Call, content: Content, limits: Limits) -> Box<RawValue> {
    let text = match content {
        Content::Text(text) => text,
        Content::Blocks(blocks) => {
            let lines: Vec<_> = blocks
                .iter()
                .filter(|block| !is_blank(block))
                .map(|block| match block.as_text() {
                    Some(text) => text.to_owned(),
                    None => format!("[{} left out: an error result holds text only]", block.kind()),
                })
                .collect();
            lines.join("\n")
        }
    };
    let text = if text.trim().is_empty() { NO_TEXT.to_owned() } else { cut(text, limits.error) };
    block(call, &json::to_raw(&text), true)
}

fn block(call: &Call, content: &RawValue, is_error: bool) -> Box<RawValue> {
    let mut block =
        json::with_field(r#"{"type":"tool_result"}"#, "tool_use_id", json::to_raw(&*call.id).get());
    if let Some(toolset) = &call.toolset {
        block = json::with_field(block.get(), "toolset_name", toolset);
    }
    block = json::with_field(block.get(), "content", content.get());
    match is_error {
        true => json::with_field(block.get(), "is_error", "true"),
        false => block,
    }
}

fn is_blank(block: &ContentBlock) -> bool {
    block.as_text().is_some_and(|text| text.trim().is_empty())
}

/// A block of a result: text takes from the budget, and loses citations, which the API takes in
/// an assistant's text alone.
fn shorten(block: ContentBlock, left: &mut usize) -> ContentBlock {
    match block {
        ContentBlock::Text(mut text) => {
            let bytes = text.text.len();
            text.text = cut(text.text, *left);
            *left = left.saturating_sub(bytes);
            text.extra.remove("citations");
            ContentBlock::Text(text)
        }
        other => other,
    }
}

/// A text of at most `limit` bytes and a note: where it is longer, its beginning and its end,
/// cut between characters, with the full size between them.
pub(super) fn cut(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let head = json::floor(&text, limit.div_ceil(2));
    let tail = text.len() - (limit / 2).min(text.len());
    let tail = (tail..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    format!(
        "{}\n[cut: the whole text has {} bytes, {} of them are left out here]\n{}",
        &text[..head],
        text.len(),
        tail - head,
        &text[tail..]
    )
}
