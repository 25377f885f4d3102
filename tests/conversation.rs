//! What a conversation takes, keeps, repairs and refuses.

use agentloop::messages::Role;
use agentloop::{ContentBlock, Conversation, Message, MessageParam, MessageRequest};
use serde_json::{Value, json};

fn conversation(messages: &Value) -> Conversation {
    Conversation::from_json(&messages.to_string()).unwrap()
}

fn value(conversation: &Conversation) -> Value {
    serde_json::from_str(&conversation.to_json()).unwrap()
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "x"})
}

fn user(content: impl Into<Value>) -> Value {
    json!({"role": "user", "content": content.into()})
}

fn assistant(content: impl Into<Value>) -> Value {
    json!({"role": "assistant", "content": content.into()})
}

fn param(message: &Value) -> MessageParam {
    MessageParam::from_json(&message.to_string()).unwrap()
}

/// What the wire may hold and a typed model would change.
const EXACT: &str = concat!(
    r#"[{"role":"user","content":"caf\u00e9 \/ é","unknown":{"b":1,"a":2}},"#,
    r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"S=="},"#,
    r#"{"type":"tool_use","id":"t1","name":"f","input":{"z":1e2,"a":1234567890123456789012345,"n":1.10,"u":"\ud83d\ude00"},"caller":{"type":"code_execution_20990101","tool_id":"s"},"toolset_name":"computer"},"#,
    r#"{"type":"future_block","deep":{"y":[1,2.50,null],"b":{}}}]},"#,
    r#"{"content":[{"type":"tool_result","tool_use_id":"t1"}],"role":"user"}]"#,
);

#[test]
fn stored_and_read_back_it_is_the_same_bytes() {
    let read = Conversation::from_json(EXACT).unwrap();
    assert_eq!(read.to_json(), EXACT);
    assert_eq!(serde_json::to_string(&read).unwrap(), EXACT);
    let again: Conversation = serde_json::from_str(EXACT).unwrap();
    assert_eq!(again.to_json(), EXACT);
    let copied: Vec<_> = read.iter().map(|message| message.to_param()).collect();
    assert_eq!(serde_json::to_string(&copied).unwrap(), EXACT);
    for (message, copy) in read.iter().zip(&copied) {
        let back: MessageParam = serde_json::from_str(message.json()).unwrap();
        assert_eq!(back.json(), copy.json());
    }
    assert_eq!(read.get(2).unwrap().role(), Role::User);
}

#[test]
fn a_reply_is_kept_as_the_server_spelled_it() {
    let content = r#"[ {"type":"redacted_thinking","data":"Zm9v"}, {"type":"tool_use","id":"t1","name":"f","input":{"b":1E+2,"a":7300000000000000001}} ]"#;
    let reply =
        Message::from_json(format!(r#"{{"id":"m","content":{content},"stop_reason":"tool_use"}}"#)).unwrap();
    let mut conversation = conversation(&json!([user("go")]));
    conversation.push(reply.to_param().unwrap()).unwrap();
    assert_eq!(conversation.last().unwrap().json(), format!(r#"{{"role":"assistant","content":{content}}}"#));
}

/// Where serde has no JSON text, its error names the way that works.
#[test]
fn reading_inside_a_tagged_or_flattened_type_fails_and_says_what_to_do() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Chat { history: Conversation },
    }
    #[derive(Debug, serde::Deserialize)]
    struct Flat {
        #[serde(flatten)]
        inner: Inner,
    }
    #[derive(Debug, serde::Deserialize)]
    struct Inner {
        history: Conversation,
    }
    let tagged =
        serde_json::from_str::<Tagged>(r#"{"kind":"Chat","history":[{"role":"user","content":"a"}]}"#);
    let flat = serde_json::from_str::<Flat>(r#"{"history":[{"role":"user","content":"a"}]}"#);
    for error in [
        tagged.map(|Tagged::Chat { history }| history.len()).unwrap_err(),
        flat.map(|flat| flat.inner.history.len()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("Conversation::from_json"), "{error}");
    }
    // A plain struct is fine.
    let inner: Inner = serde_json::from_str(r#"{"history":[{"role":"user","content":"a"}]}"#).unwrap();
    assert_eq!(inner.history.len(), 1);
}

/// Making is strict, reading is not: the same content is refused by one and kept by the other.
#[test]
fn what_the_api_refuses_can_be_read_but_not_made() {
    let blank = || ContentBlock::text(" \n\u{3000}");
    let block = |value: Value| ContentBlock::from_json(&value.to_string()).unwrap();
    let user_blocks = [
        vec![],
        vec![ContentBlock::text("")],
        vec![ContentBlock::text("a"), blank()],
        vec![ContentBlock::image_base64("image/png", "")],
        vec![ContentBlock::image_base64("image/png", "/9j/4AAQSkZJRgABAQ==")],
        vec![block(call("t1"))],
        vec![block(json!({"type": "tool_result", "content": "x"}))],
        vec![block(
            json!({"type": "tool_result", "tool_use_id": "t", "is_error": true, "content": [{"type": "image", "source": {}}]}),
        )],
        vec![block(
            json!({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": ""}]}),
        )],
        vec![block(json!({"no": "type"}))],
    ];
    for blocks in user_blocks {
        let shown = format!("{blocks:?}");
        let content = serde_json::to_string(&blocks).unwrap();
        assert!(MessageParam::user(blocks).is_err(), "{shown}");
        let json = format!(r#"{{"role":"user","content":{content}}}"#);
        let read = MessageParam::from_json(&json).unwrap();
        assert_eq!(read.json(), json);
        assert!(Conversation::new().push(read).is_err(), "{shown}");
        assert!(Conversation::from_json(&format!("[{json}]")).unwrap().check().is_err(), "{shown}");
    }
    let assistant_blocks = [
        vec![block(json!({"type": "tool_use", "id": "t", "name": "f", "input": "text"}))],
        vec![block(json!({"type": "tool_use", "id": "t", "name": "f"}))],
        vec![block(json!({"type": "tool_use", "id": "t", "name": "", "input": {}}))],
        vec![ContentBlock::tool_result("t", "x")],
    ];
    for blocks in assistant_blocks {
        let shown = format!("{blocks:?}");
        assert!(MessageParam::assistant(blocks).is_err(), "{shown}");
    }
    assert!(MessageParam::user("").is_err() && MessageParam::system("\t").is_err());
    for text in [
        "",
        "[]",
        "{}",
        r#"{"role":"user"}"#,
        r#"{"content":"a"}"#,
        "{\"role\":\"user\",\"content\":\"a\u{1}\"}",
    ] {
        assert!(MessageParam::from_json(text).is_err(), "{text}");
    }
    for text in ["{}", "[1]", r#"[{"role":"user"}]"#, "[", ""] {
        assert!(Conversation::from_json(text).is_err(), "{text}");
    }
    let error = Conversation::from_json(r#"[{"role":"user","content":"a"},{"role":"user"}]"#).unwrap_err();
    assert!(error.chain().contains("messages[1]"), "{}", error.chain());
}

#[test]
fn an_image_gets_its_media_type_from_its_bytes() {
    let jpeg = ContentBlock::image(&[0xff, 0xd8, 0xff, 0xe0, 0, 16, b'J', b'F', b'I', b'F', 0, 1]).unwrap();
    let ContentBlock::Image(image) = &jpeg else { panic!("{jpeg:?}") };
    assert!(image.source.get().contains(r#""media_type":"image/jpeg""#));
    MessageParam::user(jpeg).unwrap();
    assert!(ContentBlock::image(b"not an image").is_err());
}

#[test]
fn text_after_open_calls_is_preceded_by_their_results() {
    let mut talk = conversation(&json!([user("go"), assistant(json!([call("t1"), call("t2")]))]));
    assert_eq!(talk.open_calls().iter().map(|call| &*call.id).collect::<Vec<_>>(), ["t1", "t2"]);
    talk.push(MessageParam::user("hurry up").unwrap()).unwrap();
    let messages = value(&talk);
    assert_eq!(messages[2]["content"][0]["tool_use_id"], "t1");
    assert_eq!(messages[2]["content"][1]["is_error"], true);
    assert_eq!(messages[3], user("hurry up"));
    talk.check().unwrap();

    // A message that holds some of the results itself: the others come before it.
    let mut talk = conversation(&json!([user("go"), assistant(json!([call("t1"), call("t2")]))]));
    talk.push(param(&user(json!([result("t2"), {"type": "text", "text": "and?"}])))).unwrap();
    let messages = value(&talk);
    assert_eq!(messages[2]["content"][0]["tool_use_id"], "t1");
    assert_eq!(messages[3]["content"][0]["tool_use_id"], "t2");
    talk.check().unwrap();
}

/// Results in several messages are one turn to the API: none is invented beside a real one.
#[test]
fn split_results_are_one_turn() {
    let split = json!([
        user("go"),
        assistant(json!([call("t1"), call("t2")])),
        user(json!([result("t1")])),
        user(json!([result("t2")]))
    ]);
    let mut talk = conversation(&split);
    talk.check().unwrap();
    talk.close_open_calls("nobody");
    assert_eq!(value(&talk), split);

    let mut pushed = conversation(&json!([user("go"), assistant(json!([call("t1"), call("t2")]))]));
    pushed.push(param(&user(json!([result("t1")])))).unwrap();
    assert!(pushed.check().unwrap_err().to_string().contains("t2"));
    pushed.push(param(&user(json!([result("t2")])))).unwrap();
    assert_eq!(value(&pushed), split);
}

/// What `push` refuses, and that it leaves the conversation as it was.
#[test]
fn a_message_that_could_not_be_sent_is_not_added() {
    let open = json!([user("go"), assistant(json!([call("t1")]))]);
    let answered = json!([user("go"), assistant(json!([call("t1")])), user(json!([result("t1")]))]);
    let searching = json!([
        user("go"),
        assistant(
            json!([{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}])
        )
    ]);
    let mixed = json!([
        user("go"),
        assistant(
            json!([{"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "input": {}}, call("t1")])
        ),
        user(json!([result("t1")]))
    ]);
    let programmatic = json!([
        user("go"),
        assistant(
            json!([{"type": "tool_use", "id": "t1", "name": "f", "input": {}, "caller": {"type": "code_execution_20260120", "tool_id": "s"}}])
        )
    ]);
    let half = json!([user("go"), assistant(json!([call("t1"), call("t2")])), user(json!([result("t1")]))]);
    let spoken = json!([user("go"), assistant(json!([call("t1")])), user("hm")]);
    let cases = [
        (&half, assistant("sorry"), "t2"),
        (&open, json!({"role": "system", "content": "be brief"}), "t1"),
        (&open, user(json!([result("t9")])), "t9"),
        (&open, user(json!([result("t1"), result("t1")])), "twice"),
        (&open, user(json!([{"type": "text", "text": "a"}, result("t1")])), "before everything else"),
        (&answered, user(json!([result("t1")])), "t1"),
        (&answered, assistant(json!([call("t1")])), "t1"),
        (&answered, assistant(json!([call("t2"), call("t2")])), "t2"),
        (&answered, assistant(json!([{"type": "tool_use", "name": "f", "input": {}}])), "needs an id"),
        (&searching, user("next"), "srvtoolu_1"),
        (&mixed, user("next"), "mcptoolu_1"),
        (&programmatic, user("next"), "t1"),
        (&programmatic, user(json!([result("t1"), {"type": "text", "text": "a"}])), "alone"),
        (&spoken, user("more"), "close_open_calls"),
    ];
    let count = cases.len();
    for (before, message, part) in cases {
        let mut talk = conversation(before);
        let Err(error) = talk.push(param(&message)) else { panic!("{message} was added to {before}") };
        assert!(error.to_string().contains(part), "{message}: {error}");
        assert_eq!(value(&talk), *before);
    }
    println!("{count} cases");
    // The results alone are the way on.
    let mut talk = conversation(&programmatic);
    talk.push(param(&user(json!([result("t1")])))).unwrap();
    talk.check().unwrap();
}

#[test]
fn check_names_the_message_and_the_id() {
    let marked = || json!({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}});
    let long = |last: Value| json!([user("a"), assistant("b"), user("c"), last]);
    let cases = [
        (json!([]), "no message"),
        (json!([assistant("first")]), "messages[0]"),
        (json!([user(json!([result("t9")]))]), "messages[0]: the result for t9 answers no call"),
        (
            json!([user("a"), assistant(json!([call("t1")])), assistant("sorry"), user("go on")]),
            "messages[1]: these calls have no result: t1",
        ),
        (
            json!([user("a"), assistant(json!([call("t1")])), user("b"), assistant("c")]),
            "messages[3]: an assistant message follows, but these calls have no result: t1",
        ),
        (
            json!([user("a"), assistant(json!([call("t1")])), user("b"), user(json!([result("t1")]))]),
            "messages[3]: results must come before",
        ),
        (json!([user("a"), assistant(json!([call("t1"), call("t1")]))]), "messages[1]: the id t1"),
        (
            json!([user(json!([marked(), marked()])), user(json!([marked(), marked(), marked()]))]),
            "messages[1]: more than four",
        ),
        (long(assistant(" ")), "messages[3]: the content is blank text"),
        (long(assistant(json!([]))), "messages[3]: the content is an empty list"),
        (long(assistant(json!(7))), "messages[3]: the content is neither"),
    ];
    for (messages, part) in cases {
        let error = conversation(&messages).check().unwrap_err();
        assert!(error.to_string().contains(part), "{messages}: {error}");
    }
    for legal in [
        json!([user("a")]),
        json!([user("a"), user("b"), assistant("c"), assistant("d")]),
        json!([user("a"), {"role": "system", "content": [], "output_config": {"effort": "low"}}]),
        json!([assistant(json!([{"type": "compaction", "content": "c"}])), user("a")]),
        json!([
            user("a"),
            assistant(json!([{"type": "server_tool_use", "id": "s", "name": "n", "input": {}}]))
        ]),
    ] {
        conversation(&legal).check().unwrap();
    }
}

/// The repair answers each call behind its own turn, and never a call of the API's own tools.
#[test]
fn open_calls_are_closed_where_they_stand() {
    let mut hidden = conversation(&json!([
        user("a"),
        assistant(json!([call("t1")])),
        assistant("I was interrupted"),
        user("go on")
    ]));
    hidden.close_open_calls("the process died");
    let messages = value(&hidden);
    assert_eq!(
        messages[3]["content"][0],
        json!({"type": "tool_result", "tool_use_id": "t1", "content": "not executed: the process died", "is_error": true})
    );
    assert_eq!(messages[4], user("go on"));
    hidden.check().unwrap();

    let mut several = conversation(&json!([
        user("a"), assistant(json!([call("t1"), call("t2")])), user(json!([result("t2"), {"type": "text", "text": "x"}])),
        assistant(json!([call("t3")])), {"role": "system", "content": "s"}, user("b"), assistant(json!([call("t4")])),
    ]));
    several.close_open_calls("lost");
    several.check().unwrap();
    let ids: Vec<_> = value(&several)
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"][0]["tool_use_id"].clone())
        .collect();
    assert_eq!(
        ids,
        [
            json!(null),
            json!(null),
            json!("t1"),
            json!("t2"),
            json!(null),
            json!("t3"),
            json!(null),
            json!(null),
            json!(null),
            json!("t4")
        ]
    );

    let server = json!([
        user("a"),
        assistant(
            json!([{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}])
        ),
        user("next")
    ]);
    let mut talk = conversation(&server);
    assert!(talk.check().unwrap_err().to_string().contains("srvtoolu_1"));
    talk.close_open_calls("lost");
    assert_eq!(value(&talk), server);
}

#[test]
fn a_cut_never_parts_a_call_from_its_result() {
    let whole = json!([
        user("a"),
        assistant(json!([call("t1")])),
        user(json!([result("t1")])),
        assistant("b"),
        user("c")
    ]);
    for len in 0..=7 {
        let mut talk = conversation(&whole);
        let cut = talk.truncate(len);
        let kept = if len == 2 { 5 } else { len.min(5) };
        assert_eq!(cut.is_err(), len == 2);
        assert_eq!(value(&talk), json!(whole.as_array().unwrap()[..kept]));
        // What was cut can grow again.
        if kept > 0 {
            talk.push(MessageParam::user("d").unwrap()).unwrap();
            assert_eq!(talk.last().unwrap().json(), r#"{"role":"user","content":"d"}"#);
        }
    }
}

#[test]
fn a_turn_goes_with_its_paused_parts_and_its_results() {
    let mut talk = conversation(&json!([
        user("a"),
        assistant(json!([{"type": "server_tool_use", "id": "s", "name": "n", "input": {}}])),
        assistant(json!([call("t1")])),
        user(json!([result("t1")])),
    ]));
    let turn = talk.pop_turn();
    assert_eq!(
        turn.iter().map(MessageParam::role).collect::<Vec<_>>(),
        [Role::Assistant, Role::Assistant, Role::User]
    );
    assert_eq!(value(&talk), json!([user("a")]));
    assert!(talk.pop_turn().is_empty());
    // The id is free again.
    for message in turn {
        talk.push(message).unwrap();
    }
    talk.check().unwrap();
}

/// Over chunk borders: every message, every cut, and a body that grows are what they were.
#[test]
fn a_long_conversation_is_the_same_at_every_length() {
    let mut texts = Vec::new();
    let mut talk = Conversation::new();
    for number in 0..400 {
        let text = format!("{number} {}", "é".repeat(number * 3));
        talk.push(MessageParam::user(&text).unwrap()).unwrap();
        texts.push(text);
    }
    assert!(talk.to_json().len() > 300_000);
    for (message, text) in talk.iter().zip(&texts) {
        assert_eq!(message.content()[0].as_text().unwrap(), text);
    }
    assert_eq!(Conversation::from_json(&talk.to_json()).unwrap(), talk);
    let shared = talk.clone();
    for len in (0..400).rev().step_by(7) {
        talk.truncate(len).unwrap();
        assert_eq!(talk.len(), len);
        let expected: Vec<_> = texts[..len].iter().map(|text| user(text.as_str())).collect();
        assert_eq!(value(&talk), json!(expected));
    }
    assert_eq!(shared.len(), 400);
    assert_eq!(shared.last().unwrap().content()[0].as_text().unwrap(), texts[399]);
}

/// Setters keep the first error, change nothing by a failed call, and nothing is sent.
#[test]
fn a_request_keeps_the_first_error() {
    let request = MessageRequest::new("m", 10).user("a").user(" ").set("messages", 1).system("").beta("\n");
    let error = request.check().unwrap_err();
    assert!(error.to_string().contains("blank"), "{error}");
    assert_eq!(request.messages().len(), 1);
    assert_eq!(request.get("system"), None);
    for (request, part) in [
        (MessageRequest::prompt("a").set("stream", true), "stream"),
        (MessageRequest::prompt("a").set("tools", 7), "list"),
        (MessageRequest::prompt("a").tool("text"), "object"),
        (MessageRequest::prompt("a").header("a b", "c"), "header"),
        (MessageRequest::prompt("a").header("x-key", "SECRET\n"), "x-key"),
        (MessageRequest::prompt("a").beta(" "), "beta"),
    ] {
        let error = request.check().unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.to_string().contains("SECRET"));
    }
}

/// A system message that only sets an effort may stand anywhere, also between a call and its
/// result; one that says something may not, and no result is invented beside the real one.
#[test]
fn an_effort_is_no_turn() {
    let effort = json!({"role": "system", "content": [], "output_config": {"effort": "low"}});
    let bare = json!({"role": "system", "output_config": {"effort": "low"}});
    for effort in [effort, bare] {
        let messages = json!([
            user("a"),
            assistant(json!([call("t1")])),
            effort,
            user(json!([result("t1")])),
            assistant("b")
        ]);
        let mut talk = conversation(&messages);
        talk.check().unwrap();
        talk.close_open_calls("lost");
        assert_eq!(value(&talk), messages);
        let mut talk = conversation(&json!([user("a"), assistant(json!([call("t1")]))]));
        talk.push(param(&effort)).unwrap();
        assert_eq!(talk.open_calls().len(), 1);
    }
    let spoken = json!([user("a"), assistant(json!([call("t1")])), {"role": "system", "content": "s"}, user(json!([result("t1")]))]);
    let mut talk = conversation(&spoken);
    assert!(talk.check().is_err());
    talk.close_open_calls("lost");
    assert_eq!(value(&talk), spoken);
}

/// The API reads nothing before a compaction block.
#[test]
fn what_stands_before_a_compaction_block_is_past() {
    let block = || json!({"type": "compaction", "content": "c"});
    let search = || json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}});
    for messages in [
        json!([user("a"), assistant(json!([search(), block(), {"type": "text", "text": "b"}]))]),
        json!([user("a"), assistant(json!([search()])), assistant(json!([block()]))]),
        json!([user("a"), assistant(json!([call("t1")])), user("b"), assistant(json!([block()]))]),
        json!([user("a"), user(json!([result("t9")])), assistant(json!([block()]))]),
    ] {
        let mut talk = conversation(&messages);
        talk.push(MessageParam::user("next").unwrap()).unwrap_or_else(|error| panic!("{messages}: {error}"));
        talk.check().unwrap();
        let before = talk.clone();
        talk.close_open_calls("lost");
        assert_eq!(talk, before);
    }
}

#[test]
fn making_is_strict_in_every_place() {
    let block = |value: Value| ContentBlock::from_json(&value.to_string()).unwrap();
    assert!(MessageParam::system(vec![]).is_err());
    assert!(MessageParam::user(block(json!({"type": "image"}))).is_err());
    assert!(MessageParam::user(block(json!({"type": "image", "source": "text"}))).is_err());
    assert!(
        MessageParam::user(ContentBlock::image_base64("image/png", "data:image/png;base64,iVBORw0KGgo="))
            .is_err()
    );
    assert!(MessageParam::assistant(block(json!({"type": "tool_use", "name": "f", "input": {}}))).is_err());
    for request in [
        MessageRequest::prompt("a").system(vec![]),
        MessageRequest::prompt("a").system(ContentBlock::text(" ")),
        MessageRequest::prompt("a").set("tools", json!([1, "x"])),
    ] {
        request.check().unwrap_err();
    }
    let request = MessageRequest::prompt("a").set("container", "c1");
    assert_eq!(request.get("container"), Some(r#""c1""#));
}

/// A final answer with half a surrogate pair is still an answer.
#[test]
fn half_a_surrogate_pair_loses_no_text() {
    let reply = Message::from_json(
        r#"{"content":[{"type":"text","text":"all of it \ud83d"}],"stop_reason":"end_turn"}"#,
    )
    .unwrap();
    assert_eq!(reply.text(), "all of it \u{fffd}");
    let mut talk = conversation(&json!([user("a")]));
    talk.push(reply.to_param().unwrap()).unwrap();
    assert!(talk.to_json().contains(r"all of it \ufffd"));
}
