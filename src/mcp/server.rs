//! Servers that there is a connection to.

use std::fmt;
use std::sync::Arc;

use rmcp::service::{Peer, RoleClient, RunningService, Service};
use tokio::task::JoinSet;

use super::connection::{Connection, Held};
use super::connector::{ConnectError, ConnectErrorKind};
use super::heard::Heard;
use crate::runner::events::ListWatch;

/// A connected MCP server and the tools that it lists.
///
/// [`spawn`](super::spawn) and [`Connector`](super::Connector) make one, and [`connect`](Self::connect)
/// of a connection that `rmcp` made. The list of tools is taken once: a run, and the cache prefix of
/// its requests, see the same tools to the end. [`has_changed`](Self::has_changed) says whether it
/// still holds, and [`refresh`](Self::refresh) takes it again for the next run.
///
/// `Debug` shows the name, how many bytes the list has, and the state.
#[derive(Clone)]
pub struct Server {
    /// The JSON of its tools.
    tools: Arc<str>,
    /// How often the list had changed when it was taken.
    changes: u64,
    pub(super) connection: Connection,
}

impl Server {
    /// Takes a running connection over and lists the server's tools. It is closed when the last
    /// clone of the server, and of the tools made of it, is dropped.
    ///
    /// What the server says unasked goes to the service alone: no progress is told, no change is
    /// seen, and a call that asks for more input is refused. [`Connector`](super::Connector) has all
    /// of it.
    ///
    /// ```no_run
    /// use agentloop::mcp::{self, rmcp};
    /// use rmcp::ServiceExt as _;
    ///
    /// # async fn run(transport: (tokio::io::DuplexStream, tokio::io::DuplexStream)) -> Result<(), Box<dyn std::error::Error>> {
    /// let service = ().serve(transport).await?;
    /// let files = mcp::Server::connect("files", service).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// There is no limit of time: `tokio::time::timeout` around it is one.
    ///
    /// # Errors
    /// The server did not list its tools.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect<S: Service<RoleClient>>(
        name: impl Into<String>,
        service: RunningService<RoleClient, S>,
    ) -> Result<Self, ConnectError> {
        let (peer, heard) = (service.peer().clone(), Arc::<Heard>::default());
        let held = Held::new(service, None, JoinSet::new(), Arc::clone(&heard));
        Self::over(name.into(), peer, Some(Arc::new(held)), heard).await
    }

    /// As [`connect`](Self::connect) for a connection that the caller keeps: it has to live for as
    /// long as calls are made.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Safe: the connection stays as it is.
    pub async fn of(name: impl Into<String>, peer: &Peer<RoleClient>) -> Result<Self, ConnectError> {
        Self::over(name.into(), peer.clone(), None, Arc::default()).await
    }

    async fn over(
        name: String,
        peer: Peer<RoleClient>,
        held: Option<Arc<Held>>,
        heard: Arc<Heard>,
    ) -> Result<Self, ConnectError> {
        Self::list(Connection { name: name.into(), peer, held, heard, handler: None }).await
    }

    pub(super) async fn list(connection: Connection) -> Result<Self, ConnectError> {
        // Read before, so that a change meanwhile is not missed.
        let changes = connection.heard.changes();
        match connection.all_tools().await {
            Ok(tools) => Ok(Self { tools: tools.into(), changes, connection }),
            Err(error) => Err(ConnectError::new(&connection.name, ConnectErrorKind::List, error)),
        }
    }

    /// The same server with its tools as they are now, over the same connection. Runners that have
    /// the old list keep it.
    ///
    /// ```no_run
    /// use agentloop::{Client, ToolRunner, mcp::Server};
    ///
    /// # async fn run(client: Client, mut files: Server) -> Result<(), Box<dyn std::error::Error>> {
    /// for prompt in ["What is new?", "And now?"] {
    ///     if files.has_changed() {
    ///         files = files.refresh().await?;
    ///     }
    ///     let run = ToolRunner::new().mcp(files.clone()).run(&client, prompt).await?;
    ///     println!("{}", run.text());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// There is no limit of time: `tokio::time::timeout` around it is one.
    ///
    /// # Errors
    /// The server did not list its tools.
    ///
    /// # Cancel safety
    /// Safe: this server stays as it is.
    pub async fn refresh(&self) -> Result<Self, ConnectError> {
        Self::list(self.connection.clone()).await
    }

    /// The name that it was connected under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.connection.name
    }

    /// What it lists: a JSON array of MCP tools.
    #[must_use]
    pub fn tools_json(&self) -> &str {
        &self.tools
    }

    /// Closes the connection, for all clones and for the tools made of them, and ends the processes
    /// of a server that was [spawned](super::spawn), which takes about two seconds where it does not end
    /// by itself. It does nothing to a connection that the caller keeps, and a second one returns at once.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection and kills the processes at once.
    pub async fn shutdown(self) {
        if let Some(held) = &self.connection.held {
            held.close().await;
        }
    }

    /// True while the connection is there. A call over one that is gone is an error result at once.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection.is_open()
    }

    /// True if the server said that its list of tools has changed since this one was taken, or may have
    /// said so while nobody listened. One that can't say so never has. A run tells it as [`RunEvent::ToolsChanged`](crate::RunEvent::ToolsChanged).
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.connection.heard.changes() != self.changes
    }

    /// Where changes of the list are seen from.
    pub(super) fn watch(&self) -> ListWatch {
        ListWatch { server: self.name().into(), count: self.connection.heard.count(), seen: self.changes }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name())
            .field("list_bytes", &self.tools.len())
            .field("is_connected", &self.is_connected())
            .field("has_changed", &self.has_changed())
            .finish_non_exhaustive()
    }
}
