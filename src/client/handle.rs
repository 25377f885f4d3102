//! The client itself, and the endpoint of messages.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::auth::Auth;
use super::base_url::BaseUrl;
use super::builder::ClientBuilder;
use super::call::Call;
use super::headers::ClientHeaders;
use super::retry::RetryPolicy;
use crate::error::{Error, Result};
use crate::messages::options::RequestDefaults;
use crate::messages::{Message, MessageRequest};

/// A client of the Messages API.
///
/// Cloning is cheap, and clones share the connection pool. `Debug` shows no credential, no header
/// value and no query of the base URL.
///
/// ```no_run
/// use agentloop::Client;
/// use agentloop::MessageRequest;
///
/// # async fn run() -> agentloop::Result<()> {
/// let client = Client::from_env()?;
/// let message = client.create(&MessageRequest::from("Hello, Claude")).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) http: reqwest::Client,
    pub(super) base_url: BaseUrl,
    pub(super) auth: Auth,
    pub(super) headers: ClientHeaders,
    pub(super) defaults: RequestDefaults,
    pub(super) retry: RetryPolicy,
    /// `None` if the HTTP client is the user's own.
    pub(super) connect_timeout: Option<Duration>,
    pub(super) idle_timeout: Duration,
    pub(super) timeout: Option<Duration>,
}

impl Client {
    /// A client made from the environment; [`ClientBuilder::from_env`] lists the variables.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::build`].
    pub fn from_env() -> Result<Self> {
        ClientBuilder::from_env().build()
    }

    /// A builder with the defaults. It does not read the environment.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Sends a request and waits for the whole reply.
    ///
    /// Replies that take minutes are better streamed: between here and the API something may give
    /// up on a silent connection. A request for more than 21,333 tokens is therefore refused
    /// unless a total limit is set on the request or the client.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Request`](crate::ErrorKind::Request) before anything is sent, else what the
    /// API or the connection said, after the retries. [`Error::attempts`] counts the requests.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with IO and time switched on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request. The reply is lost; the request can be sent again.
    pub async fn create(&self, request: &MessageRequest) -> Result<Message> {
        request.check()?;
        let defaults = &self.inner.defaults;
        let options = request.options();
        let max_tokens = request.max_tokens_or(defaults);
        if max_tokens > MAX_PLAIN_TOKENS && options.timeout.or(self.inner.timeout).is_none() {
            return Err(Error::request(format!(
                "{max_tokens} max_tokens may take longer than ten minutes: stream the request, or set a total \
                 `timeout` on it or on the client to send it plain (no check up to {MAX_PLAIN_TOKENS})"
            )));
        }
        let call = &Call::new(self, MESSAGES, request.segments_with(defaults)?, options)?;
        call.run(|| async move {
            let reply = call.send_for_json().await?;
            match Message::from_json(reply.text) {
                Ok(message) => Ok(message.with_response(reply.headers)),
                Err(error) => Err(error.with_response(reply.status, reply.headers)),
            }
        })
        .await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.inner;
        f.debug_struct("Client")
            .field("base_url", &inner.base_url)
            .field("auth", &inner.auth)
            .field("headers", &inner.headers)
            .field("defaults", &inner.defaults)
            .field("retry", &inner.retry)
            .field("connect_timeout", &inner.connect_timeout)
            .field("idle_timeout", &inner.idle_timeout)
            .field("timeout", &inner.timeout)
            .finish_non_exhaustive()
    }
}

const MESSAGES: &str = "/v1/messages";

/// What a model writes in ten minutes at the pace that the API documents: 128,000 tokens an hour.
const MAX_PLAIN_TOKENS: u64 = 21_333;
