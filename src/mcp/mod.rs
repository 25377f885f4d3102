//! Tools of MCP servers for the model, and results of those servers for the API (feature `mcp`).
//!
//! A [`Server`] is a process that [`spawn`] started, or one that a [`Connector`] reached over a
//! transport of `rmcp`, with the tools that it lists; [`ToolRunner::mcp`](crate::ToolRunner::mcp) runs them in the loop:
//!
//! ```no_run
//! use agentloop::{Client, ToolRunner, mcp};
//! use tokio::process::Command;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut command = Command::new("npx");
//! command.args(["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "."]);
//! let files = mcp::spawn("files", command).await?;
//!
//! let runner = ToolRunner::new().mcp(files.clone());
//! let run = runner.run(&Client::from_env()?, "What is in this folder?").await;
//! files.shutdown().await;
//! println!("{}", run?.text());
//! # Ok(()) }
//! ```
//!
//! The rest are plain functions. They take and give JSON and the types of this crate; no server has
//! to run, and nothing is sent.
//!
//! | to | use |
//! | --- | --- |
//! | make tools of the lists of servers | [`ToolSet::builder`], which also gives a [`Report`] |
//! | offer them to the model | [`definitions`] |
//! | find the calls of a reply | [`calls()`] |
//! | answer a call | [`tool_result`], [`next_turn`], or [`output`] in a handler |
//! | find the tool that the API refused | [`ToolSet::refused_tool`] |
//! | know what a tool does | [`SetTool::annotations`] |
//!
//! What a server says is not trusted: texts are [cleaned](clean()), names are mapped by a table,
//! and one tool that can't be offered costs none of the others.
//!
//! # Examples
//!
//! ```
//! use agentloop::mcp::{self, DefinitionOptions, Outcome, ResultOptions, ToolSet};
//! use agentloop::{Message, MessageRequest};
//!
//! let tools = r#"[{"name": "fs/read", "description": "Reads a file", "inputSchema": {"type": "object"}}]"#;
//! let (set, report) = ToolSet::builder().server("files", tools).build();
//! assert_eq!(report.to_string(), "files: fs/read: renamed to `fs_read`: the API takes no other characters\n");
//!
//! let mut request = MessageRequest::new("claude-opus-5-5", 1024).user("What is in a.txt?");
//! for definition in mcp::definitions(&set, DefinitionOptions::new()) {
//!     request = request.tool(definition);
//! }
//!
//! # let reply = r#"{"role":"assistant","stop_reason":"tool_use","content":[{"type":"tool_use","id":"toolu_1","name":"fs_read","input":{"path":"a.txt"}}]}"#;
//! let reply = Message::from_json(reply)?; // that of the API
//! let (calls, mut results) = mcp::calls(&reply, &set);
//! for call in &calls {
//!     // `tools/call` of `call.tool` with `call.arguments` at the server `call.server`
//!     let answer = r#"{"content": [{"type": "text", "text": "Hello!"}]}"#;
//!     results.push(mcp::tool_result(&call.id, Outcome::Result(answer), ResultOptions::new()));
//! }
//! let answer = mcp::next_turn(results)?;
//! # assert!(answer.json().contains("Hello!"));
//! # Ok::<(), agentloop::Error>(())
//! ```

mod builder;
mod calls;
mod child;
mod clean;
mod connection;
mod connector;
mod content;
mod handler;
mod heard;
mod keywords;
mod listing;
mod loose;
mod names;
mod numbers;
mod report;
mod result;
mod rounds;
mod schema;
mod server;
mod servers;
mod set;
mod tap;

pub use builder::ToolSetBuilder;
pub use calls::{Call, CallSource, calls};
pub use clean::{MAX_DESCRIPTION, clean};
pub use connector::{ConnectError, ConnectErrorKind, Connector, spawn};
pub use listing::ListedTool;
pub use names::{MAX_NAME, Prefix};
pub use report::{Entry, Kind, Reason, Report};
pub use result::{Outcome, ResultOptions, Structured, next_turn, output, tool_result};
pub use server::Server;
pub use servers::Servers;
pub use set::{DefinitionOptions, SetTool, ToolSet, definitions};

/// The crate that connects to servers. This feature follows its major versions.
pub use rmcp;
