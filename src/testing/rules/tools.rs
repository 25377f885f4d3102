//! Tool definitions and the choice among them.

use std::collections::HashSet;

use serde_json::Value;

use super::request::continues_thread;
use super::{
    Object, Setting, Verdict, blocks, list, models, optional_bool, present, require_text, schema, text,
};

const CUSTOM_FIELDS: &[&str] = &[
    "type",
    "name",
    "description",
    "input_schema",
    "strict",
    "input_examples",
    "defer_loading",
    "allowed_callers",
    "eager_input_streaming",
    "cache_control",
];
const CALLERS: &[&str] =
    &["direct", "code_execution_20250825", "code_execution_20260120", "code_execution_20260521"];
/// Tools that the API defines: how their types begin, and the name that each must have.
const DEFINED: &[(&str, Option<&str>)] = &[
    ("web_search_", Some("web_search")),
    ("web_fetch_", Some("web_fetch")),
    ("code_execution_", Some("code_execution")),
    ("tool_search_tool_regex", Some("tool_search_tool_regex")),
    ("tool_search_tool_bm25", Some("tool_search_tool_bm25")),
    ("advisor_", Some("advisor")),
    ("mcp_toolset", None),
    ("bash_", Some("bash")),
    ("text_editor_20250124", Some("str_replace_editor")),
    ("text_editor_", Some("str_replace_based_edit_tool")),
    ("memory_", Some("memory")),
    ("computer_toolset_", None),
    ("browser_toolset_", None),
    ("computer_", Some("computer")),
];
/// Types that exist only with a beta header.
const BETA_TYPES: &[(&str, &[&str])] = &[("advisor_", &["advisor-tool-"]), ("mcp_toolset", &["mcp-client-"])];
const MOST_STRICT: usize = 20;

pub(super) fn check(body: &Object, setting: &Setting<'_>) -> Verdict {
    let tools = match present(body, "tools") {
        None => &[],
        Some(value) => value.as_array().ok_or("tools: Input should be a valid list")?.as_slice(),
    };
    let mut load = schema::Load::default();
    let mut names = HashSet::new();
    for (index, value) in tools.iter().enumerate() {
        let path = format!("tools.{index}");
        let tool = value.as_object().ok_or_else(|| format!("{path}: Input should be a valid dictionary"))?;
        match text(tool, "type") {
            None | Some("custom") => custom(tool, &format!("{path}.custom"), setting, &mut load)?,
            Some(kind) => defined(tool, kind, &path, setting)?,
        }
        any_tool(tool, &path)?;
        if text(tool, "name").is_some_and(|name| !names.insert(name)) {
            return Err("tools: Tool names must be unique.".into());
        }
    }
    toolset_names(tools, &names)?;
    if tools.iter().filter(|tool| tool.get("strict") == Some(&Value::Bool(true))).count() > MOST_STRICT {
        return Err(format!("tools: at most {MOST_STRICT} strict tools are supported"));
    }
    if !tools.is_empty() && tools.iter().all(is_deferred) {
        return Err("tools: At least one tool must have defer_loading=false".into());
    }
    mcp_servers(body)?;
    choice(body, tools, &names)
}

fn custom(tool: &Object, path: &str, setting: &Setting<'_>, load: &mut schema::Load) -> Verdict {
    let unknown =
        |name: &&String| !CUSTOM_FIELDS.contains(&name.as_str()) && !setting.allows(&format!("tools.{name}"));
    if let Some(name) = tool.keys().find(unknown) {
        return Err(format!("{path}.{name}: Extra inputs are not permitted"));
    }
    let name = require_text(tool, "name", path)?;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.len() > 128 || !name.bytes().all(legal) {
        return Err(format!("{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"));
    }
    if present(tool, "description").is_some_and(|text| !text.is_string()) {
        return Err(format!("{path}.description: Input should be a valid string"));
    }
    optional_bool(tool, "strict", &format!("{path}."))?;
    optional_bool(tool, "eager_input_streaming", &format!("{path}."))?;
    let input = tool.get("input_schema").ok_or_else(|| format!("{path}.input_schema: Field required"))?;
    let schema_path = format!("{path}.input_schema");
    let object =
        input.as_object().ok_or_else(|| format!("{schema_path}: Input should be a valid dictionary"))?;
    match object.get("type") {
        None => return Err(format!("{schema_path}.type: Field required")),
        Some(kind) if kind != "object" => {
            return Err(format!("{schema_path}.type: Input should be 'object'"));
        }
        Some(_) => {}
    }
    if ["oneOf", "allOf", "anyOf"].iter().any(|name| object.contains_key(*name)) {
        return Err(format!(
            "{schema_path}: input_schema does not support oneOf, allOf, or anyOf at the top level"
        ));
    }
    if let Some(examples) = present(tool, "input_examples")
        && !examples.as_array().is_some_and(|examples| examples.iter().all(Value::is_object))
    {
        return Err(format!("{path}.input_examples: Input should be a valid list of dictionaries"));
    }
    if tool.get("strict") == Some(&Value::Bool(true)) {
        if is_programmatic(tool) {
            return Err(format!("{path}: strict tools are not supported with programmatic tool calling"));
        }
        schema::strict(input, &schema_path, load)?;
    }
    Ok(())
}

fn defined(tool: &Object, kind: &str, path: &str, setting: &Setting<'_>) -> Verdict {
    let beta = BETA_TYPES.iter().find(|(prefix, _)| kind.starts_with(prefix));
    let refused = beta.is_some_and(|(_, betas)| !setting.beta(betas));
    let Some((_, name)) = DEFINED.iter().find(|(prefix, _)| kind.starts_with(prefix)).filter(|_| !refused)
    else {
        return Err(blocks::unknown(kind, path));
    };
    let path = format!("{path}.{kind}");
    match name {
        Some(name) if text(tool, "name") != Some(name) => {
            return Err(format!("{path}.name: Input should be '{name}'"));
        }
        Some(_) => {}
        None => {
            let entry = kind != "mcp_toolset" && tool.contains_key("defer_loading");
            let refused =
                ["name", "strict", "input_examples"].into_iter().find(|name| tool.contains_key(*name));
            if let Some(name) = refused.or_else(|| entry.then_some("defer_loading")) {
                return Err(format!("{path}.{name}: Extra inputs are not permitted"));
            }
        }
    }
    if tool.contains_key("input_schema") {
        return Err(format!("{path}.input_schema: Extra inputs are not permitted"));
    }
    if present(tool, "allowed_domains").is_some() && present(tool, "blocked_domains").is_some() {
        return Err(format!("{path}: only one of `allowed_domains` and `blocked_domains` may be set"));
    }
    if kind.starts_with("tool_search_tool_") && is_true(tool, "defer_loading") {
        return Err(format!("{path}.defer_loading: the tool search tool must not be deferred"));
    }
    Ok(())
}

/// What holds for every kind of tool.
fn any_tool(tool: &Object, path: &str) -> Verdict {
    optional_bool(tool, "defer_loading", &format!("{path}."))?;
    if is_true(tool, "defer_loading") && present(tool, "cache_control").is_some() {
        return Err(format!("{path}: Tools with defer_loading=true cannot have cache_control set"));
    }
    let Some(callers) = present(tool, "allowed_callers") else { return Ok(()) };
    let callers =
        callers.as_array().ok_or_else(|| format!("{path}.allowed_callers: Input should be a valid list"))?;
    match callers.iter().find(|caller| !caller.as_str().is_some_and(|caller| CALLERS.contains(&caller))) {
        Some(caller) => Err(format!("{path}.allowed_callers: {caller} is not a known caller")),
        None => Ok(()),
    }
}

fn toolset_names(tools: &[Value], names: &HashSet<&str>) -> Verdict {
    for (kind, name) in [("computer_toolset_", "computer"), ("browser_toolset_", "browser")] {
        let is = |tool: &Value| {
            tool.get("type").and_then(Value::as_str).is_some_and(|text| text.starts_with(kind))
        };
        if names.contains(name) && tools.iter().any(is) {
            return Err(format!(
                "tools: no other tool may be called `{name}` together with a {name} toolset"
            ));
        }
    }
    Ok(())
}

/// Every server has exactly one toolset, and every toolset a server.
fn mcp_servers(body: &Object) -> Verdict {
    let field =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let sets = list(body, "tools").iter().filter(|tool| field(tool, "type") == "mcp_toolset");
    let sets: Vec<_> = sets.map(|tool| field(tool, "mcp_server_name")).collect();
    let servers: Vec<_> = list(body, "mcp_servers").iter().map(|server| field(server, "name")).collect();
    for name in &servers {
        match sets.iter().filter(|set| *set == name).count() {
            0 if inlines(body, "mcp_toolset_reference", "server_name", name) => {}
            1 => {}
            _ => {
                return Err(format!(
                    "mcp_servers: server '{name}' must be referenced by exactly one mcp_toolset"
                ));
            }
        }
    }
    match sets.iter().find(|set| !servers.contains(set)) {
        Some(set) if !continues_thread(body) => {
            Err(format!("tools: mcp_toolset names the unknown server '{set}'"))
        }
        _ => Ok(()),
    }
}

fn choice(body: &Object, tools: &[Value], names: &HashSet<&str>) -> Verdict {
    let Some(value) = present(body, "tool_choice") else { return Ok(()) };
    let choice = value.as_object().ok_or("tool_choice: Input should be a valid dictionary")?;
    let kind = text(choice, "type").ok_or("tool_choice.type: Field required")?;
    if !matches!(kind, "auto" | "any" | "tool" | "none") {
        return Err(blocks::unknown(kind, "tool_choice"));
    }
    let fields: &[_] = match kind {
        "none" => &["type"],
        "tool" => &["type", "name", "disable_parallel_tool_use"],
        _ => &["type", "disable_parallel_tool_use"],
    };
    super::only_fields(choice, fields, &format!("tool_choice.{kind}"))?;
    optional_bool(choice, "disable_parallel_tool_use", &format!("tool_choice.{kind}."))?;
    if tools.is_empty() && !continues_thread(body) {
        return Err("tool_choice: tool_choice may only be specified while providing tools".into());
    }
    let model = text(body, "model").unwrap_or_default();
    if matches!(kind, "any" | "tool") && models::refuses_forced_choice(model) {
        return Err(format!("tool_choice.type: '{kind}' is not supported for {model}"));
    }
    let programmatic = |tool: &&Value| tool.as_object().is_some_and(is_programmatic);
    if is_true(choice, "disable_parallel_tool_use") && tools.iter().any(|tool| programmatic(&tool)) {
        return Err(
            "tool_choice.disable_parallel_tool_use: not supported with programmatic tool calling".into()
        );
    }
    if kind != "tool" {
        return Ok(());
    }
    let name = require_text(choice, "name", "tool_choice.tool")?;
    let inline = || inlines(body, "tool_definition", "name", name);
    if !names.contains(name) && !inline() && !continues_thread(body) {
        return Err(format!("tool_choice.name: Tool '{name}' not found in provided tools"));
    }
    let chosen = tools.iter().filter(|tool| tool.get("name").and_then(Value::as_str) == Some(name));
    if chosen.into_iter().any(|tool| programmatic(&tool)) {
        return Err(format!("tool_choice.name: '{name}' can be called by code and cannot be forced"));
    }
    Ok(())
}

/// Whether a system message adds such a tool.
fn inlines(body: &Object, kind: &str, field: &str, value: &str) -> bool {
    let contents = list(body, "messages").iter().filter_map(|message| message.get("content")?.as_array());
    contents.flatten().filter_map(|block| block.get("tool")).any(|tool| {
        let inner = tool.get("definition").unwrap_or(tool);
        tool.get("type").and_then(Value::as_str) == Some(kind)
            && inner.get(field).and_then(Value::as_str) == Some(value)
    })
}

fn is_deferred(tool: &Value) -> bool {
    let config = tool.get("default_config").and_then(Value::as_object);
    tool.as_object().is_some_and(|tool| is_true(tool, "defer_loading"))
        || config.is_some_and(|config| is_true(config, "defer_loading"))
}

fn is_programmatic(tool: &Object) -> bool {
    list(tool, "allowed_callers").iter().any(|caller| caller != "direct")
}

fn is_true(object: &Object, name: &str) -> bool {
    object.get(name) == Some(&Value::Bool(true))
}
