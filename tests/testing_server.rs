//! The scripted server over a socket: what it plays, records and refuses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use agentloop::testing::{Gate, RecordedRequest, Reply, Script, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

const HEADERS: &[(&str, &str)] = &[("anthropic-version", "2026-10-21"), ("content-type", "application/json")];

/// A client by hand: one connection.
struct Connection {
    socket: TcpStream,
}

#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Connection {
    async fn to(server: &Server) -> Self {
        let address = server.url().strip_prefix("http://").unwrap();
        let socket = TcpStream::connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket }
    }

    async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    async fn send_to(&mut self, start: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{start} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.write(format!("{head}\r\n")).await;
        self.write(body).await;
    }

    async fn send(&mut self, body: &Value) {
        self.send_to("POST /v1/messages", HEADERS, body.to_string().as_bytes()).await;
    }

    async fn response(&mut self) -> Response {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.socket.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = Response { status, head, body: Vec::new() };
        let length = response.header("content-length").unwrap_or("0").parse().unwrap();
        response.body.resize(length, 0);
        self.socket.read_exact(&mut response.body).await.unwrap();
        response
    }

    /// All bytes until the server closes its side.
    async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.socket.read_to_end(&mut rest).await.unwrap();
        rest
    }

    async fn ask(&mut self, body: &Value) -> Response {
        self.send(body).await;
        self.response().await
    }
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    fn assert_error(&self, status: u16, error_type: &str, message: &str) {
        let body = self.json();
        assert_eq!((self.status, body["error"]["type"].as_str()), (status, Some(error_type)), "{body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(message), "{body}");
        assert_eq!(body["type"], "error");
        assert_eq!(body["request_id"].as_str(), self.header("request-id"));
    }
}

fn request(text: &str) -> Value {
    json!({"model": "claude-opus-5-5", "max_tokens": 64, "messages": [{"role": "user", "content": text}]})
}

/// A request that ends in an assistant turn.
fn ending_in(content: Value) -> Value {
    let mut body = request("Go");
    body["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": content}));
    body
}

/// What dropping the server says, if it panics.
fn panic_of_drop(server: Server) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(server))).err()?;
    Some(panic.downcast_ref::<String>().expect("a message").clone())
}

#[tokio::test]
async fn replies_are_played_in_order_over_one_connection() {
    let server = Server::start([
        Reply::text("one"),
        Reply::tool_use([("toolu_1", "add", json!({"a": 1})), ("toolu_2", "add", json!({}))]),
        Reply::text("cut").stop_reason("max_tokens").usage(7, 9),
    ])
    .await;
    let mut client = Connection::to(&server).await;

    let first = client.ask(&request("a")).await;
    assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
    assert_eq!(first.header("request-id"), Some("req_1"));
    assert_eq!(
        first.json(),
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": [{"type": "text", "text": "one"}],
            "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 5}})
    );
    let second = client.ask(&request("b")).await.json();
    assert_eq!((&second["id"], &second["stop_reason"]), (&json!("msg_2"), &json!("tool_use")));
    assert_eq!(
        second["content"][0],
        json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}})
    );
    assert_eq!(second["content"][1]["id"], "toolu_2");
    let third = client.ask(&request("c")).await.json();
    assert_eq!((&third["stop_reason"], &third["usage"]["output_tokens"]), (&json!("max_tokens"), &json!(9)));

    let numbers: Vec<_> =
        server.requests().iter().map(|request| (request.number(), request.connection())).collect();
    assert_eq!(numbers, [(1, 1), (2, 1), (3, 1)]);
    assert_eq!((server.connections_opened(), server.connections_open()), (1, 1));
    assert_eq!(server.finish(), Ok(()));
}

#[tokio::test]
async fn a_message_keeps_what_it_names() {
    let server = Server::start(Reply::message(json!({
        "id": "msg_mine", "model": "other", "stop_sequence": "END", "container": {"id": "container_1"},
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}],
    })))
    .await;
    let message = Connection::to(&server).await.ask(&request("a")).await.json();
    assert_eq!((&message["id"], &message["model"]), (&json!("msg_mine"), &json!("other")));
    assert_eq!(
        (&message["stop_sequence"], &message["container"]["id"]),
        (&json!("END"), &json!("container_1"))
    );
    assert_eq!(message["stop_reason"], "tool_use", "a content with a call stops for it");
}

#[tokio::test]
async fn exact_text_arrives_as_it_is() {
    let text = "{ \"content\" : [{\"type\":\"hologram\",\"n\":1e2,\"big\":1234567890123456789012345}],\"zeta\":1,\"alpha\":2 }\n";
    let server = Server::start(Reply::json_text(text)).await;
    let response = Connection::to(&server).await.ask(&request("a")).await;
    assert_eq!(String::from_utf8(response.body).unwrap(), text);
}

#[tokio::test]
async fn errors_have_the_envelope_of_the_api() {
    let server = Server::start([
        Reply::error(529, "overloaded_error", "Overloaded").header("retry-after", "1"),
        Reply::error(404, "not_found_error", "model: x").header("request-id", "req_mine"),
    ])
    .await;
    let mut client = Connection::to(&server).await;
    let first = client.ask(&request("a")).await;
    let error = json!({"type": "overloaded_error", "message": "Overloaded"});
    assert_eq!(first.json(), json!({"type": "error", "error": error, "request_id": "req_1"}));
    assert_eq!((first.status, first.header("retry-after")), (529, Some("1")));
    let second = client.ask(&request("a")).await;
    second.assert_error(404, "not_found_error", "model: x");
    assert_eq!(second.header("request-id"), Some("req_mine"));
    assert_eq!(second.head.matches("request-id").count(), 1);
}

#[tokio::test]
async fn raw_replies_are_what_they_say() {
    let server = Server::start([
        Reply::raw(502, [("content-type", "text/html")], "<h1>Bad gateway</h1>"),
        Reply::raw(200, [("transfer-encoding", "chunked")], "2\r\n{}\r\n0\r\n\r\n").close(),
    ])
    .await;
    let mut client = Connection::to(&server).await;
    let response = client.ask(&request("a")).await;
    assert_eq!(
        response.head,
        "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 20\r\n\r\n"
    );
    assert_eq!(response.body, b"<h1>Bad gateway</h1>");
    client.send(&request("b")).await;
    let bytes = String::from_utf8(client.rest().await).unwrap();
    assert_eq!(
        bytes,
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    );
}

#[tokio::test]
async fn garbage_and_cuts_end_the_connection() {
    let whole = Reply::raw(200, [("a", "b")], "0123456789");
    let length = "HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 10\r\n\r\n0123456789".len();
    let server = Server::start([
        Reply::garbage(b"\x00\xffnot http".to_vec()),
        whole.clone().cut_after(0),
        whole.clone().cut_after(12),
        whole.clone().cut_after(length - 3),
        whole.cut_after(usize::MAX),
    ])
    .await;
    let ends: [&[u8]; 5] = [
        b"\x00\xffnot http",
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 10\r\n\r\n0123456",
        b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 10\r\n\r\n0123456789",
    ];
    for end in ends {
        let mut client = Connection::to(&server).await;
        client.send(&request("a")).await;
        assert_eq!(client.rest().await, end);
    }
    assert_eq!(server.connections_opened(), 5);
    server.wait_for_open_connections(0).await;
}

#[tokio::test]
async fn a_reset_is_an_error_for_the_client() {
    let server = Server::start(Reply::text("never whole").reset_after(8)).await;
    let mut client = Connection::to(&server).await;
    client.send(&request("a")).await;
    let error = client.socket.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn close_is_announced_and_done() {
    let server = Server::start([Reply::text("a").close(), Reply::text("b")]).await;
    let mut client = Connection::to(&server).await;
    let response = client.ask(&request("a")).await;
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(client.rest().await, b"");
    server.wait_for_open_connections(0).await;

    let mut client = Connection::to(&server).await;
    let headers = [HEADERS, &[("Connection", "close")]].concat();
    client.send_to("POST /v1/messages", &headers, request("b").to_string().as_bytes()).await;
    assert_eq!(client.response().await.header("connection"), None);
    assert_eq!(client.rest().await, b"", "a client that asked for it has its connection closed");
    assert_eq!((server.connections_opened(), server.requests()[1].connection()), (2, 2));
}

#[tokio::test]
async fn a_gate_holds_one_reply_and_no_other() {
    let gate = Gate::new();
    let server = Server::start([Reply::text("first").hold(&gate), Reply::text("second")]).await;
    let (mut held, mut free) = (Connection::to(&server).await, Connection::to(&server).await);

    held.send(&request("a")).await;
    server.wait_for_requests(1).await;
    assert_eq!(free.ask(&request("b")).await.json()["content"][0]["text"], "second");
    assert_eq!(held.socket.try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);

    gate.release();
    assert_eq!(held.response().await.json()["content"][0]["text"], "first");
}

#[tokio::test]
async fn an_open_gate_stays_open() {
    let gate = Gate::default();
    gate.release();
    let server = Server::start([Reply::text("a").hold(&gate), Reply::text("b").hold(&gate)]).await;
    let mut client = Connection::to(&server).await;
    assert_eq!(client.ask(&request("a")).await.status, 200);
    assert_eq!(client.ask(&request("b")).await.status, 200);
}

#[tokio::test]
async fn a_client_that_hangs_up_is_noticed_while_its_reply_is_held() {
    let server = Server::start(Reply::text("a").hold(&Gate::new())).await;
    let mut client = Connection::to(&server).await;
    client.send(&request("a")).await;
    server.wait_for_requests(1).await;
    assert_eq!(server.connections_open(), 1);
    drop(client);
    server.wait_for_open_connections(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_passes_on_the_clock_of_tokio() {
    let server = Server::start(Reply::text("a").delay(Duration::from_secs(3600))).await;
    let before = Instant::now();
    let response = Connection::to(&server).await.ask(&request("a")).await;
    assert_eq!(response.status, 200);
    assert!(before.elapsed() >= Duration::from_secs(3600), "{:?}", before.elapsed());
}

#[tokio::test]
async fn requests_are_recorded_as_sent() {
    let server = Server::start(Reply::text("a")).await;
    let mut client = Connection::to(&server).await;
    let body =
        b"{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"content\":\"\\u0041\",\"role\":\"user\"}] }";
    let headers = [HEADERS, &[("X-Mine", " a "), ("x-mine", "b")]].concat();
    client.send_to("POST /gateway/v1/messages?beta=true", &headers, body).await;
    assert_eq!(client.response().await.status, 200);

    let recorded = server.requests().remove(0);
    assert_eq!((recorded.method(), recorded.path()), ("POST", "/gateway/v1/messages?beta=true"));
    assert_eq!(recorded.body(), body);
    assert_eq!(recorded.json()["messages"][0]["content"], "A");
    let mine: Vec<_> = recorded
        .headers()
        .iter()
        .filter(|(name, _)| name == "x-mine")
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(mine, ["a", "b"]);
    assert_eq!((recorded.header("X-MINE"), recorded.header("x-other")), (Some("a"), None));
    assert_eq!(recorded.refusal(), None);
}

#[tokio::test]
async fn chunks_continue_and_single_bytes_are_read() {
    let server = Server::start([Reply::text("a"), Reply::text("b"), Reply::text("c")]).await;
    let mut client = Connection::to(&server).await;
    let body = request("Hello").to_string();
    let (left, right) = body.split_at(30);
    let lines = "anthropic-version: 2026-10-21\r\ncontent-type: application/json; charset=utf-8\r\n";

    let head = format!("POST /v1/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{lines}\r\n");
    client
        .write(format!("{head}1E;x=y\r\n{left}\r\n{:x}\r\n{right}\r\n0\r\nTrailer: x\r\n\r\n", right.len()))
        .await;
    assert_eq!(client.response().await.status, 200);

    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nContent-Length: {}\r\nExpect: 100-continue\r\n{lines}\r\n",
        body.len()
    );
    client.write(&head).await;
    let mut early = [0; 25];
    client.socket.read_exact(&mut early).await.unwrap();
    assert_eq!(&early, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write(&body).await;
    assert_eq!(client.response().await.status, 200);

    for byte in
        format!("POST /v1/messages HTTP/1.1\r\nContent-Length: {}\r\n{lines}\r\n{body}", body.len()).bytes()
    {
        client.write([byte]).await;
    }
    assert_eq!(client.response().await.status, 200);

    assert!(server.requests().iter().all(|request| request.body() == body.as_bytes()));
    assert_eq!((server.request_count(), server.connections_opened()), (3, 1));
}

#[tokio::test]
async fn two_requests_in_one_write_get_two_replies() {
    let gate = Gate::new();
    let server = Server::start([Reply::text("a").hold(&gate), Reply::text("b")]).await;
    let mut client = Connection::to(&server).await;
    client.send(&request("a")).await;
    client.send(&request("b")).await;
    server.wait_for_requests(1).await;
    gate.release();
    assert_eq!(client.response().await.json()["content"][0]["text"], "a");
    assert_eq!(client.response().await.json()["content"][0]["text"], "b");
}

#[tokio::test]
async fn what_is_no_http_is_refused() {
    let server = Server::start(Vec::new()).await;
    for bytes in [
        "hello\r\n\r\n",
        "POST /v1/messages HTTP/1.1\r\nno colon\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ] {
        let mut client = Connection::to(&server).await;
        client.write(bytes).await;
        client.response().await.assert_error(400, "invalid_request_error", "");
        assert_eq!(client.rest().await, b"");
    }
    assert_eq!(server.request_count(), 0);
}

#[tokio::test]
async fn a_script_that_ran_out_is_loud() {
    let server = Server::start([Reply::text("a")]).await;
    let mut client = Connection::to(&server).await;
    client.ask(&request("a")).await;
    let response = client.ask(&request("b")).await;
    response.assert_error(500, "api_error", "the script ran out at request 2");
    assert_eq!(response.header("x-should-retry"), Some("false"));
    assert_eq!(server.request_count(), 2);
    let message = panic_of_drop(server).expect("dropping the server should panic");
    assert!(message.contains("the script ran out at request 2"), "{message}");
}

#[tokio::test]
async fn finish_tells_instead_of_panicking() {
    let server = Server::start(Vec::new()).await;
    Connection::to(&server).await.ask(&request("a")).await;
    let error = server.finish().unwrap_err();
    assert_eq!(error.to_string(), "the test server's script did not fit: the script ran out at request 1");
}

#[tokio::test]
async fn replies_left_over_are_told_by_finish_only() {
    let server = Server::start([Reply::text("a"), Reply::text("b")]).await;
    let error = server.finish().unwrap_err().to_string();
    assert!(error.contains("2 replies of the script were never asked for"), "{error}");
    assert_eq!(panic_of_drop(Server::start([Reply::text("a")]).await), None);
}

#[tokio::test]
async fn a_function_sees_the_request() {
    let script = Script::from_fn(|request: &RecordedRequest| {
        let body = request.json();
        let text = body["messages"][0]["content"].as_str().unwrap();
        assert_ne!(text, "bad", "the agent said it");
        Reply::text(format!("{} {text}", request.number()))
    });
    let server = Server::start(script).await;
    let mut client = Connection::to(&server).await;
    assert_eq!(client.ask(&request("x")).await.json()["content"][0]["text"], "1 x");
    assert_eq!(client.ask(&request("y")).await.json()["content"][0]["text"], "2 y");
    client.ask(&request("bad")).await.assert_error(500, "api_error", "the agent said it");
    assert_eq!(client.ask(&request("z")).await.json()["content"][0]["text"], "4 z");
    let error = server.finish().unwrap_err().to_string();
    assert!(
        error.contains("the script panicked at request 3") && error.contains("the agent said it"),
        "{error}"
    );
}

#[tokio::test]
async fn a_refused_request_is_recorded_and_uses_up_no_reply() {
    let server = Server::start(Reply::text("a")).await;
    let mut client = Connection::to(&server).await;
    client.ask(&request("")).await.assert_error(400, "invalid_request_error", "must have non-empty content");
    client.send_to("POST /v1/messages", HEADERS, b"{").await;
    client.response().await.assert_error(400, "invalid_request_error", "The request body is not valid JSON");
    client.send_to("POST /v1/models", HEADERS, b"{}").await;
    client.response().await.assert_error(404, "not_found_error", "/v1/models");
    client.send_to("GET /v1/messages", HEADERS, b"").await;
    client.response().await.assert_error(405, "invalid_request_error", "GET");
    assert_eq!(client.ask(&request("hi")).await.json()["id"], "msg_5");

    let refusals: Vec<_> =
        server.requests().iter().map(|request| request.refusal().map(str::to_owned)).collect();
    assert_eq!(refusals[0].as_deref(), Some("messages.0: user messages must have non-empty content"));
    assert_eq!(refusals.iter().flatten().count(), 4);
    assert_eq!(server.finish(), Ok(()));
}

#[tokio::test]
async fn the_headers_of_the_api_are_required() {
    let server = Server::start(vec![Reply::text("a"); 4]).await;
    let mut client = Connection::to(&server).await;
    let json = ("content-type", "application/json");
    let mut body = request("a");
    body["temperature"] = json!(1);
    let body = body.to_string();
    let refused: [(&[(&str, &str)], &str); 4] = [
        (&[json], "anthropic-version: header is required"),
        (&[json, ("anthropic-version", "2023-01-01")], "\"2023-01-01\" is not a valid version"),
        (&[("anthropic-version", "2026-10-21")], "content-type: must be `application/json`"),
        (HEADERS, "temperature: Extra inputs are not permitted"),
    ];
    for (headers, message) in refused {
        client.send_to("POST /v1/messages", headers, body.as_bytes()).await;
        client.response().await.assert_error(400, "invalid_request_error", message);
    }
    client.send_to("POST /v1/messages", &[json, ("Anthropic-Version", "2023-06-01")], body.as_bytes()).await;
    assert_eq!(client.response().await.status, 200, "the old version takes it");

    let mut body = request("a");
    body["fallbacks"] = json!("default");
    body["thinking"] = json!({"type": "adaptive", "display": "updates"});
    let betas = ["server-side-fallback-2026-07-01", "thinking-display-updates-2026-08-18"];
    let joined = betas.join(", ");
    let one = [HEADERS, &[("anthropic-beta", joined.as_str())]].concat();
    let two = [HEADERS, &[("anthropic-beta", betas[0]), ("anthropic-beta", betas[1])]].concat();
    let half = [HEADERS, &[("anthropic-beta", betas[1])]].concat();
    for (headers, status) in [(one, 200), (two, 200), (half, 400), (HEADERS.to_vec(), 400)] {
        client.send_to("POST /v1/messages", &headers, body.to_string().as_bytes()).await;
        assert_eq!(client.response().await.status, status, "{headers:?}");
    }
}

#[tokio::test]
async fn a_required_key_is_checked() {
    let server = Server::start(vec![Reply::text("a"); 3]).await.require_key("sk-1");
    let mut client = Connection::to(&server).await;
    let cases: [(&[(&str, &str)], u16); 6] = [
        (&[], 401),
        (&[("x-api-key", "sk-2")], 401),
        (&[("authorization", "Bearer sk-2")], 401),
        (&[("x-api-key", "sk-1")], 200),
        (&[("authorization", "Bearer sk-1")], 200),
        (&[("authorization", "Bearer sk-2"), ("x-api-key", "sk-1")], 200),
    ];
    for (credentials, status) in cases {
        client
            .send_to(
                "POST /v1/messages",
                &[HEADERS, credentials].concat(),
                request("a").to_string().as_bytes(),
            )
            .await;
        let response = client.response().await;
        assert_eq!(response.status, status, "{credentials:?}");
        if status == 401 {
            response.assert_error(401, "authentication_error", "x-api-key");
        }
    }
}

#[tokio::test]
async fn a_lenient_server_wants_json_only() {
    let server = Server::start([Reply::text("a"), Reply::text("b")]).await.lenient();
    let mut client = Connection::to(&server).await;
    client.send_to("POST /v1/messages", &[], b"{\"temperature\":1}").await;
    assert_eq!(client.response().await.status, 200);
    client.send_to("POST /v1/messages", &[], b"[]").await;
    assert_eq!(client.response().await.status, 200);
    client.send_to("POST /v1/messages", &[], b"nothing").await;
    client.response().await.assert_error(400, "invalid_request_error", "not valid JSON");
}

#[tokio::test]
async fn allowed_fields_pass() {
    let mut body = request("a");
    body["novelty"] = json!(1);
    body["tools"] = json!([{"name": "add", "input_schema": {"type": "object"}, "shiny": true}]);
    let server = Server::start(Reply::text("a")).await.allow_field("novelty").allow_field("tools.shiny");
    let mut client = Connection::to(&server).await;
    assert_eq!(client.ask(&body).await.status, 200);
    body["tools"][0]["dull"] = json!(true);
    client.ask(&body).await.assert_error(400, "invalid_request_error", "tools.0.custom.dull: Extra inputs");
}

#[tokio::test]
async fn a_turn_that_the_server_paused_may_come_back_as_the_last() {
    let content = json!([{"type": "text", "text": "Let me think"}, {"type": "text", "text": " "}, {"type": "tool_use", "id": "toolu_1", "name": "add", "input": []}]);
    let server = Server::start([
        Reply::message(json!({"content": content})).stop_reason("pause_turn"),
        Reply::json_text(r#"{"content":[{"type":"text","text":"Still"}],"stop_reason":"pause_turn"}"#),
        Reply::text("Done"),
        Reply::text("Compacted").stop_reason("compaction"),
        Reply::text("Done"),
    ])
    .await;
    let mut client = Connection::to(&server).await;
    let sent = json!([{"type": "text", "text": "Let me think", "cache_control": {"type": "ephemeral"}}, {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}]);
    let prefill = "does not support assistant message prefill";

    client.ask(&ending_in(sent.clone())).await.assert_error(400, "invalid_request_error", prefill);
    client.ask(&request("Go")).await;
    let mut other = sent.clone();
    other[0]["text"] = json!("Let me guess");
    client.ask(&ending_in(other)).await.assert_error(400, "invalid_request_error", prefill);
    let mut longer = sent.clone();
    longer.as_array_mut().unwrap().push(json!({"type": "text", "text": "More"}));
    client.ask(&ending_in(longer)).await.assert_error(400, "invalid_request_error", prefill);
    let mut resumed = ending_in(sent);
    assert_eq!(client.ask(&resumed).await.status, 200);
    resumed["messages"]
        .as_array_mut()
        .unwrap()
        .push(json!({"role": "assistant", "content": [{"type": "text", "text": "Still"}]}));
    assert_eq!(client.ask(&resumed).await.json()["content"][0]["text"], "Done");

    client.ask(&ending_in(json!("Done"))).await.assert_error(400, "invalid_request_error", prefill);
    client.ask(&request("Go")).await;
    assert_eq!(client.ask(&ending_in(json!([{"type": "text", "text": "Compacted"}]))).await.status, 200);
    assert_eq!(server.finish(), Ok(()));
}

#[tokio::test]
async fn a_dropped_server_closes_everything() {
    let server = Server::start(Reply::text("a").hold(&Gate::new())).await;
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    let (mut held, mut idle) = (Connection::to(&server).await, Connection::to(&server).await);
    held.send(&request("a")).await;
    server.wait_for_requests(1).await;
    server.wait_for_open_connections(2).await;
    drop(server);
    assert_eq!((held.rest().await, idle.rest().await), (Vec::new(), Vec::new()));
    assert!(TcpStream::connect(address).await.is_err());
}

#[test]
#[should_panic(expected = "`stop_reason` is of messages, and this reply is none")]
fn an_error_has_no_stop_reason() {
    let _reply = Reply::error(500, "api_error", "x").stop_reason("end_turn");
}

#[test]
#[should_panic(expected = "a message is a JSON object, not []")]
fn a_list_is_no_message() {
    let _reply = Reply::message(json!([]));
}
