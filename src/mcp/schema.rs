//! Input schemas of servers as the API takes them.

use serde_json::Value;
use serde_json::value::RawValue;

use super::clean::{MAX_DESCRIPTION, cleaned};
use super::keywords::{Is, is_beyond_exact, is_empty_list, is_string, is_type, meaning};
use super::loose;
use super::report::Reason;
use crate::messages::json::{self, Fields};
use crate::tool::subschema::Holds;

/// The schema that is sent, and what is different in it. `Err` is why the tool can't be offered.
///
/// What needs no change keeps its text, unknown keywords and definitions included.
pub(super) fn adapt(schema: Option<&RawValue>) -> Result<(Box<RawValue>, Vec<Reason>), Reason> {
    let Some(schema) = schema.filter(|schema| !json::is_null(schema) && schema.get() != "true") else {
        return Ok((json::text(r#"{"type":"object","properties":{}}"#), vec![Reason::RootObject]));
    };
    if !json::is_object(schema) {
        return Err(unusable("it is no JSON object"));
    }
    let mut walk = Walk { changes: Vec::new(), path: Vec::new() };
    let mut text = String::with_capacity(schema.get().len());
    walk.schema(schema, &mut text)?;
    let schema = match walk.changes.is_empty() {
        true => schema.to_owned(),
        false => json::text(&text),
    };
    let mut changes = walk.changes;
    let schema = root(schema, &mut changes)?;
    Ok((schema, changes))
}

/// Makes the root one object without combinators.
fn root(schema: Box<RawValue>, changes: &mut Vec<Reason>) -> Result<Box<RawValue>, Reason> {
    let fields = Fields::parse(schema.get()).unwrap_or_default();
    if FOLDED.iter().any(|keyword| fields.get(keyword).is_some()) {
        let value: Value = serde_json::from_str(schema.get())
            .map_err(|_| unusable("it holds a number that is too large to fold it"))?;
        let folded = loose::fold(value, MAX_DESCRIPTION).map_err(|why| unusable(&why))?;
        changes.push(Reason::Folded);
        return Ok(json::to_raw(&folded));
    }
    match fields.get("type") {
        Some(kind) if json::string(kind).is_some_and(|kind| kind == "object") => return Ok(schema),
        Some(kind) if !kind.get().contains("\"object\"") => {
            return Err(unusable(&format!(
                "an input is always an object, and not {}",
                json::shown(kind.get())
            )));
        }
        Some(_) => {
            changes.push(Reason::RootObject);
            return Ok(json::with_field(schema.get(), "type", "\"object\""));
        }
        None => {}
    }
    changes.push(Reason::RootObject);
    let rest = schema.get().trim_start_matches('{').trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    Ok(json::text(&format!(r#"{{"type":"object"{comma}{rest}"#)))
}

/// Writes a schema anew, keyword by keyword.
struct Walk {
    changes: Vec<Reason>,
    /// The keywords and names above.
    path: Vec<String>,
}

impl Walk {
    fn schema(&mut self, schema: &RawValue, out: &mut String) -> Result<(), Reason> {
        self.within_depth()?;
        if matches!(schema.get(), "true" | "false") {
            out.push_str(schema.get());
            return Ok(());
        }
        if !json::is_object(schema) {
            return Err(self.refuse("must be a schema"));
        }
        let fields = self.fields(schema)?;
        let has_prefix = fields.get("prefixItems").is_some();
        let mut object = Object::begin(out);
        for (keyword, value) in fields.iter() {
            self.path.push(keyword.to_owned());
            match meaning(keyword) {
                Is::Schemas(Holds::OneOrList) if value.get().starts_with('[') && !has_prefix => {
                    self.note(Reason::OldKeyword);
                    self.list(value, object.field("prefixItems"))?;
                }
                is => self.keyword(keyword, value, is, &mut object)?,
            }
            self.path.pop();
        }
        object.end();
        Ok(())
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &RawValue,
        is: Is,
        object: &mut Object<'_>,
    ) -> Result<(), Reason> {
        let text = value.get();
        match is {
            Is::Schemas(Holds::One | Holds::OneOrList) => self.schema(value, object.field(keyword)),
            // PHP writes an empty object like this.
            Is::Schemas(Holds::Named) if is_empty_list(text) => {
                self.note(Reason::OldKeyword);
                object.field(keyword).push_str("{}");
                Ok(())
            }
            Is::Schemas(Holds::Named) if json::is_object(value) => self.named(value, object.field(keyword)),
            Is::Schemas(Holds::Named) => Err(self.refuse("must be an object of schemas")),
            Is::Schemas(Holds::List) if is_empty_list(text) => self.leave_out(),
            Is::Schemas(Holds::List) => self.list(value, object.field(keyword)),
            Is::Bound if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                self.leave_out()
            }
            Is::Bound if is_beyond_exact(text) => {
                self.note(Reason::Bound);
                Ok(())
            }
            Is::Type if !is_type(value) => Err(self.refuse("must be a type of JSON Schema")),
            Is::Values if keyword == "enum" && !text.starts_with('[') => Err(self.refuse("must be a list")),
            Is::Values if !text.starts_with('[') => self.leave_out(),
            Is::Names if json::items(text).is_none_or(|names| !names.iter().all(|name| is_string(name))) => {
                self.leave_out()
            }
            Is::Text | Is::Word if !text.starts_with('"') => self.leave_out(),
            Is::Flag if !matches!(text, "true" | "false") => self.leave_out(),
            Is::Text => self.string(value, MAX_DESCRIPTION, object.field(keyword)),
            _ => self.data(value, object.field(keyword)),
        }
    }

    fn named(&mut self, value: &RawValue, out: &mut String) -> Result<(), Reason> {
        let fields = self.fields(value)?;
        let mut object = Object::begin(out);
        for (name, schema) in fields.iter() {
            self.path.push(name.to_owned());
            self.schema(schema, object.field(name))?;
            self.path.pop();
        }
        object.end();
        Ok(())
    }

    fn list(&mut self, value: &RawValue, out: &mut String) -> Result<(), Reason> {
        let Some(items) = json::items(value.get()).filter(|items| !items.is_empty()) else {
            return Err(self.refuse("must be a list of schemas"));
        };
        self.items(&items, out, Self::schema)
    }

    fn data(&mut self, value: &RawValue, out: &mut String) -> Result<(), Reason> {
        self.within_depth()?;
        match value.get().as_bytes().first() {
            Some(b'"') => self.string(value, usize::MAX, out),
            Some(b'[') => self.items(&json::items(value.get()).unwrap_or_default(), out, Self::data),
            Some(b'{') => {
                let fields = self.fields(value)?;
                let mut object = Object::begin(out);
                for (name, value) in fields.iter() {
                    self.path.push(name.to_owned());
                    self.data(value, object.field(name))?;
                    self.path.pop();
                }
                object.end();
                Ok(())
            }
            _ => {
                out.push_str(value.get());
                Ok(())
            }
        }
    }

    fn items(
        &mut self,
        items: &[&RawValue],
        out: &mut String,
        each: fn(&mut Self, &RawValue, &mut String) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        out.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            self.path.push(index.to_string());
            each(self, item, out)?;
            self.path.pop();
        }
        out.push(']');
        Ok(())
    }

    fn string(&mut self, value: &RawValue, limit: usize, out: &mut String) -> Result<(), Reason> {
        let read = json::string(value).unwrap_or_default();
        let cleaned = cleaned(&read, limit);
        if cleaned.removed > 0 {
            let place = self.place();
            self.changes.push(Reason::HiddenCharacters(place, cleaned.removed));
        }
        if cleaned.cut {
            self.note(Reason::LongText);
        }
        // Half of a surrogate pair is valid JSON, and the API does not take it.
        if json::with_whole_pairs(value.get()).is_some() {
            let place = self.place();
            self.changes.push(Reason::HiddenCharacters(place, 1));
        }
        out.push_str(json::to_raw(&*cleaned.text).get());
        Ok(())
    }

    /// The fields of an object, none of whose names hides anything.
    fn fields<'a>(&self, value: &'a RawValue) -> Result<Fields<'a>, Reason> {
        let fields = Fields::parse(value.get()).ok_or_else(|| unusable("a name in it is no text"))?;
        let hides = fields.iter().any(|(name, _)| cleaned(name, usize::MAX).removed > 0);
        if hides { Err(Reason::HiddenName) } else { Ok(fields) }
    }

    fn within_depth(&self) -> Result<(), Reason> {
        match self.path.len() > MAX_DEPTH {
            true => Err(unusable("it is nested too deep")),
            false => Ok(()),
        }
    }

    fn note(&mut self, reason: fn(Box<str>) -> Reason) {
        let place = self.place();
        self.changes.push(reason(place));
    }

    fn leave_out(&mut self) -> Result<(), Reason> {
        self.note(Reason::Keyword);
        Ok(())
    }

    fn refuse(&self, what: &str) -> Reason {
        unusable(&format!("`{}` {what}", self.place()))
    }

    fn place(&self) -> Box<str> {
        json::shown(&self.path.join("/")).into()
    }
}

/// An object that is being written.
struct Object<'a> {
    out: &'a mut String,
    empty: bool,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, empty: true }
    }

    /// The text to which the value of a field is written.
    fn field(&mut self, name: &str) -> &mut String {
        if !std::mem::take(&mut self.empty) {
            self.out.push(',');
        }
        self.out.push_str(json::to_raw(name).get());
        self.out.push(':');
        self.out
    }

    fn end(self) {
        self.out.push('}');
    }
}

fn unusable(why: &str) -> Reason {
    Reason::UnusableSchema(why.into())
}

/// What the root may not hold: the API refuses the first three, and knows its type from no
/// reference.
const FOLDED: [&str; 4] = ["oneOf", "anyOf", "allOf", "$ref"];

const MAX_DEPTH: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn adapted(schema: &str) -> (String, Vec<Reason>) {
        let raw: Box<RawValue> = serde_json::from_str(schema).unwrap();
        let (schema, changes) = adapt(Some(&raw)).unwrap_or_else(|reason| panic!("{schema}: {reason}"));
        (schema.get().to_owned(), changes)
    }

    fn refused(schema: &str) -> String {
        let raw: Box<RawValue> = serde_json::from_str(schema).unwrap();
        adapt(Some(&raw)).unwrap_err().to_string()
    }

    #[test]
    fn m03_a_schema_that_the_api_takes_keeps_its_text() {
        for schema in [
            r##"{"type":"object","properties":{"q":{"$ref":"#/$defs/Q"}},"$defs":{"Q":{"type":"object","properties":{"n":{"type":"integer"},"self":{"$ref":"#/$defs/Q"}}}}}"##,
            r#"{ "$schema": "http://json-schema.org/draft-07/schema#", "type" : "object", "x-own": [1e2, 1234567890123456789012345], "properties": {} }"#,
            r#"{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"oneOf":[true]}]},"type":{"type":["string","null"]},"description":{"type":"string"}},"if":{"required":["a"]},"then":{"minProperties":2}}"#,
            r#"{"type":"object","properties":{"n":{"type":"integer","minimum":-9007199254740992,"maximum":9007199254740992,"default":9007199254740993}}}"#,
        ] {
            assert_eq!(adapted(schema), (schema.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn m03_the_root_becomes_an_object() {
        for (schema, expected) in [
            ("{}", r#"{"type":"object"}"#),
            ("true", r#"{"type":"object","properties":{}}"#),
            ("null", r#"{"type":"object","properties":{}}"#),
            (r#"{ "properties":{"a":{}} }"#, r#"{"type":"object","properties":{"a":{}} }"#),
            (r#"{"properties":{},"type":["object","null"]}"#, r#"{"properties":{},"type":"object"}"#),
        ] {
            assert_eq!(adapted(schema), (expected.to_owned(), vec![Reason::RootObject]), "{schema}");
        }
        assert_eq!(adapt(None).unwrap().0.get(), r#"{"type":"object","properties":{}}"#);
    }

    #[test]
    fn m01_bounds_and_keywords_that_do_not_work_are_left_out_and_told() {
        let place = |text: &str| Box::<str>::from(text);
        for (before, after, reason) in [
            (r#"{"maximum":9007199254740993}"#, "{}", Reason::Bound(place("properties/a/maximum"))),
            (
                r#"{"minimum":-18446744073709551615,"x":1}"#,
                r#"{"x":1}"#,
                Reason::Bound(place("properties/a/minimum")),
            ),
            (r#"{"maxLength":1e300}"#, "{}", Reason::Bound(place("properties/a/maxLength"))),
            (
                r#"{"exclusiveMinimum":true,"minimum":1}"#,
                r#"{"minimum":1}"#,
                Reason::Keyword(place("properties/a/exclusiveMinimum")),
            ),
            (
                r#"{"type":"string","required":true}"#,
                r#"{"type":"string"}"#,
                Reason::Keyword(place("properties/a/required")),
            ),
            (r#"{"description":null}"#, "{}", Reason::Keyword(place("properties/a/description"))),
            (r#"{"anyOf":[]}"#, "{}", Reason::Keyword(place("properties/a/anyOf"))),
            (
                r#"{"items":[{},true]}"#,
                r#"{"prefixItems":[{},true]}"#,
                Reason::OldKeyword(place("properties/a/items")),
            ),
            (
                r#"{"properties":[]}"#,
                r#"{"properties":{}}"#,
                Reason::OldKeyword(place("properties/a/properties")),
            ),
        ] {
            let (schema, changes) = adapted(&format!(r#"{{"type":"object","properties":{{"a":{before}}}}}"#));
            assert_eq!(schema, format!(r#"{{"type":"object","properties":{{"a":{after}}}}}"#));
            assert_eq!(changes, [reason]);
        }
    }

    #[test]
    fn m01_a_schema_that_no_request_may_hold_is_refused_with_a_reason() {
        let deep = format!(
            r#"{{"type":"object","properties":{{"a":{}{}}}}}"#,
            r#"{"not":"#.repeat(120),
            "{}".to_owned() + &"}".repeat(120)
        );
        let data = format!(r#"{{"type":"object","default":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
        for (schema, reason) in [
            (r#""{}""#, "no JSON object"),
            ("[]", "no JSON object"),
            ("false", "no JSON object"),
            (r#"{"type":"string"}"#, "an input is always an object"),
            (r#"{"type":["string","null"]}"#, "an input is always an object"),
            (
                r#"{"type":"object","properties":{"a":{"type":"strng"}}}"#,
                "`properties/a/type` must be a type",
            ),
            (r#"{"type":"object","properties":{"a":{"type":[]}}}"#, "`properties/a/type` must be a type"),
            (r#"{"type":"object","properties":["a"]}"#, "`properties` must be an object of schemas"),
            (r#"{"type":"object","properties":{"a":"string"}}"#, "`properties/a` must be a schema"),
            (r#"{"type":"object","properties":{"a":{"enum":"x"}}}"#, "`properties/a/enum` must be a list"),
            (r#"{"type":"object","properties":{"a\u200b":{}}}"#, "hidden characters"),
            (r#"{"type":"object","default":{"a\u202e":{}}}"#, "hidden characters"),
            (&deep, "nested too deep"),
            (&data, "nested too deep"),
        ] {
            let error = refused(schema);
            assert!(error.contains(reason), "{schema}: {error}");
        }
    }
}
