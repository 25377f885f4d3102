//! The client itself, and the endpoint of messages.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::auth::Auth;
use super::base_url::BaseUrl;
use super::builder::ClientBuilder;
use super::call::{Call, Retry};
use super::cool_down::CoolDowns;
use super::credential::Credentials;
use super::headers::ClientHeaders;
use super::retry::RetryPolicy;
use super::stream::{MessageStream, Rest};
use crate::error::{Error, Result};
use crate::messages::options::RequestDefaults;
use crate::messages::request::Mode;
use crate::messages::{Message, MessageRequest, StreamEvent};
use crate::telemetry;

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
    /// What a proxy of the builder is told.
    pub(super) proxy_secrets: Arc<[String]>,
    pub(super) base_url: BaseUrl,
    pub(super) auth: Auth,
    /// Where `auth` is a provider.
    pub(super) credentials: Option<Credentials>,
    pub(super) headers: ClientHeaders,
    pub(super) defaults: RequestDefaults,
    pub(super) retry: RetryPolicy,
    /// The places of requests in flight, where they have a limit.
    pub(super) slots: Option<Arc<Semaphore>>,
    /// `None` if each call keeps to its own waits.
    pub(super) cool_downs: Option<CoolDowns>,
    /// `None` if the HTTP client is the user's own.
    pub(super) connect_timeout: Option<Duration>,
    pub(super) idle_timeout: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) max_event_bytes: usize,
    pub(super) max_response_bytes: usize,
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
    /// unless a total limit is set on the request or the client;
    /// [`create_streamed`](Self::create_streamed) takes it.
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
        self.create_plain(request, |_| ready(())).await
    }

    async fn create_plain<N: Future<Output = ()>>(
        &self,
        request: &MessageRequest,
        on_retry: impl Fn(Retry) -> N,
    ) -> Result<Message> {
        request.check()?;
        if self.is_too_long_to_be_silent(request) && self.total_limit(request).is_none() {
            let max_tokens = request.max_tokens_or(&self.inner.defaults);
            return Err(Error::request(format!(
                "{max_tokens} max_tokens may take longer than ten minutes: use `create_streamed` or `stream`, or set \
                 a total `timeout` on the request or on the client to send it plain (no check up to \
                 {MAX_PLAIN_TOKENS})"
            )));
        }
        let call = &self.call(request, Mode::Plain)?;
        let attempt = |attempt| async move {
            let reply = call.send_for_json(&attempt).await?;
            match Message::from_json(reply.text) {
                Ok(message) => Ok(message.with_response(reply.headers)),
                Err(error) => Err(error.with_response(reply.status, reply.headers)),
            }
        };
        let message = call.run_with(attempt, on_retry).await?;
        telemetry::replied(call.span(), &message);
        Ok(message)
    }

    /// Sends a request and gives the events of the reply as they come.
    ///
    /// It returns when the reply has begun. Until then a failure is retried as in
    /// [`create`](Self::create); from then on it is an error of the stream, with the reply as far as
    /// it came. Nothing runs behind the stream: it reads when it is asked for the next event, and
    /// what is not asked for stays with the server. Pauses of the reader are no timeouts.
    ///
    /// ```no_run
    /// use agentloop::messages::{Delta, StreamEvent};
    /// use agentloop::{Client, MessageRequest};
    ///
    /// # async fn run(client: Client) -> agentloop::Result<()> {
    /// let request = MessageRequest::from("Write a sonnet");
    /// let mut stream = client.stream(&request).await?;
    /// while let Some(event) = stream.next().await {
    ///     if let StreamEvent::ContentBlockDelta { delta: Delta::Text(text), .. } = event? {
    ///         print!("{text}");
    ///     }
    /// }
    /// let message = stream.final_message().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), without its limit of tokens, and
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) for a response that is no stream of events.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with IO and time switched on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request, which can be sent again.
    pub async fn stream(&self, request: &MessageRequest) -> Result<MessageStream> {
        let call = &self.call(request, Mode::Streamed)?;
        let stream = call.run(|attempt| MessageStream::open(call, attempt)).await?;
        Ok(stream.within(call.span()))
    }

    /// Sends a request as a stream and waits for the whole reply: [`create`](Self::create) for
    /// replies that take long.
    ///
    /// Nobody sees the events, so a stream that breaks anywhere is thrown away whole, and the
    /// request is retried as for [`create`](Self::create). The content of the message is the one
    /// that a plain request gets, but for the spelling of its strings.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream). [`Error::partial_message`] has what came of the last attempt.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime with IO and time switched on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request. The reply is lost; the request can be sent again.
    pub async fn create_streamed(&self, request: &MessageRequest) -> Result<Message> {
        self.collect(request, |_| ready(())).await.map(|(message, _)| message)
    }

    async fn collect<N: Future<Output = ()>>(
        &self,
        request: &MessageRequest,
        on_retry: impl Fn(Retry) -> N,
    ) -> Result<(Message, Option<Rest>)> {
        let call = &self.call(request, Mode::Streamed)?;
        let attempt = |attempt| async move { MessageStream::open(call, attempt).await?.finish().await };
        let reply = call.run_with(attempt, on_retry).await?;
        telemetry::replied(call.span(), &reply.0);
        Ok(reply)
    }

    /// [`create`](Self::create), by a stream where the reply may take too long without one.
    pub(crate) async fn create_for_run<N: Future<Output = ()>>(
        &self,
        request: &MessageRequest,
        on_retry: impl Fn(Retry) -> N,
    ) -> Result<(Message, Option<Rest>)> {
        match self.is_too_long_to_be_silent(request) {
            true => self.collect(request, on_retry).await,
            false => Ok((self.create_plain(request, on_retry).await?, None)),
        }
    }

    /// [`create_streamed`](Self::create_streamed) with the events told as they come. A stream that
    /// broke after its first event is started again only if `restarts` says so.
    pub(crate) async fn create_observed<E, N>(
        &self,
        request: &MessageRequest,
        restarts: bool,
        on_event: impl Fn(StreamEvent) -> E,
        on_retry: impl Fn(Retry) -> N,
    ) -> Result<(Message, Option<Rest>)>
    where
        E: Future<Output = ()>,
        N: Future<Output = ()>,
    {
        let call = &self.call(request, Mode::Streamed)?;
        let on_event = &on_event;
        let attempt = |attempt| async move {
            let mut stream = MessageStream::open(call, attempt).await?;
            while let Some(event) = stream.next().await {
                match event {
                    Ok(event) => on_event(event).await,
                    Err(error) if restarts => return Err(error),
                    // Events come before errors: something was delivered.
                    Err(error) => return Err(error.with_delivered()),
                }
            }
            stream.finish().await
        };
        let reply = call.run_with(attempt, on_retry).await?;
        telemetry::replied(call.span(), &reply.0);
        Ok(reply)
    }

    fn call(&self, request: &MessageRequest, mode: Mode) -> Result<Call> {
        request.check()?;
        Call::new(self, &MESSAGES, request, request.segments_with(&self.inner.defaults, mode)?)
    }

    fn total_limit(&self, request: &MessageRequest) -> Option<Duration> {
        request.options().timeout.or(self.inner.timeout)
    }

    fn is_too_long_to_be_silent(&self, request: &MessageRequest) -> bool {
        request.max_tokens_or(&self.inner.defaults) > MAX_PLAIN_TOKENS
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
            .field("free_slots", &inner.slots.as_ref().map(|slots| slots.available_permits()))
            .field("cool_downs", &inner.cool_downs)
            .field("connect_timeout", &inner.connect_timeout)
            .field("idle_timeout", &inner.idle_timeout)
            .field("timeout", &inner.timeout)
            .field("max_event_bytes", &inner.max_event_bytes)
            .field("max_response_bytes", &inner.max_response_bytes)
            .finish_non_exhaustive()
    }
}

/// What of the API a call goes to.
pub(crate) struct Endpoint {
    /// Begins with `/v1/`.
    pub(crate) path: &'static str,
    /// What traces call the operation.
    pub(crate) operation: &'static str,
}

const MESSAGES: Endpoint = Endpoint { path: "/v1/messages", operation: "chat" };

/// What a model writes in ten minutes at the pace that the API documents: 128,000 tokens an hour.
const MAX_PLAIN_TOKENS: u64 = 21_333;
