//! Streamed replies over real sockets.

mod drops;
mod ends;
mod events;
mod failures;
mod faults;
mod floods;
mod replies;
mod responses;
mod retries;
mod timeouts;
mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use agentloop::client::Auth;
use agentloop::messages::StreamEvent;
use agentloop::testing::{RecordedRequest, Reply, Script, Server};
use agentloop::{Client, ClientBuilder, Error, Message, MessageRequest, MessageStream};
use serde_json::{Value, json};
use tokio::task::JoinSet;

fn builder(server: &Server) -> ClientBuilder {
    Client::builder().base_url(server.url()).auth(Auth::None).no_proxy()
}

fn hello() -> MessageRequest {
    "Hello".into()
}

/// The ways to get a streamed reply whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Collected,
    Stream,
    TextStream,
}

impl Way {
    const ALL: [Self; 3] = [Self::Collected, Self::Stream, Self::TextStream];

    async fn ask(self, client: &Client, request: &MessageRequest) -> Result<Message, Error> {
        match self {
            Self::Collected => client.create_streamed(request).await,
            Self::Stream => client.stream(request).await?.final_message().await,
            Self::TextStream => client.stream(request).await?.text_stream().final_message().await,
        }
    }
}

/// What a stream gives until its end: the events, and the error if there is one.
async fn read(stream: &mut MessageStream) -> (Vec<StreamEvent>, Option<Error>) {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "nothing comes behind an error");
                return (events, Some(error));
            }
        }
    }
    (events, None)
}

fn kinds(events: &[StreamEvent]) -> Vec<&str> {
    events.iter().map(StreamEvent::kind).collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// A request that names its case.
fn case(number: usize) -> MessageRequest {
    hello().header("x-case", &number.to_string())
}

fn case_of(request: &RecordedRequest) -> usize {
    request.header("x-case").unwrap().parse().unwrap()
}

/// A server that answers each case with its reply, in whatever order they come.
async fn server_of(replies: Vec<Reply>) -> Server {
    Server::start(Script::from_fn(move |request| replies[case_of(request)].clone())).await
}

/// Runs the cases of a table, some of them at a time.
async fn at_once<F>(cases: impl IntoIterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut running = JoinSet::new();
    let mut done = Vec::new();
    for case in cases {
        if running.len() >= 48 {
            done.push(running.join_next().await.unwrap().unwrap());
        }
        running.spawn(case);
    }
    while let Some(outcome) = running.join_next().await {
        done.push(outcome.unwrap());
    }
    done
}

/// Counts how often each class of a table came up, to be printed.
#[derive(Debug, Default)]
struct Classes(BTreeMap<String, usize>);

impl Classes {
    fn add(&mut self, class: impl Into<String>) {
        *self.0.entry(class.into()).or_default() += 1;
    }

    fn of(&self, class: &str) -> usize {
        self.0.get(class).copied().unwrap_or_default()
    }
}

/// Ends a table that hangs. What it measures is not the point.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("the table should not hang")
}

/// Lets a paused clock go on in small steps, with a look at the sockets between them: time passes as
/// fast as nobody has anything to do.
async fn ticking<T>(work: impl Future<Output = T>) -> T {
    let ticks = async {
        loop {
            tokio::time::sleep(TICK).await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = ticks => unreachable!(),
    }
}

const TICK: Duration = Duration::from_millis(2);

fn begin() -> Value {
    let usage = json!({"input_tokens": 9, "output_tokens": 1});
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    json!({"type": "message_start", "message": message})
}

fn ping() -> Value {
    json!({"type": "ping"})
}

fn block(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn text_block(index: usize) -> Value {
    block(index, json!({"type": "text", "text": ""}))
}

fn text(index: usize, text: &str) -> Value {
    delta(index, json!({"type": "text_delta", "text": text}))
}

fn call_block(index: usize, id: &str, name: &str) -> Value {
    block(index, json!({"type": "tool_use", "id": id, "name": name, "input": {}}))
}

fn input(index: usize, json: &str) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": json}))
}

fn close(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> Value {
    json!({
        "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 7},
    })
}

fn stop() -> Value {
    json!({"type": "message_stop"})
}

/// A reply of one text block, one delta for each piece.
fn reply_of(pieces: &[&str]) -> Vec<Value> {
    let mut events = vec![begin(), text_block(0)];
    events.extend(pieces.iter().map(|piece| text(0, piece)));
    events.extend([close(0), end("end_turn"), stop()]);
    events
}

/// The events of `reply_of` as they stand on the wire.
fn wire(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}
