//! From the lists of servers to a set of tools.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use super::clean::{MAX_DESCRIPTION, cleaned};
use super::listing::{ListedTool, entries};
use super::names::{Assigned, Cause, Prefix, Wanted, assign};
use super::report::{Reason, Report};
use super::schema::adapt;
use super::set::{SetTool, ToolSet};

type Filter = Box<dyn Fn(&ListedTool) -> bool + Send + Sync>;

/// The lists of servers, and the rules by which they become a [`ToolSet`].
///
/// Setters never fail: what is wrong with a list or a tool is in the [`Report`].
///
/// ```
/// use agentloop::mcp::{Prefix, ToolSet};
///
/// let files = r#"[
///     {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}},
///     {"name": "write", "inputSchema": {"type": "object"}}
/// ]"#;
/// let (set, report) = ToolSet::builder()
///     .server("files", files)
///     .filter(|tool| tool.annotations().is_read_only())
///     .prefix(Prefix::Always)
///     .build();
///
/// assert_eq!(set.iter().map(|tool| tool.name()).collect::<Vec<_>>(), ["files__read"]);
/// assert_eq!(report.dropped().map(|entry| entry.tool()).collect::<Vec<_>>(), ["write"]);
/// ```
#[derive(Default)]
#[must_use = "a builder makes nothing until `build` is called"]
pub struct ToolSetBuilder {
    servers: Vec<Server>,
    filters: Vec<Filter>,
    prefix: Prefix,
    prefixes: BTreeMap<String, Prefix>,
    native: BTreeSet<String>,
}

struct Server {
    name: String,
    list: Result<Vec<ListedTool>, Box<str>>,
}

impl ToolSetBuilder {
    /// Adds a server: a name of your choice, and what its `tools/list` gave as JSON, the array or
    /// the result around it. The same name again adds to the list, as further pages do.
    pub fn server(mut self, name: impl Into<String>, tools: impl AsRef<str>) -> Self {
        let name = name.into();
        let list = entries(tools.as_ref())
            .map(|list| list.iter().map(|entry| ListedTool::new(&name, entry)).collect())
            .map_err(Into::into);
        self.servers.push(Server { name, list });
        self
    }

    /// Notes a server that could not be asked, and why, so that the report tells of it.
    pub fn unavailable(mut self, name: impl Into<String>, why: &str) -> Self {
        let why = crate::messages::json::shown(&cleaned(why, usize::MAX).text);
        self.servers.push(Server { name: name.into(), list: Err(why.into()) });
        self
    }

    /// Leaves out the tools for which this is false. With several filters all have to be true. What
    /// is left out is not there for names either, so it causes no collision.
    pub fn filter(mut self, keep: impl Fn(&ListedTool) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Box::new(keep));
        self
    }

    /// When names begin with that of their server; [`Prefix::OnCollision`] if this is not called.
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// The same for one server.
    pub fn prefix_of(mut self, server: impl Into<String>, prefix: Prefix) -> Self {
        self.prefixes.insert(server.into(), prefix);
        self
    }

    /// Keeps names for native tools: none of the set gets one of them, and
    /// [`calls`](super::calls()) leaves their calls alone.
    pub fn reserve(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.native.extend(names.into_iter().map(Into::into));
        self
    }

    /// Makes the set, and tells what is not as the servers list it.
    pub fn build(self) -> (ToolSet, Report) {
        let mut outcomes = Vec::new();
        let mut seen = HashSet::new();
        for server in &self.servers {
            match &server.list {
                Ok(list) => outcomes.extend(list.iter().map(|tool| self.judge(tool, &mut seen))),
                Err(why) => outcomes.push(Outcome::NoTools(&server.name, why.clone())),
            }
        }
        let wanted: Vec<_> = outcomes.iter().filter_map(Outcome::wanted).collect();
        let prefix = |server: &str| self.prefixes.get(server).copied().unwrap_or(self.prefix);
        let mut names = assign(&wanted, prefix, &self.native).into_iter();

        let mut report = Report::default();
        let mut tools = Vec::new();
        for outcome in outcomes {
            match outcome {
                Outcome::NoTools(server, why) => report.add(server, "", None, Reason::NoTools(why)),
                Outcome::Dropped(tool, reason) => report.add(tool.server(), tool.name(), None, reason),
                Outcome::Kept(tool) => match names.next().flatten() {
                    Some(name) => tools.push(tool.under(name, &mut report)),
                    None => report.add(tool.listed.server(), tool.listed.name(), None, Reason::NameTaken),
                },
            }
        }
        report.trace();
        (ToolSet::new(tools, self.native.into_iter().map(Into::into).collect()), report)
    }

    fn judge<'a>(&self, tool: &'a ListedTool, seen: &mut HashSet<(&'a str, &'a str)>) -> Outcome<'a> {
        if tool.name().is_empty() {
            return Outcome::Dropped(tool, Reason::NoName);
        }
        if !seen.insert((tool.server(), tool.name())) {
            return Outcome::Dropped(tool, Reason::Duplicate);
        }
        if !self.filters.iter().all(|keep| keep(tool)) {
            return Outcome::Dropped(tool, Reason::Filtered);
        }
        let (schema, schema_changes) = match adapt(tool.input_schema()) {
            Ok(adapted) => adapted,
            Err(reason) => return Outcome::Dropped(tool, reason),
        };
        let mut changes = Vec::new();
        let title = text("title", tool.title(), &mut changes);
        let description = text("description", tool.description(), &mut changes).or_else(|| title.clone());
        changes.extend(schema_changes);
        Outcome::Kept(Unnamed { listed: tool, title, description, schema, changes })
    }
}

/// What becomes of an entry of a list.
enum Outcome<'a> {
    NoTools(&'a str, Box<str>),
    Dropped(&'a ListedTool, Reason),
    Kept(Unnamed<'a>),
}

impl<'a> Outcome<'a> {
    fn wanted(&self) -> Option<Wanted<'a>> {
        match self {
            Self::Kept(tool) => Some(Wanted { server: tool.listed.server(), tool: tool.listed.name() }),
            _ => None,
        }
    }
}

/// A tool that is offered, under a name that depends on the others.
struct Unnamed<'a> {
    listed: &'a ListedTool,
    title: Option<String>,
    description: Option<String>,
    schema: Box<serde_json::value::RawValue>,
    changes: Vec<Reason>,
}

impl Unnamed<'_> {
    fn under(self, assigned: Assigned, report: &mut Report) -> SetTool {
        let cause = match assigned.cause {
            Cause::None => None,
            Cause::Policy => Some(Reason::Prefixed),
            Cause::Collision => Some(Reason::Collision),
            Cause::Native => Some(Reason::Native),
        };
        let changes = self
            .changes
            .into_iter()
            .chain(assigned.replaced.then_some(Reason::Characters))
            .chain(cause)
            .chain(assigned.shortened.then_some(Reason::LongName));
        for reason in changes {
            report.add(self.listed.server(), self.listed.name(), Some(&assigned.name), reason);
        }
        SetTool {
            name: assigned.name.into(),
            title: self.title,
            description: self.description,
            schema: self.schema,
            listed: self.listed.clone(),
        }
    }
}

/// A text as it is sent, if anything is left of it.
fn text(place: &str, text: Option<String>, changes: &mut Vec<Reason>) -> Option<String> {
    let text = text?;
    let cleaned = cleaned(&text, MAX_DESCRIPTION);
    if cleaned.removed > 0 {
        changes.push(Reason::HiddenCharacters(place.into(), cleaned.removed));
    }
    if cleaned.cut {
        changes.push(Reason::LongText(place.into()));
    }
    Some(cleaned.text.into_owned()).filter(|text| !text.trim().is_empty())
}

/// Names alone.
impl fmt::Debug for ToolSetBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSetBuilder")
            .field("servers", &self.servers.iter().map(|server| &server.name).collect::<Vec<_>>())
            .field("filters", &self.filters.len())
            .field("prefix", &self.prefix)
            .field("native", &self.native)
            .finish_non_exhaustive()
    }
}
