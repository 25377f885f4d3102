//! That the documentation names tests that exist, is compiled, and says what every item owes.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder with this extension.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|other| other == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// What stands between backticks, outside of fenced code.
fn code_spans(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|prose| prose.split('`').skip(1).step_by(2)).collect()
}

/// The `file::name` of the tests that a document names.
fn named_tests(text: &str) -> Vec<(&str, &str)> {
    code_spans(text)
        .into_iter()
        .filter_map(|span| span.split_once("::"))
        .filter(|(file, _)| file.ends_with(".rs"))
        .collect()
}

/// True if the file has a test of this name: a function right below a test attribute.
fn has_test(file: &str, name: &str) -> bool {
    let text = read(file);
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let head = format!("fn {name}(");
    lines.iter().enumerate().any(|(at, line)| {
        let is_head = line.starts_with(&head) || line.starts_with(&format!("async {head}"));
        let mut above = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        is_head && above.any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
    })
}

#[test]
fn the_tests_that_the_documents_name_exist() {
    let mut count = 0;
    for document in files("docs", "md") {
        let text = fs::read_to_string(&document).unwrap();
        for (file, name) in named_tests(&text) {
            assert!(root().join(file).is_file(), "{}: there is no file {file}", document.display());
            assert!(has_test(file, name), "{}: {file} has no test {name}", document.display());
            count += 1;
        }
    }
    println!("{count} names of tests");
    assert!(count > 80, "only {count} names of tests were found");
    assert!(!has_test("tests/docs.rs", "read") && !has_test("tests/docs.rs", "no_such_test"));
}

#[test]
fn every_row_of_the_contract_has_a_test() {
    let text = read("docs/spec.md");
    let mcp = (1..=14).map(|row| format!("M{row}"));
    for row in (1..=17).map(|row| format!("J{row}")).chain(mcp) {
        let head = format!("| {row}");
        let line = text
            .lines()
            .find(|line| line.strip_prefix(&head).is_some_and(|rest| rest.starts_with([' ', ','])))
            .unwrap_or_else(|| panic!("docs/spec.md has no row {row}"));
        assert!(!named_tests(line).is_empty(), "row {row} of docs/spec.md names no test");
    }
}

/// A test that says which row it proves stands in the table of rows.
#[test]
fn the_contract_names_the_tests_of_its_rows() {
    let text = read("docs/spec.md");
    let mut count = 0;
    for file in files("tests", "rs").into_iter().chain(files("src", "rs")) {
        let source = fs::read_to_string(&file).unwrap();
        for line in source.lines().map(str::trim) {
            let line = line.strip_prefix("async ").unwrap_or(line);
            let Some(name) = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next()) else {
                continue;
            };
            let number = name.strip_prefix(['j', 'm']).unwrap_or_default();
            if number.starts_with(|first: char| first.is_ascii_digit()) {
                assert!(text.contains(&format!("::{name}`")), "docs/spec.md does not name {name}");
                count += 1;
            }
        }
    }
    assert!(count > 25, "only {count} tests of rows were found");
}

#[test]
fn every_public_async_function_tells_its_cancel_safety() {
    let mut count = 0;
    for file in files("src", "rs") {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            if !line.starts_with("pub async fn") {
                continue;
            }
            let above = lines[..at].iter().rev();
            let mut docs = above.take_while(|line| line.starts_with("///") || line.starts_with("#["));
            assert!(
                docs.any(|line| *line == "/// # Cancel safety"),
                "{}:{}: no `# Cancel safety` above `{line}`",
                file.display(),
                at + 1
            );
            count += 1;
        }
    }
    println!("{count} public async functions");
    assert!(count > 5, "only {count} public async functions were found");
}

#[test]
fn every_document_is_compiled() {
    let front = read("src/lib.rs");
    let documents = files("docs", "md");
    assert!(documents.len() >= 6);
    for document in documents {
        let name = document.file_name().unwrap().to_str().unwrap();
        let include = format!(r#"include_str!("../docs/{name}")"#);
        assert!(front.contains(&include), "src/lib.rs does not include docs/{name}");
    }
    assert!(front.contains(r#"include_str!("../README.md")"#));
}

/// Each command is alone in a fenced block, right below its heading.
#[test]
fn the_readme_says_how_to_run_and_test() {
    let text = read("README.md");
    for (heading, command) in [("## Run it", "cargo run --example agent"), ("## Test it", "cargo test")] {
        let block = format!("\n{heading}\n\n```sh\n{command}\n```\n");
        assert!(text.contains(&block), "README.md lacks `{command}` below `{heading}`");
    }
}

/// What a file says is the default has to be the default.
#[test]
fn the_readme_lists_every_feature() {
    let manifest = read("Cargo.toml");
    let readme = read("README.md");
    let features = manifest.split("[features]").nth(1).unwrap().split("\n[").next().unwrap();
    let defaults = features.lines().find(|line| line.starts_with("default")).unwrap();
    let names = features.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    for name in names.filter(|name| *name != "default") {
        let default = if defaults.contains(&format!("\"{name}\"")) { "yes" } else { "no" };
        assert!(readme.contains(&format!("| `{name}` | {default} |")), "README.md: feature {name}");
    }
}
