//! A scripted HTTP/1.1 server on a real socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What the server does with one request.
#[derive(Clone)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    pieces: (usize, Duration),
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    /// Waits for the next request on the same connection.
    Keep,
    Close,
    /// Sends nothing more until the client goes away.
    Hold,
    /// Reads no body and answers nothing.
    Ignore,
}

impl Reply {
    /// A whole response with an exact length; the connection stays open.
    pub(crate) fn new(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let mut text = format!("HTTP/1.1 {status} Status\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(body);
        Self { bytes: text.into_bytes(), pieces: (1, Duration::ZERO), then: Then::Keep }
    }

    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self::new(status, &[("content-type", "application/json"), ("request-id", "req_1")], body)
    }

    pub(crate) fn ok() -> Self {
        Self::json(200, OK)
    }

    /// These bytes, then the end of the connection.
    pub(crate) fn cut(bytes: &str) -> Self {
        Self { then: Then::Close, ..Self::raw(bytes) }
    }

    /// These bytes, then silence.
    pub(crate) fn hold(bytes: &str) -> Self {
        Self { then: Then::Hold, ..Self::raw(bytes) }
    }

    /// Sends the body in this many pieces with a pause after each.
    pub(crate) fn in_pieces(mut self, count: usize, pause: Duration) -> Self {
        self.pieces = (count, pause);
        self
    }

    fn raw(bytes: &str) -> Self {
        Self { bytes: bytes.into(), pieces: (1, Duration::ZERO), then: Then::Keep }
    }

    /// The head of the request is read and nothing else happens.
    pub(crate) fn ignore() -> Self {
        Self { then: Then::Ignore, ..Self::raw("") }
    }
}

pub(crate) const OK: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m"}"#;

/// A request as it came over the socket.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    /// All values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// Answers requests in order, and any beyond the script with 418. Ends with the test's process.
pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    opened: Arc<AtomicU32>,
    closed: Arc<AtomicU32>,
}

impl Server {
    pub(crate) fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            opened: Arc::default(),
            closed: Arc::default(),
        };
        let script: Vec<Reply> = script.into_iter().collect();
        let (seen, opened, closed) =
            (Arc::clone(&server.seen), Arc::clone(&server.opened), Arc::clone(&server.closed));
        thread::spawn(move || {
            for stream in listener.incoming() {
                opened.fetch_add(1, Ordering::SeqCst);
                let (script, seen, closed) = (script.clone(), Arc::clone(&seen), Arc::clone(&closed));
                thread::spawn(move || {
                    // A client that goes away in the middle is part of some scripts.
                    let _ = serve(&stream.unwrap(), &script, &seen);
                    closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// How many connections were made.
    pub(crate) fn opened(&self) -> u32 {
        self.opened.load(Ordering::SeqCst)
    }

    /// Waits until this many connections have ended.
    pub(crate) async fn until_closed(&self, count: u32) {
        for _ in 0..1000 {
            if self.closed.load(Ordering::SeqCst) >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("fewer than {count} connections ended");
    }

    /// Waits until this many requests have come.
    pub(crate) async fn until_seen(&self, count: usize) {
        for _ in 0..1000 {
            if self.seen.lock().unwrap().len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("fewer than {count} requests came");
    }
}

fn serve(stream: &TcpStream, script: &[Reply], seen: &Mutex<Vec<Seen>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let Some(mut request) = read_head(&mut reader)? else { return Ok(()) };
        let length = request.all("content-length").first().map_or(0, |length| length.parse().unwrap());
        let reply = {
            let mut seen = seen.lock().unwrap();
            let reply = script.get(seen.len()).cloned().unwrap_or_else(|| Reply::new(418, &[], ""));
            if matches!(reply.then, Then::Ignore) {
                seen.push(request.clone());
            }
            reply
        };
        if !matches!(reply.then, Then::Ignore) {
            request.body.resize(length, 0);
            reader.read_exact(&mut request.body)?;
            seen.lock().unwrap().push(request);
            let (count, pause) = reply.pieces;
            let head = reply.bytes.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
            let (head, body) = reply.bytes.split_at(head);
            (&*stream).write_all(head)?;
            for piece in body.chunks(body.len().div_ceil(count).max(1)) {
                (&*stream).write_all(piece)?;
                thread::sleep(pause);
            }
        }
        match reply.then {
            Then::Keep => {}
            Then::Close => return stream.shutdown(Shutdown::Both),
            Then::Hold => {
                let mut rest = Vec::new();
                return reader.read_to_end(&mut rest).map(|_| ());
            }
            Then::Ignore => loop {
                thread::park();
            },
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> std::io::Result<Option<Seen>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut request = Seen { line: line.trim_end().to_owned(), headers: Vec::new(), body: Vec::new() };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => request.headers.push((name.to_lowercase(), value.to_owned())),
            None => return Ok(Some(request)),
        }
    }
}
