//! What building a tool set changed, and why.

use std::fmt;

use tracing::{debug, warn};

use crate::messages::json;

/// What was renamed, dropped or changed on the way from the servers' lists to the tool set.
///
/// Nothing is changed in silence: what is not in here is offered as its server lists it. The
/// entries are in the order of the lists. Building also tells each of them to `tracing`, with
/// names and reasons and without any text of a definition.
///
/// ```
/// use agentloop::mcp::{Kind, Reason, ToolSet};
///
/// let tools = r#"[{"name": "read.file", "description": "Reads\u200b a file", "inputSchema": {"type": "object"}}]"#;
/// let (_, report) = ToolSet::builder().server("files", tools).build();
///
/// let kinds: Vec<_> = report.iter().map(|entry| entry.kind()).collect();
/// assert_eq!(kinds, [Kind::Cleaned, Kind::Renamed]);
/// assert!(matches!(report.iter().last().unwrap().reason(), Reason::Characters));
/// assert_eq!(
///     report.to_string(),
///     "files: read.file: cleaned: 1 hidden character in `description`\n\
///      files: read.file: renamed to `read_file`: the API takes no other characters\n"
/// );
/// ```
#[derive(Clone, Debug, Default)]
pub struct Report {
    entries: Vec<Entry>,
}

/// One change.
#[derive(Clone, Debug)]
pub struct Entry {
    server: Box<str>,
    tool: Box<str>,
    name: Option<Box<str>>,
    reason: Reason,
}

/// What kind of change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Hidden characters were taken out of a text.
    Cleaned,
    /// The model does not get the tool.
    Dropped,
    /// The model gets the tool under another name.
    Renamed,
    /// The input schema says something else.
    SchemaChanged,
    /// A name or a text was cut.
    Shortened,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Dropped: the server lists the name twice. The first one stays.
    Duplicate,
    /// Dropped: a filter left it out.
    Filtered,
    /// Dropped: the name of a parameter, or another name in the schema, holds hidden characters.
    /// It can't be cleaned, for the server knows no other name.
    HiddenName,
    /// Dropped: no name is left for it. Needs two names with equal hashes.
    NameTaken,
    /// Dropped: it has no name, or an empty one.
    NoName,
    /// Dropped with its whole server: there is no list, for the reason given.
    NoTools(Box<str>),
    /// Dropped: no schema that the API takes says what this one says.
    UnusableSchema(Box<str>),
    /// Renamed: characters were replaced that the API does not take.
    Characters,
    /// Renamed: another tool would have the same name.
    Collision,
    /// Renamed: a native tool has the name.
    Native,
    /// Renamed: names begin with the server's by [`Prefix::Always`](super::Prefix::Always).
    Prefixed,
    /// Shortened: the name was too long.
    LongName,
    /// Shortened: the text at this place was too long.
    LongText(Box<str>),
    /// Cleaned: so many characters in the text at this place.
    HiddenCharacters(Box<str>, usize),
    /// Schema: a bound at this place is beyond 2^53, where numbers are not exact everywhere.
    Bound(Box<str>),
    /// Schema: a keyword at this place was no JSON Schema and was left out, which only allows more.
    Keyword(Box<str>),
    /// Schema: a keyword at this place had an old spelling.
    OldKeyword(Box<str>),
    /// Schema: combinators or a reference at the root became one object.
    Folded,
    /// Schema: the root was made an object.
    RootObject,
}

impl Report {
    /// The changes, in the order of the lists.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// True if the model gets each tool as its server lists it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The tools that the model does not get.
    pub fn dropped(&self) -> impl Iterator<Item = &Entry> {
        self.iter().filter(|entry| entry.kind() == Kind::Dropped)
    }

    pub(super) fn add(&mut self, server: &str, tool: &str, name: Option<&str>, reason: Reason) {
        let name = name.map(Into::into);
        self.entries.push(Entry { server: server.into(), tool: tool.into(), name, reason });
    }

    /// Tells every change. What the caller asked for is no warning.
    pub(super) fn trace(&self) {
        for entry in &self.entries {
            let (server, tool) = (json::shown(&entry.server), json::shown(&entry.tool));
            let (change, reason) = (entry.kind().as_str(), entry.reason.as_str());
            match entry.reason {
                Reason::Filtered | Reason::Prefixed => {
                    debug!(server, tool, change, reason, "an MCP tool is offered as it was asked for");
                }
                _ => warn!(server, tool, change, reason, "an MCP tool is not offered as its server lists it"),
            }
        }
    }
}

impl Entry {
    /// The server's name.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The tool's name at its server; empty if it has none, or if the whole list is meant.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The name that the model knows the tool by, unless it was dropped.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What kind of change it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.reason.kind()
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.reason
    }
}

impl Kind {
    /// A short word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cleaned => "cleaned",
            Self::Dropped => "dropped",
            Self::Renamed => "renamed",
            Self::SchemaChanged => "schema changed",
            Self::Shortened => "shortened",
        }
    }
}

impl Reason {
    /// The kind of change that it is a reason for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Duplicate
            | Self::Filtered
            | Self::HiddenName
            | Self::NameTaken
            | Self::NoName
            | Self::NoTools(_)
            | Self::UnusableSchema(_) => Kind::Dropped,
            Self::Characters | Self::Collision | Self::Native | Self::Prefixed => Kind::Renamed,
            Self::LongName | Self::LongText(_) => Kind::Shortened,
            Self::HiddenCharacters(..) => Kind::Cleaned,
            Self::Bound(_) | Self::Keyword(_) | Self::OldKeyword(_) | Self::Folded | Self::RootObject => {
                Kind::SchemaChanged
            }
        }
    }

    /// A short name for it, without any of the server's words.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Filtered => "filtered",
            Self::HiddenName => "hidden_name",
            Self::NameTaken => "name_taken",
            Self::NoName => "no_name",
            Self::NoTools(_) => "no_tools",
            Self::UnusableSchema(_) => "unusable_schema",
            Self::Characters => "characters",
            Self::Collision => "collision",
            Self::Native => "native",
            Self::Prefixed => "prefixed",
            Self::LongName => "long_name",
            Self::LongText(_) => "long_text",
            Self::HiddenCharacters(..) => "hidden_characters",
            Self::Bound(_) => "bound",
            Self::Keyword(_) => "keyword",
            Self::OldKeyword(_) => "old_keyword",
            Self::Folded => "folded",
            Self::RootObject => "root_object",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate => f.write_str("the server lists the name twice"),
            Self::Filtered => f.write_str("a filter left it out"),
            Self::HiddenName => f.write_str("a name in its schema holds hidden characters"),
            Self::NameTaken => f.write_str("every name for it is taken"),
            Self::NoName => f.write_str("it has no name"),
            Self::NoTools(why) => f.write_str(why),
            Self::UnusableSchema(why) => write!(f, "its schema can't be used: {why}"),
            Self::Characters => f.write_str("the API takes no other characters"),
            Self::Collision => f.write_str("another tool would have the same name"),
            Self::Native => f.write_str("a native tool has the name"),
            Self::Prefixed => f.write_str("names begin with that of the server"),
            Self::LongName => f.write_str("the name is too long"),
            Self::LongText(place) => write!(f, "`{place}` is too long"),
            Self::HiddenCharacters(place, 1) => write!(f, "1 hidden character in `{place}`"),
            Self::HiddenCharacters(place, count) => write!(f, "{count} hidden characters in `{place}`"),
            Self::Bound(place) => write!(f, "the bound `{place}` is beyond 2^53 and was left out"),
            Self::Keyword(place) => write!(f, "`{place}` is no JSON Schema and was left out"),
            Self::OldKeyword(place) => write!(f, "`{place}` has an old spelling"),
            Self::Folded => f.write_str("the API takes no combinator and no reference at the root"),
            Self::RootObject => f.write_str("the root has to be an object"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&json::shown(&self.server))?;
        if !self.tool.is_empty() {
            write!(f, ": {}", json::shown(&self.tool))?;
        }
        write!(f, ": {}", self.kind())?;
        if let (Kind::Renamed, Some(name)) = (self.kind(), &self.name) {
            write!(f, " to `{name}`")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// One entry per line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}
