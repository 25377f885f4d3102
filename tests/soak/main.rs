//! A thousand runs at once, of twenty turns each, over one client, against a server that fails a
//! fifth of all attempts.
#![cfg(target_os = "linux")]

mod server;
#[allow(dead_code, reason = "only the proxy of the faults uses all of it")]
#[path = "../faults/wire.rs"]
mod wire;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agentloop::{Client, MessageRequest, Run, RunError, Tool, ToolRunner};
use serde_json::{Value, json};
use server::{Server, random};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const RUNS: usize = 1000;
const TURNS: usize = 20;
const WAVES: usize = 3;

/// Every wave has this long.
const LIMIT: Duration = Duration::from_secs(300);

/// What the tools of all runs do: how often each call was entered, and how many are running.
#[derive(Default)]
struct Calls {
    entered: Vec<AtomicUsize>,
    running: AtomicUsize,
}

impl Calls {
    fn new(runs: usize) -> Arc<Self> {
        Arc::new(Self {
            entered: (0..runs * TURNS).map(|_| AtomicUsize::new(0)).collect(),
            ..Self::default()
        })
    }

    fn tool(self: &Arc<Self>) -> Tool {
        let calls = self.clone();
        Tool::new("count", "Counts", json!({"type": "object"})).handler_with(move |_: Value, context| {
            let id: usize = context.call_id()["call_".len()..].parse().expect("an id ends in a number");
            calls.entered[id].fetch_add(1, Ordering::Relaxed);
            calls.running.fetch_add(1, Ordering::Relaxed);
            let running = Running(calls.clone());
            async move {
                sleep(Duration::from_millis(random(id as u64) % 4)).await;
                drop(running);
                format!("{id} is counted")
            }
        })
    }

    /// How many of the calls of these runs were entered once, and how many more than once.
    fn counted(&self, runs: std::ops::Range<usize>) -> (usize, usize) {
        let calls = &self.entered[runs.start * TURNS..runs.end * TURNS];
        let count = |wanted: fn(usize) -> bool| {
            calls.iter().filter(|calls| wanted(calls.load(Ordering::Relaxed))).count()
        };
        (count(|times| times == 1), count(|times| times > 1))
    }
}

struct Running(Arc<Calls>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

fn client(server: &Server) -> Client {
    let files = fs::read_to_string("/proc/self/limits").expect("Linux tells the limits");
    let files = files.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    let files = files.and_then(|files| files.parse().ok()).unwrap_or(usize::MAX);
    assert!(files >= 4 * RUNS, "each run has two sockets, and {files} files may be open: see `ulimit -n`");
    let builder = Client::builder().api_key("k").base_url(server.url()).no_proxy().max_retries(20);
    let builder = builder.connect_timeout(Duration::from_secs(30)).idle_timeout(Duration::from_secs(3));
    builder.build().expect("the URL is one of loopback")
}

/// A third of the runs gets plain replies, one streams, and one streams that are watched.
async fn run(client: Client, calls: Arc<Calls>, number: usize) -> Result<Run, RunError> {
    let runner = ToolRunner::new().tool(calls.tool()).max_iterations(TURNS as u32);
    let (runner, max_tokens) = match number % 3 {
        0 => (runner, 1_000),
        1 => (runner.max_concurrency(4), 30_000),
        _ => (runner.restart_streams(true).on_event(|_| {}), 1_000),
    };
    let request = MessageRequest::new("claude-opus-5-5", max_tokens).user(number.to_string());
    runner.run(&client, request).await
}

fn check(number: usize, outcome: Result<Run, RunError>) {
    let run = outcome.unwrap_or_else(|error| panic!("run {number}: {}", error.chain()));
    assert_eq!(run.text(), format!("{number} is done"));
    assert_eq!((run.iterations() as usize, run.conversation().len()), (TURNS, 2 * TURNS));
    for turn in 1..TURNS {
        let results = run.conversation().get(2 * turn).expect("each turn of calls has results");
        let id = number * TURNS + turn;
        assert!(results.json().contains(&format!("{id} is counted")), "run {number}, turn {turn}");
    }
}

fn rss() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells the memory");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.expect("a number of KiB") / 1024
}

/// The outcome of some work, and the most memory meanwhile, in MiB.
async fn peak<T>(work: impl Future<Output = T>) -> (T, usize) {
    let (done, mut highest) = (AtomicBool::new(false), 0);
    let watch = async {
        while !done.load(Ordering::Relaxed) {
            highest = highest.max(rss());
            sleep(Duration::from_millis(50)).await;
        }
    };
    let work = async {
        let outcome = timeout(LIMIT, work).await.expect("nothing should hang");
        done.store(true, Ordering::Relaxed);
        outcome
    };
    let (outcome, ()) = tokio::join!(work, watch);
    (outcome, highest)
}

/// Later waves need no more memory than the first, but for what the allocator keeps.
fn is_flat(peaks: &[usize]) {
    let (first, last) = (peaks[0], peaks[WAVES - 1]);
    assert!(last <= first + 32, "the peak grew from {first} to {last} MiB");
}

/// Without the client nothing is left: no connection, no task, no tool.
async fn nothing_is_left(server: &Server, calls: &Calls, tasks: usize) {
    let left = || {
        (server.open(), Handle::current().metrics().num_alive_tasks(), calls.running.load(Ordering::Relaxed))
    };
    let gone = async {
        while left() != (0, tasks, 0) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout(Duration::from_secs(30), gone).await.is_err() {
        panic!("connections, tasks, tools: {:?} are left, and {tasks} tasks were there before", left());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn a_thousand_runs_at_once_end_as_they_must_and_memory_stays_flat() {
    let server = Server::start(RUNS * WAVES, TURNS).await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let (client, calls, begin) = (client(&server), Calls::new(RUNS * WAVES), Instant::now());
    let mut peaks = Vec::new();
    let mut ends = vec![rss()];
    for wave in 0..WAVES {
        let numbers = wave * RUNS..(wave + 1) * RUNS;
        let all = async {
            let mut runs = JoinSet::new();
            for number in numbers.clone() {
                let (client, calls) = (client.clone(), calls.clone());
                runs.spawn(async move { check(number, run(client, calls, number).await) });
            }
            while let Some(outcome) = runs.join_next().await {
                outcome.expect("a run ends as it must");
            }
        };
        let ((), highest) = peak(all).await;
        assert_eq!(calls.counted(numbers), (RUNS * (TURNS - 1), 0));
        peaks.push(highest);
        ends.push(rss());
    }
    let took = begin.elapsed();
    drop(client);
    nothing_is_left(&server, &calls, tasks).await;
    println!(
        "{} runs of {TURNS} turns in {took:.1?}, {} calls once each; {}; MiB at the beginning and after each \
         wave {ends:?}, peaks {peaks:?}, at the end {}",
        RUNS * WAVES,
        RUNS * WAVES * (TURNS - 1),
        server.summary(),
        rss()
    );
    server.check();
    is_flat(&peaks);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn runs_that_are_dropped_anywhere_leave_nothing_behind() {
    let server = Server::start(RUNS * WAVES, TURNS).await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let (client, calls, begin) = (client(&server), Calls::new(RUNS * WAVES), Instant::now());
    let (mut ended, mut dropped, mut peaks) = (0, 0, Vec::new());
    for wave in 0..WAVES {
        let all = async {
            let mut runs = JoinSet::new();
            for number in wave * RUNS..(wave + 1) * RUNS {
                let (client, calls) = (client.clone(), calls.clone());
                let limit = match random(number as u64) {
                    // At any moment of the time that a wave takes.
                    chance if chance.is_multiple_of(2) => Duration::from_millis(chance / 2 % 8_000),
                    _ => LIMIT,
                };
                runs.spawn(async move {
                    let outcome = timeout(limit, run(client, calls, number)).await;
                    outcome.map(|outcome| check(number, outcome)).is_ok()
                });
            }
            while let Some(outcome) = runs.join_next().await {
                match outcome.expect("a run ends as it must") {
                    true => ended += 1,
                    false => dropped += 1,
                }
            }
        };
        let ((), highest) = peak(all).await;
        peaks.push(highest);
    }
    let took = begin.elapsed();
    drop(client);
    nothing_is_left(&server, &calls, tasks).await;
    let (once, often) = calls.counted(0..RUNS * WAVES);
    println!(
        "{ended} runs ended and {dropped} were dropped in {took:.1?}, {once} calls once each; {}; peaks {peaks:?} \
         MiB, at the end {}",
        server.summary(),
        rss()
    );
    server.check();
    assert!(dropped > RUNS / 10 && ended > RUNS, "both are to happen");
    assert!(once >= ended * (TURNS - 1) && often == 0, "{often} calls were entered more than once");
    is_flat(&peaks);
}
