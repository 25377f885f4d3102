//! A server over streamable HTTP, by the transport of `rmcp`.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use agentloop::ToolRunner;
use agentloop::mcp::{Connector, Server, Servers};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::asked::steps_of;
use crate::processes::long;
use crate::{Place, guarded, installed, result_of, results_of};

/// Starts the server, and waits until it listens.
async fn started(place: &Place, servers: &Path, port: u16) -> Child {
    let mut command = place.command(servers.join("node_modules/.bin/mcp-server-everything"));
    command.arg("streamableHttp").env("PORT", port.to_string()).kill_on_drop(true);
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let listens = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("listening") {
                return;
            }
        }
        panic!("it does not listen");
    };
    guarded(listens).await;
    process.stderr = Some(lines.into_inner().into_inner());
    process
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn config(port: u16) -> StreamableHttpClientTransportConfig {
    StreamableHttpClientTransportConfig::with_uri(format!("http://127.0.0.1:{port}/mcp"))
}

async fn connected(config: StreamableHttpClientTransportConfig) -> Server {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let transport = StreamableHttpClientTransport::with_client(client, config);
    guarded(Connector::new("everything").connect(transport)).await.unwrap()
}

/// Ends the server while a call runs.
async fn killed(process: &mut Child) {
    tokio::time::sleep(Duration::from_millis(500)).await;
    process.kill().await.unwrap();
}

#[tokio::test]
async fn a_server_over_http_is_one_like_the_others() {
    let Some(servers) = installed("node_modules") else { return };
    let (place, port) = (Place::new(), free_port());
    let mut process = started(&place, &servers, port).await;
    let server = connected(config(port)).await;
    let (_, set, _) = Servers::new([server.clone()]).into_tools();
    assert!(set.iter().any(|tool| tool.mcp_name() == "get-tiny-image"));

    let runner = ToolRunner::new().mcp(server.clone()).max_concurrency(2);
    let calls = [
        ("echo", json!({"message": "over HTTP"})),
        ("get-tiny-image", json!({})),
        ("get-sum", json!({"a": 1})),
    ];
    let answers = results_of(&runner, &calls).await;
    assert_eq!(answers[0].text(), "Echo: over HTTP");
    assert_eq!(answers[1].blocks()[1]["type"], "image");
    assert!(answers[2].error().contains('b'), "{answers:?}");
    assert_eq!(steps_of(server.clone()).await, 3.0);
    guarded(server.clone().shutdown()).await;
    assert!(!server.is_connected());

    process.kill().await.unwrap();
    place.until_gone().await;
}

#[tokio::test]
async fn a_server_over_http_that_dies_is_an_error_result_within_the_limit() {
    let Some(servers) = installed("node_modules") else { return };
    let (place, port) = (Place::new(), free_port());
    let mut process = started(&place, &servers, port).await;
    let server = connected(config(port)).await;
    let runner = ToolRunner::new().mcp(server.clone()).tool_timeout(Duration::from_secs(3));
    // HTTP does not tell that nobody is there any longer: the stream might be taken up again.
    let calls = [long()];
    let (answers, ()) = tokio::join!(results_of(&runner, &calls), killed(&mut process));
    assert!(answers[0].error().contains("unknown"), "{answers:?}");
    let answer = result_of(&runner, "echo", json!({"message": "a"})).await;
    assert!(answer.error().contains("could not be reached"), "{answer:?}");
    // A new server at the same place knows nothing of the session.
    let mut process = started(&place, &servers, port).await;
    let answer = result_of(&runner, "echo", json!({"message": "b"})).await;
    assert!(answer.is_error(), "{answer:?}");
    drop(runner);
    guarded(server.shutdown()).await;
    process.kill().await.unwrap();
    place.until_gone().await;
}

#[tokio::test]
async fn a_transport_that_takes_no_stream_up_again_tells_a_death_at_once() {
    let Some(servers) = installed("node_modules") else { return };
    let (place, port) = (Place::new(), free_port());
    let mut process = started(&place, &servers, port).await;
    let mut config = config(port);
    config.retry_config = Arc::new(NeverRetry::default());
    let server = connected(config).await;
    // Without a limit of time.
    let runner = ToolRunner::new().mcp(server.clone());
    let calls = [long()];
    let (answers, ()) = tokio::join!(results_of(&runner, &calls), killed(&mut process));
    assert!(answers[0].error().contains("whether the call ran is unknown"), "{answers:?}");
}
