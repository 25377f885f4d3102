//! The door of the proxy: an address that stays its own, whether somebody listens there or not.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub(crate) enum Door {
    Open(TcpListener),
    /// Connections are refused.
    Shut(TcpSocket),
    /// Connections are neither made nor refused: the queue of those to be accepted is full.
    Jammed {
        _listener: TcpListener,
        _waiting: Vec<TcpStream>,
    },
}

impl Door {
    pub(crate) fn new() -> io::Result<(Self, SocketAddr)> {
        let listener = bound(([127, 0, 0, 1], 0).into())?.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        Ok((Self::Open(listener), address))
    }

    pub(crate) fn shut(address: SocketAddr) -> io::Result<Self> {
        bound(address).map(Self::Shut)
    }

    pub(crate) async fn jammed(self, address: SocketAddr) -> io::Result<Self> {
        // Nobody may get in between, so the open one goes first.
        let socket = bound(address)?;
        drop(self);
        let listener = socket.listen(0)?;
        // With no room for any there is room for one.
        let waiting = vec![TcpStream::connect(address).await?];
        Ok(Self::Jammed { _listener: listener, _waiting: waiting })
    }

    pub(crate) fn opened(self, address: SocketAddr) -> io::Result<Self> {
        match self {
            Self::Open(_) => Ok(self),
            Self::Shut(socket) => socket.listen(BACKLOG).map(Self::Open),
            Self::Jammed { .. } => {
                let socket = bound(address)?;
                drop(self);
                socket.listen(BACKLOG).map(Self::Open)
            }
        }
    }

    /// The next connection, if there can be any.
    pub(crate) async fn accept(&self) -> TcpStream {
        loop {
            let Self::Open(listener) = self else { return std::future::pending().await };
            if let Ok((socket, _)) = listener.accept().await {
                return socket;
            }
        }
    }
}

/// A socket that holds an address and does not listen: two of them may share it, so that the
/// address is never free for another process while one takes the place of the other.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

const BACKLOG: u32 = 64;
