//! A third-party file server, started as a process, and its tools in the loop.
//!
//! The server is `@modelcontextprotocol/server-filesystem`, which `npx` fetches and runs; it sees one
//! temporary folder. Without a key the model is the scripted server of `agentloop::testing`:
//!
//! ```text
//! cargo run --features mcp --example mcp
//! ANTHROPIC_API_KEY=… cargo run --features mcp --example mcp -- "Which of my notes is about rain?"
//! ```
//!
//! Where there is no Node, or nothing can be fetched, it says so and ends.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use agentloop::mcp;
use agentloop::testing::{Reply, Server};
use agentloop::{Client, MessageRequest, RunEvent, ToolRunner};
use serde_json::json;
use tokio::process::Command;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("agentloop-mcp-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("rain.txt"), "Take a coat.\n")?;
    // The server resolves symbolic links.
    let ended = run(&folder.canonicalize()?).await;
    std::fs::remove_dir_all(&folder)?;
    ended
}

async fn run(folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(if cfg!(windows) { "npx.cmd" } else { "npx" });
    command.args(["-y", "@modelcontextprotocol/server-filesystem@2026.8.31"]).arg(folder);
    command.env("NPM_CONFIG_FETCH_RETRIES", "0").env("NPM_CONFIG_UPDATE_NOTIFIER", "false");
    // The first start fetches the server.
    let files = match tokio::time::timeout(Duration::from_secs(60), mcp::spawn("files", command)).await {
        Ok(Ok(files)) => files,
        Ok(Err(error)) => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            println!("Nothing to show here: {error}: {why}.");
            return Ok(());
        }
        Err(_) => {
            println!("Nothing to show here: the server did not start within a minute.");
            return Ok(());
        }
    };

    let asked: Vec<String> = std::env::args().skip(1).collect();
    let question = match asked.is_empty() {
        true => "What do my notes say about rain? Write a note about snow, too.".to_owned(),
        false => asked.join(" "),
    };
    let request = MessageRequest::prompt(format!("{question}\nMy notes are in {}.", folder.display()));
    // The scripted server must outlive the run.
    let (client, _server) = if std::env::var("ANTHROPIC_API_KEY").is_ok_and(|key| !key.trim().is_empty()) {
        println!("Talking to the API with the key of the environment.\n");
        (Client::from_env()?, None)
    } else {
        println!("No ANTHROPIC_API_KEY is set: running offline, against a scripted server.\n");
        let server = Server::start(script(folder)).await;
        (server.client(), Some(server))
    };

    let runner = ToolRunner::new()
        .mcp(files.clone())
        .max_concurrency(4)
        .tool_timeout(Duration::from_secs(10))
        .on_event(show);
    let ended = runner.run(&client, request).await;
    // No process is left, however the run ended.
    files.shutdown().await;
    println!("\n{}", ended?.text());
    Ok(())
}

fn show(event: &RunEvent) {
    match event {
        RunEvent::ToolStarted { call, .. } => println!("call    {} {}", call.name(), call.input()),
        RunEvent::ToolFinished { call, result, .. } => {
            let outcome = if result.is_error { "error" } else { "result" };
            println!("{outcome:<7} {}: {}", call.name(), result.text().trim_end());
        }
        _ => {}
    }
}

/// A look around, then two calls at once and one that the server refuses.
fn script(folder: &Path) -> Vec<Reply> {
    let (rain, snow) = (folder.join("rain.txt"), folder.join("snow.txt"));
    vec![
        Reply::tool_use([("toolu_1", "list_directory", json!({"path": folder}))]),
        Reply::tool_use([
            ("toolu_2", "read_text_file", json!({"path": rain})),
            ("toolu_3", "write_file", json!({"path": snow, "content": "Take boots."})),
            ("toolu_4", "read_text_file", json!({"path": "/etc/passwd"})),
        ]),
        Reply::text("Your note says: take a coat. I wrote one about snow."),
    ]
}
