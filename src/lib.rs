//! An async agent loop for Anthropic's Messages API.

pub mod client;
pub mod error;
mod execute;
pub mod messages;
pub mod run_loop;
pub mod runner;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;

pub use client::{Client, ClientBuilder};
pub use error::{Error, ErrorKind, Result};
pub use runner::{RunError, ToolRunner};
pub use tool::{Tool, ToolContext, ToolError, ToolOutput};
