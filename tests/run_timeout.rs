//! The limit of time of a run as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentloop::run_loop::RunErrorKind;
use agentloop::testing::{Gate, Reply, Server};
use agentloop::{CancellationToken, Client, ErrorKind, MessageRequest, RunError, Tool, ToolRunner};
use serde_json::json;

const SHORT: Duration = Duration::from_millis(150);

fn timed_out(error: &RunError) {
    assert_eq!((error.kind(), error.error_type()), (RunErrorKind::Timeout, "timeout"), "{error:?}");
    assert!(error.to_string().contains("150ms") && error.to_string().contains("`timeout`"), "{error}");
    assert!(!error.is_retryable());
}

/// Counts the calls that were entered and the ones whose future is gone.
#[derive(Clone, Default)]
struct Counts {
    entered: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
}

impl Counts {
    fn hanging(&self) -> Tool {
        let counts = self.clone();
        Tool::new("hang", "Never ends", json!({"type": "object"})).handler(move |(): ()| {
            let counts = counts.clone();
            async move {
                counts.entered.fetch_add(1, Ordering::SeqCst);
                let _left = Left(counts.left);
                std::future::pending::<()>().await;
            }
        })
    }
}

struct Left(Arc<AtomicUsize>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_run_that_waits_for_a_reply_ends_with_what_it_sent_and_can_go_on() {
    for streamed in [false, true] {
        let gate = Gate::new();
        let server = Server::start([Reply::text("late").hold(&gate), Reply::text("done")]).await;
        let client = server.client();
        let runner = ToolRunner::new().timeout(SHORT);
        let runner = if streamed { runner.on_event(|_| {}) } else { runner };
        let error = runner.run(&client, "go").await.unwrap_err();
        timed_out(&error);
        assert_eq!((error.conversation().len(), error.iterations()), (1, 0));
        assert!(error.client_error().is_none());
        // The limit counts anew from here, and this time there is an answer.
        let mut run_loop = error.into_run_loop();
        runner.drive(&client, &mut run_loop).await.unwrap();
        assert_eq!(run_loop.into_run().unwrap().text(), "done");
    }
}

#[tokio::test]
async fn tools_are_stopped_and_their_calls_are_known_as_started() {
    for (concurrency, entered) in [(1, 1), (2, 2)] {
        let calls = Reply::tool_use([("a", "hang", json!({})), ("b", "hang", json!({}))]);
        let server = Server::start([calls, Reply::text("done")]).await;
        let counts = Counts::default();
        let runner = ToolRunner::new().tool(counts.hanging()).max_concurrency(concurrency).timeout(SHORT);
        let error = runner.run(&server.client(), "go").await.unwrap_err();
        timed_out(&error);
        assert_eq!(counts.entered.load(Ordering::SeqCst), entered);
        assert_eq!(counts.left.load(Ordering::SeqCst), entered, "all are gone when the run returns");
        assert_eq!(error.conversation().len(), 2);

        let request = error.into_request();
        let results = serde_json::to_value(request.messages()).unwrap()[2]["content"].clone();
        let is_interrupted = |at: usize| results[at]["content"].as_str().unwrap().contains("interrupted");
        assert_eq!([is_interrupted(0), is_interrupted(1)], [true, entered == 2], "{results}");
        let run = ToolRunner::new().tool(counts.hanging()).run(&server.client(), request).await.unwrap();
        assert_eq!((run.text(), counts.entered.load(Ordering::SeqCst)), ("done".into(), entered));
    }
}

#[tokio::test]
async fn a_wait_between_attempts_ends_too() {
    let busy = || Reply::error(529, "overloaded_error", "busy").header("retry-after", "30");
    let server = Server::start([busy(), busy()]).await;
    let client = Client::builder().no_proxy().api_key("k").base_url(server.url()).build().unwrap();
    for streamed in [false, true] {
        let runner = ToolRunner::new().timeout(SHORT);
        let runner = if streamed { runner.on_event(|_| {}) } else { runner };
        let error = runner.run(&client, "go").await.unwrap_err();
        timed_out(&error);
        // It tells what it was waiting for.
        assert_eq!(error.client_error().and_then(|error| error.status()), Some(529));
        assert!(error.chain().contains("busy"), "{}", error.chain());
    }
}

#[tokio::test]
async fn a_stream_of_events_ends_with_it() {
    let gate = Gate::new();
    let replies = || [Reply::text("late").hold_after_events(3, &gate)];
    let server = Server::start(replies()).await;
    let runner = ToolRunner::new().timeout(SHORT);
    let mut events = runner.stream(&server.client(), "go");
    while events.next().await.is_some() {}
    timed_out(&events.finish().await.unwrap_err());

    let server = Server::start(replies()).await;
    let client = server.client();
    let mut run_loop = runner.run_loop("go");
    let mut events = runner.drive_stream(&client, &mut run_loop);
    let mut last = None;
    while let Some(event) = events.next().await {
        last = event.err();
    }
    assert_eq!(last.unwrap().kind(), RunErrorKind::Timeout);
}

#[tokio::test]
async fn a_run_within_its_limit_is_left_alone_and_a_cancel_is_a_cancel() {
    let server = Server::start([Reply::text("done")]).await;
    let token = CancellationToken::new();
    let runner = ToolRunner::new().timeout(Duration::MAX).cancel(token.clone());
    assert_eq!(runner.run(&server.client(), "go").await.unwrap().text(), "done");
    token.cancel();
    let error = runner.run(&server.client(), "go").await.unwrap_err();
    assert_eq!(error.kind(), RunErrorKind::Cancelled);
}

#[tokio::test]
async fn no_time_is_refused() {
    let server = Server::start([]).await;
    let error = ToolRunner::new().timeout(Duration::ZERO).run(&server.client(), "go").await.unwrap_err();
    assert_eq!(error.kind(), RunErrorKind::Request);
    assert!(error.chain().contains("`timeout` is zero"), "{}", error.chain());

    // That of a request is the client's error, and ends only the request.
    let gate = Gate::new();
    let server = Server::start([Reply::text("late").hold(&gate)]).await;
    let request = MessageRequest::from("go").timeout(SHORT);
    let error = ToolRunner::new().run(&server.client(), request).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.client_error().unwrap().kind()),
        (RunErrorKind::Client, ErrorKind::Timeout)
    );
}
