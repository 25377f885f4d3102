//! How the faults are done.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::proxy::Shared;
use crate::table::{Place, Strike};
use crate::wire::{Message, Wire, find};

/// Strikes a connection that was just accepted.
pub(crate) async fn at_accept(wire: &mut Wire, shared: &Shared) -> io::Result<()> {
    match shared.plan.strike {
        Strike::CloseAtAccept => Ok(()),
        Strike::ResetAtAccept => wire.socket.set_zero_linger(),
        Strike::BlackHole => {
            shared.lifted().await;
            wire.until_closed().await;
            Ok(())
        }
        other => unreachable!("{other:?} is no fault of a connection"),
    }
}

/// Strikes behind the head of a request.
pub(crate) async fn at_request(wire: &mut Wire, shared: &Shared) -> io::Result<()> {
    match shared.plan.strike {
        Strike::Cut => Ok(()),
        Strike::Reset => wire.socket.set_zero_linger(),
        Strike::Stall => {
            shared.lifted().await;
            wire.until_closed().await;
            Ok(())
        }
        Strike::Early(status) => {
            wire.send(early(status).as_bytes()).await?;
            wire.socket.shutdown().await?;
            shared.lifted().await;
            wire.until_closed().await;
            Ok(())
        }
        Strike::EarlyReset(status) => {
            wire.send(early(status).as_bytes()).await?;
            wire.socket.set_zero_linger()
        }
        other => unreachable!("{other:?} is no fault of a request"),
    }
}

/// Plays a response with its fault, and tells whether the connection goes on.
pub(crate) async fn at_response(wire: &mut Wire, response: Message, shared: &Shared) -> io::Result<bool> {
    let mut bytes = response.bytes();
    let head = response.head.len();
    let at = match shared.plan.place {
        Place::InHead => head / 2,
        Place::InBody => head + response.body.len() / 2,
        Place::Behind => bytes.len(),
        _ => 0,
    };
    let content = response.content().len();
    match shared.plan.strike {
        Strike::Reset => {
            wire.send(&bytes[..at]).await?;
            // It would overtake what was sent before it.
            shared.told().await;
            wire.socket.set_zero_linger()?;
            return Ok(false);
        }
        Strike::Stall => {
            wire.send(&bytes[..at]).await?;
            wire.until_closed().await;
            return Ok(false);
        }
        Strike::Cut => {
            wire.send(&bytes[..at]).await?;
            return Ok(false);
        }
        Strike::HalfClose => {
            wire.send(&bytes[..at]).await?;
            wire.socket.shutdown().await?;
            wire.until_closed().await;
            return Ok(false);
        }
        Strike::Delay => {
            wire.send(&bytes[..at]).await?;
            sleep(Duration::from_millis(30)).await;
            wire.send(&bytes[at..]).await?;
        }
        Strike::Drip => wire.drip(&bytes).await?,
        Strike::FlipStatus => {
            bytes[..4].iter_mut().for_each(|byte| *byte ^= 0x80);
            wire.send(&bytes).await?;
        }
        Strike::FlipHeader => {
            let name = find(&bytes, b"content-type").expect("each response has a content type");
            bytes[name] ^= 0x80;
            wire.send(&bytes).await?;
        }
        Strike::FlipJson => {
            let object = head + find(&response.body, b"{").expect("each body holds an object");
            bytes[object] ^= 1;
            wire.send(&bytes).await?;
        }
        Strike::FlipUtf8 => {
            let word = at + find(&bytes[at..], b"output_tokens").expect("each body ends with its usage");
            bytes[word] ^= 0x80;
            wire.send(&bytes).await?;
        }
        Strike::FlipFraming if response.is_chunked() => {
            let size = at + find(&bytes[at..], b"\n\r\n").expect("each chunk ends with an empty line") + 3;
            bytes[size] = b'x';
            wire.send(&bytes).await?;
        }
        Strike::FlipFraming => wire.send(&response.with_length("1x3").bytes()).await?,
        Strike::Continue => wire.send(&[CONTINUE.as_bytes(), &bytes].concat()).await?,
        Strike::EarlyHints => wire.send(&[EARLY_HINTS.as_bytes(), &bytes].concat()).await?,
        Strike::Interim => {
            for interim in [CONTINUE, EARLY_HINTS, EARLY_HINTS, CONTINUE] {
                wire.send(interim.as_bytes()).await?;
                yield_now().await;
            }
            wire.send(&bytes).await?;
        }
        Strike::LongerAndOpen => {
            wire.send(&response.with_length(content + 10).bytes()).await?;
            wire.until_closed().await;
            return Ok(false);
        }
        Strike::LongerAndClosed => {
            wire.send(&response.with_length(content + 10).bytes()).await?;
            return Ok(false);
        }
        Strike::Shorter => wire.send(&response.with_length(content / 2).bytes()).await?,
        Strike::LengthOfZero => wire.send(&response.with_length(0).bytes()).await?,
        Strike::Header(size) => {
            let line = format!("x-large: {}\r\n", "x".repeat(size));
            wire.send(&response.with_lines(&line).bytes()).await?;
        }
        Strike::Headers(count) => {
            let lines: String = (0..count).map(|number| format!("x-{number}: x\r\n")).collect();
            wire.send(&response.with_lines(&lines).bytes()).await?;
        }
        Strike::Bare(status) => {
            let upgrade = if status == 101 { "connection: upgrade\r\nupgrade: other\r\n" } else { "" };
            wire.send(format!("HTTP/1.1 {status} Bare\r\n{upgrade}\r\n").as_bytes()).await?;
        }
        Strike::Surplus => wire.send(&[&bytes[..], &bytes].concat()).await?,
        Strike::Stale | Strike::StaleAnswer => {
            wire.send(&bytes).await?;
            if shared.plan.strike == Strike::StaleAnswer {
                wire.send(early(408).as_bytes()).await?;
            }
            wire.socket.shutdown().await?;
            return Ok(false);
        }
        other => unreachable!("{other:?} is no fault of a response"),
    }
    Ok(true)
}

/// An error as a gateway sends it.
fn early(status: u16) -> String {
    let body = r#"{"type":"error","error":{"type":"gateway_error","message":"no"}}"#;
    format!(
        "HTTP/1.1 {status} Early\r\ncontent-type: application/json\r\nretry-after-ms: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
const EARLY_HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n";
