//! An input that is read piece by piece ends as what `serde_json` reads.
//!
//! `cargo +nightly fuzz run partial fuzz/corpus/partial fuzz/seeds/partial`

#![no_main]

use agentloop::messages::PartialInput;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let mut whole = PartialInput::new();
    whole.push(text);
    let mut pieces = PartialInput::new();
    for c in text.chars() {
        pieces.push(c.encode_utf8(&mut [0; 4]));
        let _shown = pieces.value();
    }
    assert_eq!(pieces.value(), whole.value());
    assert_eq!(pieces.unfinished_text(), whole.unfinished_text());
    // Keys by which serde_json marks values of its own.
    if text.contains("$serde_json") {
        return;
    }
    // A number at the end is certain once something stands behind it.
    whole.push(" ");
    match serde_json::from_str::<Value>(text) {
        Ok(value) => assert_eq!(whole.value(), Some(&value)),
        Err(error) if error.is_eof() => {}
        // Half of a surrogate pair is text here and an error there.
        Err(_) if text.contains("\\u") || text.contains("\\U") => {}
        Err(_) => assert!(whole.is_broken(), "{text}"),
    }
});
