//! The loop as a value that does no IO: it owns every decision and says what to do next.
//!
//! [`RunLoop::step`] gives the next step: send a request, run calls, or done. Each step is a
//! guard that borrows the loop, and completing it is the only way forward, so a step can't be
//! completed twice, and a driver that is dropped anywhere leaves a valid loop behind.
//! [`ToolRunner::drive`](crate::ToolRunner::drive) is one driver; a test, a batch job or a
//! durable-execution engine can be another:
//!
//! ```
//! use agentloop::{Message, MessageRequest};
//! use agentloop::run_loop::{Rules, RunLoop, Step};
//! use agentloop::ToolOutput;
//!
//! let rules = Rules::new()
//!     .definition(r#"{"name":"add","input_schema":{"type":"object"}}"#)
//!     .handler("add");
//! let mut run_loop = RunLoop::new(MessageRequest::new("m", 100).user("2 and 3?"), rules);
//! let mut replies = [
//!     r#"{"content":[{"type":"tool_use","id":"t1","name":"add","input":{"a":2,"b":3}}],"stop_reason":"tool_use"}"#,
//!     r#"{"content":[{"type":"text","text":"5."}],"stop_reason":"end_turn"}"#,
//! ]
//! .into_iter();
//! loop {
//!     match run_loop.step() {
//!         Step::Send(step) => step.complete(Message::from_json(replies.next().unwrap())?)?,
//!         Step::Call(mut step) => {
//!             for call in step.pending() {
//!                 if step.start(call.ticket()) {
//!                     step.resolve(call.ticket(), Ok(ToolOutput::text("5")));
//!                 }
//!             }
//!             step.finish();
//!         }
//!         Step::Done(ended) => {
//!             assert!(ended?.is_complete());
//!             break;
//!         }
//!     }
//! }
//! assert_eq!(run_loop.conversation().len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod core;
mod result;
mod rules;
pub(crate) mod run;
mod step;
mod stop;

#[cfg(test)]
mod tests;

#[cfg(feature = "mcp")]
pub(crate) use result::shaped;
pub(crate) use rules::AT_LEAST_ONE;
#[cfg(feature = "mcp")]
pub(crate) use rules::{MAX_ERROR_BYTES, MAX_RESULT_BYTES};
pub(crate) use run::Run;

pub use self::core::RunLoop;
pub use rules::Rules;
pub use step::{CallStep, PendingCall, SendStep, Step, Ticket};
pub use stop::{Ended, RunErrorKind, Stop};
