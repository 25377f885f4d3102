//! The calls of a reply.

use agentloop::mcp::{Call, ToolSet, calls};
use agentloop::{ContentBlock, Conversation, Message, MessageParam};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{list, sendable, set};

fn shown(calls: &[Call]) -> Vec<String> {
    let show = |call: &Call| {
        format!("{} {} {} {} {}", call.id, call.server, call.tool, call.name, call.arguments.get())
    };
    calls.iter().map(show).collect()
}

fn answers(rejected: &[ContentBlock]) -> Value {
    rejected.iter().for_each(|block| sendable(block).unwrap());
    serde_json::to_value(rejected).unwrap()
}

fn content() -> String {
    r#"[
        {"type":"text","text":"I look."},
        {"type":"tool_use","id":"t1","name":"read_file","input":{"n":12345678901234567890123, "x":1e2}},
        {"type":"tool_use","id":"t2","name":"a__x","input":{}},
        {"type":"server_tool_use","id":"srvtoolu_1","name":"read_file","input":{}},
        {"type":"tool_use","id":"t3","name":"read.file","input":{}},
        {"type":"tool_use","id":"t4","name":"b__x","input":"text"},
        {"type":"tool_use","id":"t5","name":"b__x"},
        {"type":"future","id":"t6","name":"a__x"}
    ]"#
    .to_owned()
}

#[test]
fn m08_calls_are_sorted_to_their_servers_and_the_rest_is_answered() {
    let (set, _) = set(&[("a", &["x", "read.file"]), ("b", &["x"])]);
    let (calls, rejected) = calls(&content(), &set);
    assert_eq!(
        shown(&calls),
        [r#"t1 a read.file read_file {"n":12345678901234567890123, "x":1e2}"#, "t2 a x a__x {}"]
    );
    let unknown = "there is no tool named `read.file`; the tools are: a__x, read_file, b__x";
    let no_object = "the tool input must be a JSON object; the tool did not run";
    assert_eq!(
        answers(&rejected),
        json!([
            {"type": "tool_result", "tool_use_id": "t3", "content": unknown, "is_error": true},
            {"type": "tool_result", "tool_use_id": "t4", "content": no_object, "is_error": true},
            {"type": "tool_result", "tool_use_id": "t5", "content": no_object, "is_error": true},
        ])
    );
}

#[test]
fn m08_calls_are_found_in_every_form_of_a_reply() {
    let (set, _) = set(&[("a", &["x", "read.file"]), ("b", &["x"])]);
    let message = format!(r#"{{"role":"assistant","content":{}}}"#, content());
    let reply = Message::from_json(&message).unwrap();
    let raw: Box<RawValue> = serde_json::from_str(&message).unwrap();
    let blocks: Vec<ContentBlock> = reply.content().to_vec();
    let conversation =
        Conversation::from_json(&format!(r#"[{{"role":"user","content":"Go"}},{message}]"#)).unwrap();
    let found = [
        calls(&reply, &set),
        calls(&MessageParam::from_json(&message).unwrap(), &set),
        calls(&conversation.iter().last().unwrap(), &set),
        calls(&blocks, &set),
        calls(&blocks[..], &set),
        calls(&raw, &set),
        calls(&*raw, &set),
        calls(&message, &set),
        calls(message.as_str(), &set),
    ];
    for (calls, rejected) in found {
        assert_eq!((calls.len(), rejected.len()), (2, 3));
    }
    for nothing in
        ["", "{", "[]", "{}", r#"{"content":"text"}"#, "[1]", r#"{"content":[{"type":"tool_use"}]}"#]
    {
        let (calls, rejected) = calls(nothing, &set);
        assert!(calls.is_empty() && rejected.is_empty(), "{nothing}");
    }
}

#[test]
fn m08_calls_of_native_tools_are_left_alone() {
    let (set, _) = ToolSet::builder().server("a", list(&["add"])).reserve(["add", "bash"]).build();
    let content = json!([
        {"type": "tool_use", "id": "t1", "name": "add", "input": {}},
        {"type": "tool_use", "id": "t2", "name": "bash", "input": "text"},
        {"type": "tool_use", "id": "t3", "name": "a__add", "input": {}},
        {"type": "tool_use", "id": "t4", "name": "other", "input": {}},
    ]);
    let (calls, rejected) = calls(&content.to_string(), &set);
    assert_eq!(shown(&calls), ["t3 a add a__add {}"]);
    assert_eq!(answers(&rejected)[0]["tool_use_id"], "t4");
}

#[test]
fn m08_an_id_that_can_not_be_answered_is_no_call() {
    let (set, _) = set(&[("a", &["x"])]);
    let content = json!([
        {"type": "tool_use", "id": "", "name": "x", "input": {}},
        {"type": "tool_use", "name": "x", "input": {}},
        {"type": "tool_use", "id": "t1", "name": "x", "input": {}},
        {"type": "tool_use", "id": "t1", "name": "x", "input": {}},
        {"type": "tool_use", "id": "t2", "name": "x", "input": {}, "toolset_name": "computer"},
    ]);
    let (calls, rejected) = calls(&content.to_string(), &set);
    assert_eq!(shown(&calls), ["t1 a x x {}"]);
    let answer = &serde_json::to_value(&rejected).unwrap()[0];
    assert_eq!((&answer["tool_use_id"], &answer["toolset_name"]), (&json!("t2"), &json!("computer")));
}

#[test]
fn m08_the_model_reads_a_name_without_what_it_hides() {
    let (calls, rejected) = calls(
        r#"[{"type":"tool_use","id":"t1","name":"x\u202e\udb40\udc41","input":{}}]"#,
        &ToolSet::default(),
    );
    assert!(calls.is_empty());
    let text = answers(&rejected)[0]["content"].as_str().unwrap().to_owned();
    assert!(text.is_ascii() && text.ends_with("; there are none"), "{text}");
}
