//! Servers that are processes: none is left behind.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, process};

use agentloop::ToolRunner;
use agentloop::mcp::{self, Server};
use serde_json::json;
use tokio::process::Command;

use crate::{guarded, run_of, texts};

/// A server in a shell script: it answers each method by its name, and starts another process that
/// would stay for ever.
const SCRIPT: &str = r#"
sleep 1000 &
echo $! $$ >"$PIDS"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case "$line" in
    *'"initialize"'*)
        version=$(printf '%s' "$line" | sed -n 's/.*"protocolVersion":"\([^"]*\)".*/\1/p')
        echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"'"$version"'","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}' ;;
    *'"tools/list"'*)
        [ -z "$NO_LIST" ] || exit 3
        echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"hello","inputSchema":{"type":"object"}}]}}' ;;
    *'"tools/call"'*)
        echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"hello"}]}}' ;;
    esac
done
[ -z "$STUBBORN" ] || sleep 1000
"#;

/// A file that the processes write their ids to.
struct Pids(PathBuf);

impl Pids {
    fn new(name: &str) -> Self {
        Self(env::temp_dir().join(format!("agentloop-{}-{name}", process::id())))
    }

    fn read(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.split_whitespace().map(ToOwned::to_owned).collect()
    }

    /// Those that run: a zombie is one no longer.
    fn alive(&self) -> Vec<String> {
        let runs = |pid: &String| {
            let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
            !matches!(stat.rsplit(')').next().map(str::trim_start), None | Some("")) && !stat.contains(") Z")
        };
        self.read().into_iter().filter(runs).collect()
    }

    async fn until_gone(&self) {
        assert_eq!(self.read().len(), 2, "both were started");
        guarded(async {
            while !self.alive().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}

fn command(pids: &Pids) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).env("PIDS", &pids.0);
    command
}

async fn hello(server: &Server) {
    let runner = ToolRunner::new().mcp(server.clone());
    let (_, results) = run_of(&runner, vec![("c1", "hello", json!({}))]).await;
    assert_eq!(texts(&results), ["hello"]);
}

#[tokio::test]
async fn a_shutdown_leaves_no_process() {
    for stubborn in ["", "1"] {
        let pids = Pids::new(&format!("shutdown{stubborn}"));
        let mut command = command(&pids);
        let server = guarded(mcp::spawn("sh", {
            command.env("STUBBORN", stubborn);
            command
        }))
        .await
        .unwrap();
        hello(&server).await;
        assert_eq!(pids.alive().len(), 2);
        let other = server.clone();
        guarded(server.shutdown()).await;
        pids.until_gone().await;
        assert!(!other.is_connected());
    }
}

#[test]
fn a_drop_kills_at_once_without_a_runtime() {
    let pids = Pids::new("drop");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(async {
        let server = guarded(mcp::spawn("sh", command(&pids))).await.unwrap();
        hello(&server).await;
        server
    });
    assert_eq!(pids.alive().len(), 2);
    drop(runtime);
    // The closing runtime ends the connection; the processes are the server's to end.
    drop(server);
    let waiting = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    waiting.block_on(pids.until_gone());
}

#[tokio::test]
async fn a_start_that_fails_leaves_no_process() {
    let error = mcp::spawn("none", Command::new("/no/such/program")).await.unwrap_err();
    assert_eq!(error.to_string(), "the server `none` could not be started");

    for round in 0..3 {
        let pids = Pids::new(&format!("list{round}"));
        let mut failing = command(&pids);
        failing.env("NO_LIST", "1");
        let error = guarded(mcp::spawn("sh", failing)).await.unwrap_err();
        assert_eq!(error.to_string(), "the server `sh` did not list its tools");
        pids.until_gone().await;

        let pids = Pids::new(&format!("hello{round}"));
        let mut silent = Command::new("sh");
        silent.args(["-c", "sleep 1000 & echo $! $$ >\"$PIDS\"; echo no JSON; exit 1"]).env("PIDS", &pids.0);
        let error = guarded(mcp::spawn("sh", silent)).await.unwrap_err();
        assert_eq!(error.to_string(), "the server `sh` could not be greeted");
        pids.until_gone().await;
    }
}

#[tokio::test]
async fn a_start_that_is_dropped_leaves_no_process() {
    let pids = Pids::new("cancel");
    let mut silent = Command::new("sh");
    silent.args(["-c", "sleep 1000 & echo $! $$ >\"$PIDS\"; sleep 1000"]).env("PIDS", &pids.0);
    tokio::select! {
        _ = mcp::spawn("sh", silent) => panic!("it never answers"),
        () = guarded(async { while pids.read().len() < 2 { tokio::task::yield_now().await } }) => {}
    }
    pids.until_gone().await;
}
