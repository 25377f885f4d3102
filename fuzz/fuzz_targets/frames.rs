//! Any split of any body gives the same frames.
//!
//! `cargo +nightly fuzz run frames fuzz/corpus/frames fuzz/seeds/frames`

#![no_main]

use agentloop::testing::frames;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The first byte says how long a frame may be, the second how the rest is cut.
    let [cap, cut, body @ ..] = data else { return };
    let cap = if *cap == 0 { 1 << 20 } else { usize::from(*cap) };
    let whole = frames([body], cap);
    assert_eq!(frames(body.chunks(usize::from(*cut).max(1)), cap), whole);
    assert_eq!(frames(body.chunks(1), cap), whole);
});
