//! The API over HTTP.
//!
//! A [`Client`] holds the connection pool, the credential and the defaults of all requests. It
//! sends a request up to three times (see
//! [`ClientBuilder::max_retries`](crate::ClientBuilder::max_retries)), waits as long as the server
//! says or as its own backoff does, and gives up on a connection without progress. There is no
//! limit on a call as a whole unless you set one.
//!
//! # Cancel safety
//!
//! Dropping the future of a call ends it at once, during a wait as well: the connection is closed
//! or its stream is reset, and nothing runs on. The server may still have done the work.

mod auth;
mod base_url;
mod body;
pub(crate) mod builder;
mod call;
mod cool_down;
mod credential;
pub(crate) mod handle;
mod headers;
mod http_client;
mod idle;
mod response;
pub(crate) mod retry;
pub(crate) mod stream;
mod tokens;
mod transport;

pub(crate) use call::Retry;
pub(crate) use handle::Client;
#[cfg(feature = "testing")]
pub(crate) use response::DEFAULT_MAX_RESPONSE;
pub(crate) use stream::Rest;

pub use crate::error::TimeoutPhase;
pub use crate::messages::options::{DEFAULT_MAX_TOKENS, DEFAULT_MODEL};
pub use crate::messages::rate_limits::{RateLimit, RateLimits};
pub use auth::Auth;
pub use credential::{Credential, CredentialProvider};
pub use stream::TextStream;
