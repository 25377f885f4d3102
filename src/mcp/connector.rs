//! How servers are connected to.

use std::any::TypeId;
use std::error::Error as StdError;
use std::fmt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{ServerPeerInfo, SubscriptionFilter};
use rmcp::service::{ClientLifecycleMode, Peer, RoleClient, ServiceError, serve_client_with_lifecycle};
use rmcp::transport::{IntoTransport, Transport};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::child::Child;
use super::connection::{Connection, Held};
use super::handler::{Guarded, Handler};
use super::heard::Heard;
use super::server::Server;
use super::tap::Tap;

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
///
/// Its source is what `rmcp` says, which may show the address of the server with all that is in it.
#[derive(Debug)]
pub struct ConnectError {
    name: Arc<str>,
    kind: ConnectErrorKind,
    source: Box<dyn StdError + Send + Sync>,
}

/// How far a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The command could not be started.
    Start,
    /// What is at the other end said no hello: it is no MCP server, has ended, lets nobody in, or wants
    /// another [lifecycle](Connector::lifecycle).
    Handshake,
    /// The server did not list its tools.
    List,
}

impl Connector {
    /// A connector for the server that goes by this name here. Without a [handler](Self::handler) input
    /// of a person is declined, a reply of a model refused, and there are no folders.
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
    /// Servers of the protocol of 2026-07-28 alone have no `initialize`, and want `Discover`; `Auto`
    /// asks, and takes up to ten seconds where a server says nothing.
    pub fn lifecycle(mut self, lifecycle: ClientLifecycleMode) -> Self {
        self.lifecycle = lifecycle;
        self
    }

    /// Connects over a transport, any that is an `IntoTransport`, and lists the server's tools. The
    /// connection is closed when the last clone of the server, and of the tools made of it, is
    /// dropped.
    ///
    /// There is no limit of time: `tokio::time::timeout` around it is one.
    ///
    /// # Errors
    /// What is at the other end is no MCP server, or it did not list its tools.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with time switched on.
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
        keep_keys(&mut command);
        let child = Child::start(command).map_err(|error| self.error(ConnectErrorKind::Start, error))?;
        match child.pipes() {
            Some((input, output)) => {
                let transport = IntoTransport::<RoleClient, _, _>::into_transport((output, input));
                self.over(transport, Some(child)).await
            }
            None => {
                child.end().await;
                Err(self.error(ConnectErrorKind::Start, "it has no standard input or output"))
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
        let guarded = Guarded::new(Arc::clone(&handler));
        let service = match serve_client_with_lifecycle(guarded, transport, self.lifecycle).await {
            Ok(service) => service,
            Err(error) => {
                if let Some(child) = child {
                    child.end().await;
                }
                return Err(ConnectError::new(&name, ConnectErrorKind::Handshake, error));
            }
        };
        // `()` answers nothing that a call may ask for.
        let answers = TypeId::of::<H>() != TypeId::of::<()>();
        let peer = service.peer().clone();
        let listener = listener(&peer, Arc::clone(&name), Arc::clone(&heard)).await;
        let connection = Connection {
            name,
            peer,
            held: Some(Arc::new(Held::new(service, child, listener, Arc::clone(&heard)))),
            heard,
            handler: answers.then(|| Arc::new(Guarded::new(handler)) as Arc<Handler>),
        };
        let held = connection.held.clone();
        let server = Server::list(connection).await;
        if let (Err(_), Some(held)) = (&server, held) {
            held.close().await;
        }
        server
    }

    fn error(
        &self,
        kind: ConnectErrorKind,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> ConnectError {
        ConnectError::new(&self.name, kind, source)
    }
}

/// Asks to hear of changes of the list where the protocol wants to be asked. The answer is awaited, for
/// a second at most, before the list is read, so that no change falls between the two.
async fn listener(peer: &Peer<RoleClient>, name: Arc<str>, heard: Arc<Heard>) -> JoinSet<()> {
    let mut task = JoinSet::new();
    let tells = |info: &ServerPeerInfo| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize() && tools.is_some_and(|tools| tools.list_changed == Some(true))
    };
    if peer.peer_info().is_some_and(|info| tells(&info)) {
        let peer = peer.clone();
        let (answers, answered) = oneshot::channel();
        task.spawn(async move {
            listen(&peer, &heard, answers).await;
            if !heard.is_closed() {
                tracing::warn!(server = &*name, "the server tells no changes of its tools");
            }
        });
        let _answer = timeout(PAUSE, answered).await;
    }
    task
}

/// Listens until the server refuses. What comes is heard on its way in, so nothing is done with it here.
async fn listen(peer: &Peer<RoleClient>, heard: &Heard, answers: oneshot::Sender<()>) {
    let mut answers = Some(answers);
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut pause = PAUSE;
    while !heard.is_closed() {
        let begun = Instant::now();
        match peer.listen(filter.clone()).await {
            Ok(mut subscription) if subscription.acknowledged().tools_list_changed == Some(true) => {
                if answers.take().is_none() {
                    // Nobody listened meanwhile.
                    heard.may_have_changed();
                }
                while let Ok(Some(_)) = subscription.next().await {}
            }
            Ok(_) | Err(ServiceError::McpError(_)) => return,
            Err(_) => {}
        }
        // The server ended it, or its words came faster than they are read one by one.
        if begun.elapsed() > PAUSE * 60 {
            pause = PAUSE;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE * 60);
    }
}

/// Starts an MCP server that speaks over its standard input and output, connects to it, and lists
/// its tools. [`Connector::spawn`] does the same, with a handler for what the server asks.
///
/// It runs in a process group of its own (on Windows in a job), so that what it starts ends with it:
/// a wrapper script, or the real server behind one. [`Server::shutdown`] lets it end by itself for a
/// while; a drop of the last clone kills the group at once, without a runtime. What it writes to its
/// standard error goes where yours goes, unless the command says otherwise. It inherits your
/// environment, but for the keys of the API, `ANTHROPIC_API_KEY` and `ANTHROPIC_AUTH_TOKEN`, unless the
/// command sets them.
///
/// There is no limit of time: `tokio::time::timeout` around it is one.
///
/// ```no_run
/// use agentloop::{ToolRunner, mcp};
/// use tokio::process::Command;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let mut command = Command::new("npx");
/// command.args(["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "."]);
/// let files = mcp::spawn("files", command).await?;
/// let runner = ToolRunner::new().mcp(files.clone());
/// // …
/// files.shutdown().await;
/// # Ok(()) }
/// ```
///
/// # Errors
/// The command could not be started, what it started is no MCP server, or it did not list its tools. No
/// process of it is left.
///
/// # Panics
/// Outside of a Tokio runtime with IO and time switched on.
///
/// # Cancel safety
/// Dropping the future kills what was started.
pub async fn spawn(name: impl Into<String>, command: Command) -> Result<Server, ConnectError> {
    Connector::new(name).spawn(command).await
}

/// Takes the keys of the API out of what the command inherits, unless it says something of them itself.
fn keep_keys(command: &mut Command) {
    for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"] {
        if command.as_std().get_envs().all(|(known, _)| known != name) {
            command.env_remove(name);
        }
    }
}

impl ConnectError {
    pub(super) fn new(
        name: &Arc<str>,
        kind: ConnectErrorKind,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { name: Arc::clone(name), kind, source: source.into() }
    }

    /// How far it came.
    #[must_use]
    pub fn kind(&self) -> ConnectErrorKind {
        self.kind
    }

    /// The name of the server here.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.name
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
        let what = match self.kind {
            ConnectErrorKind::Start => "could not be started",
            ConnectErrorKind::Handshake => "could not be greeted",
            ConnectErrorKind::List => "did not list its tools",
        };
        write!(f, "the server `{}` {what}", self.name)
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

/// How long a server has to say that it will tell what changes, and the pause until it is asked again.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_no_key_that_nobody_gave_it() {
        let mut command = Command::new("server");
        command.env("ANTHROPIC_AUTH_TOKEN", "meant for it").env("HOME", "/");
        keep_keys(&mut command);
        let mut said: Vec<_> =
            command.as_std().get_envs().map(|(name, value)| (name, value.is_some())).collect();
        said.sort();
        let said: Vec<_> = said.iter().map(|(name, is_set)| (name.to_str().unwrap(), *is_set)).collect();
        assert_eq!(said, [("ANTHROPIC_API_KEY", false), ("ANTHROPIC_AUTH_TOKEN", true), ("HOME", true)]);
    }
}
