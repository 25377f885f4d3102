//! Servers that are processes of ours.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use rmcp::ServiceExt as _;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::server::{GRACE, Held, Server};

/// Starts an MCP server that speaks over its standard input and output, connects to it, and lists
/// its tools.
///
/// It runs in a process group of its own (on Windows in a job), so that what it starts ends with it:
/// a wrapper script, or the real server behind one. [`Server::shutdown`] lets it end by itself for a
/// while; a drop of the last clone kills the group at once, without a runtime. What it writes to its
/// standard error goes where yours goes, unless the command says otherwise.
///
/// There is no limit of time: `tokio::time::timeout` around it is one.
///
/// Requests of the server, for input or for a reply of a model, are refused. To answer them, start
/// the process with `rmcp` and use [`Server::connect`].
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
pub async fn spawn(name: impl Into<String>, mut command: Command) -> Result<Server, SpawnError> {
    let name: Arc<str> = name.into().into();
    let failed =
        |what, source: Box<dyn StdError + Send + Sync>| SpawnError { name: Arc::clone(&name), what, source };
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = Child::start(command).map_err(|error| failed("could not be started", error.into()))?;
    let Some((input, output)) = child.pipes() else {
        child.end().await;
        return Err(failed("could not be started", "it has no standard input or output".into()));
    };
    let service = match ().serve((output, input)).await {
        Ok(service) => service,
        Err(error) => {
            child.end().await;
            return Err(failed("does not speak MCP", error.into()));
        }
    };
    let peer = service.peer().clone();
    let held = Arc::new(Held::new(service, Some(child)));
    match Server::list(name.to_string(), peer, Some(Arc::clone(&held))).await {
        Ok(server) => Ok(server),
        Err(error) => {
            held.close().await;
            Err(failed("did not list its tools", error.into()))
        }
    }
}

/// A process group. Dropping it kills the group.
pub(super) struct Child {
    group: Arc<Mutex<Group>>,
    /// Ends the group when the server has ended: what it started may hold its output open, and calls
    /// would wait for ever.
    _watch: JoinSet<()>,
}

struct Group {
    child: Box<dyn ChildWrapper>,
    /// The server has ended and its group was killed: its number may be another's by now.
    is_over: bool,
}

impl Child {
    fn start(command: Command) -> io::Result<Self> {
        let mut command = CommandWrap::from(command);
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessGroup::leader());
        #[cfg(windows)]
        command.wrap(process_wrap::tokio::JobObject);
        let group = Arc::new(Mutex::new(Group { child: command.spawn()?, is_over: false }));
        let mut watch = JoinSet::new();
        watch.spawn(Self::watch(Arc::downgrade(&group)));
        Ok(Self { group, _watch: watch })
    }

    async fn watch(group: Weak<Mutex<Group>>) {
        loop {
            sleep(LOOK).await;
            let Some(group) = group.upgrade() else { return };
            let mut group = lock(&group);
            if group.has_ended() {
                return group.kill();
            }
        }
    }

    fn pipes(&self) -> Option<(ChildStdin, ChildStdout)> {
        let mut group = lock(&self.group);
        Some((group.child.stdin().take()?, group.child.stdout().take()?))
    }

    /// Waits a while for the server to end by itself, and then ends whatever is left of its group.
    pub(super) async fn end(self) {
        let ended = async {
            while !lock(&self.group).has_ended() {
                sleep(LOOK).await;
            }
        };
        if timeout(GRACE, ended).await.is_err() {
            lock(&self.group).kill();
        }
        // The drop kills the rest: what the server started may outlive it.
    }
}

impl Group {
    /// True once the server itself has ended, and is reaped.
    fn has_ended(&mut self) -> bool {
        self.is_over || !matches!(self.child.try_wait(), Ok(None))
    }

    fn kill(&mut self) {
        if !self.is_over {
            let has_ended = self.has_ended();
            // An error means that nobody is left.
            let _gone = self.child.start_kill();
            self.is_over = has_ended;
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        lock(&self.group).kill();
    }
}

fn lock(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    group.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Why a server could not be started.
#[derive(Debug)]
pub struct SpawnError {
    name: Arc<str>,
    what: &'static str,
    source: Box<dyn StdError + Send + Sync>,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server `{}` {}", self.name, self.what)
    }
}

impl StdError for SpawnError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}
