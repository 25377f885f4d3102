//! What building a set tells `tracing`.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use agentloop::mcp::{Prefix, ToolSet};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the level and the fields of every event.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() != "message" {
            self.0.push_str(&format!(" {value:?}"));
        }
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("agentloop::mcp")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn m01_each_change_is_told_with_names_and_reasons_and_without_content() {
    let events = Events::default();
    // While there is but one dispatcher, other tests' threads decide for it.
    let _other = tracing::Dispatch::new(events.clone());
    let _guard = tracing::subscriber::set_default(events.clone());
    let tools = json!([
        {"name": "a.b", "description": "secret\u{200b}", "inputSchema": {"type": "object"}},
        {"name": "bad", "inputSchema": {"type": "object", "properties": {"secret": {"type": "secret"}}}},
        {"name": "unwanted", "inputSchema": {"type": "object"}},
    ]);
    let builder = ToolSet::builder().server("s\n", tools.to_string()).prefix(Prefix::Always);
    builder.filter(|tool| tool.name() != "unwanted").build();
    let mut told = events.0.lock().unwrap().clone();
    told.sort();
    assert_eq!(
        told,
        [
            r#"DEBUG "s\\n" "a.b" "renamed" "prefixed""#,
            r#"DEBUG "s\\n" "unwanted" "dropped" "filtered""#,
            r#"WARN "s\\n" "a.b" "cleaned" "hidden_characters""#,
            r#"WARN "s\\n" "a.b" "renamed" "characters""#,
            r#"WARN "s\\n" "bad" "dropped" "unusable_schema""#,
        ]
    );
}
