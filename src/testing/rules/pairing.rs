//! Calls and results, over turns: what the API checks after it joined messages of one role.

use std::collections::HashSet;

use serde_json::Value;

use super::request::continues_thread;
use super::turns::{Block, Role, Turn};
use super::{Object, Setting, Verdict, list, models, present, text};

pub(super) fn check(turns: &[Turn<'_>], body: &Object, setting: &Setting<'_>) -> Verdict {
    unique_ids(turns)?;
    // Server calls without a result so far; the result may come several turns later.
    let mut open: Vec<Block<'_>> = Vec::new();
    for (index, turn) in turns.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &turns[before]);
        match turn.role {
            Role::Assistant => {
                follow(&mut open, turn);
                answered(turn, turns.get(index + 1))?;
            }
            Role::User => {
                expected(turn, before, before.is_none() && continues_thread(body))?;
                results_first(turn)?;
                only_results(turn, before, &open)?;
            }
            Role::System => {}
        }
    }
    provided(&open, body)?;
    if !setting.counts {
        pending_container(turns, body)?;
    }
    ending(turns.last(), body, setting)
}

fn unique_ids(turns: &[Turn<'_>]) -> Verdict {
    let mut seen = HashSet::new();
    let blocks = turns.iter().flat_map(|turn| &turn.blocks);
    for block in blocks.filter(|block| block.kind() == "tool_use" || block.is_server_call()) {
        if !seen.insert(block.field("id")) {
            return Err(format!("{}: `tool_use` ids must be unique", block.path()));
        }
    }
    Ok(())
}

fn follow<'a>(open: &mut Vec<Block<'a>>, turn: &Turn<'a>) {
    for block in &turn.blocks {
        if block.is_server_call() {
            open.push(*block);
        } else if block.is_server_result() {
            open.retain(|call| call.field("id") != block.field("tool_use_id"));
        } else if block.kind() == "compaction" {
            // The API reads nothing before a compaction block.
            open.clear();
        }
    }
}

/// Every call has its result in the next turn. A call at the end is judged by [`ending`].
fn answered(turn: &Turn<'_>, next: Option<&Turn<'_>>) -> Verdict {
    let Some(next) = next else { return Ok(()) };
    let results: HashSet<_> = next.of_kind("tool_result").map(|result| result.field("tool_use_id")).collect();
    let mut missing = turn.of_kind("tool_use").filter(|call| !results.contains(call.field("id"))).peekable();
    let Some(first) = missing.peek().map(|call| call.message) else { return Ok(()) };
    let ids: Vec<_> = missing.map(|call| call.field("id")).collect();
    Err(format!(
        "messages.{first}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` \
         block must have a corresponding `tool_result` block in the next message.",
        ids.join(", ")
    ))
}

/// Every result answers one call of the turn before, and no other answers the same.
fn expected(turn: &Turn<'_>, before: Option<&Turn<'_>>, unseen: bool) -> Verdict {
    let calls = before.filter(|before| before.role == Role::Assistant);
    let mut seen = HashSet::new();
    for result in turn.of_kind("tool_result") {
        let id = result.field("tool_use_id");
        let path = result.path();
        let server =
            calls.is_some_and(|turn| turn.blocks.iter().any(|b| b.is_server_call() && b.field("id") == id));
        if server || id.starts_with("srvtoolu_") || id.starts_with("mcptoolu_") {
            return Err(format!("{path}: `tool_result` blocks may not answer server tool calls: {id}"));
        }
        let call = calls.and_then(|turn| turn.of_kind("tool_use").find(|call| call.field("id") == id));
        match call {
            None if unseen => {}
            None => {
                return Err(format!(
                    "{path}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must \
                     have a corresponding `tool_use` block in the previous message."
                ));
            }
            Some(call) if call.field("toolset_name") != result.field("toolset_name") => {
                return Err(format!(
                    "{path}.tool_result.toolset_name: must be that of the `tool_use` block {id}"
                ));
            }
            Some(_) => {}
        }
        if !seen.insert(id) {
            return Err(format!(
                "{path}: each `tool_use` must have a single result. Found multiple `tool_result` blocks with id: {id}"
            ));
        }
    }
    Ok(())
}

fn results_first(turn: &Turn<'_>) -> Verdict {
    let mut rest = turn.blocks.iter().skip_while(|block| block.kind() == "tool_result");
    match rest.find(|block| block.kind() == "tool_result") {
        Some(late) => Err(format!("{}: `tool_result` blocks must come before any other block", late.path())),
        None => Ok(()),
    }
}

/// While the server has a call open, or code of the server waits for one, nothing but results.
fn only_results(turn: &Turn<'_>, before: Option<&Turn<'_>>, open: &[Block<'_>]) -> Verdict {
    let Some(other) = turn.blocks.iter().find(|block| block.kind() != "tool_result") else { return Ok(()) };
    if let Some(call) = open.first() {
        let name = call.field("name");
        return Err(format!(
            "{}: `{name}` tool use with id `{}` was found without a corresponding `{}` block",
            other.path(),
            call.field("id"),
            if call.kind() == "mcp_tool_use" {
                "mcp_tool_result".into()
            } else {
                format!("{name}_tool_result")
            },
        ));
    }
    let calls = before.filter(|before| before.role == Role::Assistant);
    match calls.and_then(|turn| turn.of_kind("tool_use").find(|call| call.is_programmatic())) {
        Some(call) => Err(format!(
            "{}: only `tool_result` blocks are permitted while the programmatic call {} is pending",
            other.path(),
            call.field("id")
        )),
        None => Ok(()),
    }
}

/// An open server call can go on only while its tool is declared.
fn provided(open: &[Block<'_>], body: &Object) -> Verdict {
    if continues_thread(body) {
        return Ok(());
    }
    let tools = list(body, "tools");
    let field =
        |tool: &Value, field: &str, value: &str| tool.get(field).and_then(Value::as_str) == Some(value);
    for call in open {
        let server = call.field("server_name");
        let name = match call.field("name") {
            "bash_code_execution" | "text_editor_code_execution" => "code_execution",
            name => name,
        };
        let there = if call.kind() == "mcp_tool_use" {
            tools.iter().any(|tool| field(tool, "mcp_server_name", server))
        } else {
            tools.iter().any(|tool| field(tool, "name", name))
        };
        if !there {
            return Err(format!(
                "{}: `{}` tool use with id `{}` was found in the conversation but no `{name}` tool was provided",
                call.path(),
                call.field("name"),
                call.field("id"),
            ));
        }
    }
    Ok(())
}

/// Results for code that runs on the server need to say in which container.
fn pending_container(turns: &[Turn<'_>], body: &Object) -> Verdict {
    let [.., calls, results] = turns else { return Ok(()) };
    let pending = calls.role == Role::Assistant
        && results.role == Role::User
        && calls.of_kind("tool_use").any(|call| call.is_programmatic());
    let named = match present(body, "container") {
        Some(Value::Object(container)) => present(container, "id").is_some(),
        container => container.is_some(),
    };
    if pending && !named {
        return Err("container: container_id is required when there are pending tool uses generated by code execution \
                    with tools."
            .into());
    }
    Ok(())
}

/// A conversation ends in a user message, with the few exceptions that continue a turn.
fn ending(last: Option<&Turn<'_>>, body: &Object, setting: &Setting<'_>) -> Verdict {
    let Some(turn) = last.filter(|turn| turn.role == Role::Assistant) else { return Ok(()) };
    if setting.paused.iter().any(|content| ends_with(turn, content)) {
        return Ok(());
    }
    let refused = "This model does not support assistant message prefill. The conversation must end with a user message.";
    let compacts = present(body, "compaction").is_some();
    if turn.of_kind("tool_use").next().is_some() {
        let message = "compaction: the last turn has `tool_use` blocks without `tool_result` blocks";
        return Err(if compacts { message } else { refused }.into());
    }
    if compacts || turn.unfinished().next().is_some() {
        return Ok(());
    }
    let Some(block) = turn.blocks.last() else { return Ok(()) };
    if block.is_server_result() || (block.kind() == "compaction" && pauses_to_compact(body)) {
        return Ok(());
    }
    let continues = present(body, "fallback_credit_token").is_some()
        || models::takes_prefill(text(body, "model").unwrap_or_default());
    if !continues {
        return Err(refused.into());
    }
    if block.kind() == "text" && block.text().ends_with(char::is_whitespace) {
        return Err("messages: final assistant content cannot end with trailing whitespace".into());
    }
    Ok(())
}

fn pauses_to_compact(body: &Object) -> bool {
    let edits = present(body, "context_management").and_then(|management| management.get("edits"));
    let mut edits = edits.and_then(Value::as_array).into_iter().flatten();
    edits.any(|edit| edit.get("type").and_then(Value::as_str) == Some("compact_20260112"))
}

/// Whether a turn ends in what was paused. A client may leave out what the API would refuse and
/// add marks of its own, so only the rest is compared.
fn ends_with(turn: &Turn<'_>, paused: &[Value]) -> bool {
    let plain = |block: &Value| {
        let mut block = block.clone();
        if let Some(object) = block.as_object_mut() {
            object.shift_remove("cache_control");
            if object.get("input").is_some_and(|input| !input.is_object()) {
                object.insert("input".into(), Value::Object(Object::new()));
            }
        }
        block
    };
    let blank = |block: &&Value| {
        let text = block.get("text").and_then(Value::as_str);
        block.get("type").and_then(Value::as_str) == Some("text")
            && text.is_some_and(|text| text.trim().is_empty())
    };
    let paused: Vec<_> = paused.iter().filter(|block| !blank(block)).map(plain).collect();
    let sent: Vec<_> = turn.blocks.iter().map(|block| plain(block.value)).collect();
    !paused.is_empty() && sent.ends_with(&paused)
}
