//! Messages of the role `system`, in the middle of a conversation.

use serde_json::Value;

use super::request::effort;
use super::turns::{Role, Turn, is_effort_only};
use super::{Object, Setting, Verdict, list, models, only_fields, present, text};

/// The message by itself; its blocks are judged with those of the other roles.
pub(super) fn check_message(message: &Object, path: &str, body: &Object, setting: &Setting<'_>) -> Verdict {
    if models::refuses_system_messages(text(body, "model").unwrap_or_default()) {
        return Err(format!("{path}: role 'system' is not supported on this model"));
    }
    only_fields(message, &["role", "content", "clear_at", "output_config"], path)?;
    if let Some(value) = present(message, "output_config") {
        if !setting.beta(&["mid-conversation-output-config-"]) {
            return Err(format!("{path}.output_config: Extra inputs are not permitted"));
        }
        let path = format!("{path}.output_config");
        let config =
            value.as_object().ok_or_else(|| format!("{path}: Input should be a valid dictionary"))?;
        only_fields(config, &["effort"], &path)?;
        effort(config, &path)?;
    }
    let Some(clear_at) = message.get("clear_at") else { return Ok(()) };
    if !setting.beta(&["mid-conversation-system-clear-at-"]) {
        return Err(format!("{path}.clear_at: Extra inputs are not permitted"));
    }
    match clear_at.as_str() {
        Some("never") => Ok(()),
        Some("next_user_message") => {
            let blocks = list(message, "content");
            let plain = |block: &Value| {
                block.get("type").and_then(Value::as_str) == Some("text")
                    && block.get("cache_control").is_none()
            };
            if is_effort_only(message)
                || present(message, "output_config").is_some()
                || !blocks.iter().all(plain)
            {
                return Err(format!("{path}: a message with `clear_at` may hold only text"));
            }
            Ok(())
        }
        _ => Err(format!("{path}.clear_at: Input should be 'never' or 'next_user_message'")),
    }
}

/// Where system messages stand among the turns.
pub(super) fn check(turns: &[Turn<'_>]) -> Verdict {
    for (index, turn) in turns.iter().enumerate().filter(|(_, turn)| turn.role == Role::System) {
        let path = format!("messages.{}", turn.message);
        // A system message comes first only in what continues a thread, where the turn before it
        // is not seen.
        let before = index.checked_sub(1).map(|before| &turns[before]);
        if let Some(before) = before.filter(|before| before.role == Role::Assistant) {
            after_assistant(before, turn, &path)?;
        }
        if turns.get(index + 1).is_some_and(|after| after.role == Role::User) {
            return Err(format!(
                "{path}: a system message must be followed by an assistant message or end the conversation"
            ));
        }
    }
    Ok(())
}

fn after_assistant(before: &Turn<'_>, turn: &Turn<'_>, path: &str) -> Verdict {
    if before.of_kind("tool_use").next().is_some() {
        return Err(format!(
            "{path}: a system message may not stand between `tool_use` and its `tool_result`"
        ));
    }
    let paused = before.unfinished().next().is_some();
    if !paused && !before.blocks.last().is_some_and(|block| block.is_server_result()) {
        return Err(format!(
            "{path}: a system message must follow a user message or an assistant turn that ends in a server tool result"
        ));
    }
    let changes = |block: &&super::turns::Block<'_>| matches!(block.kind(), "tool_addition" | "tool_removal");
    match turn.blocks.iter().find(changes).filter(|_| paused) {
        Some(block) => Err(format!("{}: tools may not change right after a paused turn", block.path())),
        None => Ok(()),
    }
}
