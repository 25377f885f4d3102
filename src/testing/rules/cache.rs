//! Marks of the prompt cache.

use serde_json::Value;

use super::{Object, Verdict, list, present};

const MOST: usize = 4;
const UNMARKABLE: &[&str] = &["thinking", "redacted_thinking", "fallback", "mcp_tool_listing"];

/// Marks in the order in which the API reads a request: tools, system, messages.
#[derive(Default)]
struct Marks {
    count: usize,
    short_seen: bool,
}

pub(super) fn check(body: &Object) -> Verdict {
    let mut marks = Marks::default();
    for (index, tool) in list(body, "tools").iter().enumerate() {
        marks.add(tool, &format!("tools.{index}"))?;
    }
    for (index, block) in list(body, "system").iter().enumerate() {
        marks.add(block, &format!("system.{index}"))?;
    }
    for (index, message) in list(body, "messages").iter().enumerate() {
        let Some(message) = message.as_object() else { continue };
        for (at, block) in list(message, "content").iter().enumerate() {
            marks.add_block(block, &format!("messages.{index}.content.{at}"))?;
        }
    }
    if let Some(mark) = present(body, "cache_control") {
        shape(mark, "cache_control")?;
        marks.count += 1;
    }
    if marks.count > MOST {
        return Err(format!(
            "A maximum of {MOST} blocks with cache_control may be provided. Found {}.",
            marks.count
        ));
    }
    Ok(())
}

impl Marks {
    /// A block and those inside it. What a call or a schema holds is data, not blocks.
    fn add_block(&mut self, block: &Value, path: &str) -> Verdict {
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        let inner = match kind {
            "tool_result" | "search_result" => block.get("content"),
            "document" => block.get("source").and_then(|source| source.get("content")),
            "tool_addition" => block.get("tool").and_then(|tool| tool.get("definition")),
            _ => None,
        };
        let path = format!("{path}.{kind}");
        if UNMARKABLE.contains(&kind) && block.get("cache_control").is_some() {
            return Err(format!("{path}.cache_control: Extra inputs are not permitted"));
        }
        match inner {
            Some(Value::Array(blocks)) => {
                for (index, block) in blocks.iter().enumerate() {
                    self.add_block(block, &format!("{path}.content.{index}"))?;
                }
            }
            Some(definition) => self.add(definition, &format!("{path}.tool.definition"))?,
            None => {}
        }
        self.add(block, &path)
    }

    fn add(&mut self, value: &Value, path: &str) -> Verdict {
        let Some(mark) = value.as_object().and_then(|object| present(object, "cache_control")) else {
            return Ok(());
        };
        let path = format!("{path}.cache_control");
        let long = shape(mark, &path)?;
        if long && self.short_seen {
            return Err(format!(
                "{path}.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block."
            ));
        }
        self.short_seen |= !long;
        self.count += 1;
        Ok(())
    }
}

/// Whether a mark is one of an hour.
fn shape(mark: &Value, path: &str) -> Result<bool, String> {
    if mark.get("type").and_then(Value::as_str) != Some("ephemeral") {
        return Err(format!("{path}.type: Input should be 'ephemeral'"));
    }
    match mark.get("ttl").filter(|ttl| !ttl.is_null()).map(Value::as_str) {
        None | Some(Some("5m")) => Ok(false),
        Some(Some("1h")) => Ok(true),
        Some(_) => Err(format!("{path}.ttl: Input should be '5m' or '1h'")),
    }
}
