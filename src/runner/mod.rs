//! The runner: rules and tools in, a finished run or an error with the conversation out.

pub(crate) mod builder;
mod drive;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod stream;
