//! Blocks by the role of the message that holds them.

use serde_json::Value;

use super::{Object, Setting, Verdict, list, media, only_fields, optional_bool, present, require_text, text};

/// Blocks that only the API makes; what it adds later is one of these, too.
const REPLY_ONLY: &[&str] = &[
    "tool_use",
    "thinking",
    "redacted_thinking",
    "server_tool_use",
    "mcp_tool_use",
    "mcp_tool_listing",
    "connector_text",
    "fallback",
    "compaction",
];

pub(super) fn in_user(block: &Object, kind: &str, path: &str, setting: &Setting<'_>) -> Verdict {
    match kind {
        "text" => user_text(block, path, setting),
        "image" => media::image(block, path, setting),
        "document" => media::document(block, path, setting),
        "search_result" => search_result(block, path, setting),
        "container_upload" => require_text(block, "file_id", path).map(drop),
        "tool_result" => tool_result(block, path, setting),
        _ if REPLY_ONLY.contains(&kind) || kind.ends_with("_tool_result") => {
            Err(format!("{path}: `{kind}` blocks can only be in `assistant` messages"))
        }
        _ => Err(unknown(kind, path)),
    }
}

pub(super) fn in_assistant(block: &Object, kind: &str, path: &str, setting: &Setting<'_>) -> Verdict {
    match kind {
        "text" => text_field(block, path),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => {
            let path = format!("{path}.{kind}");
            require_text(block, "id", &path)?;
            require_text(block, "name", &path)?;
            match block.get("input") {
                None => Err(format!("{path}.input: Field required")),
                Some(Value::Object(_)) => Ok(()),
                Some(_) => Err(format!("{path}.input: Input should be a valid dictionary")),
            }
        }
        "document" if !setting.old_version => {
            Err(format!("{path}: `document` blocks are not permitted in `assistant` messages"))
        }
        "document" => media::document(block, path, setting),
        "image" => media::image(block, path, setting),
        "tool_result" | "search_result" => {
            Err(format!("{path}: `{kind}` blocks can only be in `user` messages"))
        }
        "tool_reference" | "browser_state" => {
            Err(format!("{path}: `{kind}` blocks can only be in the content of a `tool_result`"))
        }
        "tool_addition" | "tool_removal" => {
            Err(format!("{path}: `{kind}` blocks can only be in `system` messages"))
        }
        "thinking" => {
            for name in ["thinking", "signature"] {
                if !block.get(name).is_some_and(Value::is_string) {
                    return Err(format!("{path}.thinking.{name}: Field required"));
                }
            }
            Ok(())
        }
        "redacted_thinking" => require_text(block, "data", &format!("{path}.redacted_thinking")).map(drop),
        "compaction" => compaction(path, setting),
        "mcp_tool_listing" if !setting.beta(&["mcp-client-2026-09-15"]) => Err(unknown(kind, path)),
        _ => Ok(()),
    }
}

pub(super) fn in_system(block: &Object, kind: &str, path: &str, setting: &Setting<'_>) -> Verdict {
    match kind {
        "text" => user_text(block, path, setting),
        "tool_addition" | "tool_removal" => {
            if !setting.beta(&["mid-conversation-tool-changes-", "inline-tools-"]) {
                return Err(unknown(kind, path));
            }
            let tool = block
                .get("tool")
                .and_then(Value::as_object)
                .ok_or_else(|| format!("{path}.tool: Field required"))?;
            match text(tool, "type") {
                Some("tool_definition") if kind == "tool_addition" && setting.beta(&["inline-tools-"]) => {
                    Ok(())
                }
                Some("tool_reference") => require_text(tool, "name", &format!("{path}.tool")).map(drop),
                Some("mcp_tool_reference" | "mcp_toolset_reference") => {
                    require_text(tool, "server_name", &format!("{path}.tool")).map(drop)
                }
                other => Err(unknown(other.unwrap_or_default(), &format!("{path}.tool"))),
            }
        }
        _ => Err(format!("{path}: `{kind}` blocks are not permitted in `system` messages")),
    }
}

/// A compaction block is readable only with the header that made it.
pub(super) fn compaction(path: &str, setting: &Setting<'_>) -> Verdict {
    if setting.beta(&["compact-"]) { Ok(()) } else { Err(unknown("compaction", path)) }
}

/// A text block where only text blocks may be.
pub(super) fn plain_text(block: &Value, path: &str, setting: &Setting<'_>) -> Verdict {
    let block = block.as_object().ok_or_else(|| format!("{path}: Input should be a valid dictionary"))?;
    match text(block, "type") {
        Some("text") => user_text(block, path, setting),
        Some(_) => Err(format!("{path}.type: Input should be 'text'")),
        None => Err(format!("{path}.type: Field required")),
    }
}

fn user_text(block: &Object, path: &str, setting: &Setting<'_>) -> Verdict {
    only_fields(block, &["type", "text", "cache_control", "citations"], &format!("{path}.text"))?;
    text_field(block, path)?;
    let cited = present(block, "citations").is_some_and(|citations| citations != &Value::Array(Vec::new()));
    if cited && !setting.old_version {
        return Err(format!("{path}.text.citations: citations are only permitted in `assistant` messages"));
    }
    Ok(())
}

fn text_field(block: &Object, path: &str) -> Verdict {
    match block.get("text") {
        None => Err(format!("{path}.text.text: Field required")),
        Some(Value::String(text)) if text.is_empty() => {
            Err(format!("{path}: text content blocks must be non-empty"))
        }
        Some(Value::String(text)) if text.trim().is_empty() => {
            Err(format!("{path}: text content blocks must contain non-whitespace text"))
        }
        Some(Value::String(_)) => Ok(()),
        Some(_) => Err(format!("{path}.text.text: Input should be a valid string")),
    }
}

fn search_result(block: &Object, path: &str, setting: &Setting<'_>) -> Verdict {
    let inner = format!("{path}.search_result");
    require_text(block, "source", &inner)?;
    require_text(block, "title", &inner)?;
    if !block.get("content").is_some_and(Value::is_array) {
        return Err(format!("{inner}.content: Input should be a valid list"));
    }
    let content = list(block, "content").iter().enumerate();
    content
        .into_iter()
        .try_for_each(|(index, block)| plain_text(block, &format!("{inner}.content.{index}"), setting))
}

fn tool_result(block: &Object, path: &str, setting: &Setting<'_>) -> Verdict {
    let inner = format!("{path}.tool_result");
    let known = ["type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"];
    only_fields(block, &known, &inner)?;
    require_text(block, "tool_use_id", &inner)?;
    optional_bool(block, "is_error", &format!("{inner}."))?;
    let content = match present(block, "content") {
        None | Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(content)) => content,
        Some(_) => return Err(format!("{inner}.content: Input should be a valid string or list")),
    };
    let mut kinds = Vec::with_capacity(content.len());
    for (index, value) in content.iter().enumerate() {
        let path = format!("{inner}.content.{index}");
        let part = value.as_object().ok_or_else(|| format!("{path}: Input should be a valid dictionary"))?;
        let kind = text(part, "type").ok_or_else(|| format!("{path}.type: Field required"))?;
        match kind {
            "text" => user_text(part, &path, setting)?,
            "image" => media::image(part, &path, setting)?,
            "document" => media::document(part, &path, setting)?,
            "search_result" => search_result(part, &path, setting)?,
            "tool_reference" => require_text(part, "tool_name", &path).map(drop)?,
            "browser_state" => {}
            _ => return Err(unknown(kind, &path)),
        }
        kinds.push(kind);
    }
    if block.get("is_error") == Some(&Value::Bool(true)) && kinds.iter().any(|kind| *kind != "text") {
        return Err(format!("{path}: all content must be type \"text\" if `is_error` is true"));
    }
    if kinds.contains(&"search_result") && kinds.iter().any(|kind| *kind != "search_result") {
        return Err(format!(
            "{path}: `search_result` blocks may not be mixed with other blocks in a `tool_result`"
        ));
    }
    Ok(())
}

pub(super) fn unknown(kind: &str, path: &str) -> String {
    format!("{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
}
