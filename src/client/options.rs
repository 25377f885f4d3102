//! What the client fills into a request that leaves it out.

use crate::messages::options::RequestDefaults;

/// The model of a request that names none.
///
/// A minor release may change it before the model retires, so name a model where it matters.
pub const DEFAULT_MODEL: &str = "claude-opus-5-5";

/// `max_tokens` of a request that sets none.
pub const DEFAULT_MAX_TOKENS: u64 = 16_000;

impl Default for RequestDefaults {
    fn default() -> Self {
        Self { model: DEFAULT_MODEL.to_owned(), max_tokens: DEFAULT_MAX_TOKENS }
    }
}
