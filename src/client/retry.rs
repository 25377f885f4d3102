//! Whether to try again, and when: pure verdicts.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::error::{Error, ErrorKind};
use crate::messages::ApiErrorType;

/// What a failed attempt says about the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure<'a> {
    pub(crate) kind: ErrorKind,
    pub(crate) status: Option<StatusCode>,
    pub(crate) error_type: Option<&'a ApiErrorType>,
    pub(crate) error_code: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    /// What [`server_wait`] read in them when they came.
    pub(crate) wait: Option<Duration>,
    /// A 2xx response without a body.
    pub(crate) empty_body: bool,
    /// Something of the reply reached the caller.
    pub(crate) delivered: bool,
}

/// How often and how long a caller wants to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    pub(crate) max_retries: u32,
    /// The longest wait that is taken over from the server.
    pub(crate) longest_wait: Duration,
}

/// What a call has behind it when an attempt fails, and what chance says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// How many retries were taken.
    pub(crate) retries: u32,
    /// What is left of the total limit of the call.
    pub(crate) left: Option<Duration>,
    /// In `0.0..1.0`.
    pub(crate) jitter: f64,
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Retry(Duration),
    Stop,
}

/// Judges a failed attempt.
pub(crate) fn verdict(failure: Failure<'_>, situation: Situation, policy: RetryPolicy) -> Verdict {
    let Situation { retries, left, jitter } = situation;
    if failure.delivered || retries >= policy.max_retries || !is_transient(failure) {
        return Verdict::Stop;
    }
    let wait = match failure.wait {
        // A wait is taken whole or not at all: a shorter one only meets the same limit again.
        Some(wait) if wait > policy.longest_wait => return Verdict::Stop,
        Some(wait) => wait.saturating_add(spread(wait, jitter)),
        None => backoff(retries, jitter),
    };
    match left {
        // The error at hand says more than that the time is up.
        Some(left) if left <= wait => Verdict::Stop,
        _ => Verdict::Retry(wait),
    }
}

/// How long a rate limit keeps other requests for the same model back, `None` if the failure is
/// none, or if nobody would wait that long.
pub(crate) fn cool_down(failure: Failure<'_>, situation: Situation, policy: RetryPolicy) -> Option<Duration> {
    let is_rate_limit = failure.status == Some(StatusCode::TOO_MANY_REQUESTS)
        || failure.error_type == Some(&ApiErrorType::RateLimit);
    if !is_rate_limit || is_spend_limit(failure) {
        return None;
    }
    let wait = failure.wait.unwrap_or_else(|| backoff(situation.retries, situation.jitter));
    (wait <= policy.longest_wait).then_some(wait)
}

/// True if the same request may succeed later, however many retries are left.
pub(crate) fn is_transient(failure: Failure<'_>) -> bool {
    if is_spend_limit(failure) {
        return false;
    }
    let by_itself = match failure.kind {
        // Nothing that a server thinks of it makes them better the next time.
        ErrorKind::Config | ErrorKind::Credential | ErrorKind::Request | ErrorKind::TooLarge => return false,
        ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Transport => true,
        ErrorKind::Decode => failure.empty_body,
        ErrorKind::Api => match failure.status {
            // An error inside a 2xx has its status in its type alone.
            Some(status) if !status.is_success() => is_transient_status(status),
            _ => failure.error_type.is_some_and(is_transient_type),
        },
    };
    match failure.headers.get("x-should-retry").map(|value| value.as_bytes()) {
        Some(b"true") => true,
        Some(b"false") => false,
        _ => by_itself,
    }
}

/// An error that says whether the same request may succeed later.
pub(crate) fn judged(error: Error) -> Error {
    let is_transient = is_transient(Failure::of(&error));
    error.with_retryable(is_transient)
}

fn is_spend_limit(failure: Failure<'_>) -> bool {
    failure.error_code.is_some_and(|code| SPEND_LIMITS.contains(&code))
}

/// The wait that a response asks for, `None` if it asks for none or for a useless one. `now` is
/// when it came; the response's own `date` goes before it, since clocks differ.
pub(crate) fn server_wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.trim());
    let number = |name| {
        let number: f64 = text(name)?.parse().ok()?;
        (number.is_finite() && number > 0.0).then_some(number)
    };
    // What no `Duration` can hold is still a wait, and longer than any caller allows.
    let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let date = |name| httpdate::parse_http_date(text(name)?).ok();
    let wait = match (number("retry-after-ms"), number("retry-after")) {
        (Some(millis), _) => seconds(millis / 1000.0),
        (None, Some(number)) => seconds(number),
        (None, None) => date("retry-after")?.duration_since(date("date").unwrap_or(now)).ok()?,
    };
    (!wait.is_zero()).then_some(wait)
}

/// Spreads a wait that many callers were given at once: up to a quarter more, 10 seconds at most.
fn spread(wait: Duration, jitter: f64) -> Duration {
    (wait / 4).min(Duration::from_secs(10)).mul_f64(jitter.clamp(0.0, 1.0))
}

fn backoff(retries: u32, jitter: f64) -> Duration {
    // From the fourth retry on the longest wait holds, so larger exponents are never needed.
    let base = (0.5 * f64::from(1_u32 << retries.min(4))).min(8.0);
    Duration::from_secs_f64(base * (1.0 - 0.25 * jitter.clamp(0.0, 1.0)))
}

fn is_transient_status(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 409 | 429 | 500..)
}

fn is_transient_type(error_type: &ApiErrorType) -> bool {
    matches!(
        error_type,
        ApiErrorType::Api
            | ApiErrorType::Conflict
            | ApiErrorType::Overloaded
            | ApiErrorType::RateLimit
            | ApiErrorType::Timeout
    )
}

impl<'a> Failure<'a> {
    /// The facts of an error.
    pub(crate) fn of(error: &'a Error) -> Self {
        Self {
            kind: error.kind(),
            status: error.status_code(),
            error_type: error.api_error().map(|api| &api.error_type),
            error_code: error.error_code(),
            headers: error.headers(),
            wait: error.retry_after(),
            empty_body: error.kind() == ErrorKind::Decode && error.is_retryable(),
            delivered: error.was_delivered(),
        }
    }
}

/// Reached until somebody raises them, so a retry can't help, whatever the response says.
const SPEND_LIMITS: [&str; 2] = ["enforced_spend_limit_reached", "contract_spend_limit_reached"];

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);
    const POLICY: RetryPolicy = RetryPolicy { max_retries: 2, longest_wait: MINUTE };

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    fn api(status: u16, headers: &HeaderMap) -> Failure<'_> {
        Failure {
            kind: ErrorKind::Api,
            status: Some(StatusCode::from_u16(status).unwrap()),
            error_type: None,
            error_code: None,
            headers,
            wait: server_wait(headers, received()),
            empty_body: false,
            delivered: false,
        }
    }

    /// When every response of these tests came.
    fn received() -> SystemTime {
        httpdate::parse_http_date("Tue, 03 Mar 2026 10:00:00 GMT").unwrap()
    }

    /// What `Retry-After` and its like mean: the header, and the wait where it holds one.
    const WAITS: [(&str, &str, Option<Duration>); 32] = [
        ("", "", None),
        ("retry-after-ms", "1500", Some(Duration::from_millis(1500))),
        ("retry-after-ms", "1500.5", Some(Duration::from_micros(1_500_500))),
        ("retry-after-ms", "0", None),
        ("retry-after-ms", "-3", None),
        ("retry-after-ms", "soon", None),
        ("retry-after", "1", Some(SECOND)),
        ("retry-after", " 1 ", Some(SECOND)),
        ("retry-after", "1.5", Some(Duration::from_millis(1500))),
        ("retry-after", "60", Some(MINUTE)),
        ("retry-after", "60.001", Some(Duration::from_millis(60_001))),
        ("retry-after", "171", Some(Duration::from_secs(171))),
        ("retry-after", "1e300", Some(Duration::MAX)),
        ("retry-after", "0", None),
        ("retry-after", "0.0", None),
        ("retry-after", "-1", None),
        ("retry-after", "1e-12", None),
        ("retry-after", "nan", None),
        ("retry-after", "inf", None),
        ("retry-after", "-inf", None),
        ("retry-after", "soon", None),
        ("retry-after", "", None),
        ("retry-after", "Tue, 03 Mar 2026 10:00:30 GMT", Some(Duration::from_secs(30))),
        ("retry-after", "Tuesday, 03-Mar-26 10:00:30 GMT", Some(Duration::from_secs(30))),
        ("retry-after", "Tue Mar  3 10:00:30 2026", Some(Duration::from_secs(30))),
        ("retry-after", "Tue, 03 Mar 2026 10:00:00 GMT", None),
        ("retry-after", "Tue, 03 Mar 2026 09:59:59 GMT", None),
        ("retry-after", "Mon, 01 Jan 1900 00:00:00 GMT", None),
        ("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT", Some(Duration::from_secs(251_629_768_799))),
        ("retry-after", "Tue, 03 Mar 2026 25:00:00 GMT", None),
        ("retry-after", "Tue, 03 Mar 2026 10:00:30 +0100", None),
        ("retry-after-ms", "Tue, 03 Mar 2026 10:00:30 GMT", None),
    ];

    #[test]
    fn reads_the_wait_of_a_response() {
        for (name, value, wait) in WAITS.iter().filter(|(name, ..)| !name.is_empty()) {
            assert_eq!(server_wait(&headers(&[(name, value)]), received()), *wait, "{name}: {value}");
        }
        let wait = |pairs: &[(&'static str, &str)]| server_wait(&headers(pairs), received());
        let date = ("retry-after", "Tue, 03 Mar 2026 10:00:30 GMT");
        for (pairs, millis) in [
            (&[("retry-after", "9"), ("retry-after-ms", "1500")][..], 1500),
            (&[("retry-after", "9"), ("retry-after-ms", "soon")], 9000),
            (&[date, ("retry-after-ms", "0")], 30_000),
            // Both dates are the server's: how wrong the clock here is does not matter.
            (&[date, ("date", "Tue, 03 Mar 2026 10:00:25 GMT")], 5000),
            (&[date, ("date", "soon")], 30_000),
        ] {
            assert_eq!(wait(pairs), Some(Duration::from_millis(millis)), "{pairs:?}");
        }
        let mut opaque = HeaderMap::new();
        opaque.insert("retry-after", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(server_wait(&opaque, received()), None);
    }

    #[test]
    fn the_whole_table() {
        // 408, 409, 429 and everything from 500 on; all others once.
        const STATUSES: [(u16, bool); 24] = [
            (300, false),
            (307, false),
            (400, false),
            (401, false),
            (402, false),
            (403, false),
            (404, false),
            (407, false),
            (408, true),
            (409, true),
            (410, false),
            (412, false),
            (413, false),
            (422, false),
            (428, false),
            (429, true),
            (430, false),
            (431, false),
            (499, false),
            (500, true),
            (503, true),
            (504, true),
            (529, true),
            (599, true),
        ];
        const SHOULD: [Option<&str>; 4] = [None, Some("true"), Some("false"), Some("perhaps")];
        const CODES: [(Option<&str>, bool); 4] = [
            (None, false),
            (Some("ramp_limit_exceeded"), false),
            (Some("enforced_spend_limit_reached"), true),
            (Some("contract_spend_limit_reached"), true),
        ];
        const BACKOFF_MS: [u64; 7] = [500, 1000, 2000, 4000, 8000, 8000, 8000];

        let mut cases = 0_u32;
        let mut retried = 0_u32;
        for (status, by_status) in STATUSES {
            for should in SHOULD {
                for (code, spend_limit) in CODES {
                    for (name, value, wait) in WAITS {
                        for max_retries in [0, 2, 6] {
                            for retries in 0..7_u32 {
                                let mut all = headers(&[]);
                                if !name.is_empty() {
                                    all.insert(name, value.parse().unwrap());
                                }
                                if let Some(should) = should {
                                    all.insert("x-should-retry", should.parse().unwrap());
                                }
                                let failure = Failure { error_code: code, ..api(status, &all) };
                                let situation = Situation { retries, left: None, jitter: 0.0 };
                                let policy = RetryPolicy { max_retries, ..POLICY };

                                let wanted = match should {
                                    Some("true") => true,
                                    Some("false") => false,
                                    _ => by_status,
                                };
                                let expected = if retries >= max_retries || spend_limit || !wanted {
                                    Verdict::Stop
                                } else {
                                    match wait {
                                        Some(wait) if wait > MINUTE => Verdict::Stop,
                                        Some(wait) => Verdict::Retry(wait),
                                        None => Verdict::Retry(Duration::from_millis(
                                            BACKOFF_MS[retries as usize],
                                        )),
                                    }
                                };
                                let case = format!(
                                    "{status} {should:?} {code:?} {name}: {value}, {retries} of {max_retries}"
                                );
                                assert_eq!(verdict(failure, situation, policy), expected, "{case}");
                                // Chance adds to a server's wait, and takes from one of our own.
                                let late = Situation { jitter: 1.0, ..situation };
                                match (expected, verdict(failure, late, policy)) {
                                    (Verdict::Stop, late) => assert_eq!(late, Verdict::Stop, "{case}"),
                                    (Verdict::Retry(early), Verdict::Retry(late)) => {
                                        let (quarter, served) = (early / 4, wait.is_some());
                                        let wanted = if served {
                                            early + quarter.min(SECOND * 10)
                                        } else {
                                            early - quarter
                                        };
                                        assert_eq!(late, wanted, "{case}");
                                    }
                                    (_, late) => panic!("{case}: {late:?}"),
                                }
                                // A total limit that ends before the wait ends the call now.
                                if let Verdict::Retry(wait) = expected {
                                    let tight = Situation { left: Some(wait), ..situation };
                                    assert_eq!(verdict(failure, tight, policy), Verdict::Stop, "{case}");
                                    let left = Some(wait + Duration::from_nanos(1));
                                    let roomy = Situation { left, ..situation };
                                    assert_eq!(verdict(failure, roomy, policy), expected, "{case}");
                                }
                                // Whatever it was: nothing is retried once somebody saw a part of it.
                                let seen = Failure { delivered: true, ..failure };
                                assert_eq!(verdict(seen, situation, policy), Verdict::Stop, "{case}");
                                assert_eq!(is_transient(seen), is_transient(failure), "{case}");
                                // Rate limits hold others back, whatever becomes of this call.
                                let held = match wait {
                                    _ if status != 429 || spend_limit => None,
                                    Some(wait) => Some(wait).filter(|wait| *wait <= MINUTE),
                                    None => Some(Duration::from_millis(BACKOFF_MS[retries as usize])),
                                };
                                assert_eq!(cool_down(failure, situation, policy), held, "{case}");
                                cases += 1;
                                retried += u32::from(expected != Verdict::Stop);
                            }
                        }
                    }
                }
            }
        }
        println!("{cases} cases, {retried} of them retried");
        assert_eq!(cases as usize, STATUSES.len() * SHOULD.len() * CODES.len() * WAITS.len() * 3 * 7);
        assert!(retried > 1000, "only {retried}");
    }

    #[test]
    fn every_kind_has_its_verdict() {
        const KINDS: [(ErrorKind, bool); 9] = [
            (ErrorKind::Api, false),
            (ErrorKind::Config, false),
            (ErrorKind::Connect, true),
            (ErrorKind::Credential, false),
            (ErrorKind::Decode, false),
            (ErrorKind::Request, false),
            (ErrorKind::Timeout, true),
            (ErrorKind::TooLarge, false),
            (ErrorKind::Transport, true),
        ];
        let none = HeaderMap::new();
        for (kind, retried) in KINDS {
            let failure = Failure { kind, status: None, ..api(200, &none) };
            assert_eq!(is_transient(failure), retried, "{kind:?}");
        }
        let empty = Failure { kind: ErrorKind::Decode, empty_body: true, ..api(200, &none) };
        assert!(is_transient(empty));
        let should = headers(&[("x-should-retry", "true")]);
        for kind in [ErrorKind::Config, ErrorKind::Credential, ErrorKind::Request, ErrorKind::TooLarge] {
            assert!(!is_transient(Failure { kind, ..api(200, &should) }), "{kind:?}");
        }
    }

    #[test]
    fn an_error_inside_a_200_goes_by_its_type() {
        let none = HeaderMap::new();
        for (text, retried) in [
            ("overloaded_error", true),
            ("rate_limit_error", true),
            ("api_error", true),
            ("timeout_error", true),
            ("conflict_error", true),
            ("invalid_request_error", false),
            ("authentication_error", false),
            ("brand_new_error", false),
        ] {
            let error_type = ApiErrorType::from(text);
            let inside = Failure { error_type: Some(&error_type), ..api(200, &none) };
            assert_eq!(is_transient(inside), retried, "{text}");
            let outside = Failure { error_type: Some(&error_type), ..api(400, &none) };
            assert!(!is_transient(outside), "{text}");
        }
    }

    #[test]
    fn a_rate_limit_inside_a_200_holds_others_back_too() {
        let wait = headers(&[("retry-after", "2")]);
        let situation = Situation { retries: 0, left: None, jitter: 0.0 };
        for (text, held) in [("rate_limit_error", Some(SECOND * 2)), ("overloaded_error", None)] {
            let error_type = ApiErrorType::from(text);
            let inside = Failure { error_type: Some(&error_type), ..api(200, &wait) };
            assert_eq!(cool_down(inside, situation, POLICY), held, "{text}");
        }
    }

    #[test]
    fn jitter_takes_up_to_a_quarter() {
        for (jitter, millis) in [(0.0, 500), (0.5, 437), (1.0, 375), (7.0, 375), (-1.0, 500)] {
            assert_eq!(backoff(0, jitter).as_millis(), millis, "{jitter}");
        }
        assert_eq!(backoff(u32::MAX, 1.0), Duration::from_secs(6));
    }
}
