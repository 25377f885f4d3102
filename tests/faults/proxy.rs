//! A proxy between a client and a server that does one thing wrong, once.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::door::Door;
use crate::strikes;
use crate::table::{Place, Strike};
use crate::wire::Wire;

/// What goes wrong, and at which request of those that come through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) strike: Strike,
    pub(crate) place: Place,
    pub(crate) turn: usize,
    /// Somebody is told of the events, and has to be before the connection is reset in a body.
    pub(crate) is_told: bool,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The accepting task owns those of the connections, so dropping it stops all of them.
    _accepting: JoinSet<()>,
}

pub(crate) struct Shared {
    pub(crate) plan: Plan,
    address: SocketAddr,
    upstream: SocketAddr,
    /// The bodies of the requests that were read whole.
    bodies: Mutex<Vec<Vec<u8>>>,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    requests: usize,
    /// The fault has begun.
    struck: bool,
    /// The fault is over, as far as the proxy does it.
    done: bool,
    /// The test says that it is over.
    lifted: bool,
    /// An event of the struck response was told.
    told: bool,
}

impl Proxy {
    pub(crate) async fn start(upstream: &str, plan: Plan) -> Self {
        let upstream = upstream.trim_start_matches("http://").parse().expect("a server has an address");
        let (door, address) = Door::new().expect("loopback should have a free port");
        let state = watch::Sender::default();
        let shared = Arc::new(Shared { plan, address, upstream, bodies: Mutex::default(), state });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(door, shared.clone()));
        if plan.strike.is_of_the_door() && plan.turn == 1 {
            shared.wait(|state| state.struck).await;
        }
        Self { address, shared, _accepting: accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bodies of the requests that were read whole.
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        self.shared.bodies.lock().expect("nothing panics with it").clone()
    }

    pub(crate) fn has_struck(&self) -> bool {
        self.shared.state.borrow().struck
    }

    /// What a test tells and waits for.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    pub(crate) async fn all_closed(&self) {
        self.shared.wait(|state| state.open == 0).await;
    }
}

impl Shared {
    pub(crate) fn lift(&self) {
        self.state.send_modify(|state| state.lifted = true);
    }

    pub(crate) fn tell(&self) {
        self.state.send_modify(|state| state.told |= state.struck);
    }

    pub(crate) async fn struck(&self) {
        self.wait(|state| state.struck).await;
    }

    pub(crate) async fn done(&self) {
        self.wait(|state| state.done).await;
    }

    pub(crate) async fn lifted(&self) {
        self.wait(|state| state.lifted).await;
    }

    pub(crate) async fn told(&self) {
        if self.plan.is_told && self.plan.place == Place::InBody {
            self.wait(|state| state.told).await;
        }
    }

    async fn wait(&self, reached: impl FnMut(&State) -> bool) {
        let mut state = self.state.subscribe();
        state.wait_for(reached).await.expect("its sender is borrowed");
    }

    fn strike(&self) {
        self.state.send_modify(|state| state.struck = true);
    }

    /// True if the fault strikes behind the requests so far.
    fn is_due(&self, place: Place) -> bool {
        let state = self.state.borrow();
        self.plan.place == place && !state.struck && state.requests + 1 == self.plan.turn
    }

    /// Remembers a request and gives its number, from 1.
    fn record(&self, body: &[u8]) -> usize {
        self.bodies.lock().expect("nothing panics with it").push(body.to_vec());
        self.state.send_modify(|state| state.requests += 1);
        self.state.borrow().requests
    }
}

/// Counts the connection as open, however its task ends.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: Arc<Shared>) -> Self {
        shared.state.send_modify(|state| state.open += 1);
        Self(shared)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.open -= 1);
    }
}

async fn accept(mut door: Door, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut state = shared.state.subscribe();
    loop {
        if shared.plan.strike.is_of_the_door() {
            door = door_of(door, &shared).await.expect("the address stays its own");
        }
        tokio::select! {
            socket = door.accept() => {
                let open = Open::new(shared.clone());
                connections.spawn(async move {
                    // A client that breaks the connection is a case like others.
                    let _ended = serve(Wire::new(socket), &open.0).await;
                });
            }
            _ = state.changed() => {}
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn door_of(door: Door, shared: &Shared) -> io::Result<Door> {
    if shared.is_due(Place::Connection) {
        let door = match shared.plan.strike {
            Strike::Jam => door.jammed(shared.address).await?,
            _ => Door::shut(shared.address)?,
        };
        shared.strike();
        return Ok(door);
    }
    match shared.state.borrow().lifted {
        true => door.opened(shared.address),
        false => Ok(door),
    }
}

async fn serve(mut wire: Wire, shared: &Shared) -> io::Result<()> {
    let Plan { strike, place, turn, .. } = shared.plan;
    if shared.is_due(Place::Connection) {
        shared.strike();
        return strikes::at_accept(&mut wire, shared).await;
    }
    let mut upstream = None;
    loop {
        if shared.is_due(Place::Request) {
            if wire.head().await?.is_none() {
                return Ok(());
            }
            shared.strike();
            return strikes::at_request(&mut wire, shared).await;
        }
        let Some(request) = wire.message().await? else { return Ok(()) };
        let is_struck = shared.is_due(place) && !matches!(place, Place::Connection);
        let number = shared.record(&request.body);
        let upstream = match &mut upstream {
            Some(upstream) => upstream,
            None => upstream.insert(Wire::new(TcpStream::connect(shared.upstream).await?)),
        };
        upstream.send(&request.bytes()).await?;
        let Some(response) = upstream.message().await? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        if is_struck {
            shared.strike();
            let goes_on = strikes::at_response(&mut wire, response, shared).await;
            shared.state.send_modify(|state| state.done = true);
            if !goes_on? {
                return Ok(());
            }
        } else if place == Place::Connection && number + 1 == turn {
            // The next request has to make a connection.
            if strike.is_of_the_door() {
                shared.struck().await;
            }
            wire.send(&response.with_lines("connection: close\r\n").bytes()).await?;
            wire.socket.shutdown().await?;
            wire.until_closed().await;
            return Ok(());
        } else {
            wire.send(&response.bytes()).await?;
        }
    }
}
