//! Tools and results of MCP servers as JSON, without a server.

mod calls;
mod definitions;
mod properties;
mod results;
mod set;
mod traces;

use agentloop::ContentBlock;
use agentloop::mcp::{Report, ToolSet};
use agentloop::testing::check_request;
use serde_json::{Value, json};

/// The list of a server with these names, and nothing else to say.
fn list(names: &[&str]) -> String {
    let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
    Value::Array(names.iter().map(tool).collect()).to_string()
}

fn set(servers: &[(&str, &[&str])]) -> (ToolSet, Report) {
    let builder = ToolSet::builder();
    servers.iter().fold(builder, |builder, (server, names)| builder.server(*server, list(names))).build()
}

fn names(set: &ToolSet) -> Vec<&str> {
    set.iter().map(|tool| tool.name()).collect()
}

fn lines(report: &Report) -> Vec<String> {
    report.iter().map(ToString::to_string).collect()
}

/// Judges a request that answers a call with this result.
fn sendable(result: &ContentBlock) -> Result<(), String> {
    let ContentBlock::ToolResult(block) = result else { panic!("not a result: {result:?}") };
    check_request(
        &json!({
            "model": "claude-opus-5-5",
            "max_tokens": 64,
            "messages": [
                {"role": "user", "content": "Go"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": block.tool_use_id, "name": "f", "input": {}}]},
                {"role": "user", "content": [result]},
            ],
        }),
        &[],
    )
}

/// Judges a request with these tools.
fn offered(tools: &[Box<serde_json::value::RawValue>]) -> Result<(), String> {
    let messages = json!([{"role": "user", "content": "Go"}]);
    check_request(
        &json!({"model": "claude-opus-5-5", "max_tokens": 64, "messages": messages, "tools": tools}),
        &[],
    )
}
