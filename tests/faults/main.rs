//! Faults of the network as a product: each of them, at each request of a run, for each way to get
//! replies, with retries and without.

mod case;
mod door;
mod proxy;
mod strikes;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use agentloop::ToolRunner;
use agentloop::testing::{Script, Server};
use case::{Case, TURNS, Way};
use proxy::Proxy;
use table::{Strike, TABLE};
use tokio::time::timeout;

/// Every case with retries and without.
fn product() -> Vec<Case> {
    let mut cases = Vec::new();
    for retries in [true, false] {
        for row in TABLE {
            for way in Way::ALL {
                cases.extend((1..=TURNS).map(|turn| Case { row, turn, way, retries }));
            }
        }
    }
    cases
}

/// Runs the cases, some of them at a time, each on a runtime of its own: its tasks are all there
/// are.
fn check_all<F: Future<Output = ()>>(cases: Vec<Case>, check: impl Fn(Case) -> F + Sync) {
    let count = cases.len();
    let left = Mutex::new(cases.into_iter());
    let failed = Mutex::new(Vec::new());
    let take = || left.lock().expect("nothing panics with it").next();
    let run = |case| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let limited = async { timeout(LIMIT, check(case)).await.expect("nothing should hang") };
        runtime.expect("a runtime can be made").block_on(limited);
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = take() {
                    if catch_unwind(AssertUnwindSafe(|| run(case))).is_err() {
                        failed.lock().expect("nothing panics with it").push(format!("{case:?}"));
                    }
                }
            });
        }
    });
    println!("{count} cases");
    let failed = failed.into_inner().expect("nothing panics with it");
    assert!(failed.is_empty(), "{} of {count} failed:\n{}", failed.len(), failed.join("\n"));
}

/// A fault is the right error or none. Either way the conversation is whole, no tool runs twice,
/// nothing hangs, nothing is left behind, and the run can go on.
#[test]
fn j10_a_fault_at_any_request_is_the_right_error_or_none() {
    let cases = product();
    assert_eq!(cases.len(), 48 * TURNS * Way::ALL.len() * 2);
    check_all(cases, Case::check);
}

/// The body is more than the sockets of a connection hold, and nobody reads it.
#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let is_early = |case: &Case| matches!(case.row.strike, Strike::Early(_) | Strike::EarlyReset(_));
    let cases: Vec<_> =
        product().into_iter().filter(|case| is_early(case) && !case.retries && case.turn == 1).collect();
    assert_eq!(cases.len(), 3 * Way::ALL.len());
    check_all(cases, |case| async move {
        let server = Server::start(Script::from(Vec::new())).await;
        let proxy = Proxy::start(server.url(), case.plan()).await;
        let client = case.client(&proxy);
        let runner = match case.way {
            Way::Told => ToolRunner::new().on_event(|_| {}),
            Way::Plain | Way::Collected => ToolRunner::new(),
        };
        let request = case.request().user("Add. ".repeat(1 << 20));
        let error = runner.run(&client, request).await.expect_err("the answer is an error");
        let cause = error.client_error().expect("a request failed");
        let kinds = case.expected().expect("without retries it is an error");
        assert!(kinds.contains(&cause.kind()), "{} instead of {kinds:?}", cause.chain());
        assert_eq!(error.conversation().len(), 2);
        drop((error, runner, client));
        proxy.shared().lift();
        proxy.all_closed().await;
    });
}

/// Most of them wait most of the time.
const AT_ONCE: usize = 16;

/// More than all limits of a case together.
const LIMIT: Duration = Duration::from_secs(20);
