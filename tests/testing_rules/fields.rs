//! Fields at the top level.

use serde_json::{Value, json};

use crate::{PNG, assert_refused, beta_case, case, image, model, says, set, talk, text, with, without};

#[test]
fn illegal_fields_are_refused() {
    let forced = |name: &str, choice: Value| model(name, with("tool_choice", choice));
    assert_refused(&[
        case("no object", json!([1]), "Input should be a valid dictionary or object"),
        case("unknown field", with("foo", json!(1)), "foo: Extra inputs are not permitted"),
        case("temperature", with("temperature", json!(1.0)), "temperature: Extra inputs are not permitted"),
        case("top_p", with("top_p", json!(0.9)), "top_p: Extra inputs are not permitted"),
        case("top_k", with("top_k", json!(5)), "top_k: Extra inputs are not permitted"),
        case("old output_format", with("output_format", json!({})), "output_format: Extra inputs"),
        case("no model", without("model"), "model: Field required"),
        case("blank model", with("model", json!(" ")), "model: String should have at least 1 character"),
        case("model null", with("model", Value::Null), "model: Input should be a valid string"),
        case("no max_tokens", without("max_tokens"), "max_tokens: Field required"),
        case("max_tokens text", with("max_tokens", json!("9")), "max_tokens: Input should be"),
        case("max_tokens negative", with("max_tokens", json!(-1)), "max_tokens: Input should be"),
        case("max_tokens fraction", with("max_tokens", json!(1.5)), "max_tokens: Input should be"),
        case("max_tokens too high", with("max_tokens", json!(128_001)), "max_tokens: 128001 > 128000"),
        case(
            "max_tokens too high for an old model",
            model("claude-haiku-4-5-20251001", with("max_tokens", json!(64_001))),
            "64001 > 64000",
        ),
        case(
            "warm-up streamed",
            set(with("max_tokens", json!(0)), "", "stream", json!(true)),
            "0 is not supported together with `stream`",
        ),
        case(
            "warm-up with a named call",
            set(with("max_tokens", json!(0)), "", "tool_choice", json!({"type": "tool", "name": "add"})),
            "0 is not supported together with `tool_choice`",
        ),
        beta_case(
            "choice of a tool that no message adds",
            &["inline-tools-2026-09-15"],
            set(
                talk(json!([
                    says("user", json!("a")),
                    says(
                        "system",
                        json!([
                            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "run_sql"}}},
                        ])
                    )
                ])),
                "",
                "tool_choice",
                json!({"type": "tool", "name": "run_js"}),
            ),
            "Tool 'run_js' not found",
        ),
        case(
            "warm-up with a forced call",
            set(with("max_tokens", json!(0)), "", "tool_choice", json!({"type": "any"})),
            "0 is not supported together with `tool_choice`",
        ),
        case(
            "warm-up with a format",
            set(
                with("max_tokens", json!(0)),
                "",
                "output_config",
                json!({"format": {"type": "json_schema"}}),
            ),
            "0 is not supported together with `output_config.format`",
        ),
        case(
            "warm-up with thinking",
            set(
                with("max_tokens", json!(0)),
                "",
                "thinking",
                json!({"type": "enabled", "budget_tokens": 1024}),
            ),
            "0 is not supported together with `thinking`",
        ),
        case("no messages", without("messages"), "messages: Field required"),
        case("messages text", talk(json!("hi")), "messages: Input should be a valid list"),
        case("messages empty", talk(json!([])), "at least one message is required"),
        case("stream text", with("stream", json!("yes")), "stream: Input should be a valid boolean"),
        case("speed number", with("speed", json!(2)), "speed: Input should be a valid string"),
        case("stop_sequences text", with("stop_sequences", json!("x")), "stop_sequences: Input should be"),
        case("stop sequence number", with("stop_sequences", json!([1])), "stop_sequences.0: Input should be"),
        case("stop sequence blank", with("stop_sequences", json!(["\n"])), "must contain non-whitespace"),
        case("metadata text", with("metadata", json!("u")), "metadata: Input should be"),
        case("metadata field", with("metadata", json!({"name": "n"})), "metadata.name: Extra inputs"),
        case(
            "metadata user_id",
            with("metadata", json!({"user_id": 1})),
            "metadata.user_id: Input should be",
        ),
        case("diagnostics field", with("diagnostics", json!({"x": 1})), "diagnostics.x: Extra inputs"),
        case("system number", with("system", json!(1)), "system: Input should be a valid string or list"),
        case(
            "system empty block",
            with("system", json!([text("")])),
            "system.0: text content blocks must be non-empty",
        ),
        case(
            "system image",
            with("system", json!([image("image/png", PNG)])),
            "system.0.type: Input should be 'text'",
        ),
        case("container number", with("container", json!(1)), "container: Input should be"),
        case("container field", with("container", json!({"name": "c"})), "container.name: Extra inputs"),
        case("thinking text", with("thinking", json!("on")), "thinking: Input should be a valid dictionary"),
        case("thinking type", with("thinking", json!({"type": "deep"})), "Input tag 'deep'"),
        case(
            "thinking enabled on a new model",
            with("thinking", json!({"type": "enabled", "budget_tokens": 1024})),
            "\"thinking.type.enabled\" is not supported",
        ),
        case(
            "thinking disabled on a model that always thinks",
            model("claude-opus-5-5", with("thinking", json!({"type": "disabled"}))),
            "\"thinking.type.disabled\" is not supported",
        ),
        case(
            "thinking adaptive on an old model",
            model("claude-opus-4-5", with("thinking", json!({"type": "adaptive"}))),
            "adaptive thinking is not supported",
        ),
        case(
            "thinking without budget",
            model("claude-opus-4-5", with("thinking", json!({"type": "enabled"}))),
            "budget_tokens: Field required",
        ),
        case(
            "thinking budget low",
            model("claude-opus-4-5", with("thinking", json!({"type": "enabled", "budget_tokens": 1023}))),
            "greater than or equal to 1024",
        ),
        case(
            "thinking budget above max_tokens",
            model("claude-opus-4-5", with("thinking", json!({"type": "enabled", "budget_tokens": 1024}))),
            "`max_tokens` must be greater than",
        ),
        case(
            "between_tools with display",
            with("thinking", json!({"type": "between_tools", "display": "omitted"})),
            "thinking.between_tools.display: Extra inputs",
        ),
        case(
            "thinking display",
            with("thinking", json!({"type": "adaptive", "display": "full"})),
            "thinking.adaptive.display: Input should be",
        ),
        case(
            "thinking display updates without its beta",
            with("thinking", json!({"type": "adaptive", "display": "updates"})),
            "thinking.adaptive.display: Input should be",
        ),
        case(
            "block_binding without its beta",
            with("thinking", json!({"type": "adaptive", "block_binding": {}})),
            "block_binding: Extra inputs",
        ),
        case("output_config field", with("output_config", json!({"x": 1})), "output_config.x: Extra inputs"),
        case(
            "effort",
            with("output_config", json!({"effort": "huge"})),
            "output_config.effort: Input should be",
        ),
        case(
            "task_budget without its beta",
            with("output_config", json!({"task_budget": {}})),
            "output_config.task_budget: Extra inputs",
        ),
        case(
            "format type",
            with("output_config", json!({"format": {"type": "json", "schema": {}}})),
            "format.type: Input should be 'json_schema'",
        ),
        case(
            "format schema",
            with("output_config", json!({"format": {"type": "json_schema", "schema": {"type": "object"}}})),
            "'additionalProperties' must be explicitly set to false",
        ),
        case("context_management without its beta", with("context_management", json!({})), "Extra inputs"),
        case("compaction without its beta", with("compaction", json!({"type": "summarize"})), "Extra inputs"),
        case("mcp_servers without its beta", with("mcp_servers", json!([])), "mcp_servers: Extra inputs"),
        case("fallbacks without its beta", with("fallbacks", json!("default")), "fallbacks: Extra inputs"),
        case(
            "fallback_credit_token without its beta",
            with("fallback_credit_token", json!("t")),
            "Extra inputs",
        ),
        case("thread without its beta", with("thread", json!({"type": "create"})), "thread: Extra inputs"),
        case(
            "billing_policy without its beta",
            with("billing_policy", json!({})),
            "billing_policy: Extra inputs",
        ),
        beta_case(
            "another field's beta",
            &["mcp-client-2025-11-20"],
            with("thread", json!({})),
            "thread: Extra inputs",
        ),
        beta_case(
            "compaction with stop sequences",
            &["compact-2026-09-04"],
            set(with("compaction", json!({"type": "summarize"})), "", "stop_sequences", json!(["x"])),
            "not supported together with `stop_sequences`",
        ),
        beta_case(
            "compaction with context management",
            &["compact-2026-09-04", "context-management-2025-06-27"],
            set(
                with("compaction", json!({"type": "summarize"})),
                "",
                "context_management",
                json!({"edits": []}),
            ),
            "not supported together with `context_management`",
        ),
        beta_case(
            "compaction with a format",
            &["compact-2026-09-04"],
            set(
                with("compaction", json!({"type": "summarize"})),
                "",
                "output_config",
                json!({"format": {"type": "json_schema", "schema": {}}}),
            ),
            "not supported together with `output_config.format`",
        ),
        beta_case(
            "compaction with a forced call",
            &["compact-2026-09-04"],
            set(with("compaction", json!({"type": "summarize"})), "", "tool_choice", json!({"type": "any"})),
            "compaction: not supported together with `tool_choice`",
        ),
        case(
            "diagnostics text",
            with("diagnostics", json!("x")),
            "diagnostics: Input should be a valid dictionary",
        ),
        case("thinking without type", with("thinking", json!({})), "thinking.type: Field required"),
        case("output_config text", with("output_config", json!("high")), "output_config: Input should be"),
        case(
            "format without schema",
            with("output_config", json!({"format": {"type": "json_schema"}})),
            "output_config.format.schema: Field required",
        ),
        case(
            "format schema list",
            with("output_config", json!({"format": {"type": "json_schema", "schema": []}})),
            "output_config.format.schema: a schema must be an object",
        ),
        case("choice text", with("tool_choice", json!("auto")), "tool_choice: Input should be"),
        case("choice type", with("tool_choice", json!({"type": "required"})), "Input tag 'required'"),
        case("choice without type", with("tool_choice", json!({})), "tool_choice.type: Field required"),
        case(
            "choice field",
            with("tool_choice", json!({"type": "none", "name": "add"})),
            "tool_choice.none.name: Extra",
        ),
        case(
            "choice unknown tool",
            with("tool_choice", json!({"type": "tool", "name": "x"})),
            "Tool 'x' not found",
        ),
        case(
            "choice without name",
            with("tool_choice", json!({"type": "tool"})),
            "tool_choice.tool.name: Field required",
        ),
        case(
            "choice without tools",
            set(without("tools"), "", "tool_choice", json!({"type": "auto"})),
            "may only be specified while providing tools",
        ),
        case("forced opus 5.5", forced("claude-opus-5-5", json!({"type": "any"})), "'any' is not supported"),
        case(
            "forced sonnet 5.5",
            forced("claude-sonnet-5-5", json!({"type": "tool", "name": "add"})),
            "'tool' is not supported",
        ),
        case(
            "forced fable 5.1",
            forced("claude-fable-5-1", json!({"type": "any"})),
            "'any' is not supported",
        ),
        case(
            "forced fable 5.2",
            forced("claude-fable-5-2", json!({"type": "any"})),
            "'any' is not supported",
        ),
        case(
            "forced mythos 5.1",
            forced("claude-mythos-5-1", json!({"type": "any"})),
            "'any' is not supported",
        ),
        case(
            "forced mythos 5.2",
            forced("claude-mythos-5-2-20261109", json!({"type": "any"})),
            "'any' is not supported",
        ),
    ]);
}
