//! A tool: its definition, its handler, and the rules of its calls.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use super::annotations::Annotations;
use super::context::ToolContext;
use super::handler::{Handler, ToolFuture};
use super::output::{IntoToolResult, ToolError};
#[cfg(feature = "schemars")]
use super::schema::Derived;
use super::wire::{Wire, check_schema};
use crate::error::{Error, Result};
use crate::messages::content::raw;

/// A tool that the model can call: the definition that the API gets, and a handler.
///
/// Setters consume the tool and never fail. The first thing that is wrong, a name that the API
/// would refuse for instance, is kept and reported before any request by whatever the tool is
/// given to. Only the fields of the definition are sent, in an order that does not depend on
/// the order of the calls here, so that equal tools have equal bytes and hit the prompt cache.
///
/// # Handlers
///
/// A handler takes any type that serde can read from the call's input. `()` means no arguments,
/// whatever the object holds. `Box<RawValue>` gets the exact text, with every digit of a number;
/// `serde_json::Value` rounds what fits neither `u64` nor `f64`. An input that does not fit never
/// enters the handler: the model reads which field is wrong, and why.
///
/// It returns anything that is [`IntoToolResult`]. A handler may be called again while an earlier
/// call still runs, so a closure clones what its future needs:
///
/// ```
/// use std::sync::Arc;
///
/// use agentloop::Tool;
/// use serde_json::json;
///
/// let greeting = Arc::new(String::from("hello"));
/// let tool = Tool::new("greet", "Greets the user", json!({"type": "object"})).handler(move |(): ()| {
///     let greeting = Arc::clone(&greeting);
///     async move { greeting.to_uppercase() }
/// });
/// # let _ = tool;
/// ```
///
/// Async handlers share the thread of the run, or of its task: work that blocks, or that
/// computes for long, belongs into [`blocking`](Self::blocking).
#[derive(Clone)]
#[must_use = "a tool does nothing until a runner has it"]
pub struct Tool {
    wire: Arc<Wire>,
    handler: Option<Handler>,
    limit: Option<Duration>,
    /// The limit where neither the tool nor its runner has one.
    default_limit: Option<Duration>,
    idempotent: bool,
    annotations: Arc<Annotations>,
    /// True if the schema has to pass [`check_schema`].
    checked: bool,
    #[cfg(feature = "schemars")]
    derived: Option<Arc<Derived>>,
    error: Option<Error>,
}

impl Tool {
    /// A tool of one's own, with any JSON schema for its input.
    ///
    /// The schema is sent as it serializes, keyword by keyword. The name must be 1 to 128
    /// characters of `a-z`, `A-Z`, `0-9`, `_` and `-`. The schema must be an object of `type`
    /// `object` without `oneOf`, `anyOf` or `allOf` at its root. The description decides how well
    /// the model uses the tool: say what it does, when to use it and what it gives back.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: impl Serialize) -> Self {
        Self::custom(&name.into(), &description.into()).set_raw("input_schema", to_raw_value(&schema))
    }

    /// A tool of one's own, with a schema derived from the type of its input.
    ///
    /// Doc comments become descriptions. The root is made what the API takes: the variants of an
    /// enum become one object, of which the description tells what belongs together. A type that
    /// is not read from an object (a string, a list, a tuple) is an error. `()` takes no
    /// arguments. The handler is set next, and takes the same type.
    ///
    /// ```
    /// use agentloop::Tool;
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Report {
    ///     /// Path of the file to write
    ///     path: String,
    /// }
    ///
    /// let tool = Tool::with_input::<Report>("write_report", "Writes the report to a file")
    ///     .blocking(|report: Report| Ok(std::fs::write(report.path, "all is well")?));
    /// # let _ = tool;
    /// ```
    #[cfg(feature = "schemars")]
    pub fn with_input<T: JsonSchema + 'static>(
        name: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        let mut tool = Self::custom(&name.into(), &description.into());
        match Derived::of::<T>().and_then(|derived| Ok((derived.json(false)?, derived))) {
            Ok((schema, derived)) => {
                tool = tool.set_raw("input_schema", Ok(schema));
                tool.derived = Some(Arc::new(derived));
            }
            Err(error) => {
                let error = tool.wrong(format_args!("{error}"));
                tool.error.get_or_insert(error);
            }
        }
        tool
    }

    /// A tool of one's own from an async closure: [`with_input`](Self::with_input) with the type
    /// that the closure takes, and [`handler`](Self::handler).
    ///
    /// ```
    /// use agentloop::{Json, Tool};
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Day {
    ///     /// The day, as in 2026-11-30
    ///     date: String,
    /// }
    ///
    /// let tool = Tool::typed("calendar_events", "Lists the calendar events of one day", |day: Day| async move {
    ///     Ok(Json(vec![format!("{}: lunch", day.date)]))
    /// })
    /// .strict(true);
    /// # let _ = tool;
    /// ```
    #[cfg(feature = "schemars")]
    pub fn typed<T, F, Fut, R>(name: impl Into<String>, description: impl Into<String>, f: F) -> Self
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult,
    {
        Self::with_input::<T>(name, description).handler(f)
    }

    /// A custom tool that has no schema yet.
    fn custom(name: &str, description: &str) -> Self {
        let mut tool = Self::empty();
        tool.checked = true;
        let wire = Arc::make_mut(&mut tool.wire);
        wire.set("name", raw(name));
        wire.set("description", raw(description));
        tool.error = wire.check_name().err();
        tool
    }

    /// Any entry of `tools` as it is: a server tool, a toolset, one that the API knows and the
    /// caller runs (`bash`, `memory`, the text editor), or a custom one. The text goes over the
    /// wire unchanged.
    ///
    /// ```
    /// use agentloop::Tool;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize)]
    /// struct Bash {
    ///     command: Option<String>,
    /// }
    ///
    /// let search = Tool::from_definition(r#"{"type":"web_search_20260318","name":"web_search","max_uses":3}"#);
    /// let bash = Tool::from_definition(r#"{"type":"bash_20250124","name":"bash"}"#)
    ///     .handler(|input: Bash| async move { format!("would run {:?}", input.command) });
    /// # let _ = (search, bash);
    /// ```
    pub fn from_definition(json: impl AsRef<str>) -> Self {
        let mut tool = Self::empty();
        match Wire::parse(json.as_ref()) {
            Ok(wire) => tool.wire = Arc::new(wire),
            Err(error) => tool.error = Some(error),
        }
        tool
    }

    fn empty() -> Self {
        Self {
            wire: Arc::default(),
            handler: None,
            limit: None,
            default_limit: None,
            idempotent: false,
            annotations: Arc::default(),
            checked: false,
            #[cfg(feature = "schemars")]
            derived: None,
            error: None,
        }
    }

    /// Sets the handler: an async closure that takes the input.
    pub fn handler<T, F, Fut, R>(self, f: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult,
    {
        self.handler_with(move |input, _| f(input))
    }

    /// Sets the handler: an async closure that takes the input and the [`ToolContext`].
    pub fn handler_with<T, F, Fut, R>(mut self, f: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult,
    {
        self.handler = Some(Handler::asynchronous(f));
        self
    }

    /// Sets the handler: a closure that may block or compute, and runs on a thread for that.
    ///
    /// It can't be stopped. When its run is dropped or its time is up, it goes on to its end, and
    /// what it returns is lost; [`ToolContext::cancellation`] tells it.
    pub fn blocking<T, F, R>(self, f: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T) -> R + Send + Sync + 'static,
        R: IntoToolResult,
    {
        self.blocking_with(move |input, _| f(input))
    }

    /// Sets the handler: a closure that may [block](Self::blocking), and that takes the input
    /// and the [`ToolContext`].
    pub fn blocking_with<T, F, R>(mut self, f: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, ToolContext) -> R + Send + Sync + 'static,
        R: IntoToolResult,
    {
        self.handler = Some(Handler::blocking(f));
        self
    }

    /// Limits the time of one call, whatever the runner's own limit is. The model reads that the
    /// call timed out; effects that it had already started may be incomplete. Zero is refused.
    pub fn timeout(mut self, limit: Duration) -> Self {
        if limit.is_zero() {
            let error = self.wrong(format_args!("its `timeout` is zero: it could not run in no time"));
            self.error.get_or_insert(error);
            return self;
        }
        self.limit = Some(limit);
        self
    }

    /// Says that calling twice with the same input does no more than calling once, so that a
    /// resumed run may call again where it can't know how the first call ended. Not sent.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }

    /// Says what the tool does to the world. Not sent, and nothing here decides by it: it is for
    /// whoever reads [`annotations`](Self::annotations).
    pub fn annotated(mut self, annotations: Annotations) -> Self {
        self.annotations = Arc::new(annotations);
        self
    }

    /// Sets `strict`: the API then holds the model to the schema, of which it takes a subset.
    ///
    /// A derived schema is rewritten to that subset: objects are closed, and bounds, formats and
    /// patterns that it lacks go into descriptions, so the handler's type has to check them. A
    /// map, a value of any type and a type that refers to itself have no strict form and are an
    /// error. A schema given to [`new`](Self::new) or [`from_definition`](Self::from_definition)
    /// stays as it is.
    pub fn strict(self, strict: bool) -> Self {
        self.set("strict", strict)
    }

    /// Sets `input_examples`: inputs that show how to call. Each must fit the schema.
    pub fn input_examples(self, examples: impl IntoIterator<Item = impl Serialize>) -> Self {
        let examples: Result<Vec<_>, _> =
            examples.into_iter().map(|example| to_raw_value(&example)).collect();
        self.set_raw("input_examples", examples.and_then(|examples| to_raw_value(&examples)))
    }

    /// Sets `allowed_callers`: who may call, `direct` or a version of code execution. It guides
    /// the model and protects nothing.
    pub fn allowed_callers(self, callers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let callers: Vec<String> = callers.into_iter().map(Into::into).collect();
        self.set("allowed_callers", callers)
    }

    /// Sets `defer_loading`: the tool is hidden until a tool search finds it.
    pub fn defer_loading(self, defer: bool) -> Self {
        self.set("defer_loading", defer)
    }

    /// Sets `eager_input_streaming`: the input is streamed before the API has checked it, and may
    /// not be valid JSON at its end. Such a call does not run, and the model is told why.
    pub fn eager_input_streaming(self, eager: bool) -> Self {
        self.set("eager_input_streaming", eager)
    }

    /// Sets `cache_control`, `{"type": "ephemeral", "ttl": "1h"}` for instance.
    pub fn cache_control(self, cache_control: impl Serialize) -> Self {
        self.set("cache_control", cache_control)
    }

    /// Marks the tool as the end of a cached prefix: `cache_control: {"type":"ephemeral"}`.
    pub fn cached(self) -> Self {
        let mark = RawValue::from_string(String::from(r#"{"type":"ephemeral"}"#));
        self.set_raw("cache_control", mark)
    }

    /// Sets any field of the definition, one that this version does not know included.
    ///
    /// ```
    /// use agentloop::Tool;
    /// use serde_json::json;
    ///
    /// let tool = Tool::new("now", "Tells the time", json!({"type": "object"})).set("priority", 3);
    /// # let _ = tool;
    /// ```
    pub fn set(self, field: &str, value: impl Serialize) -> Self {
        self.set_raw(field, to_raw_value(&value))
    }

    fn set_raw(mut self, field: &str, value: Result<Box<RawValue>, serde_json::Error>) -> Self {
        if let Err(error) = self.try_set(field, value) {
            self.error.get_or_insert(error);
        }
        self
    }

    fn try_set(&mut self, field: &str, value: Result<Box<RawValue>, serde_json::Error>) -> Result<()> {
        let value = value.map_err(|error| {
            self.wrong(format_args!("`{field}` can't be written as JSON")).with_source(error)
        })?;
        if self.checked && field == "input_schema" {
            check_schema(&value).map_err(|reason| self.wrong(format_args!("the input schema: {reason}")))?;
        }
        let mut wire = Wire::clone(&self.wire);
        #[cfg(feature = "schemars")]
        match (field, self.derived.as_deref()) {
            // A schema that the caller sets is his own from then on.
            ("input_schema", _) => self.derived = None,
            ("strict", Some(derived)) => {
                let schema = derived
                    .json(value.get() == "true")
                    .map_err(|error| self.wrong(format_args!("{error}")))?;
                wire.set("input_schema", schema);
            }
            _ => {}
        }
        wire.set(field, value);
        if field == "name" || field == "type" {
            wire.check_name()?;
        }
        self.wire = Arc::new(wire);
        Ok(())
    }

    fn wrong(&self, what: fmt::Arguments<'_>) -> Error {
        match self.name() {
            Some(name) => Error::request(format!("tool `{name}`: {what}")),
            None => Error::request(format!("a tool without a name: {what}")),
        }
    }
}

impl Tool {
    /// The name; toolsets have none.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.wire.name()
    }

    /// The entry of `tools` as it is sent.
    ///
    /// # Errors
    /// The first thing that is wrong with the tool.
    ///
    /// ```
    /// use agentloop::Tool;
    /// use serde_json::json;
    ///
    /// let tool = Tool::new("now", "Tells the time", json!({"type": "object"}));
    /// assert_eq!(
    ///     tool.definition()?.get(),
    ///     r#"{"name":"now","description":"Tells the time","input_schema":{"type":"object"}}"#
    /// );
    /// assert!(Tool::new("wall.clock", "Tells the time", json!({"type": "object"})).definition().is_err());
    /// # Ok::<(), agentloop::Error>(())
    /// ```
    pub fn definition(&self) -> Result<Box<RawValue>> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => Ok(self.wire.json()),
        }
    }

    pub(crate) fn has_handler(&self) -> bool {
        self.handler.is_some()
    }

    pub(crate) fn is_blocking(&self) -> bool {
        self.handler.as_ref().is_some_and(Handler::is_blocking)
    }

    pub(crate) fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// What was said about its effects; of a tool of an MCP server, what the server says.
    #[must_use]
    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    /// The limit of time for a call by a runner that has this one.
    pub(crate) fn limit(&self, of_runner: Option<Duration>) -> Option<Duration> {
        self.limit.or(of_runner).or(self.default_limit)
    }

    /// Sets the limit where neither the tool nor its runner has one.
    #[cfg(feature = "mcp")]
    pub(crate) fn default_timeout(mut self, limit: Duration) -> Self {
        self.default_limit = Some(limit);
        self
    }

    /// A call. Nothing of the handler runs before the future is polled.
    pub(crate) fn call(&self, input: Box<RawValue>, cx: ToolContext) -> ToolFuture {
        match &self.handler {
            Some(handler) => handler.call(input, cx),
            None => Box::pin(async { Err(ToolError::new("the tool has no handler")) }),
        }
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handler = match &self.handler {
            Some(handler) if handler.is_blocking() => "blocking",
            Some(_) => "async",
            None => "none",
        };
        f.debug_struct("Tool")
            .field("definition", &self.wire.json().get())
            .field("handler", &handler)
            .field("timeout", &self.limit)
            .field("idempotent", &self.idempotent)
            .field("error", &self.error)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::context::ContextParts;
    use super::*;
    use crate::error::ErrorKind;

    fn tool() -> Tool {
        Tool::new("f", "d", json!({"type": "object"}))
    }

    fn text(tool: &Tool) -> String {
        tool.definition().unwrap().get().to_owned()
    }

    struct Unserializable;

    impl Serialize for Unserializable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }

    #[test]
    fn the_first_error_is_kept_and_changes_nothing_else() {
        let tool = tool()
            .set("x", Unserializable)
            .set("name", "a.b")
            .set("input_schema", json!({"type": "string"}))
            .input_examples([Unserializable])
            .strict(true);
        let error = tool.definition().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request);
        assert_eq!(error.chain(), "tool `f`: `x` can't be written as JSON: no");
        assert_eq!(
            tool.wire.json().get(),
            r#"{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true}"#
        );
    }

    #[test]
    fn what_is_wrong_at_the_start_is_kept_too() {
        for (tool, reason) in [
            (
                Tool::new("files.v2/read", "d", json!({"type": "object"})),
                "\"files.v2/read\" must be 1 to 128",
            ),
            (Tool::new("f", "d", "{\"type\":\"object\"}"), "tool `f`: the input schema: it is a string"),
            (Tool::new("f", "d", json!({"type": "object", "oneOf": []})), "no `oneOf` at its root"),
            (Tool::new("f", "d", Unserializable), "`input_schema` can't be written"),
            (Tool::from_definition("{"), "not valid JSON"),
            (Tool::from_definition("[]"), "must be a JSON object"),
            (Tool::from_definition("{}"), "needs a `name`"),
            (tool().set("type", "custom").set("name", 7), "needs a `name`"),
        ] {
            let error = tool.definition().unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert_eq!(error.kind(), ErrorKind::Request);
        }
        let custom = Tool::from_definition(r#"{"name":"f","input_schema":{"anyOf":[]}}"#);
        assert!(custom.definition().is_ok(), "a definition goes out as it is");
    }

    #[test]
    fn runner_and_core_see_what_was_set() {
        let plain = tool();
        assert!(!plain.has_handler() && !plain.is_blocking() && !plain.is_idempotent());
        assert_eq!((plain.name(), plain.limit(None)), (Some("f"), None));
        let set = plain.handler(|(): ()| async {}).timeout(Duration::from_secs(5)).idempotent(true);
        assert!(set.has_handler() && !set.is_blocking() && set.is_idempotent());
        assert_eq!(set.limit(None), Some(Duration::from_secs(5)));
        assert_eq!(text(&set), text(&tool()), "none of this is sent");
        assert!(set.blocking(|(): ()| ()).is_blocking());
        assert_eq!(tool().set("name", "g").name(), Some("g"));
        let toolset =
            Tool::from_definition(r#"{"type":"computer_toolset_20260801"}"#).handler(|(): ()| async {});
        assert_eq!((toolset.name(), toolset.has_handler()), (None, true));
    }

    #[test]
    fn crosses_threads() {
        fn crosses<T: Clone + Send + Sync + 'static>() {}
        crosses::<Tool>();
        crosses::<ToolContext>();
    }

    #[test]
    fn debug_shows_no_closure() {
        let tool = tool().handler(|(): ()| async {});
        let debug = format!("{tool:?}");
        assert!(debug.contains("async") && !debug.contains("closure"), "{debug}");
    }

    #[tokio::test]
    async fn a_handler_sees_its_context() {
        let parts = ContextParts {
            call_id: "toolu_1".to_owned(),
            tool_name: "f".to_owned(),
            iteration: 3,
            caller: Some(raw("direct")),
            ..ContextParts::default()
        };
        let cx = ToolContext::new(parts);
        let shown = |cx: &ToolContext| {
            format!(
                "{} {} {} {:?} {:?}",
                cx.call_id(),
                cx.tool_name(),
                cx.iteration(),
                cx.caller(),
                cx.deadline()
            )
        };
        let expected = r#"toolu_1 f 3 Some("\"direct\"") None"#;
        let tools = [
            tool().handler_with(move |(): (), cx: ToolContext| async move { shown(&cx) }),
            tool().blocking_with(move |(): (), cx: ToolContext| shown(&cx)),
        ];
        for tool in tools {
            let output = tool.clone().call(RawValue::NULL.to_owned(), cx.clone()).await.unwrap();
            assert!(matches!(output.content, super::super::output::Content::Text(text) if text == expected));
        }
        let error = tool().call(RawValue::NULL.to_owned(), cx).await.unwrap_err();
        assert_eq!(error.message(), "the tool has no handler");
    }
}
