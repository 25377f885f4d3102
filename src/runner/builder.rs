//! The rules of a run and its tools.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::events::{Callback, ListWatch, RunEvent};
use crate::error::{Error, Result};
use crate::messages::MessageRequest;
use crate::run_loop::{AT_LEAST_ONE, Rules, RunLoop};
use crate::tool::{States, Tool};

/// Runs the loop: sends the request, runs the tools that the model asks for, answers with all
/// results in one user message, and repeats until the model is done.
///
/// Setters take the runner and give it back, and never fail: the first error is kept and returned
/// by [`check`](Self::check) and by every run, before any request. Cloning is cheap, so what
/// belongs to one run is set on a clone: `runner.clone().state(session).run(…)`.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use agentloop::testing::{Reply, Server};
/// use agentloop::{Tool, ToolRunner};
/// use serde::Deserialize;
/// use serde_json::json;
///
/// #[derive(Deserialize)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// let schema = json!({
///     "type": "object",
///     "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
///     "required": ["a", "b"],
/// });
/// let runner = ToolRunner::new()
///     .tool(Tool::new("add", "Adds two integers", schema).handler(|add: Add| async move {
///         (add.a + add.b).to_string()
///     }));
///
/// let server = Server::start([
///     Reply::tool_use([("toolu_1", "add", json!({"a": 2, "b": 3}))]),
///     Reply::text("It is 5."),
/// ])
/// .await;
/// let run = runner.run(&server.client(), "What is 2 plus 3?").await?;
/// assert_eq!(run.text(), "It is 5.");
/// assert_eq!(run.iterations(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "a runner does nothing until it is run"]
pub struct ToolRunner {
    pub(super) inner: Arc<Inner>,
}

#[derive(Clone)]
pub(super) struct Inner {
    pub(super) tools: Vec<Tool>,
    pub(super) max_concurrency: usize,
    pub(super) tool_timeout: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) states: States,
    pub(super) cancellation: CancellationToken,
    pub(super) on_event: Option<Callback>,
    pub(super) restart_streams: bool,
    pub(super) lists: Vec<ListWatch>,
    rules: Rules,
    error: Option<Error>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            max_concurrency: 1,
            tool_timeout: None,
            timeout: None,
            states: States::default(),
            cancellation: CancellationToken::new(),
            on_event: None,
            restart_streams: false,
            lists: Vec::new(),
            rules: Rules::new(),
            error: None,
        }
    }
}

impl ToolRunner {
    /// A runner without tools: ten requests, one call at a time, no limit of time but for calls of MCP
    /// servers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The names of the tools so far.
    #[cfg(feature = "mcp")]
    pub(crate) fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.inner.tools.iter().filter_map(Tool::name)
    }

    /// Lists of tools whose changes are told.
    #[cfg(feature = "mcp")]
    pub(crate) fn watch(self, lists: impl IntoIterator<Item = ListWatch>) -> Self {
        self.edit(|inner| inner.lists.extend(lists))
    }

    pub(super) fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.inner));
        self
    }

    fn rules(self, change: impl FnOnce(Rules) -> Rules) -> Self {
        self.edit(|inner| inner.rules = change(std::mem::take(&mut inner.rules)))
    }

    pub(crate) fn fail(self, error: Error) -> Self {
        self.edit(|inner| {
            inner.error.get_or_insert(error);
        })
    }

    /// Adds a tool. It goes to the API behind the request's own definitions and the tools added
    /// before. A name that is taken, and a custom tool without a handler, are refused.
    pub fn tool(mut self, tool: Tool) -> Self {
        let inner = Arc::make_mut(&mut self.inner);
        let added = tool
            .definition()
            .and_then(|definition| inner.rules.add(&definition, tool.has_handler(), tool.is_idempotent()));
        match added {
            Ok(()) => inner.tools.push(tool),
            Err(error) => drop(inner.error.get_or_insert(error)),
        }
        self
    }

    /// Adds tools, in this order.
    pub fn tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        tools.into_iter().fold(self, Self::tool)
    }

    /// How many requests a run may make; resumed pauses count, HTTP retries do not. 10 by
    /// default, at least 1. Reaching it is an error that hands the conversation back (row J9).
    pub fn max_iterations(self, requests: u32) -> Self {
        if requests == 0 {
            return self.fail(Error::request(AT_LEAST_ONE));
        }
        self.rules(|rules| rules.max_iterations(requests))
    }

    /// How many calls of a turn may run at once. 1 by default: they run one after another in the
    /// calling task. Above that each call has a task of its own, and results still keep the order
    /// of the calls (row J12).
    pub fn max_concurrency(self, calls: usize) -> Self {
        if calls == 0 {
            return self.fail(Error::request("`max_concurrency` must be at least 1"));
        }
        self.edit(|inner| inner.max_concurrency = calls)
    }

    /// The limit of time for each call whose tool has none of its own; none by default, and five
    /// minutes for the tools of MCP servers. It counts from the start of the call; zero is refused. A
    /// call that reaches it is stopped at its next await, and the model reads `tool timed out after N
    /// ms` (row J13). What it did until then stays done.
    ///
    /// A limit puts each call in a task of its own. On a current-thread runtime a tool that never
    /// awaits can't be stopped, and the limit is seen only when it returns; use
    /// [`Tool::blocking`] for such work.
    pub fn tool_timeout(self, limit: Duration) -> Self {
        if limit.is_zero() {
            return self.fail(Error::request("`tool_timeout` is zero: no tool could run in no time"));
        }
        self.edit(|inner| inner.tool_timeout = Some(limit))
    }

    /// The limit of time for a run as a whole, requests, waits and tools included; none by default.
    ///
    /// A run that reaches it stops as if it was cancelled, with an error of its own kind
    /// ([`RunErrorKind::Timeout`](crate::run_loop::RunErrorKind::Timeout)) that has the conversation.
    /// It counts from the start of [`run`](Self::run), of [`drive`](Self::drive) or of the first look
    /// at a stream of events; driving a loop on begins it anew. Zero is refused.
    pub fn timeout(self, limit: Duration) -> Self {
        if limit.is_zero() {
            return self.fail(Error::request("`timeout` is zero: nothing could be done in no time"));
        }
        self.edit(|inner| inner.timeout = Some(limit))
    }

    /// Goes on by itself after the stop reason `compaction`, which otherwise ends the run.
    pub fn resume_compaction(self, resume: bool) -> Self {
        self.rules(|rules| rules.resume_compaction(resume))
    }

    /// How many bytes of text a result may hold, 1 MiB by default. A longer text keeps its
    /// beginning and its end, with a note of its size between them.
    pub fn max_result_bytes(self, bytes: usize) -> Self {
        self.rules(|rules| rules.max_result_bytes(bytes))
    }

    /// How many bytes of text an error result may hold, 16 KiB by default.
    pub fn max_error_bytes(self, bytes: usize) -> Self {
        self.rules(|rules| rules.max_error_bytes(bytes))
    }

    /// Gives every call a value, one per type, which it finds with
    /// [`ToolContext::state`](crate::tool::ToolContext::state).
    pub fn state<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.edit(|inner| inner.states.insert(value))
    }

    /// Lets this token cancel the run: a request in flight and a wait before a retry end at once,
    /// no call starts any more, and calls that run are stopped at their next await. A cancelled
    /// run returns when its tasks have ended; a blocking tool can only be told, through
    /// [`ToolContext`](crate::tool::ToolContext).
    pub fn cancel(self, token: CancellationToken) -> Self {
        self.edit(|inner| inner.cancellation = token)
    }

    /// Tells of everything that happens in a run, in the order of [`RunEvent`], and streams every
    /// turn for it (row J14). The function is called in the task of the run and must not block; a
    /// panic in it is logged and changes nothing. A second one replaces the first.
    ///
    /// Once an event of a turn was told, a stream that breaks ends the run; see
    /// [`restart_streams`](Self::restart_streams).
    ///
    /// ```
    /// use agentloop::{RunEvent, ToolRunner};
    ///
    /// let runner = ToolRunner::new().on_event(|event| match event {
    ///     RunEvent::Stream(event) => print!("{}", event.as_text().unwrap_or_default()),
    ///     RunEvent::ToolStarted { call, .. } => println!("[{} starts]", call.name()),
    ///     other => println!("{other:?}"),
    /// });
    /// # let _ = runner;
    /// ```
    pub fn on_event(self, tell: impl Fn(&RunEvent) + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.on_event = Some(Arc::new(tell)))
    }

    /// Sends a request again when its stream broke after events of it were told, where the failure
    /// is of a kind that is retried, and within the client's retries. [`RunEvent::Restart`] tells
    /// that the turn begins anew, and that what was told of it counts no longer. Off by default.
    /// Without events it makes no difference: then nobody has seen anything.
    pub fn restart_streams(self, restart: bool) -> Self {
        self.edit(|inner| inner.restart_streams = restart)
    }

    /// Returns the first error of a setter or a tool.
    ///
    /// # Errors
    /// The first call of a setter that was refused.
    pub fn check(&self) -> Result<()> {
        self.inner.error.clone().map_or(Ok(()), Err)
    }

    /// The loop for a request, by this runner's rules. An error that a setter kept makes it one
    /// that is done before it begins.
    #[must_use]
    pub fn run_loop(&self, request: impl Into<MessageRequest>) -> RunLoop {
        let rules = self.inner.rules.clone();
        RunLoop::new(
            request,
            match &self.inner.error {
                Some(error) => rules.refuse(error.clone()),
                None => rules,
            },
        )
    }
}

impl fmt::Debug for ToolRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolRunner")
            .field("tools", &self.inner.tools.iter().map(Tool::name).collect::<Vec<_>>())
            .field("max_concurrency", &self.inner.max_concurrency)
            .field("tool_timeout", &self.inner.tool_timeout)
            .field("timeout", &self.inner.timeout)
            .field("states", &self.inner.states)
            .field("on_event", &self.inner.on_event.is_some())
            .field("restart_streams", &self.inner.restart_streams)
            .field("rules", &self.inner.rules)
            .field("error", &self.inner.error)
            .finish_non_exhaustive()
    }
}
