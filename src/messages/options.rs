//! What a request carries beside its body.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

/// The model of a request that names none.
///
/// A minor release may change it before the model retires, so name a model where it matters.
pub const DEFAULT_MODEL: &str = "claude-opus-5-5";

/// `max_tokens` of a request that sets none.
pub const DEFAULT_MAX_TOKENS: u64 = 16_000;

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

impl Default for RequestDefaults {
    fn default() -> Self {
        Self { model: DEFAULT_MODEL.to_owned(), max_tokens: DEFAULT_MAX_TOKENS }
    }
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
