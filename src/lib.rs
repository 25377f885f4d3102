//! An async agent loop for Anthropic's Messages API.

pub mod client;
mod error;
mod execute;
pub mod messages;
pub mod run_loop;
mod runner;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;

pub use client::builder::ClientBuilder;
pub use client::handle::Client;
pub use error::{Error, ErrorKind, Result};
pub use messages::content::ContentBlock;
pub use messages::conversation::Conversation;
pub use messages::message::{Message, StopReason};
pub use messages::param::MessageParam;
pub use messages::request::MessageRequest;
pub use run_loop::run::Run;
pub use runner::builder::ToolRunner;
pub use runner::error::RunError;
pub use tokio_util::sync::CancellationToken;
pub use tool::context::ToolContext;
pub use tool::definition::Tool;
pub use tool::output::{Json, ToolError, ToolOutput};
