//! Messages as the events of a stream.
//!
//! A message is cut up as text: no number is built of its digits and no key moves.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Bytes in a delta, at most and not counting what ends the last character.
const LONGEST_PIECE: usize = 1024;

/// An explicit event on the wire.
pub(super) fn event(event: &Value) -> String {
    framed(event.get("type").and_then(Value::as_str).unwrap_or_default(), &event.to_string())
}

/// The events of a message on the wire; `None` if the text is not a JSON object.
pub(super) fn of_message(text: &str) -> Option<Vec<String>> {
    let message: Object<'_> = serde_json::from_str(text).ok()?;
    let blocks = message.get("content").and_then(list);
    let mut events = vec![message_start(&message, blocks.is_some()), framed("ping", r#"{"type":"ping"}"#)];
    for (index, block) in blocks.iter().flatten().enumerate() {
        let (start, deltas) = serde_json::from_str(block.get())
            .ok()
            .and_then(|block| taken_apart(&block))
            .unwrap_or_else(|| (block.get().to_owned(), Vec::new()));
        let of_block =
            |kind: &str, rest: &str| framed(kind, &format!(r#"{{"type":"{kind}","index":{index}{rest}}}"#));
        events.push(of_block("content_block_start", &format!(r#","content_block":{start}"#)));
        let deltas =
            deltas.iter().map(|delta| of_block("content_block_delta", &format!(r#","delta":{delta}"#)));
        events.extend(deltas);
        events.push(of_block("content_block_stop", ""));
    }
    events.push(message_delta(&message));
    events.push(framed("message_stop", r#"{"type":"message_stop"}"#));
    Some(events)
}

/// The content that explicit events add up to, and the last stop reason.
pub(super) fn summed(events: &[Value]) -> (Vec<Value>, Option<&str>) {
    let mut blocks: Vec<(Value, String)> = Vec::new();
    let mut reason = None;
    for event in events {
        let index = event["index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let block = index.and_then(|index| blocks.get_mut(index));
        match (event["type"].as_str(), block) {
            (Some("content_block_start"), _) => blocks.push((event["content_block"].clone(), String::new())),
            (Some("content_block_delta"), Some((Value::Object(block), input))) => {
                add(&event["delta"], block, input);
            }
            (Some("message_delta"), _) => reason = event["delta"]["stop_reason"].as_str(),
            _ => {}
        }
    }
    let content = blocks.into_iter().map(|(mut block, input)| {
        if let Ok(input) = serde_json::from_str::<Value>(&input) {
            block["input"] = input;
        }
        block
    });
    (content.collect(), reason)
}

fn add(delta: &Value, block: &mut Map<String, Value>, input: &mut String) {
    for name in ["text", "thinking"] {
        if let (Some(more), Some(Value::String(text))) = (delta[name].as_str(), block.get_mut(name)) {
            text.push_str(more);
        }
    }
    // The last two are those of a compaction.
    for name in ["signature", "content", "encrypted_content"] {
        if let Some(value) = delta.get(name) {
            block.insert(name.into(), value.clone());
        }
    }
    if let Some(citation) = delta.get("citation") {
        match block.entry("citations").or_insert_with(|| json!([])) {
            Value::Array(citations) => citations.push(citation.clone()),
            other => *other = json!([citation]),
        }
    }
    input.push_str(delta["partial_json"].as_str().unwrap_or_default());
}

fn framed(kind: &str, data: &str) -> String {
    // A line break in JSON stands between tokens only, and would end the line of the event.
    format!("event: {kind}\ndata: {}\n\n", data.replace(['\n', '\r'], " "))
}

fn message_start(message: &Object<'_>, has_blocks: bool) -> String {
    let mut members = message.members(|name, value| match name {
        "container" | "stop_details" | "stop_reason" | "stop_sequence" => Some("null".into()),
        "content" if has_blocks => Some("[]".into()),
        // It comes with the end only.
        "context_management" => None,
        "usage" => Some(usage_at_start(value)),
        _ => Some(value.to_owned()),
    });
    for name in ["stop_reason", "stop_sequence", "stop_details"] {
        if message.get(name).is_none() {
            members.push(format!(r#""{name}":null"#));
        }
    }
    let message = object(&members);
    framed("message_start", &format!(r#"{{"type":"message_start","message":{message}}}"#))
}

fn message_delta(message: &Object<'_>) -> String {
    let mut members = Vec::new();
    for name in ["stop_reason", "stop_sequence", "stop_details"] {
        members.push(format!(r#""{name}":{}"#, message.get(name).unwrap_or("null")));
    }
    members.extend(message.get("container").map(|container| format!(r#""container":{container}"#)));
    let mut data = vec![r#""type":"message_delta""#.to_owned(), format!(r#""delta":{}"#, object(&members))];
    data.extend(message.get("usage").map(|usage| format!(r#""usage":{}"#, usage_at_end(usage))));
    data.extend(message.get("context_management").map(|field| format!(r#""context_management":{field}"#)));
    framed("message_delta", &object(&data))
}

/// What is known before the first token.
fn usage_at_start(usage: &str) -> String {
    let Ok(fields) = serde_json::from_str::<Object<'_>>(usage) else { return usage.to_owned() };
    object(&fields.members(|name, value| match name {
        "cache_creation"
        | "cache_creation_input_tokens"
        | "cache_read_input_tokens"
        | "inference_geo"
        | "input_tokens"
        | "service_tier"
        | "speed" => Some(value.to_owned()),
        "output_tokens" => Some(if value == "0" { "0" } else { "1" }.into()),
        _ => None,
    }))
}

/// All but what only the start tells.
fn usage_at_end(usage: &str) -> String {
    let Ok(fields) = serde_json::from_str::<Object<'_>>(usage) else { return usage.to_owned() };
    object(&fields.members(|name, value| match name {
        "cache_creation" | "inference_geo" | "service_tier" | "speed" => None,
        _ => Some(value.to_owned()),
    }))
}

/// A block as its start and its deltas; `None` if it comes whole in its start.
fn taken_apart(block: &Object<'_>) -> Option<(String, Vec<String>)> {
    let empty = || Some(r#""""#.to_owned());
    let same = |value: &str| Some(value.to_owned());
    let (start, deltas) = match block.get("type")? {
        r#""text""# => {
            let citations = block.get("citations").and_then(list).unwrap_or_default();
            let mut deltas = literal_deltas("text", inside(block.get("text")?)?);
            let citation =
                |citation: &&RawValue| format!(r#"{{"type":"citations_delta","citation":{citation}}}"#);
            deltas.extend(citations.iter().map(citation));
            let start = block.members(|name, value| match name {
                "citations" if !citations.is_empty() => Some("[]".into()),
                "text" => empty(),
                _ => same(value),
            });
            (start, deltas)
        }
        r#""thinking""# => {
            let mut deltas = literal_deltas("thinking", inside(block.get("thinking")?)?);
            let signature = block.get("signature").filter(|signature| inside(signature).is_some());
            let delta = |signature| format!(r#"{{"type":"signature_delta","signature":{signature}}}"#);
            deltas.extend(signature.map(delta));
            let start = block.members(|name, value| match name {
                "signature" if signature.is_some() => empty(),
                "thinking" => empty(),
                _ => same(value),
            });
            (start, deltas)
        }
        r#""mcp_tool_use""# | r#""server_tool_use""# | r#""tool_use""# => {
            let input = block.get("input")?;
            let pieces = match input {
                "{}" => vec![""],
                // The members of a toolset get their input at once.
                _ if block.get("toolset_name").is_some() => vec![input],
                _ => [vec![""], pieces(input, first_char)].concat(),
            };
            let delta = |piece| format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, json!(piece));
            let start =
                block.members(|name, value| if name == "input" { Some("{}".into()) } else { same(value) });
            (start, pieces.into_iter().map(delta).collect())
        }
        _ => return None,
    };
    Some((object(&start), deltas))
}

/// The deltas of a text field, given as the inside of its JSON string.
fn literal_deltas(field: &str, literal: &str) -> Vec<String> {
    let pieces = pieces(literal, first_of_literal);
    pieces.iter().map(|piece| format!(r#"{{"type":"{field}_delta","{field}":"{piece}"}}"#)).collect()
}

/// A text in three pieces, or more if it is long, none of them empty. `first` gives the length of
/// what must stay whole at the start of a text.
fn pieces(mut text: &str, first: impl Fn(&str) -> usize) -> Vec<&str> {
    let size = text.len().div_ceil(3).min(LONGEST_PIECE);
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let mut end = 0;
        while end < size.min(text.len()) {
            end += first(&text[end..]);
        }
        let (piece, rest) = text.split_at(end);
        pieces.push(piece);
        text = rest;
    }
    pieces
}

fn first_char(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

/// Keeps an escape whole, and the two of a surrogate pair together.
fn first_of_literal(text: &str) -> usize {
    let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    match unit(text) {
        Some(0xd800..=0xdbff) if matches!(unit(&text[6..]), Some(0xdc00..=0xdfff)) => 12,
        Some(_) => 6,
        None if text.starts_with('\\') => 2,
        None => first_char(text),
    }
}

/// What stands between the quotes of a JSON string; `None` if the value is none.
fn inside(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

fn list(value: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value).ok()
}

fn object(members: &[String]) -> String {
    format!("{{{}}}", members.join(","))
}

/// The members of a JSON object as they are spelled, in their order.
struct Object<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Where a name stands twice the last one counts, as in most parsers.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(key, _)| inside(key.get()) == Some(name)).map(|(_, value)| value.get())
    }

    /// The members with other values, without those that get none.
    fn members(&self, change: impl Fn(&str, &'a str) -> Option<String>) -> Vec<String> {
        let member = |(key, value): &(&'a RawValue, &'a RawValue)| {
            let value = change(inside(key.get()).unwrap_or_default(), value.get())?;
            Some(format!("{key}:{value}"))
        };
        self.0.iter().filter_map(member).collect()
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}
