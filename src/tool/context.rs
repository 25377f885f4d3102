//! What a call may see of the run that it belongs to.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::output::ToolError;
use super::progress::{Reports, ToolProgress};

/// What a call may see of the run that it belongs to.
///
/// A handler made with [`Tool::handler_with`](super::Tool::handler_with) or
/// [`Tool::blocking_with`](super::Tool::blocking_with) gets one. It is cheap to clone.
///
/// ```
/// use agentloop::{Tool, ToolContext, ToolError};
/// use serde_json::json;
///
/// struct Session {
///     user: String,
/// }
///
/// let tool = Tool::new("whoami", "Names the user", json!({"type": "object"}))
///     .handler_with(|(): (), cx: ToolContext| async move {
///         let session = cx.state::<Session>()?;
///         Ok(format!("{}, asked by {}", session.user, cx.call_id()))
///     });
/// # let _ = tool;
/// ```
#[derive(Clone)]
pub struct ToolContext {
    parts: Arc<ContextParts>,
}

/// What a context is made of.
#[derive(Debug, Default)]
pub(crate) struct ContextParts {
    pub(crate) call_id: String,
    pub(crate) tool_name: String,
    pub(crate) iteration: u32,
    pub(crate) caller: Option<Box<RawValue>>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) states: States,
    pub(crate) cancellation: CancellationToken,
    /// `None` where nobody watches.
    pub(crate) reports: Option<Arc<Reports>>,
}

impl ToolContext {
    pub(crate) fn new(parts: ContextParts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    /// The id of the call.
    ///
    /// Use it as the idempotency key of whatever the call does to the world: a call that is run
    /// again, because its tool is idempotent or because you said so, has the same id.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.parts.call_id
    }

    /// The name that the model called.
    #[must_use]
    pub fn tool_name(&self) -> &str {
        &self.parts.tool_name
    }

    /// The number of the request whose reply holds the call, from 1.
    #[must_use]
    pub fn iteration(&self) -> u32 {
        self.parts.iteration
    }

    /// The `caller` of the call as JSON, where the API sent one: `{"type":"direct"}`, or the code
    /// that called. Its `allowed_callers` guide the model and protect nothing.
    #[must_use]
    pub fn caller(&self) -> Option<&str> {
        self.parts.caller.as_deref().map(RawValue::get)
    }

    /// When the call's limit of time ends, if it has one.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.parts.deadline
    }

    /// The state of a type, as it was given to the runner. One given as `Arc<T>` is found as `T`
    /// too.
    ///
    /// # Errors
    /// Nobody set one; the text names the type. With `?` it becomes the call's result.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, ToolError> {
        let states = &self.parts.states;
        let shared = || states.get::<Arc<T>>().map(|state| Arc::clone(&*state));
        states.get().or_else(shared).ok_or_else(|| {
            ToolError::new(format!("no state of type `{}` was given to the runner", type_name::<T>()))
        })
    }

    /// Tells whoever watches the run how far the call is, as
    /// [`RunEvent::ToolProgress`](crate::RunEvent::ToolProgress). It waits for nothing: a watcher who is
    /// slow gets the last report alone, and where nobody watches it does nothing. The model sees none.
    ///
    /// ```
    /// use agentloop::tool::ToolProgress;
    /// use agentloop::{Tool, ToolContext};
    /// use serde_json::json;
    ///
    /// let tool = Tool::new("index", "Indexes the files", json!({"type": "object"}))
    ///     .handler_with(|(): (), cx: ToolContext| async move {
    ///         for file in 1..=10 {
    ///             // …
    ///             cx.report(ToolProgress::new(f64::from(file)).total(10.0));
    ///         }
    ///         "10 files"
    ///     });
    /// # let _ = tool;
    /// ```
    pub fn report(&self, progress: ToolProgress) {
        if let Some(reports) = &self.parts.reports {
            reports.put(self.call_id(), progress);
        }
    }

    /// The token that is cancelled when nobody waits for the call any longer: its run was
    /// dropped or cancelled, or its time is up.
    ///
    /// An async handler is stopped at its next await and rarely needs it. One that blocks is
    /// not, and should look at it between steps.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.parts.cancellation
    }

    /// True once nobody waits for the call any longer.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.parts.cancellation.is_cancelled()
    }

    /// Waits until nobody waits for the call any longer.
    ///
    /// # Cancel safety
    /// It only waits; dropping it changes nothing.
    pub async fn cancelled(&self) {
        self.parts.cancellation.cancelled().await;
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("call_id", &self.call_id())
            .field("tool_name", &self.tool_name())
            .field("iteration", &self.iteration())
            .field("caller", &self.caller())
            .field("deadline", &self.deadline())
            .field("states", &self.parts.states)
            .field("cancelled", &self.is_cancelled())
            .finish()
    }
}

/// One value per type. Clones share the values, and a change is not seen by other clones.
#[derive(Clone, Default)]
pub(crate) struct States {
    entries: Arc<Vec<State>>,
}

#[derive(Clone)]
struct State {
    id: TypeId,
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl States {
    /// Sets the value of its type, in place of an earlier one.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        let state = State { id: TypeId::of::<T>(), type_name: type_name::<T>(), value: Arc::new(value) };
        let entries = Arc::make_mut(&mut self.entries);
        match entries.iter_mut().find(|entry| entry.id == state.id) {
            Some(entry) => *entry = state,
            None => entries.push(state),
        }
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let entry = self.entries.iter().find(|entry| entry.id == TypeId::of::<T>())?;
        Arc::clone(&entry.value).downcast().ok()
    }
}

/// The types alone: a value may be secret.
impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.iter().map(|entry| entry.type_name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Session(u8);

    fn with(states: States) -> ToolContext {
        ToolContext::new(ContextParts { states, ..ContextParts::default() })
    }

    #[test]
    fn a_state_is_found_by_its_type_alone_or_shared() {
        let mut states = States::default();
        states.insert(Session(1));
        let before = states.clone();
        states.insert(Session(2));
        states.insert(String::from("secret"));
        assert_eq!(with(states.clone()).state::<Session>().unwrap().0, 2);
        assert_eq!(with(before).state::<Session>().unwrap().0, 1);

        let shared = Arc::new(7_u8);
        states.insert(Arc::clone(&shared));
        let cx = with(states);
        assert!(Arc::ptr_eq(&cx.state::<u8>().unwrap(), &shared));
        assert!(Arc::ptr_eq(&*cx.state::<Arc<u8>>().unwrap(), &shared));
        let debug = format!("{cx:?}");
        assert!(debug.contains("Session") && !debug.contains("secret"), "{debug}");
    }

    #[test]
    fn a_state_that_nobody_set_is_named() {
        let error = with(States::default()).state::<Session>().map(|_| ()).unwrap_err();
        let text = error.message();
        assert!(text.contains("no state of type `") && text.contains("Session`"), "{text}");
    }

    #[tokio::test]
    async fn cancelling_is_seen_by_every_clone() {
        let cancellation = CancellationToken::new();
        let cx =
            ToolContext::new(ContextParts { cancellation: cancellation.clone(), ..ContextParts::default() });
        let clone = cx.clone();
        assert!(!clone.is_cancelled());
        cancellation.cancel();
        clone.cancelled().await;
        assert!(cx.is_cancelled() && cx.cancellation().is_cancelled());
    }
}
