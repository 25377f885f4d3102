//! Derived schemas in the subset that the API takes from a strict tool.

use serde_json::{Value, json};

use super::subschema::{
    Alternative, CONTAINERS, Object, alternatives, definition, has_type, items, resolve, sentences,
};

/// Rewrites a root schema.
///
/// Objects are closed, `oneOf` becomes `anyOf`, `allOf` and references with something beside
/// them are joined into one schema, and bounds, foreign formats and difficult patterns become
/// text: the handler's type checks them. `Err` says what can't be expressed, and where.
pub(super) fn rewrite(root: &Value) -> Result<Value, String> {
    let mut rewriter = Rewriter { root, open: vec!["#".to_owned()], done: Vec::new() };
    let mut schema = rewriter.schema(root, "")?;
    let Some(object) = schema.as_object_mut() else { return Ok(schema) };
    for container in CONTAINERS {
        let names = root.get(container).and_then(Value::as_object).into_iter().flat_map(Object::keys);
        let done: Object =
            names.filter_map(|name| Some((name.clone(), rewriter.done(container, name)?.clone()))).collect();
        if !done.is_empty() {
            object.insert(container.to_owned(), Value::Object(done));
        }
    }
    Ok(schema)
}

struct Rewriter<'a> {
    root: &'a Value,
    /// The references that are being followed.
    open: Vec<String>,
    done: Vec<(&'static str, String, Value)>,
}

impl Rewriter<'_> {
    fn schema(&mut self, schema: &Value, path: &str) -> Result<Value, String> {
        let object = match schema {
            Value::Object(object) => object,
            Value::Bool(false) => return Err(at(path, "nothing fits here")),
            _ => return Err(at(path, ANYTHING)),
        };
        match object.get("$ref").and_then(Value::as_str) {
            Some(reference) if object.len() == 1 => return self.reference(reference, path),
            _ => {}
        }
        let choice = ["anyOf", "oneOf"].iter().find(|choice| object.contains_key(**choice));
        let is_note = |key: &String| NOTES.contains(&key.as_str()) || CONTAINERS.contains(&key.as_str());
        if let Some(choice) = choice
            && object.keys().all(|key| key == choice || is_note(key))
        {
            let mut branches = Vec::new();
            for branch in items(object.get(*choice)) {
                let branch = self.schema(branch, path)?;
                if !branches.contains(&branch) {
                    branches.push(branch);
                }
            }
            return Ok(Value::Object(any_of(object, branches)));
        }
        if choice.is_none() && !object.contains_key("$ref") && !object.contains_key("allOf") {
            return self.plain(object, path);
        }

        let list =
            alternatives(self.root, schema, &mut self.open.clone()).map_err(|reason| at(path, &reason))?;
        let mut branches = Vec::new();
        for Alternative { schema, refs } in list {
            let depth = self.open.len();
            self.open.extend(refs);
            branches.push(self.plain(&schema, path)?);
            self.open.truncate(depth);
        }
        match <[_; 1]>::try_from(branches) {
            Ok([branch]) => Ok(branch),
            Err(branches) if branches.is_empty() => Err(at(path, "nothing fits here")),
            Err(branches) => Ok(json!({"anyOf": branches})),
        }
    }

    fn reference(&mut self, reference: &str, path: &str) -> Result<Value, String> {
        let found = definition(reference);
        if let Some((container, name)) = &found
            && self.done(container, name).is_some()
        {
            return Ok(json!({"$ref": reference}));
        }
        if self.open.iter().any(|open| open == reference) {
            return Err(at(path, "the type refers to itself, and a strict schema can't"));
        }
        let root = self.root;
        let target = resolve(root, reference).map_err(|reason| at(path, &reason))?;
        self.open.push(reference.to_owned());
        let target = self.schema(target, path)?;
        self.open.pop();
        match found {
            Some((container, name)) if reference.matches('/').count() == 2 => {
                self.done.push((container, name, target));
                Ok(json!({"$ref": reference}))
            }
            // What it points into is rewritten, so the place itself may be gone.
            _ => Ok(target),
        }
    }

    /// A schema without references and combinators.
    fn plain(&mut self, schema: &Object, path: &str) -> Result<Value, String> {
        let mut out = Object::new();
        let mut notes = Vec::new();
        for (key, value) in schema {
            match key.as_str() {
                "type" | "title" | "default" => drop(out.insert(key.clone(), value.clone())),
                "description" | "$schema" | "$id" | "$anchor" | "$comment" | "$defs" | "definitions" => {}
                "enum" | "const" => {
                    let compound = |value: &Value| value.is_object() || value.is_array();
                    if if key == "const" { compound(value) } else { items(Some(value)).any(compound) } {
                        return Err(at(path, "a fixed value that is an object or a list can't be expressed"));
                    }
                    out.insert(key.clone(), value.clone());
                }
                "properties" => {
                    let mut properties = Object::new();
                    for (name, property) in value.as_object().into_iter().flatten() {
                        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                        properties.insert(name.clone(), self.schema(property, &path)?);
                    }
                    out.insert(key.clone(), Value::Object(properties));
                }
                "required" => {
                    let defined = |name: &Value| {
                        name.as_str().is_some_and(|name| {
                            schema.get("properties").is_some_and(|all| all.get(name).is_some())
                        })
                    };
                    if let Some(name) = items(Some(value)).find(|name| !defined(name)) {
                        return Err(at(path, &format!("{name} is required and not defined")));
                    }
                    out.insert(key.clone(), value.clone());
                }
                "additionalProperties" | "unevaluatedProperties" if value == &Value::Bool(false) => {}
                "additionalProperties" | "unevaluatedProperties" | "patternProperties" => {
                    return Err(at(path, OPEN_MAP));
                }
                "items" if value.is_object() => {
                    let items = self.schema(value, &format!("{path}[]"))?;
                    out.insert(key.clone(), items);
                }
                // The end of a tuple.
                "items" if schema.contains_key("prefixItems") && !value.is_array() => {}
                "items" | "prefixItems" if value.is_array() => {
                    let items = self.tuple(items(Some(value)), path, &mut notes)?;
                    out.insert("items".to_owned(), items);
                }
                "minItems" if value == 0 || value == 1 => drop(out.insert(key.clone(), value.clone())),
                "format" => match value.as_str() {
                    Some(format) if FORMATS.contains(&format) => drop(out.insert(key.clone(), value.clone())),
                    // The width of a number says nothing to the model that its bounds don't.
                    Some("float" | "double") => {}
                    Some(format) if format.trim_start_matches('u').starts_with("int") => {}
                    _ => notes.push(format!("format: {value}")),
                },
                "pattern" if value.as_str().is_some_and(is_simple) => {
                    drop(out.insert(key.clone(), value.clone()))
                }
                "$dynamicRef" | "$recursiveRef" => {
                    return Err(at(path, "a dynamic reference can't be expressed"));
                }
                _ => notes.push(format!("{key}: {value}")),
            }
        }
        let typed = ["type", "enum", "const"].iter().any(|keyword| out.contains_key(*keyword));
        if !typed && out.contains_key("properties") {
            out.insert("type".to_owned(), json!("object"));
        } else if !typed {
            return Err(at(path, ANYTHING));
        }
        if has_type(&out, "object") {
            out.entry("properties").or_insert_with(|| json!({}));
            out.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
        if has_type(&out, "array") && !out.contains_key("items") {
            return Err(at(&format!("{path}[]"), ANYTHING));
        }
        Ok(Value::Object(described(out, schema.get("description"), &notes)))
    }

    /// The items of a tuple: each place takes what any place takes, and the text says which.
    fn tuple<'a>(
        &mut self,
        places: impl Iterator<Item = &'a Value>,
        path: &str,
        notes: &mut Vec<String>,
    ) -> Result<Value, String> {
        let mut kinds = Vec::new();
        let mut order = Vec::new();
        for (index, place) in places.enumerate() {
            let place = self.schema(place, &format!("{path}[{index}]"))?;
            order.push(match place.get("$ref").or_else(|| place.get("type")) {
                Some(kind) => kind.as_str().map_or_else(
                    || kind.to_string(),
                    |kind| kind.rsplit('/').next().unwrap_or(kind).to_owned(),
                ),
                None => "any of these".to_owned(),
            });
            if !kinds.contains(&place) {
                kinds.push(place);
            }
        }
        notes.push(format!("items in this order: {}", order.join(", ")));
        Ok(match <[_; 1]>::try_from(kinds) {
            Ok([kind]) => kind,
            Err(kinds) if kinds.is_empty() => return Err(at(path, "an empty tuple can't be expressed")),
            Err(kinds) => json!({"anyOf": kinds}),
        })
    }

    fn done(&self, container: &str, name: &str) -> Option<&Value> {
        self.done.iter().find(|done| done.0 == container && done.1 == name).map(|done| &done.2)
    }
}

/// A choice with the notes that stand beside it.
fn any_of(schema: &Object, branches: Vec<Value>) -> Object {
    let mut out = Object::new();
    for key in ["title", "default"] {
        if let Some(value) = schema.get(key) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    out.insert("anyOf".to_owned(), Value::Array(branches));
    described(out, schema.get("description"), &[])
}

/// The schema with its description, to which the notes are added, right after its type.
fn described(schema: Object, description: Option<&Value>, notes: &[String]) -> Object {
    let notes = if notes.is_empty() { None } else { Some(format!("({})", notes.join(", "))) };
    let text = sentences(description.and_then(Value::as_str), notes.as_deref());
    let mut out = Object::new();
    for key in ["type", "title"] {
        if let Some(value) = schema.get(key) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    if !text.is_empty() {
        out.insert("description".to_owned(), Value::String(text));
    }
    for (key, value) in schema {
        out.entry(key).or_insert(value);
    }
    out
}

/// True for a pattern without lookaround, flags, named groups, back references, word bounds and
/// classes by property.
fn is_simple(pattern: &str) -> bool {
    let mut rest = pattern.chars();
    while let Some(letter) = rest.next() {
        let follows = rest.as_str();
        match letter {
            '\\' => match rest.next() {
                Some('b' | 'B' | 'k' | 'p' | 'P' | 'A' | 'z' | 'Z' | 'G' | '1'..='9') | None => return false,
                Some(_) => {}
            },
            '(' if follows.starts_with('?') && !follows.starts_with("?:") => return false,
            _ => {}
        }
    }
    true
}

fn at(path: &str, reason: &str) -> String {
    if path.is_empty() { format!("at the root: {reason}") } else { format!("at `{path}`: {reason}") }
}

const ANYTHING: &str = "a value of any type can't be expressed in a strict schema";

const OPEN_MAP: &str =
    "a map with free keys can't be expressed in a strict schema; a list of key-value pairs can";

/// The string formats of the subset.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// Keywords that judge nothing.
const NOTES: [&str; 8] =
    ["title", "description", "default", "examples", "deprecated", "$comment", "$schema", "$id"];

#[cfg(test)]
mod tests {
    use super::super::subschema::walk;
    use super::*;

    /// What stands in the way of a strict tool, if anything does.
    fn flaw(schema: &Value) -> Option<String> {
        let mut flaws = Vec::new();
        walk(&mut schema.clone(), &mut |object| {
            let mut keys: Vec<_> = object.keys().map(String::as_str).collect();
            keys.retain(|key| !ALLOWED.contains(key));
            if !keys.is_empty() {
                flaws.push(format!("{keys:?}"));
            }
            if has_type(object, "object") && object.get("additionalProperties") != Some(&json!(false)) {
                flaws.push(format!("open: {object:?}"));
            }
            if object.contains_key("$ref") && object.len() > 1 {
                flaws.push(format!("beside a reference: {object:?}"));
            }
            if let Some(reference) = object.get("$ref").and_then(Value::as_str)
                && resolve(schema, reference).is_err()
            {
                flaws.push(format!("dangling {reference}"));
            }
            if object.get("minItems").is_some_and(|bound| bound != 0 && bound != 1) {
                flaws.push("minItems".to_owned());
            }
            if !["type", "$ref", "anyOf", "enum", "const"].iter().any(|key| object.contains_key(*key)) {
                flaws.push(format!("anything: {object:?}"));
            }
        });
        flaws.pop()
    }

    const ALLOWED: [&str; 17] = [
        "type",
        "title",
        "description",
        "default",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "$ref",
        "$defs",
        "definitions",
        "format",
        "pattern",
        "minItems",
    ];

    fn in_root(property: &Value) -> Value {
        json!({
            "type": "object", "properties": {"p": property}, "required": ["p"],
            "$defs": {
                "Point": {"type": "object", "properties": {"x": {"type": "integer", "format": "int8", "minimum": -128}}, "required": ["x"]},
                "Color": {"type": "string", "enum": ["red", "blue"]},
                "Rec": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Rec"}, {"type": "null"}]}}},
                "Noted": {"type": "object", "properties": {"next": {"description": "n", "$ref": "#/$defs/Noted"}}},
            },
        })
    }

    fn property(schema: Value) -> Value {
        let strict = rewrite(&in_root(&schema)).unwrap();
        assert_eq!(flaw(&strict), None, "{strict}");
        strict["properties"]["p"].clone()
    }

    #[test]
    fn bounds_and_foreign_formats_become_text() {
        for (schema, expected) in [
            (
                json!({"description": "How many", "type": "integer", "format": "uint32", "minimum": 1, "maximum": 5}),
                json!({"type": "integer", "description": "How many\n\n(minimum: 1, maximum: 5)"}),
            ),
            (json!({"type": "number", "format": "double"}), json!({"type": "number"})),
            (
                json!({"type": "string", "minLength": 1, "format": "ip"}),
                json!({"type": "string", "description": "(minLength: 1, format: \"ip\")"}),
            ),
            (json!({"type": "string", "format": "uuid"}), json!({"type": "string", "format": "uuid"})),
            (
                json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3, "uniqueItems": true}),
                json!({"type": "array", "description": "(maxItems: 3, uniqueItems: true)", "items": {"type": "string"}, "minItems": 1}),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}, "minItems": 2}),
                json!({"type": "array", "description": "(minItems: 2)", "items": {"type": "string"}}),
            ),
            (
                json!({"type": "string", "pattern": "^[a-z]+(?:-[0-9]{2})*$"}),
                json!({"type": "string", "pattern": "^[a-z]+(?:-[0-9]{2})*$"}),
            ),
            (
                json!({"type": "string", "pattern": r"\bx"}),
                json!({"type": "string", "description": r#"(pattern: "\\bx")"#}),
            ),
            (
                json!({"type": "array", "prefixItems": [{"type": "integer"}, {"$ref": "#/$defs/Color"}, {"type": "integer"}], "items": false, "minItems": 3, "maxItems": 3}),
                json!({"type": "array", "description": "(items in this order: integer, Color, integer, minItems: 3, maxItems: 3)", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/Color"}]}}),
            ),
        ] {
            assert_eq!(property(schema).to_string(), expected.to_string());
        }
    }

    #[test]
    fn combinators_become_any_of() {
        for (schema, expected) in [
            (
                json!({"oneOf": [{"const": "a", "type": "string", "description": "A"}, {"const": "b", "type": "string"}], "description": "d"}),
                json!({"description": "d", "anyOf": [{"type": "string", "description": "A", "const": "a"}, {"type": "string", "const": "b"}]}),
            ),
            (
                json!({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}),
                json!({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}),
            ),
            (
                json!({"description": "here", "$ref": "#/$defs/Color"}),
                json!({"type": "string", "description": "here", "enum": ["red", "blue"]}),
            ),
            (
                json!({"allOf": [{"$ref": "#/$defs/Point"}, {"properties": {"y": {"type": "null"}}, "required": ["y"]}]}),
                json!({"type": "object", "properties": {"x": {"type": "integer", "description": "(minimum: -128)"}, "y": {"type": "null"}}, "required": ["x", "y"], "additionalProperties": false}),
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "null"}}, "oneOf": [{"properties": {"b": {"type": "null"}}, "required": ["b"]}, {"properties": {"c": {"type": "null"}}}]}),
                json!({"anyOf": [
                    {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["b"], "additionalProperties": false},
                    {"type": "object", "properties": {"a": {"type": "null"}, "c": {"type": "null"}}, "additionalProperties": false},
                ]}),
            ),
        ] {
            assert_eq!(property(schema).to_string(), expected.to_string());
        }
    }

    #[test]
    fn what_has_no_strict_form_is_refused_with_its_place() {
        for (schema, reason) in [
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), "at `p`: a map"),
            (json!({"type": "object", "additionalProperties": true}), "at `p`: a map"),
            (json!({"type": "object", "patternProperties": {}}), "at `p`: a map"),
            (
                json!({"type": "array", "items": {"type": "object", "properties": {"q": true}}}),
                "at `p[].q`: a value of any type",
            ),
            (json!({"type": "array"}), "at `p[]`: a value of any type"),
            (json!({"description": "any"}), "at `p`: a value of any type"),
            (json!(false), "at `p`: nothing fits"),
            (json!({"$ref": "#/$defs/Rec"}), "at `p.next`: the type refers to itself"),
            (json!({"type": "array", "items": {"$ref": "#"}}), "at `p[]`: the type refers to itself"),
            (
                json!({"description": "d", "$ref": "#/$defs/Noted"}),
                "at `p.next`: `#/$defs/Noted` refers to itself",
            ),
            (json!({"$ref": "other.json"}), "at `p`: the reference `other.json` leaves"),
            (json!({"$ref": "#/$defs/None"}), "leads nowhere"),
            (json!({"enum": [[1]]}), "a fixed value"),
            (json!({"type": "object", "required": ["z"]}), "\"z\" is required and not defined"),
            (json!({"allOf": [{"type": "string"}, {"type": "integer"}]}), "at `p`: nothing is both"),
            (json!({"type": "array", "prefixItems": [{"type": "null"}, true]}), "at `p[1]`"),
        ] {
            let error = rewrite(&in_root(&schema)).unwrap_err();
            assert!(error.contains(reason), "{schema}: {error}");
        }
    }

    #[test]
    fn patterns_are_simple_or_not() {
        for pattern in ["^a$", "", "(?:a|b)", r"\d\w\s\.\\b", "[a-z]{1,3}"] {
            assert!(is_simple(pattern), "{pattern}");
        }
        for pattern in [
            "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?P<n>a)", "(?i)a", r"(a)\1", r"\ba", r"\\\b", r"\k<n>",
            r"\p{L}",
        ] {
            assert!(!is_simple(pattern), "{pattern}");
        }
    }

    /// Everything in everything, two levels deep: each is refused with its place, or fits.
    #[test]
    fn every_rewritten_schema_is_in_the_subset() {
        let leaves = [
            json!({"type": "string", "minLength": 1}),
            json!({"type": ["integer", "null"], "format": "int64", "maximum": 9}),
            json!({"$ref": "#/$defs/Color"}),
            json!({"$ref": "#/$defs/Point", "description": "d"}),
            json!({"$ref": "#/$defs/Rec"}),
            json!({"type": "object"}),
            json!({"type": "object", "additionalProperties": {"type": "null"}}),
            json!({"const": 1, "x-own": {}}),
            json!({"enum": ["a", null, 1.5]}),
            json!(true),
        ];
        let wrap = |inner: &Value| {
            [
                json!({"type": "object", "properties": {"q": inner}}),
                json!({"type": "object", "properties": {"q": inner}, "required": ["q"], "unevaluatedProperties": false}),
                json!({"type": "array", "items": inner, "minItems": 3}),
                json!({"type": "array", "prefixItems": [inner, {"type": "null"}], "items": false}),
                json!({"anyOf": [inner, {"type": "null"}]}),
                json!({"oneOf": [{"properties": {"a": inner}}, {"properties": {"b": inner}}], "description": "d"}),
                json!({"allOf": [inner, {"description": "e"}]}),
                json!({"allOf": [{"properties": {"a": inner}, "required": ["a"]}, {"$ref": "#/$defs/Point"}]}),
                json!({"type": "object", "properties": {"k": {"const": "k"}}, "anyOf": [{"properties": {"a": inner}}, {"$ref": "#/$defs/Point"}]}),
                json!({"not": inner, "type": "string"}),
            ]
        };
        let (mut fit, mut refused) = (0, 0);
        for leaf in &leaves {
            for middle in wrap(leaf) {
                for schema in wrap(&middle) {
                    match rewrite(&in_root(&schema)) {
                        Ok(strict) => {
                            assert_eq!(flaw(&strict), None, "{schema} became {strict}");
                            assert_eq!(rewrite(&strict).as_ref(), Ok(&strict), "{schema}");
                            fit += 1;
                        }
                        Err(reason) => {
                            assert!(reason.starts_with("at `p"), "{reason}");
                            refused += 1;
                        }
                    }
                }
            }
        }
        assert!(fit > 300 && refused > 100);
        println!("{fit} schemas rewritten, {refused} refused");
    }
}
