//! The spans: their names, parents and fields, also where many runs share a thread.

#[path = "support/everything.rs"]
mod everything;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentloop::testing::{Reply, Server};
use agentloop::{Client, MessageRequest, Tool, ToolError, ToolRunner};
use everything::{Everything, Logged};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument as _, Metadata, Subscriber};

/// A span as it was made and filled.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<String, String>,
    closed: bool,
}

/// The text of an event, and the span that it was told in.
type Told = (String, Option<u64>);

/// Keeps every span of the crate, and which span each of its events was in.
#[derive(Clone, Default)]
struct Recorder {
    spans: Arc<Mutex<BTreeMap<u64, Seen>>>,
    events: Arc<Mutex<Vec<Told>>>,
    next: Arc<AtomicU64>,
    references: Arc<Mutex<BTreeMap<u64, usize>>>,
}

thread_local! {
    static STACK: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn current() -> Option<u64> {
    STACK.with_borrow(|stack| stack.last().copied())
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("agentloop") || metadata.target().starts_with("telemetry")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::SeqCst) + 1;
        let parent = if span.is_contextual() { current() } else { span.parent().map(Id::into_u64) };
        let mut seen = Seen { name: span.metadata().name(), parent, ..Seen::default() };
        span.record(&mut Fields(&mut seen.fields));
        self.spans.lock().unwrap().insert(id, seen);
        self.references.lock().unwrap().insert(id, 1);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut spans = self.spans.lock().unwrap();
        values.record(&mut Fields(&mut spans.get_mut(&id.into_u64()).unwrap().fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let message = fields.remove("message").unwrap_or_default();
        self.events.lock().unwrap().push((message, current()));
    }

    fn enter(&self, id: &Id) {
        STACK.with_borrow_mut(|stack| stack.push(id.into_u64()));
    }

    fn exit(&self, id: &Id) {
        STACK.with_borrow_mut(|stack| {
            let at = stack.iter().rposition(|entered| *entered == id.into_u64()).unwrap();
            stack.remove(at);
        });
    }

    fn clone_span(&self, id: &Id) -> Id {
        *self.references.lock().unwrap().get_mut(&id.into_u64()).unwrap() += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut references = self.references.lock().unwrap();
        let left = references.get_mut(&id.into_u64()).unwrap();
        *left -= 1;
        if *left == 0 {
            self.spans.lock().unwrap().get_mut(&id.into_u64()).unwrap().closed = true;
        }
        *left == 0
    }
}

impl Recorder {
    fn install(&self) -> (tracing::Dispatch, tracing::subscriber::DefaultGuard) {
        // While there is but one dispatcher, other tests' threads decide for it and switch spans off.
        (tracing::Dispatch::new(self.clone()), tracing::subscriber::set_default(self.clone()))
    }

    fn spans(&self) -> BTreeMap<u64, Seen> {
        self.spans.lock().unwrap().clone()
    }

    /// The spans as a tree, a line each: the name and the chosen fields, indented by depth.
    fn tree(&self, fields: &[&str]) -> Vec<String> {
        let spans = self.spans();
        let mut lines = Vec::new();
        push(&mut lines, &spans, None, 0, fields);
        lines
    }
}

fn push(
    lines: &mut Vec<String>,
    spans: &BTreeMap<u64, Seen>,
    parent: Option<u64>,
    depth: usize,
    fields: &[&str],
) {
    for (id, span) in spans.iter().filter(|(_, span)| span.parent == parent) {
        let mut line = format!("{}{}", "  ".repeat(depth), span.name);
        for field in fields.iter().filter_map(|name| span.fields.get(*name)) {
            line.push(' ');
            line.push_str(field);
        }
        lines.push(line);
        push(lines, spans, Some(*id), depth + 1, fields);
    }
}

fn tools() -> ToolRunner {
    let object = json!({"type": "object"});
    ToolRunner::new()
        .tool(Tool::new("fine", "", object.clone()).handler(|(): ()| async {
            tracing::info!(target: "telemetry", "inside a tool");
            "ok"
        }))
        .tool(
            Tool::new("wrong", "", object.clone())
                .handler(|(): ()| async { Err::<(), _>(ToolError::new("no")) }),
        )
        .tool(Tool::new("panics", "", object.clone()).handler(|(): ()| async {
            // Without the hook that prints it.
            std::panic::resume_unwind(Box::new("a panic"));
            #[expect(unreachable_code, reason = "it says what the handler returns")]
            ""
        }))
        .tool(
            Tool::new("slow", "", object)
                .handler(|(): ()| async { std::future::pending::<()>().await })
                .timeout(Duration::from_millis(20)),
        )
}

fn client(server: &Server) -> Client {
    Client::builder().no_proxy().base_url(server.url()).api_key("k").build().unwrap()
}

fn script() -> [Reply; 4] {
    [
        Reply::error(529, "overloaded_error", "busy")
            .header("retry-after-ms", "1")
            .header("request-id", "req_a"),
        Reply::tool_use([
            ("c1", "fine", json!({})),
            ("c2", "wrong", json!({})),
            ("c3", "panics", json!({})),
            ("c4", "slow", json!({})),
        ])
        .usage(10, 5),
        Reply::tool_use([("c5", "fine", json!({}))]).usage(20, 6),
        Reply::text("done").usage(30, 7),
    ]
}

const NAMES: [&str; 6] = [
    "agentloop.turn",
    "gen_ai.tool.name",
    "gen_ai.request.model",
    "http.response.status_code",
    "error.type",
    "gen_ai.response.finish_reasons",
];

fn expected() -> Vec<&'static str> {
    vec![
        "invoke_agent",
        "  turn 1",
        "    request m [\"tool_use\"]",
        "      attempt 529 overloaded_error",
        "      attempt 200",
        "    execute_tool fine",
        "    execute_tool wrong tool_error",
        "    execute_tool panics panic",
        "    execute_tool slow timeout",
        "  turn 2",
        "    request m [\"tool_use\"]",
        "      attempt 200",
        "    execute_tool fine",
        "  turn 3",
        "    request m [\"end_turn\"]",
        "      attempt 200",
    ]
}

#[tokio::test]
async fn a_run_is_a_tree_of_spans() {
    for streamed in [false, true] {
        let server = Server::start(script()).await;
        let recorder = Recorder::default();
        let guards = recorder.install();
        let runner = if streamed { tools().on_event(|_| {}) } else { tools() };
        runner.run(&client(&server), MessageRequest::new("m", 100).user("SENTINEL")).await.unwrap();
        drop(guards);
        assert_eq!(recorder.tree(&NAMES), expected());

        let spans = recorder.spans();
        assert!(spans.values().all(|span| span.closed), "{spans:?}");
        let named = |name: &str| spans.values().filter(|span| span.name == name).collect::<Vec<_>>();
        let run = &named("invoke_agent")[0].fields;
        for (field, value) in [
            ("gen_ai.operation.name", "invoke_agent"),
            ("gen_ai.provider.name", "anthropic"),
            ("gen_ai.usage.input_tokens", "60"),
            ("gen_ai.usage.output_tokens", "18"),
            ("agentloop.iterations", "3"),
        ] {
            assert_eq!(run.get(field).map(String::as_str), Some(value), "{field}");
        }
        assert!(!run.contains_key("error.type"));
        let address = server.url().trim_start_matches("http://").to_owned();
        let (host, port) = address.split_once(':').unwrap();
        let request = &named("request")[0].fields;
        for (field, value) in [
            ("otel.name", "chat m"),
            ("otel.kind", "client"),
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "anthropic"),
            ("gen_ai.usage.input_tokens", "10"),
            ("gen_ai.usage.output_tokens", "5"),
            ("server.address", host),
            ("server.port", port),
        ] {
            assert_eq!(request.get(field).map(String::as_str), Some(value), "{field}");
        }
        for field in ["gen_ai.response.id", "gen_ai.response.model", "request_id"] {
            assert!(request.get(field).is_some_and(|value| !value.is_empty()), "{field}: {request:?}");
        }
        let attempts = named("attempt");
        assert_eq!(attempts[0].fields.get("request_id").map(String::as_str), Some("req_a"));
        assert_eq!(attempts[0].fields.get("http.request.resend_count"), None);
        assert_eq!(attempts[1].fields.get("http.request.resend_count").map(String::as_str), Some("1"));
        assert_eq!(attempts[0].fields.get("url.path").map(String::as_str), Some("/v1/messages"));
        let tool = &named("execute_tool")[0].fields;
        for (field, value) in [
            ("otel.name", "execute_tool fine"),
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.call.id", "c1"),
            ("gen_ai.tool.type", "function"),
        ] {
            assert_eq!(tool.get(field).map(String::as_str), Some(value), "{field}");
        }
        // What a tool tells is told inside its span, and what a retry tells inside its request.
        let events = recorder.events.lock().unwrap();
        let place = |text: &str| {
            let (_, id) = events.iter().find(|(message, _)| message.contains(text)).unwrap();
            spans[&id.unwrap()].name
        };
        assert_eq!((place("inside a tool"), place("trying again")), ("execute_tool", "request"));
        assert!(!format!("{spans:?} {events:?}").contains("SENTINEL"));
    }
}

/// Many runs on one thread, each with a parent of its own: no span gets into another run.
#[tokio::test]
async fn runs_at_the_same_time_keep_their_spans_apart() {
    const RUNS: u64 = 20;
    let recorder = Recorder::default();
    let guards = recorder.install();
    let mut runs = tokio::task::JoinSet::new();
    for run in 0..RUNS {
        let outer = tracing::info_span!(target: "telemetry", "outer", run);
        runs.spawn(
            async move {
                let server = Server::start(script()).await;
                let runner = tools().max_concurrency(if run % 2 == 0 { 1 } else { 4 });
                let runner = if run % 3 == 0 { runner.on_event(|_| {}) } else { runner };
                runner.run(&client(&server), MessageRequest::new("m", 100).user("Hi")).await.unwrap();
            }
            .instrument(outer),
        );
    }
    runs.join_all().await;
    drop(guards);
    let tree = recorder.tree(&NAMES);
    let wanted: Vec<String> = std::iter::once("outer".to_owned())
        .chain(expected().iter().map(|line| format!("  {line}")))
        .collect();
    let trees: Vec<_> = tree.chunks(wanted.len()).collect();
    assert_eq!(trees.len() as u64, RUNS);
    for tree in trees {
        assert_eq!(tree, wanted);
    }
}

#[tokio::test]
async fn a_stream_fills_its_span_when_it_ends() {
    let server =
        Server::start([Reply::text("whole").usage(3, 4), Reply::text("broken").cut_after(400)]).await;
    let recorder = Recorder::default();
    let guards = recorder.install();
    let client = client(&server);
    let request = MessageRequest::new("m", 100).user("Hi");
    let mut stream = client.stream(&request).await.unwrap();
    assert!(!recorder.spans().values().any(|span| span.fields.contains_key("gen_ai.response.id")));
    while stream.next().await.is_some() {}
    drop(stream);
    let mut stream = client.stream(&request.clone().max_retries(0)).await.unwrap();
    while stream.next().await.is_some() {}
    drop(stream);
    drop(guards);
    assert_eq!(
        recorder.tree(&NAMES),
        ["request m [\"end_turn\"]", "  attempt 200", "request m transport", "  attempt 200",]
    );
    assert!(recorder.spans().values().all(|span| span.closed));
}

#[tokio::test]
async fn a_run_that_fails_names_its_error() {
    let server = Server::start([Reply::error(400, "invalid_request_error", "SENTINEL")]).await;
    let recorder = Recorder::default();
    let guards = recorder.install();
    let request = MessageRequest::new("m", 100).user("Hi");
    let error = tools().run(&client(&server), request).await.unwrap_err();
    drop(guards);
    assert_eq!(error.error_type(), "invalid_request_error");
    assert_eq!(
        recorder.tree(&NAMES),
        [
            "invoke_agent invalid_request_error",
            "  turn 1",
            "    request m invalid_request_error",
            "      attempt 400 invalid_request_error",
        ]
    );
}

#[tokio::test]
async fn a_call_that_is_stopped_is_told_as_cancelled() {
    for concurrency in [1, 2] {
        let server = Server::start([Reply::tool_use([("c1", "hangs", json!({}))])]).await;
        let recorder = Recorder::default();
        let guards = recorder.install();
        let hangs = Tool::new("hangs", "", json!({"type": "object"}));
        let hangs = hangs.handler(|(): ()| async { std::future::pending::<()>().await });
        let runner =
            ToolRunner::new().tool(hangs).max_concurrency(concurrency).timeout(Duration::from_millis(100));
        let error = runner.run(&client(&server), MessageRequest::new("m", 100).user("Hi")).await.unwrap_err();
        drop(guards);
        assert_eq!(error.error_type(), "timeout");
        assert_eq!(
            recorder.tree(&NAMES),
            [
                "invoke_agent timeout",
                "  turn 1",
                "    request m [\"tool_use\"]",
                "      attempt 200",
                "    execute_tool hangs cancelled",
            ]
        );
    }
}

/// What users, models and tools say is in no trace, of any crate, at any level.
#[tokio::test]
async fn no_trace_has_content() {
    let log = Everything::default();
    let guards = log.install();
    let logged = Logged::install();
    let object = json!({"type": "object"});
    let runner = ToolRunner::new()
        .tool(Tool::new("fine", "SENTINEL", object.clone()).handler(|(): ()| async { "SENTINEL" }))
        .tool(
            Tool::new("wrong", "", object.clone())
                .handler(|(): ()| async { Err::<(), _>("SENTINEL".into()) }),
        )
        .tool(Tool::new("panics", "", object.clone()).handler(|(): ()| async {
            std::panic::resume_unwind(Box::new("SENTINEL"));
            #[expect(unreachable_code, reason = "it says what the handler returns")]
            ""
        }))
        .tool(Tool::new("typed", "", object).handler(|count: u32| async move { count.to_string() }));
    let input = || json!({"SENTINEL": "SENTINEL"});
    for concurrency in [1, 4] {
        for streamed in [false, true] {
            let server = Server::start([
                Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1"),
                Reply::tool_use([
                    ("c1", "fine", input()),
                    ("c2", "wrong", input()),
                    ("c3", "panics", input()),
                    ("c4", "typed", input()),
                    ("c5", "unknown", input()),
                ]),
                Reply::message(json!({
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                    "content": [{"type": "text", "text": " "}, {"type": "text", "text": "SENTINEL"}],
                    "stop_reason": "end_turn", "stop_sequence": null,
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                })),
                Reply::text("SENTINEL").cut_after(150),
            ])
            .await;
            let runner = runner.clone().max_concurrency(concurrency);
            let runner = if streamed { runner.on_event(|_| {}) } else { runner };
            let request = MessageRequest::new("m", 100).system("SENTINEL").user("SENTINEL");
            let client = client(&server);
            let run = runner.run(&client, request).await.unwrap();
            let again = run.into_request().user("SENTINEL").max_retries(0);
            let error = runner.run(&client, again).await.unwrap_err();
            assert!(!format!("{error} {} {error:?} {error:#?}", error.chain()).contains("SENTINEL"));
        }
    }
    drop(guards);
    let log = log.text();
    let at = log.find("SENTINEL").map(|at| log.get(at.saturating_sub(200)..at + 8));
    assert_eq!(at, None);
    let logged = logged.text();
    assert!(!logged.contains("SENTINEL") && logged.contains("reqwest"), "{logged}");
    assert!(log.contains("the tool panicked") && log.contains("would refuse its own reply"), "{log}");
}
