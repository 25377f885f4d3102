//! The body of a request, and what goes with it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::value::RawValue;

use super::conversation::Conversation;
use super::facts::{Facts, Role};
use super::json::{self, Fields};
use super::message::Message;
use super::options::{CallOptions, RequestDefaults};
use super::param::{IntoContent, MessageParam};
use super::tools::{Effort, ToolChoice};
use crate::error::{Error, Result};

/// The body of `POST /v1/messages`, with the headers and limits of the call.
///
/// Setters take the request and give it back, and never fail: the first error is kept, changes
/// nothing, and is returned by [`check`](Self::check) and by every call that would send the
/// request, before anything is sent.
///
/// A request without a model, made from text alone, takes model and `max_tokens` from the client.
///
/// ```
/// use agentloop::MessageRequest;
///
/// let request = MessageRequest::new("claude-opus-5-5", 16_000)
///     .system("Answer in one sentence.")
///     .user("Why is the sky blue?")
///     .set("service_tier", "standard_only");
/// assert!(request.check().is_ok());
/// assert!(request.user(" ").check().is_err());
/// ```
#[derive(Clone, Default)]
#[must_use = "a request does nothing until a client or a runner sends it"]
pub struct MessageRequest {
    /// The fields of the body in the order in which they were set, but for those below.
    fields: Vec<(Box<str>, Box<RawValue>)>,
    tools: Vec<Box<RawValue>>,
    /// The runner's definitions, separated by commas, while a run goes on. They stand behind the
    /// caller's own on the wire.
    runner_tools: Option<Arc<str>>,
    container: Option<Box<RawValue>>,
    /// The id of the container that a run got from the server.
    carried_container: Option<Box<str>>,
    conversation: Conversation,
    options: CallOptions,
    error: Option<Error>,
}

/// What is asked of the API.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// How many tokens the input has.
    Counted,
    /// A reply as a whole.
    Plain,
    /// A reply as events.
    Streamed,
}

impl Mode {
    fn takes(self, field: &str) -> bool {
        !(matches!(self, Self::Counted) && REPLY_FIELDS.contains(&field))
    }
}

impl MessageRequest {
    /// A request for a model, with the limit of output tokens (thinking included).
    pub fn new(model: impl Into<String>, max_tokens: u64) -> Self {
        Self::default().set("model", model.into()).set("max_tokens", max_tokens)
    }

    /// A request of one user message, with the client's model and `max_tokens`.
    pub fn prompt(text: impl IntoContent) -> Self {
        Self::default().user(text)
    }

    /// Any field of the body, known here or not. `tools` replaces the definitions set so far, a
    /// `container` of null also drops one that a run got from the server; `messages` and `stream`
    /// have their own ways and are refused.
    pub fn set(self, field: &str, value: impl Serialize) -> Self {
        match serde_json::value::to_raw_value(&value) {
            Ok(value) => self.set_raw(field, value),
            Err(error) => {
                self.fail(Error::request(format!("`{field}` can't be written as JSON")).with_source(error))
            }
        }
    }

    fn set_raw(mut self, field: &str, value: Box<RawValue>) -> Self {
        match field {
            "messages" => {
                return self
                    .fail(Error::request("`messages` is set with `conversation`, `user` or `message`"));
            }
            "stream" => {
                return self.fail(Error::request("`stream` is set by the call that sends the request"));
            }
            "tools" => match json::items(value.get()) {
                Some(items) if items.iter().all(|item| json::is_object(item)) => {
                    self.tools = items.into_iter().map(ToOwned::to_owned).collect();
                }
                _ => return self.fail(Error::request("`tools` must be a list of objects")),
            },
            "container" => {
                if json::is_null(&value) {
                    self.carried_container = None;
                }
                self.container = Some(value);
            }
            _ => match self.fields.iter_mut().find(|(name, _)| &**name == field) {
                Some((_, old)) => *old = value,
                None => self.fields.push((field.into(), value)),
            },
        }
        self
    }

    /// Keeps the first error.
    fn fail(mut self, error: Error) -> Self {
        self.error.get_or_insert(error);
        self
    }

    /// The model. Any name is taken.
    pub fn model(self, model: impl Into<String>) -> Self {
        self.set("model", model.into())
    }

    /// The limit of output tokens, thinking included.
    pub fn max_tokens(self, max_tokens: u64) -> Self {
        self.set("max_tokens", max_tokens)
    }

    /// The system prompt. It must stay the same through a conversation: newer models bind their
    /// thinking to it.
    pub fn system(self, content: impl IntoContent) -> Self {
        let content = content.into_json();
        match Facts::find(Role::System, &content, false).flaw {
            Some(flaw) => self.fail(Error::request(format!("the system prompt can't be sent: {flaw}"))),
            None => self.set_raw("system", content),
        }
    }

    /// Adds a user message, as [`Conversation::push`] does.
    pub fn user(self, content: impl IntoContent) -> Self {
        self.push(MessageParam::user(content))
    }

    /// Adds an assistant message that the caller makes up.
    pub fn assistant(self, content: impl IntoContent) -> Self {
        self.push(MessageParam::assistant(content))
    }

    /// Adds a message.
    pub fn message(self, message: MessageParam) -> Self {
        self.push(Ok(message))
    }

    fn push(mut self, message: Result<MessageParam>) -> Self {
        match message.and_then(|message| self.conversation.push(message)) {
            Ok(()) => self,
            Err(error) => self.fail(error),
        }
    }

    /// Replaces the conversation.
    pub fn conversation(mut self, conversation: Conversation) -> Self {
        self.conversation = conversation;
        self
    }

    /// Adds an entry of `tools` that goes to the API as it is: a server tool, for instance. A
    /// tool with a handler belongs to the runner.
    pub fn tool(mut self, definition: impl Serialize) -> Self {
        match serde_json::value::to_raw_value(&definition) {
            Ok(definition) if json::is_object(&definition) => {
                self.tools.push(definition);
                self
            }
            Ok(_) => self.fail(Error::request("a tool definition must be a JSON object")),
            Err(error) => {
                self.fail(Error::request("a tool definition can't be written as JSON").with_source(error))
            }
        }
    }

    /// Which tools the model may call.
    pub fn tool_choice(self, choice: ToolChoice) -> Self {
        self.set("tool_choice", choice)
    }

    /// The `thinking` object, `{"type":"adaptive"}` for instance. What a model takes is in the
    /// API's documentation.
    pub fn thinking(self, thinking: impl Serialize) -> Self {
        self.set("thinking", thinking)
    }

    /// How hard the model works: `output_config.effort`.
    pub fn effort(self, effort: impl Into<Effort>) -> Self {
        let old = self.field("output_config").map_or("{}", RawValue::get);
        let config = json::with_field(old, "effort", json::to_raw(&effort.into()).get());
        self.set_raw("output_config", config)
    }

    /// Strings at which the model stops.
    pub fn stop_sequences<S: Into<String>>(self, sequences: impl IntoIterator<Item = S>) -> Self {
        let sequences: Vec<String> = sequences.into_iter().map(Into::into).collect();
        self.set("stop_sequences", sequences)
    }

    /// Lets the API cache the request up to its last block: the top-level `cache_control`.
    pub fn cached(self) -> Self {
        let mark = json::with_field("{}", "type", "\"ephemeral\"");
        self.set_raw("cache_control", mark)
    }

    /// Adds a value of the `anthropic-beta` header.
    pub fn beta(mut self, beta: impl Into<String>) -> Self {
        let beta = beta.into();
        if HeaderValue::from_str(&beta).is_err() || beta.trim().is_empty() {
            return self.fail(Error::request("a beta is blank, or holds characters that no header may hold"));
        }
        if !self.options.betas.contains(&beta) {
            self.options.betas.push(beta);
        }
        self
    }

    /// Adds a header, in place of the client's of the same name. The value is treated as a
    /// secret and never printed.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) else {
            return self.fail(Error::request(format!("the header `{}` can't be sent", name.escape_debug())));
        };
        value.set_sensitive(true);
        self.options.headers.retain(|(other, _)| *other != name);
        self.options.headers.push((name, value));
        self
    }

    /// A limit for the whole call, retries and waits included. None by default.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// How long a call may make no progress, in place of the client's limit.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.options.idle_timeout = Some(limit);
        self
    }

    /// How often the call is tried again, in place of the client's number.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.options.max_retries = Some(retries);
        self
    }

    /// Returns the first error of a setter.
    ///
    /// # Errors
    /// The first call of a setter that was refused.
    pub fn check(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// The messages.
    #[must_use]
    pub fn messages(&self) -> &Conversation {
        &self.conversation
    }

    /// The messages, taken out of the request.
    #[must_use]
    pub fn into_conversation(self) -> Conversation {
        self.conversation
    }

    /// The JSON text of a field that was set; `tools` and `messages` are not among them.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&str> {
        self.field(field).map(RawValue::get)
    }

    fn field(&self, name: &str) -> Option<&RawValue> {
        if name == "container" {
            return self.container.as_deref();
        }
        self.fields.iter().find(|(field, _)| &**field == name).map(|(_, value)| &**value)
    }

    /// The values for the `anthropic-beta` header, for a driver with an HTTP stack of its own.
    #[must_use]
    pub fn betas(&self) -> &[String] {
        &self.options.betas
    }

    /// The headers that were set, for a driver with an HTTP stack of its own. Values are marked
    /// as sensitive.
    pub fn headers(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.options.headers.iter().map(|(name, value)| (name, value))
    }

    /// The caller's own tool definitions.
    pub(crate) fn tools(&self) -> &[Box<RawValue>] {
        &self.tools
    }

    pub(crate) fn options(&self) -> &CallOptions {
        &self.options
    }

    pub(crate) fn model_or(&self, defaults: &RequestDefaults) -> String {
        let model = self.field("model").and_then(json::string);
        model.map_or_else(|| defaults.model.clone(), Cow::into_owned)
    }

    pub(crate) fn max_tokens_or(&self, defaults: &RequestDefaults) -> u64 {
        self.field("max_tokens").and_then(|value| value.get().parse().ok()).unwrap_or(defaults.max_tokens)
    }

    pub(crate) fn conversation_mut(&mut self) -> &mut Conversation {
        &mut self.conversation
    }

    pub(crate) fn set_runner_tools(&mut self, tools: Option<Arc<str>>) {
        self.runner_tools = tools;
    }

    /// Drops the kept error: what the setters refused is not in the request.
    pub(crate) fn forgive(&mut self) {
        self.error = None;
    }

    /// Takes the container of a reply over. An id that the caller set himself stays; that of an
    /// earlier reply is replaced, and the caller's `skills` stay beside it.
    pub(crate) fn carry_container(&mut self, reply: &Message) {
        if let Some(container) = reply.container() {
            self.carried_container = Some(container.id.as_str().into());
        }
    }

    fn container(&self) -> Option<Box<RawValue>> {
        let own = self.container.as_deref().filter(|own| !json::is_null(own));
        let Some(carried) = &self.carried_container else { return own.map(ToOwned::to_owned) };
        let id = json::to_raw(&**carried);
        match own {
            None => Some(id),
            Some(own) => match Fields::parse(own.get()) {
                Some(fields) if fields.get("id").is_none_or(json::is_null) => {
                    Some(json::with_field(own.get(), "id", id.get()))
                }
                _ => Some(own.to_owned()),
            },
        }
    }

    /// The JSON body as segments, to be sent one behind the other: for a driver with an HTTP
    /// stack of its own. The messages are shared with the request and not copied, but for the
    /// last 64 KiB; a model and `max_tokens` that were not set are [`DEFAULT_MODEL`] and
    /// [`DEFAULT_MAX_TOKENS`].
    ///
    /// # Errors
    /// The first call of a setter that was refused.
    ///
    /// ```
    /// use agentloop::MessageRequest;
    ///
    /// let body = MessageRequest::new("m", 100).user("Hi").segments()?.concat();
    /// assert_eq!(body, br#"{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"Hi"}]}"#);
    /// # Ok::<(), agentloop::Error>(())
    /// ```
    ///
    /// [`DEFAULT_MODEL`]: crate::client::DEFAULT_MODEL
    /// [`DEFAULT_MAX_TOKENS`]: crate::client::DEFAULT_MAX_TOKENS
    pub fn segments(&self) -> Result<Vec<Bytes>> {
        self.segments_with(&RequestDefaults::default(), Mode::Plain)
    }

    pub(crate) fn segments_with(&self, defaults: &RequestDefaults, mode: Mode) -> Result<Vec<Bytes>> {
        self.check()?;
        let tail = match mode {
            Mode::Counted | Mode::Plain => "]}",
            Mode::Streamed => "],\"stream\":true}",
        };
        Ok(self.conversation.segments(self.head(defaults, mode), tail))
    }

    /// Everything before the messages.
    fn head(&self, defaults: &RequestDefaults, mode: Mode) -> String {
        let mut head = String::from("{");
        let mut put = |name: &str, value: &str| {
            if !mode.takes(name) {
                return;
            }
            head.push_str(json::to_raw(name).get());
            head.push(':');
            head.push_str(value);
            head.push(',');
        };
        if self.field("model").is_none() {
            put("model", json::to_raw(&defaults.model).get());
        }
        if self.field("max_tokens").is_none() {
            put("max_tokens", &defaults.max_tokens.to_string());
        }
        for (name, value) in &self.fields {
            put(name, value.get());
        }
        if let Some(container) = self.container() {
            put("container", container.get());
        }
        let own = self.tools.iter().map(|tool| tool.get());
        let tools: Vec<_> = own.chain(self.runner_tools.as_deref()).collect();
        if !tools.is_empty() {
            put("tools", &format!("[{}]", tools.join(",")));
        }
        head.push_str("\"messages\":[");
        head
    }
}

impl From<&str> for MessageRequest {
    fn from(text: &str) -> Self {
        Self::prompt(text)
    }
}

impl From<String> for MessageRequest {
    fn from(text: String) -> Self {
        Self::prompt(text)
    }
}

impl From<Conversation> for MessageRequest {
    fn from(conversation: Conversation) -> Self {
        Self::default().conversation(conversation)
    }
}

/// The known fields that say what to do with the input and are no part of it. The endpoint that
/// counts tokens refuses them; a field that is not known is left to the API.
const REPLY_FIELDS: [&str; 11] = [
    "billing_policy",
    "container",
    "diagnostics",
    "fallback_credit_token",
    "fallbacks",
    "inference_geo",
    "max_tokens",
    "metadata",
    "service_tier",
    "stop_sequences",
    "thread",
];

/// Names and counts: a request is somebody's words.
impl fmt::Debug for MessageRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<_> = self.fields.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("MessageRequest")
            .field("model", &self.get("model"))
            .field("max_tokens", &self.get("max_tokens"))
            .field("fields", &fields)
            .field("tools", &self.tools.len())
            .field("conversation", &self.conversation)
            .field("options", &self.options)
            .field("error", &self.error)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_request_shares_the_messages_of_the_one_that_is_sent() {
        let mut request = MessageRequest::new("m", 100);
        for _ in 0..40 {
            request = request.user("x".repeat(10_000));
        }
        let all = |mode| request.segments_with(&RequestDefaults::default(), mode).unwrap();
        let (counted, plain) = (all(Mode::Counted), all(Mode::Plain));
        assert_eq!(counted.len(), plain.len());
        let shared = counted.iter().zip(&plain).filter(|(one, two)| one.as_ptr() == two.as_ptr());
        let bytes: usize = shared.map(|(one, _)| one.len()).sum();
        assert!(bytes > 300_000, "only {bytes} bytes are shared");
        assert!(counted.concat().starts_with(br#"{"model":"m","messages":[{"#));
    }
}
