//! What reading a streamed reply costs, beside the reply as bytes.
//!
//! A server on loopback streams a reply of many deltas, over and over. `bytes` reads it with the
//! same bare HTTP client and throws it away; `events` takes each event of `Client::stream`,
//! `message` is `Client::create_streamed`, `run` a whole run with `on_event`. All take turns within
//! each round, so that what the machine does meanwhile hits each: compare figures of one run.

use std::hint::black_box;
use std::time::{Duration, Instant};

use agentloop::client::Auth;
use agentloop::{Client, MessageRequest, ToolRunner};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// How many deltas a reply has.
const DELTAS: [usize; 2] = [200, 5_000];

fn reply(deltas: usize) -> String {
    let mut events = vec![
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":12,"output_tokens":1}}}"#.to_owned(),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned(),
    ];
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" about five words of text"}}"#;
    events.extend((0..deltas).map(|_| delta.to_owned()));
    events.extend(
        [
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}"#,
            r#"{"type":"message_stop"}"#,
        ]
        .map(str::to_owned),
    );
    let frame =
        |data: &String| format!("event: {}\ndata: {data}\n\n", data.split('"').nth(3).unwrap_or_default());
    let body: String = events.iter().map(frame).collect();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Answers every request with the same reply.
async fn serve(listener: TcpListener, reply: String) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(answer(socket, reply.clone()));
    }
}

async fn answer(mut socket: TcpStream, reply: String) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut request = Vec::new();
    loop {
        // The body of the request is small and ends its JSON.
        while !request.ends_with(b"}") {
            match socket.read(&mut buffer).await? {
                0 => return Ok(()),
                read => request.extend_from_slice(&buffer[..read]),
            }
        }
        request.clear();
        socket.write_all(reply.as_bytes()).await?;
    }
}

async fn read(way: &str, client: &Client, plain: &reqwest::Client, endpoint: &str) {
    let request = MessageRequest::from("Go on.");
    match way {
        "bytes" => {
            let mut response =
                plain.post(endpoint).body(r#"{"stream":true}"#).send().await.expect("a response");
            while let Some(bytes) = response.chunk().await.expect("a body") {
                black_box(bytes);
            }
        }
        "events" => {
            let mut stream = client.stream(&request).await.expect("a stream");
            while let Some(event) = stream.next().await {
                black_box(event.expect("an event"));
            }
        }
        "message" => {
            black_box(client.create_streamed(&request).await.expect("a reply"));
        }
        _ => {
            let runner = ToolRunner::new().on_event(|event| {
                black_box(event);
            });
            black_box(runner.run(client, request).await.expect("a run"));
        }
    }
}

fn streams(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let plain = reqwest::Client::builder().no_proxy().build().expect("a client");
    let ways = ["bytes", "events", "message", "run"];
    let mut group = c.benchmark_group("stream");
    for deltas in DELTAS {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = runtime.spawn(serve(listener, reply(deltas)));
        let client = Client::builder().base_url(&url).auth(Auth::None).no_proxy().build().expect("a client");
        let endpoint = format!("{url}/v1/messages");
        group.throughput(Throughput::Elements(deltas as u64));
        for which in ways {
            group.bench_function(BenchmarkId::new(which, deltas), |b| {
                b.to_async(&runtime).iter_custom(|rounds| {
                    let (client, plain, endpoint) = (&client, &plain, &endpoint);
                    async move {
                        let mut taken = Duration::ZERO;
                        for _ in 0..rounds {
                            for way in ways {
                                let start = Instant::now();
                                read(way, client, plain, endpoint).await;
                                taken += if which == way { start.elapsed() } else { Duration::ZERO };
                            }
                        }
                        taken
                    }
                });
            });
        }
        server.abort();
    }
    group.finish();
}

criterion_group!(benches, streams);
criterion_main!(benches);
