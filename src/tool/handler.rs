//! Handlers: from the text of a call's input to what it gives back, in one future.

use std::any::TypeId;
use std::future::Future;
use std::panic;
use std::pin::Pin;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Number, Value};
use tokio::task::{self, JoinHandle};

use super::context::ToolContext;
use super::output::{IntoToolResult, ToolError, ToolOutput};

/// A call on its way. All of the handler's code runs when it is polled, so that whoever polls it
/// can catch every panic.
pub(crate) type ToolFuture = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send>>;

/// A handler whose types are erased.
#[derive(Clone)]
pub(super) struct Handler {
    call: Arc<dyn Fn(Box<RawValue>, ToolContext) -> ToolFuture + Send + Sync>,
    blocking: bool,
}

impl Handler {
    pub(super) fn asynchronous<T, F, Fut, R>(f: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoToolResult,
    {
        let f = Arc::new(f);
        let call = move |input: Box<RawValue>, cx: ToolContext| -> ToolFuture {
            let f = Arc::clone(&f);
            Box::pin(async move {
                let input = parse::<T>(&input)?;
                f(input, cx).await.into_tool_result()
            })
        };
        Self { call: Arc::new(call), blocking: false }
    }

    pub(super) fn blocking<T, F, R>(f: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, ToolContext) -> R + Send + Sync + 'static,
        R: IntoToolResult,
    {
        let f = Arc::new(f);
        let call = move |input: Box<RawValue>, cx: ToolContext| -> ToolFuture {
            let f = Arc::clone(&f);
            Box::pin(async move {
                let span = tracing::Span::current();
                let work = move || span.in_scope(|| f(parse::<T>(&input)?, cx).into_tool_result());
                let mut work = AbortOnDrop(task::spawn_blocking(work));
                match (&mut work.0).await {
                    Ok(result) => result,
                    Err(error) => match error.try_into_panic() {
                        Ok(payload) => panic::resume_unwind(payload),
                        Err(_) => Err(ToolError::new("the tool did not run: the program is shutting down")),
                    },
                }
            })
        };
        Self { call: Arc::new(call), blocking: true }
    }

    pub(super) fn call(&self, input: Box<RawValue>, cx: ToolContext) -> ToolFuture {
        (self.call)(input, cx)
    }

    pub(super) fn is_blocking(&self) -> bool {
        self.blocking
    }
}

/// Keeps work that still waits for a thread from starting once nobody waits for it. Work that
/// runs goes on to its end.
struct AbortOnDrop(JoinHandle<Result<ToolOutput, ToolError>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads a call's input. The error is for the model: it names the field and where it stands.
fn parse<T: DeserializeOwned + 'static>(input: &RawValue) -> Result<T, ToolError> {
    // A tool without arguments has none, whatever the model put there.
    let text = if TypeId::of::<T>() == TypeId::of::<()>() { "null" } else { input.get() };
    let error = match serde_json::from_str(text) {
        Ok(input) => return Ok(input),
        Err(error) => error,
    };
    if let Some(value) = with_plain_numbers(text) {
        match serde_path_to_error::deserialize(value) {
            Ok(input) => return Ok(input),
            // No map stands there: it is a number that was buffered.
            Err(plain) if error.to_string().starts_with("invalid type: map") => return Err(invalid(&plain)),
            Err(_) => {}
        }
    }
    // Keeping track of the path costs, so only a failure pays for it, by reading once more.
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Err(match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Ok(_) => ToolError::new(format!("invalid input: {error}")),
        Err(error) => invalid(&error),
    })
}

fn invalid(error: &serde_path_to_error::Error<serde_json::Error>) -> ToolError {
    let (path, error) = (error.path().to_string(), error.inner());
    let reason = error.to_string();
    // The model sees objects, not lines of text.
    let position = format!(" at line {} column {}", error.line(), error.column());
    let reason = reason.strip_suffix(&position).unwrap_or(&reason);
    match path.as_str() {
        "." => ToolError::new(format!("invalid input: {reason}")),
        path => ToolError::new(format!("invalid input at `{path}`: {reason}")),
    }
}

/// The input once more where `serde_json/arbitrary_precision` is on, with numbers as they are
/// without it. Tagged, untagged and flattened types buffer what they read, and can't read that
/// feature's numbers from their buffer.
fn with_plain_numbers(text: &str) -> Option<Value> {
    fn round(value: &mut Value) {
        match value {
            Value::Number(number) if !number.is_u64() && !number.is_i64() => {
                if let Some(rounded) = number.as_f64().and_then(Number::from_f64) {
                    *number = rounded;
                }
            }
            Value::Array(list) => list.iter_mut().for_each(round),
            Value::Object(object) => object.values_mut().for_each(round),
            _ => {}
        }
    }

    let exact = serde_json::from_str::<Number>("0.10").is_ok_and(|number| number.to_string() == "0.10");
    let mut value = if exact { serde_json::from_str(text).ok()? } else { return None };
    round(&mut value);
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde::Deserialize;

    use super::super::context::ContextParts;
    use super::super::output::{Content, Json};
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn cx() -> ToolContext {
        ToolContext::new(ContextParts::default())
    }

    async fn call(handler: &Handler, input: &str) -> Result<String, String> {
        match handler.call(raw(input), cx()).await {
            Ok(output) => match output.content {
                Content::Text(text) => Ok(text),
                Content::Blocks(blocks) => Ok(format!("{} blocks", blocks.len())),
            },
            Err(error) => Err(error.message()),
        }
    }

    fn reason<T: DeserializeOwned + 'static>(input: &str) -> String {
        parse::<T>(&raw(input)).map(|_| ()).unwrap_err().message()
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Trip {
        days: Vec<Day>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Day {
        date: String,
        hours: u8,
    }

    #[test]
    fn a_bad_input_names_the_field_and_where_it_stands() {
        let good = r#"{"date":"d","hours":1}"#;
        assert_eq!(reason::<Trip>("{}"), "invalid input: missing field `days`");
        assert_eq!(
            reason::<Trip>(&format!(r#"{{"days":[{good},{good},{{"hours":1}}]}}"#)),
            "invalid input at `days[2]`: missing field `date`"
        );
        assert_eq!(
            reason::<Trip>(r#"{"days":[{"date":7,"hours":1}]}"#),
            "invalid input at `days[0].date`: invalid type: integer `7`, expected a string"
        );
        assert!(
            reason::<Trip>(r#"{"days":[{"date":"","hours":256}]}"#)
                .starts_with("invalid input at `days[0].hours`: ")
        );
        assert!(reason::<Trip>(r#"{"days":[],"dasy":1}"#).contains("unknown field `dasy`"));
    }

    #[tokio::test]
    async fn no_arguments_means_none_whatever_the_object_holds() {
        let handler = Handler::asynchronous(|(): (), _| async { "ran" });
        for input in ["{}", r#"{"a":1}"#, "null", "[]"] {
            assert_eq!(call(&handler, input).await, Ok("ran".into()));
        }
    }

    #[tokio::test]
    async fn raw_input_keeps_every_digit() {
        let text = r#"{ "n":1234567890123456789012345, "x":1e2,  "n":0.10 }"#;
        let handler =
            Handler::asynchronous(|input: Box<RawValue>, _| async move { String::from(input.get()) });
        assert_eq!(call(&handler, text).await, Ok(text.into()));
        let handler = Handler::blocking(|input: Box<RawValue>, _| String::from(input.get()));
        assert_eq!(call(&handler, text).await, Ok(text.into()));
    }

    /// Types that serde buffers, with numbers in them: they read with every feature of serde_json.
    #[test]
    fn buffered_types_read_numbers() {
        #[derive(Debug, Deserialize, PartialEq)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        enum Shape {
            Circle { radius: f64, id: u64 },
        }

        #[derive(Debug, Deserialize, PartialEq)]
        struct Outer {
            #[serde(flatten)]
            inner: Inner,
        }

        #[derive(Debug, Deserialize, PartialEq)]
        struct Inner {
            n: i64,
        }

        #[derive(Debug, Deserialize, PartialEq)]
        #[serde(untagged)]
        enum Either {
            Number(f64),
            Text(String),
        }

        let shape =
            parse::<Shape>(&raw(r#"{"kind":"circle","radius":1.5,"id":18446744073709551615}"#)).unwrap();
        assert_eq!(shape, Shape::Circle { radius: 1.5, id: u64::MAX });
        assert_eq!(parse::<Outer>(&raw(r#"{"n":-7}"#)).unwrap(), Outer { inner: Inner { n: -7 } });
        assert_eq!(parse::<Either>(&raw("2.50")).unwrap(), Either::Number(2.5));
        assert_eq!(parse::<Either>(&raw("1e2")).unwrap(), Either::Number(100.0));
        assert!(reason::<Shape>(r#"{"kind":"circle","radius":1.5}"#).contains("missing field `id`"));
    }

    #[tokio::test]
    async fn nothing_of_the_handler_runs_before_the_first_poll() {
        struct Input;

        static PARSED: AtomicU32 = AtomicU32::new(0);

        impl<'de> Deserialize<'de> for Input {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                PARSED.fetch_add(1, Ordering::SeqCst);
                serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
            }
        }

        for handler in [Handler::asynchronous(|_: Input, _| async {}), Handler::blocking(|_: Input, _| ())] {
            let before = PARSED.load(Ordering::SeqCst);
            let future = handler.call(raw("{}"), cx());
            assert_eq!(PARSED.load(Ordering::SeqCst), before);
            future.await.unwrap();
            assert_eq!(PARSED.load(Ordering::SeqCst), before + 1);
        }
    }

    #[tokio::test]
    async fn the_output_need_not_cross_threads() {
        struct Local(Rc<str>);

        impl super::super::output::IntoToolOutput for Local {
            fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
                Ok(ToolOutput::text(&*self.0))
            }
        }

        let handler = Handler::blocking(|(): (), _| Local(Rc::from("local")));
        assert_eq!(call(&handler, "{}").await, Ok("local".into()));
        let handler = Handler::asynchronous(|(): (), _| async { Local(Rc::from("local")) });
        assert_eq!(call(&handler, "{}").await, Ok("local".into()));
    }

    #[tokio::test]
    async fn errors_reach_the_model_from_both_kinds() {
        let fails = |text: &str| Err::<Json<u8>, ToolError>(ToolError::new(text));
        let handler = Handler::asynchronous(move |input: String, _| async move { fails(&input) });
        assert_eq!(call(&handler, "\"no\"").await, Err("no".into()));
        let handler = Handler::blocking(move |input: String, _| fails(&input));
        assert_eq!(call(&handler, "\"no\"").await, Err("no".into()));
        assert!(call(&handler, "1").await.unwrap_err().starts_with("invalid input: invalid type"));
    }

    /// A panic leaves the future as a panic, wherever in the user's code it happens.
    #[tokio::test]
    async fn panics_come_out_of_the_future() {
        struct Bomb;

        impl super::super::output::IntoToolOutput for Bomb {
            fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
                panic!("in the output");
            }
        }

        #[derive(Deserialize)]
        struct Input {
            #[serde(deserialize_with = "explode")]
            _field: (),
        }

        fn explode<'de, D: serde::Deserializer<'de>>(_: D) -> Result<(), D::Error> {
            panic!("in the input");
        }

        struct OnDrop;

        impl Drop for OnDrop {
            fn drop(&mut self) {
                panic!("in the drop");
            }
        }

        fn in_closure(_: ()) -> std::future::Ready<()> {
            panic!("in the closure")
        }

        let cases = [
            ("in the input", Handler::asynchronous(|_: Input, _| async {})),
            ("in the input", Handler::blocking(|_: Input, _| ())),
            ("in the closure", Handler::asynchronous(|input: (), _| in_closure(input))),
            ("in the body", Handler::asynchronous(|(): (), _| async { panic!("in the body") as () })),
            ("in the body", Handler::blocking(|(): (), _| panic!("in the body") as ())),
            ("in the output", Handler::asynchronous(|(): (), _| async { Bomb })),
            ("in the output", Handler::blocking(|(): (), _| Bomb)),
            (
                "in the drop",
                Handler::asynchronous(|(): (), _| {
                    let guard = OnDrop;
                    async move {
                        let _guard = guard;
                        task::yield_now().await;
                    }
                }),
            ),
        ];
        let count = cases.len();
        for (text, handler) in cases {
            let mut tasks = task::JoinSet::new();
            tasks.spawn(handler.call(raw(r#"{"_field":1}"#), cx()));
            let error = tasks.join_next().await.unwrap().unwrap_err();
            let payload = error.into_panic();
            assert_eq!(payload.downcast_ref::<&str>(), Some(&text));
        }
        println!("{count} places to panic");
    }

    /// Blocking work that still waits for a thread does not start after its call was dropped.
    #[test]
    fn queued_blocking_work_is_dropped_with_its_call() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let ran = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&ran);
        let handler = Handler::blocking(move |(): (), _| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        runtime.block_on(async {
            let (release, wait) = std::sync::mpsc::channel::<()>();
            let busy = task::spawn_blocking(move || wait.recv());
            let mut queued = handler.call(raw("{}"), cx());
            tokio::select! {
                biased;
                _ = &mut queued => unreachable!("the only thread is busy"),
                () = task::yield_now() => {}
            }
            drop(queued);
            drop(release);
            let _ = busy.await.unwrap();
            // The queue is one line: what is behind the dropped call comes after it.
            task::spawn_blocking(|| ()).await.unwrap();
        });
        assert_eq!(ran.load(Ordering::SeqCst), 0);
    }
}
