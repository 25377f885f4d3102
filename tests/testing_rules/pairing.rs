//! Calls and their results.

use serde_json::{Value, json};

use crate::{
    PNG, answer, assert_refused, beta_case, by_code, call, case, code, content, found, image, model, result,
    says, search, search_result, server_tools, set, talk, text, turn, user,
};

#[test]
fn illegal_pairs_are_refused() {
    let two = || json!([call("toolu_1"), call("toolu_2")]);
    let mixed = |blocks: Value| {
        server_tools(turn(json!([search("srvtoolu_1"), call("toolu_1")]), json!([says("user", blocks)])))
    };
    let container = |body: Value| set(body, "", "container", json!("container_1"));
    assert_refused(&[
        case(
            "call not answered",
            turn(json!([call("toolu_1")]), json!([says("user", json!("x"))])),
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.",
        ),
        case(
            "one of two not answered",
            turn(two(), json!([says("user", json!([answer("toolu_2")]))])),
            "immediately after: toolu_1.",
        ),
        case(
            "both not answered",
            turn(two(), json!([says("user", json!("x"))])),
            "immediately after: toolu_1, toolu_2.",
        ),
        case(
            "answered one turn late",
            turn(
                two(),
                json!([
                    says("user", json!([answer("toolu_1")])),
                    says("assistant", json!("b")),
                    says("user", json!([answer("toolu_2")])),
                ]),
            ),
            "immediately after: toolu_2.",
        ),
        case(
            "calls of two joined messages",
            turn(
                json!([call("toolu_1")]),
                json!([
                    says("assistant", json!([call("toolu_2")])),
                    says("user", json!([answer("toolu_2")]))
                ]),
            ),
            "messages.1: `tool_use` ids were found",
        ),
        case(
            "call at the end",
            turn(json!([call("toolu_1")]), json!([])),
            "does not support assistant message prefill",
        ),
        case(
            "mixed turn at the end",
            server_tools(turn(json!([search("srvtoolu_1"), call("toolu_1")]), json!([]))),
            "does not support assistant message prefill",
        ),
        case(
            "text at the end",
            turn(json!("The answer is"), json!([])),
            "does not support assistant message prefill",
        ),
        case(
            "finished server call and text at the end",
            server_tools(turn(json!([search("srvtoolu_1"), found("srvtoolu_1"), text("x")]), json!([]))),
            "does not support assistant message prefill",
        ),
        case(
            "prefill of an old model with a call",
            model("claude-opus-4-5", turn(json!([call("toolu_1")]), json!([]))),
            "does not support assistant message prefill",
        ),
        case(
            "prefill that ends in a space",
            model("claude-opus-4-5", turn(json!("It is "), json!([]))),
            "cannot end with trailing whitespace",
        ),
        beta_case(
            "credit continuation that ends in a space",
            &["fallback-credit-2026-07-01"],
            set(turn(json!("It is "), json!([])), "", "fallback_credit_token", json!("fct_1")),
            "cannot end with trailing whitespace",
        ),
        beta_case(
            "bare compaction block",
            &["compact-2026-09-04"],
            talk(json!([says(
                "assistant",
                json!([{"type": "compaction", "content": "c", "signature": "s"}])
            )])),
            "does not support assistant message prefill",
        ),
        beta_case(
            "compaction with an open call",
            &["compact-2026-09-04"],
            set(turn(json!([call("toolu_1")]), json!([])), "", "compaction", json!({"type": "summarize"})),
            "compaction: the last turn has `tool_use` blocks without",
        ),
        case(
            "result without call",
            user(json!([answer("toolu_1")])),
            "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
        ),
        case(
            "result of an unknown id",
            turn(
                json!([call("toolu_1")]),
                json!([says("user", json!([answer("toolu_1"), answer("toolu_9")]))]),
            ),
            "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_9.",
        ),
        case(
            "result of an earlier turn",
            turn(
                json!([call("toolu_1")]),
                json!([
                    says("user", json!([answer("toolu_1")])),
                    says("assistant", json!("b")),
                    says("user", json!([answer("toolu_1")])),
                ]),
            ),
            "messages.4.content.0: unexpected `tool_use_id`",
        ),
        case(
            "two results of one call",
            turn(
                json!([call("toolu_1")]),
                json!([says("user", json!([answer("toolu_1")])), says("user", json!([answer("toolu_1")]))]),
            ),
            "messages.3.content.0: each `tool_use` must have a single result. Found multiple `tool_result` blocks with id: toolu_1",
        ),
        case(
            "result for a server call",
            server_tools(turn(
                json!([search("srvtoolu_1"), call("toolu_1")]),
                json!([says("user", json!([answer("toolu_1"), answer("srvtoolu_1")]))]),
            )),
            "may not answer server tool calls: srvtoolu_1",
        ),
        case(
            "result for an mcp id",
            user(json!([answer("mcptoolu_1")])),
            "may not answer server tool calls: mcptoolu_1",
        ),
        case(
            "result for a server id",
            user(json!([answer("srvtoolu_1")])),
            "may not answer server tool calls: srvtoolu_1",
        ),
        case(
            "result for a server call with another prefix",
            server_tools(turn(
                json!([search("id_1"), call("toolu_1")]),
                json!([says("user", json!([answer("toolu_1"), answer("id_1")]))]),
            )),
            "may not answer server tool calls: id_1",
        ),
        case(
            "id twice in one turn",
            turn(
                json!([call("toolu_1"), call("toolu_1")]),
                json!([says("user", json!([answer("toolu_1")]))]),
            ),
            "messages.1.content.1: `tool_use` ids must be unique",
        ),
        case(
            "id twice in two turns",
            turn(
                json!([call("toolu_1")]),
                json!([
                    says("user", json!([answer("toolu_1")])),
                    says("assistant", json!([call("toolu_1")])),
                    says("user", json!([answer("toolu_1")])),
                ]),
            ),
            "messages.3.content.0: `tool_use` ids must be unique",
        ),
        case(
            "text before the result",
            turn(json!([call("toolu_1")]), json!([says("user", json!([text("Here:"), answer("toolu_1")]))])),
            "messages.2.content.1: `tool_result` blocks must come before any other block",
        ),
        case(
            "text message before the result",
            turn(
                json!([call("toolu_1")]),
                json!([says("user", json!("Here:")), says("user", json!([answer("toolu_1")]))]),
            ),
            "messages.3.content.0: `tool_result` blocks must come before any other block",
        ),
        case(
            "text between results",
            turn(
                two(),
                json!([
                    says("user", json!([answer("toolu_1"), text("and")])),
                    says("user", json!([answer("toolu_2")]))
                ]),
            ),
            "messages.3.content.0: `tool_result` blocks must come before any other block",
        ),
        case(
            "text after the results of a mixed turn",
            mixed(json!([answer("toolu_1"), text("go on")])),
            "messages.2.content.1: `web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block",
        ),
        case(
            "text message after the results of a mixed turn",
            server_tools(turn(
                json!([search("srvtoolu_1"), call("toolu_1")]),
                json!([says("user", json!([answer("toolu_1")])), says("user", json!("go on"))]),
            )),
            "messages.3.content.0: `web_search` tool use with id `srvtoolu_1`",
        ),
        case(
            "text after a paused turn",
            server_tools(turn(json!([search("srvtoolu_1")]), json!([says("user", json!("go on"))]))),
            "`web_search` tool use with id `srvtoolu_1` was found without",
        ),
        case(
            "text while a server call of an earlier turn is open",
            container(server_tools(turn(
                json!([code("srvtoolu_1"), by_code("toolu_1")]),
                json!([
                    says("user", json!([answer("toolu_1")])),
                    says("assistant", json!([call("toolu_2")])),
                    says("user", json!([answer("toolu_2"), text("hurry")])),
                ]),
            ))),
            "`code_execution` tool use with id `srvtoolu_1`",
        ),
        beta_case(
            "text after the results while an mcp call is open",
            &["mcp-client-2025-11-20"],
            turn(
                json!([{"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "find", "server_name": "crm", "input": {}}, call("toolu_1")]),
                json!([says("user", json!([answer("toolu_1"), text("x")]))]),
            ),
            "`find` tool use with id `mcptoolu_1` was found without a corresponding `mcp_tool_result` block",
        ),
        case(
            "text while a programmatic call is pending",
            container(turn(
                json!([by_code("toolu_1")]),
                json!([says("user", json!([answer("toolu_1"), text("x")]))]),
            )),
            "only `tool_result` blocks are permitted while the programmatic call toolu_1 is pending",
        ),
        case(
            "programmatic call without container",
            server_tools(turn(
                json!([code("srvtoolu_1"), by_code("toolu_1")]),
                json!([says("user", json!([answer("toolu_1")]))]),
            )),
            "container_id is required",
        ),
        case(
            "programmatic call with a container that has no id",
            set(
                server_tools(turn(
                    json!([code("srvtoolu_1"), by_code("toolu_1")]),
                    json!([says("user", json!([answer("toolu_1")]))]),
                )),
                "",
                "container",
                json!({"skills": []}),
            ),
            "container_id is required",
        ),
        case(
            "open server call without its tool",
            turn(json!([search("srvtoolu_1")]), json!([])),
            "no `web_search` tool was provided",
        ),
        case(
            "input text",
            turn(json!([{"type": "tool_use", "id": "toolu_1", "name": "add", "input": "{}"}]), json!([])),
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
        case(
            "input null",
            turn(json!([{"type": "tool_use", "id": "toolu_1", "name": "add", "input": null}]), json!([])),
            "tool_use.input: Input should be a valid dictionary",
        ),
        case(
            "input list",
            turn(
                json!([{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": []}]),
                json!([]),
            ),
            "server_tool_use.input: Input should be a valid dictionary",
        ),
        case(
            "no input",
            turn(json!([{"type": "tool_use", "id": "toolu_1", "name": "add"}]), json!([])),
            "tool_use.input: Field required",
        ),
        case(
            "no id",
            turn(json!([{"type": "tool_use", "name": "add", "input": {}}]), json!([])),
            "tool_use.id: Field required",
        ),
        case(
            "empty name",
            turn(json!([{"type": "tool_use", "id": "toolu_1", "name": "", "input": {}}]), json!([])),
            "tool_use.name: String should have at least 1 character",
        ),
        case(
            "result without id",
            result(json!({"type": "tool_result"})),
            "tool_result.tool_use_id: Field required",
        ),
        case(
            "result field",
            result(json!({"type": "tool_result", "tool_use_id": "toolu_1", "name": "add"})),
            "tool_result.name: Extra inputs",
        ),
        case(
            "result is_error text",
            result(json!({"type": "tool_result", "tool_use_id": "toolu_1", "is_error": "no"})),
            "is_error: Input should be a valid boolean",
        ),
        case(
            "result content number",
            content(json!(3)),
            "tool_result.content: Input should be a valid string or list",
        ),
        case(
            "result content object",
            content(json!({"sum": 3})),
            "tool_result.content: Input should be a valid string or list",
        ),
        case(
            "result content strings",
            content(json!(["3"])),
            "tool_result.content.0: Input should be a valid dictionary",
        ),
        case(
            "result content without type",
            content(json!([{"text": "3"}])),
            "tool_result.content.0.type: Field required",
        ),
        case(
            "result content empty text",
            content(json!([text("")])),
            "tool_result.content.0: text content blocks must be non-empty",
        ),
        case("result content call", content(json!([call("toolu_2")])), "Input tag 'tool_use'"),
        case(
            "error with an image",
            result(
                json!({"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "content": [text("no"), image("image/png", PNG)]}),
            ),
            "messages.2.content.0: all content must be type \"text\" if `is_error` is true",
        ),
        case("search results mixed", content(json!([search_result(), text("x")])), "may not be mixed"),
        case(
            "result without toolset name",
            turn(
                json!([{"type": "tool_use", "id": "toolu_1", "name": "left_click", "toolset_name": "computer", "input": {}}]),
                json!([says("user", json!([answer("toolu_1")]))]),
            ),
            "toolset_name: must be that of the `tool_use` block toolu_1",
        ),
    ]);
}
