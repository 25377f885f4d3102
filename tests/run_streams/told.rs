//! The ways to run, and what each tells, as JSON.

use std::sync::{Arc, Mutex};

use agentloop::messages::{Delta, StreamEvent};
use agentloop::{Client, MessageRequest, Run, RunError, RunEvent, ToolRunner};
use serde_json::{Value, json};

/// How a run is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    /// By a stream that nobody sees.
    Collected,
    OnEvent,
    Stream,
    DriveStream,
}

impl Way {
    pub(crate) const ALL: [Self; 5] =
        [Self::Plain, Self::Collected, Self::OnEvent, Self::Stream, Self::DriveStream];
    pub(crate) const STREAMED: [Self; 4] = [Self::Collected, Self::OnEvent, Self::Stream, Self::DriveStream];
    pub(crate) const TOLD: [Self; 3] = [Self::OnEvent, Self::Stream, Self::DriveStream];

    /// The request, so that it is streamed where it must be and nowhere else.
    pub(crate) fn request(self, prompt: impl Into<MessageRequest>) -> MessageRequest {
        let request = prompt.into();
        if self == Self::Collected { request.max_tokens(21_334) } else { request.max_tokens(64) }
    }

    /// Runs a request, and gives all that was told, in order.
    pub(crate) async fn run(
        self,
        runner: &ToolRunner,
        client: &Client,
        request: impl Into<MessageRequest>,
    ) -> (Vec<Value>, Result<Run, RunError>) {
        self.run_with(runner, client, request, |_| {}).await
    }

    /// The same, with a function that sees each event.
    pub(crate) async fn run_with(
        self,
        runner: &ToolRunner,
        client: &Client,
        request: impl Into<MessageRequest>,
        see: impl Fn(&RunEvent) + Send + Sync + 'static,
    ) -> (Vec<Value>, Result<Run, RunError>) {
        let request = request.into();
        let mut events = Vec::new();
        let outcome = match self {
            Self::Plain | Self::Collected => runner.run(client, request).await,
            Self::OnEvent => {
                let seen = Arc::new(Mutex::new(Vec::new()));
                let runner = runner.clone().on_event({
                    let seen = Arc::clone(&seen);
                    move |event| {
                        seen.lock().unwrap().push(told(event));
                        see(event);
                    }
                });
                let outcome = runner.run(client, request).await;
                events = std::mem::take(&mut *seen.lock().unwrap());
                outcome
            }
            Self::Stream => {
                let mut stream = runner.stream(client, request);
                while let Some(event) = stream.next().await {
                    events.push(told(&event));
                    see(&event);
                }
                assert!(stream.next().await.is_none(), "a stream stays at its end");
                stream.finish().await
            }
            Self::DriveStream => {
                let mut run_loop = runner.run_loop(request);
                let mut stopped = None;
                let mut stream = runner.drive_stream(client, &mut run_loop);
                while let Some(event) = stream.next().await {
                    assert!(stopped.is_none(), "nothing comes after the reason to stop");
                    match event {
                        Ok(event) => {
                            events.push(told(&event));
                            see(&event);
                        }
                        Err(stop) => stopped = Some(stop),
                    }
                }
                assert!(stream.next().await.is_none(), "a stream stays at its end");
                drop(stream);
                match stopped {
                    Some(stop) => Err(RunError::new(stop, run_loop)),
                    None => Ok(run_loop.into_run().unwrap()),
                }
            }
        };
        (events, outcome)
    }
}

/// All that an event says, but for times.
pub(crate) fn told(event: &RunEvent) -> Value {
    match event {
        RunEvent::Stream(event) => on_the_wire(event),
        RunEvent::TurnDone { message, .. } => {
            json!({"TurnDone": message.id(), "content": parsed(message.content_json())})
        }
        RunEvent::ToolStarted { call, .. } => started(call.id(), call.name(), call.input().get()),
        RunEvent::ToolFinished { call, result, .. } => {
            assert_eq!(call.id(), result.tool_use_id);
            finished(call.id(), &result.text(), result.is_error)
        }
        RunEvent::ToolProgress { call, progress, .. } => json!({
            "ToolProgress": call.id(),
            "progress": progress.progress,
            "total": progress.total,
            "message": progress.message,
        }),
        RunEvent::Finished { ended, .. } => json!({"Finished": ended.to_string()}),
        RunEvent::MaxIterations { max_iterations, .. } => json!({"MaxIterations": max_iterations}),
        RunEvent::Retry { attempt, error, .. } => again("Retry", *attempt, error),
        RunEvent::Restart { attempt, error, .. } => again("Restart", *attempt, error),
        other => panic!("an event that no test knows: {other:?}"),
    }
}

fn again(name: &str, attempt: u32, error: &agentloop::Error) -> Value {
    json!({name: attempt, "error": error.api_type().map_or_else(|| format!("{:?}", error.kind()), Into::into)})
}

pub(crate) fn started(id: &str, name: &str, input: &str) -> Value {
    json!({"ToolStarted": id, "name": name, "input": input})
}

pub(crate) fn finished(id: &str, text: &str, is_error: bool) -> Value {
    json!({"ToolFinished": id, "text": text, "is_error": is_error})
}

/// The end of a turn, by what its events add up to.
pub(crate) fn turn_done(events: &[Value]) -> Value {
    let mut content: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    for event in events {
        let delta = &event["delta"];
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                content.push(event["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                let index = event["index"].as_u64().unwrap() as usize;
                if let Some(more) = delta["text"].as_str() {
                    let text = content[index]["text"].as_str().unwrap().to_owned() + more;
                    content[index]["text"] = text.into();
                }
                inputs[index].push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            _ => {}
        }
    }
    for (block, input) in content.iter_mut().zip(inputs) {
        if !input.is_empty() {
            block["input"] = serde_json::from_str(&input).unwrap_or(Value::String(input));
        }
    }
    json!({"TurnDone": events[0]["message"]["id"], "content": content})
}

/// An event of the API, with everything that the server sent.
fn on_the_wire(event: &StreamEvent) -> Value {
    let kind = event.kind();
    match event {
        StreamEvent::MessageStart(message) => json!({"type": kind, "message": parsed(message.json())}),
        StreamEvent::ContentBlockStart { index, json, .. } => {
            json!({"type": kind, "index": index, "content_block": parsed(json.get())})
        }
        StreamEvent::ContentBlockDelta { index, delta, .. } => {
            let (field, text) = match delta {
                Delta::Text(text) => ("text", text),
                Delta::InputJson(text) => ("partial_json", text),
                other => panic!("a delta that no test sends: {other:?}"),
            };
            json!({"type": kind, "index": index, "delta": {"type": delta.kind(), field: text}})
        }
        StreamEvent::ContentBlockStop { index, .. } => json!({"type": kind, "index": index}),
        StreamEvent::MessageDelta(delta) => parsed(delta.json.get()),
        StreamEvent::MessageStop | StreamEvent::Ping => json!({"type": kind}),
        other => panic!("an event that no test sends: {other:?}"),
    }
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}
