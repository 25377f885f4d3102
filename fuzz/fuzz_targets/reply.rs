//! Whatever a server streams, the reply is readable at any time, and whole only if it says so.
//!
//! `cargo +nightly fuzz run reply fuzz/corpus/reply fuzz/seeds/reply`

#![no_main]

use agentloop::fuzzing::reply;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Some(message) = reply(body) else { return };
    // What was put together is a reply like any other, and may enter a conversation.
    let read = agentloop::Message::from_json(message.json()).expect("the JSON of a reply is a reply");
    assert_eq!(read.content().len(), message.content().len());
    if let Some(param) = message.to_param() {
        assert!(param.json().starts_with(r#"{"role":"assistant","content":["#));
    }
});
