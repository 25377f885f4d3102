//! Real servers that hang, die and hide behind a wrapper.

use std::process::Command;
use std::time::Duration;

use agentloop::ToolRunner;
use agentloop::mcp;
use serde_json::{Value, json};

use crate::{Place, guarded, installed, of_npm, result_of, results_of, shut_down};

/// A call that nobody waits for to its end.
pub(crate) fn long() -> (&'static str, Value) {
    ("trigger-long-running-operation", json!({"duration": 300, "steps": 3}))
}

#[tokio::test]
async fn a_call_that_takes_too_long_leaves_the_others_and_the_connection() {
    let Some(servers) = installed("node_modules") else { return };
    let place = Place::new();
    let server = of_npm(&place, &servers, "mcp-server-everything", &["stdio"]).await;
    let runner =
        ToolRunner::new().mcp(server.clone()).max_concurrency(2).tool_timeout(Duration::from_secs(3));
    let answers = results_of(&runner, &[long(), ("echo", json!({"message": "a"}))]).await;
    assert!(answers[0].error().contains("timed out"), "{answers:?}");
    assert_eq!(answers[1].text(), "Echo: a");
    assert_eq!(result_of(&runner, "echo", json!({"message": "b"})).await.text(), "Echo: b");
    assert!(server.is_connected());
    drop(runner);
    shut_down(&place, server).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_that_is_killed_during_a_call_is_an_error_result_at_once() {
    let Some(servers) = installed("node_modules") else { return };
    let place = Place::new();
    let server = of_npm(&place, &servers, "mcp-server-everything", &["stdio"]).await;
    let runner = ToolRunner::new().mcp(server.clone());
    let kill = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        for pid in place.alive() {
            Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        }
    };
    let calls = [long()];
    let (answers, ()) = tokio::join!(results_of(&runner, &calls), kill);
    assert!(answers[0].error().contains("whether the call ran is unknown"), "{answers:?}");
    assert!(!server.is_connected());
    let after = result_of(&runner, "echo", json!({"message": "a"})).await;
    assert!(after.error().contains("not connected: the call did not run"), "{after:?}");
    guarded(server.shutdown()).await;
    place.until_gone().await;
}

/// The way that guides start servers: npm runs a shell, which runs the server.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_wrapper_leaves_no_server_behind() {
    let Some(servers) = installed("node_modules") else { return };
    for is_dropped in [false, true] {
        let place = Place::new();
        let mut command = place.command("sh");
        // And another process that no end of the input ends.
        command.args(["-c", r#"sleep 1000 & exec npx --no-install mcp-server-filesystem "$0""#]);
        command.arg(place.path("")).current_dir(&servers);
        command.env("NPM_CONFIG_UPDATE_NOTIFIER", "false").env("NPM_CONFIG_CACHE", place.path("cache"));
        let server = guarded(mcp::spawn("files", command)).await.unwrap();
        assert!(place.alive().len() >= 3, "a wrapper, the server and another: {:?}", place.alive());
        let runner = ToolRunner::new().mcp(server.clone());
        let listed = result_of(&runner, "list_allowed_directories", json!({})).await;
        assert!(listed.text().contains(place.folder.to_str().unwrap()), "{listed:?}");
        drop(runner);
        match is_dropped {
            true => drop(server),
            false => guarded(server.shutdown()).await,
        }
        place.until_gone().await;
    }
}
