//! An agent with four tools, printed as it goes.
//!
//! Without a key it runs offline, against the scripted server of `agentloop::testing`. With
//! `ANTHROPIC_API_KEY`, or with `ANTHROPIC_BASE_URL` pointing at a compatible server, the same
//! program talks to that:
//!
//! ```text
//! cargo run --example agent
//! ANTHROPIC_BASE_URL=http://127.0.0.1:8080 cargo run --example agent -- "What is 2 plus 3?"
//! ```

use std::io::Write as _;
use std::time::Duration;

use agentloop::client::Auth;
use agentloop::messages::{Delta, StreamEvent};
use agentloop::testing::{Reply, Server};
use agentloop::{Client, ClientBuilder};
use agentloop::{ContentBlock, MessageRequest};
use agentloop::{Json, Tool};
use agentloop::{RunError, RunEvent, ToolRunner};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first number.
    a: i64,
    /// The second number.
    b: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    /// The city, in English.
    city: String,
    /// `celsius` or `fahrenheit`.
    unit: Option<String>,
}

#[derive(Serialize)]
struct Weather {
    city: String,
    temperature: i8,
    unit: String,
}

#[derive(Deserialize, JsonSchema)]
struct File {
    /// A path.
    path: String,
}

fn tools() -> Vec<Tool> {
    vec![
        Tool::typed("add", "Adds two integers.", |add: Add| async move { (add.a + add.b).to_string() })
            .strict(true),
        Tool::typed("get_weather", "Tells the weather in a city.", |place: Place| async move {
            let unit = place.unit.unwrap_or_else(|| "celsius".to_owned());
            Json(Weather { city: place.city, temperature: 7, unit })
        }),
        // A handler that fails does not end the run: the model reads why.
        Tool::with_input::<File>("read_file", "Reads a text file.")
            .blocking(|file: File| Ok(std::fs::read_to_string(file.path)?)),
        // Too slow for its limit: the model reads that, and the other calls are not held up.
        Tool::typed("take_inventory", "Counts everything in the warehouse.", |(): ()| async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            "everything is there"
        })
        .timeout(Duration::from_millis(200)),
    ]
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let set = |name| std::env::var(name).is_ok_and(|value: String| !value.trim().is_empty());
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let question = match asked.is_empty() {
        true => "What is 2 plus 3?".to_owned(),
        false => asked.join(" "),
    };
    // The server must outlive the run.
    let (client, request, _server) =
        match (set("ANTHROPIC_BASE_URL"), set("ANTHROPIC_API_KEY") || set("ANTHROPIC_AUTH_TOKEN")) {
            (_, true) => {
                println!("Talking to the API with the key of the environment.");
                (Client::from_env()?, MessageRequest::prompt(question), None)
            }
            (true, false) => {
                println!("Talking to the server of ANTHROPIC_BASE_URL, without a key.");
                (ClientBuilder::from_env().auth(Auth::None).build()?, MessageRequest::prompt(question), None)
            }
            (false, false) => {
                println!("No ANTHROPIC_API_KEY is set: running offline, against a scripted server.");
                let server = Server::start(script()).await;
                let search = json!({"type": "web_search_20260318", "name": "web_search"});
                (server.client(), MessageRequest::prompt(question).tool(search), Some(server))
            }
        };
    println!();
    if let Err(error) = run(&client, request).await {
        // The conversation so far is in the error; a real program would keep it.
        eprintln!("{}", error.chain());
        std::process::exit(1);
    }
    Ok(())
}

/// One question, printed as the answer comes.
async fn run(client: &Client, request: MessageRequest) -> Result<(), RunError> {
    let runner = ToolRunner::new()
        .tools(tools())
        .max_concurrency(4)
        .tool_timeout(Duration::from_secs(5))
        .max_iterations(8)
        .on_event(show);
    let run = runner.run(client, request).await?;
    let usage = run.usage();
    println!(
        "\nEnded with {} after {} requests: {} tokens in, {} out.",
        run.ended(),
        run.iterations(),
        usage.total_input_tokens(),
        usage.output_tokens
    );
    Ok(())
}

fn show(event: &RunEvent) {
    match event {
        RunEvent::Stream(StreamEvent::ContentBlockStart { block, .. }) => match block {
            ContentBlock::Text(_) => print!("  text    "),
            // Announced when it starts, with its whole input.
            ContentBlock::ToolUse(_) => {}
            other => println!("  [{}]", other.kind()),
        },
        RunEvent::Stream(StreamEvent::ContentBlockDelta { delta: Delta::Text(text), .. }) => {
            print!("{text}");
            // Nobody waits for the end of the line.
            let _shown = std::io::stdout().flush();
        }
        RunEvent::Stream(_) => {}
        RunEvent::TurnDone { message: reply, .. } => {
            let usage = reply.usage();
            let reason = reply.stop_reason().map_or("no reason", |reason| reason.as_str());
            let (input, output) = (usage.total_input_tokens(), usage.output_tokens);
            println!("\n= {reason}, {input} tokens in, {output} out");
        }
        RunEvent::ToolStarted { call, .. } => println!("  call    {} {}", call.name(), call.input()),
        RunEvent::ToolFinished { call, result, .. } => {
            let outcome = if result.is_error { "error" } else { "result" };
            println!("  {outcome:<7} {}: {}", call.name(), result.text());
        }
        RunEvent::Retry { wait, error, .. } => println!("  {error}: again in {wait:?}"),
        other => println!("  {other:?}"),
    }
}

/// Four calls at once, a pause in a search of the API, and an answer.
fn script() -> Vec<Reply> {
    vec![
        Reply::tool_use([
            ("toolu_1", "add", json!({"a": 2, "b": 3})),
            ("toolu_2", "get_weather", json!({"city": "Paris", "unit": "celsius"})),
            ("toolu_3", "read_file", json!({"path": "/no/such/file"})),
            ("toolu_4", "take_inventory", json!({})),
        ])
        .usage(812, 96),
        Reply::message(json!({
            "content": [
                {"type": "text", "text": "Let me look that up."},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "2 + 3"}},
            ],
            "stop_reason": "pause_turn",
        }))
        .usage(1060, 41),
        Reply::message(json!({
            "content": [
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {"type": "text", "text": "2 plus 3 is 5. It is 7 degrees in Paris; the file is not there, and the count took too long."},
            ],
            "stop_reason": "end_turn",
        }))
        .usage(1230, 37),
    ]
}
