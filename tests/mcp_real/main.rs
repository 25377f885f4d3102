//! MCP servers that others wrote, as processes and over HTTP.
//!
//! `MCP_SERVERS` names the folder where they are installed: `node_modules/` for those of npm and
//! `venv/` for those of PyPI. Without it, or without one of the two, the tests of those servers say
//! that they are skipped, and pass.

mod asked;
mod everything;
mod http;
mod others;
mod processes;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs, process};

use agentloop::mcp::{self, Server};
use agentloop::testing::{self, Reply};
use agentloop::{MessageRequest, ToolRunner};
use serde_json::{Value, json};
use tokio::process::Command;

/// Starting an interpreter on a busy machine takes its time.
const GUARD: Duration = Duration::from_secs(60);

async fn guarded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(GUARD, work).await.expect("nothing waits for ever")
}

/// The folder with the servers, if this half of it is there.
fn installed(half: &str) -> Option<PathBuf> {
    let why = match env::var_os("MCP_SERVERS").filter(|folder| !folder.is_empty()) {
        None => "MCP_SERVERS is not set".to_owned(),
        Some(folder) => {
            // The servers run in folders of their own.
            let folder = std::path::absolute(folder).unwrap();
            if folder.join(half).is_dir() {
                return Some(folder);
            }
            format!("there is no {half} in {}", folder.display())
        }
    };
    skipped(&why);
    None
}

fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not the macro: what that prints is kept back where a test passes.
    let _told = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// A folder and a mark of one test. The mark is in the environment of all that it starts.
struct Place {
    mark: String,
    folder: PathBuf,
}

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("agentloop-real-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = env::temp_dir().join(&mark);
        fs::create_dir(&folder).unwrap();
        // Servers compare paths as they really are.
        Self { mark, folder: folder.canonicalize().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("AGENTLOOP_MARK", &self.mark).current_dir(&self.folder);
        command
    }

    /// The processes that run with the mark.
    fn alive(&self) -> Vec<u32> {
        let mark = format!("AGENTLOOP_MARK={}", self.mark);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let runs = |pid: &u32| {
            // A zombie has no environment.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
        };
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|&pid| pid != process::id())
            .filter(runs)
            .collect()
    }

    /// What is left goes at once: it was killed.
    async fn until_gone(&self) {
        guarded(async {
            while !self.alive().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

/// A server of npm.
async fn of_npm(place: &Place, servers: &Path, program: &str, arguments: &[&str]) -> Server {
    let mut command = place.command(servers.join("node_modules/.bin").join(program));
    command.args(arguments).env("MEMORY_FILE_PATH", place.path("memory.jsonl"));
    guarded(mcp::spawn(program, command)).await.unwrap()
}

/// A server of PyPI.
async fn of_pypi(place: &Place, servers: &Path, program: &str) -> Server {
    guarded(mcp::spawn(program, place.command(servers.join("venv/bin").join(program)))).await.unwrap()
}

/// Closes the connection, and sees that nothing is left.
async fn shut_down(place: &Place, server: Server) {
    if cfg!(target_os = "linux") {
        assert!(!place.alive().is_empty(), "it runs until then");
    }
    guarded(server.shutdown()).await;
    place.until_gone().await;
}

/// What the model gets for calls of one turn, in their order: the strict server has taken it.
async fn results_of(runner: &ToolRunner, calls: &[(&str, Value)]) -> Vec<Answer> {
    let numbered = calls
        .iter()
        .enumerate()
        .map(|(number, (name, input))| (format!("toolu_{number}"), (*name).to_owned(), input.clone()));
    let api = testing::Server::start([Reply::tool_use(numbered), Reply::text("done")]).await;
    let request = MessageRequest::new("m", 100).user("go");
    let run = guarded(runner.run(&api.client(), request)).await.unwrap();
    assert_eq!(run.text(), "done");
    let turn = api.requests()[1].json()["messages"][2]["content"].clone();
    api.finish().unwrap();
    let results = turn.as_array().unwrap();
    assert_eq!(results.len(), calls.len(), "one result for each call, and nothing else");
    let ids: Vec<_> = results.iter().map(|result| result["tool_use_id"].as_str().unwrap()).collect();
    assert_eq!(ids, (0..calls.len()).map(|number| format!("toolu_{number}")).collect::<Vec<_>>());
    results.iter().cloned().map(Answer).collect()
}

async fn result_of(runner: &ToolRunner, name: &str, input: Value) -> Answer {
    results_of(runner, &[(name, input)]).await.remove(0)
}

/// A `tool_result` block.
#[derive(Debug)]
struct Answer(Value);

impl Answer {
    fn is_error(&self) -> bool {
        self.0["is_error"] == true
    }

    fn blocks(&self) -> Vec<Value> {
        match &self.0["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            blocks => blocks.as_array().unwrap().clone(),
        }
    }

    /// Its texts, one for each block.
    fn texts(&self) -> Vec<String> {
        self.blocks().iter().filter_map(|block| block["text"].as_str().map(ToOwned::to_owned)).collect()
    }

    /// The text of one that is no error.
    fn text(&self) -> String {
        assert!(!self.is_error(), "{self:?}");
        self.texts().join("\n")
    }

    fn error(&self) -> String {
        assert!(self.is_error(), "{self:?}");
        self.texts().join("\n")
    }
}
