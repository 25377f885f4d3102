//! The loop's state and its decisions.

use std::borrow::Cow;
use std::fmt;

use super::batch::{self, Batch, Unusable};
use super::rules::Rules;
use super::run::Run;
use super::step::{CallStep, SendStep, Step};
use super::stop::{Ended, RunErrorKind, Stop};
use crate::messages::freeze::freeze;
use crate::messages::json::{self, Fields};
use crate::messages::{Conversation, Message, MessageRequest, Repair, StopReason, Usage};

/// What a call reads that the cap kept from running.
const AT_THE_CAP: &str = "not executed: the run reached its limit of requests before this call";
/// What a call reads of a turn whose calls were begun, where its result did not come along.
const UNKNOWN: &str = "no result: the run was broken off, and it is unknown whether this call ran";

/// The loop: a request that grows, the rules it goes by, and what it has to do next.
///
/// It is one word wide, does no IO and is valid at every moment. See the
/// [module](super) for a driver. A clone is a loop of its own: driving both runs the calls of a
/// turn twice.
#[derive(Clone)]
pub struct RunLoop {
    inner: Box<Inner>,
}

#[derive(Clone)]
pub(super) struct Inner {
    pub(super) request: MessageRequest,
    pub(super) rules: Rules,
    state: State,
    unusable: Unusable,
    message: Option<Message>,
    usage: Usage,
    pub(super) iterations: u32,
    request_ids: Vec<String>,
    repairs: Vec<Repair>,
}

#[derive(Clone)]
enum State {
    /// The request is to be sent.
    Send,
    /// The reply asks for calls.
    Calls(Batch),
    /// A reply ended the run.
    Ended(Ended),
    /// The request or the rules can't be used.
    Refused(Stop),
}

impl RunLoop {
    /// A loop that begins with this request.
    ///
    /// It never fails: what must not go out makes a loop whose [`step`](Self::step) is
    /// [`Step::Done`] with the reason, so that nothing of the request is lost. Refused are a kept
    /// error of the request or the rules, two tools of one name, a custom definition without a
    /// handler, and a conversation with open calls, results without calls or repeated ids.
    #[must_use]
    pub fn new(request: impl Into<MessageRequest>, rules: Rules) -> Self {
        let mut request = request.into();
        let state = match rules.check(&request) {
            Ok(()) => State::Send,
            Err(stop) => State::Refused(stop),
        };
        request.set_runner_tools(rules.tools());
        Self {
            inner: Box::new(Inner {
                request,
                rules,
                state,
                unusable: Unusable::new(),
                message: None,
                usage: Usage::default(),
                iterations: 0,
                request_ids: Vec::new(),
                repairs: Vec::new(),
            }),
        }
    }

    /// What to do next. Asking again gives the same step; only completing one, and
    /// [`set_max_iterations`](Self::set_max_iterations), change the answer.
    pub fn step(&mut self) -> Step<'_> {
        let at_the_cap = self.inner.at_the_cap();
        match self.inner.state {
            State::Send if !at_the_cap => Step::Send(SendStep { inner: &mut self.inner }),
            State::Calls(_) if !at_the_cap => Step::Call(CallStep { inner: &mut self.inner }),
            State::Send | State::Calls(_) => {
                Step::Done(Err(Stop::max_iterations(self.inner.rules.max_iterations)))
            }
            State::Ended(ref ended) => Step::Done(Ok(ended)),
            State::Refused(ref stop) => Step::Done(Err(stop.clone())),
        }
    }

    /// Answers each call that was started and has no result: it was interrupted, and what it did
    /// is unknown. Calls of idempotent tools may run again instead. A driver that takes over
    /// from one that was dropped begins with this.
    pub fn interrupt_started(&mut self) {
        let Inner { state, rules, .. } = &mut *self.inner;
        if let State::Calls(batch) = state {
            batch.interrupt_started(rules);
        }
    }

    /// Lets a call run again that was started and has no result. False if there is none with
    /// this id. To be called before [`interrupt_started`](Self::interrupt_started) or the next
    /// drive.
    pub fn rerun(&mut self, id: &str) -> bool {
        self.inner.batch_mut().is_some_and(|batch| batch.rerun(id))
    }

    /// Changes the cap, so that a loop which reached it can go on. At least 1.
    pub fn set_max_iterations(&mut self, requests: u32) {
        self.inner.rules.max_iterations = requests.max(1);
        self.inner.note_why_open();
    }

    /// The conversation so far. While calls of a turn are being answered it ends before their
    /// results.
    #[must_use]
    pub fn conversation(&self) -> &Conversation {
        self.inner.request.messages()
    }

    /// The last reply, also one that broke the rules.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        self.inner.message.as_ref()
    }

    /// The tokens of all replies together.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.inner.usage
    }

    /// How many requests got a reply.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.inner.iterations
    }

    /// The request ids of the replies, in order, where the server gave them.
    #[must_use]
    pub fn request_ids(&self) -> &[String] {
        &self.inner.request_ids
    }

    /// What was changed of the replies so that they may be sent back.
    #[must_use]
    pub fn repairs(&self) -> &[Repair] {
        &self.inner.repairs
    }

    /// The cap on requests.
    #[must_use]
    pub fn max_iterations(&self) -> u32 {
        self.inner.rules.max_iterations
    }

    /// The names that the driver has to have handlers for.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &str> {
        self.inner.rules.handlers.iter().map(|name| &**name)
    }

    /// The conversation, taken out of the loop.
    ///
    /// Once a call of the turn was started or resolved, the results are part of it: what has a
    /// result keeps it, what was started reads "interrupted", the rest "not executed". A turn of
    /// which nothing was begun stays open.
    #[must_use]
    pub fn into_conversation(self) -> Conversation {
        self.into_request().into_conversation()
    }

    /// The request, with the conversation as [`into_conversation`](Self::into_conversation)
    /// gives it. It holds the caller's own definitions, and no error that a setter kept.
    pub fn into_request(mut self) -> MessageRequest {
        if self.inner.batch().is_some_and(Batch::touched) {
            self.inner.finish_calls();
        }
        self.inner.request.set_runner_tools(None);
        self.inner.request.forgive();
        self.inner.request
    }

    /// The finished run, or the loop again if a reply did not end it.
    ///
    /// # Errors
    /// The loop is not done, or was stopped by an error.
    pub fn into_run(self) -> Result<Run, Self> {
        let (State::Ended(ended), Some(message)) = (&self.inner.state, &self.inner.message) else {
            return Err(self);
        };
        let (ended, message) = (ended.clone(), message.clone());
        let mut inner = *self.inner;
        inner.request.set_runner_tools(None);
        Ok(Run {
            message,
            request: inner.request,
            usage: inner.usage,
            iterations: inner.iterations,
            ended,
            request_ids: inner.request_ids,
            repairs: inner.repairs,
        })
    }
}

impl Inner {
    fn at_the_cap(&self) -> bool {
        self.iterations >= self.rules.max_iterations
    }

    pub(super) fn batch(&self) -> Option<&Batch> {
        match &self.state {
            State::Calls(batch) => Some(batch),
            _ => None,
        }
    }

    pub(super) fn batch_mut(&mut self) -> Option<&mut Batch> {
        match &mut self.state {
            State::Calls(batch) => Some(batch),
            _ => None,
        }
    }

    /// Takes a reply in: the one place that knows what each stop reason means.
    pub(super) fn take_in(&mut self, reply: Message) -> Result<(), Stop> {
        self.iterations = self.iterations.saturating_add(1);
        self.usage += reply.usage();
        self.request_ids.extend(reply.request_id().map(ToOwned::to_owned));
        self.message = Some(reply.clone());

        let frozen = freeze(&reply);
        if let Some(message) = &frozen.message {
            if let Some(problem) = self.request.messages().pairing().repeated(message.facts()) {
                return Err(Stop::new(
                    RunErrorKind::Protocol,
                    format!("the reply breaks the API's rules: {problem}; nothing of it was kept or run"),
                ));
            }
            self.request.conversation_mut().append(message);
        }
        self.repairs.extend(frozen.repairs);
        self.request.carry_container(&reply);
        self.unusable.extend(unusable_calls(&reply));

        let has_content = frozen.message.is_some();
        self.state = match reply.stop_reason() {
            Some(StopReason::ToolUse) => match self.request.messages().pairing().answerable() {
                [] => State::Ended(Ended::NoCalls),
                _ => State::Calls(Batch::of(self.request.messages(), &self.rules, &self.unusable)),
            },
            // A paused turn goes back unchanged; calls in it wait for the end of the turn.
            Some(StopReason::PauseTurn) => State::Send,
            // A request that asks for a compaction would only ask again.
            Some(StopReason::Compaction)
                if self.rules.resume_compaction && self.request.get("compaction").is_none() =>
            {
                State::Send
            }
            Some(StopReason::Compaction) => State::Ended(Ended::Compaction),
            Some(StopReason::EndTurn | StopReason::StopSequence) if !has_content => {
                State::Ended(Ended::Empty)
            }
            Some(StopReason::EndTurn) => State::Ended(Ended::EndTurn),
            Some(StopReason::StopSequence) => State::Ended(Ended::StopSequence),
            Some(StopReason::MaxTokens) => State::Ended(Ended::MaxTokens),
            Some(StopReason::ModelContextWindowExceeded) => State::Ended(Ended::ContextWindow),
            Some(StopReason::Refusal) => State::Ended(Ended::Refusal),
            other => State::Ended(Ended::Other(other.cloned())),
        };
        self.note_why_open();
        Ok(())
    }

    /// Lets the conversation remember why the calls at its end are open.
    pub(super) fn note_why_open(&mut self) {
        let why = match &self.state {
            State::Ended(ended) => Cow::Owned(format!("not executed: {}", ended.why_open())),
            State::Calls(batch) if batch.touched() => Cow::Borrowed(UNKNOWN),
            _ if self.at_the_cap() => Cow::Borrowed(AT_THE_CAP),
            _ => Cow::Borrowed(batch::NOT_STARTED),
        };
        self.request.conversation_mut().set_why_open(why);
    }

    pub(super) fn finish_calls(&mut self) {
        if let State::Calls(batch) = &self.state {
            let results = batch.results(self.rules.limits);
            self.request.conversation_mut().append(&results);
            self.unusable.clear();
            self.state = State::Send;
        }
    }
}

/// The calls of a reply without a usable name, or whose input is no object.
fn unusable_calls(reply: &Message) -> Unusable {
    let blocks = json::items(reply.content_json()).unwrap_or_default();
    let fields = blocks.iter().enumerate().filter_map(|(at, block)| Some((at, Fields::parse(block.get())?)));
    fields
        .filter_map(|(at, fields)| {
            let why = batch::unusable(&fields, reply.broken_input(at))?;
            Some((fields.str("id")?.as_ref().into(), why))
        })
        .collect()
}

/// Counts alone: a loop holds somebody's words.
impl fmt::Debug for RunLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.inner.state {
            State::Send => "send",
            State::Calls(_) => "calls",
            State::Ended(_) => "ended",
            State::Refused(_) => "refused",
        };
        f.debug_struct("RunLoop")
            .field("state", &state)
            .field("iterations", &self.inner.iterations)
            .field("usage", &self.inner.usage)
            .field("request", &self.inner.request)
            .field("rules", &self.inner.rules)
            .finish_non_exhaustive()
    }
}
