//! Properties over random lists, texts, schemas and results.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use agentloop::mcp::{
    DefinitionOptions, Kind, MAX_NAME, Outcome, Prefix, ResultOptions, Structured, ToolSet, clean,
    definitions, tool_result,
};
use agentloop::testing::{Reply, Server};
use agentloop::{ContentBlock, Conversation, MessageRequest};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::{offered, sendable};

const CASES: u32 = 1500;

/// How often each class of input came up. One that never did fails the test.
#[derive(Default)]
struct Classes(RefCell<BTreeMap<String, usize>>);

impl Classes {
    fn saw(&self, class: impl Into<String>) {
        *self.0.borrow_mut().entry(class.into()).or_default() += 1;
    }

    fn require(&self, classes: &[&str]) {
        let seen = self.0.borrow();
        println!("{seen:?}");
        for class in classes {
            assert!(seen.contains_key(*class), "no input of the class {class}: {seen:?}");
        }
    }
}

/// The same cases each time, printed if one fails.
fn runner() -> TestRunner {
    TestRunner::new_with_rng(
        Config { cases: CASES, failure_persistence: None, ..Config::default() },
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    )
}

/// Characters of every class that cleaning tells apart.
fn letter() -> impl Strategy<Value = char> {
    prop_oneof![
        4 => prop_oneof![Just('a'), Just('Z'), Just('0'), Just('_'), Just(' '), Just('\n'), Just('"'), Just('\\')],
        2 => prop_oneof![Just('👩'), Just('🚀'), Just('❤'), Just('🏽'), Just('🏴'), Just('葛'), Just('é')],
        2 => prop_oneof![Just('م'), Just('ی'), Just('ש'), Just('क'), Just('\u{94d}')],
        3 => prop_oneof![Just('\u{200d}'), Just('\u{200c}'), Just('\u{fe0f}'), Just('\u{e0100}')],
        3 => prop_oneof![Just('\u{200b}'), Just('\u{202e}'), Just('\u{2066}'), Just('\u{e0041}'), Just('\u{feff}'), Just('\u{7}'), Just('\r')],
        1 => any::<char>(),
    ]
}

/// Now and then what is joined on purpose.
fn piece() -> impl Strategy<Value = String> {
    let joined = prop_oneof![
        Just("👩\u{200d}🚀"),
        Just("❤\u{fe0f}\u{200d}🔥"),
        Just("می\u{200c}خ"),
        Just("क्\u{200d}ष")
    ];
    prop_oneof![12 => letter().prop_map(String::from), 1 => joined.prop_map(str::to_owned)]
}

fn text(most: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(piece(), 0..most).prop_map(|pieces| pieces.concat())
}

/// The letters above that can be seen.
const VISIBLE: &str = "aZ0_ \n\"\\👩🚀❤🏽🏴葛éمیשक\u{94d}🔥خष";

/// What no text may hold, wherever it stands.
fn is_forbidden(letter: char) -> bool {
    (letter.is_control() && !matches!(letter, '\n' | '\t'))
        || matches!(letter, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e00ff}')
}

fn is_joint(letter: char) -> bool {
    matches!(letter, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Fails if a text holds what nobody sees.
fn assert_clean(text: &str) {
    assert!(!text.chars().any(is_forbidden), "{}", text.escape_unicode());
    let letters: Vec<char> = text.chars().collect();
    for (at, letter) in letters.iter().enumerate().filter(|(_, letter)| is_joint(**letter)) {
        let before = letters[..at].last().expect("nothing is joined at the start");
        assert!(!before.is_ascii_alphabetic() && !before.is_whitespace(), "{}", text.escape_unicode());
        if matches!(letter, '\u{200c}' | '\u{200d}') {
            let after = letters.get(at + 1).expect("nothing is joined at the end");
            assert!(
                !after.is_ascii() && !is_joint(*after) && *before != '\u{200d}',
                "{}",
                text.escape_unicode()
            );
        }
    }
}

#[test]
fn m04_cleaning_is_idempotent_and_leaves_nothing_hidden() {
    let classes = Classes::default();
    let input = (text(24), prop_oneof![Just(usize::MAX), 0_usize..40]);
    runner()
        .run(&input, |(text, limit)| {
            let cleaned = clean(&text, limit);
            assert_clean(&cleaned);
            prop_assert!(cleaned.len() <= limit);
            prop_assert_eq!(clean(&cleaned, limit), &*cleaned);
            let visible =
                |text: &str| -> String { text.chars().filter(|letter| VISIBLE.contains(*letter)).collect() };
            if limit == usize::MAX {
                prop_assert_eq!(visible(&cleaned), visible(&text), "what can be seen stays");
            }
            for (class, came) in [
                ("unchanged", cleaned == text),
                ("cleaned", limit == usize::MAX && cleaned != text),
                ("cut", clean(&text, usize::MAX).len() > limit),
                ("joined emoji", cleaned.contains("👩\u{200d}🚀")),
                ("joined letters", cleaned.contains('\u{200c}')),
                ("variation", cleaned.contains('\u{fe0f}')),
                ("right to left", cleaned.contains('ש')),
                ("empty", cleaned.is_empty() && !text.is_empty()),
            ] {
                if came {
                    classes.saw(class);
                }
            }
            Ok(())
        })
        .unwrap();
    classes.require(&[
        "unchanged",
        "cleaned",
        "cut",
        "joined emoji",
        "joined letters",
        "variation",
        "right to left",
        "empty",
    ]);
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop_oneof![Just("search"), Just("read.file"), Just("read/file"), Just("read_file"), Just("a__search"), Just("bash"), Just("日本"), Just("")].prop_map(str::to_owned),
        2 => (60_usize..140, prop_oneof![Just("x"), Just("é")]).prop_map(|(length, letter)| letter.repeat(length)),
        1 => text(8),
    ]
}

fn policy() -> impl Strategy<Value = Prefix> {
    prop_oneof![Just(Prefix::Always), Just(Prefix::Never), Just(Prefix::OnCollision)]
}

#[test]
fn m02_names_match_the_pattern_are_unique_and_map_back() {
    let classes = Classes::default();
    let server = prop_oneof![Just("a"), Just("b"), Just("my server"), Just("my.server"), Just("日本")]
        .prop_map(str::to_owned);
    let server = prop_oneof![8 => server, 1 => Just("s".repeat(100))];
    let servers = proptest::collection::vec((server, proptest::collection::vec(name(), 0..6)), 0..5);
    let natives =
        proptest::collection::vec(prop_oneof![Just("bash"), Just("search"), Just("a__search")], 0..3);
    let own = proptest::option::of(policy());
    runner()
        .run(&(servers, natives, policy(), own), |(servers, natives, prefix, own)| {
            let build = |reversed: bool| {
                let mut builder = ToolSet::builder().prefix(prefix).reserve(natives.clone());
                if let Some(own) = own {
                    builder = builder.prefix_of("a", own);
                }
                let mut servers = servers.clone();
                if reversed {
                    servers.reverse();
                }
                for (server, names) in servers {
                    let tools: Vec<_> = names
                        .iter()
                        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
                        .collect();
                    builder = builder.server(server, Value::Array(tools).to_string());
                }
                builder.build()
            };
            let (set, report) = build(false);
            let mut seen = BTreeSet::new();
            for tool in set.iter() {
                let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
                prop_assert!(
                    !tool.name().is_empty()
                        && tool.name().len() <= MAX_NAME
                        && tool.name().bytes().all(legal)
                );
                prop_assert!(seen.insert(tool.name()), "twice: {}", tool.name());
                prop_assert!(!natives.contains(&tool.name()));
                let back = set.get(tool.name()).unwrap();
                prop_assert_eq!((back.server(), back.mcp_name()), (tool.server(), tool.mcp_name()));
                let told = report.iter().any(|entry| {
                    (entry.server(), entry.tool(), entry.name())
                        == (tool.server(), tool.mcp_name(), Some(tool.name()))
                });
                prop_assert_eq!(told, tool.name() != tool.mcp_name(), "{}", tool.name());
            }
            let listed: BTreeSet<_> = servers
                .iter()
                .flat_map(|(server, names)| names.iter().map(move |name| (&**server, &**name)))
                .filter(|(_, name)| !name.is_empty())
                .collect();
            let mapped: BTreeSet<_> = set.iter().map(|tool| (tool.server(), tool.mcp_name())).collect();
            prop_assert_eq!(&listed, &mapped, "every tool has a name");
            let table = |set: &ToolSet| -> BTreeSet<String> {
                set.iter()
                    .map(|tool| format!("{}|{}|{}", tool.server(), tool.mcp_name(), tool.name()))
                    .collect()
            };
            prop_assert_eq!(table(&set), table(&build(true).0));
            report.iter().for_each(|entry| classes.saw(entry.reason().as_str()));
            if report.is_empty() && !set.is_empty() {
                classes.saw("unchanged");
            }
            Ok(())
        })
        .unwrap();
    classes.require(&[
        "unchanged",
        "characters",
        "collision",
        "native",
        "prefixed",
        "long_name",
        "duplicate",
        "no_name",
    ]);
}

/// A schema, or something that takes its place.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => prop_oneof![Just("string"), Just("integer"), Just("object"), Just("null"), Just("strng")].prop_map(|kind| json!({"type": kind})),
        2 => text(6).prop_map(|text| json!({"description": text, "enum": [text]})),
        1 => any::<u64>().prop_map(|bound| json!({"maximum": bound, "minimum": -1})),
        1 => prop_oneof![Just(json!(true)), Just(json!(7)), Just(json!({"required": true})), Just(json!({"properties": []})), Just(json!({"$ref": "#/$defs/D"})), Just(json!({"$ref": "#"}))],
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![Just("a"), Just("b"), Just("$c")];
        let object = (proptest::collection::btree_map(key, inner.clone(), 0..3), any::<bool>()).prop_map(|(properties, typed)| {
            let required: Vec<_> = properties.keys().take(1).cloned().collect();
            let mut object = json!({"properties": properties, "required": required, "$defs": {"D": {"type": "object", "properties": {"d": {}}}}});
            if typed {
                object["type"] = json!("object");
            }
            object
        });
        let combinator = prop_oneof![Just("anyOf"), Just("oneOf"), Just("allOf")];
        let combined = (object.clone(), combinator, proptest::collection::vec(inner.clone(), 0..3)).prop_map(|(mut object, combinator, list)| {
            object[combinator] = Value::Array(list);
            object
        });
        let list = inner.prop_map(|item| json!({"type": "array", "items": item}));
        prop_oneof![4 => object, 4 => combined, 1 => list]
    })
}

#[test]
fn m03_whatever_a_server_lists_the_definitions_can_be_sent_and_the_rest_is_reported() {
    let classes = Classes::default();
    let tool = (text(12), schema()).prop_map(
        |(text, schema)| json!({"name": "f", "title": text, "description": text, "inputSchema": schema}),
    );
    runner()
        .run(&tool, |tool| {
            let list = json!([tool, {"name": "other", "inputSchema": {"type": "object"}}]);
            let (set, report) = ToolSet::builder().server("s", list.to_string()).build();
            let sent = definitions(&set, DefinitionOptions::new().cache(true));
            offered(&sent).map_err(TestCaseError::fail)?;
            prop_assert!(set.get("other").is_some(), "one tool costs no other");
            prop_assert_eq!(set.len() + report.dropped().count(), 2);
            for definition in &sent {
                assert_clean_strings(&serde_json::from_str(definition.get()).unwrap());
            }
            let schema = set.get("f").map(|tool| tool.input_schema().get().to_owned());
            let changed = report.iter().any(|entry| {
                entry.reason().as_str() != "hidden_characters"
                    || !entry.reason().to_string().ends_with("`description`")
            });
            if !changed && report.iter().all(|entry| entry.kind() != Kind::Cleaned) {
                prop_assert_eq!(
                    schema,
                    Some(tool["inputSchema"].to_string()),
                    "what is not told is not changed"
                );
                classes.saw("unchanged");
            }
            report.iter().for_each(|entry| classes.saw(entry.reason().as_str()));
            Ok(())
        })
        .unwrap();
    classes.require(&[
        "unchanged",
        "hidden_characters",
        "bound",
        "keyword",
        "old_keyword",
        "folded",
        "root_object",
        "unusable_schema",
    ]);
}

fn assert_clean_strings(value: &Value) {
    match value {
        Value::String(text) => assert_clean(text),
        Value::Array(list) => list.iter().for_each(assert_clean_strings),
        Value::Object(map) => map.iter().for_each(|(name, value)| {
            assert_clean(name);
            assert_clean_strings(value);
        }),
        _ => {}
    }
}

fn data() -> impl Strategy<Value = String> {
    let head = prop_oneof![
        Just(b"\x89PNG\r\n\x1a\n".to_vec()),
        Just(b"\xff\xd8\xff\xe0".to_vec()),
        Just(b"GIF89a".to_vec()),
        Just(b"RIFF\0\0\0\0WEBP".to_vec()),
        Just(b"%PDF-1.4".to_vec()),
        Just(Vec::new()),
    ];
    let real = (head, proptest::collection::vec(any::<u8>(), 0..8)).prop_map(|(mut bytes, rest)| {
        bytes.extend(rest);
        base64(&bytes)
    });
    prop_oneof![4 => real, 1 => text(12)]
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * place)) as usize & 63]));
        }
        text.push_str(&"=".repeat(3 - chunk.len()));
    }
    text
}

fn mime() -> impl Strategy<Value = String> {
    let known = prop_oneof![
        Just("image/png"),
        Just("image/jpeg"),
        Just("image/gif"),
        Just("image/webp"),
        Just("image/svg+xml"),
        Just("audio/ogg"),
        Just("application/pdf"),
        Just(""),
    ];
    prop_oneof![6 => known.prop_map(str::to_owned), 1 => text(6)]
}

fn item() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => text(16).prop_map(|text| json!({"type": "text", "text": text})),
        4 => (data(), mime()).prop_map(|(data, mime)| json!({"type": "image", "data": data, "mimeType": mime})),
        1 => (data(), mime()).prop_map(|(data, mime)| json!({"type": "audio", "data": data, "mimeType": mime})),
        1 => (text(8), text(8), mime()).prop_map(|(uri, name, mime)| json!({"type": "resource_link", "uri": uri, "name": name, "mimeType": mime, "description": name})),
        1 => (text(8), text(8)).prop_map(|(uri, text)| json!({"type": "resource", "resource": {"uri": uri, "text": text}})),
        2 => (text(8), data(), mime()).prop_map(|(uri, data, mime)| json!({"type": "resource", "resource": {"uri": uri, "blob": data, "mimeType": mime}})),
        1 => Just(json!({"type": "resource", "resource": {"uri": "f", "blob": base64(b"%PDF-1.4"), "mimeType": "application/pdf"}})),
        1 => text(6).prop_map(|kind| json!({"type": kind})),
        1 => prop_oneof![Just(json!(7)), Just(json!({"type": "text"})), Just(json!({"type": "image"})), Just(json!([[]]))],
    ]
}

fn answer() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        9 => proptest::collection::vec(item(), 0..4).prop_map(|items| Some(Value::Array(items))),
        1 => prop_oneof![Just(None), Just(Some(Value::Null)), Just(Some(json!("text")))],
    ];
    let structured =
        proptest::option::of((text(6), text(6)).prop_map(|(name, text)| json!({name: [text, 1e2, null]})));
    let is_error = proptest::option::of(any::<bool>());
    let kind = prop_oneof![9 => Just(None), 1 => Just(Some("task"))];
    (content, structured, is_error, kind).prop_map(|(content, structured, is_error, kind)| {
        let mut answer = json!({});
        content.into_iter().for_each(|content| answer["content"] = content);
        structured.into_iter().for_each(|structured| answer["structuredContent"] = structured);
        is_error.into_iter().for_each(|is_error| answer["isError"] = json!(is_error));
        kind.into_iter().for_each(|kind| answer["resultType"] = json!(kind));
        answer
    })
}

/// Each result is judged by itself, and all of them go to the strict server in the end.
#[tokio::test]
async fn m10_whatever_a_server_answers_the_result_can_be_sent() {
    let classes = Classes::default();
    let results = RefCell::new(Vec::new());
    let structured = prop_oneof![
        Just(Structured::Auto),
        Just(Structured::Prefer),
        Just(Structured::Append),
        Just(Structured::Ignore)
    ];
    runner()
        .run(&(answer(), structured, any::<bool>()), |(answer, structured, pdf)| {
            let options = ResultOptions::new().structured(structured).pdf(pdf).max_media_bytes(24);
            let id = format!("toolu_{}", results.borrow().len());
            let block = tool_result(&id, Outcome::Result(&answer.to_string()), options);
            sendable(&block).map_err(TestCaseError::fail)?;
            let ContentBlock::ToolResult(result) = &block else { panic!("{block:?}") };
            let is_error =
                answer["isError"] == json!(true) || answer.get("resultType").is_some() || answer == json!({});
            prop_assert_eq!(result.is_error, is_error);
            for part in result.blocks() {
                part.as_text().into_iter().for_each(assert_clean);
                classes.saw(part.kind());
            }
            let shown = result.text();
            for (class, came) in [
                ("error", result.is_error),
                ("nothing", shown == "(no output)"),
                ("image note", shown.contains("[image: ")),
                ("audio note", shown.contains("[audio: ")),
                ("link", shown.contains("[resource] ")),
                ("resource", shown.contains("[resource: ")),
                ("unknown", shown.contains("not shown]")),
                ("structured", shown.contains(",100.0,null]")),
            ] {
                if came {
                    classes.saw(class);
                }
            }
            results.borrow_mut().push(block);
            Ok(())
        })
        .unwrap();
    classes.require(&[
        "text",
        "image",
        "document",
        "error",
        "nothing",
        "image note",
        "audio note",
        "link",
        "resource",
        "unknown",
        "structured",
    ]);

    let results = results.into_inner();
    let call = |at: usize| json!({"type": "tool_use", "id": format!("toolu_{at}"), "name": "f", "input": {}});
    let calls: Vec<_> = (0..results.len()).map(call).collect();
    let messages = json!([{"role": "user", "content": "Go"}, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]);
    let conversation = Conversation::from_json(&messages.to_string()).unwrap();
    conversation.check().unwrap();
    let server = Server::start([Reply::text("ok")]).await;
    let request = MessageRequest::new("claude-opus-5-5", 64).conversation(conversation);
    server.client().create(&request).await.unwrap();
    server.finish().unwrap();
}
