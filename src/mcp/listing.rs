//! What a server lists, as it lists it.

use std::fmt;

use serde_json::value::RawValue;

use crate::messages::json::{self, Fields};
use crate::tool::Annotations;

/// A tool as its server lists it: nothing is cleaned here, and nothing of it is checked.
#[derive(Clone)]
pub struct ListedTool {
    server: Box<str>,
    name: Box<str>,
    json: Box<RawValue>,
}

impl ListedTool {
    pub(super) fn new(server: &str, json: &RawValue) -> Self {
        let name =
            Fields::parse(json.get()).and_then(|fields| fields.str("name").map(|name| (&*name).into()));
        Self { server: server.into(), name: name.unwrap_or_default(), json: json.to_owned() }
    }

    /// The server's name, as given to the builder.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The tool's name at its server, which is what `tools/call` takes.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The title for people, that of the annotations if there is no other.
    #[must_use]
    pub fn title(&self) -> Option<String> {
        self.text("title").or_else(|| self.annotations().title)
    }

    /// The description.
    #[must_use]
    pub fn description(&self) -> Option<String> {
        self.text("description")
    }

    /// What the server says about its effects.
    #[must_use]
    pub fn annotations(&self) -> Annotations {
        let fields = self.fields();
        let Some(hints) = fields.get("annotations").and_then(|hints| Fields::parse(hints.get())) else {
            return Annotations::default();
        };
        Annotations {
            title: hints.str("title").map(Into::into),
            read_only_hint: hints.bool("readOnlyHint"),
            destructive_hint: hints.bool("destructiveHint"),
            idempotent_hint: hints.bool("idempotentHint"),
            open_world_hint: hints.bool("openWorldHint"),
        }
    }

    /// The schema of the arguments.
    #[must_use]
    pub fn input_schema(&self) -> Option<&RawValue> {
        self.fields().get("inputSchema")
    }

    /// The schema of structured results.
    #[must_use]
    pub fn output_schema(&self) -> Option<&RawValue> {
        self.fields().get("outputSchema").filter(|schema| !json::is_null(schema))
    }

    /// The whole entry of the list: `icons`, `execution`, `_meta` and whatever else there is.
    #[must_use]
    pub fn json(&self) -> &str {
        self.json.get()
    }

    fn fields(&self) -> Fields<'_> {
        Fields::parse(self.json.get()).unwrap_or_default()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.fields().str(name).map(Into::into).filter(|text: &String| !text.trim().is_empty())
    }
}

/// Names alone: the rest is the server's words.
impl fmt::Debug for ListedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListedTool")
            .field("server", &self.server)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The entries of a list: an array of tools, or a result of `tools/list` around it. `Err` says why
/// there is none.
pub(super) fn entries(text: &str) -> Result<Vec<Box<RawValue>>, &'static str> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| "the list of its tools is not valid JSON")?;
    let fields = Fields::parse(raw.get()).unwrap_or_default();
    let list = if json::is_object(raw) { fields.get("tools") } else { Some(raw) };
    let items = list.and_then(|list| json::items(list.get())).ok_or("the list of its tools is no list")?;
    Ok(items.into_iter().map(ToOwned::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m01_a_list_comes_in_two_forms() {
        let array = r#"[{"name":"a"},7]"#;
        let result = r#"{"tools":[{"name":"a"},7],"nextCursor":"c"}"#;
        for text in [array, result] {
            let list = entries(text).unwrap();
            assert_eq!(list.iter().map(|entry| entry.get()).collect::<Vec<_>>(), [r#"{"name":"a"}"#, "7"]);
        }
        for text in ["", "[", "{}", r#"{"tools":{}}"#, "null", "\"a\""] {
            assert!(entries(text).is_err(), "{text}");
        }
    }

    #[test]
    fn m01_hints_are_read_with_the_defaults_of_the_protocol() {
        let hints = |json: &str| {
            let tool = format!(r#"{{"name":"a","annotations":{json}}}"#);
            ListedTool::new("s", &json::text(&tool)).annotations()
        };
        let shown = |hints: &Annotations| {
            (hints.is_read_only(), hints.is_destructive(), hints.is_idempotent(), hints.is_open_world())
        };
        for (json, expected) in [
            ("{}", (false, true, false, true)),
            ("null", (false, true, false, true)),
            (r#"{"readOnlyHint":true}"#, (true, false, true, true)),
            (
                r#"{"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}"#,
                (false, false, true, false),
            ),
            (r#"{"readOnlyHint":"yes","title":"T"}"#, (false, true, false, true)),
        ] {
            assert_eq!(shown(&hints(json)), expected, "{json}");
        }
        assert_eq!(hints(r#"{"title":"T"}"#).title.as_deref(), Some("T"));
    }
}
