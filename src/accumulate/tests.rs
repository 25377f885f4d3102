use std::collections::BTreeSet;

use super::object::MAX_FIELDS;
use super::*;
use crate::messages::Parsed;
use crate::messages::json::Fields;

const CAP: usize = 1 << 30;

fn event(data: &str) -> StreamEvent {
    match StreamEvent::parse("", data) {
        Ok(Parsed::Event(event)) => event,
        other => panic!("{data}: {other:?}"),
    }
}

fn accumulated<'a>(events: impl IntoIterator<Item = &'a str>) -> Result<Accumulator> {
    let mut accumulator = Accumulator::new(CAP);
    for data in events {
        accumulator.apply(&event(data))?;
        // The partial reply is readable at any time.
        assert_eq!(accumulator.snapshot().is_some(), accumulator.has_begun());
    }
    Ok(accumulator)
}

const START: &str = r#"{"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"container":null,"diagnostics":null,"usage":{"input_tokens":9,"cache_creation_input_tokens":null,"cache_creation":{"ephemeral_5m_input_tokens":0},"output_tokens":3,"service_tier":"standard"}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn start(index: usize, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn delta(index: usize, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}

fn stop(index: usize) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn end(reason: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":7}}}}"#
    )
}

fn input(text: &str) -> String {
    delta(0, &format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, json::to_raw(text)))
}

/// A value with its strings spelled one way; numbers, keys and their order are left alone.
fn canonical(value: &str) -> String {
    let inner = |items: Vec<String>| items.join(",");
    if let Some(fields) = Fields::parse(value) {
        let fields = fields.iter().map(|(name, value)| format!("{name:?}:{}", canonical(value.get())));
        format!("{{{}}}", inner(fields.collect()))
    } else if let Some(items) = json::items(value) {
        format!("[{}]", inner(items.iter().map(|item| canonical(item.get())).collect()))
    } else {
        let raw = json::text(value);
        json::string(&raw).map_or_else(|| value.to_owned(), |text| format!("{text:?}"))
    }
}

/// A block as a plain reply has it, as its start event does, and its deltas.
type Fixture = (&'static str, &'static str, &'static [&'static str]);

const WHOLE: &[&str] = &[];

/// One of each kind of block that the API has, and more where a kind has several shapes.
const FIXTURES: &[Fixture] = &[
    (
        r#"{"type":"text","text":"The limit: 40 \"rps\" é漢😀\n"}"#,
        r#"{"type":"text","text":""}"#,
        &[
            r#"{"type":"text_delta","text":"The limit: "}"#,
            r#"{"type":"text_delta","text":""}"#,
            r#"{"type":"text_delta","text":"40 \"rps\" \u00e9漢\ud83d\ude00\n"}"#,
        ],
    ),
    (
        r#"{"type":"text","text":"abc","citations":[{"type":"char_location","cited_text":"x","start_char_index":118},{"type":"page_location","n":1e2}],"more":1}"#,
        r#"{"type":"text","text":"ab","citations":[{"type":"char_location","cited_text":"x","start_char_index":118}],"more":1}"#,
        &[
            r#"{"type":"text_delta","text":"c"}"#,
            r#"{"type":"citations_delta","citation":{"type":"page_location","n":1e2}}"#,
        ],
    ),
    (
        r#"{"type":"thinking","thinking":"abc","signature":"S2"}"#,
        r#"{"type":"thinking","thinking":"ab","signature":""}"#,
        &[
            r#"{"type":"thinking_delta","thinking":"c","estimated_tokens":4}"#,
            r#"{"type":"signature_delta","signature":"S1"}"#,
            r#"{"type":"signature_delta","signature":"S2"}"#,
        ],
    ),
    (
        r#"{"type":"thinking","thinking":"","signature":"S"}"#,
        r#"{"type":"thinking","thinking":"","signature":""}"#,
        &[
            r#"{"type":"thinking_delta","estimated_tokens":4}"#,
            r#"{"type":"signature_delta","signature":"S"}"#,
        ],
    ),
    (
        r#"{"type":"thinking","thinking":"a","signature":"S"}"#,
        r#"{"type":"thinking","thinking":null}"#,
        &[r#"{"type":"thinking_delta","thinking":"a"}"#, r#"{"type":"signature_delta","signature":"S"}"#],
    ),
    (r#"{"type":"redacted_thinking","data":"Zm9v"}"#, r#"{"type":"redacted_thinking","data":"Zm9v"}"#, WHOLE),
    (
        r#"{"type":"tool_use","id":"t1","name":"f","input":{"z":1e2,"a":{"y":1234567890123456789012345,"b":1.10},"s":"\u00e9\/\ud83d\ude00"},"caller":{"type":"direct"},"toolset_name":"c"}"#,
        r#"{"type":"tool_use","id":"t1","name":"f","input":{},"caller":{"type":"direct"},"toolset_name":"c"}"#,
        &[
            r#"{"type":"input_json_delta","partial_json":""}"#,
            r#"{"type":"input_json_delta","partial_json":"{\"z\":1"}"#,
            r#"{"type":"input_json_delta","partial_json":"e2,\"a\":{\"y\":12345678901"}"#,
            r#"{"type":"input_json_delta","partial_json":"23456789012345,\"b\":1.10},\"s\":\"\\u00"}"#,
            r#"{"type":"input_json_delta","partial_json":"e9\\/\\ud83d\\ude00\"}"}"#,
        ],
    ),
    (
        r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#,
        r#"{"type":"tool_use","id":"t1","name":"f"}"#,
        &[
            r#"{"type":"input_json_delta","partial_json":""}"#,
            r#"{"type":"input_json_delta","partial_json":" "}"#,
        ],
    ),
    (
        r#"{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}"#,
        r#"{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}"#,
        WHOLE,
    ),
    (
        r#"{"type":"tool_use","id":"t1","name":"f","input":{}}"#,
        r#"{"type":"tool_use","id":"t1","name":"f","input":""}"#,
        WHOLE,
    ),
    (
        r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"tokio"},"caller":{"type":"direct"}}"#,
        r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{},"caller":{"type":"direct"}}"#,
        &[r#"{"type":"input_json_delta","partial_json":"{\"query\":\"tokio\"}"}"#],
    ),
    (
        r#"{"type":"mcp_tool_use","id":"m1","name":"find","server_name":"crm","input":{"email":"kim@example.com"}}"#,
        r#"{"type":"mcp_tool_use","id":"m1","name":"find","server_name":"crm","input":{}}"#,
        &[
            r#"{"type":"input_json_delta","partial_json":"{\"email\":"}"#,
            r#"{"type":"input_json_delta","partial_json":"\"kim@example.com\"}"}"#,
        ],
    ),
    (
        r#"{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","url":"u"}]}"#,
        "",
        WHOLE,
    ),
    (
        r#"{"type":"web_fetch_tool_result","tool_use_id":"s1","content":{"type":"web_fetch_tool_result_error","error_code":"unavailable"}}"#,
        "",
        WHOLE,
    ),
    (
        r#"{"type":"code_execution_tool_result","tool_use_id":"s1","content":{"type":"code_execution_result","stdout":"42\n","return_code":0,"content":[]}}"#,
        "",
        WHOLE,
    ),
    (
        r#"{"type":"bash_code_execution_tool_result","tool_use_id":"s1","content":{"type":"bash_code_execution_result","stdout":"ok"}}"#,
        "",
        WHOLE,
    ),
    (
        r#"{"type":"text_editor_code_execution_tool_result","tool_use_id":"s1","content":{"type":"text_editor_code_execution_create_result","is_file_update":false}}"#,
        "",
        WHOLE,
    ),
    (
        r#"{"type":"tool_search_tool_result","tool_use_id":"s1","content":{"type":"tool_search_tool_search_result","tool_references":[]}}"#,
        "",
        WHOLE,
    ),
    (r#"{"type":"mcp_tool_result","tool_use_id":"m1","is_error":false,"content":"1 match"}"#, "", WHOLE),
    (
        r#"{"type":"advisor_tool_result","tool_use_id":"s1","content":{"type":"advisor_result","text":"Check."}}"#,
        "",
        WHOLE,
    ),
    (r#"{"type":"container_upload","file_id":"file_1"}"#, "", WHOLE),
    (r#"{"type":"mcp_tool_listing","mcp_server_name":"crm","tools":[{"name":"find"}]}"#, "", WHOLE),
    (
        r#"{"type":"fallback","from":{"model":"m"},"to":{"model":"m"},"trigger":{"type":"refusal"}}"#,
        "",
        WHOLE,
    ),
    (
        r#"{"type":"compaction","content":"Goal","signature":"E","encrypted_content":null,"tool_changes":[]}"#,
        "",
        WHOLE,
    ),
    (
        r#"{"type":"compaction","content":"Goal","signature":"E","encrypted_content":"x","tool_changes":[]}"#,
        r#"{"type":"compaction","content":null,"signature":"E","encrypted_content":null,"tool_changes":[]}"#,
        &[r#"{"type":"compaction_delta","content":"Goal","encrypted_content":"x"}"#],
    ),
    (
        r#"{"type":"connector_text","text":"Now the tests.","signature":"C"}"#,
        r#"{"type":"connector_text","text":"","signature":""}"#,
        &[
            r#"{"type":"text_delta","text":"Now the tests."}"#,
            r#"{"type":"signature_delta","signature":"C"}"#,
        ],
    ),
    (
        r#"{ "type": "future", "x": [1.0], "thinking": "t", "citations": [{}], "input": {"a":1} }"#,
        r#"{ "type": "future", "x": [1.0] }"#,
        &[
            r#"{"type":"input_json_delta","partial_json":"{\"a\":1}"}"#,
            r#"{"type":"thinking_delta","thinking":"t"}"#,
            r#"{"type":"citations_delta","citation":{}}"#,
            r#"{"type":"future_delta","x":2}"#,
        ],
    ),
    (r#"{ "type" : "future", "\u0078" : [ 1.0 , "\u00e9" ] }"#, "", WHOLE),
    (r#"{"type":"document","source":{"type":"text","data":"x"}}"#, "", WHOLE),
    (r#"{"type":"image","source":{"type":"url","url":"u"}}"#, "", WHOLE),
    (r#"{"type":"tool_result","tool_use_id":"t1","content":"x"}"#, "", WHOLE),
];

/// The kinds that a view stands for. There is no arm for the rest: a new kind of block has to
/// come with a fixture.
fn kinds(view: &ContentBlock) -> &'static [&'static str] {
    match view {
        ContentBlock::Document(_) => &["document"],
        ContentBlock::Image(_) => &["image"],
        ContentBlock::RedactedThinking(_) => &["redacted_thinking"],
        ContentBlock::ServerToolResult(_) => &[
            "advisor_tool_result",
            "bash_code_execution_tool_result",
            "code_execution_tool_result",
            "mcp_tool_result",
            "text_editor_code_execution_tool_result",
            "tool_search_tool_result",
            "web_fetch_tool_result",
            "web_search_tool_result",
        ],
        ContentBlock::ServerToolUse(_) => &["mcp_tool_use", "server_tool_use"],
        ContentBlock::Text(_) => &["text"],
        ContentBlock::Thinking(_) => &["thinking"],
        ContentBlock::ToolResult(_) => &["tool_result"],
        ContentBlock::ToolUse(_) => &["tool_use"],
        ContentBlock::Other(_) => {
            &["compaction", "connector_text", "container_upload", "fallback", "future", "mcp_tool_listing"]
        }
    }
}

#[test]
fn a_streamed_reply_is_the_plain_one() {
    let (mut seen, mut needed) = (BTreeSet::new(), BTreeSet::new());
    for (plain, begun, deltas) in FIXTURES {
        let view = ContentBlock::from_json(plain).unwrap();
        seen.insert(view.kind().to_owned());
        needed.extend(kinds(&view).iter().map(|kind| (*kind).to_owned()));
        let begun = if begun.is_empty() { plain } else { begun };
        let mut events = vec![START.to_owned(), start(0, begun)];
        events.extend(deltas.iter().map(|fixture| delta(0, fixture)));
        events.extend([stop(0), end("end_turn"), STOP.to_owned()]);
        let reply = accumulated(events.iter().map(String::as_str)).unwrap().finish().unwrap();
        assert_eq!(canonical(reply.content_json()), canonical(&format!("[{plain}]")));
        assert_eq!(reply.broken_input(0), None);
        if deltas.is_empty() && *begun == *plain {
            assert_eq!(reply.content_json(), format!("[{plain}]"), "what came whole stays byte for byte");
        }
    }
    println!("{} fixtures, {} kinds of block", FIXTURES.len(), seen.len());
    assert_eq!(seen, needed, "each kind needs a fixture");
}

/// What `add` leaves alone is for `apply`, and nobody sees a difference.
#[test]
fn a_delta_may_be_added_or_applied() {
    let (mut added, mut applied) = (0, 0);
    let call = r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#;
    let inputs: [&[&str]; 6] = [
        &[r#"{\"a\":\"\\n"#, r#"\u00e9 é"#, r#"\"}"#],
        &[r#"{\"a\":1"#, r#"\u002c"#, r#"}"#],
        &["[1,", r#" 2]\t"#],
        // Half of it is read twice, and makes it seem whole.
        &[r"[\n\u0031]]"],
        &[r#"\n[\b1]"#],
        &[""],
    ];
    let mut blocks: Vec<(&str, Vec<String>)> = FIXTURES
        .iter()
        .map(|(plain, begun, deltas)| {
            (
                if begun.is_empty() { *plain } else { *begun },
                deltas.iter().map(|delta| (*delta).to_owned()).collect(),
            )
        })
        .collect();
    blocks.extend(inputs.map(|pieces| {
        let input = |piece: &&str| format!(r#"{{"type":"input_json_delta","partial_json":"{piece}"}}"#);
        (call, pieces.iter().map(input).collect())
    }));
    for (begun, deltas) in blocks {
        let (begun, stop, end) = (start(0, begun), stop(0), end("end_turn"));
        let deltas: Vec<_> = deltas.iter().map(|fixture| delta(0, fixture)).collect();
        let events =
            [START, &begun].into_iter().chain(deltas.iter().map(String::as_str)).chain([&*stop, &*end]);
        let mut expected = accumulated(events.clone()).unwrap();
        let mut accumulator = Accumulator::new(CAP);
        for data in events {
            if let Some(delta) = TextDelta::parse("", data)
                && accumulator.add(delta).unwrap()
            {
                added += 1;
            } else {
                applied += usize::from(data.contains("content_block_delta"));
                accumulator.apply(&event(data)).unwrap();
            }
        }
        assert_eq!(accumulator.size, expected.size);
        let (reply, expected) = (accumulator.finish().unwrap(), expected.finish().unwrap());
        assert_eq!(reply.json(), expected.json());
        assert_eq!(reply.broken_input(0), expected.broken_input(0));
    }
    println!("{added} deltas added, {applied} applied");
    assert!(added > 20 && applied > 10, "{added} added, {applied} applied");
}

#[test]
fn blocks_that_interleave_keep_their_places() {
    let picked: Vec<_> = FIXTURES.iter().filter(|(_, begun, _)| !begun.is_empty()).collect();
    let mut events = vec![START.to_owned()];
    events.extend(picked.iter().enumerate().map(|(at, (_, begun, _))| start(at, begun)));
    for round in 0..8 {
        for (at, (.., deltas)) in picked.iter().enumerate().rev() {
            events.extend(deltas.get(round).map(|fixture| delta(at, fixture)));
        }
    }
    events.extend((0..picked.len()).map(stop));
    events.extend([end("end_turn"), STOP.to_owned()]);
    let reply = accumulated(events.iter().map(String::as_str)).unwrap().finish().unwrap();
    let plain: Vec<_> = picked.iter().map(|(plain, ..)| *plain).collect();
    assert_eq!(canonical(reply.content_json()), canonical(&format!("[{}]", plain.join(","))));
}

/// The text of a call's input is the model's, and replaying it keeps each digit.
#[test]
fn the_input_is_the_text_of_the_deltas() {
    for text in
        [r#"{"z": 1e2 ,"a":{"y":2,"b":3}}"#, r#"{"id":7300000000000000001,"n":18446744073709551615}"#, "{ }"]
    {
        for size in 1..=text.len() {
            let pieces = text.as_bytes().chunks(size).map(|piece| input(std::str::from_utf8(piece).unwrap()));
            let mut events = vec![
                START.to_owned(),
                start(0, r#"{"type":"tool_use","id":"t","name":"f","input":{"placeholder":1}}"#),
            ];
            events.extend(pieces);
            events.extend([stop(0), end("tool_use")]);
            let reply = accumulated(events.iter().map(String::as_str)).unwrap().finish().unwrap();
            let expected = format!(r#"[{{"type":"tool_use","id":"t","name":"f","input":{text}}}]"#);
            assert_eq!(reply.content_json(), expected);
            assert_eq!(
                reply.to_param().unwrap().json(),
                format!(r#"{{"role":"assistant","content":{expected}}}"#)
            );
        }
    }
}

/// An input is written in its place while it comes, where that can be.
#[test]
fn an_input_is_the_same_whatever_comes_between_its_deltas() {
    let begun = r#"{"type":"tool_use","text":"","input":{},"signature":"","caller":{"type":"direct"}}"#;
    let mut cases = 0;
    for (between, [text, signature, more]) in [
        (r#"{"type":"ping"}"#.to_owned(), ["", "", ""]),
        (delta(1, r#"{"type":"text_delta","text":"longer"}"#), ["longer", "", ""]),
        (delta(1, r#"{"type":"signature_delta","signature":"sig"}"#), ["", "sig", ""]),
        (delta(1, r#"{"type":"thinking_delta","thinking":"new"}"#), ["", "", r#","thinking":"new""#]),
        // What stands before all blocks gets longer.
        (r#"{"type":"message_delta","delta":{"model":"a longer name"},"usage":{}}"#.to_owned(), ["", "", ""]),
    ] {
        for (input_text, kept) in [(r#"{"a":[1]}"#, r#"{"a":[1]}"#), (r#"{"a":[1}"#, r#""{\"a\":[1}""#)] {
            let (first, second) = input_text.split_at(4);
            let block = [start(1, begun), input(first), between.clone(), input(second), stop(1)]
                .map(|event| event.replace(r#""index":0"#, r#""index":1"#));
            // The block before it may end at any time.
            for place in 0..=block.len() {
                let mut events = vec![START.to_owned(), start(0, r#"{"type":"text","text":"before"}"#)];
                events.extend(block.iter().cloned());
                events.insert(2 + place, stop(0));
                events.push(end("tool_use"));
                let mut reply = Accumulator::new(1 << 20);
                for data in &events {
                    reply.apply(&event(data)).unwrap();
                    let shown = reply.snapshot().unwrap();
                    assert!(
                        serde_json::from_str::<Vec<serde_json::Value>>(shown.content_json()).is_ok(),
                        "{data}"
                    );
                }
                let expected = format!(
                    r#"[{{"type":"text","text":"before"}},{{"type":"tool_use","text":"{text}","input":{kept},"signature":"{signature}","caller":{{"type":"direct"}}{more}}}]"#
                );
                let reply = reply.finish().unwrap();
                assert_eq!(reply.content_json(), expected, "{events:?}");
                assert_eq!(reply.broken_input(1).is_some(), kept.starts_with('"'));
                cases += 1;
            }
        }
    }
    println!("{cases} cases");
}

#[test]
fn j15_an_input_that_is_no_json_is_kept_as_a_string_and_told_apart() {
    for (text, kept, place) in [
        (r#"{"a": "b"#, r#""{\"a\": \"b""#, Some("it ends too early (line 1, column 8)")),
        (r#"{"a": 1} x"#, r#""{\"a\": 1} x""#, Some("the fault is at line 1, column 10")),
        ("{\"a\":\n1,}", r#""{\"a\":\n1,}""#, Some("the fault is at line 2, column 3")),
        (r#""hello""#, r#""hello""#, None),
        ("null", "null", None),
        ("[1]", "[1]", None),
    ] {
        let begun = start(0, r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#);
        let events = [START, &begun, &input(text), &stop(0), &end("tool_use"), STOP].map(str::to_owned);
        let reply = accumulated(events.iter().map(String::as_str)).unwrap().finish().unwrap();
        assert_eq!(
            reply.content_json(),
            format!(r#"[{{"type":"tool_use","id":"t","name":"f","input":{kept}}}]"#)
        );
        assert_eq!(reply.broken_input(0), place);
        assert_eq!(reply.tool_uses().count(), 0);
        let replayed =
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}"#;
        assert_eq!(reply.to_param().unwrap().json(), replayed);
    }
}

#[test]
fn counters_are_those_of_the_whole_reply_and_the_last_end_counts() {
    let ends = [
        r#"{"type":"message_delta","delta":{"stop_reason":"pause_turn","stop_sequence":"x","container":{"id":"c1"},"new":{"a":1}},"usage":{"output_tokens":40,"cache_creation_input_tokens":5,"server_tool_use":{"web_search_requests":1}},"context_management":{"applied_edits":[]}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal"},"container":null,"id":"other","content":[1]},"usage":{"output_tokens":96,"input_tokens":null,"cache_creation":{"ephemeral_1h_input_tokens":4}},"input_transformations":[],"context_management":null}"#,
    ];
    let reply = accumulated([START].into_iter().chain(ends)).unwrap().finish().unwrap();
    assert_eq!(
        reply.json(),
        r#"{"id":"m1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal"},"container":{"id":"c1"},"diagnostics":null,"usage":{"input_tokens":9,"cache_creation_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":4},"output_tokens":96,"service_tier":"standard","server_tool_use":{"web_search_requests":1}},"new":{"a":1},"context_management":{"applied_edits":[]},"input_transformations":[]}"#
    );
    assert_eq!((reply.usage().input_tokens, reply.usage().output_tokens), (9, 96));

    let mut bare =
        accumulated([START, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#]).unwrap();
    assert_eq!(bare.finish().unwrap().usage().output_tokens, 3);
    let mut none = accumulated([r#"{"type":"message_start","message":{}}"#, &end("end_turn")]).unwrap();
    assert_eq!(
        none.finish().unwrap().json(),
        r#"{"content":[],"stop_reason":"end_turn","stop_sequence":null,"usage":{"output_tokens":7}}"#
    );
}

#[test]
fn a_reply_without_its_start_has_no_id_and_all_of_its_content() {
    let text = start(0, r#"{"type":"text","text":"a"}"#);
    let reply = accumulated([&*text, &stop(0), &end("end_turn"), STOP]).unwrap().finish().unwrap();
    assert_eq!(
        reply.json(),
        r#"{"content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"output_tokens":7}}"#
    );
    assert_eq!((reply.id(), reply.model()), ("", ""));
}

#[test]
fn content_of_the_start_is_kept() {
    let begun = START.replace(r#""content":[]"#, r#""content":[{"type":"text","text":"a"}]"#);
    let more = start(1, r#"{"type":"text","text":"b"}"#);
    let reply = accumulated([&*begun, &more, &stop(1), &end("end_turn")]).unwrap().finish().unwrap();
    assert_eq!(reply.content_json(), r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#);
    assert!(accumulated([&*begun, &start(0, r#"{"type":"text"}"#)]).is_err());
}

#[test]
fn what_stands_before_the_content_may_change_behind_the_first_blocks() {
    let fallback = start(1, r#"{"type":"fallback","to":{"model":"a longer name"}}"#);
    let late = start(2, r#"{"type":"text","text":"b"}"#);
    let first = start(0, r#"{"type":"text","text":"a"}"#);
    let stops = [stop(0), stop(1), stop(2)];
    let [stop_0, stop_1, stop_2] = &stops;
    let end = end("end_turn");
    for events in [
        [START, &first, stop_0, &fallback, stop_1, &late, stop_2],
        [START, &first, &fallback, &late, stop_2, stop_0, stop_1],
        [START, &first, &fallback, stop_1, stop_0, &late, stop_2],
    ] {
        let reply = accumulated(events.into_iter().chain([&*end])).unwrap().finish().unwrap();
        let read = Message::from_json(reply.json()).unwrap();
        assert_eq!((reply.model(), read.model(), read.id()), ("a longer name", "a longer name", "m1"));
        assert_eq!(
            reply.content_json(),
            r#"[{"type":"text","text":"a"},{"type":"fallback","to":{"model":"a longer name"}},{"type":"text","text":"b"}]"#
        );
        assert_eq!(read.content_json(), reply.content_json());
    }
    let twice = r#"{"type":"message_start","message":{"content":[{"x":1}],"id":"m","content":[],"new":1}}"#;
    let reply = accumulated([twice, &first, &stops[0]]).unwrap().finish().unwrap();
    assert_eq!(reply.json(), r#"{"id":"m","content":[{"type":"text","text":"a"}],"new":1}"#);
}

#[test]
fn a_fallback_names_the_model_that_goes_on() {
    let fallback = start(0, r#"{"type":"fallback","from":{"model":"m"},"to":{"model":"other"}}"#);
    let reply = accumulated([START, &fallback, &stop(0), &end("end_turn")]).unwrap().finish().unwrap();
    assert_eq!(reply.model(), "other");
}

#[test]
fn events_out_of_turn_are_errors_with_the_index() {
    let text = start(0, r#"{"type":"text","text":""}"#);
    let more = delta(0, r#"{"type":"text_delta","text":"x"}"#);
    for (events, word) in [
        (vec![START, START], "began a second time"),
        (vec![&*text, START], "began a second time"),
        (vec![&*more], "content_block_delta came before message_start"),
        (vec![&*stop(0)], "content_block_stop came before message_start"),
        (vec![STOP], "message_stop came before message_start"),
        (vec![START, &*start(1, "{}")], "block 1 began where block 0 is next"),
        (vec![START, &*text, &*text], "block 0 began where block 1 is next"),
        (
            vec![START, &*delta(3, r#"{"type":"text_delta","text":"x"}"#)],
            "text_delta for block 3, which did not begin",
        ),
        (vec![START, &*delta(3, r#"{"type":"future"}"#)], "future for block 3, which did not begin"),
        (vec![START, &*stop(0)], "content_block_stop for block 0, which did not begin"),
        (vec![START, &*text, &*stop(0), &*more], "text_delta for block 0, which is closed"),
        (vec![START, &*text, &*stop(0), &*stop(0)], "content_block_stop for block 0, which is closed"),
    ] {
        let error = accumulated(events.iter().copied()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert!(error.to_string().contains(word) && !error.is_retryable(), "{error}");
    }
    // What can't come here is not added either.
    let mut closed = accumulated([START, &text, &stop(0)]).unwrap();
    for accumulator in [&mut closed, &mut Accumulator::new(CAP)] {
        assert!(!accumulator.add(TextDelta::parse("", &more).unwrap()).unwrap());
        assert!(accumulator.apply(&event(&more)).is_err());
    }
    let early = [r#"{"type":"ping"}"#, r#"{"type":"future"}"#, START, r#"{"type":"ping"}"#];
    assert!(accumulated(early).unwrap().finish().is_ok());
}

#[test]
fn a_block_stays_open_only_where_the_reply_may_be_cut_off() {
    let begun = start(0, r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#);
    for (reason, may_be_cut) in [
        ("max_tokens", true),
        ("model_context_window_exceeded", true),
        ("refusal", true),
        ("brand_new", true),
        ("tool_use", false),
        ("end_turn", false),
        ("pause_turn", false),
        ("stop_sequence", false),
        ("compaction", false),
    ] {
        let mut accumulator = accumulated([START, &begun, &input(r#"{"path":"a""#), &end(reason)]).unwrap();
        assert!(!accumulator.is_whole());
        match accumulator.finish() {
            Ok(reply) => {
                assert!(may_be_cut, "{reason}");
                assert_eq!(reply.broken_input(0), Some("it ends too early (line 1, column 11)"));
            }
            Err(error) => {
                assert!(!may_be_cut && error.to_string().contains("block 0 was open"), "{error}")
            }
        }
    }
    assert!(accumulated([START]).unwrap().finish().is_ok());
    assert!(Accumulator::new(CAP).finish().is_err());
}

#[test]
fn only_a_stop_reason_behind_all_blocks_makes_a_reply_whole() {
    let with_reason = START.replace(r#""stop_reason":null"#, r#""stop_reason":"end_turn""#);
    let (text, call) = (start(0, r#"{"type":"text","text":"a"}"#), start(1, r#"{"type":"tool_use"}"#));
    let no_reason = r#"{"type":"message_delta","delta":{"stop_reason":null}}"#;
    let (end, stop_0, stop_1) = (end("tool_use"), stop(0), stop(1));
    for (events, is_whole) in [
        (vec![&*with_reason, &text, &stop_0], false),
        (vec![START, &end, &text, &stop_0], false),
        (vec![START, &text, &stop_0, &end, &call, &stop_1], false),
        (vec![START, &text, &end], false),
        (vec![START, &text, &stop_0, no_reason], false),
        (vec![START, &text, &stop_0, &end, no_reason], false),
        (vec![START, &text, &stop_0, &end], true),
        (vec![START, &text, &end, &stop_0], true),
        (vec![START, &text, &stop_0, &call, &stop_1, &end, &end], true),
    ] {
        assert_eq!(accumulated(events.iter().copied()).unwrap().is_whole(), is_whole, "{events:?}");
    }
}

/// What is small on the wire and large in memory has its price, and so has what waits.
#[test]
fn everything_that_is_kept_counts_towards_the_cap() {
    let citation = delta(0, r#"{"type":"citations_delta","citation":{}}"#);
    let ends = end("end_turn");
    let (block, text) = (start(0, "{}"), start(0, r#"{"type":"text"}"#));
    type Flood<'a> = (&'a str, Vec<&'a str>, Box<dyn Fn(usize) -> String + 'a>);
    let floods: [Flood<'_>; 5] = [
        ("blocks", vec![START], Box::new(|at| start(at, "{}"))),
        ("citations", vec![START, &text], Box::new(|_| citation.clone())),
        ("ends", vec![START, &block], Box::new(|_| ends.clone())),
        ("pings before the start", vec![], Box::new(|_| r#"{"type":"ping"}"#.to_owned())),
        ("unknown events before the start", vec![], Box::new(|_| r#"{"type":"x"}"#.to_owned())),
    ];
    for (name, before, more) in floods {
        let mut accumulator = Accumulator::new(100_000);
        for data in before {
            accumulator.apply(&event(data)).unwrap();
        }
        let ended = (0..3000).find(|at| accumulator.apply(&event(&more(*at))).is_err());
        assert!(ended.is_some(), "{name} are taken without end");
    }
}

#[test]
fn an_object_of_very_many_fields_is_refused_once_it_is_changed() {
    let fields: String = (0..=MAX_FIELDS).map(|at| format!(r#","f{at}":1"#)).collect();
    let text = start(0, &format!(r#"{{"type":"text","text":""{fields}}}"#));
    let more = delta(0, r#"{"type":"text_delta","text":"x"}"#);
    let error = accumulated([START, &text, &more]).err().unwrap();
    assert!(error.to_string().contains("more than 1000 fields"), "{error}");
    // Whole it is kept as it came.
    assert!(accumulated([START, &text, &stop(0), &end("end_turn")]).unwrap().finish().is_ok());
    let begun = format!(r#"{{"type":"message_start","message":{{"id":"m"{fields}}}}}"#);
    assert!(accumulated([&*begun]).is_err());
    let ends = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"{fields}}}}}"#);
    assert!(accumulated([START, &ends]).is_err());
}

#[test]
fn the_cap_ends_a_reply_without_end() {
    let mut accumulator = Accumulator::new(10_000);
    accumulator.apply(&event(START)).unwrap();
    accumulator.apply(&event(&start(0, r#"{"type":"text","text":""}"#))).unwrap();
    let more = event(&delta(0, r#"{"type":"text_delta","text":"0123456789"}"#));
    let error = (0..2000).find_map(|_| accumulator.apply(&more).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("longer than 10000 bytes"), "{error}");
    let more = delta(0, r#"{"type":"text_delta","text":"x"}"#);
    assert!(accumulator.add(TextDelta::parse("", &more).unwrap()).is_err());
    assert!(accumulator.snapshot().unwrap().text().len() < 10_020);
}
