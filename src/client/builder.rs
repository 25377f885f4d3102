//! How a client is made.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue, USER_AGENT};
use tokio::sync::Semaphore;

use super::auth::Auth;
use super::base_url::BaseUrl;
use super::cool_down::CoolDowns;
use super::credential::Credentials;
use super::handle::{Client, Inner};
use super::headers::{self, ClientHeaders};
use super::http_client::Connections;
use super::response::DEFAULT_MAX_RESPONSE;
use super::retry::RetryPolicy;
use crate::error::{Error, ErrorKind, Result};
use crate::messages::options::{DEFAULT_MAX_TOKENS, DEFAULT_MODEL, RequestDefaults};
use crate::sse;

/// Makes a [`Client`].
///
/// Setters never fail; [`build`](Self::build) reports what is wrong. Nothing is read from the
/// environment unless the builder comes from [`from_env`](Self::from_env), and what a setter says
/// wins over the environment. `Debug` shows no credential and no header value.
///
/// ```
/// use std::time::Duration;
///
/// use agentloop::Client;
///
/// let client = Client::builder()
///     .api_key("a-key")
///     .base_url("http://127.0.0.1:8080")
///     .max_retries(4)
///     .idle_timeout(Duration::from_secs(120))
///     .build()?;
/// # Ok::<(), agentloop::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder {
    auth: Option<Setting<Auth>>,
    base_url: Setting<String>,
    model: Setting<String>,
    max_tokens: u64,
    api_version: String,
    user_agent: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    betas: Vec<String>,
    retry: RetryPolicy,
    shared_cool_down: bool,
    max_in_flight: Option<usize>,
    connections: Connections,
    idle_timeout: Duration,
    timeout: Option<Duration>,
    max_event_bytes: usize,
    max_response_bytes: usize,
    http: Option<reqwest::Client>,
    /// The first header that could not be made.
    invalid: Option<Error>,
}

/// A value and where it came from, for the error that it may cause.
#[derive(Clone)]
struct Setting<T> {
    origin: &'static str,
    value: Result<T>,
}

impl<T> Setting<T> {
    fn new(origin: &'static str, value: T) -> Self {
        Self { origin, value: Ok(value) }
    }

    fn map<U>(self, change: impl FnOnce(T) -> U) -> Setting<U> {
        Setting { origin: self.origin, value: self.value.map(change) }
    }
}

impl ClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            auth: None,
            base_url: Setting::new("`base_url`", DEFAULT_BASE_URL.to_owned()),
            model: Setting::new("`default_model`", DEFAULT_MODEL.to_owned()),
            max_tokens: DEFAULT_MAX_TOKENS,
            api_version: DEFAULT_API_VERSION.to_owned(),
            user_agent: concat!("agentloop/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: Vec::new(),
            betas: Vec::new(),
            retry: RetryPolicy { max_retries: 2, longest_wait: Duration::from_secs(60) },
            shared_cool_down: true,
            max_in_flight: None,
            connections: Connections {
                connect_timeout: Duration::from_secs(5),
                no_proxy: false,
                proxy: None,
                roots: Vec::new(),
                identity: None,
            },
            idle_timeout: Duration::from_secs(600),
            timeout: None,
            max_event_bytes: sse::DEFAULT_CAP,
            max_response_bytes: DEFAULT_MAX_RESPONSE,
            http: None,
            invalid: None,
        }
    }

    /// A builder that starts from the environment.
    ///
    /// | variable | is |
    /// | --- | --- |
    /// | `ANTHROPIC_API_KEY` | [`api_key`](Self::api_key) |
    /// | `ANTHROPIC_AUTH_TOKEN` | [`auth_token`](Self::auth_token), if there is no key |
    /// | `ANTHROPIC_BASE_URL` | [`base_url`](Self::base_url) |
    /// | `ANTHROPIC_MODEL` | [`default_model`](Self::default_model) |
    ///
    /// A variable that is empty or blank counts as not set. Setters called afterwards win.
    pub fn from_env() -> Self {
        Self::from_vars(|name| env::var_os(name))
    }

    pub(crate) fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Self {
        let read = |name: &str, origin: &'static str| {
            let value = match var(name)?.into_string() {
                Ok(value) if value.trim().is_empty() => return None,
                Ok(value) => Ok(value),
                Err(_) => Err(Error::config(format!("{origin} is not valid Unicode"))),
            };
            Some(Setting { origin, value })
        };
        let key = read("ANTHROPIC_API_KEY", "`ANTHROPIC_API_KEY`");
        let token = read("ANTHROPIC_AUTH_TOKEN", "`ANTHROPIC_AUTH_TOKEN`");
        if key.is_some() && token.is_some() {
            tracing::warn!("both ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN are set: the key is used");
        }
        let mut builder = Self::new();
        builder.auth =
            key.map(|key| key.map(Auth::ApiKey)).or_else(|| token.map(|token| token.map(Auth::Bearer)));
        if let Some(base_url) = read("ANTHROPIC_BASE_URL", "`ANTHROPIC_BASE_URL`") {
            builder.base_url = base_url;
        }
        if let Some(model) = read("ANTHROPIC_MODEL", "`ANTHROPIC_MODEL`") {
            builder.model = model;
        }
        builder
    }

    /// The credential.
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = Some(Setting::new("`auth`", auth));
        self
    }

    /// An API key: short for [`auth`](Self::auth) with [`Auth::ApiKey`].
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.auth = Some(Setting::new("`api_key`", Auth::ApiKey(key.into())));
        self
    }

    /// An API key from an environment variable of your own choice, read now. That it is missing or
    /// blank is an error of [`build`](Self::build).
    pub fn api_key_from(mut self, variable: &str) -> Self {
        // A key in place of the name is an easy slip, and must not show.
        let is_name = variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let name = if is_name { format!("`{variable}`") } else { "(whose name is none)".to_owned() };
        let missing = |why: &str| Error::config(format!("the variable {name} of `api_key_from` {why}"));
        let value = match env::var(variable) {
            Ok(key) if key.trim().is_empty() => Err(missing("is blank")),
            Ok(key) => Ok(Auth::ApiKey(key)),
            Err(env::VarError::NotPresent) => Err(missing("is not set")),
            Err(env::VarError::NotUnicode(_)) => Err(missing("is not valid Unicode")),
        };
        self.auth = Some(Setting { origin: "`api_key_from`", value });
        self
    }

    /// A bearer token: short for [`auth`](Self::auth) with [`Auth::Bearer`].
    pub fn auth_token(mut self, token: impl Into<String>) -> Self {
        self.auth = Some(Setting::new("`auth_token`", Auth::Bearer(token.into())));
        self
    }

    /// Where the API is, `https://api.anthropic.com` by default.
    ///
    /// A path prefix and a query are kept, and a `/v1` at the end is the API's own: `http://h`,
    /// `http://h/` and `http://h/v1/` are the same.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Setting::new("`base_url`", url.into());
        self
    }

    /// The value of `anthropic-version`, `2026-10-21` by default.
    pub fn api_version(mut self, version: impl Into<String>) -> Self {
        self.api_version = version.into();
        self
    }

    /// The value of `user-agent`.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// A header for every request; a request's own header of the same name replaces it.
    ///
    /// Of several values for one name the last counts, except for `anthropic-beta`, whose values
    /// are joined with those of [`beta`](Self::beta). An `x-api-key` or `authorization` replaces
    /// the credential of [`auth`](Self::auth).
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName>,
        V: TryInto<HeaderValue>,
    {
        match headers::pair(name, value, ErrorKind::Config) {
            Ok(pair) => self.headers.push(pair),
            Err(error) => {
                self.invalid.get_or_insert(error);
            }
        }
        self
    }

    /// A beta for every request.
    ///
    /// `anthropic-beta` is one header: the client's betas, then the request's, then what raw
    /// `anthropic-beta` headers name, each once.
    pub fn beta(mut self, beta: impl Into<String>) -> Self {
        self.betas.push(beta.into());
        self
    }

    /// The model of requests that name none, [`DEFAULT_MODEL`] unless it is set.
    pub fn default_model(mut self, model: impl Into<String>) -> Self {
        self.model = Setting::new("`default_model`", model.into());
        self
    }

    /// `max_tokens` of requests that set none, [`DEFAULT_MAX_TOKENS`] unless it is set.
    pub fn default_max_tokens(mut self, max_tokens: u64) -> Self {
        self.max_tokens = max_tokens;
        self
    }

    /// How often a failed request is sent again, twice by default; 0 turns retries off.
    ///
    /// [`ErrorKind`] says which failures are retried.
    pub fn max_retries(mut self, max_retries: u32) -> Self {
        self.retry.max_retries = max_retries;
        self
    }

    /// The longest wait that is taken over from the server, 60 seconds by default.
    ///
    /// A wait is never shortened: if the server asks for a longer one, the error is returned at
    /// once and [`Error::retry_after`] tells the wait.
    pub fn max_retry_wait(mut self, longest: Duration) -> Self {
        self.retry.longest_wait = longest;
        self
    }

    /// The limit for making a connection, 5 seconds by default.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connections.connect_timeout = limit;
        self
    }

    /// The limit for each phase without progress, 600 seconds by default.
    ///
    /// It counts while the request body goes out (each piece that the connection takes is
    /// progress), while waiting for the response's headers, and between two reads of its body; and
    /// before that while waiting for a place ([`max_in_flight`](Self::max_in_flight)) and for the
    /// provider of a credential.
    /// Models that think for long send nothing for minutes. `Duration::MAX` is no limit.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// The limit of a call as a whole, all attempts and waits included; none by default.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// The longest event that a stream may bring, in bytes; 64 MiB by default. Whole results of
    /// the API's own tools come in one event.
    ///
    /// A longer one is an error of [`ErrorKind::TooLarge`].
    pub fn max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// The longest reply that is taken in, in bytes; 256 MiB by default.
    ///
    /// It counts the body of a plain response, and what is kept of a stream: its content, and
    /// something for each block. A longer one is an error of [`ErrorKind::TooLarge`], and what is
    /// left of it is not read.
    ///
    /// ```
    /// use agentloop::{Client, ErrorKind};
    ///
    /// let builder = Client::builder().api_key("a-key").base_url("http://127.0.0.1:8080");
    /// assert!(builder.clone().max_response_bytes(1024 * 1024).build().is_ok());
    /// let error = builder.max_response_bytes(0).build().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Config);
    /// ```
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.max_response_bytes = bytes;
        self
    }

    /// Uses no proxy, whatever the environment or an earlier [`proxy`](Self::proxy) says.
    ///
    /// By default `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` (SOCKS included) and `NO_PROXY` count.
    pub fn no_proxy(mut self) -> Self {
        self.connections.no_proxy = true;
        self.connections.proxy = None;
        self
    }

    /// Sends all requests through a proxy, whatever the environment says, `NO_PROXY` included.
    ///
    /// The URL begins with `http://`, `https://`, `socks4://`, `socks5://` or `socks5h://` (names
    /// are looked up by the proxy) and may hold a user and a password, which never show.
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.connections.proxy = Some(url.into());
        self.connections.no_proxy = false;
        self
    }

    /// Trusts the certificates of a PEM bundle too, beside those of the platform: for a gateway with
    /// an authority of its own. It can be called for each of several bundles.
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.connections.roots.push(pem.into());
        self
    }

    /// Shows the server a certificate: its chain and its private key (PKCS#8), both in PEM.
    pub fn client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.connections.identity = Some((chain.into(), key.into()));
        self
    }

    /// The largest number of requests that are under way at the same time, for all clones of the
    /// client together; no limit by default.
    ///
    /// A request has a place from the moment it goes out until its reply is complete, a stream until
    /// it ends, fails or is dropped. It has none between its attempts, and a run has none while its
    /// tools run, so that tools can use the same client. Who sends another request while reading a
    /// [stream](Client::stream) needs a second place. Waiting for a place longer than the idle limit
    /// is an error ([`TimeoutPhase::Slot`](crate::client::TimeoutPhase::Slot)).
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.max_in_flight = Some(requests);
        self
    }

    /// Whether a rate limit (429) that one call meets holds back the others for the same model; on
    /// by default. Counting tokens has limits of its own, and holds back no replies.
    ///
    /// They wait as long as the server told that call to wait, do not spend an attempt, and then go
    /// out one after another: one at once, and twice as many with each quarter of that wait, half a
    /// second at most; the next rate limit begins the queue anew. A call that would have to wait
    /// longer than [`max_retry_wait`](Self::max_retry_wait) ends in the error that it would wait for.
    /// A wait of the server above that and a spend limit hold nobody back.
    pub fn shared_cool_down(mut self, shared: bool) -> Self {
        self.shared_cool_down = shared;
        self
    }

    /// Sends through an HTTP client of your own, with its TLS, proxies and pool.
    ///
    /// [`connect_timeout`](Self::connect_timeout) and [`no_proxy`](Self::no_proxy) do nothing
    /// then, [`proxy`](Self::proxy) and certificates are an error, and what your client does on its
    /// own this crate can't see:
    ///
    /// - it follows redirects unless built with `redirect(Policy::none())`, and then sends
    ///   `x-api-key` and your own headers to the new host;
    /// - it may retry by itself (`retry(reqwest::retry::never())` turns that off), on top of
    ///   [`max_retries`](Self::max_retries);
    /// - its `timeout` ends healthy long replies, and its `read_timeout` fails a stream whose
    ///   reader paused;
    /// - with a decompression feature on it asks for compressed replies, which may arrive late;
    /// - its default headers are sent too, where this crate sets none of that name.
    pub fn http_client(mut self, http: reqwest::Client) -> Self {
        self.http = Some(http);
        self
    }

    /// Makes the client. No request is sent.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if there is no credential, if a credential, URL, header or limit is
    /// not valid, or if TLS can't be set up. The error names the setter or the variable and never
    /// the value.
    pub fn build(self) -> Result<Client> {
        if let Some(error) = self.invalid {
            return Err(error);
        }
        for (limit, setter) in [
            (Some(self.connections.connect_timeout), "connect_timeout"),
            (Some(self.idle_timeout), "idle_timeout"),
            (self.timeout, "timeout"),
        ] {
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Err(Error::config(format!("`{setter}` is zero: nothing could be sent in no time")));
            }
        }
        if self.max_event_bytes == 0 {
            return Err(Error::config("`max_event_bytes` is zero: no event could be read"));
        }
        if self.max_response_bytes == 0 {
            return Err(Error::config("`max_response_bytes` is zero: no reply could be read"));
        }
        if self.max_in_flight == Some(0) {
            return Err(Error::config("`max_in_flight` is zero: no request could be sent"));
        }
        let base_url = BaseUrl::parse(&self.base_url.value?, self.base_url.origin)?;
        let model = self.model.value?;
        if model.trim().is_empty() {
            return Err(Error::config(format!("the model of {} is empty", self.model.origin)));
        }

        let mut own = vec![
            (USER_AGENT, plain_value(&self.user_agent, "user_agent")?),
            (HeaderName::from_static("anthropic-version"), plain_value(&self.api_version, "api_version")?),
        ];
        let auth = match self.auth {
            Some(auth) => {
                let value = auth.value?;
                own.extend(value.header(auth.origin)?);
                Some(value)
            }
            None => None,
        };
        let headers = ClientHeaders::new(own, &self.headers, self.betas)?;
        let credentials = match &auth {
            Some(Auth::Provider(provider)) => Some(Credentials::new(provider.clone())),
            _ => None,
        };
        if auth.is_none() && !headers.has_credential() {
            return Err(Error::config(
                "no credential: set `ANTHROPIC_API_KEY` or `ANTHROPIC_AUTH_TOKEN` and use `from_env`, \
                 call `api_key` or `auth_token`, or say that none is needed with `Auth::None`",
            ));
        }

        // A client from elsewhere has a limit of its own, which can't be read.
        let connect_timeout = self.http.is_none().then_some(self.connections.connect_timeout);
        let proxy_secrets = self.connections.proxy_secrets().into();
        let http = match (self.http, self.connections.setter_in_vain()) {
            (None, _) => self.connections.build(&base_url, self.base_url.origin)?,
            (Some(http), None) => http,
            (Some(_), Some(setter)) => {
                return Err(Error::config(format!(
                    "`{setter}` does nothing beside `http_client`: set it on that client"
                )));
            }
        };
        Ok(Client {
            inner: Arc::new(Inner {
                http,
                proxy_secrets,
                base_url,
                auth: auth.unwrap_or(Auth::None),
                credentials,
                headers,
                defaults: RequestDefaults { model: model.trim().to_owned(), max_tokens: self.max_tokens },
                retry: self.retry,
                slots: self
                    .max_in_flight
                    .map(|most| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))),
                cool_downs: self.shared_cool_down.then(CoolDowns::default),
                connect_timeout,
                idle_timeout: self.idle_timeout,
                timeout: self.timeout,
                max_event_bytes: self.max_event_bytes,
                max_response_bytes: self.max_response_bytes,
            }),
        })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("auth", &self.auth.as_ref().map(|auth| (auth.origin, auth.value.as_ref().ok())))
            .field("base_url", &self.base_url.origin)
            .field("default_model", &self.model.value.as_ref().ok())
            .field("default_max_tokens", &self.max_tokens)
            .field("api_version", &self.api_version)
            .field("headers", &headers::Names(&self.headers))
            .field("betas", &self.betas)
            .field("retry", &self.retry)
            .field("shared_cool_down", &self.shared_cool_down)
            .field("max_in_flight", &self.max_in_flight)
            .field("connect_timeout", &self.connections.connect_timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("timeout", &self.timeout)
            .field("max_event_bytes", &self.max_event_bytes)
            .field("max_response_bytes", &self.max_response_bytes)
            .field("no_proxy", &self.connections.no_proxy)
            .field("proxy", &self.connections.proxy.as_ref().map(|_| ".."))
            .field("root_certificates", &self.connections.roots.len())
            .field("client_certificate", &self.connections.identity.as_ref().map(|_| ".."))
            .field("http_client", &self.http.as_ref().map(|_| ".."))
            .finish_non_exhaustive()
    }
}

fn plain_value(text: &str, setter: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text.trim()).ok().filter(|value| !value.is_empty()).ok_or_else(|| {
        Error::config(format!("`{setter}` is empty or holds a character that no header may hold"))
    })
}

const DEFAULT_BASE_URL: &str = "https://api.anthropic.com";
const DEFAULT_API_VERSION: &str = "2026-10-21";

#[cfg(test)]
mod tests {
    use super::*;

    fn from(vars: &'static [(&'static str, &'static str)]) -> ClientBuilder {
        ClientBuilder::from_vars(|name| {
            vars.iter().find(|(given, _)| *given == name).map(|(_, value)| OsString::from(value))
        })
    }

    /// The headers of a client that carry a credential.
    fn credential(client: &Client) -> Vec<(String, String)> {
        let map = client.inner.headers.for_call(&crate::messages::options::CallOptions::default()).unwrap();
        ["x-api-key", "authorization"]
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), map.get(*name)?.to_str().unwrap().to_owned())))
            .collect()
    }

    fn endpoint(client: &Client) -> String {
        client.inner.base_url.endpoint("/v1/messages").into()
    }

    #[test]
    fn the_environment_seeds_and_setters_win() {
        const ALL: &[(&str, &str)] = &[
            ("ANTHROPIC_API_KEY", " env-key\n"),
            ("ANTHROPIC_AUTH_TOKEN", "env-token"),
            ("ANTHROPIC_BASE_URL", "http://env/v1/"),
            ("ANTHROPIC_MODEL", "env-model"),
        ];
        let client = from(ALL).build().unwrap();
        assert_eq!(credential(&client), [("x-api-key".into(), "env-key".into())]);
        assert_eq!(endpoint(&client), "http://env/v1/messages");
        assert_eq!(client.inner.defaults.model, "env-model");

        let client = from(ALL)
            .auth_token("mine")
            .base_url("http://mine")
            .default_model("my-model")
            .default_max_tokens(7)
            .build()
            .unwrap();
        assert_eq!(credential(&client), [("authorization".into(), "Bearer mine".into())]);
        assert_eq!(endpoint(&client), "http://mine/v1/messages");
        assert_eq!(client.inner.defaults, RequestDefaults { model: "my-model".into(), max_tokens: 7 });

        let client = from(ALL).auth(Auth::None).build().unwrap();
        assert_eq!(credential(&client), []);
    }

    #[test]
    fn blank_variables_are_not_set() {
        let client = from(&[
            ("ANTHROPIC_API_KEY", " \n"),
            ("ANTHROPIC_AUTH_TOKEN", "token"),
            ("ANTHROPIC_BASE_URL", ""),
            ("ANTHROPIC_MODEL", "  "),
        ])
        .no_proxy()
        .http_client(reqwest::Client::new())
        .build()
        .unwrap();
        assert_eq!(credential(&client), [("authorization".into(), "Bearer token".into())]);
        assert_eq!(endpoint(&client), "https://api.anthropic.com/v1/messages");
        assert_eq!(client.inner.defaults, RequestDefaults::default());
    }

    #[test]
    fn no_credential_names_every_way_out() {
        for builder in [
            ClientBuilder::new(),
            from(&[]),
            from(&[("ANTHROPIC_API_KEY", ""), ("ANTHROPIC_AUTH_TOKEN", "\t")]),
        ] {
            let error = builder.build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            let text = error.to_string();
            for way in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "Auth::None"] {
                assert!(text.contains(way), "{text}");
            }
        }
        let by_header = ClientBuilder::new().base_url("http://h").header("authorization", "Basic x").build();
        assert_eq!(credential(&by_header.unwrap()), [("authorization".into(), "Basic x".into())]);
    }

    #[test]
    fn an_error_names_the_variable_or_setter_and_not_the_value() {
        let base = || ClientBuilder::new().base_url("http://h").api_key("k");
        for (builder, name) in [
            (from(&[("ANTHROPIC_API_KEY", "SENTI\nNEL")]), "`ANTHROPIC_API_KEY`"),
            (from(&[("ANTHROPIC_AUTH_TOKEN", "SENTI\nNEL")]), "`ANTHROPIC_AUTH_TOKEN`"),
            (from(&[("ANTHROPIC_BASE_URL", "http://u:SENTINEL@h")]), "`ANTHROPIC_BASE_URL`"),
            (base().api_key("SENTI\nNEL"), "`api_key`"),
            (base().auth_token("SENTI\nNEL"), "`auth_token`"),
            (base().auth(Auth::Bearer("SENTI\nNEL".into())), "`auth`"),
            (base().base_url("http://SENTINEL@h"), "`base_url`"),
            (base().default_model(" "), "`default_model`"),
            (base().header("x-one", "SENTI\nNEL"), "`x-one`"),
            (base().header("x one", "SENTINEL"), "`header`"),
            (base().api_version("SENTI\nNEL"), "`api_version`"),
            (base().user_agent("SENTI\nNEL"), "`user_agent`"),
            (base().connect_timeout(Duration::ZERO), "`connect_timeout`"),
            (base().idle_timeout(Duration::ZERO), "`idle_timeout`"),
            (base().timeout(Duration::ZERO), "`timeout`"),
            (base().max_event_bytes(0), "`max_event_bytes`"),
            (base().max_response_bytes(0), "`max_response_bytes`"),
        ] {
            let error = builder.build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{name}");
            let shown = format!("{error} {error:?} {}", error.chain());
            assert!(shown.contains(name) && !shown.contains("SENTI"), "{name}: {shown}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_unicode_is_an_error_unless_a_setter_wins() {
        use std::os::unix::ffi::OsStringExt;

        let builder = || {
            ClientBuilder::from_vars(|name| {
                (name == "ANTHROPIC_API_KEY").then(|| OsString::from_vec(b"SENTINEL\xff".to_vec()))
            })
            .base_url("http://h")
        };
        let error = builder().build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("`ANTHROPIC_API_KEY`") && !shown.contains("SENTINEL"), "{shown}");
        builder().api_key("k").build().unwrap();
    }

    #[test]
    fn a_plain_url_works_and_https_needs_tls() {
        ClientBuilder::new().api_key("k").base_url("http://h").build().unwrap();
        let https = ClientBuilder::new().api_key("k");
        if cfg!(any(feature = "rustls-tls", feature = "native-tls")) {
            https.build().unwrap();
        } else {
            let error = https.clone().build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("`rustls-tls`"), "{error}");
            https.http_client(reqwest::Client::new()).build().unwrap();
        }
    }

    #[test]
    fn clients_are_one_word_and_cross_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Client>();
        crosses::<ClientBuilder>();
        assert_eq!(size_of::<Client>(), size_of::<usize>());
    }
}
