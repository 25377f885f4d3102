//! A reply that is printed as it comes, with the calls of a tool announced while they run.
//!
//! Without a key it runs offline, against the scripted server of `agentloop::testing`. With
//! `ANTHROPIC_API_KEY` the same program talks to the API:
//!
//! ```text
//! cargo run --example stream
//! ANTHROPIC_API_KEY=... cargo run --example stream
//! ```

use std::io::Write as _;

use agentloop::messages::{Delta, StreamEvent};
use agentloop::testing::{Reply, Server};
use agentloop::{Client, RunEvent, Tool, ToolRunner};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The server must outlive the run.
    let (client, _server) = if std::env::var_os("ANTHROPIC_API_KEY").is_some() {
        println!("Talking to the API with the key of the environment.\n");
        (Client::from_env()?, None)
    } else {
        println!("No ANTHROPIC_API_KEY is set: running offline, against a scripted server.\n");
        let server = Server::start(script()).await;
        (server.client(), Some(server))
    };

    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let weather = Tool::new("get_weather", "Tells the weather in a city", schema)
        .handler(|input: Value| async move { format!("7 degrees and rain in {}", input["city"]) });
    let runner = ToolRunner::new().tool(weather);

    let mut events = runner.stream(&client, "Is it warmer in Paris or in Oslo?");
    while let Some(event) = events.next().await {
        match event {
            RunEvent::Stream(StreamEvent::ContentBlockDelta { delta: Delta::Text(text), .. }) => {
                print!("{text}");
                std::io::stdout().flush()?;
            }
            RunEvent::ToolStarted { call, .. } => println!("\n[{} {} ...]", call.name(), call.input()),
            RunEvent::ToolFinished { call, result, .. } => println!("[{}: {}]", call.name(), result.text()),
            _ => {}
        }
    }
    // The events say what happens, this says how it ended.
    match events.finish().await {
        Ok(run) => println!("\n\nEnded with {}.", run.ended()),
        Err(error) => {
            eprintln!("\n\n{}", error.chain());
            std::process::exit(1);
        }
    }
    Ok(())
}

/// Two calls in one turn, and an answer.
fn script() -> Vec<Reply> {
    vec![
        Reply::message(json!({"content": [
            {"type": "text", "text": "Let me look at both."},
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}},
            {"type": "tool_use", "id": "toolu_2", "name": "get_weather", "input": {"city": "Oslo"}},
        ]})),
        Reply::text("They are equally warm: 7 degrees, and it rains in both."),
    ]
}
