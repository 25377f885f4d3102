//! Which calls are open, and what may follow: the pairing of calls with results, judged over the
//! joined view (the API joins messages of the same role that stand in a row).

use std::collections::HashSet;

use super::facts::{Call, Facts, Role};
use super::json;

/// At most this many ids are listed in a message.
const LISTED: usize = 20;

/// A client call without a result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenCall {
    /// The index of its message.
    pub message: usize,
    /// The id that a result must name.
    pub id: Box<str>,
    /// The tool's name, empty where the call has none.
    pub name: Box<str>,
    pub(crate) toolset: Option<Box<str>>,
}

/// What is wrong at a message.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) message: usize,
    pub(crate) text: String,
    /// True for what nobody may guess about: open calls, results without calls, repeated ids.
    /// Everything else is the API's to judge.
    pub(crate) refused: bool,
}

/// The pairing so far. It grows by one message at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairing {
    /// The id of every call, the client's and the API's own.
    seen: HashSet<Box<str>>,
    /// Who speaks in the turn at the end.
    turn: Option<Role>,
    /// The calls of the last assistant turn that have no result.
    open: Vec<OpenCall>,
    /// Earlier calls that never got one.
    abandoned: Vec<OpenCall>,
    /// The API's own calls without a result so far; that may come several turns later.
    unfinished: Vec<Box<str>>,
    /// The calls of the last assistant turn which code of the API waits for.
    programmatic: Vec<Box<str>>,
    /// True once the user turn at the end holds more than results.
    user_spoke: bool,
    problems: Vec<Problem>,
}

impl Pairing {
    /// The pairing of these messages.
    pub(crate) fn of<'a>(messages: impl Iterator<Item = &'a Facts>) -> Self {
        let mut pairing = Self::default();
        for (index, facts) in messages.enumerate() {
            pairing.add(index, facts);
        }
        pairing
    }

    /// What the message would break if it stood at `index`, the worst first. An assistant message
    /// after open calls is among it, a user message after them is not: the calls can still be
    /// answered before it.
    pub(crate) fn judge(&self, index: usize, facts: &Facts) -> Option<Problem> {
        let refuse = |text: String| Some(Problem { message: index, text, refused: true });
        let doubt = |text: String| Some(Problem { message: index, text, refused: false });
        match facts.role {
            _ if facts.effort_only => {}
            Role::Assistant => {
                if self.turn != Some(Role::Assistant) && !self.open.is_empty() && !facts.compacts {
                    return refuse(format!(
                        "an assistant message follows, but these calls have no result: {}",
                        ids(&self.open)
                    ));
                }
                if let Some(problem) = self.repeated(facts) {
                    return refuse(problem);
                }
                let mut new = HashSet::new();
                let mut ids = facts.server_calls.iter().map(|call| &call.id);
                if let Some(id) = ids.find(|id| self.seen.contains(*id) || !new.insert(*id)) {
                    return doubt(format!(
                        "the id {id} of a server tool call is not new in the conversation"
                    ));
                }
            }
            Role::User => {
                let open: HashSet<_> = self.open.iter().map(|call| &call.id).collect();
                let mut answered = HashSet::with_capacity(facts.results.len());
                for id in &facts.results {
                    if !answered.insert(id) {
                        return refuse(format!("the call {} is answered twice", json::shown(id)));
                    }
                    if !open.contains(id) {
                        return refuse(match self.seen.contains(id) {
                            true => format!(
                                "the result for {id} does not follow the turn that called, or comes a second time"
                            ),
                            false => format!("the result for {id} answers no call"),
                        });
                    }
                }
                if facts.results_late
                    || (self.user_spoke && self.turn == Some(Role::User) && !facts.results.is_empty())
                {
                    return doubt("results must come before everything else in a user turn".to_owned());
                }
                if facts.has_other && self.waiting_for().next().is_some() {
                    return doubt(format!(
                        "the turn before is not finished, the API waits for {}: send the conversation first, as it is or with the results of its calls alone, or remove that turn with `pop_turn`",
                        listed(self.waiting_for())
                    ));
                }
            }
            _ => {
                if !self.open.is_empty() {
                    return refuse(format!("these calls have no result yet: {}", ids(&self.open)));
                }
            }
        }
        None
    }

    /// Takes a message in, whatever it breaks.
    pub(crate) fn add(&mut self, index: usize, facts: &Facts) {
        let problem = self.judge(index, facts);
        if facts.compacts {
            self.forget();
        }
        // The first of each sort is all that anybody asks for.
        self.problems.extend(
            problem.filter(|problem| !self.problems.iter().any(|other| other.refused == problem.refused)),
        );
        if facts.effort_only {
            return;
        }
        match facts.role {
            Role::Assistant => {
                if self.turn != Some(Role::Assistant) {
                    self.abandoned.append(&mut self.open);
                    self.programmatic.clear();
                }
                self.unfinished.retain(|id| !facts.server_results.contains(id));
                for call in &facts.server_calls {
                    self.seen.insert(call.id.clone());
                    if !call.finished {
                        self.unfinished.push(call.id.clone());
                    }
                }
                for call in &facts.calls {
                    let Some(id) = &call.id else { continue };
                    if call.programmatic {
                        self.programmatic.push(id.clone());
                    }
                    if self.seen.insert(id.clone()) {
                        let Call { name, toolset, .. } = call.clone();
                        self.open.push(OpenCall { message: index, id: id.clone(), name, toolset });
                    }
                }
            }
            Role::User => {
                if self.turn != Some(Role::User) {
                    self.user_spoke = false;
                }
                let answered: HashSet<_> = facts.results.iter().collect();
                self.open.retain(|call| !answered.contains(&call.id));
                self.user_spoke |= facts.has_other;
            }
            _ => self.abandoned.append(&mut self.open),
        }
        self.turn = Some(facts.role.clone());
    }

    /// The calls without a result, in order.
    pub(crate) fn open(&self) -> impl Iterator<Item = &OpenCall> {
        self.abandoned.iter().chain(&self.open)
    }

    /// The calls at the end that a result can still answer.
    pub(crate) fn answerable(&self) -> &[OpenCall] {
        &self.open
    }

    /// True if some call can no longer be answered at the end.
    pub(crate) fn has_abandoned(&self) -> bool {
        !self.abandoned.is_empty()
    }

    /// True if a result at the end would stand behind text.
    pub(crate) fn user_spoke(&self) -> bool {
        self.turn == Some(Role::User) && self.user_spoke
    }

    /// True if the conversation ends in an assistant turn.
    pub(crate) fn ends_in_assistant(&self) -> bool {
        self.turn == Some(Role::Assistant)
    }

    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The first id among the calls of a new message that is unusable, or that is not new.
    pub(crate) fn repeated(&self, facts: &Facts) -> Option<String> {
        let mut new: HashSet<_> = facts.server_calls.iter().map(|call| &call.id).collect();
        facts.calls.iter().find_map(|call| match &call.id {
            None => Some("a tool_use block has no usable id".to_owned()),
            Some(id) if self.seen.contains(id) || !new.insert(id) => {
                Some(format!("the id {} of a tool_use block is not new in the conversation", json::shown(id)))
            }
            Some(_) => None,
        })
    }

    /// Drops what stands before a compaction block.
    fn forget(&mut self) {
        self.open.clear();
        self.abandoned.clear();
        self.unfinished.clear();
        self.programmatic.clear();
        self.problems.clear();
    }

    fn waiting_for(&self) -> impl Iterator<Item = &str> {
        self.unfinished.iter().chain(&self.programmatic).map(|id| &**id)
    }
}

/// The ids of calls, for a message.
pub(crate) fn ids<'a>(calls: impl IntoIterator<Item = &'a OpenCall>) -> String {
    listed(calls.into_iter().map(|call| &*call.id))
}

/// The first ids, for a message.
fn listed<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    let mut ids = ids.peekable();
    let mut text = ids.by_ref().take(LISTED).map(json::shown).collect::<Vec<_>>().join(", ");
    if ids.peek().is_some() {
        text.push_str(", …");
    }
    text
}
