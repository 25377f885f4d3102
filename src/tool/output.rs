//! What a call gives back: content, or an error with content. Pure data.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use serde::Serialize;

use crate::messages::ContentBlock;

/// What a call returns to the model.
#[derive(Clone)]
pub struct ToolOutput {
    pub(crate) content: Content,
}

/// A failure that the model gets to read.
///
/// `?` makes one from any error, `String` or `&str`. Like `anyhow::Error` it does not implement
/// [`std::error::Error`] itself, or else that conversion could not exist.
pub struct ToolError {
    pub(crate) content: Content,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// A string or a list of blocks, as the API takes both.
#[derive(Clone)]
pub(crate) enum Content {
    Text(String),
    Blocks(Vec<ContentBlock>),
}

/// Any serializable value, returned as JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a wrapper that is built and taken apart by its field")]
pub struct Json<T>(pub T);

/// What a handler may return, besides a `Result` of it with [`ToolError`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not something that a tool can return",
    label = "a tool returns text, `serde_json::Value`, `Json(value)`, blocks or `()`",
    note = "wrap a serializable value: `Json(value)`",
    note = "a handler that can fail returns `Result<_, agentloop::ToolError>`; no other error type fits, and `?` converts"
)]
pub trait IntoToolOutput {
    /// Converts the value.
    ///
    /// # Errors
    /// The value can't be written as JSON.
    fn into_tool_output(self) -> Result<ToolOutput, ToolError>;
}

/// What a handler returns: something [`IntoToolOutput`], or a `Result` of it with [`ToolError`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not something that a tool can return",
    label = "a tool returns text, `serde_json::Value`, `Json(value)`, blocks or `()`, or a `Result` of one of these with `ToolError`",
    note = "wrap a serializable value: `Json(value)`",
    note = "a handler that can fail returns `Result<_, agentloop::ToolError>`; no other error type fits, and `?` converts"
)]
pub trait IntoToolResult {
    /// Converts the value.
    ///
    /// # Errors
    /// The handler failed, or its value can't be written as JSON.
    fn into_tool_result(self) -> Result<ToolOutput, ToolError>;
}

// Without this the compiler speaks of `IntoToolOutput` alone, which leaves out `Result`.
#[diagnostic::do_not_recommend]
impl<T: IntoToolOutput> IntoToolResult for T {
    fn into_tool_result(self) -> Result<ToolOutput, ToolError> {
        self.into_tool_output()
    }
}

// The only impl for `Result`: a second one would make `?` in a handler ambiguous.
impl<T: IntoToolOutput> IntoToolResult for Result<T, ToolError> {
    fn into_tool_result(self) -> Result<ToolOutput, ToolError> {
        self?.into_tool_output()
    }
}

impl ToolOutput {
    /// Text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Content::Text(text.into()) }
    }

    /// A list of blocks: text, images, documents, search results, tool references.
    #[must_use]
    pub fn blocks(blocks: Vec<ContentBlock>) -> Self {
        Self { content: Content::Blocks(blocks) }
    }
}

impl ToolError {
    /// An error with a text for the model.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { content: Content::Text(text.into()), source: None }
    }

    /// An error with blocks. The API takes text alone in an error result, so every other block
    /// is replaced by a note.
    #[must_use]
    pub fn blocks(blocks: Vec<ContentBlock>) -> Self {
        Self { content: Content::Blocks(blocks), source: None }
    }

    /// The text for the model.
    #[must_use]
    pub fn message(&self) -> String {
        match &self.content {
            Content::Text(text) => text.clone(),
            Content::Blocks(blocks) => blocks.iter().filter_map(ContentBlock::as_text).collect(),
        }
    }

    pub(crate) fn without_source(mut self) -> Self {
        self.source = None;
        self
    }

    /// The error that it was made from, if any.
    #[must_use]
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for ToolError {
    /// The text is the error's own with those of its sources, each once.
    fn from(error: E) -> Self {
        let error = error.into();
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Many errors repeat their source in their own text.
            if !text.contains(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        Self { content: Content::Text(text), source: Some(error) }
    }
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

impl IntoToolOutput for () {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(""))
    }
}

impl IntoToolOutput for String {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(self))
    }
}

impl IntoToolOutput for &str {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(self))
    }
}

impl IntoToolOutput for Cow<'_, str> {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(self))
    }
}

impl IntoToolOutput for serde_json::Value {
    /// JSON text. A string is itself, without quotes.
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(match self {
            Self::String(text) => ToolOutput::text(text),
            value => ToolOutput::text(value.to_string()),
        })
    }
}

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        let text = serde_json::to_string(&self.0)?;
        Ok(ToolOutput::text(text))
    }
}

impl IntoToolOutput for ContentBlock {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::blocks(vec![self]))
    }
}

impl IntoToolOutput for Vec<ContentBlock> {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::blocks(self))
    }
}

/// Shape only: what a tool returns may hold what the user's prompt held.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "text of {} bytes", text.len()),
            Self::Blocks(blocks) => write!(f, "{} blocks", blocks.len()),
        }
    }
}

impl fmt::Debug for ToolOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolOutput").field("content", &self.content).finish()
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolError").field("content", &self.content).finish_non_exhaustive()
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: Result<ToolOutput, ToolError>) -> String {
        match result.map(|output| output.content) {
            Ok(Content::Text(text)) => text,
            Ok(Content::Blocks(_)) => "blocks".to_owned(),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn every_return_type_becomes_content() {
        assert_eq!(text("a".into_tool_result()), "a");
        assert_eq!(text(().into_tool_result()), "");
        assert_eq!(text(Json(vec![1, 2]).into_tool_result()), "[1,2]");
        assert_eq!(text(serde_json::json!("s").into_tool_result()), "s");
        assert_eq!(text(Err::<(), _>(ToolError::new("no")).into_tool_result()), "error: no");
        assert_eq!(text(vec![ContentBlock::text("x")].into_tool_result()), "blocks");
    }

    #[test]
    fn an_error_tells_its_sources_once() {
        #[derive(Debug)]
        struct Outer(std::io::Error);

        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("reading the file")
            }
        }

        impl StdError for Outer {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(&self.0)
            }
        }

        let error = ToolError::from(Outer(std::io::Error::other("disk gone")));
        assert_eq!(error.message(), "reading the file: disk gone");
        assert!(error.source().is_some());
    }
}
