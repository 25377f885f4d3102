//! Messages and blocks.

use serde_json::{Value, json};

use crate::{
    JPEG, PNG, answer, assert_refused, beta_case, call, case, content, document, found, image, marked, model,
    says, search, search_result, server_tools, talk, text, turn, user,
};

#[test]
fn illegal_messages_are_refused() {
    let late = |system: Value| {
        talk(json!([
            says("user", json!("a")),
            says("assistant", json!("b")),
            says("user", json!("c")),
            system
        ]))
    };
    assert_refused(&[
        case("message text", talk(json!(["hi"])), "messages.0: Input should be a valid dictionary"),
        case("no role", talk(json!([{"content": "hi"}])), "messages.0.role: Field required"),
        case("unknown role", talk(json!([says("tool", json!("hi"))])), "messages.0.role: Input should be"),
        case(
            "message field",
            talk(json!([{"role": "user", "content": "hi", "name": "n"}])),
            "messages.0.name: Extra",
        ),
        case("no content", talk(json!([{"role": "user"}])), "messages.0.content: Field required"),
        case("content null", talk(json!([says("user", Value::Null)])), "messages.0.content: Input should be"),
        case("assistant first", talk(json!([says("assistant", json!("hi"))])), "must use the \"user\" role"),
        case("content empty text", user(json!("")), "messages.0: user messages must have non-empty content"),
        case(
            "content blank",
            user(json!(" \n")),
            "messages.0: text content blocks must contain non-whitespace",
        ),
        case("content empty list", user(json!([])), "messages.0: user messages must have non-empty content"),
        case(
            "assistant empty list",
            turn(json!([]), json!([says("user", json!("x"))])),
            "messages.1: assistant messages must have non-empty content",
        ),
        case(
            "assistant empty text",
            turn(json!(""), json!([says("user", json!("x"))])),
            "messages.1: assistant messages must have non-empty content",
        ),
        case("block text", user(json!(["hi"])), "messages.0.content.0: Input should be a valid dictionary"),
        case("block without type", user(json!([{"text": "x"}])), "messages.0.content.0.type: Field required"),
        case(
            "empty text block",
            user(json!([text("a"), text("")])),
            "messages.0.content.1: text content blocks must be non-empty",
        ),
        case("blank text block", user(json!([text("\t")])), "must contain non-whitespace text"),
        case(
            "empty text block of the assistant",
            turn(json!([text("")]), json!([says("user", json!("x"))])),
            "messages.1.content.0: text content blocks must be non-empty",
        ),
        case("text without text", user(json!([{"type": "text"}])), "text.text: Field required"),
        case(
            "text number",
            user(json!([{"type": "text", "text": 1}])),
            "text.text: Input should be a valid string",
        ),
        case("text field", user(json!([{"type": "text", "text": "a", "id": 1}])), "text.id: Extra inputs"),
        case(
            "citations of the user",
            user(json!([{"type": "text", "text": "a", "citations": [{"type": "char_location"}]}])),
            "text.citations: citations are only permitted in `assistant` messages",
        ),
        case(
            "citations in a search result",
            user(json!([{"type": "search_result", "source": "s", "title": "t", "content":
                [{"type": "text", "text": "a", "citations": [{"type": "char_location"}]}]}])),
            "citations are only permitted in `assistant` messages",
        ),
        case("unknown block of the user", user(json!([{"type": "video"}])), "Input tag 'video'"),
        case(
            "call of the user",
            user(json!([call("toolu_1")])),
            "`tool_use` blocks can only be in `assistant`",
        ),
        case(
            "thinking of the user",
            user(json!([{"type": "thinking"}])),
            "`thinking` blocks can only be in `assistant`",
        ),
        case("server result of the user", user(json!([found("srvtoolu_1")])), "can only be in `assistant`"),
        case(
            "tool_reference of the user",
            user(json!([{"type": "tool_reference", "tool_name": "add"}])),
            "Input tag 'tool_reference'",
        ),
        case(
            "result of the assistant",
            turn(json!([answer("toolu_1")]), json!([])),
            "can only be in `user` messages",
        ),
        case(
            "document of the assistant",
            turn(json!([document()]), json!([])),
            "`document` blocks are not permitted",
        ),
        case(
            "search result of the assistant",
            turn(json!([search_result()]), json!([])),
            "can only be in `user`",
        ),
        case(
            "tool_reference of the assistant",
            turn(json!([{"type": "tool_reference", "tool_name": "add"}]), json!([])),
            "can only be in the content of a `tool_result`",
        ),
        case(
            "tool change of the assistant",
            turn(json!([{"type": "tool_addition"}]), json!([])),
            "can only be in `system`",
        ),
        case(
            "thinking without signature",
            turn(json!([{"type": "thinking", "thinking": "a"}]), json!([says("user", json!("x"))])),
            "thinking.signature: Field required",
        ),
        case(
            "redacted thinking without data",
            turn(json!([{"type": "redacted_thinking"}]), json!([says("user", json!("x"))])),
            "redacted_thinking.data: Field required",
        ),
        case(
            "compaction block without its beta",
            turn(json!([{"type": "compaction", "content": "c"}]), json!([])),
            "Input tag 'compaction'",
        ),
        beta_case(
            "compaction block of a later user message",
            &["compact-2026-09-04"],
            talk(json!([
                says("user", json!("a")),
                says("user", json!([{"type": "compaction", "content": "c"}]))
            ])),
            "`compaction` blocks can only be in `assistant`",
        ),
        case(
            "mcp listing without its beta",
            turn(json!([{"type": "mcp_tool_listing"}]), json!([])),
            "Input tag 'mcp_tool_listing'",
        ),
        case("image empty", user(json!([image("image/png", "")])), "image cannot be empty"),
        case("image no base64", user(json!([image("image/png", "???")])), "invalid base64 data"),
        case(
            "image media type",
            user(json!([image("image/bmp", PNG)])),
            "media_type: Input should be 'image/jpeg'",
        ),
        case(
            "image of another type",
            user(json!([image("image/png", JPEG)])),
            "appears to be a image/jpeg image",
        ),
        case("image of no type", user(json!([image("image/gif", "aGVsbG8=")])), "Could not process image"),
        case("image without source", user(json!([{"type": "image"}])), "image.source: Field required"),
        case(
            "image source",
            user(json!([{"type": "image", "source": {"type": "path"}}])),
            "Input tag 'path'",
        ),
        case("image url", user(json!([{"type": "image", "source": {"type": "url"}}])), "url: Field required"),
        case(
            "image in a result",
            content(json!([image("image/png", JPEG)])),
            "appears to be a image/jpeg image",
        ),
        case(
            "document media type",
            user(
                json!([{"type": "document", "source": {"type": "base64", "media_type": "text/html", "data": "x"}}]),
            ),
            "media_type: Input should be 'application/pdf'",
        ),
        case(
            "document text media type",
            user(
                json!([{"type": "document", "source": {"type": "text", "media_type": "text/html", "data": "x"}}]),
            ),
            "media_type: Input should be 'text/plain'",
        ),
        case(
            "document content",
            user(json!([{"type": "document", "source": {"type": "content", "content": [text("")]}}])),
            "text content blocks must be non-empty",
        ),
        case(
            "document source",
            user(json!([{"type": "document", "source": {"type": "path"}}])),
            "Input tag 'path'",
        ),
        case(
            "document content number",
            user(json!([{"type": "document", "source": {"type": "content", "content": 1}}])),
            "content.content: Input should be a valid string or list",
        ),
        case(
            "image data number",
            user(
                json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": 1}}]),
            ),
            "base64.data: Input should be a valid string",
        ),
        case(
            "sound in the frame of webp",
            user(json!([image("image/webp", "UklGRgAAAABXQVZF")])),
            "Could not process image",
        ),
        case(
            "search result content",
            user(json!([{"type": "search_result", "source": "s", "title": "t", "content": "x"}])),
            "search_result.content: Input should be a valid list",
        ),
        case(
            "search result without title",
            user(json!([{"type": "search_result", "source": "s", "content": []}])),
            "search_result.title: Field required",
        ),
        case("upload without file", user(json!([{"type": "container_upload"}])), "file_id: Field required"),
        beta_case(
            "system clear_at",
            &["mid-conversation-system-clear-at-2026-08-21"],
            late(json!({"role": "system", "content": "s", "clear_at": "soon"})),
            "clear_at: Input should be 'never' or 'next_user_message'",
        ),
        beta_case(
            "system clear_at with one mark among texts",
            &["mid-conversation-system-clear-at-2026-08-21"],
            late(
                json!({"role": "system", "content": [text("s"), marked(text("t"))], "clear_at": "next_user_message"}),
            ),
            "may hold only text",
        ),
        beta_case(
            "system clear_at with an effort",
            &["mid-conversation-system-clear-at-2026-08-21", "mid-conversation-output-config-2026-07-01"],
            late(
                json!({"role": "system", "content": "s", "clear_at": "next_user_message", "output_config": {"effort": "low"}}),
            ),
            "may hold only text",
        ),
        beta_case(
            "system effort",
            &["mid-conversation-output-config-2026-07-01"],
            late(json!({"role": "system", "content": "s", "output_config": {"effort": "huge"}})),
            "messages.3.output_config.effort: Input should be",
        ),
        beta_case(
            "system tool change without tool",
            &["inline-tools-2026-09-15"],
            late(says("system", json!([{"type": "tool_addition"}]))),
            "content.0.tool: Field required",
        ),
        beta_case(
            "system tool definition by the beta for references",
            &["mid-conversation-tool-changes-2026-07-01"],
            late(says(
                "system",
                json!([{"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {}}}]),
            )),
            "Input tag 'tool_definition'",
        ),
        beta_case(
            "system removal by value",
            &["inline-tools-2026-09-15"],
            late(says(
                "system",
                json!([{"type": "tool_removal", "tool": {"type": "tool_definition", "definition": {}}}]),
            )),
            "Input tag 'tool_definition'",
        ),
        case(
            "too many",
            talk(json!(vec![says("user", json!("a")); 100_001])),
            "List should have at most 100000 items",
        ),
        case(
            "system first",
            talk(json!([says("system", json!("s")), says("user", json!("u"))])),
            "must use the \"user\" role",
        ),
        case(
            "system before a user message",
            talk(json!([says("user", json!("a")), says("system", json!("s")), says("user", json!("b"))])),
            "messages.1: a system message must be followed by an assistant message",
        ),
        case(
            "system after an assistant message",
            turn(json!("b"), json!([says("system", json!("s"))])),
            "messages.2: a system message must follow a user message",
        ),
        case(
            "system between call and result",
            turn(
                json!([call("toolu_1")]),
                json!([says("system", json!("s")), says("user", json!([answer("toolu_1")]))]),
            ),
            "may not stand between `tool_use` and its `tool_result`",
        ),
        case(
            "system on sonnet 5",
            model("claude-sonnet-5", late(says("system", json!("s")))),
            "role 'system' is not supported",
        ),
        case(
            "system image",
            late(says("system", json!([image("image/png", PNG)]))),
            "`image` blocks are not permitted in `system`",
        ),
        case("system empty", late(says("system", json!(""))), "system messages must have non-empty content"),
        case(
            "system tool change without its beta",
            late(says("system", json!([{"type": "tool_addition"}]))),
            "Input tag 'tool_addition'",
        ),
        case(
            "system clear_at without its beta",
            late(json!({"role": "system", "content": "s", "clear_at": "never"})),
            "clear_at: Extra inputs",
        ),
        case(
            "system effort without its beta",
            late(json!({"role": "system", "content": [], "output_config": {"effort": "low"}})),
            "output_config: Extra inputs",
        ),
        beta_case(
            "system clear_at with a mark",
            &["mid-conversation-system-clear-at-2026-08-21"],
            late(json!({"role": "system", "content": [marked(text("s"))], "clear_at": "next_user_message"})),
            "may hold only text",
        ),
        beta_case(
            "system tools right after a pause",
            &["inline-tools-2026-09-15"],
            server_tools(turn(
                json!([search("srvtoolu_1")]),
                json!([says(
                    "system",
                    json!([{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "add"}}])
                )]),
            )),
            "tools may not change right after a paused turn",
        ),
    ]);
}
