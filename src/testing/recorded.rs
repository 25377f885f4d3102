//! What the server was sent.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::http::Received;

/// A request as it came over the wire. Cheap to clone.
#[derive(Clone)]
#[non_exhaustive]
pub struct RecordedRequest {
    inner: Arc<Inner>,
}

struct Inner {
    received: Received,
    number: usize,
    connection: usize,
    refusal: Option<String>,
}

impl RecordedRequest {
    pub(super) fn new(received: Received, number: usize, connection: usize, refusal: Option<String>) -> Self {
        Self { inner: Arc::new(Inner { received, number, connection, refusal }) }
    }

    /// The method, as sent.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.inner.received.method
    }

    /// The path with its prefix and query, as sent.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.received.path
    }

    /// The headers in the order in which they were sent, names in lower case.
    #[must_use]
    pub fn headers(&self) -> &[(String, String)] {
        &self.inner.received.headers
    }

    /// The first header of a name, whatever its case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.inner.received.header(name)
    }

    /// The body, byte for byte. A chunked body is without its chunk heads.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.inner.received.body
    }

    /// The body as JSON. Numbers that `Value` can't hold are rounded; [`body`](Self::body) has
    /// them as sent.
    ///
    /// # Panics
    ///
    /// When the body is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(self.body()).expect("the body of the recorded request should be JSON")
    }

    /// Which request of the server this is, from 1. The reply's `request-id` is `req_` and this.
    #[must_use]
    pub fn number(&self) -> usize {
        self.inner.number
    }

    /// Which connection brought it, from 1 in the order in which they were opened.
    #[must_use]
    pub fn connection(&self) -> usize {
        self.inner.connection
    }

    /// Why the server refused it by itself, without playing a reply.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.inner.refusal.as_deref()
    }
}

/// Without headers, which may hold a key.
impl fmt::Debug for RecordedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedRequest")
            .field("number", &self.number())
            .field("connection", &self.connection())
            .field("method", &self.method())
            .field("path", &self.path())
            .field("body", &String::from_utf8_lossy(self.body()))
            .field("refusal", &self.refusal())
            .finish_non_exhaustive()
    }
}
