//! The steps: guards that borrow the loop until they are completed.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::batch::{Batch, Call, Slot, SlotState};
use super::core::Inner;
use super::stop::{Ended, Stop};
use crate::messages::{Message, MessageRequest};
use crate::tool::{ToolError, ToolOutput};

/// What a driver has to do next. Exhaustive on purpose: a driver must handle every step.
#[derive(Debug)]
#[must_use = "a step that is not completed is given again"]
#[allow(clippy::exhaustive_enums, reason = "a driver must handle every step")]
pub enum Step<'a> {
    /// Send the request and complete the step with the reply.
    Send(SendStep<'a>),
    /// Answer the calls, in any order, and finish the step.
    Call(CallStep<'a>),
    /// There is nothing left to do, or nothing that may be done.
    Done(Result<&'a Ended, Stop>),
}

/// A request that waits to be sent. Dropping it, or failing to send, changes nothing: the next
/// step is the same request, and it does not count.
pub struct SendStep<'a> {
    pub(super) inner: &'a mut Inner,
}

/// Calls that wait for results. Dropping it keeps what was resolved and started.
pub struct CallStep<'a> {
    pub(super) inner: &'a mut Inner,
}

/// Names a call of the current turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    iteration: u32,
    slot: usize,
}

/// A call that has no result yet and that a handler may see.
#[derive(Clone)]
pub struct PendingCall {
    ticket: Ticket,
    call: Arc<Call>,
    started: bool,
}

impl SendStep<'_> {
    /// The request: the caller's, with the definitions of the rules and the conversation so far.
    pub fn request(&self) -> &MessageRequest {
        &self.inner.request
    }

    /// Takes the reply in.
    ///
    /// # Errors
    /// The reply breaks the API's rules: a call has no usable id, or one that the conversation
    /// has already. Nothing of it is kept in the conversation and nothing may be run; it counts as
    /// a request, its usage is added, and [`RunLoop::message`](super::RunLoop::message) shows it.
    /// The next step is the same request again.
    pub fn complete(self, reply: Message) -> Result<(), Stop> {
        self.inner.take_in(reply)
    }
}

impl CallStep<'_> {
    /// The number of the request that asked for the calls, from 1.
    #[must_use]
    pub fn iteration(&self) -> u32 {
        self.inner.iterations
    }

    /// The calls that have no result yet, in order. Calls that the loop answers itself, unknown
    /// names and inputs that are no object, are not among them.
    #[must_use]
    pub fn pending(&self) -> Vec<PendingCall> {
        let iteration = self.inner.iterations;
        let slots = self.batch().map(|batch| &*batch.slots).unwrap_or_default();
        slots
            .iter()
            .enumerate()
            .filter_map(|(slot, entry)| {
                if matches!(entry.state, SlotState::Refused(_) | SlotState::Settled(_)) {
                    return None;
                }
                let (call, started) = (Arc::clone(&entry.call), entry.was_started());
                Some(PendingCall { ticket: Ticket { iteration, slot }, call, started })
            })
            .collect()
    }

    /// Notes that the call begins to run, before its body is entered. False if it may not: it
    /// has a result, or was started before and nobody said that it may run again.
    #[must_use = "a call that may not start must not be run"]
    pub fn start(&mut self, ticket: Ticket) -> bool {
        let slot = self.batch_mut(ticket).and_then(|batch| batch.slots.get_mut(ticket.slot));
        let may_start = match slot {
            Some(slot) if matches!(slot.state, SlotState::Waiting) => {
                slot.state = SlotState::Started;
                true
            }
            _ => false,
        };
        self.inner.note_why_open();
        may_start
    }

    /// True if [`start`](Self::start) would let the call run.
    pub(crate) fn may_start(&self, ticket: Ticket) -> bool {
        self.slot(ticket).is_some_and(|slot| matches!(slot.state, SlotState::Waiting))
    }

    /// The result of a call as the model will read it: a `tool_result` block. `None` until there
    /// is one.
    #[must_use]
    pub fn result(&self, ticket: Ticket) -> Option<&RawValue> {
        match &self.slot(ticket)?.state {
            SlotState::Refused(result) | SlotState::Settled(result) => Some(result),
            SlotState::Waiting | SlotState::Started => None,
        }
    }

    fn slot(&self, ticket: Ticket) -> Option<&Slot> {
        let batch = self.batch().filter(|_| ticket.iteration == self.inner.iterations)?;
        batch.slots.get(ticket.slot)
    }

    /// Gives the result of a call. The first result stays: false if there was one.
    pub fn resolve(&mut self, ticket: Ticket, result: Result<ToolOutput, ToolError>) -> bool {
        let limits = self.inner.rules.limits;
        let is_first = self.batch_mut(ticket).is_some_and(|batch| batch.settle(ticket.slot, result, limits));
        self.inner.note_why_open();
        is_first
    }

    /// Ends the turn: all results go into one user message, in the order of the calls. A call
    /// without a result is told that it was interrupted, or not executed.
    pub fn finish(self) {
        self.inner.finish_calls();
    }

    fn batch(&self) -> Option<&Batch> {
        self.inner.batch()
    }

    fn batch_mut(&mut self, ticket: Ticket) -> Option<&mut Batch> {
        if ticket.iteration != self.inner.iterations {
            return None;
        }
        self.inner.batch_mut()
    }
}

impl PendingCall {
    /// Names the call to its step.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The call's id, unique in the conversation.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.call.id
    }

    /// The tool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.call.name
    }

    /// The input, a JSON object, as the model wrote it.
    #[must_use]
    pub fn input(&self) -> &RawValue {
        &self.call.input
    }

    /// Who called, as JSON: absent for most calls, code of the API for a programmatic one.
    #[must_use]
    pub fn caller(&self) -> Option<&str> {
        self.call.caller.as_deref()
    }

    /// True if the call was started before and its driver was dropped before it had a result. It
    /// may have had effects.
    #[must_use]
    pub fn was_started(&self) -> bool {
        self.started
    }
}

impl fmt::Debug for SendStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStep").field("request", &self.inner.request).finish()
    }
}

impl fmt::Debug for CallStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallStep").field("pending", &self.pending()).finish()
    }
}

/// Without the input: a call may repeat what the user said.
impl fmt::Debug for PendingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall")
            .field("id", &self.id())
            .field("name", &self.name())
            .field("started", &self.started)
            .finish_non_exhaustive()
    }
}
