//! The limit of requests in flight, and the cool-down after a rate limit.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop::client::{Auth, Credential, TimeoutPhase};
use agentloop::testing::{Gate, Reply, Script, Server};
use agentloop::{Client, ClientBuilder, MessageRequest, RunError, RunEvent, Tool, ToolRunner};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const SHORT: Duration = Duration::from_millis(100);

/// No test may hang where a slot is lost.
const GUARD: Duration = Duration::from_secs(20);

fn builder(server: &Server) -> ClientBuilder {
    Client::builder().no_proxy().base_url(server.url()).api_key("k")
}

fn limited(server: &Server, most: usize) -> Client {
    builder(server).max_in_flight(most).max_retries(0).build().unwrap()
}

async fn guarded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(GUARD, work).await.expect("nothing waits for ever")
}

fn request(text: &str) -> MessageRequest {
    MessageRequest::new("m", 100).user(text)
}

#[tokio::test]
async fn no_more_requests_than_the_limit_are_under_way() {
    const CALLS: usize = 12;
    let gate = Gate::new();
    let replies: Vec<_> = (0..CALLS).map(|_| Reply::text("ok").hold(&gate)).collect();
    let server = Server::start(replies).await;
    let client = limited(&server, 3);
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let client = client.clone();
        calls.spawn(async move { client.create(&request("Hi")).await.map(drop) });
    }
    guarded(server.wait_for_requests(3)).await;
    // The others had every chance to come.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.request_count(), 3);
    gate.release();
    assert!(guarded(calls.join_all()).await.iter().all(Result::is_ok));
    assert_eq!(server.request_count(), CALLS);
    assert!(server.connections_opened() <= 3, "{} connections", server.connections_opened());
}

#[tokio::test]
async fn a_wait_for_a_place_has_the_idle_limit_and_says_so() {
    let gate = Gate::new();
    let server = Server::start([Reply::text("late").hold(&gate), Reply::text("next")]).await;
    let client = limited(&server, 1);
    let mut first = JoinSet::new();
    let running = client.clone();
    first.spawn(async move { running.create(&request("Hi")).await.map(drop) });
    guarded(server.wait_for_requests(1)).await;

    let error = guarded(client.create(&request("Hi").idle_timeout(SHORT).max_retries(5))).await.unwrap_err();
    assert_eq!((error.timeout_phase(), error.attempts()), (Some(TimeoutPhase::Slot), 0), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("`max_in_flight`") && text.contains("`idle_timeout`") && text.contains("100ms"),
        "{text}"
    );
    assert!(error.is_timeout() && error.is_retryable());

    // A call that gives up waiting takes nothing with it, nor does one that is dropped.
    let waiting = request("Hi");
    let mut dropped = Box::pin(client.create(&waiting));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(dropped.as_mut().poll(cx))).await.is_pending());
    drop(dropped);
    gate.release();
    assert!(guarded(first.join_all()).await.iter().all(Result::is_ok));
    assert_eq!(guarded(client.create(&request("Hi"))).await.unwrap().text(), "next");
}

#[tokio::test]
async fn a_stream_has_its_place_until_it_ends_or_is_dropped() {
    for end in ["ends", "is dropped", "fails", "is finished"] {
        let first = Reply::text("first");
        let first = if end == "fails" { first.cut_after(500) } else { first };
        let server = Server::start([first, Reply::text("second")]).await;
        let client = limited(&server, 1);
        let mut stream = guarded(client.stream(&request("Hi"))).await.unwrap();
        let inside = guarded(client.create(&request("Hi").idle_timeout(SHORT))).await.unwrap_err();
        assert_eq!(inside.timeout_phase(), Some(TimeoutPhase::Slot), "while it {end}");
        let kept;
        match end {
            "ends" | "fails" => {
                let mut failed = false;
                while let Some(event) = guarded(stream.next()).await {
                    failed |= event.is_err();
                }
                assert_eq!(failed, end == "fails");
                // The value is still there.
                kept = Some(stream);
            }
            "is dropped" => {
                drop(stream);
                kept = None;
            }
            _ => {
                assert_eq!(guarded(stream.final_message()).await.unwrap().text(), "first");
                kept = None;
            }
        }
        assert_eq!(guarded(client.create(&request("Hi"))).await.unwrap().text(), "second", "it {end}");
        drop(kept);
    }
}

/// Agents inside of tools use the same client, three deep, with one place for all.
#[tokio::test]
async fn nested_agents_share_one_place() {
    for streamed in [false, true] {
        let call = |id: &str| Reply::tool_use([(id, "ask", json!({}))]);
        let script = [
            call("a"),
            call("b"),
            call("c"),
            Reply::text("3"),
            Reply::text("2"),
            Reply::text("1"),
            Reply::text("0"),
        ];
        let server = Server::start(script).await;
        let client = limited(&server, 1);
        let answer = guarded(ask(client, 3, streamed)).await.unwrap();
        assert_eq!(answer, "0");
        assert_eq!(server.request_count(), 7);
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<String, RunError>> + Send>>;

fn ask(client: Client, depth: u32, streamed: bool) -> Answer {
    Box::pin(async move {
        let inner = client.clone();
        let tool =
            Tool::new("ask", "Asks another agent", json!({"type": "object"})).handler(move |(): ()| {
                let client = inner.clone();
                async move { Ok(ask(client, depth - 1, streamed).await?) }
            });
        let runner = if depth > 0 { ToolRunner::new().tool(tool) } else { ToolRunner::new() };
        let runner = if streamed { runner.on_event(|_| {}) } else { runner };
        Ok(runner.run(&client, request("Hi")).await?.text())
    })
}

#[tokio::test]
async fn a_place_is_free_between_attempts_and_after_failures() {
    let busy = || Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "1500");
    let server = Server::start([busy(), Reply::text("other"), Reply::text("mine")]).await;
    let client = builder(&server).max_in_flight(1).build().unwrap();
    let mut waiting = JoinSet::new();
    let first = client.clone();
    waiting.spawn(async move { first.create(&request("Hi")).await.map(|message| message.text()) });
    guarded(server.wait_for_requests(1)).await;
    // Goes out while the first one waits for its second attempt.
    assert_eq!(guarded(client.create(&request("Hi"))).await.unwrap().text(), "other");
    assert_eq!(guarded(waiting.join_all()).await[0].as_deref().unwrap(), "mine");
}

#[tokio::test]
async fn a_run_that_is_dropped_or_cancelled_gives_its_place_back() {
    let gate = Gate::new();
    let server = Server::start([Reply::text("never").hold(&gate), Reply::text("second")]).await;
    let client = limited(&server, 1);
    let runner = ToolRunner::new();
    let mut run = Box::pin(runner.run(&client, request("Hi")));
    tokio::select! {
        _ = &mut run => panic!("it is held"),
        () = guarded(server.wait_for_requests(1)) => {}
    }
    drop(run);
    assert_eq!(guarded(client.create(&request("Hi"))).await.unwrap().text(), "second");
}

#[tokio::test]
async fn a_rate_limit_holds_the_other_calls_of_its_model_back() {
    let limit = Reply::error(429, "rate_limit_error", "slow down").header("retry-after-ms", "400");
    let server =
        Server::start([limit, Reply::text("other"), Reply::text("first"), Reply::text("same")]).await;
    let client = builder(&server).build().unwrap();
    let met = Arc::new(Notify::new());
    let runner = ToolRunner::new().on_event({
        let met = Arc::clone(&met);
        move |event| {
            if matches!(event, RunEvent::Retry { .. }) {
                met.notify_one();
            }
        }
    });
    let mut first = JoinSet::new();
    let running = client.clone();
    first.spawn(async move { runner.run(&running, request("Hi")).await.map(drop) });
    guarded(met.notified()).await;

    // It would fail if it was sent now: it has no retries. Another model is free.
    let once = request("Hi").max_retries(0);
    let mut same = Box::pin(client.create(&once));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(same.as_mut().poll(cx))).await.is_pending());
    let other = MessageRequest::new("other", 100).user("Hi");
    assert_eq!(guarded(client.create(&other)).await.unwrap().text(), "other");
    guarded(same).await.unwrap();
    assert!(guarded(first.join_all()).await[0].is_ok());
    let models: Vec<_> = server.requests().iter().map(|seen| seen.json()["model"].clone()).collect();
    assert_eq!(models, ["m", "other", "m", "m"]);
}

#[tokio::test]
async fn a_total_limit_ends_the_wait_for_a_rate_limit_and_names_it() {
    let limit = Reply::error(429, "rate_limit_error", "slow down").header("retry-after", "30");
    let server = Server::start([limit]).await;
    let client = builder(&server).build().unwrap();
    let error = guarded(client.create(&request("Hi").max_retries(0))).await.unwrap_err();
    assert_eq!((error.status(), error.retry_after()), (Some(429), Some(Duration::from_secs(30))));

    let error = guarded(client.create(&request("Hi").timeout(SHORT))).await.unwrap_err();
    assert_eq!((error.timeout_phase(), error.attempts()), (Some(TimeoutPhase::Total), 0), "{error:?}");
    assert!(error.chain().contains("slow down"), "{}", error.chain());
    assert_eq!(server.request_count(), 1);
}

#[tokio::test]
async fn calls_that_share_no_cool_down_go_out_at_once() {
    let limit = Reply::error(429, "rate_limit_error", "slow down").header("retry-after", "30");
    let server = Server::start([limit, Reply::text("ok")]).await;
    let client = builder(&server).shared_cool_down(false).max_retries(0).build().unwrap();
    assert_eq!(guarded(client.create(&request("Hi"))).await.unwrap_err().status(), Some(429));
    assert_eq!(guarded(client.create(&request("Hi"))).await.unwrap().text(), "ok");
}

#[tokio::test]
async fn a_wait_that_nobody_would_take_holds_nobody_back() {
    let limit = Reply::error(429, "rate_limit_error", "slow down").header("retry-after", "171");
    let server = Server::start([limit, Reply::text("ok")]).await;
    let client = builder(&server).build().unwrap();
    let error = guarded(client.create(&request("Hi"))).await.unwrap_err();
    assert_eq!((error.retry_after(), error.attempts()), (Some(Duration::from_secs(171)), 1));
    assert_eq!(guarded(client.create(&request("Hi"))).await.unwrap().text(), "ok");
}

#[tokio::test]
async fn a_wait_for_the_rate_limit_of_others_has_the_limit_of_ones_own() {
    const CALLS: usize = 64;
    let limit = Reply::error(429, "rate_limit_error", "slow down").header("retry-after-ms", "900");
    let replies: Vec<_> = std::iter::once(limit).chain((0..CALLS).map(|_| Reply::text("ok"))).collect();
    let server = Server::start(replies).await;
    let client = builder(&server).max_retry_wait(Duration::from_secs(1)).max_retries(0).build().unwrap();
    let error = guarded(client.create(&request("Hi"))).await.unwrap_err();
    assert_eq!((error.status(), error.attempts()), (Some(429), 1));
    // The first in the queue waits for 0.9 seconds, the last would wait for more than two.
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let client = client.clone();
        calls.spawn(async move { client.create(&request("Hi")).await });
    }
    let outcomes = guarded(calls.join_all()).await;
    let held: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!((1..CALLS).contains(&held.len()), "{} of {CALLS} were held back", held.len());
    for error in &held {
        assert_eq!(
            (error.status(), error.attempts(), error.is_retryable()),
            (Some(429), 0, true),
            "{error:?}"
        );
    }
    assert_eq!(server.request_count(), 1 + CALLS - held.len());
}

#[tokio::test]
async fn a_retry_that_gets_no_place_tells_why_it_was_one() {
    let gate = Gate::new();
    let busy = Reply::error(529, "overloaded_error", "busy").header("retry-after-ms", "100");
    let server = Server::start([busy, Reply::text("late").hold(&gate)]).await;
    let client = builder(&server).max_in_flight(1).build().unwrap();
    let (first, second) = (request("Hi").idle_timeout(SHORT * 3), request("Hi"));
    let mut other = JoinSet::new();
    let running = client.clone();
    let mut call = Box::pin(client.create(&first));
    tokio::select! {
        _ = &mut call => panic!("it waits for its second attempt"),
        () = guarded(server.wait_for_requests(1)) => {}
    }
    // Takes the place while the first one waits.
    other.spawn(async move { running.create(&second).await.map(drop) });
    let error = guarded(call).await.unwrap_err();
    assert_eq!((error.timeout_phase(), error.attempts()), (Some(TimeoutPhase::Slot), 1), "{error:?}");
    assert!(error.chain().contains("busy"), "{}", error.chain());
    gate.release();
    assert!(guarded(other.join_all()).await[0].is_ok());
}

/// Each wait of a call has its limit over all the rounds that it takes: here every call that gets a
/// place meets the rate limit and holds the others back.
#[tokio::test]
async fn waits_that_begin_anew_have_one_limit() {
    let limit =
        || Reply::error(429, "rate_limit_error", "slow down").header("retry-after-ms", "100").delay(SHORT);
    let server = Server::start(Script::from_fn(move |_| limit())).await;
    let longest = Duration::from_millis(600);
    let client =
        builder(&server).max_in_flight(1).max_retry_wait(longest).idle_timeout(longest * 2).max_retries(0);
    let client = client.build().unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..60 {
        let client = client.clone();
        calls.spawn(async move { client.create(&request("Hi")).await.unwrap_err() });
    }
    let errors = guarded(calls.join_all()).await;
    let met = errors.iter().filter(|error| error.attempts() == 1).count();
    let held = errors.iter().filter(|error| error.attempts() == 0 && error.status() == Some(429)).count();
    let placeless = errors.iter().filter(|error| error.timeout_phase() == Some(TimeoutPhase::Slot)).count();
    println!("{met} met the limit, {held} were held back, {placeless} got no place");
    assert_eq!(met + held + placeless, 60);
    // One round of each takes 0.2 seconds.
    assert!((1..30).contains(&met), "{met} of 60 were sent");
}

/// Who waits for a place is held back by a rate limit that the call in front of it meets.
#[tokio::test]
async fn a_rate_limit_holds_those_back_who_wait_for_a_place() {
    let gate = Gate::new();
    let limit = Reply::error(429, "rate_limit_error", "slow down").header("retry-after", "30").hold(&gate);
    let server = Server::start([limit, Reply::text("too early")]).await;
    let client = builder(&server).max_in_flight(1).max_retries(0).build().unwrap();
    let mut first = JoinSet::new();
    let running = client.clone();
    first.spawn(async move { running.create(&request("Hi")).await });
    guarded(server.wait_for_requests(1)).await;

    let waits = request("Hi").timeout(SHORT * 5);
    let mut second = Box::pin(client.create(&waits));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(second.as_mut().poll(cx))).await.is_pending());
    gate.release();
    let error = guarded(second).await.unwrap_err();
    assert_eq!((error.timeout_phase(), error.attempts()), (Some(TimeoutPhase::Total), 0), "{error:?}");
    assert!(error.chain().contains("slow down"), "{}", error.chain());
    assert_eq!(guarded(first.join_all()).await[0].as_ref().unwrap_err().status(), Some(429));
    assert_eq!(server.request_count(), 1);
}

/// A provider so slow that each answer comes into the next rate limit of another call.
#[tokio::test]
async fn rounds_of_a_slow_provider_and_a_rate_limit_come_to_an_end() {
    let limit = || Reply::error(429, "rate_limit_error", "slow down").header("retry-after-ms", "400");
    let server = Server::start(Script::from_fn(move |_| limit())).await;
    let auth = Auth::provider(|| async {
        tokio::time::sleep(SHORT * 3).await;
        Ok::<_, std::io::Error>(Credential::bearer("a-token").expires_in(Duration::ZERO))
    });
    let builder = Client::builder().no_proxy().base_url(server.url()).auth(auth).max_retries(0);
    let client = builder.max_retry_wait(SHORT * 5).build().unwrap();
    let mut others = JoinSet::new();
    let noise = client.clone();
    others.spawn(async move {
        loop {
            noise.create(&request("Hi")).await.unwrap_err();
        }
    });
    guarded(server.wait_for_requests(1)).await;
    assert_eq!(guarded(client.create(&request("Hi"))).await.unwrap_err().status(), Some(429));
}

/// A credential that runs out while its call waits for a place is not sent.
#[tokio::test]
async fn a_credential_that_ran_out_in_the_queue_is_replaced() {
    let server =
        Server::start(Script::from_fn(|_| Reply::text("ok").delay(Duration::from_millis(300)))).await;
    let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let auth = Auth::provider(move || {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let token = Credential::bearer(format!("token-{number}")).expires_in(Duration::from_millis(200));
        async move { Ok::<_, std::io::Error>(token) }
    });
    let client =
        Client::builder().no_proxy().base_url(server.url()).auth(auth).max_in_flight(1).build().unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        let client = client.clone();
        calls.spawn(async move { client.create(&request("Hi")).await.map(drop) });
    }
    assert!(guarded(calls.join_all()).await.iter().all(Result::is_ok));
    let mut sent: Vec<_> =
        server.requests().iter().map(|seen| seen.header("authorization").unwrap().to_owned()).collect();
    sent.dedup();
    assert_eq!(sent.len(), 3, "{sent:?}");
}
