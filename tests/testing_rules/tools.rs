//! Tools and cache marks.

use serde_json::{Value, json};

use crate::{
    assert_refused, beta_case, call, case, marked, marked_for, property, says, set, strict, text, tool, turn,
    user, with,
};

#[test]
fn illegal_cache_marks_are_refused() {
    let five = json!([
        marked(text("1")),
        marked(text("2")),
        marked(text("3")),
        marked(text("4")),
        marked(text("5"))
    ]);
    let four = json!([marked(text("1")), marked(text("2")), marked(text("3")), marked(text("4"))]);
    let spread = set(
        set(
            tool(json!({"cache_control": {"type": "ephemeral"}})),
            "",
            "system",
            json!([marked(text("s"))]),
        ),
        "",
        "messages",
        turn(json!([call("toolu_1")]), json!([says("user", json!([marked(json!({
            "type": "tool_result", "tool_use_id": "toolu_1", "content": [marked(text("a")), marked(text("b"))]
        }))]))]))["messages"]
            .take(),
    );
    assert_refused(&[
        case("five", user(five), "A maximum of 4 blocks with cache_control may be provided. Found 5."),
        case("five over tools, system and a result", spread, "Found 5."),
        case(
            "four and the automatic one",
            set(user(four), "", "cache_control", json!({"type": "ephemeral"})),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        case(
            "mark type",
            user(json!([{"type": "text", "text": "x", "cache_control": {"type": "forever"}}])),
            "cache_control.type: Input should be 'ephemeral'",
        ),
        case(
            "mark ttl",
            user(json!([marked_for(text("x"), "2h")])),
            "cache_control.ttl: Input should be '5m' or '1h'",
        ),
        case(
            "automatic mark type",
            with("cache_control", json!({})),
            "cache_control.type: Input should be 'ephemeral'",
        ),
        case(
            "an hour after five minutes",
            user(json!([marked_for(text("x"), "5m"), marked_for(text("y"), "1h")])),
            "must not come after a ttl='5m'",
        ),
        case(
            "marked thinking",
            turn(
                json!([marked(json!({"type": "thinking", "thinking": "", "signature": "s"}))]),
                json!([says("user", json!("x"))]),
            ),
            "messages.1.content.0.thinking.cache_control: Extra inputs",
        ),
        case(
            "marked redacted thinking",
            turn(
                json!([marked(json!({"type": "redacted_thinking", "data": "s"}))]),
                json!([says("user", json!("x"))]),
            ),
            "redacted_thinking.cache_control: Extra inputs",
        ),
    ]);
}

#[test]
fn illegal_tools_are_refused() {
    let all = |list: Value| with("tools", list);
    let named = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    let many: Vec<_> = (0..21)
        .map(|n| json!({"name": format!("t{n}"), "strict": true, "input_schema": {"type": "object", "additionalProperties": false}}))
        .collect();
    let optional: serde_json::Map<_, _> =
        (0..26).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    let unions: serde_json::Map<_, _> =
        (0..17).map(|n| (format!("p{n}"), json!({"type": ["string", "null"]}))).collect();
    let required: Vec<_> = unions.keys().cloned().collect();
    assert_refused(&[
        case("tools object", all(json!({})), "tools: Input should be a valid list"),
        case("tool text", all(json!(["add"])), "tools.0: Input should be a valid dictionary"),
        case(
            "tool of another API",
            all(json!([{"type": "function", "function": {}}])),
            "tools.0: Input tag 'function'",
        ),
        case("tool field", tool(json!({"parameters": {}})), "tools.0.custom.parameters: Extra inputs"),
        case(
            "no name",
            all(json!([{"input_schema": {"type": "object"}}])),
            "tools.0.custom.name: Field required",
        ),
        case("empty name", all(json!([named("")])), "name: String should have at least 1 character"),
        case("name with a dot", all(json!([named("a.b")])), "name: String should match pattern"),
        case(
            "name with a letter beyond ASCII",
            all(json!([named("größe")])),
            "name: String should match pattern",
        ),
        case("name too long", all(json!([named(&"a".repeat(129))])), "name: String should match pattern"),
        case("name twice", all(json!([named("a"), named("a")])), "tools: Tool names must be unique."),
        case(
            "name of a server tool twice",
            all(json!([named("web_search"), {"type": "web_search_20260318", "name": "web_search"}])),
            "must be unique",
        ),
        case("description", tool(json!({"description": 1})), "description: Input should be a valid string"),
        case("strict text", tool(json!({"strict": "yes"})), "strict: Input should be a valid boolean"),
        case(
            "eager text",
            tool(json!({"eager_input_streaming": 1})),
            "eager_input_streaming: Input should be a valid boolean",
        ),
        case("examples", tool(json!({"input_examples": ["x"]})), "input_examples: Input should be"),
        case("no schema", all(json!([{"name": "a"}])), "input_schema: Field required"),
        case(
            "schema text",
            tool(json!({"input_schema": "x"})),
            "input_schema: Input should be a valid dictionary",
        ),
        case("schema without type", tool(json!({"input_schema": {}})), "input_schema.type: Field required"),
        case(
            "schema of an array",
            tool(json!({"input_schema": {"type": "array"}})),
            "input_schema.type: Input should be 'object'",
        ),
        case(
            "root oneOf",
            tool(json!({"input_schema": {"type": "object", "oneOf": []}})),
            "does not support oneOf, allOf, or anyOf at the top level",
        ),
        case(
            "root anyOf",
            tool(json!({"input_schema": {"type": "object", "anyOf": []}})),
            "does not support oneOf",
        ),
        case(
            "root allOf",
            tool(json!({"input_schema": {"type": "object", "allOf": []}})),
            "does not support oneOf",
        ),
        case("caller", tool(json!({"allowed_callers": ["cron"]})), "\"cron\" is not a known caller"),
        case(
            "callers",
            tool(json!({"allowed_callers": "direct"})),
            "allowed_callers: Input should be a valid list",
        ),
        case(
            "one example of two",
            tool(json!({"input_examples": [{}, "x"]})),
            "input_examples: Input should be",
        ),
        case(
            "one programmatic tool of two and not parallel",
            set(
                all(
                    json!([named("a"), {"name": "b", "input_schema": {"type": "object"}, "allowed_callers": ["code_execution_20260120"]}]),
                ),
                "",
                "tool_choice",
                json!({"type": "auto", "disable_parallel_tool_use": true}),
            ),
            "not supported with programmatic tool calling",
        ),
        case(
            "all deferred",
            tool(json!({"defer_loading": true})),
            "At least one tool must have defer_loading=false",
        ),
        case(
            "deferred and marked",
            tool(json!({"defer_loading": true, "cache_control": {"type": "ephemeral"}})),
            "Tools with defer_loading=true cannot have cache_control set",
        ),
        case(
            "deferred tool search",
            all(
                json!([named("a"), {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex", "defer_loading": true}]),
            ),
            "must not be deferred",
        ),
        case(
            "server tool name",
            all(json!([{"type": "web_search_20260318", "name": "search"}])),
            "name: Input should be 'web_search'",
        ),
        case(
            "server tool domains",
            all(
                json!([{"type": "web_search_20260318", "name": "web_search", "allowed_domains": [], "blocked_domains": []}]),
            ),
            "only one of `allowed_domains` and `blocked_domains`",
        ),
        case(
            "server tool schema",
            all(json!([{"type": "bash_20250124", "name": "bash", "input_schema": {}}])),
            "input_schema: Extra inputs",
        ),
        case(
            "toolset with a name",
            all(json!([{"type": "computer_toolset_20260801", "name": "computer"}])),
            "name: Extra inputs",
        ),
        case(
            "toolset strict",
            all(json!([{"type": "browser_toolset_20260801", "strict": true}])),
            "strict: Extra inputs",
        ),
        case(
            "toolset deferred",
            all(json!([{"type": "browser_toolset_20260801", "defer_loading": true}])),
            "defer_loading: Extra inputs",
        ),
        case(
            "toolset and its name",
            all(json!([named("computer"), {"type": "computer_toolset_20260801"}])),
            "no other tool may be called `computer`",
        ),
        case(
            "advisor without its beta",
            all(json!([{"type": "advisor_20260301", "name": "advisor"}])),
            "Input tag 'advisor_20260301'",
        ),
        case(
            "mcp_toolset without its beta",
            all(json!([{"type": "mcp_toolset", "mcp_server_name": "crm"}])),
            "Input tag 'mcp_toolset'",
        ),
        beta_case(
            "mcp_toolset without server",
            &["mcp-client-2025-11-20"],
            all(json!([{"type": "mcp_toolset", "mcp_server_name": "crm"}])),
            "mcp_toolset names the unknown server 'crm'",
        ),
        beta_case(
            "mcp server without toolset",
            &["mcp-client-2025-11-20"],
            with("mcp_servers", json!([{"type": "url", "name": "crm", "url": "https://mcp.example.net"}])),
            "server 'crm' must be referenced by exactly one mcp_toolset",
        ),
        case(
            "programmatic and strict",
            tool(
                json!({"strict": true, "allowed_callers": ["code_execution_20260120"], "input_schema": {"type": "object", "additionalProperties": false}}),
            ),
            "strict tools are not supported with programmatic tool calling",
        ),
        case(
            "programmatic and not parallel",
            set(
                tool(json!({"allowed_callers": ["code_execution_20260120"]})),
                "",
                "tool_choice",
                json!({"type": "auto", "disable_parallel_tool_use": true}),
            ),
            "not supported with programmatic tool calling",
        ),
        case(
            "programmatic and forced",
            set(
                tool(json!({"allowed_callers": ["code_execution_20260120"]})),
                "",
                "tool_choice",
                json!({"type": "tool", "name": "add"}),
            ),
            "cannot be forced",
        ),
        case(
            "strict object left open",
            strict(json!({"type": "object"})),
            "input_schema: For 'object' type, 'additionalProperties' must be",
        ),
        case(
            "strict inner object left open",
            property(json!({"type": "object"})),
            "input_schema.properties.a: For 'object' type",
        ),
        case(
            "strict open object in a list",
            property(json!({"type": "array", "items": {"type": "object"}})),
            "properties.a.items: For 'object' type",
        ),
        case(
            "strict minimum",
            property(json!({"type": "integer", "minimum": 0})),
            "property 'minimum' is not supported",
        ),
        case(
            "strict maxLength",
            property(json!({"type": "string", "maxLength": 9})),
            "property 'maxLength' is not supported",
        ),
        case(
            "strict maxItems",
            property(json!({"type": "array", "maxItems": 9})),
            "property 'maxItems' is not supported",
        ),
        case("strict oneOf", property(json!({"oneOf": []})), "property 'oneOf' is not supported"),
        case(
            "strict bound inside anyOf",
            property(json!({"anyOf": [{"type": "integer", "maximum": 1}]})),
            "a.anyOf.0: property 'maximum'",
        ),
        case(
            "strict minItems",
            property(json!({"type": "array", "minItems": 2})),
            "'minItems' values other than 0 or 1",
        ),
        case(
            "strict format",
            property(json!({"type": "string", "format": "uint32"})),
            "string format 'uint32' is not supported",
        ),
        case(
            "strict lookahead",
            property(json!({"type": "string", "pattern": "^(?=a)"})),
            "the regex of 'pattern' is not supported",
        ),
        case(
            "strict word bound",
            property(json!({"type": "string", "pattern": "\\bx"})),
            "the regex of 'pattern' is not supported",
        ),
        case(
            "strict external ref",
            property(json!({"$ref": "https://example.net/a.json"})),
            "external references are not supported",
        ),
        case("strict lost ref", property(json!({"$ref": "#/$defs/None"})), "was not found in the schema"),
        case("strict ref to the root", property(json!({"$ref": "#"})), "recursive schemas are not supported"),
        case(
            "strict allOf with ref",
            property(json!({"allOf": [{"$ref": "#/$defs/A"}]})),
            "`allOf` with `$ref` is not supported",
        ),
        case(
            "strict recursion",
            strict(
                json!({"type": "object", "additionalProperties": false, "properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {
                    "N": {"type": "object", "additionalProperties": false, "properties": {"next": {"$ref": "#/$defs/N"}}}
                }}),
            ),
            "recursive schemas are not supported",
        ),
        case("21 strict tools", all(Value::Array(many)), "at most 20 strict tools"),
        case(
            "25 optional parameters",
            strict(
                json!({"type": "object", "additionalProperties": false, "properties": optional, "required": ["p3"]}),
            ),
            "Schema is too complex for compilation.",
        ),
        case(
            "17 unions",
            strict(
                json!({"type": "object", "additionalProperties": false, "properties": unions, "required": required}),
            ),
            "Schema is too complex for compilation.",
        ),
    ]);
}
