//! The runner: rules and tools in, a finished run or an error with the conversation out.

mod builder;
mod drive;
mod error;

pub use builder::ToolRunner;
pub use error::RunError;
