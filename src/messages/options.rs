//! What a request carries beside its body.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

/// What one call does differently from the client.
#[derive(Clone, Default)]
pub(crate) struct CallOptions {
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) betas: Vec<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) max_retries: Option<u32>,
}

/// What fills a request that names no model or no `max_tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestDefaults {
    pub(crate) model: String,
    pub(crate) max_tokens: u64,
}

/// Names of headers alone: their values may be secrets.
impl fmt::Debug for CallOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOptions")
            .field("headers", &self.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())
            .field("betas", &self.betas)
            .field("timeout", &self.timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("max_retries", &self.max_retries)
            .finish()
    }
}
