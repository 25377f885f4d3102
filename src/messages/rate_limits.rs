//! What a response says of the rate limits.

use std::time::SystemTime;

use http::HeaderMap;

/// The rate limits as a response told them, from its `anthropic-ratelimit-…` headers and those of
/// the Priority Tier and of fast mode.
///
/// A response tells some of the buckets, and a gateway may tell none: what is missing, or is no
/// number or time, is `None`, and never an error.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use agentloop::MessageRequest;
/// use agentloop::testing::{Reply, Server};
///
/// let reply = Reply::text("Hello!")
///     .header("anthropic-ratelimit-requests-limit", "50")
///     .header("anthropic-ratelimit-requests-remaining", "49");
/// let server = Server::start([reply]).await;
///
/// let message = server.client().create(&MessageRequest::from("Hi")).await?;
///
/// let limits = message.rate_limits();
/// assert_eq!((limits.requests.remaining, limits.requests.limit), (Some(49), Some(50)));
/// assert_eq!(limits.fast_input_tokens.remaining, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimits {
    /// Requests per minute.
    pub requests: RateLimit,
    /// Tokens, by the most restrictive limit that is in force.
    pub tokens: RateLimit,
    /// Input tokens per minute. What was read from the prompt cache does not count.
    pub input_tokens: RateLimit,
    /// Output tokens per minute: those that are produced, not `max_tokens`.
    pub output_tokens: RateLimit,
    /// Input tokens of the Priority Tier.
    pub priority_input_tokens: RateLimit,
    /// Output tokens of the Priority Tier.
    pub priority_output_tokens: RateLimit,
    /// Input tokens of fast mode.
    pub fast_input_tokens: RateLimit,
    /// Output tokens of fast mode.
    pub fast_output_tokens: RateLimit,
}

/// One bucket. It fills up continuously, so some of it is there before `reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimit {
    /// How much fits.
    pub limit: Option<u64>,
    /// How much is left. The API rounds tokens to thousands.
    pub remaining: Option<u64>,
    /// When it is full again. A time with another offset than `Z` or `+00:00`, which the API does
    /// not send, is `None`.
    pub reset: Option<SystemTime>,
}

impl RateLimits {
    /// Reads the headers of a response, for a driver with an HTTP stack of its own.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let bucket = |name| RateLimit::read(headers, name);
        Self {
            requests: bucket("anthropic-ratelimit-requests"),
            tokens: bucket("anthropic-ratelimit-tokens"),
            input_tokens: bucket("anthropic-ratelimit-input-tokens"),
            output_tokens: bucket("anthropic-ratelimit-output-tokens"),
            priority_input_tokens: bucket("anthropic-priority-input-tokens"),
            priority_output_tokens: bucket("anthropic-priority-output-tokens"),
            fast_input_tokens: bucket("anthropic-fast-input-tokens"),
            fast_output_tokens: bucket("anthropic-fast-output-tokens"),
        }
    }
}

impl RateLimit {
    fn read(headers: &HeaderMap, bucket: &str) -> Self {
        let text = |part: &str| headers.get(format!("{bucket}-{part}"))?.to_str().ok().map(str::trim);
        let number = |part| text(part)?.parse().ok();
        Self {
            limit: number("limit"),
            remaining: number("remaining"),
            reset: text("reset").and_then(|time| humantime::parse_rfc3339(time).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let pair = |(name, value): &(&str, &[u8])| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn at(seconds: u64, nanos: u32) -> Option<SystemTime> {
        Some(UNIX_EPOCH + Duration::new(seconds, nanos))
    }

    #[test]
    fn each_bucket_is_read_from_its_own_headers() {
        type Bucket = fn(&mut RateLimits) -> &mut RateLimit;
        const BUCKETS: [(&str, Bucket); 8] = [
            ("anthropic-ratelimit-requests", |limits| &mut limits.requests),
            ("anthropic-ratelimit-tokens", |limits| &mut limits.tokens),
            ("anthropic-ratelimit-input-tokens", |limits| &mut limits.input_tokens),
            ("anthropic-ratelimit-output-tokens", |limits| &mut limits.output_tokens),
            ("anthropic-priority-input-tokens", |limits| &mut limits.priority_input_tokens),
            ("anthropic-priority-output-tokens", |limits| &mut limits.priority_output_tokens),
            ("anthropic-fast-input-tokens", |limits| &mut limits.fast_input_tokens),
            ("anthropic-fast-output-tokens", |limits| &mut limits.fast_output_tokens),
        ];
        for (name, bucket) in BUCKETS {
            let told = headers(&[
                (&format!("{name}-limit"), b"4000"),
                (&format!("{name}-remaining"), b"3999"),
                (&format!("{name}-reset"), b"2026-11-30T12:00:00Z"),
            ]);
            let mut expected = RateLimits::default();
            *bucket(&mut expected) =
                RateLimit { limit: Some(4000), remaining: Some(3999), reset: at(1_796_040_000, 0) };
            assert_eq!(RateLimits::from_headers(&told), expected, "{name}");
        }
        assert_eq!(RateLimits::from_headers(&HeaderMap::new()), RateLimits::default());
    }

    #[test]
    fn numbers_that_are_none_are_not_there() {
        for (value, number) in [
            (&b"0"[..], Some(0)),
            (b" 50 ", Some(50)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"-1", None),
            (b"1.5", None),
            (b"1,000", None),
            (b"many", None),
            (b"", None),
            (b"50\xff", None),
        ] {
            let told = headers(&[
                ("anthropic-ratelimit-requests-limit", value),
                ("anthropic-ratelimit-requests-remaining", b"7"),
            ]);
            let requests = RateLimits::from_headers(&told).requests;
            assert_eq!((requests.limit, requests.remaining), (number, Some(7)), "{value:?}");
        }
    }

    #[test]
    fn times_that_are_none_are_not_there() {
        for (value, time) in [
            ("1970-01-01T00:00:00Z", at(0, 0)),
            (" 2026-11-30T12:00:00Z ", at(1_796_040_000, 0)),
            ("2026-11-30T12:00:00+00:00", at(1_796_040_000, 0)),
            ("2026-11-30T12:00:00.25Z", at(1_796_040_000, 250_000_000)),
            ("2026-11-30T12:00:00.123456789123Z", at(1_796_040_000, 123_456_789)),
            ("2024-02-29T00:00:00Z", at(1_709_164_800, 0)),
            ("2026-02-29T00:00:00Z", None),
            ("2026-11-30T13:00:00+01:00", None),
            ("2026-11-30T12:00:00-00:00", None),
            ("2026-11-30T12:00:00", None),
            ("2026-11-30", None),
            ("2026-11-30T24:00:00Z", None),
            ("1969-12-31T23:59:59Z", None),
            ("Mon, 30 Nov 2026 12:00:00 GMT", None),
            ("1796040000", None),
            ("30", None),
            ("soon", None),
            ("", None),
        ] {
            let told = headers(&[("anthropic-fast-output-tokens-reset", value.as_bytes())]);
            assert_eq!(RateLimits::from_headers(&told).fast_output_tokens.reset, time, "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_is_a_panic(
            value in prop_oneof![
                "[ -~]{0,40}",
                "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.+Z0-9:]{0,12}(Z|\\+00:00)?",
            ],
        ) {
            let told = headers(&[("anthropic-ratelimit-tokens-reset", value.as_bytes())]);
            let _read = RateLimits::from_headers(&told);
        }
    }
}
