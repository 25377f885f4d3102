//! Tools of MCP servers for the model, and results of those servers for the API (feature `mcp`).

mod builder;
mod clean;
mod listing;
mod loose;
mod names;
mod report;
mod schema;
mod set;

pub use builder::ToolSetBuilder;
pub use clean::{MAX_DESCRIPTION, clean};
pub use listing::{Annotations, ListedTool};
pub use names::{MAX_NAME, Prefix};
pub use report::{Entry, Kind, Reason, Report};
pub use set::{DefinitionOptions, SetTool, ToolSet, definitions};
