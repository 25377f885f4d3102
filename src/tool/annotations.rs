//! What a tool is said to do to the world.

/// What somebody says about the effects of a tool: hints, for nobody checks them. They have the
/// names and the defaults of MCP, whose servers send them.
///
/// ```
/// use agentloop::Tool;
/// use agentloop::tool::Annotations;
/// use serde_json::json;
///
/// let tool = Tool::new("ls", "Lists a folder", json!({"type": "object"}))
///     .annotated(Annotations::new().read_only(true));
///
/// assert!(tool.annotations().is_read_only() && !tool.annotations().is_destructive());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Annotations {
    /// A title for people.
    pub title: Option<String>,
    /// `readOnlyHint`: it changes nothing.
    pub read_only_hint: Option<bool>,
    /// `destructiveHint`: what it changes may be lost.
    pub destructive_hint: Option<bool>,
    /// `idempotentHint`: calling twice with the same arguments does no more than calling once.
    pub idempotent_hint: Option<bool>,
    /// `openWorldHint`: it deals with things outside of the server.
    pub open_world_hint: Option<bool>,
}

impl Annotations {
    /// Nothing is said.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says whether it changes nothing.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only_hint = Some(read_only);
        self
    }

    /// Says whether what it changes may be lost.
    #[must_use]
    pub fn destructive(mut self, destructive: bool) -> Self {
        self.destructive_hint = Some(destructive);
        self
    }

    /// Says whether calling twice with the same arguments does no more than calling once.
    #[must_use]
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent_hint = Some(idempotent);
        self
    }

    /// Says whether it deals with things outside of its own domain.
    #[must_use]
    pub fn open_world(mut self, open_world: bool) -> Self {
        self.open_world_hint = Some(open_world);
        self
    }

    /// True if it is said that it changes nothing. The default is that it may.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only_hint == Some(true)
    }

    /// True unless it is said that nothing is lost by it.
    #[must_use]
    pub fn is_destructive(&self) -> bool {
        !self.is_read_only() && self.destructive_hint != Some(false)
    }

    /// True if it is said that a second call does no more than the first.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.is_read_only() || self.idempotent_hint == Some(true)
    }

    /// True unless it is said that it stays within its own domain.
    #[must_use]
    pub fn is_open_world(&self) -> bool {
        self.open_world_hint != Some(false)
    }
}
