//! The server: what is listening, and what it remembers.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::http::Received;
use super::script::Source;
use super::{RecordedRequest, Reply, Script, connection};

/// A scripted Messages API on a loopback socket.
///
/// It plays one [`Reply`] for each request and closes everything when it is dropped. Requests that
/// the API would refuse are refused with its error object and use up no reply;
/// [`allow_field`](Self::allow_field) and [`lenient`](Self::lenient) loosen that, and are to be
/// called before the first request. A request may end in an assistant message only where the API
/// continues one: see [`check_request`](super::check_request), and the content of a reply of this
/// server that stopped with `pause_turn` (or `compaction`, unless the request asked for one).
///
/// A server whose script ran out fails the test: [`finish`](Self::finish) returns it as an error,
/// and dropping the server without that panics.
#[derive(Debug)]
pub struct Server {
    url: String,
    shared: Arc<Shared>,
    /// The accepting task owns those of the connections, so dropping it stops all of them.
    _accepting: JoinSet<()>,
}

/// How a script and the requests did not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScriptError {
    failures: Vec<String>,
}

impl Server {
    /// Starts a server on a free port of the current tokio runtime, which must have IO enabled
    /// and must go on running: a blocking client on a runtime of one thread waits for ever.
    ///
    /// # Panics
    ///
    /// When the loopback interface has no free port.
    ///
    /// # Cancel safety
    ///
    /// A dropped start leaves nothing behind.
    pub async fn start(script: impl Into<Script>) -> Self {
        Self::start_inner(script.into()).await
    }

    async fn start_inner(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback should have a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                source: script.source,
                requests: Vec::new(),
                failures: Vec::new(),
                settings: Settings::default(),
            }),
            counts: watch::Sender::default(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, shared.clone()));
        Self { url: format!("http://{address}"), shared, _accepting: accepting }
    }

    /// Switches all rules of the API off. A body still has to be JSON, and the path `/v1/messages` or
    /// `/v1/messages/count_tokens`.
    #[must_use]
    pub fn lenient(self) -> Self {
        self.shared.lock().settings.lenient = true;
        self
    }

    /// Lets a field pass that the rules do not know: `name` at the top level of the request,
    /// `tools.name` in a tool definition.
    #[must_use]
    pub fn allow_field(self, name: impl Into<String>) -> Self {
        self.shared.lock().settings.allowed.push(name.into());
        self
    }

    /// Refuses requests without this key with status 401. Without it any credential will do, and
    /// none.
    #[must_use]
    pub fn require_key(self, key: impl Into<String>) -> Self {
        self.shared.lock().settings.key = Some(key.into());
        self
    }

    /// The base URL, `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All requests so far, those that were refused included.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().requests.clone()
    }

    /// How many requests came so far.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.shared.counts.borrow().requests
    }

    /// Waits until the server has received `count` requests in all.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_for_requests(&self, count: usize) {
        self.wait_for(|counts| counts.requests >= count).await;
    }

    /// How many connections were opened so far.
    #[must_use]
    pub fn connections_opened(&self) -> usize {
        self.shared.counts.borrow().opened
    }

    /// How many connections are open. One that the client closed counts until the server has
    /// noticed.
    #[must_use]
    pub fn connections_open(&self) -> usize {
        self.shared.counts.borrow().open
    }

    /// Waits until exactly `count` connections are open.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn wait_for_open_connections(&self, count: usize) {
        self.wait_for(|counts| counts.open == count).await;
    }

    /// Stops the server and says whether the script and the requests fitted.
    ///
    /// # Errors
    ///
    /// When the script ran out, when a function of it panicked, or when replies were left over.
    pub fn finish(self) -> Result<(), ScriptError> {
        let mut state = self.shared.lock();
        let mut failures = std::mem::take(&mut state.failures);
        if let Source::List(left) = &state.source
            && !left.is_empty()
        {
            failures.push(format!("{} replies of the script were never asked for", left.len()));
        }
        if failures.is_empty() { Ok(()) } else { Err(ScriptError { failures }) }
    }

    async fn wait_for(&self, reached: impl FnMut(&Counts) -> bool) {
        let mut counts = self.shared.counts.subscribe();
        counts.wait_for(reached).await.expect("the server owns the sender");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let failures = std::mem::take(&mut self.shared.lock().failures);
        if !failures.is_empty() && !std::thread::panicking() {
            panic!("{}", ScriptError { failures });
        }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the test server's script did not fit: {}", self.failures.join("; "))
    }
}

impl std::error::Error for ScriptError {}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((socket, _)) = accepted {
                // Only speed is lost where it fails.
                let _set = socket.set_nodelay(true);
                connections.spawn(connection::serve(socket, shared.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// What the server and its connections share.
pub(super) struct Shared {
    state: Mutex<State>,
    counts: watch::Sender<Counts>,
}

struct State {
    source: Source,
    requests: Vec<RecordedRequest>,
    failures: Vec<String>,
    settings: Settings,
}

#[derive(Default)]
pub(super) struct Settings {
    pub(super) lenient: bool,
    pub(super) allowed: Vec<String>,
    pub(super) key: Option<String>,
    /// Contents of the turns that were paused.
    pub(super) paused: Vec<Vec<Value>>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: usize,
    opened: usize,
    open: usize,
}

/// Where the reply to a request comes from.
pub(super) enum Next {
    Ask(Arc<dyn Fn(&RecordedRequest) -> Reply + Send + Sync>),
    Play(Reply),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection and gives its number.
    pub(super) fn opened(&self) -> usize {
        self.counts.send_modify(|counts| {
            counts.opened += 1;
            counts.open += 1;
        });
        self.counts.borrow().opened
    }

    pub(super) fn closed(&self) {
        self.counts.send_modify(|counts| counts.open -= 1);
    }

    /// Records a request and takes the reply that is next, as one step.
    pub(super) fn record(
        &self,
        received: Received,
        connection: usize,
        refuse: impl FnOnce(&Settings, &Received) -> Option<(Reply, String)>,
    ) -> (RecordedRequest, Next) {
        let mut state = self.lock();
        let refused = refuse(&state.settings, &received);
        let (reply, refusal) = refused.map_or((None, None), |(reply, message)| (Some(reply), Some(message)));
        let number = state.requests.len() + 1;
        let next = match (reply, &mut state.source) {
            (Some(reply), _) => Next::Play(reply),
            (None, Source::Function(answer)) => Next::Ask(answer.clone()),
            (None, Source::List(replies)) => match replies.pop_front() {
                Some(reply) => Next::Play(reply),
                None => Next::Play(state.fail(format!("the script ran out at request {number}"))),
            },
        };
        let request = RecordedRequest::new(received, number, connection, refusal);
        state.requests.push(request.clone());
        drop(state);
        self.counts.send_modify(|counts| counts.requests = counts.requests.max(number));
        (request, next)
    }

    /// Remembers a failure of the script and gives the reply that tells it.
    pub(super) fn failed(&self, failure: String) -> Reply {
        self.lock().fail(failure)
    }

    /// Remembers the turn of a reply that the client may send back as the last of a request.
    pub(super) fn remember_pause(&self, reply: &Reply, asked_to_compact: bool) {
        let reasons: &[_] = if asked_to_compact { &["pause_turn"] } else { &["pause_turn", "compaction"] };
        if let Some(content) = reply.content_if_stopped_by(reasons) {
            self.lock().settings.paused.push(content);
        }
    }
}

impl State {
    fn fail(&mut self, failure: String) -> Reply {
        let reply = Reply::error(500, "api_error", failure.as_str()).header("x-should-retry", "false");
        self.failures.push(failure);
        reply
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("counts", &*self.counts.borrow()).finish_non_exhaustive()
    }
}
