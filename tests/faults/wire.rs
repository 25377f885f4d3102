//! HTTP/1.1 as bytes: messages are read whole, and changed before they go on.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::yield_now;

/// A socket and what was read from it but not used yet.
pub(crate) struct Wire {
    pub(crate) socket: TcpStream,
    buffer: Vec<u8>,
}

/// A request or a response as it came: its head with the empty line, and its body with the sizes
/// of its chunks.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(socket: TcpStream) -> Self {
        // Only speed is lost where it fails.
        let _set = socket.set_nodelay(true);
        Self { socket, buffer: Vec::new() }
    }

    /// The next head; `None` when the other side closed the connection between two messages.
    pub(crate) async fn head(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                let head = self.buffer.drain(..at + 4).collect();
                return String::from_utf8(head).map(Some).map_err(io::Error::other);
            }
            match self.fill().await {
                Ok(0) | Err(_) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => read?,
            };
        }
    }

    pub(crate) async fn message(&mut self) -> io::Result<Option<Message>> {
        let Some(head) = self.head().await? else { return Ok(None) };
        let body = match header(&head, "content-length") {
            Some(length) => self.exactly(length.parse().map_err(io::Error::other)?).await?,
            None if header(&head, "transfer-encoding") == Some("chunked") => self.chunks().await?,
            None => Vec::new(),
        };
        Ok(Some(Message { head, body }))
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }

    /// Sends one byte at a time, each to be read by itself.
    pub(crate) async fn drip(&mut self, bytes: &[u8]) -> io::Result<()> {
        for byte in bytes {
            self.send(&[*byte]).await?;
            yield_now().await;
        }
        Ok(())
    }

    /// Reads until the other side closes the connection.
    pub(crate) async fn until_closed(&mut self) {
        while matches!(self.fill().await, Ok(1..)) {
            self.buffer.clear();
        }
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut chunks = Vec::new();
        loop {
            let line = loop {
                if let Some(at) = find(&self.buffer, b"\r\n") {
                    break self.exactly(at + 2).await?;
                }
                if self.fill().await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            };
            let size = chunk_size(&line).ok_or_else(|| io::Error::other("the size of a chunk"))?;
            chunks.extend_from_slice(&line);
            chunks.extend(self.exactly(size + 2).await?);
            if size == 0 {
                return Ok(chunks);
            }
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(16 * 1024);
        self.socket.read_buf(&mut self.buffer).await
    }
}

impl Message {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.head.as_bytes(), &self.body].concat()
    }

    pub(crate) fn is_chunked(&self) -> bool {
        header(&self.head, "transfer-encoding").is_some()
    }

    /// The body without the sizes of its chunks.
    pub(crate) fn content(&self) -> Vec<u8> {
        if !self.is_chunked() {
            return self.body.clone();
        }
        let (mut content, mut rest) = (Vec::new(), &self.body[..]);
        loop {
            let line = find(rest, b"\r\n").expect("a chunk has a size") + 2;
            let size = chunk_size(&rest[..line]).expect("a size is a number");
            if size == 0 {
                return content;
            }
            content.extend_from_slice(&rest[line..line + size]);
            rest = &rest[line + size + 2..];
        }
    }

    /// With these lines in its head.
    pub(crate) fn with_lines(mut self, lines: &str) -> Self {
        let end = self.head.len() - "\r\n".len();
        self.head.insert_str(end, lines);
        self
    }

    /// With a length of its own, whatever its body is.
    pub(crate) fn with_length(self, length: impl std::fmt::Display) -> Self {
        let body = self.content();
        let framing = ["content-length:", "transfer-encoding:"];
        let lines = self.head.split_inclusive("\r\n");
        let head = lines.filter(|line| !framing.iter().any(|name| line.starts_with(name))).collect();
        Self { head, body }.with_lines(&format!("content-length: {length}\r\n"))
    }
}

pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (sent, value) = line.split_once(':')?;
        sent.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

pub(crate) fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

fn chunk_size(line: &[u8]) -> Option<usize> {
    usize::from_str_radix(std::str::from_utf8(line).ok()?.trim(), 16).ok()
}
