//! Tools.

mod output;

pub use output::{IntoToolOutput, IntoToolResult, Json, ToolError, ToolOutput};
