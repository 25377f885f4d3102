//! What putting a streamed reply together costs, beside finding its fields and beside the usual way.
//!
//! `agentloop` is `testing::read_stream`: bytes in, a `Message` out. `floor` finds the lines and
//! the fields that matter, borrowed, and keeps nothing: little that reads the JSON at all can be
//! faster. `typed` is `eventsource-stream` with each event read into an owned, tagged enum, and
//! the text gathered. The goals are at most 1.3 times the time of `floor`, and 4.5 times as fast
//! as `typed`, for a long text and for large inputs in deltas of a few words, as models write them.
//! Where a delta has some KiB, `floor` itself is less than 4.5 times as fast as `typed`: there the
//! first goal counts. All take turns within each round, so that what the machine does meanwhile
//! hits each: the ratios at the end are of the fastest rounds.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use agentloop::ContentBlock;
use agentloop::testing::read_stream;
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use eventsource_stream::Eventsource as _;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};

/// How long a reply is, in bytes.
const SIZE: usize = 64 << 20;

/// How many bytes are read at once.
const PIECE: usize = 16 << 10;

/// How many calls share the reply with inputs.
const CALLS: usize = 4;

const WAYS: [&str; 3] = ["floor", "agentloop", "typed"];

/// A few of them have to be escaped, and a few are not ASCII.
const WORDS: [&str; 40] = [
    "a",
    "and",
    "any",
    "because",
    "before",
    "builds",
    "by",
    "cargo",
    "code",
    "each",
    "error",
    "for",
    "from",
    "function",
    "here",
    "if",
    "in",
    "is",
    "it",
    "line",
    "most",
    "naïve",
    "of",
    "on",
    "one",
    "reads",
    "returns",
    "\"value\"",
    "so",
    "that",
    "the",
    "then",
    "this",
    "to",
    "value",
    "when",
    "which",
    "with",
    "done.\n\n",
    "– 🦀",
];

/// Words in an order that no branch predictor learns.
struct Words(u64);

impl Words {
    /// Appends words until the text has this many bytes more.
    fn write(&mut self, text: &mut String, bytes: usize) {
        let end = text.len() + bytes;
        while text.len() < end {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            text.push(' ');
            text.push_str(WORDS[self.0 as usize % WORDS.len()]);
        }
    }

    fn text(&mut self, bytes: usize) -> String {
        let mut text = String::new();
        self.write(&mut text, bytes);
        text
    }
}

fn event(body: &mut String, data: &Value) {
    let kind = data["type"].as_str().unwrap_or_default();
    write!(body, "event: {kind}\ndata: {data}\n\n").expect("a string takes everything");
}

fn delta(body: &mut String, index: usize, delta: &Value) {
    event(body, &json!({"type": "content_block_delta", "index": index, "delta": delta}));
}

/// A reply with what `blocks` writes between its first and its last events.
fn reply(stop_reason: &str, blocks: impl FnOnce(&mut String)) -> String {
    let mut body = String::with_capacity(SIZE + 2 * PIECE);
    let usage = json!({"input_tokens": 12, "output_tokens": 1});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
    event(&mut body, &json!({"type": "message_start", "message": message}));
    blocks(&mut body);
    let end = json!({"stop_reason": stop_reason, "stop_sequence": null});
    event(&mut body, &json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}}));
    event(&mut body, &json!({"type": "message_stop"}));
    body
}

/// One text in deltas of a few words.
fn text() -> String {
    let mut words = Words(1);
    reply("end_turn", |body| {
        let block = json!({"type": "text", "text": ""});
        event(body, &json!({"type": "content_block_start", "index": 0, "content_block": block}));
        while body.len() < SIZE {
            delta(body, 0, &json!({"type": "text_delta", "text": words.text(23)}));
        }
        event(body, &json!({"type": "content_block_stop", "index": 0}));
    })
}

/// Some calls with large inputs, in deltas of a few words.
fn inputs() -> String {
    calls(23)
}

/// The same, in deltas of about 4 KiB.
fn inputs_in_long_deltas() -> String {
    calls(4 << 10)
}

/// Some calls with large inputs, in deltas of at least this many bytes.
fn calls(bytes: usize) -> String {
    let mut words = Words(1);
    reply("tool_use", |body| {
        for index in 0..CALLS {
            let id = format!("toolu_{index}");
            let block = json!({"type": "tool_use", "id": id, "name": "edit", "input": {}});
            event(body, &json!({"type": "content_block_start", "index": index, "content_block": block}));
            let mut piece = r#"{"edits":[{}"#.to_owned();
            while body.len() < SIZE / CALLS * (index + 1) {
                while piece.len() < bytes {
                    let edit = json!({"path": "src/lib.rs", "old": words.text(150), "new": words.text(150)});
                    write!(piece, ",{edit}").expect("a string takes everything");
                }
                let cut = (bytes..).find(|at| piece.is_char_boundary(*at)).expect("the end is one");
                let rest = piece.split_off(cut);
                delta(body, index, &json!({"type": "input_json_delta", "partial_json": piece}));
                piece = rest;
            }
            piece.push_str("]}");
            delta(body, index, &json!({"type": "input_json_delta", "partial_json": piece}));
            event(body, &json!({"type": "content_block_stop", "index": index}));
        }
    })
}

/// Reads the body in this way.
fn read(way: &str, body: &str) {
    let pieces = body.as_bytes().chunks(PIECE);
    match way {
        "floor" => drop(black_box(floor(black_box(body.as_bytes())))),
        "agentloop" => drop(black_box(read_stream(pieces).expect("a reply"))),
        _ => drop(black_box(typed(pieces).now_or_never().expect("nothing to wait for"))),
    }
}

/// How many bytes of text and inputs each way finds.
fn found(body: &str) -> [usize; WAYS.len()] {
    let pieces = || body.as_bytes().chunks(PIECE);
    let message = read_stream(pieces()).expect("a reply");
    let lengths = message.content().iter().map(|block| match block {
        ContentBlock::Text(block) => block.text.len(),
        ContentBlock::ToolUse(block) => block.input.get().len(),
        _ => 0,
    });
    let blocks = typed(pieces()).now_or_never().expect("nothing to wait for");
    [floor(body.as_bytes()), lengths.sum(), blocks.iter().map(String::len).sum()]
}

#[derive(Deserialize)]
struct FloorEvent<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(default)]
    index: usize,
    #[serde(borrow, default)]
    delta: FloorDelta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FloorDelta<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
    #[serde(borrow)]
    partial_json: Cow<'a, str>,
}

fn floor(body: &[u8]) -> usize {
    let (mut start, mut bytes) = (0, 0);
    for end in memchr::memchr_iter(b'\n', body) {
        if let Some(data) = body[start..end].strip_prefix(b"data: ") {
            let event: FloorEvent<'_> = serde_json::from_slice(data).expect("an event");
            black_box((&event.r#type, event.index, &event.delta.r#type));
            bytes += event.delta.text.len() + event.delta.partial_json.len();
        }
        start = end + 1;
    }
    bytes
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "a client would hand them on")]
enum TypedEvent {
    ContentBlockDelta { index: usize, delta: TypedDelta },
    ContentBlockStart { index: usize, content_block: TypedBlock },
    ContentBlockStop { index: usize },
    Error { error: TypedError },
    MessageDelta { delta: TypedEnd, usage: TypedUsage },
    MessageStart { message: TypedMessage },
    MessageStop,
    Ping,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "a client would hand them on")]
enum TypedBlock {
    RedactedThinking { data: String },
    Text { text: String },
    Thinking { thinking: String, signature: String },
    ToolUse { id: String, name: String, input: Value },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "these are the names of the API")]
enum TypedDelta {
    InputJsonDelta { partial_json: String },
    SignatureDelta { signature: String },
    TextDelta { text: String },
    ThinkingDelta { thinking: String },
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "a client would hand them on")]
struct TypedMessage {
    id: String,
    role: String,
    model: String,
    content: Vec<TypedBlock>,
    stop_reason: Option<String>,
    stop_sequence: Option<String>,
    usage: TypedUsage,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "a client would hand them on")]
struct TypedEnd {
    stop_reason: Option<String>,
    stop_sequence: Option<String>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "a client would hand them on")]
struct TypedUsage {
    input_tokens: Option<u64>,
    output_tokens: u64,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "a client would hand them on")]
struct TypedError {
    r#type: String,
    message: String,
}

async fn typed(pieces: impl Iterator<Item = &[u8]>) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut events = stream::iter(pieces.map(Ok::<_, Infallible>)).eventsource();
    while let Some(event) = events.next().await {
        let event = event.expect("a frame");
        match serde_json::from_str(&event.data).expect("an event") {
            TypedEvent::ContentBlockStart { .. } => blocks.push(String::new()),
            TypedEvent::ContentBlockDelta { index, delta } => blocks[index].push_str(match &delta {
                TypedDelta::InputJsonDelta { partial_json } => partial_json,
                TypedDelta::SignatureDelta { signature } => signature,
                TypedDelta::TextDelta { text } => text,
                TypedDelta::ThinkingDelta { thinking } => thinking,
            }),
            other => {
                black_box(other);
            }
        }
    }
    blocks
}

fn replies(c: &mut Criterion) {
    for (shape, make) in [
        ("text", text as fn() -> String),
        ("inputs", inputs),
        ("inputs in long deltas", inputs_in_long_deltas),
    ] {
        let body = make();
        let [first, others @ ..] = found(&body);
        assert!(first > 0 && others.iter().all(|bytes| *bytes == first), "all read the same");

        let mut taken: [Vec<Duration>; WAYS.len()] = Default::default();
        let mut group = c.benchmark_group(format!("sse/{shape}"));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        group.warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_secs(1));
        for which in WAYS {
            group.bench_function(which, |b| {
                b.iter_custom(|rounds| {
                    let mut sum = Duration::ZERO;
                    for _ in 0..rounds {
                        for (way, taken) in WAYS.iter().zip(&mut taken) {
                            let start = Instant::now();
                            read(way, &body);
                            let time = start.elapsed();
                            taken.push(time);
                            sum += if which == *way { time } else { Duration::ZERO };
                        }
                    }
                    sum
                });
            });
        }
        group.finish();

        let [floor, agentloop, typed] =
            taken.map(|taken| taken.iter().min().map_or(0.0, Duration::as_secs_f64));
        if agentloop > 0.0 {
            println!(
                "sse/{shape}: agentloop takes {:.2} times the time of floor, typed {:.2} times that of agentloop",
                agentloop / floor,
                typed / agentloop
            );
        }
    }
}

criterion_group!(benches, replies);
criterion_main!(benches);
