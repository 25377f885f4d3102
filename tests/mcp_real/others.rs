//! Files, memory, git and the time.

use std::fs;
use std::process::Command;

use agentloop::ToolRunner;
use agentloop::mcp::rmcp::model::ProtocolVersion;
use agentloop::mcp::rmcp::service::ClientLifecycleMode;
use agentloop::mcp::{Connector, Servers};
use serde_json::{Value, json};

use crate::{Place, guarded, installed, of_npm, of_pypi, result_of, results_of, shut_down, skipped};

#[tokio::test]
async fn files_are_written_read_and_listed() {
    let Some(servers) = installed("node_modules") else { return };
    let place = Place::new();
    let folder = place.path("");
    let server = of_npm(&place, &servers, "mcp-server-filesystem", &[&folder]).await;
    let runner = ToolRunner::new().mcp(server.clone());

    let text = "first\nzweite Zeile: größer\n";
    let wrote = result_of(&runner, "write_file", json!({"path": place.path("a.txt"), "content": text})).await;
    assert!(wrote.text().contains("a.txt"), "{wrote:?}");
    assert_eq!(fs::read_to_string(place.path("a.txt")).unwrap(), text);
    // The start of a sound: RIFF, and no more.
    fs::write(place.path("a.wav"), b"RIFF\x24\0\0\0WAVE").unwrap();
    fs::write(place.path("a.png"), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();

    let calls = [
        ("read_text_file", json!({"path": place.path("a.txt")})),
        ("list_directory", json!({"path": folder})),
        ("read_media_file", json!({"path": place.path("a.wav")})),
        ("read_media_file", json!({"path": place.path("a.png")})),
        ("read_text_file", json!({"path": "/etc/passwd"})),
    ];
    let answers = results_of(&runner, &calls).await;
    assert_eq!(answers[0].text().trim_end(), text.trim_end());
    assert!(answers[1].text().contains("[FILE] a.txt"), "{answers:?}");
    assert_eq!(answers[2].text(), "[audio: audio/wav, 12 bytes]");
    assert_eq!(answers[3].blocks()[0]["source"]["media_type"], "image/png");
    assert!(answers[4].error().contains("Access denied"), "{answers:?}");

    drop(runner);
    shut_down(&place, server).await;
}

#[tokio::test]
async fn what_a_server_says_of_its_tools_chooses_them() {
    let Some(servers) = installed("node_modules") else { return };
    let place = Place::new();
    let server = of_npm(&place, &servers, "mcp-server-filesystem", &[&place.path("")]).await;
    let all = Servers::new([server.clone()]).into_tools().1;
    let reading = Servers::new([server.clone()]).filter(|tool| tool.annotations().is_read_only());
    let (_, reading, _) = reading.into_tools();
    assert!(all.iter().any(|tool| tool.name() == "write_file"));
    assert!(reading.iter().any(|tool| tool.name() == "read_text_file"));
    assert!(!reading.iter().any(|tool| tool.name() == "write_file"));
    shut_down(&place, server).await;
}

#[tokio::test]
async fn a_memory_keeps_what_it_is_told() {
    let Some(servers) = installed("node_modules") else { return };
    let place = Place::new();
    let server = of_npm(&place, &servers, "mcp-server-memory", &[]).await;
    let runner = ToolRunner::new().mcp(server.clone());
    let entity = json!({"name": "Ada", "entityType": "person", "observations": ["writes programs"]});
    result_of(&runner, "create_entities", json!({"entities": [entity.clone()]})).await.text();
    let graph: Value =
        serde_json::from_str(&result_of(&runner, "read_graph", json!({})).await.text()).unwrap();
    assert_eq!(graph["entities"], json!([entity]));
    drop(runner);
    shut_down(&place, server).await;
}

#[tokio::test]
async fn a_repository_tells_its_state_and_its_log() {
    let Some(servers) = installed("venv") else { return };
    if Command::new("git").arg("--version").output().is_err() {
        return skipped("there is no git");
    }
    let place = Place::new();
    let git = |arguments: &[&str]| {
        let settings = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"];
        let done = Command::new("git").args(settings).args(arguments).current_dir(&place.folder).output();
        assert!(done.as_ref().is_ok_and(|done| done.status.success()), "{done:?}");
    };
    git(&["init", "--quiet"]);
    fs::write(place.path("a.txt"), "a").unwrap();
    git(&["add", "a.txt"]);
    git(&["commit", "--quiet", "-m", "Write the first file"]);
    fs::write(place.path("b.txt"), "b").unwrap();

    let server = of_pypi(&place, &servers, "mcp-server-git").await;
    let runner = ToolRunner::new().mcp(server.clone());
    let path = place.folder.to_str().unwrap();
    let calls = [
        ("git_status", json!({"repo_path": path})),
        ("git_log", json!({"repo_path": path, "max_count": 1})),
        ("git_status", json!({"repo_path": "/no/such/folder"})),
        ("git_log", json!({})),
    ];
    let answers = results_of(&runner, &calls).await;
    assert!(answers[0].text().contains("b.txt"), "{answers:?}");
    assert!(answers[1].text().contains("Write the first file"), "{answers:?}");
    assert!(answers[2].error().contains("/no/such/folder"), "{answers:?}");
    assert!(answers[3].error().contains("repo_path"), "{answers:?}");
    drop(runner);
    shut_down(&place, server).await;
}

#[tokio::test]
async fn the_time_is_told() {
    let Some(servers) = installed("venv") else { return };
    let place = Place::new();
    let server = of_pypi(&place, &servers, "mcp-server-time").await;
    let runner = ToolRunner::new().mcp(server.clone());
    let calls = [
        ("get_current_time", json!({"timezone": "Etc/UTC"})),
        ("get_current_time", json!({"timezone": "Mars/Olympus"})),
    ];
    let answers = results_of(&runner, &calls).await;
    let time: Value = serde_json::from_str(&answers[0].text()).unwrap();
    assert_eq!(time["timezone"], "Etc/UTC");
    assert!(time["datetime"].as_str().is_some_and(|time| time.ends_with("+00:00")), "{time}");
    assert!(answers[1].error().contains("Mars/Olympus"), "{answers:?}");
    drop(runner);
    shut_down(&place, server).await;
}

/// The protocol of 2026-07-28, which has no `initialize`.
#[tokio::test]
async fn a_server_that_is_discovered_tells_the_time_too() {
    let Some(servers) = installed("venv") else { return };
    let place = Place::new();
    let discover = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let command = place.command(servers.join("venv/bin/mcp-server-time"));
    let server = guarded(Connector::new("time").lifecycle(discover).spawn(command)).await.unwrap();
    let runner = ToolRunner::new().mcp(server.clone());
    let answer = result_of(&runner, "get_current_time", json!({"timezone": "Etc/UTC"})).await;
    assert!(answer.text().contains("Etc/UTC"));
    drop(runner);
    shut_down(&place, server).await;
}
