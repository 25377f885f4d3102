//! The connection to a server: its list of tools, and calls.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, ErrorData,
    ListToolsRequest, PaginatedRequestParams, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, RunningService, Service, ServiceError};
use serde_json::value::RawValue;
use tokio::task::{JoinSet, unconstrained};

use super::child::Child;
use super::handler::Handler;
use super::heard::{Heard, OfCall};
use super::numbers::rounded;
use super::result::{Outcome, ResultOptions, output};
use super::rounds::Rounds;
use crate::messages::json;
use crate::tool::{ToolContext, ToolError, ToolOutput};

/// What calls go over. Its clones share everything.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) name: Arc<str>,
    pub(super) peer: Peer<RoleClient>,
    /// What ends the connection when it is dropped. `None` where the caller keeps it.
    pub(super) held: Option<Arc<Held>>,
    /// What the server says unasked; nothing where we did not make the connection.
    pub(super) heard: Arc<Heard>,
    /// Who answers what the server asks. `None` refuses.
    pub(super) handler: Option<Arc<Handler>>,
}

impl Connection {
    /// All pages of the list, as one JSON array.
    pub(super) async fn all_tools(&self) -> Result<String, ServiceError> {
        let mut entries: Vec<String> = Vec::new();
        let mut bytes = 0;
        let mut seen = HashSet::new();
        let mut cursor = None;
        loop {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
            let known = entries.len();
            let next = match self.exchange(request).await? {
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
            bytes += entries[known..].iter().map(String::len).sum::<usize>();
            let has_room = seen.len() < MAX_PAGES && bytes < MAX_LIST;
            match next.filter(|next| !next.is_empty()) {
                Some(next) if has_room && seen.insert(next.clone()) => cursor = Some(next),
                Some(_) => {
                    tracing::warn!(
                        server = &*self.name,
                        pages = seen.len() + 1,
                        "the server repeats its pages of tools, or has no end of them: the list ends there"
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
        context: ToolContext,
        options: ResultOptions,
    ) -> Result<ToolOutput, ToolError> {
        match self.answer_of(tool, input, Arc::new(context)).await {
            Ok(result) => output(Outcome::Result(&result), options),
            Err(why) => output(Outcome::Failed(&why), options),
        }
    }

    /// What the server answers to a call, as JSON; `Err` says why there is no answer.
    async fn answer_of(
        &self,
        tool: &str,
        input: &RawValue,
        context: Arc<ToolContext>,
    ) -> Result<String, String> {
        let name = &*self.name;
        if let Some(number) = rounded(input.get()) {
            let number = json::shown(number);
            return Err(format!(
                "the number {number} can't be sent to the server `{name}` as it is: use a shorter one"
            ));
        }
        if !self.is_open() {
            return Err(format!("the server `{name}` is not connected: the call did not run"));
        }
        let arguments = serde_json::from_str(input.get()).map_err(|_| "the tool input is not an object")?;
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let mut rounds = pin!(unconstrained(self.rounds(params, &context)));
        tokio::select! {
            biased;
            answer = &mut rounds => return answer,
            () = self.heard.closed() => {}
        }
        // An answer that came before the end counts.
        match poll_fn(|cx| Poll::Ready(rounds.as_mut().poll(cx))).await {
            Poll::Ready(answer) => answer,
            Poll::Pending => Err(self.lost(&ServiceError::TransportClosed)),
        }
    }

    /// Sends a call until it has its answer: again only where the server asks for that.
    async fn rounds(
        &self,
        mut params: CallToolRequestParams,
        context: &Arc<ToolContext>,
    ) -> Result<String, String> {
        let name = &*self.name;
        let mut rounds = Rounds::default();
        loop {
            let mut call = CallToolRequest::new(params.clone());
            call.extensions.insert(OfCall::new(context));
            // The raw request: `rmcp` knows a closed list of content kinds, and of a result that holds
            // another one its own call gives an error in place of all of it.
            let asked = match self.exchange(ClientRequest::CallToolRequest(call)).await {
                Ok(ServerResult::InputRequiredResult(asked)) => asked,
                Ok(ServerResult::CallToolResult(result)) => {
                    return Ok(json::to_raw(&result).get().to_owned());
                }
                Ok(ServerResult::CustomResult(result)) => return Ok(result.0.to_string()),
                // Results without content are read as one of these.
                Ok(ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_)) => {
                    return Ok(r#"{"content":[]}"#.to_owned());
                }
                Ok(ServerResult::CreateTaskResult(_)) => {
                    return Err(format!(
                        "the server `{name}` made a task of the call, and nobody here waits for it: it may go on"
                    ));
                }
                Ok(_) => {
                    return Err(format!("the server `{name}` answered with something that is no result"));
                }
                Err(ServiceError::McpError(ErrorData { code, message, .. })) => {
                    return Err(format!("the server `{name}` refused the call: {message} (code {})", code.0));
                }
                Err(error) => return Err(self.lost(&error)),
            };
            let Some(handler) = &self.handler else {
                return Err(format!(
                    "the server `{name}` asks for more input, which nobody here gives: the call is not complete"
                ));
            };
            let round = rounds.next(asked, &**handler, &self.peer).await;
            let round =
                round.map_err(|why| format!("the server `{name}` {why}: the call is not complete"))?;
            (params.input_responses, params.request_state) = (round.responses, round.state);
        }
    }

    /// Sends a request and waits for its answer. If nobody waits any longer, the server is told.
    async fn exchange(&self, request: ClientRequest) -> Result<ServerResult, ServiceError> {
        let handle = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
        let guard = CancelOnDrop { peer: &self.peer, id: Some(handle.id.clone()) };
        let answer = handle.await_response().await;
        guard.disarm();
        answer
    }

    /// True while a call can be made.
    pub(super) fn is_open(&self) -> bool {
        !self.heard.is_closed() && !self.peer.is_transport_closed()
    }

    fn lost(&self, error: &ServiceError) -> String {
        // Of a transport's own words a model has no use, and they may hold addresses.
        let why = match error {
            ServiceError::TransportClosed => "is not connected any more",
            ServiceError::TransportSend(_) => "could not be reached",
            _ => "did not answer",
        };
        format!("the server `{}` {why}: whether the call ran is unknown", self.name)
    }
}

/// Tells the server that nobody waits for an answer any longer. `rmcp` does so for its own calls alone.
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

/// A connection that is ours to end, and the processes at its other end.
pub(super) struct Held {
    service: Mutex<Option<Box<dyn Close>>>,
    child: Mutex<Option<Child>>,
    heard: Arc<Heard>,
    /// Keeps what the server was asked to tell.
    _listener: JoinSet<()>,
}

impl Held {
    pub(super) fn new<S: Service<RoleClient>>(
        service: RunningService<RoleClient, S>,
        child: Option<Child>,
        listener: JoinSet<()>,
        heard: Arc<Heard>,
    ) -> Self {
        let service = Box::new(service) as Box<dyn Close>;
        Self { service: Mutex::new(Some(service)), child: Mutex::new(child), heard, _listener: listener }
    }

    pub(super) async fn close(&self) {
        self.heard.close();
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        let close = async {
            if let Some(service) = service {
                service.close().await;
            }
        };
        let end = async {
            if let Some(child) = child {
                child.end().await;
            }
        };
        tokio::join!(close, end);
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

/// So many pages of tools may follow on the first one.
const MAX_PAGES: usize = 1000;

/// No more pages are asked for once the list has this many bytes.
const MAX_LIST: usize = 16 << 20;

/// How long a server has to end by itself.
pub(super) const GRACE: Duration = Duration::from_secs(2);
