//! Tools: what the model can call, what a call may see, and what it gives back.
//!
//! A [`Tool`] is one entry of the request's `tools`, with a handler or without. The definition
//! goes over the wire as it was made; the handler is an async closure, or one that blocks.
//!
//! ```
//! use agentloop::{Json, Tool, ToolError};
//! use serde::Deserialize;
//! use serde_json::json;
//!
//! #[derive(Deserialize)]
//! struct Day {
//!     date: String,
//! }
//!
//! let schema = json!({"type": "object", "properties": {"date": {"type": "string"}}, "required": ["date"]});
//! let tool = Tool::new("calendar_events", "Lists the calendar events of one day", schema)
//!     .handler(|day: Day| async move {
//!         if day.date.is_empty() {
//!             return Err(ToolError::new("`date` is empty; give a day such as 2026-11-30"));
//!         }
//!         Ok(Json(vec![format!("{}: lunch", day.date)]))
//!     });
//! # let _ = tool;
//! ```
//!
//! A handler that fails, panics or can't read its input does not end the run: the model gets the
//! error's text and may try again.

mod annotations;
pub(crate) mod context;
pub(crate) mod definition;
#[cfg(any(feature = "schemars", feature = "mcp"))]
pub(crate) mod fold;
mod handler;
pub(crate) mod output;
mod progress;
#[cfg(feature = "schemars")]
mod schema;
#[cfg(feature = "schemars")]
mod strict;
#[cfg(any(feature = "schemars", feature = "mcp"))]
pub(crate) mod subschema;
mod wire;

pub use annotations::Annotations;
pub(crate) use context::{ContextParts, States, ToolContext};
pub(crate) use definition::Tool;
pub(crate) use handler::ToolFuture;
pub(crate) use output::{Content, ToolError, ToolOutput};
pub use output::{IntoToolOutput, IntoToolResult};
pub(crate) use progress::Reports;
pub use progress::ToolProgress;
