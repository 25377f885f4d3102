//! What a server says and asks of its own accord.
#![expect(deprecated, reason = "servers still ask for replies of a model")]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentloop::mcp::rmcp::ClientHandler;
use agentloop::mcp::rmcp::model::{
    ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorData, ProtocolVersion, SamplingMessage,
};
use agentloop::mcp::rmcp::service::{ClientLifecycleMode, RequestContext, RoleClient};
use agentloop::mcp::{Connector, Server, Servers};
use agentloop::run_loop::{RunLoop, Step};
use agentloop::testing::{Reply, Server as Api};
use agentloop::{Message, RunEvent, RunStream, ToolRunner};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::fake::{Answer, Fake, connected, connected_by, list_changed, page, text};
use crate::{guarded, run_of, texts, until};

/// Lists one tool, and answers no call.
fn silent(method: &str, _: &Value) -> Answer {
    if method == "tools/list" { page(&["read"]) } else { Answer::Silence }
}

/// The next event that is none of the API.
async fn next(events: &mut RunStream) -> RunEvent {
    loop {
        match guarded(events.next()).await.expect("the run goes on") {
            RunEvent::Stream(_) | RunEvent::TurnDone { .. } => {}
            event => return event,
        }
    }
}

/// The progress that the next event tells.
async fn progress(events: &mut RunStream) -> (String, f64, Option<f64>, Option<String>) {
    match next(events).await {
        RunEvent::ToolProgress { call, progress, .. } => {
            (call.id().to_owned(), progress.progress, progress.total, progress.message)
        }
        event => panic!("no progress: {event:?}"),
    }
}

fn told(token: &Value, progress: f64, more: &Value) -> Value {
    let mut params = json!({"progressToken": token, "progress": progress});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
}

/// The tokens of the calls that came.
async fn tokens(fake: &Fake, count: usize) -> Vec<Value> {
    guarded(fake.seen.until("tools/call", count)).await;
    fake.seen.of("tools/call").iter().map(|call| call["_meta"]["progressToken"].clone()).collect()
}

#[tokio::test]
async fn progress_of_each_call_is_an_event_of_its_own() {
    let (server, fake) = connected("files", silent).await;
    let runner = ToolRunner::new().mcp(server.unwrap()).max_concurrency(2);
    let api = Api::start([
        Reply::tool_use([("c1", "read", json!({})), ("c2", "read", json!({}))]),
        Reply::text(""),
    ]);
    let api = api.await;
    let mut events = runner.stream(&api.client(), "go");
    for _ in 0..2 {
        assert!(matches!(next(&mut events).await, RunEvent::ToolStarted { .. }));
    }
    // The calls go out when the run is asked for more.
    let seen = async { (progress(&mut events).await, events) };
    let tell = async {
        let tokens = tokens(&fake, 2).await;
        fake.say(told(&json!("of nobody"), 0.5, &json!({}))).await;
        fake.say(told(&tokens[1], 0.25, &json!({"total": 1.0, "message": "half\u{202e} a \u{200b}file"})))
            .await;
        tokens
    };
    let ((first, mut events), tokens) = tokio::join!(seen, tell);
    assert_eq!(first, ("c2".to_owned(), 0.25, Some(1.0), Some("half a file".to_owned())));

    for step in 1..=3 {
        fake.say(told(&tokens[0], f64::from(step), &json!({"message": "x".repeat(5000)}))).await;
        let (id, progress, total, message) = progress(&mut events).await;
        assert_eq!((&*id, progress, total), ("c1", f64::from(step), None));
        assert_eq!(message.unwrap().len(), 1024);
    }
    // The last word comes before the end, and none behind it.
    let id = |at: usize| 2 + at;
    fake.say(told(&tokens[1], 1.0, &json!({}))).await;
    // The number of an answer may be a string.
    let error = json!({"code": -32000, "message": "it broke"});
    fake.say(json!({"jsonrpc": "2.0", "id": id(1).to_string(), "error": error})).await;
    fake.say(told(&tokens[1], 2.0, &json!({}))).await;
    assert_eq!(progress(&mut events).await.1, 1.0);
    assert!(matches!(next(&mut events).await, RunEvent::ToolFinished { call, .. } if call.id() == "c2"));
    fake.say(json!({"jsonrpc": "2.0", "id": id(0), "result": {"content": []}})).await;
    assert!(matches!(next(&mut events).await, RunEvent::ToolFinished { call, .. } if call.id() == "c1"));
    assert!(matches!(next(&mut events).await, RunEvent::Finished { .. }));
    guarded(events.finish()).await.unwrap();
}

#[tokio::test]
async fn a_change_of_the_list_is_told_once_and_taken_on_request() {
    let names = Arc::new(Mutex::new(vec!["old"]));
    let listed = Arc::clone(&names);
    let answer = move |method: &str, _: &Value| match method {
        "tools/list" => page(&listed.lock().unwrap()),
        _ => Answer::Behind(vec![list_changed(), list_changed()], json!({"content": []})),
    };
    let (server, fake) = connected("files", answer).await;
    let server = server.unwrap();
    assert!(!server.has_changed());
    let runner = ToolRunner::new().mcp(server.clone());
    let script = || {
        let call = |id: &str| Reply::tool_use([(id, "old", json!({}))]);
        Api::start([call("c1"), call("c2"), Reply::text("done")])
    };
    let changes = |events: Vec<String>| events.iter().filter(|event| event.contains("ToolsChanged")).count();
    for expected in [2, 3] {
        // One for each of the two turns, and one more for what came in the run before.
        let api = script().await;
        let mut events = runner.stream(&api.client(), "go");
        let mut seen = Vec::new();
        while let Some(event) = guarded(events.next()).await {
            if let RunEvent::ToolsChanged { server, .. } = &event {
                assert_eq!(server, "files");
            }
            seen.push(format!("{event:?}"));
        }
        guarded(events.finish()).await.unwrap();
        assert_eq!(changes(seen), expected);
        assert!(api.requests().iter().all(|request| request.json()["tools"][0]["name"] == "old"));
    }
    assert!(server.has_changed() && format!("{server:?}").contains("has_changed: true"));

    *names.lock().unwrap() = vec!["new"];
    let fresh = guarded(server.refresh()).await.unwrap();
    assert!(!fresh.has_changed() && server.has_changed());
    assert!(fresh.tools_json().contains("new") && server.tools_json().contains("old"));
    let (_, results) = run_of(&ToolRunner::new().mcp(fresh.clone()), vec![("c1", "new", json!({}))]).await;
    assert!(results[0]["is_error"].is_null());
    // Both share the connection.
    fresh.shutdown().await;
    assert!(!server.is_connected() && !*fake.is_open.borrow());
}

/// The protocol without `initialize`: questions take the place of results there, and changes have to
/// be asked for.
#[tokio::test]
async fn a_server_that_is_discovered_is_one_like_the_others() {
    let person = Person::default();
    let discover = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let answer = |method: &str, params: &Value| match (method, params["requestState"].as_str()) {
        ("tools/list", _) => page(&["book"]),
        (_, None) => asks(&json!({"q1": question("Which day?")}), "first"),
        _ => text("booked"),
    };
    let connector = Connector::new("booking").lifecycle(discover).handler(person.clone());
    let (server, fake) = connected_by(connector, answer).await;
    let server = server.unwrap();
    assert!(fake.seen.of("initialize").is_empty());
    let (_, results) = run_of(&ToolRunner::new().mcp(server.clone()), vec![("c1", "book", json!({}))]).await;
    assert_eq!(texts(&results), ["booked"]);
    assert_eq!(person.0.questions.load(Relaxed), 1);

    // It listens before it reads the list, so that no change falls between the two.
    let all = fake.seen.all();
    let place = |method: &str| all.iter().position(|message| message["method"] == method);
    assert!(place("subscriptions/listen").is_some() && place("subscriptions/listen") < place("tools/list"));
    fake.say(list_changed()).await;
    until(|| server.has_changed()).await;
    assert!(server.is_connected());
}

/// Answers questions, and counts them.
#[derive(Default)]
struct Asked {
    questions: AtomicUsize,
    waits: bool,
    /// What goes on beside a question.
    asking: tokio::sync::Mutex<JoinSet<()>>,
    cancelled: Arc<Notify>,
}

/// The same handler in the test and in the connection.
#[derive(Clone, Default)]
pub(crate) struct Person(Arc<Asked>);

impl Person {
    /// One that never answers.
    pub(crate) fn waiting() -> Self {
        Self(Arc::new(Asked { waits: true, ..Asked::default() }))
    }
}

impl ClientHandler for Person {
    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.0.questions.fetch_add(1, Relaxed);
        if self.0.waits {
            let (cancelled, told) = (context.ct.clone(), Arc::clone(&self.0.cancelled));
            let mut asking = self.0.asking.lock().await;
            asking.spawn(async move {
                cancelled.cancelled().await;
                told.notify_one();
            });
            drop(asking);
            std::future::pending::<()>().await;
        }
        match question {
            ElicitRequestParams::FormElicitationParams { message, .. } if message == "Panic!" => {
                panic!("it does")
            }
            ElicitRequestParams::FormElicitationParams { message, .. } if message == "Which day?" => {
                Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"day": "Monday"})))
            }
            _ => Err(ErrorData::invalid_request("nobody knows", None)),
        }
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let message = SamplingMessage::assistant_text("a reply");
        Ok(CreateMessageResult::new(message, "some-model".to_owned()))
    }

    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities.elicitation = Some(Default::default());
        info
    }
}

fn question(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"day": {"type": "string"}}});
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}})
}

/// The same as a request of the server's own.
pub(crate) fn asking(id: Value, message: &str) -> Value {
    let mut asking = question(message);
    asking.as_object_mut().unwrap().extend([("jsonrpc".to_owned(), json!("2.0")), ("id".to_owned(), id)]);
    asking
}

fn asks(questions: &Value, state: &str) -> Answer {
    Answer::Result(json!({"resultType": "input_required", "inputRequests": questions, "requestState": state}))
}

async fn with(person: &Person, answer: impl Fn(&str, &Value) -> Answer + Send + 'static) -> (Server, Fake) {
    let (server, fake) = connected_by(Connector::new("booking").handler(person.clone()), answer).await;
    (server.unwrap(), fake)
}

#[tokio::test]
async fn what_a_call_asks_for_is_answered_by_the_handler() {
    let person = Person::default();
    let answer = |method: &str, params: &Value| match (method, params["requestState"].as_str()) {
        ("tools/list", _) => page(&["book"]),
        (_, None) => asks(&json!({"q1": question("Which day?")}), "first"),
        // It wants to be asked again.
        (_, Some("first")) => asks(&json!({}), "second"),
        _ => text("booked"),
    };
    let (server, fake) = with(&person, answer).await;
    let (_, results) = run_of(&ToolRunner::new().mcp(server), vec![("c1", "book", json!({"n": 2}))]).await;
    assert_eq!(texts(&results), ["booked"]);
    let calls = fake.seen.of("tools/call");
    assert!(calls.iter().all(|call| call["name"] == "book" && call["arguments"] == json!({"n": 2})));
    let sent: Vec<_> = calls.iter().map(|call| (&call["inputResponses"], &call["requestState"])).collect();
    let answer = json!({"q1": {"action": "accept", "content": {"day": "Monday"}}});
    assert_eq!(
        sent,
        [(&Value::Null, &Value::Null), (&answer, &json!("first")), (&Value::Null, &json!("second"))]
    );
    assert_eq!(person.0.questions.load(Relaxed), 1);
}

#[tokio::test]
async fn what_nobody_answers_is_an_error_result() {
    type Case = (fn(&str, &Value) -> Answer, &'static str, usize);
    let cases: [Case; 5] = [
        (
            |_, _| asks(&json!({"q1": question("Panic!")}), "s"),
            "which was refused: the handler failed unexpectedly (code -32603)",
            1,
        ),
        (
            |_, _| {
                let questions = (0..101).map(|at| (at.to_string(), question("Which day?")));
                asks(&Value::Object(questions.collect()), "s")
            },
            "asked for 101 things at once",
            1,
        ),
        (
            |_, _| asks(&json!({"q1": question("Which year?")}), "s"),
            "which was refused: nobody knows (code -32600)",
            1,
        ),
        (|_, _| asks(&json!({"q1": question("Which day?")}), "s"), "asked for more input 10 times", 11),
        (
            |_, _| asks(&json!({"q1": {"method": "new/kind", "params": {}}}), "s"),
            "answered with `input_required`, which is not a finished result",
            1,
        ),
    ];
    for (answer, word, calls) in cases {
        let person = Person::default();
        let answer = move |method: &str, params: &Value| match method {
            "tools/list" => page(&["book"]),
            _ => answer(method, params),
        };
        let (server, fake) = with(&person, answer).await;
        let (_, results) = run_of(&ToolRunner::new().mcp(server), vec![("c1", "book", json!({}))]).await;
        assert_eq!(results[0]["is_error"], true);
        assert!(texts(&results)[0].contains(word), "{word}: {results:?}");
        assert_eq!(fake.seen.of("tools/call").len(), calls, "{word}");
    }
}

/// `rmcp` gives the handler some seconds to answer a server that is gone.
#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_under_a_question_is_closed_at_once() {
    let person = Person::waiting();
    let (server, mut fake) = with(&person, silent).await;
    fake.say(asking(json!("ask-1"), "Which day?")).await;
    until(|| person.0.questions.load(Relaxed) > 0).await;
    let start = tokio::time::Instant::now();
    fake.stop();
    until(|| !server.is_connected()).await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_question_ends_with_its_connection() {
    let person = Person::waiting();
    let answer = |method: &str, _: &Value| match method {
        "tools/list" => page(&["book"]),
        _ => asks(&json!({"q1": question("Which day?")}), "s"),
    };
    let (server, mut fake) = with(&person, answer).await;
    let runner = ToolRunner::new().mcp(server);
    let close = async {
        guarded(fake.seen.until("tools/call", 1)).await;
        until(|| person.0.questions.load(Relaxed) > 0).await;
        fake.stop();
    };
    let ((_, results), ()) = tokio::join!(run_of(&runner, vec![("c1", "book", json!({}))]), close);
    assert_eq!(
        texts(&results),
        ["the server `booking` is not connected any more: whether the call ran is unknown"]
    );
    guarded(person.0.cancelled.notified()).await;
}

#[tokio::test]
async fn a_question_ends_with_its_call() {
    let person = Person::waiting();
    let answer = |method: &str, _: &Value| match method {
        "tools/list" => page(&["book"]),
        _ => asks(&json!({"q1": question("Which day?")}), "s"),
    };
    let (server, _fake) = with(&person, answer).await;
    let runner = ToolRunner::new().mcp(server).tool_timeout(Duration::from_millis(100));
    let (_, results) = run_of(&runner, vec![("c1", "book", json!({}))]).await;
    assert!(texts(&results)[0].starts_with("tool timed out"), "{results:?}");
    guarded(person.0.cancelled.notified()).await;
}

/// Before `input_required` there were requests of the server's own.
#[tokio::test]
async fn requests_of_a_server_are_refused_unless_a_handler_answers_them() {
    let sampling = json!({"jsonrpc": "2.0", "id": "ask-2", "method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 9}});
    let elicitation = asking(json!("ask-1"), "Which day?");

    let answers = async |server: Server, fake: &Fake| {
        let (api, runner) = (
            Api::start([Reply::tool_use([("c1", "read", json!({}))]), Reply::text("done")]).await,
            ToolRunner::new().mcp(server),
        );
        let client = api.client();
        let run = runner.run(&client, "go");
        let ask = async {
            tokens(fake, 1).await;
            fake.say(elicitation.clone()).await;
            fake.say(sampling.clone()).await;
            let is_there = |id: &&str| fake.seen.answers().iter().any(|answer| answer["id"] == **id);
            until(|| ["ask-1", "ask-2"].iter().all(is_there)).await;
            fake.say(json!({"jsonrpc": "2.0", "id": 2, "result": {"content": []}})).await;
        };
        let (run, ()) = tokio::join!(guarded(run), ask);
        assert_eq!(run.unwrap().text(), "done");
        let of = |id: &str| fake.seen.answers().into_iter().find(|answer| answer["id"] == id).unwrap();
        (of("ask-1"), of("ask-2"))
    };
    let (server, fake) = connected("files", silent).await;
    let (elicited, sampled) = answers(server.unwrap(), &fake).await;
    assert_eq!(elicited["result"]["action"], "decline");
    assert_eq!(sampled["error"]["code"], -32601);

    let (server, fake) = with(&Person::default(), silent).await;
    // More than may be open at once.
    for id in 0..70 {
        fake.say(asking(json!(id), "Panic!")).await;
        until(|| fake.seen.answers().len() > id).await;
    }
    assert_eq!(fake.seen.answers().remove(0)["error"]["code"], -32603);
    let (elicited, sampled) = answers(server, &fake).await;
    assert_eq!(elicited["result"]["content"]["day"], "Monday");
    assert_eq!(sampled["result"]["content"]["text"], "a reply");
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_server_that_hangs_ends_in_five_minutes_unless_something_else_is_said() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (of_servers, of_runner, expected) in [
        (None, None, 300_000),
        (None, Some(minutes(10)), 600_000),
        (Some(minutes(1)), None, 60_000),
        (Some(minutes(20)), Some(minutes(10)), 1_200_000),
    ] {
        let (server, _fake) = connected("files", silent).await;
        let servers = Servers::new([server.unwrap()]);
        let runner = ToolRunner::new().mcp_servers(match of_servers {
            Some(limit) => servers.timeout(limit),
            None => servers,
        });
        let runner = match of_runner {
            Some(limit) => runner.tool_timeout(limit),
            None => runner,
        };
        let mut run_loop: RunLoop = runner.run_loop("go");
        let reply = r#"{"role":"assistant","stop_reason":"tool_use","content":[{"type":"tool_use","id":"c1","name":"read","input":{}}]}"#;
        let Step::Send(step) = run_loop.step() else { panic!("it sends first") };
        step.complete(Message::from_json(reply).unwrap()).unwrap();
        let Step::Call(mut step) = run_loop.step() else { panic!("it calls then") };
        runner.answer(&mut step).await.unwrap();
        step.finish();
        let result = run_loop.conversation().to_json();
        assert!(result.contains(&format!("tool timed out after {expected} ms")), "{expected}: {result}");
    }
}

#[tokio::test]
async fn what_a_server_says_about_its_tools_stands_on_the_tools() {
    let list = |_: &str, _: &Value| {
        let tool = |name: &str, hints: Value| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": hints});
        let tools = [
            tool("read", json!({"readOnlyHint": true})),
            tool("write", json!({"destructiveHint": false, "idempotentHint": true})),
            tool("other", json!({})),
        ];
        Answer::Result(json!({"tools": tools}))
    };
    let (server, _fake) = connected("files", list).await;
    let (tools, ..) = Servers::new([server.unwrap()]).into_tools();
    let shown: Vec<_> = tools
        .iter()
        .map(|tool| tool.annotations())
        .map(|hints| (hints.is_read_only(), hints.is_destructive(), hints.is_idempotent()))
        .collect();
    assert_eq!(shown, [(true, false, true), (false, false, true), (false, true, false)]);
}
