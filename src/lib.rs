//! An async agent loop for Anthropic's Messages API.
//!
//! You give it tools and a request. It sends the request, runs the tools that the model asks for,
//! answers with all results in one user message, and repeats until the model is done. Every error
//! of a run hands the conversation back, and what the server said is sent back byte for byte.
//!
//! ```no_run
//! use agentloop::{Client, Tool, ToolRunner};
//! use serde_json::json;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let now = Tool::new("now", "Tells the time in UTC", json!({"type": "object"}))
//!         .handler(|(): ()| async { "12:00" });
//!
//!     let client = Client::from_env()?; // ANTHROPIC_API_KEY
//!     let run = ToolRunner::new().tool(now).run(&client, "What time is it?").await?;
//!
//!     println!("{}", run.text());
//!     Ok(())
//! }
//! ```
//!
//! # The nouns
//!
//! | noun | is |
//! | --- | --- |
//! | [`Client`], [`ClientBuilder`] | the API over HTTP: credential, retries, limits of time |
//! | [`MessageRequest`] | the body of a request; text converts into one |
//! | [`Conversation`], [`MessageParam`] | the messages so far, and one of them, as frozen JSON |
//! | [`Message`], [`StopReason`] | a reply, and why the model stopped |
//! | [`ContentBlock`] | a typed view of a block |
//! | [`Tool`], [`ToolContext`] | what the model can call, and what a call may see |
//! | [`ToolOutput`], [`Json`], [`ToolError`] | what a call gives back |
//! | [`ToolRunner`] | tools and rules; runs the loop |
//! | [`Run`] | a finished run: reply, conversation, tokens, and [how it ended](run_loop::Ended) |
//! | [`MessageStream`], [`RunStream`] | the events of a reply, and of a run, as they come |
//! | [`RunEvent`] | what a run tells while it goes |
//! | [`RunError`] | a run that was stopped: the reason, and everything that is needed to go on |
//! | [`run_loop::RunLoop`] | the loop without IO, for drivers of your own |
//! | [`Error`], [`ErrorKind`] | the error of a request |
//! | `mcp::Server`, `mcp::ToolSet` | tools of MCP servers (feature `mcp`) |
//! | `testing::Server` | a scripted local Messages API (feature `testing`) |
//!
//! The rest is in the modules [`client`], [`messages`], [`tool`], [`run_loop`] and `testing`.
//!
//! # Concepts
//!
//! **A turn is frozen JSON.** Each message keeps its wire text. Newer models bind their thinking to
//! the exact messages before it, and the prompt cache wants the same prefix. So a conversation grows
//! and is cut at its end alone, and typed views are for reading.
//!
//! **Tools may fail.** An error, a panic, an input that does not fit, an unknown name or a limit of
//! time becomes a result with `is_error`, and the model reads why. The other calls still run. `?` in
//! a handler turns any error into one.
//!
//! **A run ends well or hands everything back.** A refusal or a cut-off reply is a [`Run`], so look
//! at [`Run::ended`]. A failed request or the cap on requests (10 by default) is a [`RunError`]:
//! [`RunError::into_request`] sends again, [`RunError::into_run_loop`] goes on where it stopped.
//!
//! **No call is guessed about.** A tool that was started never runs again by itself. A conversation
//! with calls that have no result is refused before any request. What is told to the model about a
//! call is what is known.
//!
//! **Work belongs to its future.** Tools run in the calling task, or in tasks that the run owns.
//! Dropping a run stops them at their next await. Only a [blocking](Tool::blocking) tool goes on to
//! its end.
//!
//! **Cancel safety** says, at each async function, what is lost when its future is dropped, and how
//! to go on.
//!
//! # Features
//!
//! - `rustls-tls` (default): TLS by rustls with aws-lc, trusting the platform's certificates.
//! - `native-tls`: TLS by the platform's own library. With both, rustls is used.
//! - `schemars` (default): `Tool::typed` and `Tool::with_input`, schemas derived from Rust types.
//! - `mcp`: `ToolRunner::mcp`, tools of MCP servers in the loop, and the module `mcp`.
//! - `testing`: `testing::Server`, a scripted local Messages API.
//!
//! # What is missing
//!
//! Hooks that approve calls, batches, files, models, helpers for the prompt cache beyond `cached`,
//! handlers for the members of toolsets, and waiting for tasks of MCP servers.
//!
//! # Guides
//!
//! - [The loop](_documentation::the_loop): steps, stop reasons, results, resuming, cancelling.
//! - [Streaming](_documentation::streaming): events, order, what a broken stream is, restarts.
//! - [The client](_documentation::client): settings, credentials, proxies, many runs at once.
//! - [Errors](_documentation::errors): kinds, retries, limits of time.
//! - [Observability](_documentation::observability): spans and events.
//! - [Conversations](_documentation::conversations): storing, reading back, repairing.
//! - `_documentation::mcp` (feature `mcp`): connecting to MCP servers, calls, names, results.
//! - [Design](_documentation::design): why it is as it is.
//! - [The contract](_documentation::spec): each demand and its tests.
//! - [Versions](_documentation::versioning): what may change in which release.

mod accumulate;
pub mod client;
mod error;
mod execute;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod messages;
pub mod run_loop;
mod runner;
mod sse;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tool;

pub use client::builder::ClientBuilder;
pub use client::handle::Client;
pub use client::stream::MessageStream;
pub use error::{Error, ErrorKind, Result};
pub use messages::content::ContentBlock;
pub use messages::conversation::Conversation;
pub use messages::message::{Message, StopReason};
pub use messages::param::MessageParam;
pub use messages::request::MessageRequest;
pub use run_loop::run::Run;
pub use runner::builder::ToolRunner;
pub use runner::error::RunError;
pub use runner::events::RunEvent;
pub use runner::stream::{DriveStream, RunStream};
pub use tokio_util::sync::CancellationToken;
pub use tool::context::ToolContext;
pub use tool::definition::Tool;
pub use tool::output::{Json, ToolError, ToolOutput};

/// The guides. They hold no items. A link that is defined here goes before the one of the file, which is
/// for those who read that.
#[cfg(any(doc, doctest))]
pub mod _documentation {
    #[doc = "[errors]: crate::_documentation::errors"]
    #[doc = ""]
    #[doc = include_str!("../docs/client.md")]
    pub mod client {}
    #[doc = include_str!("../docs/conversations.md")]
    pub mod conversations {}
    #[doc = include_str!("../docs/design.md")]
    pub mod design {}
    #[doc = "[client]: crate::_documentation::client"]
    #[doc = ""]
    #[doc = include_str!("../docs/errors.md")]
    pub mod errors {}
    #[cfg(feature = "mcp")]
    #[doc = "[loop]: crate::_documentation::the_loop"]
    #[doc = "[streaming]: crate::_documentation::streaming"]
    #[doc = "[observability]: crate::_documentation::observability"]
    #[doc = ""]
    #[doc = include_str!("../docs/mcp.md")]
    pub mod mcp {}
    #[doc = "[streaming]: crate::_documentation::streaming"]
    #[doc = "[errors]: crate::_documentation::errors"]
    #[doc = ""]
    #[doc = include_str!("../docs/observability.md")]
    pub mod observability {}
    #[doc = include_str!("../docs/spec.md")]
    pub mod spec {}
    #[doc = include_str!("../docs/streaming.md")]
    pub mod streaming {}
    #[cfg_attr(feature = "mcp", doc = "[mcp]: crate::_documentation::mcp")]
    #[doc = ""]
    #[doc = include_str!("../docs/loop.md")]
    pub mod the_loop {}
    #[doc = include_str!("../docs/versioning.md")]
    pub mod versioning {}
}

/// Its program derives a schema.
#[cfg(all(doctest, feature = "schemars"))]
#[doc = include_str!("../README.md")]
struct Readme;
