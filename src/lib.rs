//! An async agent loop for Anthropic's Messages API.

pub mod client;
pub mod error;
pub mod messages;

pub use error::{Error, ErrorKind, Result};
