//! A reader that is slow, or stops: nothing piles up, and nothing runs behind its back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentloop::testing::{Reply, Server};
use agentloop::{Client, DriveStream, RunEvent, RunStream, Tool, ToolRunner};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::replies::{call, events, text};
use crate::support::{object, others, soon};
use crate::told::told;

/// A server whose reply never ends: text, as fast as the connection takes it.
struct Endless {
    url: String,
    written: watch::Sender<Written>,
    _task: JoinSet<()>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    bytes: usize,
    /// The connection takes nothing at the moment.
    waits: bool,
    closed: bool,
}

/// The text of a delta.
const PIECE: usize = 8 * 1024;
/// More than the buffers of both sockets and of the client hold together.
const BUFFERS: usize = 4 * 1024 * 1024;
/// The idle limit of the client.
const IDLE: Duration = Duration::from_millis(250);

impl Endless {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(16 * 1024).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let written = watch::Sender::new(Written::default());
        let mut task = JoinSet::new();
        let counter = written.clone();
        task.spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            read_request(&mut socket).await;
            // The client's end of the connection is for the test to see.
            let ended = write_for_ever(&socket, &counter).await;
            counter.send_modify(|written| written.closed = ended.is_err());
        });
        Self { url, written, _task: task }
    }

    fn client(&self) -> Client {
        let builder = Client::builder().base_url(&self.url).auth(agentloop::client::Auth::None).no_proxy();
        builder.max_retries(0).idle_timeout(IDLE).build().unwrap()
    }

    async fn until(&self, reached: impl Fn(&Written) -> bool) {
        let mut written = self.written.subscribe();
        soon(written.wait_for(reached)).await.unwrap();
    }

    /// Waits until a write waits for room that nobody makes.
    async fn stalled(&self) {
        loop {
            self.until(|written| written.waits).await;
            let before = *self.written.borrow();
            // The client's own task goes on for as long as it has buffers.
            sleep(Duration::from_millis(100)).await;
            let after = *self.written.borrow();
            if before.waits && before == after {
                return;
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream) {
    let mut request = Vec::new();
    let end = b"\r\n\r\n";
    while !request.ends_with(end) {
        request.push(socket.read_u8().await.unwrap());
    }
    let head = String::from_utf8(request).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    socket.read_exact(&mut body).await.unwrap();
}

async fn write_for_ever(socket: &TcpStream, written: &watch::Sender<Written>) -> io::Result<()> {
    let chunk = |event: &serde_json::Value| {
        let frame = format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        format!("{:x}\r\n{frame}\r\n", frame.len())
    };
    let piece = "x".repeat(PIECE);
    let all = events("msg_1", "end_turn", &[text(&[&piece])]);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut next = format!("{head}{}{}", chunk(&all[0]), chunk(&all[1]));
    loop {
        let mut left = next.as_bytes();
        while !left.is_empty() {
            match socket.try_write(left) {
                Ok(count) => {
                    left = &left[count..];
                    written.send_modify(|written| {
                        written.bytes += count;
                        written.waits = false;
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    written.send_modify(|written| written.waits = true);
                    socket.writable().await?;
                }
                Err(error) => return Err(error),
            }
            yield_now().await;
        }
        next = chunk(&all[2]);
    }
}

/// A run or a loop that is read.
enum Reader<'a> {
    Run(Box<RunStream>),
    Drive(DriveStream<'a>),
}

impl Reader<'_> {
    async fn next(&mut self) -> RunEvent {
        match self {
            Self::Run(stream) => stream.next().await.unwrap(),
            Self::Drive(stream) => stream.next().await.unwrap().unwrap(),
        }
    }
}

/// Stops behind some events, for longer than the idle limit, and goes on; then it is dropped.
#[tokio::test]
async fn a_reader_that_stops_stops_the_server_and_is_not_timed_out() {
    let mut cases = 0;
    for read in [1, 3, 60] {
        for driven in [false, true] {
            let server = Endless::start().await;
            let (client, runner) = (server.client(), ToolRunner::new());
            let mut run_loop = runner.run_loop("go");
            let mut reader = match driven {
                false => Reader::Run(Box::new(runner.stream(&client, "go"))),
                true => Reader::Drive(runner.drive_stream(&client, &mut run_loop)),
            };
            for _ in 0..read {
                reader.next().await;
            }
            let mut taken_in = 0;
            for _ in 0..2 {
                server.stalled().await;
                sleep(2 * IDLE).await;
                // The kernel may have found some more room meanwhile; a client that reads on would
                // have taken hundreds of megabytes.
                taken_in = server.written.borrow().bytes;
                let asked_for = (read + 2) * 2 * PIECE;
                assert!(taken_in < asked_for + BUFFERS, "{taken_in} bytes were taken in for {read} events");
                reader.next().await;
            }
            // Asked again, it goes on, and nothing of the pause was a timeout.
            while server.written.borrow().bytes < taken_in + BUFFERS {
                reader.next().await;
            }
            drop(reader);
            server.until(|written| written.closed).await;
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, 3 * 2);
}

/// An inline tool goes on only while the stream is polled, one in a task by itself.
#[tokio::test]
async fn a_reader_that_stops_stops_inline_tools_and_no_tasks() {
    const STEPS: usize = 5;
    let mut cases = 0;
    for concurrency in [1, 2] {
        for driven in [false, true] {
            let (entered, permits, steps) =
                (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
            let tool = {
                let (entered, permits, steps) = (entered.clone(), permits.clone(), steps.clone());
                Tool::new("step", "", object()).handler(move |(): ()| {
                    let (entered, permits, steps) = (entered.clone(), permits.clone(), steps.clone());
                    async move {
                        entered.notify_one();
                        for _ in 0..STEPS {
                            permits.acquire().await.unwrap().forget();
                            steps.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                })
            };
            let turn = Reply::events(events("msg_1", "tool_use", &[call("t1", "step", &["{}"])]));
            let server = Server::start([turn, Reply::text("done")]).await;
            let (client, runner) =
                (server.client(), ToolRunner::new().tool(tool).max_concurrency(concurrency));
            let mut run_loop = runner.run_loop("go");
            let mut reader = match driven {
                false => Reader::Run(Box::new(runner.stream(&client, "go"))),
                true => Reader::Drive(runner.drive_stream(&client, &mut run_loop)),
            };
            while !matches!(soon(reader.next()).await, RunEvent::ToolStarted { .. }) {}
            others().await;
            assert_eq!(steps.load(Ordering::SeqCst), 0);
            tokio::select! {
                event = soon(reader.next()) => panic!("{:?}", told(&event)),
                () = entered.notified() => {}
            }
            permits.add_permits(STEPS);
            others().await;
            let by_itself = if concurrency == 1 { 0 } else { STEPS };
            assert_eq!(steps.load(Ordering::SeqCst), by_itself);
            assert!(matches!(soon(reader.next()).await, RunEvent::ToolFinished { .. }));
            assert_eq!(steps.load(Ordering::SeqCst), STEPS);
            // The next request is made only when it is asked for.
            others().await;
            assert_eq!(server.request_count(), 1);
            while !matches!(reader.next().await, RunEvent::Finished { .. }) {}
            server.finish().unwrap();
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, 2 * 2);
}

/// What is not asked for does not happen: nothing is sent before the first poll.
#[tokio::test]
async fn a_run_stream_does_nothing_until_it_is_asked() {
    let server = Server::start(Vec::<Reply>::new()).await;
    let (client, runner) = (server.client(), ToolRunner::new());
    let mut run_loop = runner.run_loop("go");
    let stream = runner.stream(&client, "go");
    let drive = runner.drive_stream(&client, &mut run_loop);
    others().await;
    assert_eq!((server.connections_opened(), server.request_count()), (0, 0));
    drop((stream, drive));
    assert_eq!((run_loop.iterations(), run_loop.conversation().len()), (0, 1));
    server.finish().unwrap();
}
