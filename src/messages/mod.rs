//! The wire vocabulary: requests, conversations, replies and their blocks. Pure data.
//!
//! What is sent is frozen JSON: a message is written once and its text is what goes over the
//! wire from then on, a reply is kept as the text that the server sent. The typed views are for
//! reading.
//!
//! The API grows. Enums of the wire have an arm for what they do not know and keep its text,
//! blocks keep the fields that they do not name, a [`Message`] keeps its whole
//! JSON, and a match needs an arm for the rest:
//!
//! ```
//! use agentloop::ContentBlock;
//!
//! fn show(block: &ContentBlock) -> String {
//!     match block {
//!         ContentBlock::Text(block) => block.text.clone(),
//!         other => format!("[{}]", other.kind()),
//!     }
//! }
//! # assert_eq!(show(&ContentBlock::text("a")), "a");
//! ```

mod api_error;
pub(crate) mod content;
pub(crate) mod conversation;
mod event;
pub(crate) mod facts;
pub(crate) mod freeze;
pub(crate) mod image;
pub(crate) mod json;
pub(crate) mod json_check;
pub(crate) mod message;
mod open;
pub(crate) mod options;
pub(crate) mod pairing;
pub(crate) mod param;
mod partial;
pub(crate) mod rate_limits;
pub(crate) mod request;
mod text_delta;
mod token_count;
mod tools;
mod usage;

pub(crate) use content::ContentBlock;
pub(crate) use conversation::Conversation;
pub(crate) use event::Parsed;
pub(crate) use message::{BrokenInput, Message, StopReason};
pub(crate) use param::MessageParam;
pub(crate) use request::MessageRequest;
pub(crate) use text_delta::{Text, TextDelta, TextField, unescape};

pub use api_error::{ApiError, ApiErrorType};
pub use content::{
    DocumentBlock, Extra, ImageBlock, OtherBlock, RedactedThinkingBlock, ServerToolResultBlock,
    ServerToolUseBlock, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock,
};
pub use conversation::MessageRef;
pub use event::{Delta, MessageDelta, StreamEvent};
pub use facts::Role;
pub use freeze::{Repair, RepairKind};
pub use message::{Container, StopDetails};
pub use pairing::OpenCall;
pub use param::IntoContent;
pub use partial::PartialInput;
pub use token_count::TokenCount;
pub use tools::{Effort, ToolChoice};
pub use usage::Usage;
