//! What a conversation keeps of a reply.

use std::collections::HashSet;
use std::fmt;

use serde_json::value::RawValue;

use super::content::is_call;
use super::facts::{Facts, Role};
use super::json::{self, Fields};
use super::message::Message;
use super::param::MessageParam;

/// A reply as the conversation keeps it.
#[derive(Debug)]
pub(crate) struct Frozen {
    /// `None` if nothing is left that may be sent.
    pub(crate) message: Option<MessageParam>,
    pub(crate) repairs: Vec<Repair>,
}

/// A change to a reply without which the API would refuse its own words.
///
/// The reply as received stays readable through [`Message::json`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// The index of the block in the reply.
    pub block: usize,
    /// What was done.
    pub kind: RepairKind,
}

/// What was done to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RepairKind {
    /// A block before the last `fallback` was left out: the model that took over can't read it.
    BeforeFallback,
    /// A text block that is blank, or has no text, was left out.
    BlankText,
    /// A call's `input` was no JSON object and became `{}`.
    Input,
    /// A call had no usable `name` and got `unnamed`.
    Name,
    /// Something that is no JSON object, or has no `type`, was left out.
    NoBlock,
    /// Half of a surrogate pair, which no text can hold, became U+FFFD.
    Surrogate,
}

/// The name that a call without a usable one is kept under.
const UNNAMED: &str = r#""unnamed""#;

/// Freezes a reply: the exact text of its content, changed only where the API would refuse it.
/// Run once, when the reply enters a conversation, never on an outgoing copy.
pub(crate) fn freeze(reply: &Message) -> Frozen {
    let blocks = json::items(reply.content_json()).unwrap_or_default();
    let fields: Vec<_> = blocks.iter().map(|block| Fields::parse(block.get()).unwrap_or_default()).collect();
    let kinds: Vec<_> = fields.iter().map(|fields| fields.str("type").unwrap_or_default()).collect();
    let fallback = kinds.iter().rposition(|kind| kind == "fallback");
    // Only a fallback makes it matter which server calls have a result.
    let answered: HashSet<_> = match fallback {
        Some(_) => fields.iter().filter_map(|fields| fields.str("tool_use_id")).collect(),
        None => HashSet::new(),
    };

    let mut repairs = Vec::new();
    let mut kept: Vec<Box<RawValue>> = Vec::with_capacity(blocks.len());
    for (index, ((block, fields), kind)) in blocks.iter().zip(&fields).zip(&kinds).enumerate() {
        let mut repair = |kind| repairs.push(Repair { block: index, kind });
        if fallback.is_some_and(|fallback| index < fallback) {
            let lost = match &**kind {
                "thinking" | "redacted_thinking" | "connector_text" | "tool_use" => true,
                "server_tool_use" | "mcp_tool_use" => {
                    !fields.str("id").is_some_and(|id| answered.contains(&id))
                }
                _ => false,
            };
            if lost {
                repair(RepairKind::BeforeFallback);
                continue;
            }
        }
        if kind == "text" && fields.str("text").is_none_or(|text| text.trim().is_empty()) {
            repair(RepairKind::BlankText);
            continue;
        }
        if kind.is_empty() {
            repair(RepairKind::NoBlock);
            continue;
        }
        let mut block = match json::with_whole_pairs(block.get()) {
            Some(whole) => {
                repair(RepairKind::Surrogate);
                json::text(&whole)
            }
            None => (*block).to_owned(),
        };
        if is_call(kind) && !fields.get("input").is_some_and(json::is_object) {
            repair(RepairKind::Input);
            block = json::with_field(block.get(), "input", "{}");
        }
        if Facts::call(fields).is_some_and(|call| call.name.is_empty()) {
            repair(RepairKind::Name);
            block = json::with_field(block.get(), "name", UNNAMED);
        }
        kept.push(block);
    }

    let message = if kept.is_empty() {
        None
    } else if repairs.is_empty() {
        let content = serde_json::from_str::<&RawValue>(reply.content_json());
        content.ok().map(|content| MessageParam::frozen(Role::Assistant, content))
    } else {
        Some(MessageParam::frozen(Role::Assistant, &json::to_raw(&kept)))
    };
    Frozen { message, repairs }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            RepairKind::BeforeFallback => "left out, it stands before a fallback",
            RepairKind::BlankText => "left out, its text is blank",
            RepairKind::Input => "its input was no object and became {}",
            RepairKind::Name => "it had no usable name and got one",
            RepairKind::NoBlock => "left out, it is no block",
            RepairKind::Surrogate => "half of a surrogate pair became U+FFFD",
        };
        write!(f, "content[{}]: {what}", self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frozen(content: &str) -> (Option<String>, Vec<RepairKind>) {
        let reply = Message::from_json(format!(r#"{{"content":{content}}}"#)).unwrap();
        let Frozen { message, repairs } = freeze(&reply);
        let content = message
            .map(|message| Fields::parse(message.json()).unwrap().get("content").unwrap().get().to_owned());
        (content, repairs.into_iter().map(|repair| repair.kind).collect())
    }

    #[test]
    fn what_may_be_sent_stays_as_it_came() {
        for content in [
            r#"[{"type":"text","text":"a"}]"#,
            "[ {\"type\":\"text\" , \"text\":\"\\u00e9\\/\"} ]",
            r#"[{"type":"thinking","thinking":"","signature":"S"},{"type":"tool_use","id":"t","name":"f","input":{"z":1e2,"a":1234567890123456789012345},"caller":{"type":"new","tool_id":"s"},"toolset_name":"c"}]"#,
            r#"[{"type":"future","deep":{"b":[1.10],"a":null}},{"type":"redacted_thinking","data":"x"}]"#,
        ] {
            assert_eq!(frozen(content), (Some(content.to_owned()), vec![]));
        }
    }

    #[test]
    fn blank_text_is_left_out() {
        let (content, repairs) = frozen(
            r#"[{"type":"text","text":""},{"type":"text","text":" \n\u00a0"},{"type":"text","text":"a"}]"#,
        );
        assert_eq!(content.unwrap(), r#"[{"type":"text","text":"a"}]"#);
        assert_eq!(repairs, [RepairKind::BlankText, RepairKind::BlankText]);
        assert_eq!(frozen("[]"), (None, vec![]));
        assert_eq!(
            frozen(
                r#"[7,{"type":"text","text":null},{"type":"text"},"x",{"type":null},{"type":"text","text":"a"}]"#
            ),
            (
                Some(r#"[{"type":"text","text":"a"}]"#.to_owned()),
                vec![
                    RepairKind::NoBlock,
                    RepairKind::BlankText,
                    RepairKind::BlankText,
                    RepairKind::NoBlock,
                    RepairKind::NoBlock
                ]
            )
        );
        assert_eq!(frozen(r#"[{"type":"text","text":"  "}]"#), (None, vec![RepairKind::BlankText]));
    }

    #[test]
    fn an_input_that_is_no_object_becomes_one_in_its_place() {
        let inputs = [r#","input":"text""#, r#","input":null"#, r#","input":[1]"#, ""];
        let kinds = ["tool_use", "server_tool_use", "mcp_tool_use"];
        for (input, kind) in inputs.iter().flat_map(|input| kinds.map(|kind| (input, kind))) {
            let (content, repairs) = frozen(&format!(
                r#"[{{"type":"{kind}","id":"t","name":"f"{input},"caller":{{"type":"direct"}}}}]"#
            ));
            let value: serde_json::Value = serde_json::from_str(&content.unwrap()).unwrap();
            assert_eq!(value[0]["input"], serde_json::json!({}));
            assert_eq!(value[0]["caller"]["type"], "direct");
            assert_eq!(repairs, [RepairKind::Input]);
        }
        let (content, repairs) = frozen(r#"[{"type":"tool_use","id":"t","name":7,"input":{"a":1}}]"#);
        assert_eq!(content.unwrap(), r#"[{"type":"tool_use","id":"t","name":"unnamed","input":{"a":1}}]"#);
        assert_eq!(repairs, [RepairKind::Name]);
    }

    /// Sent back as it is, half a surrogate pair makes the API refuse the request.
    #[test]
    fn half_a_surrogate_pair_is_replaced_wherever_it_stands() {
        let (content, repairs) = frozen(
            r#"[{"type":"text","text":"a\ud83d\ude00"},{"type":"tool_use","id":"t","name":"f","input":{"\ud83d":"\udc00 é"}},{"type":"new","x":["\\ud83d"]}]"#,
        );
        assert_eq!(
            content.unwrap(),
            r#"[{"type":"text","text":"a\ud83d\ude00"},{"type":"tool_use","id":"t","name":"f","input":{"\ufffd":"\ufffd é"}},{"type":"new","x":["\\ud83d"]}]"#
        );
        assert_eq!(repairs, [RepairKind::Surrogate]);
    }

    /// Of several fallbacks the last counts.
    #[test]
    fn the_last_fallback_counts() {
        let fallback = r#"{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}"#;
        let call = |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#);
        let (content, repairs) =
            frozen(&format!("[{},{fallback},{},{fallback},{}]", call("t1"), call("t2"), call("t3")));
        assert_eq!(content.unwrap(), format!("[{fallback},{fallback},{}]", call("t3")));
        assert_eq!(repairs, [RepairKind::BeforeFallback; 2]);
    }

    #[test]
    fn what_a_declining_model_left_before_the_fallback_goes() {
        let (content, repairs) = frozen(
            r#"[{"type":"thinking","thinking":"","signature":"S"},{"type":"text","text":"kept"},
                {"type":"server_tool_use","id":"s1","name":"web_search","input":{}},
                {"type":"web_search_tool_result","tool_use_id":"s1","content":[]},
                {"type":"server_tool_use","id":"s2","name":"web_search","input":{}},
                {"type":"mcp_tool_use","id":"m1","name":"f","server_name":"crm","input":{}},
                {"type":"tool_use","id":"t1","name":"f","input":{}},
                {"type":"fallback","from":{"model":"a"},"to":{"model":"b"}},
                {"type":"thinking","thinking":"","signature":"T"},{"type":"tool_use","id":"t2","name":"f","input":{}}]"#,
        );
        let value: serde_json::Value = serde_json::from_str(&content.unwrap()).unwrap();
        let kinds: Vec<_> =
            value.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            ["text", "server_tool_use", "web_search_tool_result", "fallback", "thinking", "tool_use"]
        );
        assert_eq!(repairs, [RepairKind::BeforeFallback; 4]);
    }
}
