//! Whether to try again, and when: pure verdicts.

use std::time::Duration;

use http::HeaderMap;

pub(crate) fn server_wait(_headers: &HeaderMap) -> Option<Duration> {
    None
}
