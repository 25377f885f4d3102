//! An async agent loop for Anthropic's Messages API.

pub mod client;
pub mod error;
pub mod messages;
pub mod run_loop;
pub mod tool;

pub use error::{Error, ErrorKind, Result};
