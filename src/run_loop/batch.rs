//! The calls of one turn and what became of each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::result;
use super::rules::{Limits, Rules};
use crate::messages::facts::Facts;
use crate::messages::json;
use crate::messages::json::Fields;
use crate::messages::{Conversation, MessageParam, Role};
use crate::tool::{ToolError, ToolOutput};

/// What a call reads that was cut off while it ran.
const INTERRUPTED: &str = "interrupted while it ran, its effects are unknown";
/// What a call reads that was never started.
pub(super) const NOT_STARTED: &str = "not executed: this call was not started";
/// What a call reads that came before another model took over.
const TAKEN_OVER: &str = "not executed: another model took over after this call";
/// At most this many names are listed to a model that called another.
const LISTED: usize = 50;

/// One client call, as the turn holds it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: Box<str>,
    pub(super) name: Box<str>,
    pub(super) input: Box<RawValue>,
    pub(super) caller: Option<Box<str>>,
    pub(super) toolset: Option<Box<str>>,
}

/// The calls of a turn without a usable name, or whose input is no object, by id, with what to tell
/// the model.
pub(super) type Unusable = HashMap<Box<str>, String>;

#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) slots: Vec<Slot>,
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) call: Arc<Call>,
    pub(super) state: SlotState,
    /// True if the call was started before and waits to be run again.
    pub(super) ran_before: bool,
}

#[derive(Clone, Debug)]
pub(super) enum SlotState {
    /// The loop answered; no handler sees the call.
    Refused(Box<RawValue>),
    Waiting,
    Started,
    Settled(Box<RawValue>),
}

impl Batch {
    /// The open calls of the turn at the end of the conversation, those of its paused parts
    /// included. `unusable` says which have an input that is no object, and what it is instead.
    pub(super) fn of(conversation: &Conversation, rules: &Rules, unusable: &Unusable) -> Self {
        let open = conversation.pairing().answerable();
        let first = open.first().map_or(conversation.len(), |call| call.message);
        let ids: HashSet<_> = open.iter().map(|call| &call.id).collect();
        let mut slots = Vec::with_capacity(open.len());
        for message in conversation.iter_from(first) {
            let message = Fields::parse(message.json()).unwrap_or_default();
            let blocks = message.get("content").and_then(|content| json::items(content.get()));
            for block in blocks.unwrap_or_default() {
                let Some(fields) = Fields::parse(block.get()) else { continue };
                if fields.str("type").is_some_and(|kind| kind == "fallback") {
                    slots.iter_mut().for_each(|slot: &mut Slot| slot.refuse(TAKEN_OVER, rules.limits));
                    continue;
                }
                let Some(facts) = Facts::call(&fields) else { continue };
                let Some(id) = facts.id.filter(|id| ids.contains(id)) else { continue };
                let call = Call {
                    name: facts.name,
                    toolset: facts.toolset,
                    input: fields.get("input").map(ToOwned::to_owned).unwrap_or_default(),
                    caller: fields.get("caller").map(|caller| caller.get().into()),
                    id,
                };
                let state = match refuse(&call, rules, unusable) {
                    Some(text) => SlotState::Refused(result::refusal(&call, &text, rules.limits)),
                    None => SlotState::Waiting,
                };
                slots.push(Slot { call: Arc::new(call), state, ran_before: false });
            }
        }
        Self { slots }
    }

    /// True once a call was started, or settled by the driver: from then on the turn can't be
    /// handed back as if nothing had happened.
    pub(super) fn touched(&self) -> bool {
        let is_touched = |slot: &Slot| slot.was_started() || matches!(slot.state, SlotState::Settled(_));
        self.slots.iter().any(is_touched)
    }

    /// Answers each started call that may not be run again.
    pub(super) fn interrupt_started(&mut self, rules: &Rules) {
        for slot in &mut self.slots {
            if matches!(slot.state, SlotState::Started) {
                match rules.idempotent.contains(&slot.call.name) {
                    true => slot.wait_again(),
                    false => {
                        let text = result::refusal(&slot.call, INTERRUPTED, rules.limits);
                        slot.state = SlotState::Settled(text);
                    }
                }
            }
        }
    }

    /// Lets a started call be run again; false if there is no such call.
    pub(super) fn rerun(&mut self, id: &str) -> bool {
        let started = |slot: &&mut Slot| *slot.call.id == *id && matches!(slot.state, SlotState::Started);
        self.slots.iter_mut().find(started).map(Slot::wait_again).is_some()
    }

    /// Settles a call; false if it is settled already.
    pub(super) fn settle(
        &mut self,
        slot: usize,
        result: Result<ToolOutput, ToolError>,
        limits: Limits,
    ) -> bool {
        match self.slots.get_mut(slot) {
            Some(slot) if matches!(slot.state, SlotState::Waiting | SlotState::Started) => {
                slot.state = SlotState::Settled(result::shape(&slot.call, result, limits));
                true
            }
            _ => false,
        }
    }

    /// The message that answers every call, in the order of the calls. What has no result yet is
    /// told apart: cut off while it ran, or never started.
    pub(super) fn results(&self, limits: Limits) -> MessageParam {
        let results: Vec<_> = self
            .slots
            .iter()
            .map(|slot| match &slot.state {
                SlotState::Refused(result) | SlotState::Settled(result) => result.clone(),
                SlotState::Started | SlotState::Waiting if slot.was_started() => {
                    result::refusal(&slot.call, INTERRUPTED, limits)
                }
                SlotState::Started | SlotState::Waiting => result::refusal(&slot.call, NOT_STARTED, limits),
            })
            .collect();
        MessageParam::frozen(Role::User, &json::to_raw(&results))
    }
}

impl Slot {
    /// True if the body of the call was entered, however that ended.
    pub(super) fn was_started(&self) -> bool {
        self.ran_before || matches!(self.state, SlotState::Started)
    }

    fn wait_again(&mut self) {
        self.state = SlotState::Waiting;
        self.ran_before = true;
    }

    fn refuse(&mut self, text: &str, limits: Limits) {
        self.state = SlotState::Refused(result::refusal(&self.call, text, limits));
    }
}

/// Why the loop answers a call itself.
fn refuse(call: &Call, rules: &Rules, unusable: &Unusable) -> Option<String> {
    if let Some(text) = unusable.get(&call.id) {
        return Some(text.clone());
    }
    if call.toolset.is_none() && rules.has_handler(&call.name) {
        return None;
    }
    let known: Vec<_> = rules.handlers.iter().take(LISTED).map(|name| &**name).collect();
    let known = match known.is_empty() {
        true => "there are none".to_owned(),
        false => format!("the tools are: {}", known.join(", ")),
    };
    Some(format!("there is no tool named `{}`; {known}", json::shown(&call.name)))
}

/// What to tell the model of a call without a usable name, or whose input is no object; `None` if
/// both are as they must be. `broken` says what is wrong with an input that is no JSON.
pub(super) fn unusable(fields: &Fields<'_>, broken: Option<&str>) -> Option<String> {
    if Facts::call(fields)?.name.is_empty() {
        return Some("the call names no tool; nothing ran".to_owned());
    }
    match broken {
        Some(place) => Some(format!("the tool input is not valid JSON: {place}; the tool did not run")),
        None => unusable_input(fields),
    }
}

fn unusable_input(fields: &Fields<'_>) -> Option<String> {
    let what = match fields.get("input").map(RawValue::get) {
        None => "it is missing",
        Some(input) => match input.as_bytes().first() {
            Some(b'{') => return None,
            Some(b'[') => "it is an array",
            Some(b'"') => "it is a string",
            Some(b'n') => "it is null",
            Some(b't' | b'f') => "it is a boolean",
            _ => "it is a number",
        },
    };
    Some(format!("the tool input is not an object: {what}; the tool did not run"))
}
