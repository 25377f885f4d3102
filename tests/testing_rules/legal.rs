//! What must pass.

use agentloop::testing::check_request;
use serde_json::{Value, json};

use crate::{
    JPEG, PNG, answer, base, by_code, call, code, content, document, found, image, marked, marked_for, model,
    property, result, says, search, search_result, server_tools, set, strict, talk, text, turn, user, with,
    without,
};

#[test]
fn the_base_of_all_cases_is_legal() {
    assert_eq!(check_request(&base(), &[]), Ok(()));
    assert_eq!(check_request(&content(json!("3")), &[]), Ok(()));
    assert_eq!(check_request(&server_tools(base()), &[]), Ok(()));
    assert_eq!(check_request(&property(json!({"type": "string"})), &[]), Ok(()));
}

#[test]
fn legal_bodies_pass() {
    type Legal = (&'static str, &'static [&'static str], Value);
    let ended = |name: &'static str, body: Value| -> Legal { (name, &[], body) };
    let thinking = json!({"type": "thinking", "thinking": "", "signature": "EpUC"});
    let cases: Vec<Legal> = vec![
        ended("no tools", without("tools")),
        ended("nulls", set(set(base(), "", "system", Value::Null), "", "tool_choice", Value::Null)),
        ended("every plain field", {
            let fields = json!({
                "system": [marked(text("Be brief"))], "stop_sequences": ["END"], "stream": true, "thinking": {"type": "adaptive", "display": "summarized"},
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}, "metadata": {"user_id": "u"}, "cache_control": {"type": "ephemeral"},
                "output_config": {"effort": "low"}, "container": "container_1", "service_tier": "auto", "speed": "standard", "inference_geo": "us",
                "diagnostics": {"previous_message_id": null},
            });
            let mut body = base();
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            body
        }),
        ended("warm-up", with("max_tokens", json!(0))),
        ended("most tokens", with("max_tokens", json!(128_000))),
        ended("forced on haiku 5.5", model("claude-haiku-5-5", with("tool_choice", json!({"type": "any"})))),
        ended(
            "forced on sonnet 5",
            model("claude-sonnet-5", with("tool_choice", json!({"type": "tool", "name": "add"}))),
        ),
        ended("unknown model", model("claude-next", with("tool_choice", json!({"type": "any"})))),
        ended(
            "manual thinking",
            model(
                "claude-opus-4-5",
                set(
                    with("max_tokens", json!(4096)),
                    "",
                    "thinking",
                    json!({"type": "enabled", "budget_tokens": 2048}),
                ),
            ),
        ),
        ended(
            "between tools",
            model("claude-sonnet-5-5", with("thinking", json!({"type": "between_tools"}))),
        ),
        ("unknown beta", &["something-2027-01-01"], base()),
        (
            "context management",
            &["context-management-2025-06-27"],
            with("context_management", json!({"edits": []})),
        ),
        (
            "task budget",
            &["task-budgets-2026-03-13"],
            with("output_config", json!({"task_budget": {"type": "tokens", "total": 20000}})),
        ),
        (
            "block binding",
            &["thinking-binding-controls-2026-08-01"],
            with(
                "thinking",
                json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
            ),
        ),
        ("fallbacks", &["server-side-fallback-2026-07-01"], with("fallbacks", json!("default"))),
        ("continued thread", &["message-threads-2026-08-12"], {
            let mut body = talk(json!([says("user", json!([answer("toolu_1")]))]));
            body["thread"] = json!({"type": "continue", "previous_message_id": "msg_1"});
            body.as_object_mut().unwrap().remove("tools");
            body
        }),
        (
            "resumed thread",
            &["message-threads-2026-08-12"],
            set(talk(json!([])), "", "thread", json!({"type": "continue", "previous_message_id": "msg_1"})),
        ),
        (
            "system first in a continued thread",
            &["message-threads-2026-08-12"],
            set(
                talk(json!([says("system", json!("s"))])),
                "",
                "thread",
                json!({"type": "continue", "previous_message_id": "msg_1"}),
            ),
        ),
        (
            "interleaved budget above max_tokens",
            &["interleaved-thinking-2025-05-14"],
            model("claude-opus-4-5", with("thinking", json!({"type": "enabled", "budget_tokens": 2048}))),
        ),
        ended(
            "images with bytes behind their first ones",
            user(json!([image("image/png", "iVBORw0KGgoAAAANSUhEUg=="), image("image/gif", "R0lGODdhAQABAA==")])),
        ),
        ended("most messages", talk(json!(vec![says("user", json!("a")); 100_000]))),
        ended(
            "system message on sonnet 5.5",
            model("claude-sonnet-5-5", talk(json!([says("user", json!("a")), says("system", json!("s"))]))),
        ),
        ended("forced on a model with a longer name", model("claude-opus-5-5-preview1", with("tool_choice", json!({"type": "any"})))),
        (
            "system message for one turn",
            &["mid-conversation-system-clear-at-2026-08-21"],
            talk(json!([says("user", json!("a")), {"role": "system", "content": [text("s")], "clear_at": "next_user_message"}])),
        ),
        ended("allowed domains", with("tools", json!([{"type": "web_search_20260318", "name": "web_search", "allowed_domains": ["a.net"]}]))),
        ended("as much as a strict schema may hold", with("tools", Value::Array(
            (0..20)
                .map(|n| {
                    let kind = if n < 16 { json!(["string", "null"]) } else { json!("string") };
                    let optional = if n < 4 { json!({"p": {"type": "string"}, "q": {"type": kind}}) } else { json!({"q": {"type": kind}}) };
                    let mut schema = json!({"type": "object", "additionalProperties": false, "properties": optional, "required": ["r", "s"]});
                    schema["properties"]["r"] = json!({"type": "string"});
                    schema["properties"]["s"] = json!({"type": "string"});
                    json!({"name": format!("t{n}"), "strict": true, "input_schema": schema})
                })
                .collect(),
        ))),
        ended("references and parts in a strict schema", strict(json!({
            "type": "object", "additionalProperties": false, "$defs": {"S": {"type": "string"}},
            "properties": {"a": {"anyOf": [{"$ref": "#/$defs/S"}, {"type": "null"}]}, "b": {"allOf": [{"type": "string"}]}},
        }))),
        ended(
            "images",
            user(json!([
                image("image/png", PNG), image("image/jpeg", JPEG), image("image/gif", "R0lGODlhAQABAAAAACw="), image("image/webp", "UklGRgAAAABXRUJQ"),
                {"type": "image", "source": {"type": "url", "url": "https://example.net/a.png"}}, {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
            ])),
        ),
        ended(
            "documents",
            user(json!([
                document(), {"type": "document", "source": {"type": "content", "content": [text("a"), image("image/png", PNG)]}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}, search_result(),
                {"type": "container_upload", "file_id": "file_1"},
            ])),
        ),
        ended("answered call", content(json!("3"))),
        ended("empty results", content(json!(""))),
        ended("empty list as result", content(json!([]))),
        ended("result without content", result(json!({"type": "tool_result", "tool_use_id": "toolu_1"}))),
        ended(
            "error",
            result(
                json!({"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "content": [text("no")]}),
            ),
        ),
        ended("image as result", content(json!([text("see"), image("image/png", PNG)]))),
        ended("search results as result", content(json!([search_result(), search_result()]))),
        ended("tool reference as result", content(json!([{"type": "tool_reference", "tool_name": "add"}]))),
        ended(
            "results in another order, text after them",
            turn(
                json!([call("toolu_1"), call("toolu_2")]),
                json!([says("user", json!([answer("toolu_2"), answer("toolu_1"), text("Go on")]))]),
            ),
        ),
        ended(
            "results in two messages",
            turn(
                json!([call("toolu_1"), call("toolu_2")]),
                json!([
                    says("user", json!([answer("toolu_1")])),
                    says("user", json!([answer("toolu_2"), text("Go on")]))
                ]),
            ),
        ),
        ended(
            "result and text in two messages",
            turn(
                json!([call("toolu_1")]),
                json!([says("user", json!([answer("toolu_1")])), says("user", json!("Go on"))]),
            ),
        ),
        ended(
            "thinking echoed",
            turn(json!([thinking, call("toolu_1")]), json!([says("user", json!([answer("toolu_1")]))])),
        ),
        ended(
            "unknown blocks echoed",
            turn(
                json!([{"type": "hologram", "rays": [1e2]}, {"type": "connector_text", "text": "", "signature": "s"}, text("x")]),
                json!([says("user", json!("y"))]),
            ),
        ),
        ended(
            "unknown fields echoed",
            turn(
                json!([{"type": "text", "text": "x", "citations": [{"type": "char_location"}], "mood": "good"}]),
                json!([says("user", json!("y"))]),
            ),
        ),
        ended(
            "document inside a fetch",
            server_tools(turn(
                json!([{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {}}, {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_1",
                "content": {"type": "web_fetch_result", "content": document()}}, text("x")]),
                json!([says("user", json!("y"))]),
            )),
        ),
        ended(
            "paused turn",
            server_tools(turn(json!([text("Let me look"), search("srvtoolu_1")]), json!([]))),
        ),
        ended(
            "turn paused twice",
            server_tools(turn(
                json!([search("srvtoolu_1")]),
                json!([says("assistant", json!([found("srvtoolu_1"), search("srvtoolu_2")]))]),
            )),
        ),
        ended(
            "paused turn that ends in a result",
            server_tools(turn(json!([search("srvtoolu_1"), found("srvtoolu_1")]), json!([]))),
        ),
        ended(
            "paused turn, finished",
            server_tools(turn(
                json!([search("srvtoolu_1")]),
                json!([
                    says("assistant", json!([found("srvtoolu_1"), text("Done")])),
                    says("user", json!("Thanks"))
                ]),
            )),
        ),
        ended(
            "system after a paused turn",
            server_tools(turn(json!([search("srvtoolu_1")]), json!([says("system", json!("Be quick"))]))),
        ),
        ended(
            "mixed turn",
            server_tools(turn(
                json!([search("srvtoolu_1"), call("toolu_1")]),
                json!([says("user", json!([answer("toolu_1")]))]),
            )),
        ),
        ended(
            "mixed turn, finished",
            server_tools(turn(
                json!([search("srvtoolu_1"), call("toolu_1")]),
                json!([
                    says("user", json!([answer("toolu_1")])),
                    says("assistant", json!([found("srvtoolu_1"), text("Done")])),
                    says("user", json!("Thanks")),
                ]),
            )),
        ),
        ended(
            "programmatic calls over two rounds",
            set(
                server_tools(turn(
                    json!([code("srvtoolu_1"), by_code("toolu_1")]),
                    json!([
                        says("user", json!([answer("toolu_1")])),
                        says("assistant", json!([by_code("toolu_2")])),
                        says("user", json!([answer("toolu_2")])),
                    ]),
                )),
                "",
                "container",
                json!({"id": "container_1"}),
            ),
        ),
        ended(
            "programmatic call, finished, without container",
            server_tools(turn(
                json!([code("srvtoolu_1"), by_code("toolu_1")]),
                json!([
                    says("user", json!([answer("toolu_1")])),
                    says(
                        "assistant",
                        json!([{"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {}}, text("Done")])
                    ),
                    says("user", json!("Thanks")),
                ]),
            )),
        ),
        ended(
            "prefill of an old model",
            model("claude-haiku-4-5-20251001", turn(json!("The answer is"), json!([]))),
        ),
        (
            "credit continuation",
            &["fallback-credit-2026-07-01"],
            set(turn(json!("It is"), json!([])), "", "fallback_credit_token", json!("fct_1")),
        ),
        (
            "compaction asked for",
            &["compact-2026-09-04"],
            set(turn(json!("Done"), json!([])), "", "compaction", json!({"type": "summarize"})),
        ),
        (
            "compaction paused",
            &["compact-2026-01-12"],
            set(
                turn(json!([{"type": "compaction", "content": "c"}]), json!([])),
                "",
                "context_management",
                json!({"edits": [{"type": "compact_20260112", "pause_after_compaction": true}]}),
            ),
        ),
        (
            "compaction block first",
            &["compact-2026-09-04"],
            talk(json!([
                says("assistant", json!([{"type": "compaction", "content": "c", "signature": "s"}])),
                says("user", json!("Go on")),
            ])),
        ),
        (
            "compaction block in the first user message",
            &["compact-2026-09-04"],
            user(json!([{"type": "compaction", "content": "c"}, text("Go on")])),
        ),
        ended(
            "system after a user message",
            talk(json!([
                says("user", json!("a")),
                says("system", json!("s")),
                says("assistant", json!("b")),
                says("user", json!("c"))
            ])),
        ),
        ended("system at the end after results", {
            let mut body = content(json!("3"));
            body["messages"]
                .as_array_mut()
                .unwrap()
                .extend([says("system", json!("s")), says("system", json!([text("t")]))]);
            body
        }),
        (
            "effort between call and result",
            &["mid-conversation-output-config-2026-07-01"],
            turn(
                json!([call("toolu_1")]),
                json!([
                    {"role": "system", "content": [], "output_config": {"effort": "low"}}, says("user", json!([answer("toolu_1")])),
                ]),
            ),
        ),
        (
            "tool added by a message",
            &["inline-tools-2026-09-15"],
            set(
                talk(json!([
                    says("user", json!("a")),
                    says(
                        "system",
                        json!([
                            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "run_sql", "input_schema": {"type": "object"}}}},
                        ])
                    )
                ])),
                "",
                "tool_choice",
                json!({"type": "tool", "name": "run_sql"}),
            ),
        ),
        ended(
            "four marks",
            user(json!([
                marked_for(text("1"), "1h"),
                marked(text("2")),
                marked(text("3")),
                marked(text("4"))
            ])),
        ),
        ended(
            "marks that are data",
            turn(
                json!([{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"cache_control": 1, "list": [{"cache_control": {}}]}}]),
                json!([says("user", json!([answer("toolu_1")]))]),
            ),
        ),
        ended(
            "tools of every kind",
            with(
                "tools",
                json!([
                    {"type": "custom", "name": "a", "input_schema": {"type": "object"}, "strict": false, "input_examples": [{}], "allowed_callers": ["direct"], "eager_input_streaming": true},
                    {"name": "b", "input_schema": {"type": "object"}, "defer_loading": true}, {"name": &"n".repeat(128), "input_schema": {"type": "object", "properties": {"x": {"oneOf": []}}}},
                    {"type": "tool_search_tool_bm25", "name": "tool_search_tool_bm25"}, {"type": "bash_20250124", "name": "bash"}, {"type": "memory_20250818", "name": "memory"},
                    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 100}, {"type": "computer_toolset_20260801", "configs": {}},
                    {"type": "web_fetch_20260318", "name": "web_fetch", "citations": {"enabled": true}},
                ]),
            ),
        ),
        (
            "mcp connector",
            &["mcp-client-2026-09-15"],
            set(
                set(
                    turn(
                        json!([{"type": "mcp_tool_listing", "mcp_server_name": "crm", "tools": []},
                    {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "find", "server_name": "crm", "input": {}}]),
                        json!([]),
                    ),
                    "",
                    "tools",
                    json!([{"type": "mcp_toolset", "mcp_server_name": "crm"}, {"type": "bash_20250124", "name": "bash"}]),
                ),
                "",
                "mcp_servers",
                json!([{"type": "url", "name": "crm", "url": "https://mcp.example.net"}]),
            ),
        ),
        ended(
            "toolset call",
            turn(
                json!([{"type": "tool_use", "id": "toolu_1", "name": "left_click", "toolset_name": "computer", "input": {}}]),
                json!([says(
                    "user",
                    json!([{"type": "tool_result", "tool_use_id": "toolu_1", "toolset_name": "computer", "content": "ok"}])
                )]),
            ),
        ),
        ended(
            "strict schema",
            strict(json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Input", "type": "object", "additionalProperties": false, "required": ["when"],
                "properties": {
                    "when": {"type": "string", "format": "date-time", "description": "when"}, "kind": {"enum": ["a", "b"], "default": "a"}, "one": {"const": 1},
                    "list": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Item"}}, "again": {"$ref": "#/$defs/Item"},
                    "maybe": {"anyOf": [{"type": "string", "pattern": "^[a-z]+$"}, {"type": "null"}]},
                },
                "$defs": {"Item": {"type": "object", "additionalProperties": false, "properties": {"minimum": {"type": "integer"}}}},
            })),
        ),
        ended(
            "format",
            with(
                "output_config",
                json!({"format": {"type": "json_schema", "schema": {"type": "object", "additionalProperties": false}}}),
            ),
        ),
    ];
    for (name, betas, body) in &cases {
        assert_eq!(check_request(body, betas), Ok(()), "{name}: {body}");
    }
    println!("{} legal bodies passed", cases.len());
}
