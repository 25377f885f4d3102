//! Pings, where a request waits in silence.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop::{Client, ErrorKind, Message, MessageRequest, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::answer::Answer;
use crate::server::Server;

/// What lies between a client and its server, and may swallow all without a word.
struct Line {
    url: String,
    swallow: watch::Sender<bool>,
    _pipes: JoinSet<()>,
}

impl Line {
    async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let target = server.url().trim_start_matches("https://").to_owned();
        let (swallow, swallows) = watch::channel(false);
        let mut pipes = JoinSet::new();
        pipes.spawn(async move {
            let mut pipes = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&target).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                pipes.spawn(pipe(from_client, to_server, swallows.clone()));
                pipes.spawn(pipe(from_server, to_client, swallows.clone()));
            }
        });
        Self { url, swallow, _pipes: pipes }
    }
}

async fn pipe(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, swallows: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if !*swallows.borrow() && to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

fn client(server: &Server, line: &Line) -> Client {
    let builder = Client::builder().base_url(&line.url).api_key("k").no_proxy().max_retries(0);
    builder.root_certificate(server.authority().pem()).build().unwrap()
}

/// A call that was sent and has no answer yet.
async fn waiting(server: &Server, line: &Line) -> Pin<Box<impl Future<Output = Result<Message>>>> {
    let client = client(server, line);
    let mut call = Box::pin(async move { client.create(&MessageRequest::from("Hello")).await });
    tokio::select! {
        _ = &mut call => panic!("nobody answers"),
        () = server.until(|counts| counts.requests == 1) => {}
    }
    call
}

/// Lets a paused clock go on in steps, with a look at the sockets between them.
async fn ticking<T>(work: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = work => done,
        () = async { loop { sleep(Duration::from_millis(20)).await } } => unreachable!(),
    }
}

#[tokio::test]
async fn a_line_that_went_dead_is_found_by_its_pings() {
    let server = Server::start([Answer::silence()]).await;
    let line = Line::to(&server).await;
    let call = waiting(&server, &line).await;
    line.swallow.send_replace(true);
    tokio::time::pause();
    let start = Instant::now();
    let error = ticking(call).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Timeout, true), "{error:?}");
    assert!(error.to_string().contains("stopped answering") && error.timeout_phase().is_none(), "{error}");
    assert!(start.elapsed() < Duration::from_secs(200), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_long_silence_on_a_living_line_is_none() {
    let gate = Arc::new(Barrier::new(2));
    let server = Server::start([Answer::text("late").meet(&gate)]).await;
    let line = Line::to(&server).await;
    let call = waiting(&server, &line).await;
    tokio::time::pause();
    let late = async {
        sleep(Duration::from_secs(500)).await;
        gate.wait().await;
        std::future::pending::<()>().await;
    };
    let outcome = ticking(async {
        tokio::select! {
            done = call => done,
            () = late => unreachable!(),
        }
    })
    .await;
    assert_eq!(outcome.unwrap().text(), "late");
}
