//! The fields at the top level of a request.

use serde_json::Value;

use super::{Object, Setting, Verdict, blocks, models, only_fields, optional_bool, present, schema, text};

const FIELDS: &[&str] = &[
    "model",
    "max_tokens",
    "messages",
    "system",
    "stop_sequences",
    "stream",
    "thinking",
    "tools",
    "tool_choice",
    "metadata",
    "output_config",
    "cache_control",
    "container",
    "service_tier",
    "speed",
    "inference_geo",
    "diagnostics",
];
/// Fields of a reply that does not come where tokens are counted.
const REPLY_FIELDS: &[&str] = &[
    "max_tokens",
    "stop_sequences",
    "stream",
    "metadata",
    "container",
    "service_tier",
    "inference_geo",
    "diagnostics",
    "fallbacks",
    "fallback_credit_token",
    "thread",
    "billing_policy",
];
const SAMPLING: &[&str] = &["temperature", "top_p", "top_k"];
/// Fields that exist only with a beta header, by the beginnings of its values.
const BETA_FIELDS: &[(&str, &[&str])] = &[
    ("context_management", &["compact-2026-01-12", "context-management-"]),
    ("compaction", &["compact-2026-09-04"]),
    ("mcp_servers", &["mcp-client-"]),
    ("fallbacks", &["server-side-fallback-"]),
    ("fallback_credit_token", &["fallback-credit-"]),
    ("thread", &["message-threads-"]),
    ("billing_policy", &["user-profiles-billing-"]),
];

/// The end of what the API says of input that it does not count.
pub(super) const NOT_COUNTED: &str = "are not supported in the token counting endpoint";

pub(super) fn check(body: &Object, setting: &Setting<'_>) -> Verdict {
    unknown_fields(body, setting)?;
    let model = model(body)?;
    if !setting.counts {
        max_tokens(body, model)?;
    }
    simple_fields(body)?;
    system(body, setting)?;
    thinking(body, model, setting)?;
    output_config(body, setting)?;
    container(body)?;
    compaction(body)
}

/// Whether `messages` are only what a thread does not have yet.
pub(super) fn continues_thread(body: &Object) -> bool {
    let thread = present(body, "thread").and_then(|thread| thread.get("type"));
    thread.and_then(Value::as_str) == Some("continue")
}

fn unknown_fields(body: &Object, setting: &Setting<'_>) -> Verdict {
    for name in body.keys().map(String::as_str) {
        let beta = BETA_FIELDS.iter().find(|(field, _)| *field == name);
        let known = FIELDS.contains(&name)
            || (setting.old_version && SAMPLING.contains(&name))
            || beta.is_some_and(|(_, betas)| setting.beta(betas));
        let known = known && !(setting.counts && REPLY_FIELDS.contains(&name));
        if !known && !setting.allows(name) {
            return Err(format!("{name}: Extra inputs are not permitted"));
        }
    }
    if setting.counts && present(body, "mcp_servers").is_some() {
        return Err(format!("mcp_servers: MCP servers {NOT_COUNTED}"));
    }
    Ok(())
}

fn model(body: &Object) -> Result<&str, String> {
    match body.get("model") {
        None => Err("model: Field required".into()),
        Some(Value::String(model)) if model.trim().is_empty() => {
            Err("model: String should have at least 1 character".into())
        }
        Some(Value::String(model)) => Ok(model),
        Some(_) => Err("model: Input should be a valid string".into()),
    }
}

fn max_tokens(body: &Object, model: &str) -> Verdict {
    let tokens = match body.get("max_tokens") {
        None => return Err("max_tokens: Field required".into()),
        Some(value) => value.as_u64().ok_or("max_tokens: Input should be a valid non-negative integer")?,
    };
    let most = models::most_output_tokens(model);
    if tokens > most {
        return Err(format!(
            "max_tokens: {tokens} > {most}, which is the maximum allowed number of output tokens for {model}"
        ));
    }
    if tokens == 0 {
        let inner = |field: &str, name: &str| present(body, field).and_then(|value| value.get(name)).cloned();
        let clash = if body.get("stream") == Some(&Value::Bool(true)) {
            Some("stream")
        } else if inner("thinking", "type").is_some_and(|kind| kind == "enabled") {
            Some("thinking")
        } else if inner("output_config", "format").is_some_and(|format| !format.is_null()) {
            Some("output_config.format")
        } else if inner("tool_choice", "type").is_some_and(|kind| kind == "any" || kind == "tool") {
            Some("tool_choice")
        } else {
            None
        };
        if let Some(field) = clash {
            return Err(format!("max_tokens: 0 is not supported together with `{field}`"));
        }
    }
    Ok(())
}

fn simple_fields(body: &Object) -> Verdict {
    optional_bool(body, "stream", "")?;
    for name in ["service_tier", "speed", "inference_geo"] {
        if present(body, name).is_some_and(|value| !value.is_string()) {
            return Err(format!("{name}: Input should be a valid string"));
        }
    }
    if let Some(value) = present(body, "stop_sequences") {
        let sequences = value.as_array().ok_or("stop_sequences: Input should be a valid list")?;
        for (index, sequence) in sequences.iter().enumerate() {
            let sequence = sequence
                .as_str()
                .ok_or_else(|| format!("stop_sequences.{index}: Input should be a valid string"))?;
            if sequence.trim().is_empty() {
                return Err("stop_sequences: each stop sequence must contain non-whitespace".into());
            }
        }
    }
    if let Some(value) = present(body, "metadata") {
        let metadata = value.as_object().ok_or("metadata: Input should be a valid dictionary")?;
        only_fields(metadata, &["user_id"], "metadata")?;
        if present(metadata, "user_id").is_some_and(|id| !id.is_string()) {
            return Err("metadata.user_id: Input should be a valid string".into());
        }
    }
    if let Some(value) = present(body, "diagnostics") {
        let diagnostics = value.as_object().ok_or("diagnostics: Input should be a valid dictionary")?;
        only_fields(diagnostics, &["previous_message_id"], "diagnostics")?;
    }
    Ok(())
}

fn system(body: &Object, setting: &Setting<'_>) -> Verdict {
    match present(body, "system") {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Array(list)) => list
            .iter()
            .enumerate()
            .try_for_each(|(index, block)| blocks::plain_text(block, &format!("system.{index}"), setting)),
        Some(_) => Err("system: Input should be a valid string or list".into()),
    }
}

fn thinking(body: &Object, model: &str, setting: &Setting<'_>) -> Verdict {
    let Some(value) = present(body, "thinking") else { return Ok(()) };
    let thinking = value.as_object().ok_or("thinking: Input should be a valid dictionary")?;
    let kind = text(thinking, "type").ok_or("thinking.type: Field required")?;
    let path = format!("thinking.{kind}");
    match kind {
        "adaptive" if models::refuses_adaptive_thinking(model) => {
            return Err("adaptive thinking is not supported on this model".into());
        }
        "adaptive" => only_fields(thinking, &["type", "display", "block_binding"], &path)?,
        "enabled" if models::refuses_manual_thinking(model) => {
            return Err(
                "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\"."
                    .into(),
            );
        }
        "enabled" => {
            only_fields(thinking, &["type", "budget_tokens", "display", "block_binding"], &path)?;
            budget(thinking, body, setting)?;
        }
        "disabled" if models::thinks_always(model) => {
            return Err("\"thinking.type.disabled\" is not supported for this model.".into());
        }
        "disabled" | "between_tools" => only_fields(thinking, &["type"], &path)?,
        _ => {
            return Err(format!(
                "thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            ));
        }
    }
    if present(thinking, "block_binding").is_some() && !setting.beta(&["thinking-binding-controls-"]) {
        return Err(format!("{path}.block_binding: Extra inputs are not permitted"));
    }
    match present(thinking, "display").map(Value::as_str) {
        None | Some(Some("summarized" | "omitted")) => Ok(()),
        Some(Some("updates")) if setting.beta(&["thinking-display-updates-"]) => Ok(()),
        Some(_) => Err(format!("{path}.display: Input should be 'summarized' or 'omitted'")),
    }
}

fn budget(thinking: &Object, body: &Object, setting: &Setting<'_>) -> Verdict {
    let budget = thinking.get("budget_tokens").and_then(Value::as_u64);
    let budget = budget.ok_or("thinking.enabled.budget_tokens: Field required")?;
    if budget < 1024 {
        return Err("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024".into());
    }
    let most = body.get("max_tokens").and_then(Value::as_u64).unwrap_or_default();
    if budget >= most && !setting.counts && !setting.beta(&["interleaved-thinking-"]) {
        return Err("`max_tokens` must be greater than `thinking.budget_tokens`".into());
    }
    Ok(())
}

fn output_config(body: &Object, setting: &Setting<'_>) -> Verdict {
    let Some(value) = present(body, "output_config") else { return Ok(()) };
    let config = value.as_object().ok_or("output_config: Input should be a valid dictionary")?;
    only_fields(config, &["effort", "format", "task_budget"], "output_config")?;
    if present(config, "task_budget").is_some() && !setting.beta(&["task-budgets-"]) {
        return Err("output_config.task_budget: Extra inputs are not permitted".into());
    }
    effort(config, "output_config")?;
    let Some(format) = present(config, "format") else { return Ok(()) };
    if format.get("type").and_then(Value::as_str) != Some("json_schema") {
        return Err("output_config.format.type: Input should be 'json_schema'".into());
    }
    let schema = format.get("schema").ok_or("output_config.format.schema: Field required")?;
    schema::strict(schema, "output_config.format.schema", &mut schema::Load::default())
}

pub(super) fn effort(config: &Object, path: &str) -> Verdict {
    match present(config, "effort").map(Value::as_str) {
        None | Some(Some("low" | "medium" | "high" | "xhigh" | "max")) => Ok(()),
        Some(_) => Err(format!("{path}.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")),
    }
}

fn container(body: &Object) -> Verdict {
    match present(body, "container") {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Object(container)) => only_fields(container, &["id", "skills"], "container"),
        Some(_) => Err("container: Input should be a valid string or dictionary".into()),
    }
}

/// What may not go together with a request to compact.
fn compaction(body: &Object) -> Verdict {
    if present(body, "compaction").is_none() {
        return Ok(());
    }
    let format = present(body, "output_config").and_then(|config| config.get("format"));
    let choice = present(body, "tool_choice").and_then(|choice| choice.get("type")).and_then(Value::as_str);
    let clash = if present(body, "context_management").is_some() {
        "context_management"
    } else if present(body, "stop_sequences").is_some() {
        "stop_sequences"
    } else if format.is_some_and(|format| !format.is_null()) {
        "output_config.format"
    } else if matches!(choice, Some("any" | "tool")) {
        "tool_choice"
    } else {
        return Ok(());
    };
    Err(format!("compaction: not supported together with `{clash}`"))
}
