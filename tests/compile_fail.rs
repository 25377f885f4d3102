//! What the compiler says to the mistakes that are easy to make with a tool.

// How the compiler spells a path depends on what other crates are there.
#![cfg(not(feature = "mcp"))]

/// The words are those of one compiler; another one says the same in others.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn the_compiler_says_what_to_do() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = std::process::Command::new(rustc).arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&version.stdout);
    if !version.starts_with(COMPILER) {
        println!("skipped: {} is not {COMPILER}x", version.trim());
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
