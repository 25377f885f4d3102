//! The tools of all servers, under the names that the model knows them by.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::builder::ToolSetBuilder;
use super::listing::ListedTool;
use crate::messages::json;
use crate::tool::Annotations;

/// The tools of named servers as the model gets them, each of which maps back to its server and
/// its name there, by a table.
///
/// A set is data: it knows no connection, and it does not change. Its clones share everything.
///
/// ```
/// use agentloop::mcp::ToolSet;
///
/// let tools = r#"[{"name": "search", "inputSchema": {"type": "object"}}]"#;
/// let (set, report) = ToolSet::builder().server("web", tools).server("mail", tools).build();
///
/// let names: Vec<_> = set.iter().map(|tool| tool.name()).collect();
/// assert_eq!(names, ["web__search", "mail__search"]);
/// let tool = set.get("mail__search").unwrap();
/// assert_eq!((tool.server(), tool.mcp_name()), ("mail", "search"));
/// assert_eq!(report.iter().len(), 2);
/// ```
#[derive(Clone, Default)]
pub struct ToolSet {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    tools: Vec<SetTool>,
    by_name: HashMap<Box<str>, usize>,
    native: Vec<Box<str>>,
}

/// A tool of a set.
#[derive(Clone)]
pub struct SetTool {
    pub(super) name: Box<str>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) schema: Box<RawValue>,
    pub(super) listed: ListedTool,
}

impl ToolSet {
    /// Makes a set from the lists of servers.
    pub fn builder() -> ToolSetBuilder {
        ToolSetBuilder::default()
    }

    pub(super) fn new(tools: Vec<SetTool>, native: Vec<Box<str>>) -> Self {
        let by_name = tools.iter().enumerate().map(|(at, tool)| (tool.name.clone(), at)).collect();
        Self { inner: Arc::new(Inner { tools, by_name, native }) }
    }

    /// The tool that the model knows by this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SetTool> {
        self.inner.by_name.get(name).and_then(|at| self.inner.tools.get(*at))
    }

    /// The tools, in the order of the servers and of their lists.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SetTool> {
        self.inner.tools.iter()
    }

    /// How many tools there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.tools.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.tools.is_empty()
    }

    /// True for a name that the builder was told to leave to a native tool.
    pub(super) fn is_native(&self, name: &str) -> bool {
        self.inner.native.iter().any(|native| &**native == name)
    }

    /// The tool that an error of the API is about. The API names tools by their place in the
    /// request alone (`tools.17.custom.input_schema: …`). `before` says how many entries of `tools`
    /// come before those of the set.
    ///
    /// ```
    /// use agentloop::mcp::ToolSet;
    ///
    /// let tools = r#"[{"name": "a", "inputSchema": {}}, {"name": "b", "inputSchema": {}}]"#;
    /// let (set, _) = ToolSet::builder().server("files", tools).build();
    ///
    /// let message = "tools.3.custom.input_schema: JSON schema is invalid. It must match draft 2020-12";
    /// let tool = set.refused_tool(message, 2).unwrap();
    /// assert_eq!((tool.server(), tool.mcp_name()), ("files", "b"));
    /// assert!(set.refused_tool("messages.3: too long", 2).is_none());
    /// ```
    #[must_use]
    pub fn refused_tool(&self, message: &str, before: usize) -> Option<&SetTool> {
        let index = message.match_indices("tools.").find_map(|(at, found)| {
            let inside = |last: char| last.is_ascii_alphanumeric() || matches!(last, '_' | '.' | '-');
            if message[..at].ends_with(inside) {
                return None;
            }
            let rest = &message[at + found.len()..];
            let digits = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse::<usize>().ok()
        })?;
        self.inner.tools.get(index.checked_sub(before)?)
    }
}

impl SetTool {
    /// The name that the model knows it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.listed.server()
    }

    /// Its name at the server, which is what `tools/call` takes.
    #[must_use]
    pub fn mcp_name(&self) -> &str {
        self.listed.name()
    }

    /// The title for people, cleaned.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The description as it is sent: cleaned, and the title where there is no other.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The schema as it is sent.
    #[must_use]
    pub fn input_schema(&self) -> &RawValue {
        &self.schema
    }

    /// What the server says about its effects.
    #[must_use]
    pub fn annotations(&self) -> Annotations {
        self.listed.annotations()
    }

    /// What the server lists, as it lists it.
    #[must_use]
    pub fn listed(&self) -> &ListedTool {
        &self.listed
    }
}

/// What the entries of `tools` hold besides the tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DefinitionOptions {
    /// Marks the last tool as the end of a cached prefix, and with it the whole list.
    pub cache: bool,
}

impl DefinitionOptions {
    /// Nothing besides the tools.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `cache_control: {"type":"ephemeral"}` on the last tool, which caches the whole list.
    #[must_use]
    pub fn cache(mut self, cache: bool) -> Self {
        self.cache = cache;
        self
    }
}

/// The entries of a request's `tools`: name, description and input schema of each tool, in the
/// order of the set. Nothing here sets a `tool_choice`.
///
/// ```
/// use agentloop::mcp::{self, DefinitionOptions, ToolSet};
///
/// let tools = r#"[{"name": "ls", "description": "Lists a folder", "inputSchema": {"type":"object"}}]"#;
/// let (set, _) = ToolSet::builder().server("files", tools).build();
///
/// let entries = mcp::definitions(&set, DefinitionOptions::new().cache(true));
/// assert_eq!(
///     entries[0].get(),
///     r#"{"name":"ls","description":"Lists a folder","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}"#
/// );
/// ```
#[must_use]
pub fn definitions(set: &ToolSet, options: DefinitionOptions) -> Vec<Box<RawValue>> {
    let last = set.len().wrapping_sub(1);
    let definition = |(at, tool): (usize, &SetTool)| {
        let mut text = format!(r#"{{"name":{}"#, json::to_raw(&*tool.name));
        if let Some(description) = &tool.description {
            text.push_str(&format!(r#","description":{}"#, json::to_raw(description)));
        }
        text.push_str(&format!(r#","input_schema":{}"#, tool.schema));
        if options.cache && at == last {
            text.push_str(r#","cache_control":{"type":"ephemeral"}"#);
        }
        text.push('}');
        json::text(&text)
    };
    set.iter().enumerate().map(definition).collect()
}

/// Names alone: the rest is the servers' words.
impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for SetTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetTool")
            .field("name", &self.name)
            .field("listed", &self.listed)
            .finish_non_exhaustive()
    }
}
