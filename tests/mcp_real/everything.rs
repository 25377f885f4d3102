//! `@modelcontextprotocol/server-everything`: each of its tools, and each kind of content.

use std::collections::{BTreeSet, HashMap};

use agentloop::ToolRunner;
use agentloop::mcp::{ResultOptions, Servers, Structured};
use serde_json::{Value, json};

use crate::{Place, installed, of_npm, results_of, shut_down};

/// A call of each tool. A data URL needs no network.
fn calls() -> Vec<(&'static str, Value)> {
    let zipped = json!({"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resource"});
    vec![
        ("echo", json!({"message": "grüße 👋"})),
        ("get-annotated-message", json!({"messageType": "error", "includeImage": true})),
        ("get-env", json!({})),
        ("get-resource-links", json!({"count": 2})),
        ("get-resource-reference", json!({"resourceType": "Text", "resourceId": 1})),
        ("get-structured-content", json!({"location": "Chicago"})),
        ("get-sum", json!({"a": 2.5, "b": 3})),
        ("get-tiny-image", json!({})),
        ("gzip-file-as-resource", zipped),
        ("toggle-simulated-logging", json!({})),
        ("toggle-subscriber-updates", json!({})),
        ("trigger-long-running-operation", json!({"duration": 0.2, "steps": 2})),
        ("simulate-research-query", json!({"topic": "moss"})),
    ]
}

#[tokio::test]
async fn m09_every_tool_and_every_kind_of_content_goes_through_the_loop() {
    let Some(servers) = installed("node_modules") else { return };
    let place = Place::new();
    let server = of_npm(&place, &servers, "mcp-server-everything", &["stdio"]).await;

    let (_, set, report) = Servers::new([server.clone()]).into_tools();
    let listed: BTreeSet<_> = set.iter().map(|tool| tool.mcp_name()).collect();
    assert_eq!(listed, calls().iter().map(|(name, _)| *name).collect());
    assert!(report.is_empty(), "{report}");

    let runner = ToolRunner::new().mcp(server.clone()).max_concurrency(4);
    let answers = results_of(&runner, &calls()).await;
    let answers: HashMap<_, _> = calls().into_iter().map(|(name, _)| name).zip(answers).collect();

    assert_eq!(answers["echo"].text(), "Echo: grüße 👋");
    assert_eq!(answers["get-sum"].text(), "The sum of 2.5 and 3 is 5.5.");
    assert!(answers["get-env"].text().contains(&place.mark));
    assert!(answers["trigger-long-running-operation"].text().contains("completed"));
    assert!(answers["toggle-simulated-logging"].text().contains("logging"));
    assert!(answers["toggle-subscriber-updates"].text().contains("updates"));

    // Images stand where they stood.
    let kinds = |name: &str| -> Vec<Value> {
        answers[name].blocks().iter().map(|block| block["type"].clone()).collect()
    };
    assert_eq!(kinds("get-tiny-image"), ["text", "image", "text"]);
    assert_eq!(kinds("get-annotated-message"), ["text", "image"]);
    assert_eq!(answers["get-tiny-image"].blocks()[1]["source"]["media_type"], "image/png");

    let links = answers["get-resource-links"].texts();
    assert_eq!(links.len(), 3, "{links:?}");
    assert!(links[1].starts_with("[resource] ") && links[1].contains("<demo://resource/"), "{links:?}");
    let embedded = answers["get-resource-reference"].texts();
    assert!(embedded[1].starts_with("[resource: demo://resource/dynamic/text/1]\n"), "{embedded:?}");
    let data = answers["gzip-file-as-resource"].text();
    assert!(data.starts_with("[resource: demo://resource/session/a.gz, application/gzip, "), "{data}");

    // It can be run as a task only.
    let refused = answers["simulate-research-query"].error();
    assert!(refused.contains("task"), "{refused}");

    // The other forms of what has two: data, a link, and structured content by its option.
    let structured = ResultOptions::new().structured(Structured::Prefer);
    let runner = ToolRunner::new().mcp_servers(Servers::new([server.clone()]).results(structured));
    let calls = [
        ("get-resource-reference", json!({"resourceType": "Blob", "resourceId": 2})),
        ("gzip-file-as-resource", json!({"name": "b.gz", "data": "data:text/plain,hello"})),
        ("get-structured-content", json!({"location": "Chicago"})),
        ("echo", json!({"message": 7})),
    ];
    let answers = results_of(&runner, &calls).await;
    let data = answers[0].texts();
    assert!(data[1].starts_with("[resource: demo://resource/dynamic/blob/2, text/plain, "), "{data:?}");
    assert_eq!(answers[1].text(), "[resource] b.gz <demo://resource/session/b.gz> (application/gzip)");
    let weather: Value = serde_json::from_str(&answers[2].text()).unwrap();
    assert!(weather["temperature"].is_number(), "{weather}");
    assert!(answers[3].error().contains("message"), "{answers:?}");

    drop(runner);
    shut_down(&place, server).await;
}
