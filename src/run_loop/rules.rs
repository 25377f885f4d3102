//! What a loop goes by.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::stop::Stop;
use crate::error::{Error, Result};
use crate::messages::MessageRequest;
use crate::messages::json::{self, Fields};

/// The number of requests after which a run stops unless told otherwise.
const MAX_ITERATIONS: u32 = 10;
/// What is wrong with a cap of none.
pub(crate) const AT_LEAST_ONE: &str =
    "`max_iterations` must be at least 1: a run makes a request before anything else";
/// A result holds at most this much text unless told otherwise.
pub(crate) const MAX_RESULT_BYTES: usize = 1024 * 1024;
/// An error result holds at most this much text unless told otherwise.
pub(crate) const MAX_ERROR_BYTES: usize = 16 * 1024;

/// The rules of a loop: the definitions it adds, which names have a handler, and the limits.
///
/// Setters never fail; the first error makes the loop one that is done before it begins.
#[derive(Clone)]
#[must_use]
pub struct Rules {
    definitions: Vec<Definition>,
    /// The names that have a handler, in the order in which they came.
    pub(super) handlers: Vec<Box<str>>,
    handled: HashSet<Box<str>>,
    pub(super) idempotent: HashSet<Box<str>>,
    pub(super) max_iterations: u32,
    pub(super) resume_compaction: bool,
    pub(super) limits: Limits,
    error: Option<Error>,
}

/// An entry of `tools`, shared by all loops of a runner.
#[derive(Clone)]
struct Definition {
    json: Arc<RawValue>,
    /// A toolset has none.
    name: Option<Box<str>>,
    /// True if the API knows the tool only from this definition.
    is_custom: bool,
}

impl Definition {
    fn read(json: &RawValue) -> Self {
        let fields = Fields::parse(json.get()).unwrap_or_default();
        Self {
            json: json.to_owned().into(),
            name: fields.str("name").map(|name| (&*name).into()),
            is_custom: fields.str("type").is_none_or(|kind| kind == "custom"),
        }
    }
}

/// How much text a result may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) result: usize,
    pub(super) error: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            definitions: Vec::new(),
            handlers: Vec::new(),
            handled: HashSet::new(),
            idempotent: HashSet::new(),
            max_iterations: MAX_ITERATIONS,
            resume_compaction: false,
            limits: Limits { result: MAX_RESULT_BYTES, error: MAX_ERROR_BYTES },
            error: None,
        }
    }
}

impl Rules {
    /// No tools, ten requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry of `tools`, as JSON. The loop sends it behind the request's own.
    pub fn definition(mut self, json: &str) -> Self {
        match serde_json::from_str::<&RawValue>(json) {
            Ok(raw) if json::is_object(raw) => {
                self.definitions.push(Definition::read(raw));
                self
            }
            _ => self.fail("a tool definition must be a JSON object"),
        }
    }

    /// Says that calls of this name are answered by the driver. Calls of other names are
    /// answered by the loop.
    pub fn handler(mut self, name: &str) -> Self {
        if !self.handled.insert(name.into()) {
            return self.refuse(taken(name));
        }
        self.handlers.push(name.into());
        self
    }

    /// Says that a call of this name which was cut off while it ran may simply be run again.
    pub fn idempotent(mut self, name: &str) -> Self {
        self.idempotent.insert(name.into());
        self
    }

    /// How many requests the loop may make; resumed pauses count, HTTP retries do not. 10 by
    /// default; 0 is refused.
    pub fn max_iterations(mut self, requests: u32) -> Self {
        if requests == 0 {
            return self
                .fail("`max_iterations` must be at least 1: a run makes a request before anything else");
        }
        self.max_iterations = requests;
        self
    }

    /// Goes on by itself after the stop reason `compaction`, which otherwise ends the run.
    pub fn resume_compaction(mut self, resume: bool) -> Self {
        self.resume_compaction = resume;
        self
    }

    /// How many bytes of text a result may hold, 1 MiB by default. A longer text keeps its
    /// beginning and its end, with a note of its size between them.
    pub fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.limits.result = bytes;
        self
    }

    /// How many bytes of text an error result may hold, 16 KiB by default.
    pub fn max_error_bytes(mut self, bytes: usize) -> Self {
        self.limits.error = bytes;
        self
    }

    fn fail(self, text: impl Into<String>) -> Self {
        self.refuse(Error::request(text.into()))
    }

    /// Keeps the first error.
    pub(crate) fn refuse(mut self, error: Error) -> Self {
        self.error.get_or_insert(error);
        self
    }

    pub(super) fn has_handler(&self, name: &str) -> bool {
        self.handled.contains(name)
    }

    /// What would make the loop answer for a request that nobody meant: a kept error, a name that
    /// two definitions have, a custom definition that no handler answers, calls that are open.
    pub(super) fn check(&self, request: &MessageRequest) -> Result<(), Stop> {
        if let Some(error) = &self.error {
            return Err(error.clone().into());
        }
        request.check()?;
        let own: Vec<_> = request.tools().iter().map(|json| Definition::read(json)).collect();
        let mut names = HashSet::new();
        for definition in own.iter().chain(&self.definitions) {
            let Some(name) = &definition.name else { continue };
            if !names.insert(name) {
                return Err(taken(name).into());
            }
            if definition.is_custom && !self.has_handler(name) {
                return Err(unanswered(name).into());
            }
        }
        Ok(request.messages().sendable()?)
    }

    /// Adds a tool of a runner.
    ///
    /// # Errors
    /// Its name is taken, nobody would answer its calls, or no call would reach its handler. The
    /// rules are then what they were.
    pub(crate) fn add(&mut self, json: &RawValue, has_handler: bool, idempotent: bool) -> Result<()> {
        let definition = Definition::read(json);
        match &definition.name {
            Some(name) => {
                let is_taken = |other: &Definition| other.name.as_ref() == Some(name);
                if self.handled.contains(name) || (!has_handler && self.definitions.iter().any(is_taken)) {
                    return Err(taken(name));
                }
                if definition.is_custom && !has_handler {
                    return Err(unanswered(name));
                }
                if has_handler {
                    self.handled.insert(name.clone());
                    self.handlers.push(name.clone());
                }
                if idempotent {
                    self.idempotent.insert(name.clone());
                }
            }
            None if has_handler => {
                return Err(Error::request(
                    "a tool without a name can't have a handler: no call would reach it",
                ));
            }
            None => {}
        }
        self.definitions.push(definition);
        Ok(())
    }

    /// The definitions as they stand in the `tools` of a request, separated by commas.
    pub(super) fn tools(&self) -> Option<Arc<str>> {
        let texts: Vec<_> = self.definitions.iter().map(|definition| definition.json.get()).collect();
        (!texts.is_empty()).then(|| texts.join(",").into())
    }
}

fn taken(name: &str) -> Error {
    Error::request(format!("two tools are named `{}`", name.escape_debug()))
}

fn unanswered(name: &str) -> Error {
    Error::request(format!(
        "no handler answers the tool `{}`: give the runner a tool of this name with a handler",
        name.escape_debug()
    ))
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("definitions", &self.definitions.len())
            .field("handlers", &self.handlers)
            .field("max_iterations", &self.max_iterations)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
