//! How servers are connected to.

use std::any::TypeId;
use std::error::Error as StdError;
use std::fmt;
use std::process::Stdio;
use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{ServerPeerInfo, SubscriptionFilter};
use rmcp::service::{ClientLifecycleMode, Peer, RoleClient, serve_client_with_lifecycle};
use rmcp::transport::{IntoTransport, Transport};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::child::Child;
use super::connection::{Connection, Held};
use super::rounds::Answer;
use super::server::Server;
use super::tap::{Heard, Tap};

/// Connects to an MCP server: one that runs, or one that is started.
///
/// ```no_run
/// use agentloop::mcp::rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData};
/// use agentloop::mcp::rmcp::service::{RequestContext, RoleClient};
/// use agentloop::mcp::rmcp::{ClientHandler, model::ClientConfig};
/// use agentloop::mcp::Connector;
///
/// /// Answers the questions of servers.
/// struct Answers;
///
/// impl ClientHandler for Answers {
///     async fn create_elicitation(
///         &self,
///         question: ElicitRequestParams,
///         _: RequestContext<RoleClient>,
///     ) -> Result<ElicitResult, ErrorData> {
///         // … ask somebody, by `question`
///         Ok(ElicitResult::new(ElicitationAction::Decline))
///     }
///
///     fn get_info(&self) -> ClientConfig {
///         let mut info = ClientConfig::default();
///         info.capabilities.elicitation = Some(Default::default());
///         info
///     }
/// }
///
/// # async fn run(stream: tokio::net::TcpStream) -> Result<(), Box<dyn std::error::Error>> {
/// let server = Connector::new("booking").handler(Answers).connect(stream).await?;
/// # Ok(()) }
/// ```
#[must_use = "a connector does nothing until it connects"]
pub struct Connector<H = ()> {
    name: Arc<str>,
    handler: H,
    lifecycle: ClientLifecycleMode,
}

/// Why there is no connection to a server, or no list of its tools.
#[derive(Debug)]
pub struct ConnectError {
    name: Arc<str>,
    what: &'static str,
    source: Box<dyn StdError + Send + Sync>,
}

impl Connector {
    /// A connector for the server that goes by this name here. What it asks in return is refused.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into().into(), handler: (), lifecycle: ClientLifecycleMode::Initialize }
    }
}

impl<H: ClientHandler> Connector<H> {
    /// Answers what the server asks in return: input of a person (elicitation), replies of a model
    /// (sampling), the folders it may work in (roots), as a request of its own or in place of the
    /// result of a call (`input_required`). Servers ask for what `get_info` says the handler can do.
    pub fn handler<N: ClientHandler>(self, handler: N) -> Connector<N> {
        Connector { name: self.name, handler, lifecycle: self.lifecycle }
    }

    /// How the two sides get to know each other: by `initialize`, unless this says otherwise.
    /// Servers of the protocol of 2026-07-28 alone have no `initialize`, and want `Discover`.
    pub fn lifecycle(mut self, lifecycle: ClientLifecycleMode) -> Self {
        self.lifecycle = lifecycle;
        self
    }

    /// Connects over a transport, any that `rmcp` has or takes, and lists the server's tools. The
    /// connection is closed when the last clone of the server, and of the tools made of it, is
    /// dropped.
    ///
    /// There is no limit of time: `tokio::time::timeout` around it is one.
    ///
    /// # Errors
    /// What is at the other end is no MCP server, or it did not list its tools.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect<T, E, A>(self, transport: T) -> Result<Server, ConnectError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: StdError + Send + Sync + 'static,
    {
        self.over(transport.into_transport(), None).await
    }

    /// Starts a server that speaks over its standard input and output, and connects to it, as
    /// [`spawn`] tells.
    ///
    /// # Errors
    /// As [`spawn`].
    ///
    /// # Panics
    /// Outside of a Tokio runtime with IO and time switched on.
    ///
    /// # Cancel safety
    /// Dropping the future kills what was started.
    pub async fn spawn(self, mut command: Command) -> Result<Server, ConnectError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = Child::start(command).map_err(|error| self.error("could not be started", error))?;
        match child.pipes() {
            Some((input, output)) => {
                let transport = IntoTransport::<RoleClient, _, _>::into_transport((output, input));
                self.over(transport, Some(child)).await
            }
            None => {
                child.end().await;
                Err(self.error("could not be started", "it has no standard input or output"))
            }
        }
    }

    async fn over<T: Transport<RoleClient> + 'static>(
        self,
        transport: T,
        child: Option<Child>,
    ) -> Result<Server, ConnectError> {
        let heard = Arc::<Heard>::default();
        let transport = Tap::new(transport, Arc::clone(&heard));
        let (name, handler) = (self.name, Arc::new(self.handler));
        let service = match serve_client_with_lifecycle(Arc::clone(&handler), transport, self.lifecycle).await
        {
            Ok(service) => service,
            Err(error) => {
                if let Some(child) = child {
                    child.end().await;
                }
                return Err(ConnectError::new(&name, "does not speak MCP", error));
            }
        };
        let answers = TypeId::of::<H>() != TypeId::of::<()>();
        let peer = service.peer().clone();
        let listener = listener(&peer);
        let connection = Connection {
            name,
            peer,
            held: Some(Arc::new(Held::new(service, child, listener))),
            heard,
            handler: answers.then(|| Arc::new(handler) as Arc<dyn Answer>),
        };
        let held = connection.held.clone();
        let server = Server::list(connection).await;
        if let (Err(_), Some(held)) = (&server, held) {
            held.close().await;
        }
        server
    }

    fn error(&self, what: &'static str, source: impl Into<Box<dyn StdError + Send + Sync>>) -> ConnectError {
        ConnectError::new(&self.name, what, source)
    }
}

/// Asks to hear of changes of the list where the protocol wants to be asked.
fn listener(peer: &Peer<RoleClient>) -> JoinSet<()> {
    let mut task = JoinSet::new();
    let tells = |info: &ServerPeerInfo| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize() && tools.is_some_and(|tools| tools.list_changed == Some(true))
    };
    if peer.peer_info().is_some_and(|info| tells(&info)) {
        let peer = peer.clone();
        task.spawn(async move {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            // What comes is heard on its way in. If it is refused, nothing is heard.
            let Ok(mut subscription) = peer.listen(filter).await else { return };
            while let Ok(Some(_)) = subscription.next().await {}
        });
    }
    task
}

/// Starts an MCP server that speaks over its standard input and output, connects to it, and lists
/// its tools. [`Connector::spawn`] does the same, with a handler for what the server asks.
///
/// It runs in a process group of its own (on Windows in a job), so that what it starts ends with it:
/// a wrapper script, or the real server behind one. [`Server::shutdown`] lets it end by itself for a
/// while; a drop of the last clone kills the group at once, without a runtime. What it writes to its
/// standard error goes where yours goes, unless the command says otherwise.
///
/// There is no limit of time: `tokio::time::timeout` around it is one.
///
/// ```no_run
/// use agentloop::{ToolRunner, mcp};
/// use tokio::process::Command;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let mut command = Command::new("npx");
/// command.args(["-y", "@modelcontextprotocol/server-filesystem", "."]);
/// let files = mcp::spawn("files", command).await?;
/// let runner = ToolRunner::new().mcp(files.clone());
/// // …
/// files.shutdown().await;
/// # Ok(()) }
/// ```
///
/// # Errors
/// The command could not be started, or what it started is no MCP server. No process of it is left.
///
/// # Panics
/// Outside of a Tokio runtime with IO and time switched on.
///
/// # Cancel safety
/// Dropping the future kills what was started.
pub async fn spawn(name: impl Into<String>, command: Command) -> Result<Server, ConnectError> {
    Connector::new(name).spawn(command).await
}

impl ConnectError {
    pub(super) fn new(
        name: &Arc<str>,
        what: &'static str,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { name: Arc::clone(name), what, source: source.into() }
    }
}

impl<H> fmt::Debug for Connector<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("name", &self.name)
            .field("lifecycle", &self.lifecycle)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server `{}` {}", self.name, self.what)
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}
