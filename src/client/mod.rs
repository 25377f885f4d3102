//! The API over HTTP.

pub(crate) mod retry;
