//! The wire vocabulary.

mod api_error;
pub(crate) mod content;
pub(crate) mod image;
pub(crate) mod json;
mod open;

pub use api_error::{ApiError, ApiErrorType};
pub use content::{
    ContentBlock, DocumentBlock, Extra, ImageBlock, OtherBlock, RedactedThinkingBlock, ServerToolResultBlock,
    ServerToolUseBlock, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock,
};
