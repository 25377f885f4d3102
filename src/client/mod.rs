//! The API over HTTP.
//!
//! A [`Client`] holds the connection pool, the credential and the defaults of all requests. It
//! sends a request up to three times (see [`ClientBuilder::max_retries`]), waits as long as the
//! server says or as its own backoff does, and gives up on a connection without progress. There
//! is no limit on a call as a whole unless you set one.
//!
//! # Cancel safety
//!
//! Dropping the future of a call ends it at once, during a wait as well: the connection is closed
//! or its stream is reset, and nothing runs on. The server may still have done the work.

mod auth;
mod base_url;
mod body;
mod builder;
mod call;
mod headers;
mod http_client;
mod idle;
mod options;
mod response;
pub(crate) mod retry;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use auth::Auth;
pub use builder::ClientBuilder;
pub use options::{DEFAULT_MAX_TOKENS, DEFAULT_MODEL};

use self::base_url::BaseUrl;
use self::call::Call;
use self::headers::ClientHeaders;
use self::retry::RetryPolicy;
use crate::error::{Error, Result};
use crate::messages::options::RequestDefaults;
use crate::messages::{Message, MessageRequest};

/// A client of the Messages API.
///
/// Cloning is cheap, and clones share the connection pool. `Debug` shows no credential, no header
/// value and no query of the base URL.
///
/// ```no_run
/// use agentloop::client::Client;
/// use agentloop::messages::MessageRequest;
///
/// # async fn run() -> agentloop::Result<()> {
/// let client = Client::from_env()?;
/// let message = client.create(&MessageRequest::from("Hello, Claude")).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    base_url: BaseUrl,
    auth: Auth,
    headers: ClientHeaders,
    defaults: RequestDefaults,
    retry: RetryPolicy,
    /// `None` if the HTTP client is the user's own.
    connect_timeout: Option<Duration>,
    idle_timeout: Duration,
    timeout: Option<Duration>,
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
        let call = &Call::new(self, MESSAGES, request.segments(defaults)?, options)?;
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
