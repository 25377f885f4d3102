//! A streamed reply is the plain one.

use agentloop::testing::{Reply, Server};
use serde_json::{Value, json};

use crate::{Classes, Way, hello};

/// Contents and stop reasons.
fn fixtures() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("no content", json!([]), "end_turn"),
        ("text", json!([{"type": "text", "text": "Hello, world"}]), "end_turn"),
        (
            "text beyond ASCII",
            json!([{"type": "text", "text": "é漢😀 \"q\" \\ \n\t\u{1}\u{7f}\u{2028}"}]),
            "end_turn",
        ),
        ("a long text", json!([{"type": "text", "text": "größer ".repeat(20_000)}]), "max_tokens"),
        (
            "two texts and thinking",
            json!([
                {"type": "thinking", "thinking": "Let me see", "signature": "Ep=="},
                {"type": "text", "text": "First"},
                {"type": "redacted_thinking", "data": "Em=="},
                {"type": "thinking", "thinking": "", "signature": "Eq=="},
                {"type": "text", "text": "Second"},
            ]),
            "stop_sequence",
        ),
        (
            "citations",
            json!([
                {"type": "text", "text": "It says so", "citations": [
                    {"type": "char_location", "cited_text": "so", "document_index": 0, "start_char_index": 0,
                     "end_char_index": 2, "document_title": null},
                    {"type": "web_search_result_location", "url": "https://e.com", "title": "t",
                     "encrypted_index": "E", "cited_text": "c"},
                ]},
                {"type": "text", "text": "Not cited", "citations": null},
            ]),
            "end_turn",
        ),
        (
            "tools",
            json!([
                {"type": "text", "text": "I'll call"},
                {"type": "tool_use", "id": "t1", "name": "now", "input": {}},
                {"type": "tool_use", "id": "t2", "name": "f", "input":
                    {"z": 1, "a": {"y": [1.5, -2e3, true, null], "b": "ü\n"}, "id": 7_300_000_000_000_000_001_u64}},
            ]),
            "tool_use",
        ),
        (
            "server tools",
            json!([
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [
                    {"type": "web_search_result", "url": "https://e.com", "title": "t", "encrypted_content": "E",
                     "page_age": null}]},
                {"type": "mcp_tool_use", "id": "m1", "name": "find", "server_name": "crm", "input": {"q": 1}},
                {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": false, "content": []},
                {"type": "text", "text": "Found"},
            ]),
            "pause_turn",
        ),
        (
            "blocks of the future",
            json!([
                {"type": "hologram", "text": "x", "depth": 3},
                {"type": "text", "text": "After it", "new_field": {"a": 1}},
                {"type": "fallback", "from": {"model": "a"}, "to": {"model": "claude-opus-5-5"}},
            ]),
            "brand_new_reason",
        ),
        ("a refusal", json!([{"type": "text", "text": "I can't"}]), "refusal"),
    ]
}

#[tokio::test]
async fn a_streamed_reply_equals_the_plain_one() {
    let mut classes = Classes::default();
    for (name, content, reason) in fixtures() {
        let stop_sequence = if reason == "stop_sequence" { json!("END") } else { Value::Null };
        let message = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5",
            "content": content, "stop_reason": reason, "stop_sequence": stop_sequence,
            "stop_details": if reason == "refusal" { json!({"type": "refusal", "category": "x"}) } else { Value::Null },
            "usage": {"input_tokens": 913, "cache_read_input_tokens": 12, "output_tokens": 96,
                      "output_tokens_details": {"thinking_tokens": 41}, "service_tier": "standard"},
        });
        let server = Server::start(vec![Reply::message(message); 1 + Way::ALL.len()]).await;
        let client = server.client();
        let plain = client.create(&hello()).await.unwrap();
        for way in Way::ALL {
            let streamed = way.ask(&client, &hello()).await.unwrap();
            let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(json(streamed.json()), json(plain.json()), "{name} {way:?}");
            assert_eq!(
                streamed.content_json(),
                plain.content_json(),
                "each digit and the order, {name} {way:?}"
            );
            assert_eq!(streamed.text(), plain.text());
            assert_eq!(streamed.stop_reason(), plain.stop_reason());
            assert_eq!(streamed.stop_sequence(), plain.stop_sequence());
            assert_eq!(streamed.usage().output_tokens, 96);
            assert_eq!(
                streamed.to_param().map(|param| param.json().to_owned()),
                plain.to_param().map(|param| param.json().to_owned())
            );
            classes.add(format!("{way:?}"));
        }
        server.finish().unwrap();
    }
    println!("{} replies: {classes:?}", fixtures().len());
}
