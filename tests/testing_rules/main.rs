//! What the scripted server refuses and what it lets pass, body by body.

mod fields;
mod legal;
mod messages;
mod pairing;
mod tools;

use agentloop::testing::check_request;
use serde_json::{Value, json};

const PNG: &str = "iVBORw0KGgo=";
const JPEG: &str = "/9j/4AAQSkZJRg==";

/// A legal request with a tool, to which a case changes one thing.
fn base() -> Value {
    json!({
        "model": "claude-opus-5",
        "max_tokens": 1024,
        "tools": [{
            "name": "add",
            "description": "Adds two numbers",
            "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        }],
        "messages": [{"role": "user", "content": "What is 1 + 2?"}],
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut body = base();
    body[field] = value;
    body
}

fn without(field: &str) -> Value {
    let mut body = base();
    body.as_object_mut().unwrap().remove(field).unwrap();
    body
}

fn talk(list: Value) -> Value {
    with("messages", list)
}

/// One user message with these blocks.
fn user(blocks: Value) -> Value {
    talk(json!([{"role": "user", "content": blocks}]))
}

/// A question, an assistant turn with these blocks, and what follows.
fn turn(blocks: Value, after: Value) -> Value {
    let mut list =
        vec![json!({"role": "user", "content": "Go"}), json!({"role": "assistant", "content": blocks})];
    list.extend(after.as_array().unwrap().iter().cloned());
    talk(Value::Array(list))
}

/// One answered call with this result.
fn result(result: Value) -> Value {
    turn(json!([call("toolu_1")]), json!([{"role": "user", "content": [result]}]))
}

fn content(content: Value) -> Value {
    result(json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": content}))
}

fn tool(change: Value) -> Value {
    let mut body = base();
    body["tools"][0].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    body
}

fn strict(schema: Value) -> Value {
    tool(json!({"strict": true, "input_schema": schema}))
}

fn property(schema: Value) -> Value {
    strict(
        json!({"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": false}),
    )
}

fn set(mut body: Value, pointer: &str, field: &str, value: Value) -> Value {
    body.pointer_mut(pointer).unwrap().as_object_mut().unwrap().insert(field.into(), value);
    body
}

fn model(name: &str, body: Value) -> Value {
    set(body, "", "model", json!(name))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "add", "input": {}})
}

fn answer(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "3"})
}

fn search(id: &str) -> Value {
    json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "rust"}})
}

fn found(id: &str) -> Value {
    json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []})
}

fn by_code(id: &str) -> Value {
    let caller = json!({"type": "code_execution_20260120", "tool_id": "srvtoolu_1"});
    json!({"type": "tool_use", "id": id, "name": "add", "input": {}, "caller": caller})
}

fn code(id: &str) -> Value {
    json!({"type": "server_tool_use", "id": id, "name": "code_execution", "input": {"code": "add()"}})
}

fn says(role: &str, content: Value) -> Value {
    json!({"role": role, "content": content})
}

fn server_tools(mut body: Value) -> Value {
    body["tools"].as_array_mut().unwrap().extend([
        json!({"type": "web_search_20260318", "name": "web_search"}),
        json!({"type": "code_execution_20260120", "name": "code_execution"}),
    ]);
    body
}

fn image(media_type: &str, data: &str) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
}

fn document() -> Value {
    json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "alpha"}})
}

fn search_result() -> Value {
    json!({"type": "search_result", "source": "https://example.net", "title": "T", "content": [text("found")]})
}

fn marked(mut block: Value) -> Value {
    block["cache_control"] = json!({"type": "ephemeral"});
    block
}

fn marked_for(mut block: Value, ttl: &str) -> Value {
    block["cache_control"] = json!({"type": "ephemeral", "ttl": ttl});
    block
}

struct Case {
    name: &'static str,
    body: Value,
    betas: &'static [&'static str],
    /// A part of the message.
    refused: &'static str,
}

fn case(name: &'static str, body: Value, refused: &'static str) -> Case {
    Case { name, body, betas: &[], refused }
}

fn beta_case(name: &'static str, betas: &'static [&'static str], body: Value, refused: &'static str) -> Case {
    Case { name, body, betas, refused }
}

fn assert_refused(cases: &[Case]) {
    for Case { name, body, betas, refused } in cases {
        match check_request(body, betas) {
            Ok(()) => panic!("{name}: passed, but should be refused with {refused:?}: {body}"),
            Err(message) => {
                assert!(message.contains(refused), "{name}: refused with {message:?} instead of {refused:?}");
            }
        }
    }
    println!("{} illegal bodies were refused", cases.len());
}
