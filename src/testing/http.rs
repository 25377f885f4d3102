//! HTTP/1.1 requests, read from a socket byte by byte as a server has to.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LEAST_READ: usize = 16 * 1024;
const LONGEST_HEAD: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Received {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The values of a header that may be repeated or hold a list.
    pub(super) fn header_list(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(sent, _)| sent == name);
        lines
            .flat_map(|(_, value)| value.split(','))
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .collect()
    }

    pub(super) fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// A socket and what was read from it but not used yet.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) socket: TcpStream,
    buffer: BytesMut,
}

impl Wire {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, buffer: BytesMut::new() }
    }

    /// The next request; `None` when the client closed the connection between two.
    pub(super) async fn request(&mut self) -> io::Result<Option<Received>> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            if self.buffer.len() > LONGEST_HEAD {
                return Err(malformed("the head of the request is too long"));
            }
            if self.fill().await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        };
        let head = self.buffer.split_to(end);
        self.buffer.advance(4);
        let head =
            std::str::from_utf8(&head).map_err(|_| malformed("the head of the request is not UTF-8"))?;
        let mut lines = head.split("\r\n");
        let mut start = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(path), Some("HTTP/1.1")) = (start.next(), start.next(), start.next()) else {
            return Err(malformed("the first line of the request is not HTTP/1.1"));
        };
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').ok_or_else(|| malformed("a header has no colon"))?;
            Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
        });
        let headers = headers.collect::<io::Result<Vec<_>>>()?;
        let (method, path) = (method.to_owned(), path.to_owned());
        if header(&headers, "expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            self.socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let body = if header(&headers, "transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
        {
            self.chunked().await?
        } else {
            let length = match header(&headers, "content-length") {
                Some(length) => length.parse().map_err(|_| malformed("content-length is not a number"))?,
                None => 0,
            };
            self.exactly(length).await?
        };
        Ok(Some(Received { method, path, headers, body }))
    }

    /// Sends all of these bytes.
    ///
    /// # Errors
    ///
    /// Also when the client closes its side while there is no room for them.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut reading, mut writing) = self.socket.split();
        tokio::select! {
            biased;
            sent = writing.write_all(bytes) => sent,
            () = closed(&mut reading, &mut self.buffer) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Waits for something; an error if the client closes its side meanwhile.
    pub(super) async fn wait(&mut self, something: impl Future<Output = ()>) -> io::Result<()> {
        tokio::select! {
            biased;
            () = something => Ok(()),
            () = closed(&mut self.socket, &mut self.buffer) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    async fn chunked(&mut self) -> io::Result<Bytes> {
        let mut body = BytesMut::new();
        loop {
            let line = self.line().await?;
            let size = std::str::from_utf8(&line).ok().and_then(|line| line.split(';').next());
            let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            let size = size.ok_or_else(|| malformed("the size of a chunk is not a number"))?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body.freeze());
            }
            body.extend_from_slice(&self.exactly(size).await?);
            if !self.line().await?.is_empty() {
                return Err(malformed("a chunk is longer than its size"));
            }
        }
    }

    async fn line(&mut self) -> io::Result<Bytes> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let line = self.buffer.split_to(at).freeze();
                self.buffer.advance(2);
                return Ok(line);
            }
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Bytes> {
        while self.buffer.len() < length {
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn fill(&mut self) -> io::Result<usize> {
        fill(&mut self.socket, &mut self.buffer).await
    }
}

/// Whether an error is of a request that can't be read, not of the connection.
pub(super) fn is_malformed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

pub(super) fn reason(status: u16) -> &'static str {
    ::http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Unknown")
}

async fn fill(reading: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<usize> {
    // Without it a full buffer grows by a few bytes for each read.
    buffer.reserve(LEAST_READ);
    reading.read_buf(buffer).await
}

/// Waits until the client closes its side. Bytes that come instead belong to a later request.
async fn closed(reading: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) {
    while matches!(fill(reading, buffer).await, Ok(1..)) {}
}

fn malformed(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(sent, _)| sent.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
