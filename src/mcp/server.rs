//! Servers that somebody connected to with `rmcp`.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, ErrorData,
    ListToolsRequest, PaginatedRequestParams, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, RunningService, Service, ServiceError};
use serde_json::value::RawValue;

use super::child::Child;
use super::numbers::rounded;
use super::result::{Outcome, ResultOptions, output};
use crate::messages::json;
use crate::tool::{ToolError, ToolOutput};

/// A connected MCP server and the tools that it lists.
///
/// The connection is made with `rmcp`, over any of its transports. The list of tools is taken once:
/// a run, and the cache prefix of its requests, see the same tools to the end. To see what changed,
/// [connect](Self::connect) or [list](Self::of) again for the next run.
///
/// `Debug` shows the name and how many bytes the list has.
#[derive(Clone)]
pub struct Server {
    pub(super) name: Arc<str>,
    /// The JSON of its tools.
    pub(super) tools: Arc<str>,
    pub(super) connection: Connection,
}

/// What calls go over. Its clones share everything.
#[derive(Clone)]
pub(super) struct Connection {
    name: Arc<str>,
    peer: Peer<RoleClient>,
    /// What ends the connection when it is dropped. `None` where the caller keeps it.
    held: Option<Arc<Held>>,
}

/// Why the tools of a server can't be listed.
#[derive(Debug)]
pub struct ListError {
    name: Arc<str>,
    source: ServiceError,
}

impl Server {
    /// Takes a running connection over and lists the server's tools. It is closed when the last
    /// clone of the server, and of the tools made of it, is dropped.
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
    ) -> Result<Self, ListError> {
        let peer = service.peer().clone();
        Self::list(name.into(), peer, Some(Arc::new(Held::new(service, None)))).await
    }

    /// As [`connect`](Self::connect) for a connection that the caller keeps: it has to live for as
    /// long as calls are made.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    ///
    /// # Cancel safety
    /// Safe: the connection stays as it is.
    pub async fn of(name: impl Into<String>, peer: &Peer<RoleClient>) -> Result<Self, ListError> {
        Self::list(name.into(), peer.clone(), None).await
    }

    pub(super) async fn list(
        name: String,
        peer: Peer<RoleClient>,
        held: Option<Arc<Held>>,
    ) -> Result<Self, ListError> {
        let name: Arc<str> = name.into();
        let connection = Connection { name: Arc::clone(&name), peer, held };
        match connection.all_tools().await {
            Ok(tools) => Ok(Self { name, tools: tools.into(), connection }),
            Err(source) => Err(ListError { name, source }),
        }
    }

    /// The name that it was connected under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it lists: a JSON array of MCP tools.
    #[must_use]
    pub fn tools_json(&self) -> &str {
        &self.tools
    }

    /// Closes the connection, for all clones and for the tools made of them, and ends the processes
    /// of a server that was [spawned](super::spawn). It does nothing to a connection that the caller
    /// keeps.
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
        !self.connection.peer.is_transport_closed()
    }
}

/// A connection that is ours to end, and the processes at its other end.
pub(super) struct Held {
    service: Mutex<Option<Box<dyn Close>>>,
    child: Mutex<Option<Child>>,
}

impl Held {
    pub(super) fn new<S: Service<RoleClient>>(
        service: RunningService<RoleClient, S>,
        child: Option<Child>,
    ) -> Self {
        Self { service: Mutex::new(Some(Box::new(service))), child: Mutex::new(child) }
    }

    pub(super) async fn close(&self) {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(service) = service {
            service.close().await;
        }
        if let Some(child) = child {
            child.end().await;
        }
    }
}

/// A running service of any type.
trait Close: Send + Sync {
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl<S: Service<RoleClient>> Close for RunningService<RoleClient, S> {
    fn close(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let _reason = self.close_with_timeout(GRACE).await;
        })
    }
}

/// How long a server has to end by itself.
pub(super) const GRACE: Duration = Duration::from_secs(2);

impl Connection {
    /// All pages of the list, as one JSON array.
    async fn all_tools(&self) -> Result<String, ServiceError> {
        let mut entries: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        let mut cursor = None;
        loop {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
            let next = match self.peer.send_request(request).await? {
                ServerResult::ListToolsResult(page) => {
                    entries.extend(page.tools.iter().map(|tool| json::to_raw(tool).get().to_owned()));
                    page.next_cursor
                }
                // A page with a tool that `rmcp` can't read. One bad tool costs none of the others.
                ServerResult::CustomResult(page) => {
                    let Some(tools) = page.0.get("tools").and_then(|tools| tools.as_array()) else {
                        return Err(ServiceError::UnexpectedResponse);
                    };
                    entries.extend(tools.iter().map(ToString::to_string));
                    page.0.get("nextCursor").and_then(|cursor| cursor.as_str()).map(ToOwned::to_owned)
                }
                _ => return Err(ServiceError::UnexpectedResponse),
            };
            match next.filter(|next| !next.is_empty()) {
                Some(next) if seen.insert(next.clone()) => cursor = Some(next),
                Some(_) => {
                    tracing::warn!(
                        server = &*self.name,
                        "the server repeats a page of its tools, the list ends there"
                    );
                    break;
                }
                None => break,
            }
        }
        Ok(format!("[{}]", entries.join(",")))
    }

    /// Calls a tool, once.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: &RawValue,
        options: ResultOptions,
    ) -> Result<ToolOutput, ToolError> {
        let name = &*self.name;
        if let Some(number) = rounded(input.get()) {
            let number = json::shown(number);
            return failed(
                &format!(
                    "the number {number} can't be sent to the server `{name}` as it is: use a shorter one"
                ),
                options,
            );
        }
        if self.peer.is_transport_closed() {
            return failed(&format!("the server `{name}` is not connected: the call did not run"), options);
        }
        let params = CallToolRequestParams::new(tool.to_owned());
        let params = match serde_json::from_str(input.get()) {
            Ok(arguments) => params.with_arguments(arguments),
            Err(_) => return failed("the tool input is not an object", options),
        };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        // The raw request: `rmcp` knows a closed list of content kinds, and of a result that holds
        // another one its own call gives an error in place of all of it.
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let handle = match sent {
            Ok(handle) => handle,
            Err(error) => return failed(&self.lost(&error), options),
        };
        let guard = CancelOnDrop { peer: &self.peer, id: Some(handle.id.clone()) };
        let answer = handle.await_response().await;
        guard.disarm();
        match answer {
            Ok(ServerResult::CallToolResult(result)) => {
                output(Outcome::Result(json::to_raw(&result).get()), options)
            }
            Ok(ServerResult::CustomResult(result)) => output(Outcome::Result(&result.0.to_string()), options),
            // Results without content are read as one of these.
            Ok(ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_)) => {
                output(Outcome::Result(r#"{"content":[]}"#), options)
            }
            Ok(ServerResult::InputRequiredResult(_)) => failed(
                &format!(
                    "the server `{name}` asks for more input, which nobody here gives: the call is not complete"
                ),
                options,
            ),
            Ok(ServerResult::CreateTaskResult(_)) => failed(
                &format!(
                    "the server `{name}` made a task of the call, and nobody here waits for it: it may go on"
                ),
                options,
            ),
            Ok(_) => {
                failed(&format!("the server `{name}` answered with something that is no result"), options)
            }
            Err(ServiceError::McpError(ErrorData { code, message, .. })) => {
                failed(&format!("the server `{name}` refused the call: {message} (code {})", code.0), options)
            }
            Err(error) => failed(&self.lost(&error), options),
        }
    }

    fn lost(&self, error: &ServiceError) -> String {
        // Of a transport's own words a model has no use, and they may hold addresses.
        let why = match error {
            ServiceError::TransportClosed => "closed the connection",
            ServiceError::TransportSend(_) => "could not be reached",
            _ => "did not answer",
        };
        format!("the server `{}` {why}: whether the call ran is unknown", self.name)
    }
}

fn failed(text: &str, options: ResultOptions) -> Result<ToolOutput, ToolError> {
    output(Outcome::Failed(text), options)
}

/// Tells the server that nobody waits for a call any longer.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl CancelOnDrop<'_> {
    fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let peer = self.peer.clone();
        // The one message that outlives its call: a drop can't wait for it.
        runtime.spawn(async move {
            let reason = Some("the call was dropped".to_owned());
            let _sent = peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason)).await;
        });
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .field("list_bytes", &self.tools.len())
            .field("is_connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server `{}` did not list its tools", self.name)
    }
}

impl StdError for ListError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.source)
    }
}
