//! A tool's definition as JSON: its fields in a stable order, their text never rewritten.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::messages::json::{self, Fields};

/// One entry of `tools`.
#[derive(Clone, Default)]
pub(super) struct Wire {
    fields: Vec<(Box<str>, Box<RawValue>)>,
    name: Option<Box<str>>,
    /// The text that the definition was read from, until a field is changed.
    text: Option<Box<RawValue>>,
}

/// The order of the named fields. Where setters were called in another order the bytes are the
/// same, and so is the cached prefix. `cache_control` is last: it marks all that stands before.
const ORDER: [&str; 10] = [
    "type",
    "name",
    "description",
    "input_schema",
    "strict",
    "input_examples",
    "allowed_callers",
    "defer_loading",
    "eager_input_streaming",
    "cache_control",
];

impl Wire {
    /// Reads a definition and keeps its text.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let raw: Box<RawValue> = serde_json::from_str(text).map_err(|error| {
            Error::request("a tool definition is not valid JSON").with_source(json::place(&error))
        })?;
        if !json::is_object(&raw) {
            return Err(Error::request("a tool definition must be a JSON object"));
        }
        let fields = Fields::parse(raw.get()).unwrap_or_default();
        let name = fields.str("name").map(Into::into);
        let fields = fields.iter().map(|(name, value)| (name.into(), value.to_owned())).collect();
        let wire = Self { fields, name, text: Some(raw) };
        wire.check_name()?;
        Ok(wire)
    }

    /// The JSON that is sent.
    pub(super) fn json(&self) -> Box<RawValue> {
        match &self.text {
            Some(text) => text.clone(),
            None => json::to_raw(self),
        }
    }

    fn get(&self, field: &str) -> Option<&RawValue> {
        self.fields.iter().rev().find(|(name, _)| &**name == field).map(|(_, value)| &**value)
    }

    pub(super) fn set(&mut self, field: &str, value: Box<RawValue>) {
        self.text = None;
        if field == "name" {
            self.name = json::string(&value).map(Into::into);
        }
        let mut value = Some(value);
        // A definition that was read may hold a name twice.
        self.fields.retain_mut(|(name, old)| {
            if &**name != field {
                return true;
            }
            match value.take() {
                Some(value) => *old = value,
                None => return false,
            }
            true
        });
        let Some(value) = value else { return };
        let index = rank(field).and_then(|own| {
            self.fields.iter().position(|(name, _)| rank(name).is_none_or(|other| other > own))
        });
        self.fields.insert(index.unwrap_or(self.fields.len()), (field.into(), value));
    }

    /// The name; toolsets have none.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// True for a tool that the API knows only from this definition.
    pub(super) fn is_custom(&self) -> bool {
        self.get("type")
            .is_none_or(|kind| json::is_null(kind) || json::string(kind).as_deref() == Some("custom"))
    }

    /// Checks the name of a custom tool: the API answers a bad one with an error for the whole
    /// request. The names of its own tools are its own affair.
    pub(super) fn check_name(&self) -> Result<()> {
        if !self.is_custom() {
            return Ok(());
        }
        let Some(name) = self.name() else {
            return Err(Error::request("a custom tool needs a `name`, which is a string"));
        };
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
            return Err(Error::request(format!(
                "the tool name {name:?} must be 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, _ and -"
            )));
        }
        Ok(())
    }
}

impl Serialize for Wire {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (name, value) in &self.fields {
            map.serialize_entry(&**name, value)?;
        }
        map.end()
    }
}

/// Checks what the API requires of the root of an `input_schema`. `Err` says what is wrong.
pub(super) fn check_schema(schema: &RawValue) -> Result<(), String> {
    if json::string(schema).is_some() {
        return Err(
            "it is a string; JSON text has to be parsed first (`serde_json::from_str::<Value>`)".into()
        );
    }
    let Some(fields) = Fields::parse(schema.get()) else {
        return Err("it must be a JSON object".into());
    };
    if fields.str("type").as_deref() != Some("object") {
        return Err("its `type` must be \"object\"".into());
    }
    for combinator in ["oneOf", "anyOf", "allOf"] {
        if fields.get(combinator).is_some() {
            return Err(format!("the API takes no `{combinator}` at its root"));
        }
    }
    Ok(())
}

fn rank(field: &str) -> Option<usize> {
    ORDER.iter().position(|name| *name == field)
}

const MAX_NAME: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_definition_keeps_its_text_until_it_is_changed() {
        let text = "{ \"type\": \"web_search_20260318\",\n \"name\":\"web_search\", \"max_uses\": 1e0, \"x\":1, \"x\":2 }";
        let mut wire = Wire::parse(text).unwrap();
        assert_eq!(wire.json().get(), text);
        wire.set("x", raw("3"));
        assert_eq!(
            wire.json().get(),
            r#"{"type":"web_search_20260318","name":"web_search","max_uses":1e0,"x":3}"#
        );
    }

    #[test]
    fn the_order_of_the_fields_is_not_that_of_the_setters() {
        let fields = ["cache_control", "later", "strict", "name", "input_schema"];
        let order = |fields: &[&str]| {
            let mut wire = Wire::default();
            fields.iter().for_each(|field| wire.set(field, raw("1")));
            wire.json().get().to_owned()
        };
        let expected = r#"{"name":1,"input_schema":1,"strict":1,"cache_control":1,"later":1}"#;
        let mut cases = 0;
        for turn in 0..fields.len() {
            let mut turned = fields;
            turned.rotate_left(turn);
            assert_eq!(order(&turned), expected);
            turned.reverse();
            assert_eq!(order(&turned), expected);
            cases += 2;
        }
        println!("{cases} orders of setters");
    }

    #[test]
    fn names_of_custom_tools_are_checked() {
        let check = |name: &str| Wire::parse(&format!("{{\"name\":{name:?}}}")).map(|_| ());
        for name in ["a", "A-b_9", &"x".repeat(128)] {
            check(name).unwrap();
        }
        for name in ["", "files.v2/read", "ä", "a b", "a\n", &"x".repeat(129)] {
            assert!(check(name).unwrap_err().to_string().contains("1 to 128"), "{name}");
        }
        assert!(Wire::parse("{}").is_err());
        assert!(Wire::parse(r#"{"type":"custom"}"#).is_err());
        assert!(Wire::parse(r#"{"type":null,"name":"a"}"#).unwrap().is_custom());
        let toolset = Wire::parse(r#"{"type":"computer_toolset_20260801"}"#).unwrap();
        assert!(toolset.name().is_none() && !toolset.is_custom());
    }

    #[test]
    fn the_root_of_a_schema_is_checked() {
        check_schema(&raw(r#"{"properties":{"a":{"anyOf":[]}},"type":"object"}"#)).unwrap();
        for (schema, reason) in [
            (r#""{}""#, "parsed first"),
            ("[]", "a JSON object"),
            ("true", "a JSON object"),
            ("{}", "must be \"object\""),
            (r#"{"type":["object"]}"#, "must be \"object\""),
            (r#"{"type":"object","anyOf":[]}"#, "anyOf"),
            (r#"{"type":"object","oneOf":[]}"#, "oneOf"),
            (r#"{"type":"object","allOf":[]}"#, "allOf"),
        ] {
            assert!(check_schema(&raw(schema)).unwrap_err().contains(reason), "{schema}");
        }
    }
}
