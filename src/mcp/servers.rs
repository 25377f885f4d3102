//! Servers as tools of a runner.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::builder::ToolSetBuilder;
use super::listing::ListedTool;
use super::names::Prefix;
use super::report::Report;
use super::result::ResultOptions;
use super::server::Server;
use super::set::{DefinitionOptions, SetTool, ToolSet, definitions};
use crate::ToolRunner;
use crate::error::Error;
use crate::messages::json;
use crate::tool::{Tool, ToolContext};

/// Servers, and how their tools are offered.
///
/// ```no_run
/// use agentloop::ToolRunner;
/// use agentloop::mcp::{Prefix, Server, Servers};
///
/// # fn run(files: Server, git: Server) {
/// let servers = Servers::new([files, git])
///     .prefix(Prefix::Always)
///     .filter(|tool| tool.annotations().is_read_only())
///     .cache(true);
/// let runner = ToolRunner::new().mcp_servers(servers);
/// # }
/// ```
#[derive(Debug)]
#[must_use = "servers do nothing until a runner has them"]
pub struct Servers {
    servers: Vec<Server>,
    set: ToolSetBuilder,
    definitions: DefinitionOptions,
    results: ResultOptions,
    timeout: Option<Duration>,
}

impl Servers {
    /// These servers, whose tools come in this order. Each needs a name of its own.
    pub fn new(servers: impl IntoIterator<Item = Server>) -> Self {
        Self {
            servers: servers.into_iter().collect(),
            set: ToolSet::builder(),
            definitions: DefinitionOptions::new(),
            results: ResultOptions::new(),
            timeout: None,
        }
    }

    /// When names get the name of their server in front: where two would collide, by default.
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.set = self.set.prefix(prefix);
        self
    }

    /// Which tools are offered; all by default.
    pub fn filter(mut self, keep: impl Fn(&ListedTool) -> bool + Send + Sync + 'static) -> Self {
        self.set = self.set.filter(keep);
        self
    }

    /// Whether the last tool ends a cached prefix; off by default.
    pub fn cache(mut self, cache: bool) -> Self {
        self.definitions = self.definitions.cache(cache);
        self
    }

    /// How results become blocks.
    pub fn results(mut self, results: ResultOptions) -> Self {
        self.results = results;
        self
    }

    /// Limits the time of each call, whatever the runner's own limit is. Where neither says
    /// anything, a call may take five minutes.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Names that no tool here may take. [`ToolRunner::mcp_servers`] reserves those of the runner's tools
    /// by itself.
    pub fn reserve(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.set = self.set.reserve(names);
        self
    }

    /// The tools for a runner of one's own, the set behind them, and what was changed. Such a runner
    /// tells no changes of the lists; [`Server::has_changed`] does. Of two servers with one name the second
    /// is left out, and the report says so.
    pub fn into_tools(self) -> (Vec<Tool>, ToolSet, Report) {
        let Self { servers, mut set, definitions: options, results, timeout } = self;
        let mut connections = HashMap::new();
        for server in &servers {
            set = match connections.entry(server.name()) {
                Entry::Vacant(entry) => {
                    entry.insert(&server.connection);
                    set.server(server.name(), server.tools_json())
                }
                Entry::Occupied(_) => set.unavailable(server.name(), "another server has this name"),
            };
        }
        let (set, report) = set.build();
        let tool = |(listed, definition): (&SetTool, Box<RawValue>)| {
            let connection = connections.get(listed.server()).copied()?.clone();
            let name: Arc<str> = listed.mcp_name().into();
            let handler = move |input: Box<RawValue>, context: ToolContext| {
                let (connection, name) = (connection.clone(), Arc::clone(&name));
                async move { connection.call(&name, &input, context, results).await }
            };
            let tool = Tool::from_definition(definition.get()).handler_with(handler);
            let mut annotations = listed.annotations();
            annotations.title = listed.title().map(ToOwned::to_owned);
            let tool = tool.annotated(annotations).default_timeout(CALL_LIMIT);
            Some(match timeout {
                Some(limit) => tool.timeout(limit),
                None => tool,
            })
        };
        let tools = set.iter().zip(definitions(&set, options)).filter_map(tool).collect();
        (tools, set, report)
    }
}

impl<I: IntoIterator<Item = Server>> From<I> for Servers {
    fn from(servers: I) -> Self {
        Self::new(servers)
    }
}

impl ToolRunner {
    /// Adds the tools of an MCP server: [`mcp_servers`](Self::mcp_servers) for one.
    pub fn mcp(self, server: Server) -> Self {
        self.mcp_servers([server])
    }

    /// Adds the tools of MCP servers, behind those that the runner has.
    ///
    /// Tools that the runner has already keep their names. Among the new ones all whose names meet get
    /// new names, so add the servers in one call unless they need options of their own. Two servers with
    /// one name, and a tool that is added later under a taken name, are errors before any request. What
    /// was renamed, shortened, cleaned or left out is told as a warning to `tracing`;
    /// [`Servers::into_tools`] returns it.
    ///
    /// The calls run like those of other tools, with the runner's concurrency and limits of time; where
    /// none is set, a call may take five minutes. How far they are is told as
    /// [`RunEvent::ToolProgress`](crate::RunEvent::ToolProgress), and a list that changes as
    /// [`RunEvent::ToolsChanged`](crate::RunEvent::ToolsChanged). A server that is gone, hangs or breaks
    /// the protocol is an error result, and the loop goes on. This crate sends no call twice (over HTTP
    /// the transport of `rmcp` may, as the guide says). One that is dropped or takes too long is told to
    /// the server as cancelled.
    pub fn mcp_servers(self, servers: impl Into<Servers>) -> Self {
        let native: Vec<_> = self.tool_names().map(ToOwned::to_owned).collect();
        let servers = servers.into();
        let mut names = HashSet::new();
        if let Some(server) = servers.servers.iter().find(|server| !names.insert(server.name())) {
            let name = json::shown(server.name());
            return self.fail(Error::request(format!(
                "two MCP servers are named `{name}`: connect each under a name of its own"
            )));
        }
        let lists: Vec<_> = servers.servers.iter().map(Server::watch).collect();
        let (tools, ..) = servers.reserve(native).into_tools();
        self.watch(lists).tools(tools)
    }
}

/// How long a call may take where nobody says anything. Servers hang.
const CALL_LIMIT: Duration = Duration::from_secs(300);
