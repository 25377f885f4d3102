//! Messages one by one: role, content, and the first of them.

use serde_json::Value;

use super::request::continues_thread;
use super::turns::is_effort_only;
use super::{Object, Setting, Verdict, blocks, only_fields, system, text};

const MOST: usize = 100_000;

pub(super) fn check(body: &Object, setting: &Setting<'_>) -> Verdict {
    let messages = match body.get("messages") {
        None => return Err("messages: Field required".into()),
        Some(value) => value.as_array().ok_or("messages: Input should be a valid list")?,
    };
    if messages.len() > MOST {
        return Err(format!("messages: List should have at most {MOST} items"));
    }
    if messages.is_empty() && !continues_thread(body) {
        return Err("messages: at least one message is required".into());
    }
    let mut first = true;
    for (index, value) in messages.iter().enumerate() {
        let path = format!("messages.{index}");
        let message =
            value.as_object().ok_or_else(|| format!("{path}: Input should be a valid dictionary"))?;
        let role = match message.get("role") {
            None => return Err(format!("{path}.role: Field required")),
            Some(role) => role.as_str().unwrap_or_default(),
        };
        if !matches!(role, "user" | "assistant" | "system") {
            return Err(format!("{path}.role: Input should be 'user', 'assistant' or 'system'"));
        }
        if role == "system" {
            system::check_message(message, &path, body, setting)?;
            if is_effort_only(message) {
                continue;
            }
        } else {
            only_fields(message, &["role", "content"], &path)?;
        }
        if first && !continues_thread(body) && role != "user" && first_block(message) != Some("compaction") {
            return Err("messages: first message must use the \"user\" role".into());
        }
        content(message, role, &path, first, setting)?;
        first = false;
    }
    Ok(())
}

fn first_block(message: &Object) -> Option<&str> {
    message.get("content")?.get(0)?.get("type")?.as_str()
}

fn content(message: &Object, role: &str, path: &str, first: bool, setting: &Setting<'_>) -> Verdict {
    match message.get("content") {
        None => Err(format!("{path}.content: Field required")),
        Some(Value::String(text)) if text.is_empty() => Err(empty(role, path)),
        Some(Value::String(text)) if text.trim().is_empty() => {
            Err(format!("{path}: text content blocks must contain non-whitespace text"))
        }
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(list)) if list.is_empty() => Err(empty(role, path)),
        Some(Value::Array(list)) => list.iter().enumerate().try_for_each(|(index, block)| {
            let path = format!("{path}.content.{index}");
            let object =
                block.as_object().ok_or_else(|| format!("{path}: Input should be a valid dictionary"))?;
            let kind = text(object, "type").ok_or_else(|| format!("{path}.type: Field required"))?;
            match role {
                "assistant" => blocks::in_assistant(object, kind, &path, setting),
                "system" => blocks::in_system(object, kind, &path, setting),
                _ if kind == "compaction" && first && index == 0 => blocks::compaction(&path, setting),
                _ => blocks::in_user(object, kind, &path, setting),
            }
        }),
        Some(_) => Err(format!("{path}.content: Input should be a valid string or list")),
    }
}

fn empty(role: &str, path: &str) -> String {
    format!("{path}: {role} messages must have non-empty content")
}
