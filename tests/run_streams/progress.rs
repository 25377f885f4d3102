//! What calls tell of themselves while they run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentloop::testing::{Reply, Server};
use agentloop::tool::ToolProgress;
use agentloop::{RunEvent, Tool, ToolContext, ToolRunner};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::support::{object, soon};
use super::told::{Way, finished, started};

const LONG: Duration = Duration::from_secs(3600);

async fn api(calls: &[(&str, &str)]) -> Server {
    let calls: Vec<_> = calls.iter().map(|(id, name)| (*id, *name, json!({}))).collect();
    Server::start([Reply::tool_use(calls), Reply::text("done")]).await
}

/// What was told of calls.
fn of_calls(told: Vec<Value>) -> Vec<Value> {
    let is_of_call = |event: &Value| event.as_object().unwrap().keys().any(|key| key.starts_with("Tool"));
    told.into_iter().filter(is_of_call).collect()
}

fn progress(id: &str, progress: f64) -> Value {
    json!({"ToolProgress": id, "progress": progress, "total": 4.0, "message": format!("step {progress}")})
}

fn step(at: f64) -> ToolProgress {
    ToolProgress::new(at).total(4.0).message(format!("step {at}"))
}

#[tokio::test]
async fn each_report_is_told_while_its_call_runs_and_the_last_before_its_end() {
    let mut cases = 0;
    for way in Way::TOLD {
        let inline = ToolRunner::new();
        for runner in [inline.clone(), inline.clone().tool_timeout(LONG), inline.clone().max_concurrency(2)] {
            let seen = Arc::new([(); 2].map(|()| Semaphore::new(0)));
            let of = |call: &str| usize::from(call == "t2");
            let waits = Arc::clone(&seen);
            let tool = Tool::new("work", "", object()).handler_with(move |(): (), cx: ToolContext| {
                let waits = Arc::clone(&waits);
                async move {
                    for at in 1..=3 {
                        cx.report(step(f64::from(at)));
                        // The call goes on only once somebody has read that.
                        waits[of(cx.call_id())].acquire().await.unwrap().forget();
                    }
                    cx.report(step(4.0));
                    "done"
                }
            });
            let api = api(&[("t1", "work"), ("t2", "work")]).await;
            let see = move |event: &RunEvent| {
                if let RunEvent::ToolProgress { call, .. } = event {
                    seen[of(call.id())].add_permits(1);
                }
            };
            let runner = runner.tool(tool);
            let (told, outcome) = soon(way.run_with(&runner, &api.client(), way.request("go"), see)).await;
            outcome.unwrap();
            let told = of_calls(told);
            for id in ["t1", "t2"] {
                let is_of = |event: &&Value| event.as_object().unwrap().values().any(|value| value == id);
                let mut expected = vec![started(id, "work", "{}")];
                expected.extend([1.0, 2.0, 3.0, 4.0].map(|at| progress(id, at)));
                expected.push(finished(id, "done", false));
                assert_eq!(told.iter().filter(is_of).cloned().collect::<Vec<_>>(), expected, "{way:?}");
            }
            assert_eq!(told.len(), 12);
            cases += 1;
        }
    }
    println!("{cases} cases");
}

/// Who tells more than is read takes no more memory for it.
#[tokio::test]
async fn of_reports_that_nobody_read_the_last_one_is_told() {
    for way in Way::TOLD {
        let tool = Tool::new("work", "", object()).handler_with(|(): (), cx: ToolContext| async move {
            (1..=1000).for_each(|at| cx.report(step(f64::from(at))));
        });
        let api = api(&[("t1", "work")]).await;
        let (told, _) = way.run(&ToolRunner::new().tool(tool), &api.client(), way.request("go")).await;
        let expected = [started("t1", "work", "{}"), progress("t1", 1000.0), finished("t1", "ok", false)];
        assert_eq!(of_calls(told)[..2], expected[..2], "{way:?}");
    }
}

#[tokio::test]
async fn where_nobody_watches_a_report_does_nothing() {
    let tool = Tool::new("work", "", object()).handler_with(|(): (), cx: ToolContext| async move {
        cx.report(step(1.0));
        "done"
    });
    for way in [Way::Plain, Way::Collected] {
        let api = api(&[("t1", "work")]).await;
        let runner = ToolRunner::new().tool(tool.clone());
        let (_, outcome) = way.run(&runner, &api.client(), way.request("go")).await;
        assert_eq!(outcome.unwrap().text(), "done");
    }
}

/// A blocking tool that was given up may still go on, and tell so.
#[tokio::test]
async fn of_a_call_that_was_given_up_nobody_is_told() {
    let (late, waits) = std::sync::mpsc::channel();
    let waits = std::sync::Mutex::new(waits);
    let told_late = Arc::new(Notify::new());
    let tells = Arc::clone(&told_late);
    let blocks = Tool::new("blocks", "", object())
        .blocking_with(move |(): (), cx: ToolContext| {
            waits.lock().unwrap().recv().unwrap();
            cx.report(step(1.0));
            tells.notify_one();
        })
        .timeout(Duration::from_millis(500));
    let other = Tool::new("other", "", object()).handler_with(move |(): (), cx: ToolContext| {
        let told_late = Arc::clone(&told_late);
        async move {
            told_late.notified().await;
            cx.report(step(2.0));
        }
    });
    let api = api(&[("t1", "blocks"), ("t2", "other")]).await;
    let runner = ToolRunner::new().tool(blocks).tool(other).max_concurrency(2);
    let way = Way::Stream;
    let see = move |event: &RunEvent| {
        if matches!(event, RunEvent::ToolFinished { call, .. } if call.id() == "t1") {
            late.send(()).unwrap();
        }
    };
    let (told, outcome) = soon(way.run_with(&runner, &api.client(), way.request("go"), see)).await;
    outcome.unwrap();
    let told: Vec<_> =
        of_calls(told).into_iter().filter(|event| event.get("ToolProgress").is_some()).collect();
    assert_eq!(told, [progress("t2", 2.0)]);
}

/// Somebody else may still have its context.
#[tokio::test]
async fn of_a_call_that_has_ended_nobody_is_told() {
    for way in Way::TOLD {
        for runner in
            [ToolRunner::new(), ToolRunner::new().max_concurrency(2), ToolRunner::new().tool_timeout(LONG)]
        {
            let kept = Arc::new(std::sync::Mutex::new(None));
            let ended = Arc::new(Notify::new());
            let waits = Arc::clone(&ended);
            let tool = Tool::new("work", "", object()).handler_with(move |(): (), cx: ToolContext| {
                let (kept, waits) = (Arc::clone(&kept), Arc::clone(&waits));
                async move {
                    if cx.call_id() == "t1" {
                        *kept.lock().unwrap() = Some(cx);
                        return;
                    }
                    waits.notified().await;
                    kept.lock().unwrap().take().unwrap().report(step(1.0));
                    cx.report(step(2.0));
                }
            });
            let see = move |event: &RunEvent| {
                if matches!(event, RunEvent::ToolFinished { call, .. } if call.id() == "t1") {
                    ended.notify_one();
                }
            };
            let api = api(&[("t1", "work"), ("t2", "work")]).await;
            let (told, outcome) =
                soon(way.run_with(&runner.tool(tool), &api.client(), way.request("go"), see)).await;
            outcome.unwrap();
            let told = of_calls(told).into_iter().filter(|event| event.get("ToolProgress").is_some());
            assert_eq!(told.collect::<Vec<_>>(), [progress("t2", 2.0)], "{way:?}");
        }
    }
}

/// Ends a thread when it is dropped.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread can't be stopped, and this one never ends by itself. Its call does all the same.
#[tokio::test]
async fn a_call_that_was_given_up_and_tells_on_is_finished() {
    for way in Way::TOLD {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        // The thread ends with the test, however that ends.
        let _ended = Ended(Arc::clone(&is_over));
        let blocks = Tool::new("blocks", "", object())
            .blocking_with(move |(): (), cx: ToolContext| {
                while !ends.load(Ordering::Relaxed) {
                    cx.report(step(1.0));
                }
            })
            .timeout(Duration::from_millis(200));
        let api = api(&[("t1", "blocks")]).await;
        let see = move |event: &RunEvent| match event {
            // It tells faster than anybody listens.
            RunEvent::ToolProgress { .. } => std::thread::sleep(Duration::from_millis(1)),
            RunEvent::ToolFinished { .. } => is_over.store(true, Ordering::Relaxed),
            _ => {}
        };
        let runner = ToolRunner::new().tool(blocks);
        let (told, outcome) = soon(way.run_with(&runner, &api.client(), way.request("go"), see)).await;
        outcome.unwrap();
        let told = of_calls(told);
        assert!(told.iter().any(|event| event.get("ToolProgress").is_some()), "it runs");
        assert!(told.last().unwrap()["text"].as_str().unwrap().starts_with("tool timed out"));
    }
}

/// A call that tells something whenever it is asked does not keep the thread.
#[tokio::test]
async fn a_flood_of_reports_leaves_time_for_others() {
    let seen = Arc::new(AtomicBool::new(false));
    let sees = Arc::clone(&seen);
    let tool = Tool::new("work", "", object()).handler_with(move |(): (), cx: ToolContext| {
        let sees = Arc::clone(&sees);
        async move {
            let mut others = JoinSet::new();
            others.spawn(async {});
            for at in 0..100_000 {
                cx.report(step(f64::from(at)));
                tokio::task::yield_now().await;
                if others.try_join_next().is_some() {
                    return sees.store(true, Ordering::Relaxed);
                }
            }
        }
    });
    let api = api(&[("t1", "work")]).await;
    let runner = ToolRunner::new().tool(tool).on_event(|_| {});
    soon(runner.run(&api.client(), "go")).await.unwrap();
    assert!(seen.load(Ordering::Relaxed), "the other task ran behind the call");
}
