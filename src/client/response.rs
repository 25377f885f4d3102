//! What a response means: its text, or a typed error.

use std::future::poll_fn;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{Response, Url};

use super::base_url::without_query;
use super::transport::Incoming;
use crate::accumulate::too_long;
use crate::error::{Error, ErrorKind, Result, TimeoutPhase};
use crate::messages::ApiError;
use crate::messages::json::{Fields, is_null};

/// A JSON text that came with a 2xx status.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// A response whose body is not read yet.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Incoming,
}

/// How a response is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<'a> {
    pub(crate) idle: Duration,
    /// The longest text that is taken in.
    pub(crate) cap: usize,
    pub(crate) secrets: Secrets<'a>,
}

/// What was sent and must not show: servers and proxies echo it in their errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secrets<'a> {
    /// The request's headers.
    pub(crate) headers: &'a HeaderMap,
    /// The URL, whose query may hold a key.
    pub(crate) url: &'a Url,
    /// What a proxy was told, which answers in place of the server.
    pub(crate) proxy: &'a [String],
}

/// The longest reply that is taken in by default.
pub(crate) const DEFAULT_MAX_RESPONSE: usize = 256 * 1024 * 1024;

impl Reading<'_> {
    /// Lets a 2xx response through and turns every other into its error.
    pub(crate) async fn success(self, response: Response) -> Result<Answer> {
        let (parts, body) = http::Response::from(response).into_parts();
        let body = Incoming::new(body, self.idle);
        let mut answer = Answer { status: parts.status, headers: parts.headers, body };
        if answer.status.is_success() {
            return Ok(answer);
        }
        let (status, headers) = (answer.status, self.secrets.kept(&answer.headers));
        if status.is_redirection() {
            return Err(self.redirect(&answer).with_response(status, headers));
        }
        let mut body = Vec::new();
        let cut = match encoding(&answer.headers) {
            Some(encoding) => Some(self.secrets.coded(encoding)),
            None => fill(&mut body, &mut answer.body, MAX_ERROR).await.err(),
        };
        let text = self.secrets.redact(&body);
        let error = match self.secrets.api_error(&text) {
            Some(api) => {
                Error::new(ErrorKind::Api, format!("the API answered {}", code(status))).with_api(api)
            }
            None => self.secrets.foreign(ErrorKind::Api, &answer, &text),
        };
        let error = match cut {
            Some(cut) => error.with_source(cut),
            None => error,
        };
        Err(error.with_response(status, headers))
    }

    /// Reads the JSON text of a 2xx response; an error object inside is an error.
    pub(crate) async fn json(self, mut answer: Answer) -> Result<Reply> {
        let (status, headers) = (answer.status, self.secrets.kept(&answer.headers));
        match self.text(&mut answer).await {
            Ok(text) => Ok(Reply { status, headers, text }),
            Err(error) => Err(error.with_response(status, headers)),
        }
    }

    async fn text(self, answer: &mut Answer) -> Result<String> {
        if let Some(encoding) = encoding(&answer.headers) {
            return Err(self.secrets.coded(encoding));
        }
        let media_type = media_type(&answer.headers);
        if media_type.as_deref() == Some(EVENT_STREAM) {
            return Err(self.secrets.foreign(ErrorKind::Decode, answer, ""));
        }
        let is_json = media_type.as_deref().is_none_or(is_json);
        let cap = if is_json { self.cap } else { MAX_ERROR };
        let announced =
            answer.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if is_json && announced.is_some_and(|length: u64| length > cap as u64) {
            return Err(too_long(cap));
        }
        let mut body = Vec::new();
        let complete = fill(&mut body, &mut answer.body, cap).await?;
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(empty(answer.status));
        }
        if !is_json {
            return Err(self.secrets.foreign(ErrorKind::Decode, answer, &self.secrets.redact(&body)));
        }
        if !complete {
            return Err(too_long(cap));
        }
        let text = String::from_utf8(body).map_err(|error| {
            Error::new(ErrorKind::Decode, "the reply is not UTF-8").with_source(error.utf8_error())
        })?;
        match self.secrets.error_inside(&text, answer.status) {
            Some(error) => Err(error),
            None => Ok(text),
        }
    }

    /// Lets the body of a 2xx response through if it is a stream of events, and turns everything
    /// else into its error.
    pub(crate) async fn events(self, mut answer: Answer) -> Result<Answer> {
        let error = if let Some(encoding) = encoding(&answer.headers) {
            self.secrets.coded(encoding)
        } else {
            match media_type(&answer.headers).as_deref() {
                None | Some(EVENT_STREAM) => return Ok(answer),
                Some(_) => self.no_events(&mut answer).await,
            }
        };
        Err(error.with_response(answer.status, self.secrets.kept(&answer.headers)))
    }

    async fn no_events(self, answer: &mut Answer) -> Error {
        let mut body = Vec::new();
        if let Err(error) = fill(&mut body, &mut answer.body, MAX_ERROR).await {
            return error;
        }
        if body.iter().all(u8::is_ascii_whitespace) {
            return empty(answer.status);
        }
        let text = self.secrets.redact(&body);
        self.secrets.error_inside(&text, answer.status).unwrap_or_else(|| {
            let error = self.secrets.foreign(ErrorKind::Decode, answer, &text);
            error.with_source(ASKED)
        })
    }

    fn redirect(self, answer: &Answer) -> Error {
        let target = answer.headers.get(LOCATION).and_then(|location| {
            let url = self.secrets.url.join(location.to_str().ok()?).ok()?;
            let target = self.secrets.without_secrets(without_query(&url));
            url.has_host().then(|| format!(" to {}", excerpt(&target, 200)))
        });
        Error::new(
            ErrorKind::Decode,
            format!(
                "the server answered {}{}: redirects are not followed, set `base_url` to where the API is",
                code(answer.status),
                target.unwrap_or_default()
            ),
        )
    }
}

impl Secrets<'_> {
    fn error_inside(self, text: &str, status: StatusCode) -> Option<Error> {
        let is_error = {
            let fields = Fields::parse(text)?;
            match fields.str("type") {
                Some(kind) => kind == "error",
                // Gateways leave out the outer `type`.
                None => fields.get("error").is_some_and(|error| !is_null(error)),
            }
        };
        if !is_error {
            return None;
        }
        let message = format!("the API answered {} with an error inside", code(status));
        let error = Error::new(ErrorKind::Api, message);
        Some(match self.api_error(&self.redact(text.as_bytes())) {
            Some(api) => error.with_api(api),
            None => error,
        })
    }

    /// The error for the body of a stream that holds JSON or a page instead of events.
    pub(crate) fn no_stream(self, body: &[u8], status: StatusCode) -> Error {
        let text = self.redact(body);
        self.error_inside(&text, status).unwrap_or_else(|| {
            let message = format!("the API answered {} with a stream that holds no event", code(status));
            Error::new(ErrorKind::Decode, message).with_source(ASKED)
        })
    }

    /// The error that an event of a stream tells.
    pub(crate) fn error_event(self, data: &str, status: StatusCode) -> Error {
        let message = format!("the API answered {} with an error in the stream", code(status));
        match self.api_error(&self.redact(data.as_bytes())) {
            Some(api) => Error::new(ErrorKind::Api, message).with_api(api),
            None if data.trim().is_empty() || data.trim_start().starts_with(['{', '[']) => {
                Error::new(ErrorKind::Api, message)
            }
            None => {
                let text = excerpt(&self.redact(data.as_bytes()), 200);
                Error::new(ErrorKind::Api, format!("{message}: {text}"))
            }
        }
    }

    /// The text of a body without the secrets that were sent: servers and proxies echo them.
    fn redact(self, body: &[u8]) -> String {
        self.without_secrets(String::from_utf8_lossy(body).into_owned())
    }

    /// A text of the server without them.
    pub(crate) fn without_secrets(self, mut text: String) -> String {
        for secret in self.values() {
            // As it stands in a URL, as some write it in JSON, as it is.
            for form in [encoded(&secret), secret.replace('/', "\\/"), secret] {
                // Media types are compared in lower case.
                for form in [form.to_lowercase(), form] {
                    if text.contains(&form) {
                        text = text.replace(&form, "[redacted]");
                    }
                }
            }
        }
        text
    }

    /// What must not show: whole values, and the parts that a text may show alone.
    fn values(self) -> Vec<String> {
        let values = self.headers.values().filter(|value| value.is_sensitive());
        let mut all: Vec<String> = values.filter_map(|value| Some(value.to_str().ok()?.to_owned())).collect();
        all.extend(self.url.query().map(ToOwned::to_owned));
        all.extend(self.url.query_pairs().map(|(_, value)| value.into_owned()));
        all.extend_from_slice(self.proxy);
        // A secret may stand beside a scheme, a name or another secret.
        let is_between = |c: char| c.is_whitespace() || "=;,&\"'".contains(c);
        let parts: Vec<_> =
            all.iter().flat_map(|value| value.split(is_between)).map(ToOwned::to_owned).collect();
        all.extend(parts);
        // Short ones are words that texts hold anyway. Of one inside another the longer goes first.
        all.retain(|value| value.len() >= 8);
        all.sort_by_key(|value| std::cmp::Reverse(value.len()));
        all
    }

    /// The error for a body that the API does not send. JSON is never shown: it may hold a prompt.
    fn foreign(self, kind: ErrorKind, answer: &Answer, text: &str) -> Error {
        let mut message = format!("the API answered {}", code(answer.status));
        match media_type(&answer.headers) {
            Some(media_type) => {
                message.push_str(" with ");
                message.push_str(&excerpt(&self.without_secrets(media_type), 80));
            }
            None => message.push_str(" without a content type"),
        }
        let hidden = media_type(&answer.headers).is_none_or(|kind| is_json(&kind) || kind == EVENT_STREAM)
            || text.trim_start().starts_with(['{', '[']);
        if !hidden && !text.trim().is_empty() {
            message.push_str(": ");
            message.push_str(&excerpt(text, 200));
        }
        Error::new(kind, message)
    }

    fn coded(self, encoding: String) -> Error {
        let encoding = excerpt(&self.without_secrets(encoding), 80);
        Error::new(
            ErrorKind::Decode,
            format!("the body came with content encoding {encoding}, which was not asked for"),
        )
    }

    fn api_error(self, text: &str) -> Option<ApiError> {
        // What was escaped in the JSON text can be seen only now.
        Some(ApiError::from_json(text)?.map_texts(|text| self.without_secrets(text)))
    }

    /// The headers that an error or a message keeps: all but cookies, which are nobody's business
    /// here and may be secrets. The request id is shown, so it is looked at.
    pub(crate) fn kept(self, headers: &HeaderMap) -> HeaderMap {
        let mut kept = headers.clone();
        kept.remove(SET_COOKIE);
        if let Some(id) = kept.get_mut(REQUEST_ID)
            && let Ok(text) = id.to_str()
        {
            let clean = self.without_secrets(text.to_owned());
            *id = HeaderValue::from_str(&clean).unwrap_or(HeaderValue::from_static(""));
        }
        kept
    }
}

/// A text as it stands in the query of a URL.
fn encoded(text: &str) -> String {
    let url = Url::parse_with_params("http://h/", [("", text)]);
    let encoded = url.ok().and_then(|url| Some(url.query()?.strip_prefix('=')?.to_owned()));
    encoded.unwrap_or_else(|| text.to_owned())
}

const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Appends a body up to `cap`; false if it is longer.
async fn fill(body: &mut Vec<u8>, incoming: &mut Incoming, cap: usize) -> Result<bool> {
    while let Some(piece) = poll_fn(|cx| incoming.poll_read(cx, TimeoutPhase::Body)).await? {
        let room = cap - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            return Ok(false);
        }
    }
    Ok(true)
}

fn encoding(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_ENCODING)?;
    let value = String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase();
    (!value.is_empty() && value != "identity").then_some(value)
}

/// A body that is not there says nothing about the request, so it is asked for again.
pub(crate) fn empty(status: StatusCode) -> Error {
    Error::new(ErrorKind::Decode, format!("the API answered {} with an empty body", code(status)))
        .with_retryable(true)
}

/// The content type without its parameters, in lower case.
fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = String::from_utf8_lossy(headers.get(CONTENT_TYPE)?.as_bytes()).into_owned();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    (!essence.is_empty()).then_some(essence)
}

fn is_json(media_type: &str) -> bool {
    matches!(media_type, "application/json" | "text/json") || media_type.ends_with("+json")
}

/// `502 Bad Gateway`, or the number alone where it has no name.
fn code(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// The start of a text on one line, without what a terminal would obey.
fn excerpt(text: &str, longest: usize) -> String {
    let mut short = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !short.is_empty() {
            short.push(' ');
        }
        for c in word.chars() {
            if short.len() + c.len_utf8() > longest {
                short.push('…');
                return short;
            }
            short.push(c);
        }
    }
    short
}

const ASKED: &str = "a stream of events (text/event-stream) was asked for";

const EVENT_STREAM: &str = "text/event-stream";

/// An error page is read no further than this.
const MAX_ERROR: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Response {
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(body.into()).unwrap().into()
    }

    async fn json(response: Response, cap: usize) -> Result<String> {
        let (sent, url) = (HeaderMap::new(), Url::parse("http://h/").unwrap());
        let reading = Reading {
            idle: Duration::from_secs(5),
            cap,
            secrets: Secrets { headers: &sent, url: &url, proxy: &[] },
        };
        reading.json(reading.success(response).await?).await.map(|reply| reply.text)
    }

    const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

    #[tokio::test]
    async fn takes_json_in_its_spellings() {
        for content_type in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json;x",
            "application/vnd.x+json",
        ] {
            let text = json(response(200, &[("content-type", content_type)], "{}"), 10).await.unwrap();
            assert_eq!(text, "{}", "{content_type}");
        }
        assert_eq!(json(response(200, &[], "{}"), 10).await.unwrap(), "{}");
        let identity = [("content-type", "application/json"), ("content-encoding", "Identity")];
        assert_eq!(json(response(201, &identity, "{}"), 10).await.unwrap(), "{}");
    }

    #[tokio::test]
    async fn the_cap_is_exact() {
        assert_eq!(json(response(200, JSON, "{   }"), 5).await.unwrap(), "{   }");
        let error = json(response(200, JSON, "{    }"), 5).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::TooLarge, false));
        assert!(
            error.to_string().contains("longer than 5 bytes (the limit of `max_response_bytes`)"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn other_content_is_named_and_shown_only_if_it_is_not_json() {
        // Content type, body, and what of the body the error shows.
        for (content_type, body, shown) in [
            ("text/html", "<h1>Bad\r\n\u{1b}[31m gateway</h1>", ": <h1>Bad [31m gateway</h1>"),
            ("text/plain; charset=x", "SENTINEL-free", ": SENTINEL-free"),
            ("text/html", "", ""),
            ("text/plain", " {\"prompt\":\"SENTINEL\"}", ""),
            ("text/plain", "[\"SENTINEL\"]", ""),
            ("text/event-stream", "event: x\ndata: SENTINEL", ""),
        ] {
            let essence = content_type.split(';').next().unwrap();
            for status in [200, 404, 502] {
                if status == 200 && body.is_empty() {
                    continue;
                }
                let got = response(status, &[("content-type", content_type), ("request-id", "req_9")], body);
                let error = json(got, 1000).await.unwrap_err();
                let kind = if status == 200 { ErrorKind::Decode } else { ErrorKind::Api };
                assert_eq!((error.kind(), error.status()), (kind, Some(status)));
                assert_eq!(error.request_id(), Some("req_9"));
                let text = error.to_string();
                let end = format!(" with {essence}{shown} (request id req_9)");
                assert!(text.contains(&status.to_string()) && text.ends_with(&end), "{text}");
            }
        }
        for status in [400, 500] {
            let error = json(response(status, JSON, r#"{"detail":"SENTINEL"}"#), 1000).await.unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains("application/json") && !shown.contains("SENTINEL"), "{shown}");
        }
    }

    #[tokio::test]
    async fn an_empty_2xx_may_be_tried_again() {
        for body in ["", " \n"] {
            for headers in [JSON, &[], &[("content-type", "text/html")]] {
                let error = json(response(200, headers, body), 1000).await.unwrap_err();
                assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Decode, true));
                assert!(error.to_string().contains("empty body"), "{error}");
            }
        }
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_and_codings_are_refused() {
        let error = json(response(200, JSON, b"{\"a\":\"\xff\"}".to_vec()), 1000).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Decode, false));
        let gzip = [("content-type", "application/json"), ("content-encoding", "gzip")];
        for (status, kind) in [(200, ErrorKind::Decode), (500, ErrorKind::Api)] {
            let error = json(response(status, &gzip, "\u{1f}"), 1000).await.unwrap_err();
            assert_eq!((error.kind(), error.status()), (kind, Some(status)));
            assert!(error.chain().contains("content encoding gzip"), "{}", error.chain());
        }
    }

    #[tokio::test]
    async fn an_error_object_inside_a_200_is_the_apis_error() {
        for (body, api_type) in [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                Some("overloaded_error"),
            ),
            (r#"{"error":{"type":"api_error","message":"m"}}"#, Some("api_error")),
            (r#"{"type":"error"}"#, None),
        ] {
            let error = json(response(200, JSON, body), 1000).await.unwrap_err();
            assert_eq!((error.kind(), error.api_type()), (ErrorKind::Api, api_type), "{body}");
        }
        let message = r#"{"type":"message","error":{"type":"x","message":"m"}}"#;
        assert_eq!(json(response(200, JSON, message), 1000).await.unwrap(), message);
    }

    #[tokio::test]
    async fn secrets_that_come_back_are_cut_out() {
        let mut key = HeaderValue::from_static("Bearer sk-SENTINEL");
        key.set_sensitive(true);
        let sent = HeaderMap::from_iter([(http::header::AUTHORIZATION, key)]);
        let url = Url::parse("http://h/").unwrap();
        let reading = Reading {
            idle: Duration::from_secs(5),
            cap: 1000,
            secrets: Secrets { headers: &sent, url: &url, proxy: &[] },
        };
        let page = "x-header: sk-SENTINEL";
        let object = r#"{"error":{"type":"authentication_error","message":"bad key sk-SENTINEL"}}"#;
        for (content_type, body) in [("text/plain", page), ("application/json", object)] {
            let got = response(401, &[("content-type", content_type)], body);
            let error = reading.success(got).await.err().unwrap();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains("[redacted]") && !shown.contains("SENTINEL"), "{shown}");
        }
        let answer = reading.success(response(200, JSON, object)).await.ok().unwrap();
        let error = reading.json(answer).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("SENTINEL"), "{error}");
    }

    #[test]
    fn an_excerpt_ends_on_a_character_boundary() {
        assert_eq!(excerpt("", 4), "");
        assert_eq!(excerpt("  a\n\tb ", 4), "a b");
        assert_eq!(excerpt("abcd", 4), "abcd");
        assert_eq!(excerpt("abcde", 4), "abcd…");
        assert_eq!(excerpt("abcé", 4), "abc…");
        assert_eq!(excerpt("日本語", 7), "日本…");
    }
}
