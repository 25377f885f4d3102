//! A scripted Messages API on a local socket, to test agents against.
//!
//! [`Server`] listens on loopback, plays the [`Reply`]s of a [`Script`] one per request, and
//! records what it was sent. It is strict by default: what the API would refuse, it refuses, with
//! status 400 and the API's error object, so that a test of a loop also tests that each of its
//! requests is legal. [`check_request`] judges a body by the same rules without a socket.
//!
//! A reply is data. It can be slow, be held until the test opens a [`Gate`], be cut off after any
//! byte, or not be HTTP at all; nothing needs a sleep to prove an order. A request with
//! `"stream": true` gets its message as an event stream. `/v1/messages/count_tokens` is served too,
//! from the same script, and by rules of its own: fields of a reply are refused.
//!
//! | to | use |
//! | --- | --- |
//! | answer | [`Reply::text`], [`Reply::tool_use`], [`Reply::message`], [`Reply::json_text`], [`Reply::token_count`] |
//! | fail | [`Reply::error`], [`Reply::raw`], [`Reply::garbage`], [`Reply::cut_after`], [`Reply::reset_after`] |
//! | stream | [`Reply::events`], [`Reply::sse`], [`Reply::in_pieces`], [`Reply::close`] |
//! | wait | [`Reply::delay`], [`Reply::hold`], [`Reply::hold_after`], [`Reply::hold_after_events`], [`Server::wait_for_requests`], [`Server::wait_for_open_connections`] |
//! | connect | [`Server::client`], [`Server::url`] |
//! | look | [`Server::requests`], [`Server::request_count`], [`Server::connections_opened`] |
//! | loosen the rules | [`Server::allow_field`], [`Server::lenient`] |
//!
//! # Examples
//!
//! ```
//! use agentloop::testing::{Reply, Server};
//! use agentloop::ToolRunner;
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::start([Reply::text("Hello!")]).await;
//!
//! let run = ToolRunner::new().run(&server.client(), "Hi").await?;
//!
//! assert_eq!(run.text(), "Hello!");
//! assert_eq!(server.requests()[0].json()["messages"], json!([{"role": "user", "content": "Hi"}]));
//! server.finish()?;
//! # Ok(())
//! # }
//! ```

mod client;
mod connection;
mod events;
mod http;
mod recorded;
mod reply;
mod response;
mod rules;
mod script;
mod server;
mod stream;

pub use recorded::RecordedRequest;
pub use reply::{Gate, Reply};
pub use rules::check_request;
pub use script::Script;
pub use server::{ScriptError, Server};
#[doc(hidden)]
pub use stream::frames;
pub use stream::read_stream;
