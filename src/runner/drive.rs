//! The driver: the only loop with an await.

use std::collections::HashSet;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::time::sleep;
use tracing::Instrument as _;

use super::builder::ToolRunner;
use super::error::RunError;
use super::events::{Observer, RunEvent, Slot};
use crate::client::{Client, Rest, Retry};
use crate::error::Error;
use crate::execute::{Executor, Progress};
use crate::messages::{ContentBlock, Message, MessageRequest, StopReason};
use crate::run_loop::{CallStep, Run, RunErrorKind, RunLoop, Step, Stop};
use crate::telemetry;
use crate::tool::Tool;

impl ToolRunner {
    /// Runs a request to its end.
    ///
    /// # Errors
    /// A request failed, the cap or the limit of time was reached, a reply broke the API's rules, the
    /// run was cancelled, or the request or the runner can't be used as they are. Each error has the
    /// conversation so far. What a tool does wrong is no error: the model gets to read it.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with IO and time switched on.
    ///
    /// # Cancel safety
    /// Dropping the future stops the run, and the conversation is gone with it; use
    /// [`drive`](Self::drive) with a loop of your own to keep it. A request in flight is closed.
    /// A tool that runs inline is gone when the drop returns. A tool in a task is never polled
    /// again, but a poll that is running on another thread ends at its next await, and its
    /// destructors run on the runtime shortly after the drop returned: child processes, locks,
    /// files. A blocking tool runs to its end.
    pub async fn run(&self, client: &Client, request: impl Into<MessageRequest>) -> Result<Run, RunError> {
        let run_loop = self.run_loop(request);
        self.finish(client, run_loop, None).await
    }

    pub(super) async fn finish(
        &self,
        client: &Client,
        mut run_loop: RunLoop,
        slot: Option<&Slot>,
    ) -> Result<Run, RunError> {
        match self.drive_observed(client, &mut run_loop, slot).await {
            Ok(()) => run_loop.into_run().map_err(|run_loop| {
                RunError::new(Stop::new(RunErrorKind::Request, "the loop is not done"), run_loop)
            }),
            Err(stop) => Err(RunError::new(stop, run_loop)),
        }
    }

    /// Drives a loop until it is done, or until something stops it. The loop stays the caller's,
    /// so it can be driven again, by this runner or by another that has the same tools.
    ///
    /// A call that was started and has no result, because an earlier driver was dropped, is never
    /// run again by itself: it is answered as interrupted, unless its tool is idempotent or
    /// [`RunLoop::rerun`] says otherwise. The cap that counts is the loop's own.
    ///
    /// # Errors
    /// As [`run`](Self::run), without the loop. A runner that lacks a handler which the loop's
    /// rules name stops before anything is sent or run.
    ///
    /// # Panics
    /// Outside of a Tokio runtime with IO and time switched on.
    ///
    /// # Cancel safety
    /// Safe: the loop is valid at every moment. A request in flight is lost and was not counted;
    /// calls that have a result keep it; calls that were started are known as started. What
    /// happens to tools that run is told at [`run`](Self::run).
    pub async fn drive(&self, client: &Client, run_loop: &mut RunLoop) -> Result<(), Stop> {
        self.drive_observed(client, run_loop, None).await
    }

    pub(super) async fn drive_observed(
        &self,
        client: &Client,
        run_loop: &mut RunLoop,
        slot: Option<&Slot>,
    ) -> Result<(), Stop> {
        self.check()?;
        let tools = self.inner.tools.iter().filter(|tool| tool.has_handler());
        let names: HashSet<_> = tools.filter_map(Tool::name).collect();
        if let Some(name) = run_loop.handlers().find(|name| !names.contains(name)) {
            return Err(lacking(name));
        }
        run_loop.interrupt_started();
        let span = telemetry::run();
        let outcome = self.within_limit(client, run_loop, slot).instrument(span.clone()).await;
        telemetry::run_ended(&span, run_loop, outcome.as_ref().err());
        outcome
    }

    /// Drives to the end, or to the limit of time, at which everything is stopped as by a cancel.
    async fn within_limit(
        &self,
        client: &Client,
        run_loop: &mut RunLoop,
        slot: Option<&Slot>,
    ) -> Result<(), Stop> {
        let trouble = Trouble::default();
        // On the heap, once for each drive: a run is a large future, and it is moved about, or waits
        // inside of a tool of another run.
        let Some(limit) = self.inner.timeout else {
            return Box::pin(self.steps(client, run_loop, self.observer(slot), &trouble)).await;
        };
        let token = self.inner.cancellation.child_token();
        let limited = self.clone().edit(|inner| inner.cancellation = token.clone());
        let mut steps = Box::pin(limited.steps(client, run_loop, limited.observer(slot), &trouble));
        tokio::select! {
            biased;
            outcome = &mut steps => return outcome,
            () = sleep(limit) => token.cancel(),
        }
        match steps.await {
            Err(stop)
                if stop.kind() == RunErrorKind::Cancelled && !self.inner.cancellation.is_cancelled() =>
            {
                Err(Stop::timed_out(limit, trouble.take()))
            }
            outcome => outcome,
        }
    }

    fn observer<'a>(&'a self, slot: Option<&'a Slot>) -> Observer<'a> {
        Observer { callback: self.inner.on_event.as_ref(), slot }
    }

    /// Runs the pending calls of a step, by this runner's limits, and gives each its result; for
    /// drivers that send the requests themselves. Finishing the step stays the driver's. Events go
    /// to [`on_event`](Self::on_event).
    ///
    /// # Errors
    /// The run was cancelled, and what ran to its end has its result; or this runner lacks a
    /// handler, and nothing was run.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    ///
    /// # Cancel safety
    /// As [`drive`](Self::drive).
    pub async fn answer(&self, step: &mut CallStep<'_>) -> Result<(), Stop> {
        self.check()?;
        self.call_tools(step, self.observer(None)).await
    }

    async fn call_tools(&self, step: &mut CallStep<'_>, observer: Observer<'_>) -> Result<(), Stop> {
        let has_handler =
            |name: &str| self.inner.tools.iter().any(|tool| tool.name() == Some(name) && tool.has_handler());
        if let Some(call) = step.pending().iter().find(|call| !has_handler(call.name())) {
            return Err(lacking(call.name()));
        }
        let executor = Executor {
            tools: &self.inner.tools,
            max_concurrency: self.inner.max_concurrency,
            limit: self.inner.tool_timeout,
            states: &self.inner.states,
            cancellation: &self.inner.cancellation,
            is_watched: !observer.is_none(),
        };
        let mut calls = executor.calls(step);
        while let Some(progress) = calls.next(step).await.map_err(|_| Stop::cancelled())? {
            if observer.is_none() {
                continue;
            }
            let event = match progress {
                Progress::Starting(call) => RunEvent::ToolStarted { call },
                Progress::Reported(call, progress) => RunEvent::ToolProgress { call, progress },
                Progress::Finished(call) => match step.result(call.ticket()).map(ContentBlock::from_raw) {
                    Some(ContentBlock::ToolResult(result)) => RunEvent::ToolFinished { call, result },
                    _ => continue,
                },
            };
            // Once cancelled nobody waits for the reader; the next step then stops what runs.
            let _told = self.unless_cancelled(observer.tell(event)).await;
        }
        Ok(())
    }

    /// Waits for something, or until the run is cancelled. What is there counts, also if the run
    /// was cancelled meanwhile.
    async fn unless_cancelled<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.inner.cancellation.cancelled() => Err(Stop::cancelled()),
        }
    }

    /// One reply to a request: as a stream where somebody is told of it. What failed meanwhile is
    /// left in `trouble`.
    async fn reply(
        &self,
        client: &Client,
        request: &MessageRequest,
        observer: Observer<'_>,
        trouble: &Trouble,
    ) -> Result<(Message, Option<Rest>), Error> {
        if observer.is_none() {
            let on_retry = |Retry { error, .. }: Retry| {
                trouble.put(error);
                ready(())
            };
            return client.create_for_run(request, on_retry).await;
        }
        // What was told of the attempt counts no longer once the next one begins.
        let told = &AtomicBool::new(false);
        let on_event = |event| {
            told.store(true, Ordering::Relaxed);
            observer.tell(RunEvent::Stream(event))
        };
        let on_retry = |Retry { attempt, wait, error }: Retry| {
            trouble.put(error.clone());
            observer.tell(match told.swap(false, Ordering::Relaxed) {
                true => RunEvent::Restart { attempt, wait, error },
                false => RunEvent::Retry { attempt, wait, error },
            })
        };
        client.create_observed(request, self.inner.restart_streams, on_event, on_retry).await
    }

    async fn steps(
        &self,
        client: &Client,
        run_loop: &mut RunLoop,
        observer: Observer<'_>,
        trouble: &Trouble,
    ) -> Result<(), Stop> {
        let mut rest = None;
        let mut turn = None;
        let mut lists = self.inner.lists.clone();
        loop {
            for list in &mut lists {
                if list.has_changed() {
                    tracing::debug!(server = &*list.server, "the tools of the server have changed");
                    let event = RunEvent::ToolsChanged { server: (*list.server).to_owned() };
                    self.unless_cancelled(observer.tell(event)).await?;
                }
            }
            let repairs = run_loop.repairs().len();
            let iterations = run_loop.iterations();
            match run_loop.step() {
                Step::Send(step) => {
                    if self.inner.cancellation.is_cancelled() {
                        return Err(Stop::cancelled());
                    }
                    drop(rest.take());
                    let turn = turn.insert(telemetry::turn(iterations + 1)).clone();
                    let request =
                        self.reply(client, step.request(), observer, trouble).instrument(turn.clone());
                    let reply;
                    (reply, rest) = self.unless_cancelled(request).await??;
                    trouble.take();
                    step.complete(reply.clone())?;
                    turn.in_scope(|| {
                        tracing::debug!(
                            stop_reason = reply.stop_reason().map(StopReason::as_str),
                            request_id = reply.request_id(),
                            input_tokens = reply.usage().total_input_tokens(),
                            output_tokens = reply.usage().output_tokens,
                            "reply"
                        );
                        for repair in &run_loop.repairs()[repairs..] {
                            tracing::warn!(%repair, "the API would refuse its own reply as it came");
                        }
                    });
                    self.unless_cancelled(observer.tell(RunEvent::TurnDone { message: reply })).await?;
                }
                Step::Call(mut step) => {
                    // The turn of a loop that goes on with its calls began under another driver.
                    let turn = turn.get_or_insert_with(|| telemetry::turn(iterations));
                    self.call_tools(&mut step, observer).instrument(turn.clone()).await?;
                    step.finish();
                }
                Step::Done(Ok(ended)) => {
                    observer.tell(RunEvent::Finished { ended: ended.clone() }).await;
                    return Ok(());
                }
                Step::Done(Err(stop)) => {
                    if stop.kind() == RunErrorKind::MaxIterations {
                        let max_iterations = run_loop.max_iterations();
                        observer.tell(RunEvent::MaxIterations { max_iterations }).await;
                    }
                    return Err(stop);
                }
            }
        }
    }
}

/// Why the request of the moment is being sent again.
#[derive(Default)]
struct Trouble(Mutex<Option<Error>>);

impl Trouble {
    fn put(&self, error: Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn lacking(name: &str) -> Stop {
    let name = name.escape_debug();
    Stop::new(
        RunErrorKind::MissingTool,
        format!("a handler for the tool `{name}` is needed, which this runner lacks"),
    )
}
