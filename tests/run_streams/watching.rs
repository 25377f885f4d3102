//! Functions and streams that watch a run: what they can't change, and what they don't show.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentloop::testing::{Gate, Reply, Server};
use agentloop::tool::ToolProgress;
use agentloop::{MessageRequest, RunEvent, Tool, ToolContext, ToolError, ToolRunner};
use serde_json::{Value, json};

use crate::replies::{Break, Clients, call, events, text};
use crate::support::{Log, add, object};
use crate::told::Way;

/// What a function for events does besides.
#[derive(Clone, Copy, Debug)]
enum Does {
    Nothing,
    Panic,
    /// Panics with something that panics again when it is dropped.
    PanicTwice,
}

struct BadPayload;

impl Drop for BadPayload {
    fn drop(&mut self) {
        // The message of a panic would only be noise.
        std::panic::resume_unwind(Box::new("again"));
    }
}

#[tokio::test]
async fn a_callback_that_panics_changes_nothing() {
    let clients = Clients::new();
    let mut cases = 0;
    for concurrency in [1, 3] {
        for streamed in [false, true] {
            let mut quiet = None;
            for does in [Does::Nothing, Does::Panic, Does::PanicTwice] {
                let calls = [1, 2, 3].map(|n| call(&format!("t{n}"), "add", &["{\"a\":1,", "\"b\":2}"]));
                let server = Server::start([
                    Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1"),
                    Reply::events(events("msg_1", "tool_use", &calls)),
                    Break::Rst.after(&events("msg_2", "end_turn", &[text(&["a", "b"])]), 3, &Gate::new()),
                    Reply::events(events("msg_3", "end_turn", &[text(&["a", "b"])])),
                ])
                .await;
                let client = clients.builder(&server).max_retries(1).build().unwrap();
                let (log, count) = (Log::default(), Arc::new(AtomicUsize::new(0)));
                let counter = count.clone();
                let runner = ToolRunner::new().tool(add(&log)).max_concurrency(concurrency);
                let runner = runner.restart_streams(true).on_event(move |_| {
                    counter.fetch_add(1, Ordering::SeqCst);
                    match does {
                        Does::Nothing => {}
                        Does::Panic => std::panic::resume_unwind(Box::new("SENTINEL")),
                        Does::PanicTwice => std::panic::resume_unwind(Box::new(BadPayload)),
                    }
                });
                // Beside a stream the function is told as well.
                let way = if streamed { Way::Stream } else { Way::Plain };
                let (mut told, run) = way.run(&runner, &client, "go").await;
                let run = run.unwrap();
                // Tasks may end in any order.
                told.sort_by_key(Value::to_string);
                let bodies: Vec<_> =
                    server.requests().iter().map(|request| request.body().to_vec()).collect();
                let seen = (
                    run.conversation().to_json(),
                    run.request_ids().to_vec(),
                    count.load(Ordering::SeqCst),
                    (told, bodies, log.count("add")),
                );
                assert!(seen.2 > 25 && seen.3.2 == 3, "{}", seen.2);
                assert!(*quiet.get_or_insert_with(|| seen.clone()) == seen, "{does:?}: {seen:?}");
                server.finish().unwrap();
                cases += 1;
            }
        }
    }
    println!("{cases} cases");
    assert_eq!(cases, 2 * 2 * 3);
}

/// The words of the run, each of which is nobody's business.
const SECRETS: [&str; 9] = [
    "SECRET_PROMPT",
    "SECRET_SYSTEM",
    "SECRET_REPLY",
    "SECRET_INPUT",
    "SECRET_RESULT",
    "SECRET_STEP",
    "SECRET_ERROR",
    "SECRET_BROKEN",
    "SECRET_LOST",
];

#[tokio::test]
async fn debug_shows_nothing_of_what_was_said() {
    let clients = Clients::new();
    let runner = ToolRunner::new()
        .tools([
            Tool::new("step", "", object()).handler_with(|_: Value, cx: ToolContext| async move {
                cx.report(ToolProgress::new(1.0).message("SECRET_STEP"));
                "SECRET_RESULT"
            }),
            Tool::new("fails", "", object())
                .handler(|(): ()| async { Err::<(), _>(ToolError::new("SECRET_ERROR")) }),
        ])
        .restart_streams(true)
        .max_iterations(2)
        .on_event(|_| {});
    let input = "{\"text\":\"SECRET_INPUT\"}";
    let turn = |id: &str| {
        let blocks = [
            text(&["SECRET_REPLY ", "SECRET_REPLY"]),
            call(&format!("{id}1"), "step", &["{\"text\":\"SEC", "RET_INPUT\"}"]),
            call(&format!("{id}2"), "step", &[input]),
            call(&format!("{id}3"), "step", &["{\"SECRET_BROKEN"]),
            call(&format!("{id}4"), "fails", &["{}"]),
        ];
        events(id, "tool_use", &blocks)
    };
    let lost = [text(&["SECRET_LOST"]), call("l1", "step", &["{\"SECRET_LOST\":", "1}"])];
    let lost = events("msg_lost", "tool_use", &lost);
    let broken = Break::Overloaded.after(&lost, 6, &Gate::new());
    let busy = || Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1");
    let script = || vec![busy(), broken.clone(), Reply::events(turn("t")), Reply::events(turn("u"))];
    let request =
        || MessageRequest::prompt("SECRET_PROMPT").system("SECRET_SYSTEM").timeout(Duration::from_secs(60));

    let mut shown = vec![format!("{runner:?}"), format!("{runner:#?}")];
    let mut kinds = Vec::new();
    let mut see = |event: RunEvent, shown: &mut Vec<String>| {
        let text = format!("{event:?}");
        kinds.push(text.split(['(', ' ']).next().unwrap().to_owned());
        shown.extend([text, format!("{event:#?}")]);
    };

    let server = Server::start(script()).await;
    let client = clients.builder(&server).max_retries(3).build().unwrap();
    let mut stream = runner.stream(&client, request());
    shown.push(format!("{stream:?}"));
    while let Some(event) = stream.next().await {
        see(event, &mut shown);
        shown.push(format!("{stream:?}"));
    }
    shown.push(format!("{stream:#?}"));
    shown.push(format!("{:?}", stream.finish().await.unwrap_err()));

    let server = Server::start(script()).await;
    let client = clients.builder(&server).max_retries(3).build().unwrap();
    let mut run_loop = runner.run_loop(request());
    let mut stream = runner.drive_stream(&client, &mut run_loop);
    while let Some(event) = stream.next().await {
        shown.push(format!("{event:?}"));
        match event {
            Ok(event) => see(event, &mut shown),
            Err(stop) => shown.push(format!("{stop:?}")),
        }
        shown.push(format!("{stream:#?}"));
    }
    drop(stream);
    shown.push(format!("{run_loop:?}"));

    // All kinds of events but one were there, and each secret was said.
    for kind in [
        "MaxIterations",
        "Restart",
        "Retry",
        "Stream",
        "ToolFinished",
        "ToolProgress",
        "ToolStarted",
        "TurnDone",
    ] {
        assert!(kinds.iter().any(|other| other == kind), "{kind}: {kinds:?}");
    }
    let said = server.requests().last().unwrap().body().to_vec();
    let said = String::from_utf8(said).unwrap() + &json!([lost, turn("t"), "SECRET_STEP"]).to_string();
    for secret in SECRETS {
        assert!(said.contains(secret), "{secret}");
        for text in &shown {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    let all = shown.join("\n");
    for word in [
        "RunStream",
        "DriveStream",
        "is_done: true",
        "is_done: false",
        "message_start",
        "\"t1\"",
        "overloaded_error",
        "on_event: true",
    ] {
        assert!(all.contains(word), "{word}");
    }
    println!("{} texts", shown.len());
}
