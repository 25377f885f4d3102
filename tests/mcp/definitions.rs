//! What a request's `tools` hold.

use agentloop::MessageRequest;
use agentloop::mcp::{DefinitionOptions, ToolSet, definitions};
use agentloop::testing::{Reply, Server};
use serde_json::{Value, json};

use crate::{list, offered, set};

#[test]
fn m03_definitions_hold_name_description_and_schema_in_order() {
    let schema = r##"{"type":"object","properties":{"q":{"$ref":"#/$defs/Q"}},"$defs":{"Q":{"type":"object","x":1e2}}}"##;
    let tools = format!(
        r#"[{{"name":"z","title":"Z","description":"d","inputSchema":{schema},"outputSchema":{{"type":"object"}},"annotations":{{}},"icons":[],"_meta":{{}}}},
            {{"name":"a","title":"The a","inputSchema":{{"type":"object"}}}},
            {{"name":"m","description":" \u200b ","inputSchema":{{"type":"object"}}}}]"#
    );
    let (set, _) = ToolSet::builder().server("s", tools).build();
    let sent = definitions(&set, DefinitionOptions::new());
    assert_eq!(
        sent.iter().map(|entry| entry.get()).collect::<Vec<_>>(),
        [
            format!(r#"{{"name":"z","description":"d","input_schema":{schema}}}"#),
            r#"{"name":"a","description":"The a","input_schema":{"type":"object"}}"#.to_owned(),
            r#"{"name":"m","input_schema":{"type":"object"}}"#.to_owned(),
        ]
    );
    assert!(set.get("z").unwrap().listed().output_schema().is_some());
    offered(&sent).unwrap();
}

#[tokio::test]
async fn m05_only_tools_of_the_set_are_sent_and_m06_no_choice_is_made() {
    let server = Server::start([Reply::text("ok")]).await;
    let broken =
        r#"[{"name":"broken","inputSchema":{"type":"string"}},{"name":"x","inputSchema":{"type":"object"}}]"#;
    let (set, _) = ToolSet::builder()
        .server("a", list(&["x", "hidden"]))
        .server("b", broken)
        .unavailable("c", "it is down")
        .filter(|tool| tool.name() != "hidden")
        .build();
    let request = MessageRequest::new("claude-opus-5-5", 64).user("Go");
    let request = definitions(&set, DefinitionOptions::new()).into_iter().fold(request, MessageRequest::tool);
    server.client().create(&request).await.unwrap();
    let sent = server.requests()[0].json();
    let names: Vec<_> = sent["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["a__x", "b__x"]);
    assert_eq!(sent.get("tool_choice"), None);
    server.finish().unwrap();
}

#[test]
fn m07_a_mark_on_the_last_tool_is_an_option() {
    let (two, _) = set(&[("s", &["a", "b"])]);
    let marks = |options| -> Vec<Value> {
        let sent = definitions(&two, options);
        offered(&sent).unwrap();
        let value = |entry: &serde_json::value::RawValue| serde_json::from_str::<Value>(entry.get()).unwrap();
        sent.iter().map(|entry| value(entry)["cache_control"].clone()).collect()
    };
    assert_eq!(marks(DefinitionOptions::new()), [Value::Null, Value::Null]);
    assert_eq!(marks(DefinitionOptions::new().cache(true)), [Value::Null, json!({"type": "ephemeral"})]);
    assert!(definitions(&ToolSet::default(), DefinitionOptions::new().cache(true)).is_empty());
}
