//! One run of three turns that meets one fault, and the run behind it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentloop::run_loop::RunErrorKind;
use agentloop::testing::{RecordedRequest, Reply, Script, Server};
use agentloop::{Client, Conversation, ErrorKind, MessageRequest, Run, RunError, RunEvent, Tool, ToolRunner};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::proxy::{Plan, Proxy, Shared};
use crate::support::{Add, Log, object, result_of};
use crate::table::{Expect, Place, Row};

/// The turns of a run: two that ask for two calls each, and the answer.
pub(crate) const TURNS: usize = 3;

/// How a run gets its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    /// As a stream that nobody watches.
    Collected,
    /// As a stream whose events are told.
    Told,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Collected, Self::Told];
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) row: &'static Row,
    /// The request that meets the fault.
    pub(crate) turn: usize,
    pub(crate) way: Way,
    pub(crate) retries: bool,
}

fn ids(turn: usize) -> [String; 2] {
    [format!("t{turn}1"), format!("t{turn}2")]
}

fn ids_before(turn: usize) -> Vec<String> {
    (1..turn).flat_map(ids).collect()
}

/// The turn that a request asks for, from 1.
fn turn_of(body: &[u8]) -> usize {
    messages(body).len().div_ceil(2)
}

/// The reply depends on the conversation alone, however often it is sent.
fn answer(request: &RecordedRequest) -> Reply {
    match turn_of(request.body()) {
        turn if turn < TURNS => {
            let calls = ids(turn).into_iter().enumerate();
            Reply::tool_use(calls.map(|(at, id)| (id, "add", json!({"a": turn * 10, "b": at + 1}))))
        }
        TURNS => Reply::text("All of it is done."),
        _ => Reply::text("No more."),
    }
}

impl Case {
    /// The kinds of error that the run may end in; `None` if it gets to its end.
    pub(crate) fn expected(self) -> Option<&'static [ErrorKind]> {
        match self.expect() {
            Expect::Right => None,
            Expect::Retried(kinds) => (!self.retries).then_some(kinds),
            Expect::Broken(kinds) => (!self.retries || self.way == Way::Told).then_some(kinds),
            Expect::Final(kinds) => Some(kinds),
        }
    }

    fn expect(self) -> Expect {
        match self.way {
            Way::Plain => self.row.plain,
            Way::Collected | Way::Told => self.row.streamed,
        }
    }

    pub(crate) fn plan(self) -> Plan {
        let (strike, place) = (self.row.strike, self.row.place);
        Plan { strike, place, turn: self.turn, is_told: self.way == Way::Told }
    }

    pub(crate) fn client(self, proxy: &Proxy) -> Client {
        let limit = match self.row.strike.is_silence() {
            true => Duration::from_millis(300),
            // Nothing is to end in it, so a slow machine must not either.
            false => Duration::from_secs(10),
        };
        let builder = Client::builder().api_key("k").base_url(proxy.url()).no_proxy();
        let builder = builder.max_retries(if self.retries { 2 } else { 0 });
        builder.connect_timeout(limit).idle_timeout(limit).build().expect("the URL is one of loopback")
    }

    pub(crate) fn request(self) -> MessageRequest {
        let max_tokens = if self.way == Way::Collected { 30_000 } else { 64 };
        MessageRequest::new("claude-opus-5-5", max_tokens).user("Add.")
    }

    fn runner(self, log: &Log, retried: &Arc<AtomicUsize>, proxy: &Arc<Shared>) -> ToolRunner {
        let (log, in_tool) = (log.clone(), proxy.clone());
        // The calls between the response that is struck and the next request.
        let waiting = if self.row.place == Place::Behind { ids(self.turn).to_vec() } else { Vec::new() };
        let add = Tool::new("add", "Adds two integers", object()).handler_with(move |add: Add, context| {
            log.note(context.call_id());
            let waits = waiting.iter().any(|id| id == context.call_id());
            let proxy = in_tool.clone();
            async move {
                if waits {
                    proxy.done().await;
                }
                (add.a + add.b).to_string()
            }
        });
        let runner = ToolRunner::new().tool(add);
        if self.way != Way::Told {
            return runner;
        }
        let (retried, proxy) = (retried.clone(), proxy.clone());
        runner.on_event(move |event| match event {
            RunEvent::Retry { .. } => {
                retried.fetch_add(1, Ordering::Relaxed);
                proxy.lift();
            }
            RunEvent::Stream(_) => proxy.tell(),
            _ => {}
        })
    }

    pub(crate) async fn check(self) {
        let server = Server::start(Script::from_fn(answer)).await;
        let proxy = Proxy::start(server.url(), self.plan()).await;
        let tasks = Handle::current().metrics().num_alive_tasks();

        let (log, retried) = (Log::default(), Arc::default());
        let shared = proxy.shared();
        let (client, runner) = (self.client(&proxy), self.runner(&log, &retried, &shared));
        let lifting = async {
            if self.retries && self.row.strike.is_of_the_door() && self.way != Way::Told {
                // Nothing tells that it struck. The first wait before a retry is longer than this.
                shared.struck().await;
                sleep(Duration::from_millis(200)).await;
                shared.lift();
            }
        };
        let (outcome, ()) = tokio::join!(runner.run(&client, self.request()), lifting);
        assert!(proxy.has_struck(), "{outcome:?}");
        shared.lift();

        let retries = match (self.expect(), self.expected()) {
            (Expect::Retried(_), None) if self.way == Way::Told => 1,
            _ => 0,
        };
        assert_eq!(retried.load(Ordering::Relaxed), retries, "{outcome:?}");
        let run = match self.expected() {
            None => self.goes_on(outcome, &runner, &client, &log, &shared).await,
            Some(kinds) => self.begins_again(outcome, kinds, &runner, &client, &log, &proxy).await,
        };
        run.conversation().check().expect("a run leaves a legal conversation");
        has_results(run.conversation(), &log, TURNS);

        drop((run, runner, client));
        proxy.all_closed().await;
        server.wait_for_open_connections(0).await;
        while Handle::current().metrics().num_alive_tasks() > tasks {
            sleep(Duration::from_millis(1)).await;
        }
        has_sent_the_same(&server);
        server.finish().expect("the script answers everything");
    }

    /// The run got to its end; a chat goes on from it.
    async fn goes_on(
        self,
        outcome: Result<Run, RunError>,
        runner: &ToolRunner,
        client: &Client,
        log: &Log,
        proxy: &Shared,
    ) -> Run {
        let run = outcome.unwrap_or_else(|error| panic!("{}", error.chain()));
        assert_eq!((run.text().as_str(), run.iterations() as usize), ("All of it is done.", TURNS));
        assert_eq!(run.conversation().len(), 2 * TURNS);
        has_results(run.conversation(), log, TURNS);
        if self.row.place == Place::Behind {
            proxy.done().await;
        }
        let run = runner.run(client, run.into_request().user("And then?")).await;
        let run = run.unwrap_or_else(|error| panic!("the run behind it: {}", error.chain()));
        assert_eq!(run.text(), "No more.");
        run
    }

    /// The run ended in an error; the request that failed is sent once more.
    async fn begins_again(
        self,
        outcome: Result<Run, RunError>,
        kinds: &[ErrorKind],
        runner: &ToolRunner,
        client: &Client,
        log: &Log,
        proxy: &Proxy,
    ) -> Run {
        let error = outcome.expect_err("the fault is not to be overcome");
        let cause = error.client_error().expect("a request failed");
        assert_eq!(error.kind(), RunErrorKind::Client);
        assert!(kinds.contains(&cause.kind()), "{} instead of {kinds:?}", cause.chain());
        assert_eq!(cause.attempts(), 1, "{}", cause.chain());
        let is_final = matches!(self.expect(), Expect::Final(_));
        assert_eq!(error.is_retryable(), !is_final, "{}", cause.chain());

        assert_eq!(error.iterations() as usize, self.turn - 1);
        assert_eq!(error.conversation().len(), 2 * self.turn - 1);
        error.conversation().check().expect("an error hands back a legal conversation");
        has_results(error.conversation(), log, self.turn);
        let failed = error.conversation().to_json();
        let is_read = !matches!(self.row.place, Place::Connection | Place::Request);
        let bodies = proxy.bodies();
        assert_eq!(bodies.len(), self.turn - usize::from(!is_read));

        let run = runner.run(client, error.into_request()).await;
        let run = run.unwrap_or_else(|error| panic!("the run behind it: {}", error.chain()));
        assert_eq!((run.text().as_str(), run.conversation().len()), ("All of it is done.", 2 * TURNS));
        let again = &proxy.bodies()[bodies.len()];
        assert!(messages(again).to_json() == failed, "the conversation is not what the request sent");
        if is_read {
            assert!(bodies[self.turn - 1] == *again, "the request is not the same when it is sent again");
        }
        run
    }
}

/// Each call of the turns before this one ran once and has its result, and no other ran.
fn has_results(conversation: &Conversation, log: &Log, turn: usize) {
    let ids = ids_before(turn);
    assert_eq!(log.all(), ids);
    for (number, id) in ids.iter().enumerate() {
        let sum = (number / 2 + 1) * 10 + number % 2 + 1;
        assert_eq!(result_of(conversation, id), (sum.to_string(), false), "{id}");
    }
}

/// The server refused nothing, and requests for the same turn are the same bytes.
fn has_sent_the_same(server: &Server) {
    let mut of_turns = BTreeMap::new();
    for request in server.requests() {
        assert_eq!(request.refusal(), None);
        let first = of_turns.entry(turn_of(request.body())).or_insert_with(|| request.clone());
        assert!(first.body() == request.body(), "a request that is not the same when it is sent again");
    }
}

fn messages(body: &[u8]) -> Conversation {
    #[derive(serde::Deserialize)]
    struct Body {
        messages: Box<serde_json::value::RawValue>,
    }
    let body: Body = serde_json::from_slice(body).expect("a request is JSON");
    Conversation::from_json(body.messages.get()).expect("its messages are a conversation")
}
