//! Runs the calls of one turn: bounded, timed, safe from panics.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::run_loop::{CallStep, PendingCall};
use crate::telemetry;
use crate::tool::{ContextParts, States, Tool, ToolContext, ToolError, ToolFuture, ToolOutput};

/// What a panicked call reads like. The payload may hold what the user said.
const PANICKED: &str = "the tool failed unexpectedly";

/// How the calls of a turn are run.
#[derive(Clone, Copy)]
pub(crate) struct Executor<'a> {
    pub(crate) tools: &'a [Tool],
    /// At least 1.
    pub(crate) max_concurrency: usize,
    /// The limit of time for tools without one of their own.
    pub(crate) limit: Option<Duration>,
    pub(crate) states: &'a States,
    pub(crate) cancellation: &'a CancellationToken,
}

/// The calls of a turn while they run. Dropping it stops them.
pub(crate) struct Execution<'a> {
    executor: Executor<'a>,
    iteration: u32,
    waiting: VecDeque<PendingCall>,
    /// It was told that this one starts.
    announced: Option<PendingCall>,
    finished: VecDeque<PendingCall>,
    running: Vec<Running>,
    tasks: Tasks,
}

/// What happens to a call.
pub(crate) enum Progress {
    /// It starts next.
    Starting(PendingCall),
    /// It has its result.
    Finished(PendingCall),
}

/// A call that runs in a task of its own.
struct Running {
    id: Id,
    call: PendingCall,
    blocking: bool,
    abort: tokio::task::AbortHandle,
    /// Cancelled when nobody waits for the call any longer.
    token: CancellationToken,
    limit: Option<(Instant, Duration)>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

/// The run was cancelled before every call had its result.
#[derive(Debug)]
pub(crate) struct Cancelled;

type Tasks = JoinSet<Ended>;

impl<'a> Executor<'a> {
    /// The calls of a step that have no result, to be run.
    pub(crate) fn calls(self, step: &CallStep<'_>) -> Execution<'a> {
        Execution {
            executor: self,
            iteration: step.iteration(),
            waiting: step.pending().into(),
            announced: None,
            finished: VecDeque::new(),
            running: Vec::new(),
            tasks: JoinSet::new(),
        }
    }

    fn tool(self, call: &PendingCall) -> Option<&'a Tool> {
        self.tools.iter().find(|tool| tool.name() == Some(call.name()))
    }

    async fn inline(
        self,
        tool: &Tool,
        call: &PendingCall,
        iteration: u32,
    ) -> Result<Result<ToolOutput, ToolError>, Cancelled> {
        let token = self.cancellation.child_token();
        // Dropped with this future, so that a blocking tool learns that nobody waits for it.
        let _guard = token.clone().drop_guard();
        let cx = self.context(call, iteration, None, token);
        let body = Caught::new(tool.call(call.input().to_owned(), cx), telemetry::tool(call), None);
        tokio::select! {
            // A result that is there counts, also if the run was cancelled meanwhile.
            biased;
            result = body => Ok(result.unwrap_or_else(|payload| Err(panicked(call.name(), call.id(), payload)))),
            () = self.cancellation.cancelled() => Err(Cancelled),
        }
    }

    fn spawn(
        self,
        tasks: &mut Tasks,
        tool: &Tool,
        call: PendingCall,
        iteration: u32,
        limit: Option<Duration>,
    ) -> Running {
        // The limit counts from here: the call has its place and begins to run.
        let limit = limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
        let token = self.cancellation.child_token();
        let cx = self.context(&call, iteration, limit.map(|(deadline, _)| deadline), token.clone());
        let deadline = limit.map(|(deadline, _)| deadline);
        let body = Caught::new(tool.call(call.input().to_owned(), cx), telemetry::tool(&call), deadline);
        let abort = tasks.spawn(body);
        Running { id: abort.id(), call, blocking: tool.is_blocking(), abort, token, limit }
    }

    fn context(
        self,
        call: &PendingCall,
        iteration: u32,
        deadline: Option<Instant>,
        cancellation: CancellationToken,
    ) -> ToolContext {
        ToolContext::new(ContextParts {
            call_id: call.id().to_owned(),
            tool_name: call.name().to_owned(),
            iteration,
            caller: call.caller().and_then(|caller| serde_json::from_str(caller).ok()),
            deadline,
            states: self.states.clone(),
            cancellation,
        })
    }
}

impl Execution<'_> {
    /// Runs the calls on, up to the next thing that happens to one; `None` once each call that may
    /// run has its result. Once cancelled it starts nothing, stops what runs, and returns when the
    /// tasks have ended.
    pub(crate) async fn next(&mut self, step: &mut CallStep<'_>) -> Result<Option<Progress>, Cancelled> {
        loop {
            if let Some(call) = self.finished.pop_front() {
                return Ok(Some(Progress::Finished(call)));
            }
            if self.executor.cancellation.is_cancelled() {
                return self.stop(step).await;
            }
            if let Some(call) = self.announced.take() {
                self.start(step, call).await?;
            } else if let Some(call) = self.next_waiting(step) {
                self.announced = Some(call.clone());
                return Ok(Some(Progress::Starting(call)));
            } else if self.running.is_empty() {
                return Ok(None);
            } else {
                self.settle_next(step).await;
            }
        }
    }

    /// The next call, if there is a place for it. One that was started before is not ours to
    /// answer.
    fn next_waiting(&mut self, step: &CallStep<'_>) -> Option<PendingCall> {
        if self.running.len() >= self.executor.max_concurrency {
            return None;
        }
        loop {
            let call = self.waiting.pop_front()?;
            if step.may_start(call.ticket()) && self.executor.tool(&call).is_some() {
                return Some(call);
            }
        }
    }

    /// Starts a call, and runs it to its end if it runs inline.
    async fn start(&mut self, step: &mut CallStep<'_>, call: PendingCall) -> Result<(), Cancelled> {
        let executor = self.executor;
        let Some(tool) = executor.tool(&call).filter(|_| step.start(call.ticket())) else { return Ok(()) };
        let limit = tool.limit().or(executor.limit);
        if executor.max_concurrency == 1 && limit.is_none() {
            let result = executor.inline(tool, &call, self.iteration).await?;
            step.resolve(call.ticket(), result);
            self.finished.push_back(call);
        } else {
            self.running.push(executor.spawn(&mut self.tasks, tool, call, self.iteration, limit));
        }
        Ok(())
    }

    /// Waits until a task ends or its time is up, and settles that call.
    async fn settle_next(&mut self, step: &mut CallStep<'_>) {
        let deadline = self.running.iter().filter_map(|task| task.limit.map(|(deadline, _)| deadline)).min();
        let timer = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A result that is there counts, also if its limit has passed or the run was
            // cancelled meanwhile.
            biased;
            Some(ended) = self.tasks.join_next_with_id() => {
                let finished = settle(step, &mut self.running, ended, Unsaid::Lost);
                self.finished.extend(finished);
            }
            // `next` sees it.
            () = self.executor.cancellation.cancelled() => {}
            () = timer => {
                let now = Instant::now();
                self.running.retain(|task| match task.limit {
                    Some((deadline, limit)) if deadline <= now => {
                        task.abort.abort();
                        step.resolve(task.call.ticket(), Err(timed_out(limit, task.blocking)));
                        self.finished.push_back(task.call.clone());
                        false
                    }
                    _ => true,
                });
            }
        }
    }

    /// Stops every task and waits for its end. A call that got its result nevertheless keeps it;
    /// the others stay started, and whoever goes on with the loop says what that means.
    async fn stop<T>(&mut self, step: &mut CallStep<'_>) -> Result<T, Cancelled> {
        self.tasks.abort_all();
        // Tasks that were timed out before are not waited for.
        while !self.running.is_empty() {
            let Some(ended) = self.tasks.join_next_with_id().await else { break };
            settle(step, &mut self.running, ended, Unsaid::Open);
        }
        Err(Cancelled)
    }
}

/// What a call ends in: its result, or the payload of a panic.
type Ended = Result<Result<ToolOutput, ToolError>, Payload>;

type Payload = Box<dyn Any + Send>;

/// A call whose panics stay inside, those of its destructors too, wherever it is dropped.
struct Caught {
    future: Option<ToolFuture>,
    span: Span,
    /// What the call runs in: its span, or the one around it where nobody wants its own.
    context: Span,
    /// When its time is up.
    deadline: Option<Instant>,
}

impl Caught {
    fn new(future: ToolFuture, span: Span, deadline: Option<Instant>) -> Self {
        Self { future: Some(future), context: span.clone().or_current(), span, deadline }
    }

    /// Drops the future, and gives what it panicked with.
    fn dispose(&mut self) -> Result<(), Payload> {
        let future = self.future.take();
        let _entered = self.context.enter();
        catch_unwind(AssertUnwindSafe(|| drop(future)))
    }
}

impl Future for Caught {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let this = &mut *self;
        let Some(future) = this.future.as_mut() else { return Poll::Pending };
        // The error that a tool's error was made from is the tool's too, and is dropped in here.
        let polled = this.context.in_scope(|| {
            catch_unwind(AssertUnwindSafe(|| {
                future.as_mut().poll(cx).map(|result| result.map_err(ToolError::without_source))
            }))
        });
        let mut ended = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => Ok(result),
            Err(payload) => Err(payload),
        };
        if let Err(payload) = this.dispose() {
            discard(ended);
            ended = Err(payload);
        }
        match &ended {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => telemetry::tool_failed(&this.span, "tool_error"),
            Err(_) => telemetry::tool_failed(&this.span, "panic"),
        }
        Poll::Ready(ended)
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        if self.future.is_none() {
            return;
        }
        let is_late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        telemetry::tool_failed(&self.span, if is_late { "timeout" } else { "cancelled" });
        if let Err(payload) = self.dispose() {
            discard(payload);
        }
    }
}

/// Drops what may panic while it is dropped, a panic's payload for instance.
pub(crate) fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // A payload that panics again while it is dropped is given up.
        std::mem::forget(payload);
    }
}

fn panicked(name: &str, call: &str, payload: Payload) -> ToolError {
    tracing::error!(tool = name, call, "the tool panicked");
    discard(payload);
    ToolError::new(PANICKED)
}

/// What becomes of a call whose task was stopped from outside.
#[derive(Clone, Copy)]
enum Unsaid {
    /// It gets an error result.
    Lost,
    /// It stays started.
    Open,
}

fn settle(
    step: &mut CallStep<'_>,
    running: &mut Vec<Running>,
    ended: Result<(Id, Ended), JoinError>,
    unsaid: Unsaid,
) -> Option<PendingCall> {
    let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
    // A task that was timed out has its result already and is not among them.
    let Some(at) = running.iter().position(|task| task.id == id) else {
        discard(ended);
        return None;
    };
    let task = running.remove(at);
    let result = match (ended, unsaid) {
        (Ok((_, Ok(result))), _) => result,
        (Ok((_, Err(payload))), _) => Err(panicked(task.call.name(), task.call.id(), payload)),
        (Err(_), Unsaid::Lost) => {
            Err(ToolError::new("the tool was stopped before it was done, its effects are unknown"))
        }
        (Err(_), Unsaid::Open) => return None,
    };
    step.resolve(task.call.ticket(), result);
    Some(task.call.clone())
}

fn timed_out(limit: Duration, blocking: bool) -> ToolError {
    let rest = match blocking {
        true => "it could not be stopped and may still go on; what it did so far is unknown",
        false => "it is stopped at its next await; what it did so far is unknown",
    };
    // A limit below a millisecond is not none.
    ToolError::new(format!("tool timed out after {} ms: {rest}", limit.as_micros().div_ceil(1000)))
}
