//! A stored conversation keeps its bytes, and nothing that is done to it breaks it.
//!
//! `cargo +nightly fuzz run conversation fuzz/corpus/conversation fuzz/seeds/conversation`

#![no_main]

use agentloop::{Conversation, MessageParam};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use serde_json::value::RawValue;

/// Reading back gives the same bytes and the same verdict.
fn assert_stored(conversation: &Conversation) {
    let json = conversation.to_json();
    assert_eq!(serde_json::to_string(conversation).expect("JSON"), json);
    let read = Conversation::from_json(&json).expect("what was written can be read");
    assert_eq!(read.to_json(), json);
    assert_eq!(&read, conversation);
    assert_eq!(verdict(&read), verdict(conversation));
    assert_eq!(open_ids(&read), open_ids(conversation));
}

fn verdict(conversation: &Conversation) -> Option<String> {
    conversation.check().err().map(|error| error.chain().to_string())
}

fn open_ids(conversation: &Conversation) -> Vec<Box<str>> {
    conversation.open_calls().into_iter().map(|call| call.id).collect()
}

/// The array without its end, to which messages are added.
fn inside(json: &str) -> &str {
    json.strip_suffix(']').expect("an array")
}

/// A user message is taken behind what was there, or nothing changes.
fn assert_pushed(mut conversation: Conversation, message: &MessageParam) {
    let (before, was_fine) = (conversation.to_json(), conversation.check().is_ok());
    match conversation.push(message.clone()) {
        Ok(()) => {
            assert!(conversation.to_json().starts_with(inside(&before)));
            assert_eq!(conversation.last().expect("a message").json(), message.json());
            assert!(!was_fine || message.json().contains("cache_control") || conversation.check().is_ok());
        }
        Err(_) => assert_eq!(conversation.to_json(), before),
    }
    assert_stored(&conversation);
}

/// True if a result names the call, or nobody can tell.
fn may_have_result(conversation: &Conversation, id: &str) -> bool {
    conversation.iter().any(|message| {
        // A number that `Value` can't hold, half of a surrogate pair, or a key of serde_json's own.
        let Ok(value) = serde_json::from_str::<Value>(message.json()) else { return true };
        let blocks = value["content"].as_array();
        message.json().contains("$serde_json")
            || blocks.is_some_and(|blocks| blocks.iter().any(|block| block["tool_use_id"] == id))
    })
}

/// Only results are added, and only where a call was open.
fn assert_closed(mut conversation: Conversation) {
    let before = conversation.clone();
    conversation.close_open_calls("lost");
    assert!(!before.open_calls().is_empty() || conversation == before);
    // None is invented beside a real one that stands in the wrong place.
    for id in open_ids(&conversation) {
        assert!(may_have_result(&before, &id), "{id} is still open");
    }
    let mut old = before.iter().peekable();
    for message in conversation.iter() {
        match old.next_if(|old| old.json() == message.json()) {
            Some(_) => {}
            None => {
                assert!(message.json().starts_with(r#"{"role":"user","content":[{"type":"tool_result","#))
            }
        }
    }
    assert!(old.next().is_none(), "a message is gone");
    assert_stored(&conversation);
}

/// A cut leaves the messages before it, or everything.
fn assert_cut(conversation: &Conversation) {
    let jsons = |conversation: &Conversation| -> Vec<String> {
        conversation.iter().map(|message| message.json().to_owned()).collect()
    };
    let all = jsons(conversation);
    // Each cut costs as much as the whole conversation.
    for len in 0..all.len().min(8) {
        let mut cut = conversation.clone();
        match cut.truncate(len) {
            Ok(()) => assert_eq!(jsons(&cut), all[..len]),
            Err(_) => assert_eq!(jsons(&cut), all),
        }
        assert_stored(&cut);
    }
    let mut rest = conversation.clone();
    let turn = rest.pop_turn();
    assert_stored(&rest);
    let mut parts = jsons(&rest);
    parts.extend(turn.iter().map(|message| message.json().to_owned()));
    assert_eq!(parts, all);
}

/// A message by itself keeps its text too, on each way of reading it.
fn assert_message(json: &str) -> MessageParam {
    let message = MessageParam::from_json(json).expect("a message of a conversation");
    assert_eq!(message.json(), json);
    assert_eq!(serde_json::to_string(&message).expect("JSON"), json);
    let read: MessageParam = serde_json::from_str(json).expect("a message of a conversation");
    assert_eq!(read.json(), json);
    // Views may say anything of what is no block, but they are there.
    let _content = message.content();
    message
}

fuzz_target!(|text: &str| {
    let read = Conversation::from_json(text);
    let by_serde = serde_json::from_str::<Conversation>(text);
    assert_eq!(read.as_ref().ok(), by_serde.as_ref().ok());
    // A line of storage is often bytes.
    assert_eq!(read.as_ref().ok(), serde_json::from_slice(text.as_bytes()).as_ref().ok());
    if let Ok(message) = MessageParam::from_json(text) {
        assert_message(message.json());
        assert_pushed(Conversation::new(), &message);
    }
    let Ok(conversation) = read else { return };

    // White space between messages is not kept, inside a message it is.
    let raw: Vec<&RawValue> = serde_json::from_str(text).expect("an array");
    let raw: Vec<_> = raw.into_iter().map(RawValue::get).collect();
    assert_eq!(conversation.to_json(), format!("[{}]", raw.join(",")));
    assert_stored(&conversation);

    assert_pushed(conversation.clone(), &MessageParam::user("next").expect("text"));
    assert_closed(conversation.clone());
    assert_cut(&conversation);

    // The same messages, one after another as far as they are taken.
    let mut grown = Conversation::new();
    for message in raw.into_iter().map(assert_message) {
        let before = grown.to_json();
        match grown.push(message) {
            Ok(()) => assert!(grown.to_json().starts_with(inside(&before))),
            Err(_) => assert_eq!(grown.to_json(), before),
        }
    }
    assert_stored(&grown);
});
