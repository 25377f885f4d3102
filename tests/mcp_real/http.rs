//! A server over streamable HTTP, by the transport of `rmcp`.

use std::net::TcpListener;
use std::process::Stdio;

use agentloop::ToolRunner;
use agentloop::mcp::{Server, Servers};
use rmcp::ServiceExt as _;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{Place, guarded, installed, results_of};

#[tokio::test]
async fn a_server_over_http_is_one_like_the_others() {
    let Some(servers) = installed("node_modules") else { return };
    let place = Place::new();
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let config = StreamableHttpClientTransportConfig::with_uri(format!("http://127.0.0.1:{port}/mcp"));
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let service = guarded(().serve(transport)).await.unwrap();
    let server = guarded(Server::connect("everything", service)).await.unwrap();
    let (_, set, _) = Servers::new([server.clone()]).into_tools([""; 0]);
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
    guarded(server.clone().shutdown()).await;
    assert!(!server.is_connected());

    process.kill().await.unwrap();
    place.until_gone().await;
}
