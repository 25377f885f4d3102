//! How many tokens a request has.

use serde_json::value::RawValue;

use super::json::Fields;
use super::usage;
use crate::error::{Error, ErrorKind, Result};

/// The tokens of a request, as [`Client::count_tokens`](crate::Client::count_tokens) gives them. It
/// is the API's estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenCount {
    /// The input, after what `context_management` would take out of it.
    pub input_tokens: u64,
    /// The input before that, where the request has `context_management`.
    pub original_input_tokens: Option<u64>,
    /// Every counter by its path, in the order of the wire.
    counters: Vec<(Box<str>, u64)>,
}

impl TokenCount {
    /// Reads the API's reply.
    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| {
            Error::new(ErrorKind::Decode, "the token count is not JSON")
                .with_source(super::json::place(&error))
        })?;
        let mut counters = Vec::new();
        if let Some(fields) = Fields::parse(raw.get()) {
            usage::each_counter(&fields, &mut |path, count| counters.push((path.into(), count)));
        }
        let mut count = Self { input_tokens: 0, original_input_tokens: None, counters };
        count.input_tokens = count
            .counter("input_tokens")
            .ok_or_else(|| Error::new(ErrorKind::Decode, "the token count has no `input_tokens`"))?;
        count.original_input_tokens = count.counter("context_management.original_input_tokens");
        Ok(count)
    }

    /// Any counter of the reply by its path, `context_management.original_input_tokens` for
    /// instance.
    #[must_use]
    pub fn counter(&self, path: &str) -> Option<u64> {
        self.counters.iter().find(|(name, _)| &**name == path).map(|(_, count)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_where_there_is_one() {
        for (text, input, original) in [
            (r#"{"input_tokens":2095}"#, 2095, None),
            (r#"{"input_tokens":0}"#, 0, None),
            (r#" {"x":null,"input_tokens": 1e2} "#, 100, None),
            (
                r#"{"input_tokens":25000,"context_management":{"original_input_tokens":70000}}"#,
                25_000,
                Some(70_000),
            ),
            (r#"{"input_tokens":1,"context_management":null}"#, 1, None),
            (r#"{"input_tokens":1,"context_management":{"original_input_tokens":"x"}}"#, 1, None),
            (r#"{"input_tokens":1,"original_input_tokens":2}"#, 1, None),
        ] {
            let count = TokenCount::from_json(text).unwrap();
            assert_eq!((count.input_tokens, count.original_input_tokens), (input, original), "{text}");
        }
        let new = TokenCount::from_json(r#"{"input_tokens":1,"images":{"tokens":3},"tools":4}"#).unwrap();
        assert_eq!((new.counter("images.tokens"), new.counter("tools")), (Some(3), Some(4)));
        assert_eq!((new.counter("images"), new.counter("input_tokens")), (None, Some(1)));
    }

    #[test]
    fn a_reply_without_a_count_is_an_error() {
        for text in [
            "{}",
            "[]",
            "7",
            "null",
            r#"{"input_tokens":null}"#,
            r#"{"input_tokens":"2095"}"#,
            r#"{"input_tokens":{"count":2095}}"#,
            r#"{"usage":{"input_tokens":2095}}"#,
            r#"{"input_tokens":"#,
        ] {
            let error = TokenCount::from_json(text).unwrap_err();
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Decode, false), "{text}");
        }
    }
}
