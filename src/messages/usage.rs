//! Token counters.

use std::ops::{Add, AddAssign};

use serde_json::value::RawValue;

use super::json::{self, Fields};

/// Counters inside of objects are read this deep; the API has one level.
const MAX_DEPTH: usize = 4;

/// The token counters of a reply, or of the replies of a run together.
///
/// Lists are not read: what `iterations` says of compaction or an advisor is in
/// [`Message::json`](crate::Message::json) alone.
///
/// `input_tokens` counts only what the prompt cache did not serve: the whole input is
/// [`total_input_tokens`](Self::total_input_tokens). Adding saturates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Input that was neither read from the cache nor written to it.
    pub input_tokens: u64,
    /// Output, thinking included.
    pub output_tokens: u64,
    /// Input written to the cache.
    pub cache_creation_input_tokens: u64,
    /// Input read from the cache.
    pub cache_read_input_tokens: u64,
    /// Every other counter by its path, in the order of the wire.
    other: Vec<(Box<str>, u64)>,
}

impl Usage {
    /// Reads the API's `usage` object. Counters that are missing, null or no number are 0.
    pub(crate) fn from_raw(raw: &RawValue) -> Self {
        let mut usage = Self::default();
        if let Some(fields) = Fields::parse(raw.get()) {
            each_counter(&fields, &mut |path, count| *usage.slot(path) = count);
        }
        usage
    }

    /// All input: uncached, written to the cache and read from it.
    #[must_use]
    pub fn total_input_tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_creation_input_tokens)
            .saturating_add(self.cache_read_input_tokens)
    }

    /// Any counter by its path, `server_tool_use.web_search_requests` for instance.
    #[must_use]
    pub fn counter(&self, path: &str) -> Option<u64> {
        match path {
            "input_tokens" => Some(self.input_tokens),
            "output_tokens" => Some(self.output_tokens),
            "cache_creation_input_tokens" => Some(self.cache_creation_input_tokens),
            "cache_read_input_tokens" => Some(self.cache_read_input_tokens),
            _ => self.other.iter().find(|(name, _)| &**name == path).map(|(_, count)| *count),
        }
    }

    fn slot(&mut self, path: &str) -> &mut u64 {
        match path {
            "input_tokens" => &mut self.input_tokens,
            "output_tokens" => &mut self.output_tokens,
            "cache_creation_input_tokens" => &mut self.cache_creation_input_tokens,
            "cache_read_input_tokens" => &mut self.cache_read_input_tokens,
            _ => {
                let at = self.other.iter().position(|(name, _)| &**name == path).unwrap_or_else(|| {
                    self.other.push((path.into(), 0));
                    self.other.len() - 1
                });
                &mut self.other[at].1
            }
        }
    }
}

/// Gives every counter by its path, those inside of objects too.
pub(super) fn each_counter(fields: &Fields<'_>, give: &mut impl FnMut(&str, u64)) {
    read("", fields, MAX_DEPTH, give);
}

fn read(path: &str, fields: &Fields<'_>, depth: usize, give: &mut impl FnMut(&str, u64)) {
    for (name, value) in fields.iter() {
        if json::is_object(value) {
            if let Some(inner) = Fields::parse(value.get()).filter(|_| depth > 0) {
                read(&format!("{path}{name}."), &inner, depth - 1, give);
            }
        } else if let Some(count) = counter(value) {
            give(&format!("{path}{name}"), count);
        }
    }
}

/// A count; a fraction loses its part behind the point, a negative number is 0.
fn counter(value: &RawValue) -> Option<u64> {
    let text = value.get();
    if !text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return None;
    }
    // `as` saturates at both ends, which is what a counter needs.
    text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|number| number as u64))
}

impl AddAssign<&Self> for Usage {
    fn add_assign(&mut self, more: &Self) {
        for path in
            ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
        {
            let count = more.counter(path).unwrap_or_default();
            let slot = self.slot(path);
            *slot = slot.saturating_add(count);
        }
        for (path, count) in &more.other {
            let slot = self.slot(path);
            *slot = slot.saturating_add(*count);
        }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(mut self, more: Self) -> Self {
        self += &more;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(text: &str) -> Usage {
        Usage::from_raw(&serde_json::from_str::<Box<RawValue>>(text).unwrap())
    }

    #[test]
    fn reading_is_tolerant() {
        let read = usage(
            r#"{"input_tokens":9,"output_tokens":null,"cache_creation":{"ephemeral_5m_input_tokens":4},
               "server_tool_use":{"web_search_requests":2},"service_tier":"standard","new_tokens":1e2,"odd":-3}"#,
        );
        assert_eq!((read.input_tokens, read.output_tokens), (9, 0));
        assert_eq!(read.counter("cache_creation.ephemeral_5m_input_tokens"), Some(4));
        assert_eq!(read.counter("server_tool_use.web_search_requests"), Some(2));
        assert_eq!(read.counter("new_tokens"), Some(100));
        assert_eq!(read.counter("odd"), Some(0));
        assert_eq!(read.counter("service_tier"), None);
        assert_eq!(usage("null"), Usage::default());
        let deep = format!("{}1{}", r#"{"a":"#.repeat(20_000), "}".repeat(20_000));
        assert_eq!(usage(&deep), Usage::default());
    }

    #[test]
    fn each_counter_is_summed_by_itself_and_saturates() {
        let turn = usage(
            r#"{"input_tokens":40,"cache_read_input_tokens":2000,"cache_creation_input_tokens":100,"output_tokens":20,"x":1}"#,
        );
        let sum = turn.clone() + turn;
        assert_eq!((sum.input_tokens, sum.output_tokens), (80, 40));
        assert_eq!((sum.cache_read_input_tokens, sum.cache_creation_input_tokens), (4000, 200));
        assert_eq!(sum.counter("x"), Some(2));
        assert_eq!(sum.total_input_tokens(), 4280);

        let huge = usage(r#"{"output_tokens":18446744073709551615}"#);
        assert_eq!((huge.clone() + huge).output_tokens, u64::MAX);
    }
}
