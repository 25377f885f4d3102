//! Whatever a server streams is an error or a reply, and the same however it is cut.
//!
//! `cargo +nightly fuzz run reply fuzz/corpus/reply fuzz/seeds/reply`

#![no_main]

use agentloop::Message;
use agentloop::testing::read_stream;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let whole = read_stream([body]);
    match (&whole, read_stream(body.chunks(7))) {
        (Ok(whole), Ok(cut)) => assert_eq!(whole.json(), cut.json()),
        (Err(whole), Err(cut)) => assert_eq!(whole.chain(), cut.chain()),
        (whole, cut) => panic!("{whole:?} whole, {cut:?} in pieces"),
    }
    let Ok(message) = whole else { return };
    // What was put together is a reply like any other, and may enter a conversation.
    let read = Message::from_json(message.json()).expect("the JSON of a reply is a reply");
    assert_eq!(read.content_json(), message.content_json());
    assert_eq!(read.usage(), message.usage());
    if let Some(param) = message.to_param() {
        assert!(param.json().starts_with(r#"{"role":"assistant","content":["#));
    }
});
