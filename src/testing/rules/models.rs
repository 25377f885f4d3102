//! What differs from model to model.

const ALWAYS_THINKING: &[&str] = &[
    "claude-fable-5",
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "claude-mythos-preview",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
];
const NO_FORCED_CHOICE: &[&str] = &[
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
];
const NO_MANUAL_THINKING: &[&str] = &[
    "claude-fable-5",
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-opus-5",
    "claude-sonnet-5",
    "claude-opus-4-8",
    "claude-opus-4-7",
];
const NO_SYSTEM_MESSAGES: &[&str] = &[
    "claude-sonnet-5",
    "claude-opus-4-7",
    "claude-opus-4-6",
    "claude-opus-4-5",
    "claude-sonnet-4-6",
    "claude-sonnet-4-5",
    "claude-haiku-4-5",
];
const OLD: &[&str] = &["claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"];

pub(super) fn thinks_always(model: &str) -> bool {
    is_one_of(model, ALWAYS_THINKING)
}

pub(super) fn refuses_forced_choice(model: &str) -> bool {
    is_one_of(model, NO_FORCED_CHOICE)
}

pub(super) fn refuses_manual_thinking(model: &str) -> bool {
    is_one_of(model, NO_MANUAL_THINKING)
}

pub(super) fn refuses_system_messages(model: &str) -> bool {
    is_one_of(model, NO_SYSTEM_MESSAGES)
}

pub(super) fn refuses_adaptive_thinking(model: &str) -> bool {
    is_one_of(model, OLD)
}

pub(super) fn takes_prefill(model: &str) -> bool {
    is_one_of(model, OLD)
}

pub(super) fn most_output_tokens(model: &str) -> u64 {
    if is_one_of(model, OLD) { 64_000 } else { 128_000 }
}

/// An id is a name of the list, or one with a date behind it. `claude-sonnet-5-5` is no
/// `claude-sonnet-5`.
fn is_one_of(model: &str, names: &[&str]) -> bool {
    names.iter().any(|name| match model.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|date| date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit())),
        None => false,
    })
}
