//! What a turn costs, beside the length of the conversation.
//!
//! `turn` is one turn without a network: the step, the body built and taken to its end, a reply
//! taken in, results appended. `loopback` sends the request of such a turn over a socket: the
//! segments, built anew each time, beside the same bytes as one prebuilt buffer, both by the same
//! bare HTTP client; and the whole of `Client::create`. Compare figures of one run: the machines
//! that this runs on are noisy.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use agentloop::client::Auth;
use agentloop::run_loop::{Rules, RunLoop, Step};
use agentloop::{Client, Message, MessageParam, MessageRequest, ToolOutput};
use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// The lengths that are compared, in messages of 200 bytes.
const LENGTHS: [usize; 2] = [20, 2_000];

const REPLY: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Let me add these two numbers with the tool."},{"type":"tool_use","id":"toolu_1","name":"add","input":{"a":2,"b":3}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":12,"output_tokens":9}}"#;

fn request(messages: usize) -> MessageRequest {
    // With the role and the quotes around it, each message is 200 bytes on the wire.
    let text = "x".repeat(200 - r#"{"role":"assistant","content":""},"#.len());
    (0..messages).fold(MessageRequest::new("claude-opus-5-5", 16_000), |request, number| {
        request.message(match number % 2 {
            0 => MessageParam::user(&text).expect("text"),
            _ => MessageParam::assistant(&text).expect("text"),
        })
    })
}

fn run_loop(messages: usize) -> RunLoop {
    let definition = r#"{"name":"add","description":"Adds two integers.","input_schema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}}"#;
    RunLoop::new(request(messages), Rules::new().definition(definition).handler("add"))
}

/// A request body of segments, with its exact length.
struct Segments(VecDeque<Bytes>);

impl Segments {
    fn of(request: &MessageRequest) -> Self {
        Self(request.segments().expect("a body").into())
    }
}

impl Body for Segments {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|segment| Ok(Frame::data(segment))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|segment| segment.len() as u64).sum())
    }
}

/// One turn of the loop, without a network.
fn turn(run_loop: &mut RunLoop, id: &str) {
    let Step::Send(step) = run_loop.step() else { unreachable!("a request is due") };
    let mut body = Segments::of(step.request());
    while let Poll::Ready(Some(frame)) =
        Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()))
    {
        black_box(frame.is_ok());
    }
    step.complete(Message::from_json(REPLY.replace("toolu_1", id)).expect("a reply")).expect("a legal reply");
    let Step::Call(mut step) = run_loop.step() else { unreachable!("calls are due") };
    for call in step.pending() {
        assert!(step.start(call.ticket()));
        step.resolve(call.ticket(), Ok(ToolOutput::text("5")));
    }
    step.finish();
}

fn turns(c: &mut Criterion) {
    let mut group = c.benchmark_group("turn");
    for messages in LENGTHS {
        let template = run_loop(messages);
        group.bench_function(BenchmarkId::from_parameter(messages), |b| {
            b.iter_batched(
                // A clone has no room to grow into; a loop that runs has, after its first turn.
                || {
                    let mut run_loop = template.clone();
                    turn(&mut run_loop, "toolu_0");
                    run_loop
                },
                |mut run_loop| {
                    turn(&mut run_loop, "toolu_1");
                    run_loop
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Answers every request with the same reply, after it has read the whole body.
async fn sink(listener: TcpListener) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(answer(socket));
    }
}

async fn answer(mut socket: TcpStream) -> std::io::Result<()> {
    let reply = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{REPLY}",
        REPLY.len()
    );
    let mut buffer = vec![0; 256 * 1024];
    let mut head = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            match socket.read(&mut buffer).await? {
                0 => return Ok(()),
                read => head.extend_from_slice(&buffer[..read]),
            }
        };
        let text = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
        let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut left =
            length.and_then(|length| length.parse::<usize>().ok()).expect("a length") - (head.len() - end);
        while left > 0 {
            left -= socket.read(&mut buffer).await?.min(left);
        }
        head.clear();
        socket.write_all(reply.as_bytes()).await?;
    }
}

fn loopback(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let server = runtime.spawn(sink(listener));
    let client = Client::builder().base_url(&url).auth(Auth::None).no_proxy().build().expect("a client");
    let plain = reqwest::Client::builder().no_proxy().build().expect("a client");
    let endpoint = format!("{url}/v1/messages");

    let mut group = c.benchmark_group("loopback");
    for messages in LENGTHS {
        let request = request(messages);
        let prebuilt = Bytes::from(request.segments().expect("a body").concat());
        for which in ["segments", "prebuilt", "create"] {
            group.bench_function(BenchmarkId::new(which, messages), |b| {
                b.to_async(&runtime).iter_custom(|rounds| {
                    let (client, plain, request, prebuilt, endpoint) =
                        (&client, &plain, &request, &prebuilt, &endpoint);
                    async move {
                        let mut taken = Duration::ZERO;
                        for _ in 0..rounds {
                            // All three take turns, so that what the machine does meanwhile hits each.
                            for way in ["segments", "prebuilt", "create"] {
                                let start = Instant::now();
                                let body = match way {
                                    "segments" => reqwest::Body::wrap(Segments::of(request)),
                                    "prebuilt" => reqwest::Body::from(prebuilt.clone()),
                                    _ => {
                                        black_box(client.create(request).await.expect("a reply"));
                                        taken += if which == way { start.elapsed() } else { Duration::ZERO };
                                        continue;
                                    }
                                };
                                let response =
                                    plain.post(endpoint).body(body).send().await.expect("a response");
                                black_box(response.bytes().await.expect("a body"));
                                taken += if which == way { start.elapsed() } else { Duration::ZERO };
                            }
                        }
                        taken
                    }
                });
            });
        }
    }
    group.finish();
    server.abort();
}

criterion_group!(benches, turns, loopback);
criterion_main!(benches);
