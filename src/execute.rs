//! Runs the calls of one turn: bounded, timed, safe from panics.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Span;

use crate::run_loop::{CallStep, PendingCall};
use crate::telemetry;
use crate::tool::{
    ContextParts, Reports, States, Tool, ToolContext, ToolError, ToolFuture, ToolOutput, ToolProgress,
};

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
    /// Somebody wants to know how far the calls are.
    pub(crate) is_watched: bool,
}

/// The calls of a turn while they run. Dropping it stops them.
pub(crate) struct Execution<'a> {
    executor: Executor<'a>,
    iteration: u32,
    waiting: VecDeque<PendingCall>,
    /// It was told that this one starts.
    announced: Option<PendingCall>,
    /// Those with a result, and what they told last.
    finished: VecDeque<(PendingCall, Option<ToolProgress>)>,
    inline: Option<Inline>,
    running: Vec<Running>,
    tasks: Tasks,
    reports: Option<Arc<Reports>>,
}

/// What happens to a call.
pub(crate) enum Progress {
    /// It starts next.
    Starting(PendingCall),
    /// It tells how far it is.
    Reported(PendingCall, ToolProgress),
    /// It has its result.
    Finished(PendingCall),
}

/// A call that runs in the task of the run.
struct Inline {
    call: PendingCall,
    body: Caught,
    /// Dropped with the body, so that a blocking tool learns that nobody waits for it.
    _guard: DropGuard,
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
            inline: None,
            running: Vec::new(),
            tasks: JoinSet::new(),
            reports: self.is_watched.then(Arc::default),
        }
    }

    fn tool(self, call: &PendingCall) -> Option<&'a Tool> {
        self.tools.iter().find(|tool| tool.name() == Some(call.name()))
    }
}

impl Execution<'_> {
    /// Runs the calls on, up to the next thing that happens to one; `None` once each call that may
    /// run has its result. Once cancelled it starts nothing, stops what runs, and returns when the
    /// tasks have ended.
    pub(crate) async fn next(&mut self, step: &mut CallStep<'_>) -> Result<Option<Progress>, Cancelled> {
        loop {
            if let Some((call, unread)) = self.finished.pop_front() {
                let Some(progress) = unread else { return Ok(Some(Progress::Finished(call))) };
                self.finished.push_front((call.clone(), None));
                return Ok(Some(Progress::Reported(call, progress)));
            }
            if self.inline.is_some() {
                match self.settle_inline(step).await? {
                    None => continue,
                    reported => return Ok(reported),
                }
            }
            if self.executor.cancellation.is_cancelled() {
                return self.stop(step).await;
            }
            if let Some(call) = self.announced.take() {
                self.start(step, call);
            } else if let Some(call) = self.next_waiting(step) {
                self.announced = Some(call.clone());
                return Ok(Some(Progress::Starting(call)));
            } else if self.running.is_empty() {
                return Ok(None);
            } else if let Some(reported) = self.settle_next(step).await {
                return Ok(Some(reported));
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

    /// Starts a call: inline if nothing may run beside it, and it may take as long as it likes.
    fn start(&mut self, step: &mut CallStep<'_>, call: PendingCall) {
        let executor = self.executor;
        let Some(tool) = executor.tool(&call).filter(|_| step.start(call.ticket())) else { return };
        let limit = tool.limit(executor.limit);
        // The limit counts from here: the call has its place and begins to run.
        let timer = limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
        let deadline = timer.map(|(deadline, _)| deadline);
        if let Some(reports) = &self.reports {
            reports.open(call.id());
        }
        let token = executor.cancellation.child_token();
        let cx = self.context(&call, deadline, token.clone());
        let body = Caught::new(tool.call(call.input().to_owned(), cx), telemetry::tool(&call), deadline);
        if executor.max_concurrency == 1 && limit.is_none() {
            self.inline = Some(Inline { call, body, _guard: token.drop_guard() });
        } else {
            let abort = self.tasks.spawn(body);
            let blocking = tool.is_blocking();
            self.running.push(Running { id: abort.id(), call, blocking, abort, token, limit: timer });
        }
    }

    fn context(
        &self,
        call: &PendingCall,
        deadline: Option<Instant>,
        cancellation: CancellationToken,
    ) -> ToolContext {
        ToolContext::new(ContextParts {
            call_id: call.id().to_owned(),
            tool_name: call.name().to_owned(),
            iteration: self.iteration,
            caller: call.caller().and_then(|caller| serde_json::from_str(caller).ok()),
            deadline,
            states: self.executor.states.clone(),
            cancellation,
            reports: self.reports.clone(),
        })
    }

    /// Waits until the call that runs inline ends, or tells how far it is.
    async fn settle_inline(&mut self, step: &mut CallStep<'_>) -> Result<Option<Progress>, Cancelled> {
        let Some(Inline { call, body, .. }) = &mut self.inline else { return Ok(None) };
        let ended = tokio::select! {
            // A result that is there counts, also if the run was cancelled meanwhile.
            biased;
            ended = body => Some(ended),
            () = self.executor.cancellation.cancelled() => None,
            // There is no other call to tell anything.
            (_, progress) = next_report(self.reports.as_deref()) => {
                return Ok(Some(Progress::Reported(call.clone(), progress)));
            }
        };
        let call = call.clone();
        self.inline = None;
        let result = ended.ok_or(Cancelled)?;
        let result = result.unwrap_or_else(|payload| Err(panicked(call.name(), call.id(), payload)));
        step.resolve(call.ticket(), result);
        self.finish(call);
        Ok(None)
    }

    /// Waits until a task ends or its time is up, and settles that call, or until one tells how far
    /// it is.
    async fn settle_next(&mut self, step: &mut CallStep<'_>) -> Option<Progress> {
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
                if let Some(call) = settle(step, &mut self.running, ended, Unsaid::Lost) {
                    self.finish(call);
                }
            }
            // `next` sees it.
            () = self.executor.cancellation.cancelled() => {}
            () = timer => {
                let now = Instant::now();
                let is_late =
                    |task: &mut Running| task.limit.is_some_and(|(deadline, _)| deadline <= now);
                for task in self.running.extract_if(.., is_late).collect::<Vec<_>>() {
                    task.abort.abort();
                    if let Some((_, limit)) = task.limit {
                        step.resolve(task.call.ticket(), Err(timed_out(limit, task.blocking)));
                    }
                    self.finish(task.call.clone());
                }
            }
            (id, progress) = next_report(self.reports.as_deref()) => {
                let task = self.running.iter().find(|task| task.call.id() == id)?;
                return Some(Progress::Reported(task.call.clone(), progress));
            }
        }
        None
    }

    /// The call has its result. What it told last is told before that, and nothing after it: a handler
    /// that can't be stopped may still have something to tell.
    fn finish(&mut self, call: PendingCall) {
        let unread = self.reports.as_ref().and_then(|reports| reports.close(call.id()));
        self.finished.push_back((call, unread));
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

/// What the calls tell, where somebody wants to know.
async fn next_report(reports: Option<&Reports>) -> (String, ToolProgress) {
    match reports {
        Some(reports) => reports.next().await,
        None => std::future::pending().await,
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
