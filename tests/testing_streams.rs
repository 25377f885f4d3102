//! The scripted server over a socket: what it plays as event streams, in pieces and with holds.

use std::fmt::Display;
use std::time::Duration;

use agentloop::testing::{Gate, Reply, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nrequest-id: req_1\r\ntransfer-encoding: chunked\r\n\r\n";
const CLOSING: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nrequest-id: req_1\r\nconnection: close\r\n\r\n";

/// A client by hand: one connection.
struct Connection {
    socket: TcpStream,
}

impl Connection {
    async fn to(server: &Server) -> Self {
        let address = server.url().strip_prefix("http://").unwrap();
        Self { socket: TcpStream::connect(address).await.unwrap() }
    }

    /// A connection that has sent this request.
    async fn asking(server: &Server, body: &Value) -> Self {
        let mut connection = Self::to(server).await;
        connection.send(body).await;
        connection
    }

    async fn send(&mut self, body: &Value) {
        let body = body.to_string();
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nContent-Length: {}\r\nAnthropic-Version: 2026-10-21\r\nContent-Type: application/json\r\n\r\n",
            body.len()
        );
        self.socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    }

    async fn until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            bytes.push(self.socket.read_u8().await.unwrap());
        }
        String::from_utf8(bytes).unwrap()
    }

    async fn exactly(&mut self, length: usize) -> String {
        let mut bytes = vec![0; length];
        self.socket.read_exact(&mut bytes).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// All bytes until the server closes its side.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.socket.read_to_end(&mut rest).await.unwrap();
        String::from_utf8(rest).unwrap()
    }

    /// The chunks of a body, without the empty one that ends it.
    async fn chunks(&mut self) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        loop {
            let size = self.until("\r\n").await;
            let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.socket.read_exact(&mut chunk).await.unwrap();
            assert_eq!(chunk.split_off(size), b"\r\n");
            if size == 0 {
                return chunks;
            }
            chunks.push(chunk);
        }
    }

    /// The data of the events of a response.
    async fn events(&mut self) -> Vec<Value> {
        self.until("\r\n\r\n").await;
        let body = String::from_utf8(self.chunks().await.concat()).unwrap();
        body.split_terminator("\n\n").map(data).collect()
    }

    async fn assert_quiet(&mut self) {
        let read = timeout(Duration::from_millis(20), self.socket.read_u8()).await;
        assert!(read.is_err(), "the server did not wait: {read:?}");
    }
}

/// The JSON of an event, whose type must be its name.
fn data(event: &str) -> Value {
    let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["type"], name);
    data
}

fn request() -> Value {
    json!({"model": "claude-opus-5-5", "max_tokens": 64, "messages": [{"role": "user", "content": "Go"}]})
}

fn streaming() -> Value {
    let mut body = request();
    body["stream"] = json!(true);
    body
}

fn chunk(text: impl Display) -> String {
    let text = text.to_string();
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn event(kind: &str, rest: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n")
}

fn start(stop_reason_to_usage: &str) -> String {
    let rest = format!(
        r#","message":{{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-5-5","content":[],{stop_reason_to_usage}}}"#
    );
    event("message_start", &rest)
}

/// A block's start, its deltas and its stop.
fn block(index: usize, start: &str, deltas: &[&str]) -> Vec<String> {
    let rest = |name: &str, value: &str| format!(r#","index":{index},"{name}":{value}"#);
    let mut events = vec![event("content_block_start", &rest("content_block", start))];
    events.extend(deltas.iter().map(|delta| event("content_block_delta", &rest("delta", delta))));
    events.push(event("content_block_stop", &format!(r#","index":{index}"#)));
    events
}

/// The events of the only block of a message.
async fn events_of_block(block: &str) -> Vec<Value> {
    let server = Server::start(Reply::json_text(format!(r#"{{"content":[{block}]}}"#))).await;
    let events = Connection::asking(&server, &streaming()).await.events().await;
    events[2..events.len() - 2].to_vec()
}

/// The deltas of the only block of a message.
async fn deltas_of_block(block: &str) -> Vec<Value> {
    let events = events_of_block(block).await;
    events[1..events.len() - 1].iter().map(|event| event["delta"].clone()).collect()
}

fn joined(deltas: &[Value], field: &str) -> String {
    deltas.iter().filter_map(|delta| delta[field].as_str()).collect()
}

#[tokio::test]
async fn a_text_is_streamed_byte_for_byte() {
    let server = Server::start([Reply::text("Hello!").usage(913, 96), Reply::text("b")]).await;
    let mut client = Connection::asking(&server, &streaming()).await;
    let null = r#""stop_reason":null,"stop_sequence":null"#;
    let mut events = vec![
        start(&format!(r#"{null},"usage":{{"input_tokens":913,"output_tokens":1}},"stop_details":null"#)),
        event("ping", ""),
    ];
    let deltas = ["He", "ll", "o!"].map(|text| format!(r#"{{"type":"text_delta","text":"{text}"}}"#));
    events.extend(block(0, r#"{"type":"text","text":""}"#, &deltas.each_ref().map(String::as_str)));
    let delta = r#","delta":{"stop_reason":"end_turn","stop_sequence":null,"stop_details":null},"usage":{"input_tokens":913,"output_tokens":96}"#;
    events.extend([event("message_delta", delta), event("message_stop", "")]);
    let expected: String = events.iter().map(chunk).collect();
    let expected = format!("{HEAD}{expected}0\r\n\r\n");
    assert_eq!(client.exactly(expected.len()).await, expected);

    client.send(&streaming()).await;
    assert_eq!(client.events().await[0]["message"]["id"], "msg_2", "the connection is used again");
    assert_eq!(server.connections_opened(), 1);
    assert_eq!(server.finish(), Ok(()));
}

#[tokio::test]
async fn a_tool_call_is_streamed_byte_for_byte() {
    let message = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-5-5",
        "content":[{"id":"toolu_1","type":"tool_use","name":"add","input":{"n" : 1e2,"big":123456789012345678901},"caller":{"type":"direct"}},
            {"type":"tool_use","id":"toolu_2","name":"now","input":{}}],
        "stop_reason":"tool_use","container":{"id":"container_1"},"diagnostics":null,
        "usage":{"input_tokens":7,"cache_read_input_tokens":null,"cache_creation":{"ephemeral_5m_input_tokens":0},"output_tokens":0,"output_tokens_details":{"thinking_tokens":41},"service_tier":"standard"}}"#;
    let server = Server::start(Reply::json_text(message)).await;
    let mut client = Connection::asking(&server, &streaming()).await;
    let null = r#""stop_reason":null,"container":null,"diagnostics":null"#;
    let usage = r#""usage":{"input_tokens":7,"cache_read_input_tokens":null,"cache_creation":{"ephemeral_5m_input_tokens":0},"output_tokens":0,"service_tier":"standard"}"#;
    let mut events = vec![
        start(&format!(r#"{null},{usage},"stop_sequence":null,"stop_details":null"#)),
        event("ping", ""),
    ];
    let pieces = ["", r#"{\"n\" : 1e2,\"b"#, r#"ig\":123456789"#, r#"012345678901}"#];
    let deltas = pieces.map(|piece| format!(r#"{{"type":"input_json_delta","partial_json":"{piece}"}}"#));
    events.extend(block(
        0,
        r#"{"id":"toolu_1","type":"tool_use","name":"add","input":{},"caller":{"type":"direct"}}"#,
        &deltas.each_ref().map(String::as_str),
    ));
    events.extend(block(1, r#"{"type":"tool_use","id":"toolu_2","name":"now","input":{}}"#, &[&deltas[0]]));
    let delta = r#","delta":{"stop_reason":"tool_use","stop_sequence":null,"stop_details":null,"container":{"id":"container_1"}}"#;
    let usage = r#""usage":{"input_tokens":7,"cache_read_input_tokens":null,"output_tokens":0,"output_tokens_details":{"thinking_tokens":41}}"#;
    events.extend([event("message_delta", &format!("{delta},{usage}")), event("message_stop", "")]);
    let expected: String = events.iter().map(chunk).collect();
    let expected = format!("{HEAD}{expected}0\r\n\r\n");
    assert_eq!(client.exactly(expected.len()).await, expected);
}

#[tokio::test]
async fn every_kind_of_block_has_its_deltas() {
    let cited = r#"{"type":"text","text":"","citations":[{"type":"x","n":1.5},{"type":"y"}],"z":1}"#;
    let events = events_of_block(cited).await;
    assert_eq!(events[0]["content_block"].to_string(), r#"{"type":"text","text":"","citations":[],"z":1}"#);
    assert_eq!(events[1]["delta"], json!({"type": "citations_delta", "citation": {"type": "x", "n": 1.5}}));
    assert_eq!(events[2]["delta"]["citation"]["type"], "y");
    let uncited = events_of_block(r#"{"type":"text","text":"abc","citations":null}"#).await;
    assert_eq!(uncited[0]["content_block"], json!({"type": "text", "text": "", "citations": null}));

    let thinking = events_of_block(r#"{"type":"thinking","thinking":"Well then","signature":"Ep=="}"#).await;
    assert_eq!(thinking[0]["content_block"], json!({"type": "thinking", "thinking": "", "signature": ""}));
    let deltas: Vec<_> = thinking[1..5].iter().map(|event| event["delta"].clone()).collect();
    assert_eq!(joined(&deltas[..3], "thinking"), "Well then");
    assert!(deltas[..3].iter().all(|delta| delta["type"] == "thinking_delta"));
    assert_eq!(deltas[3], json!({"type": "signature_delta", "signature": "Ep=="}));
    let omitted = deltas_of_block(r#"{"type":"thinking","thinking":"","signature":"Ep=="}"#).await;
    assert_eq!(omitted, [json!({"type": "signature_delta", "signature": "Ep=="})]);

    for kind in ["tool_use", "server_tool_use", "mcp_tool_use"] {
        let deltas = deltas_of_block(&format!(r#"{{"type":"{kind}","input":{{"q":"a\n\u00e9"}}}}"#)).await;
        assert_eq!(deltas[0]["partial_json"], "");
        assert_eq!((joined(&deltas, "partial_json").as_str(), deltas.len()), (r#"{"q":"a\n\u00e9"}"#, 4));
    }
    let member = deltas_of_block(r#"{"type":"tool_use","toolset_name":"computer","input":{"x":10}}"#).await;
    assert_eq!(member, [json!({"type": "input_json_delta", "partial_json": r#"{"x":10}"#})]);

    for whole in [
        r#"{"type":"redacted_thinking","data":"Em=="}"#,
        r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result"}]}"#,
        r#"{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}"#,
        r#"{"zeta":1,"type":"hologram","alpha":2}"#,
        r#"{"type":"text","text":5}"#,
        r#"{"type":"tool_use","id":"toolu_1"}"#,
        r#"7"#,
    ] {
        let events = events_of_block(whole).await;
        assert_eq!((events[0]["content_block"].to_string().as_str(), events.len()), (whole, 2));
    }
}

#[tokio::test]
async fn texts_are_cut_between_characters_and_keep_their_spelling() {
    for (literal, text) in [("äöü€🦀", "äöü€🦀"), (r"\u0041\n\ud83e\udd80\\\u00e9", "A\n🦀\\é")]
    {
        let deltas = deltas_of_block(&format!(r#"{{"type":"text","text":"{literal}"}}"#)).await;
        assert!(deltas.len() > 1);
        assert_eq!(joined(&deltas, "text"), text);
    }
    // Half of a pair is no Rust text: it has to arrive as it was spelled.
    let server = Server::start(Reply::json_text(r#"{"content":[{"type":"text","text":"\ud83ea"}]}"#)).await;
    let mut client = Connection::asking(&server, &streaming()).await;
    let body = client.until("0\r\n\r\n").await;
    assert!(body.contains(r#""text":"\ud83e""#) && body.contains(r#""text":"a""#), "{body}");

    let long = "é".repeat(5000);
    let deltas = deltas_of_block(&format!(r#"{{"type":"text","text":"{long}"}}"#)).await;
    assert_eq!((joined(&deltas, "text"), deltas.len()), (long, 10));
}

#[tokio::test]
async fn only_messages_are_streamed_and_only_when_asked_for() {
    let server = Server::start([
        Reply::text("a"),
        Reply::text("b"),
        Reply::error(529, "overloaded_error", "Overloaded"),
        Reply::raw(200, [("a", "b")], "raw"),
        Reply::json_text("[1]"),
        Reply::json_text("{\n\"content\" : 5, \"context_management\":{\"a\":1}}"),
    ])
    .await;
    let mut client = Connection::to(&server).await;
    let mut refusing = streaming();
    refusing["max_tokens"] = json!("x");
    for (stream, body, expected) in [
        (json!(false), None, "\r\ncontent-type: application/json\r\n"),
        (Value::Null, None, "\r\ncontent-type: application/json\r\n"),
        (json!(true), Some(refusing), "HTTP/1.1 400"),
        (json!("true"), None, "HTTP/1.1 400"),
        (json!(1), None, "HTTP/1.1 400"),
        (json!([]), None, "HTTP/1.1 400"),
        (json!(true), None, "HTTP/1.1 529"),
        (json!(true), None, "\r\na: b\r\n"),
        (json!(true), None, "\r\ncontent-type: application/json\r\n"),
    ] {
        let mut body = body.unwrap_or_else(request);
        body["stream"] = stream;
        client.send(&body).await;
        let head = client.until("\r\n\r\n").await;
        assert!(head.contains(expected) && !head.contains("chunked"), "{head}");
        let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
        client.exactly(length.parse().unwrap()).await;
    }
    client.send(&streaming()).await;
    let events = client.events().await;
    assert_eq!(
        (events[0]["message"]["content"].clone(), events[0]["message"].get("context_management")),
        (json!(5), None)
    );
    assert_eq!((events.len(), &events[2]["context_management"]), (4, &json!({"a": 1})));
    assert_eq!(server.finish(), Ok(()));
}

#[tokio::test]
async fn explicit_events_and_bytes_are_sent_whatever_was_asked_for() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let server = Server::start([
        Reply::events([json!({"type": "ping"}), error.clone()]),
        Reply::sse(b": hi\r\n\xff".to_vec()).header("Content-Type", "text/event-stream"),
        Reply::events([]),
        Reply::sse("data: 1\n\n").header("content-length", "9"),
    ])
    .await;
    let mut client = Connection::asking(&server, &request()).await;
    let expected = [r#"{"type":"ping"}"#, &error.to_string()].map(|data| {
        let kind = if data.contains("ping") { "ping" } else { "error" };
        chunk(format!("event: {kind}\ndata: {data}\n\n"))
    });
    let expected = format!("{HEAD}{}0\r\n\r\n", expected.concat());
    assert_eq!(client.exactly(expected.len()).await, expected);

    client.send(&request()).await;
    let head = client.until("\r\n\r\n").await;
    assert!(head.contains("Content-Type: text/event-stream\r\n") && !head.contains("utf-8"), "{head}");
    assert_eq!(client.chunks().await, [b": hi\r\n\xff"]);

    client.send(&streaming()).await;
    client.until("\r\n\r\n").await;
    assert_eq!(client.chunks().await, Vec::<Vec<u8>>::new());

    client.send(&streaming()).await;
    let head = client.until("\r\n\r\n").await;
    assert!(head.ends_with("content-length: 9\r\n\r\n") && !head.contains("chunked"), "{head}");
    assert_eq!(client.exactly(9).await, "data: 1\n\n");
}

#[tokio::test]
async fn pieces_are_writes_and_chunks() {
    let pings = || Reply::events([json!({"type": "ping"}), json!({"type": "ping"})]);
    let ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    let gate = Gate::new();
    gate.release();
    let server = Server::start([
        pings().in_pieces(1),
        pings().in_pieces(30).hold_after_events(1, &gate),
        pings().in_pieces(usize::MAX),
        Reply::garbage("0123456789").in_pieces(4),
    ])
    .await;
    let mut client = Connection::to(&server).await;
    let bytes: Vec<_> = ping.repeat(2).into_bytes().chunks(1).map(<[u8]>::to_vec).collect();
    let (long, short) = ping.as_bytes().split_at(30);
    for expected in
        [bytes, vec![long.into(), short.into(), long.into(), short.into()], vec![ping.repeat(2).into()]]
    {
        client.send(&request()).await;
        client.until("\r\n\r\n").await;
        assert_eq!(client.chunks().await, expected);
    }

    assert_eq!(Connection::asking(&server, &request()).await.rest().await, "0123456789");
}

#[tokio::test]
async fn a_body_with_a_length_can_be_read_in_pieces() {
    // The system may still join two writes, but not time and again.
    let server =
        Server::start(vec![Reply::raw(200, [("a", "b")], "0123456789").in_pieces(4).close(); 20]).await;
    for _ in 0..20 {
        let mut client = Connection::asking(&server, &request()).await;
        let head = client.until("\r\n\r\n").await;
        assert!(head.ends_with("content-length: 10\r\nconnection: close\r\n\r\n"), "{head}");
        let mut reads = Vec::new();
        let mut buffer = [0; 64];
        while let length @ 1.. = client.socket.read(&mut buffer).await.unwrap() {
            reads.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        assert_eq!(reads.concat(), "0123456789");
        if reads == ["0123", "4567", "89"] {
            return;
        }
    }
    panic!("no body came in its pieces");
}

#[tokio::test]
async fn bytes_are_held_until_the_gate_is_open() {
    let gates = [Gate::new(), Gate::new(), Gate::new(), Gate::new()];
    let reply = Reply::sse("data: 1\n\n");
    let expected = format!("{HEAD}{}0\r\n\r\n", chunk("data: 1\n\n"));
    let marks = [0, 5, HEAD.len() + 1, usize::MAX];
    let holds = marks.into_iter().zip(&gates).rev();
    let held = holds.fold(reply, |reply, (bytes, gate)| reply.hold_after(bytes, gate));
    let server = Server::start([held, Reply::text("b")]).await;
    let mut client = Connection::asking(&server, &request()).await;
    let mut at = 0;
    for (mark, gate) in marks.into_iter().zip(&gates) {
        let end = mark.min(expected.len());
        assert_eq!(client.exactly(end - at).await, expected[at..end]);
        client.assert_quiet().await;
        at = end;
        if mark < usize::MAX {
            gate.release();
        }
    }
    client.send(&request()).await;
    client.assert_quiet().await;
    assert_eq!(server.request_count(), 1, "the connection is still held");
    gates[3].release();
    assert!(client.until("\r\n\r\n").await.contains("req_2"));
}

#[tokio::test]
async fn events_are_held_until_the_gate_is_open() {
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let [first, second, third] = &gates;
    let server = Server::start([
        Reply::text("Hi")
            .hold_after_events(0, first)
            .hold_after_events(3, second)
            .hold_after_events(99, third),
        Reply::text("Hi").hold_after_events(3, &Gate::new()).hold_after(9, first),
    ])
    .await;
    let mut client = Connection::asking(&server, &streaming()).await;
    assert_eq!(client.until("\r\n\r\n").await, HEAD);
    client.assert_quiet().await;
    first.release();
    for kind in ["message_start", "ping", "content_block_start"] {
        let event = client.until("\n\n\r\n").await;
        assert!(event.contains(&format!("event: {kind}\n")), "{event}");
    }
    client.assert_quiet().await;
    second.release();
    client.until("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n\r\n").await;
    client.assert_quiet().await;
    third.release();
    assert_eq!(client.exactly(5).await, "0\r\n\r\n");

    client.send(&request()).await;
    assert!(client.until("\r\n\r\n").await.contains("application/json"));
    client.assert_quiet().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_is_noticed_at_a_hold() {
    let shut = Gate::new();
    let server = Server::start([
        Reply::text("a").hold_after(10, &shut),
        Reply::text("a").hold_after_events(2, &shut),
        Reply::events([json!({"type": "ping"})]).hold_after(usize::MAX, &shut),
        Reply::text("a").cut_after(20).hold_after(20, &shut),
    ])
    .await;
    for length in [10, HEAD.len() + 1, HEAD.len() + 1, 20] {
        let mut client = Connection::asking(&server, &streaming()).await;
        client.exactly(length).await;
        assert_eq!(server.connections_open(), 1);
        drop(client);
        server.wait_for_open_connections(0).await;
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_noticed_while_a_write_is_blocked() {
    let long = "x".repeat(16 << 20);
    let server =
        Server::start([Reply::json_text(long.clone()), Reply::sse(long.clone()), Reply::sse(long)]).await;
    for half in [false, false, true] {
        let mut client = Connection::asking(&server, &request()).await;
        client.exactly(100).await;
        assert_eq!(server.connections_open(), 1);
        if half {
            client.socket.shutdown().await.unwrap();
        } else {
            drop(client);
        }
        server.wait_for_open_connections(0).await;
    }
}

#[tokio::test]
async fn a_closed_stream_ends_with_its_connection() {
    let server = Server::start(Reply::events([json!({"type": "ping"})]).close()).await;
    let mut client = Connection::asking(&server, &request()).await;
    assert_eq!(client.rest().await, format!("{CLOSING}{}", event("ping", "")));
    server.wait_for_open_connections(0).await;
}

#[tokio::test]
async fn cuts_count_the_bytes_of_the_response() {
    let reply = Reply::sse("data: 1\n\n");
    let whole = format!("{HEAD}{}0\r\n\r\n", chunk("data: 1\n\n"));
    let lengths = [HEAD.len() - 2, HEAD.len() + 5, whole.len() - 1];
    let server =
        Server::start(lengths.map(|length| reply.clone().cut_after(length).in_pieces(2)).to_vec()).await;
    for length in lengths {
        let whole = format!("{HEAD}{}0\r\n\r\n", ["da", "ta", ": ", "1\n", "\n"].map(chunk).concat());
        let number = format!("req_{}", server.request_count() + 1);
        let rest = Connection::asking(&server, &request()).await.rest().await;
        assert_eq!(rest, whole.replace("req_1", &number)[..length]);
    }

    let gate = Gate::new();
    let server = Server::start(reply.reset_after(HEAD.len()).hold_after(HEAD.len(), &gate)).await;
    let mut client = Connection::asking(&server, &request()).await;
    assert_eq!(client.exactly(HEAD.len()).await, HEAD);
    gate.release();
    let error = client.socket.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_turn_paused_in_a_stream_may_come_back() {
    let content = json!([
        {"type": "thinking", "thinking": "Let me see", "signature": "Ep=="},
        {"type": "text", "text": "It says so", "citations": [{"type": "char_location"}]},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": [true, "ü"]}},
        {"type": "text", "text": "Going on"},
    ]);
    let paused = || Reply::message(json!({"content": content})).stop_reason("pause_turn");
    let server = Server::start([paused()]).await;
    let events = Connection::asking(&server, &streaming()).await.events().await;

    let mut resumed = streaming();
    resumed["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": content}));
    for reply in [paused(), Reply::events(events)] {
        let server = Server::start([reply, Reply::text("Done")]).await;
        let mut client = Connection::asking(&server, &resumed).await;
        assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 400"));
        let mut client = Connection::asking(&server, &streaming()).await;
        client.events().await;
        client.send(&resumed).await;
        assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 200"));
        assert_eq!(server.finish(), Ok(()));
    }
}

#[test]
#[should_panic(expected = "`hold_after_events` is of messages and events, and this reply is neither")]
fn bytes_have_no_events() {
    let _reply = Reply::sse("data: 1\n\n").hold_after_events(1, &Gate::new());
}

#[test]
#[should_panic(expected = "an event is a JSON object with a type, not {\"index\":0}")]
fn an_event_has_a_type() {
    let _reply = Reply::events([json!({"type": "ping"}), json!({"index": 0})]);
}

#[test]
#[should_panic(expected = "a piece has at least one byte")]
fn a_piece_is_not_empty() {
    let _reply = Reply::text("a").in_pieces(0);
}
