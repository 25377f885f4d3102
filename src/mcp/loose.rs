//! Folding a root that no single object can express exactly: what is lost goes into words.

use serde_json::{Map, Value, json};

use super::clean::clean;
use crate::tool::fold::fold_root_as;
use crate::tool::subschema::{Object, has_type, items, resolve, sentences};

/// Makes the root one object: the union of the properties, of which those are required that every
/// way to fit the schema requires. The description, of `limit` bytes, tells the rest.
pub(super) fn fold(schema: Value, limit: usize) -> Result<Value, String> {
    // Counts the work too: references can make a small schema a large one.
    let mut gather = Gather { root: &schema, followed: Vec::new(), left: MAX_VISITS };
    let shape = gather.shape(&schema)?.ok_or("no object fits it")?;
    let exact = fold_root_as(schema.clone(), lead(&schema));
    let mut folded = match exact {
        Ok(folded) => folded,
        Err(_) => loosely(&schema, shape),
    };
    if let Some(text) = folded.get_mut("description")
        && let Some(long) = text.as_str().filter(|text| text.len() > limit)
    {
        *text = Value::String(clean(long, limit).into_owned());
    }
    Ok(folded)
}

fn lead(schema: &Value) -> &'static str {
    match (schema.get("oneOf"), schema.get("anyOf").or_else(|| schema.get("allOf"))) {
        (Some(_), None) => "Takes exactly one of these forms:",
        _ => "Takes at least one of these forms:",
    }
}

fn loosely(schema: &Value, shape: Shape) -> Value {
    let mut folded = schema.as_object().cloned().unwrap_or_default();
    let mut rest = Object::new();
    for keyword in ["$ref", "oneOf", "anyOf", "allOf"] {
        if let Some(value) = folded.shift_remove(keyword) {
            rest.insert(keyword.to_owned(), value);
        }
    }
    let own = folded.get("description").and_then(Value::as_str);
    let rest = format!("The input must also fit this JSON schema: {}", Value::Object(rest));
    let rest = if rest.len() > MAX_WORDS { TOO_LONG } else { &rest };
    let description = sentences(own, Some(rest));
    let properties = shape.properties.into_iter().map(|(name, mut schemas)| {
        let schema = if schemas.len() == 1 { schemas.remove(0) } else { json!({"anyOf": schemas}) };
        (name, schema)
    });
    folded.insert("type".to_owned(), json!("object"));
    folded.insert("description".to_owned(), json!(description));
    folded.insert("properties".to_owned(), Value::Object(properties.collect::<Map<_, _>>()));
    folded.shift_remove("required");
    if !shape.required.is_empty() {
        folded.insert("required".to_owned(), json!(shape.required));
    }
    Value::Object(folded)
}

/// What an object that fits a schema may and must have.
#[derive(Default)]
struct Shape {
    /// Every schema that is given for a name.
    properties: Vec<(String, Vec<Value>)>,
    required: Vec<Value>,
}

impl Shape {
    fn join(&mut self, other: Self, required: bool) {
        for (name, schemas) in other.properties {
            let at = self.properties.iter().position(|(own, _)| *own == name).unwrap_or_else(|| {
                self.properties.push((name, Vec::new()));
                self.properties.len() - 1
            });
            for schema in schemas {
                if !self.properties[at].1.contains(&schema) {
                    self.properties[at].1.push(schema);
                }
            }
        }
        if required {
            let new: Vec<_> =
                other.required.into_iter().filter(|name| !self.required.contains(name)).collect();
            self.required.extend(new);
        }
    }
}

struct Gather<'a> {
    root: &'a Value,
    followed: Vec<&'a str>,
    left: usize,
}

impl<'a> Gather<'a> {
    /// `None` if no object fits the schema.
    fn shape(&mut self, schema: &'a Value) -> Result<Option<Shape>, String> {
        self.left = self.left.checked_sub(1).ok_or("its root has too many parts")?;
        let mut shape = Shape::default();
        let object = match schema {
            Value::Object(object) => object,
            Value::Bool(true) => return Ok(Some(shape)),
            _ => return Ok(None),
        };
        let values = ["const", "enum"].iter().any(|keyword| object.contains_key(*keyword));
        if values || (object.contains_key("type") && !has_type(object, "object")) {
            return Ok(None);
        }
        let properties = object.get("properties").and_then(Value::as_object).into_iter().flatten();
        shape.properties = properties.map(|(name, schema)| (name.clone(), vec![schema.clone()])).collect();
        shape.required = items(object.get("required")).cloned().collect();
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            if self.followed.contains(&reference) {
                return Err(format!("`{reference}` refers to itself"));
            }
            self.followed.push(reference);
            let target = self.shape(resolve(self.root, reference)?)?;
            self.followed.pop();
            let Some(target) = target else { return Ok(None) };
            shape.join(target, true);
        }
        for member in items(object.get("allOf")) {
            let Some(member) = self.shape(member)? else { return Ok(None) };
            shape.join(member, true);
        }
        for keyword in ["anyOf", "oneOf"] {
            let Some(branches) = object.get(keyword) else { continue };
            let mut common: Option<Vec<Value>> = None;
            for branch in items(Some(branches)) {
                let Some(branch) = self.shape(branch)? else { continue };
                match &mut common {
                    None => common = Some(branch.required.clone()),
                    Some(common) => common.retain(|name| branch.required.contains(name)),
                }
                shape.join(branch, false);
            }
            let Some(required) = common else { return Ok(None) };
            shape.join(Shape { required, ..Shape::default() }, true);
        }
        Ok(Some(shape))
    }
}

const MAX_VISITS: usize = 1000;
/// How many bytes of schema a description may quote.
const MAX_WORDS: usize = 2048;
const TOO_LONG: &str = "The input is constrained further, in a way that is too long to be told here.";

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(schema: Value) -> Value {
        fold(schema, 4096).unwrap()
    }

    #[test]
    fn m03_alternatives_at_the_root_become_one_object_and_words() {
        let schema = json!({
            "type": "object",
            "anyOf": [
                {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            ],
        });
        assert_eq!(
            folded(schema),
            json!({
                "type": "object",
                "description": "Takes at least one of these forms:\n- `a`\n- `b`",
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            })
        );
        let one = folded(json!({"oneOf": [
            {"type": "object", "properties": {"k": {"const": "x"}, "n": {}}, "required": ["k", "n"]},
            {"type": "object", "properties": {"k": {"const": "y"}}, "required": ["k"]},
        ]}));
        assert_eq!(one["required"], json!(["k"]), "what every variant requires");
        assert_eq!(one["properties"]["k"], json!({"type": "string", "enum": ["x", "y"]}));
        assert!(one["description"].as_str().unwrap().starts_with("Takes exactly one of these forms:"));
    }

    #[test]
    fn m03_what_has_no_exact_form_is_widened_and_quoted() {
        let rules = json!([
            {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
            {"if": {"required": ["b"]}, "then": {"required": ["c"]}},
            {"properties": {"a": {"minLength": 2}}, "required": ["a"]},
        ]);
        let forms =
            json!([{"required": ["x", "k"]}, {"properties": {"b": {}}, "required": ["k"]}, {"type": "null"}]);
        let schema = json!({
            "type": "object", "title": "T", "description": "Own words.", "x-own": 1,
            "properties": {"a": {"type": "string"}}, "required": ["o"], "allOf": rules, "anyOf": forms, "$defs": {"D": {"type": "string"}},
        });
        let folded = folded(schema);
        assert_eq!(folded["properties"]["a"], json!({"anyOf": [{"type": "string"}, {"minLength": 2}]}));
        assert_eq!(folded["properties"]["b"], json!({}));
        assert_eq!(
            folded["required"],
            json!(["o", "a", "k"]),
            "its own, what all have to fit, what each form needs"
        );
        assert_eq!(folded["$defs"], json!({"D": {"type": "string"}}));
        assert_eq!((&folded["title"], &folded["x-own"]), (&json!("T"), &json!(1)));
        assert_eq!(
            folded["description"],
            json!(format!(
                "Own words.\n\nThe input must also fit this JSON schema: {}",
                json!({"anyOf": forms, "allOf": rules})
            ))
        );
        assert!(folded.get("allOf").is_none() && folded.get("anyOf").is_none());
    }

    #[test]
    fn m03_alternatives_that_are_no_object_are_never_taken() {
        let object = json!({"type": "object", "properties": {"a": {}}, "required": ["a"]});
        let folded = folded(json!({"anyOf": [object, {"type": "string"}, {"enum": ["x"]}, false]}));
        assert_eq!((&folded["properties"], &folded["required"]), (&json!({"a": {}}), &json!(["a"])));
    }

    #[test]
    fn m03_a_root_reference_is_put_in_place() {
        let schema = json!({
            "$ref": "#/$defs/A",
            "$defs": {"A": {"type": "object", "properties": {"n": {"$ref": "#/$defs/A"}}}},
        });
        let expected = json!({
            "type": "object", "properties": {"n": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"type": "object", "properties": {"n": {"$ref": "#/$defs/A"}}}},
        });
        assert_eq!(folded(schema), expected);
    }

    #[test]
    fn m01_a_root_that_no_object_fits_is_refused() {
        let mut laughs = json!({"L0": {"type": "object"}});
        for n in 1..40 {
            let below = json!({"$ref": format!("#/$defs/L{}", n - 1)});
            laughs[format!("L{n}")] = json!({"allOf": [below, below]});
        }
        for (schema, reason) in [
            (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), "no object fits"),
            (json!({"allOf": [{"type": "object"}, {"type": "array"}]}), "no object fits"),
            (json!({"oneOf": []}), "no object fits"),
            (json!({"$ref": "#"}), "refers to itself"),
            (json!({"$ref": "#/$defs/X"}), "leads nowhere"),
            (json!({"$ref": "https://example.com/s"}), "leaves the schema"),
            (json!({"$ref": "#/$defs/L39", "$defs": laughs}), "too many parts"),
        ] {
            let error = fold(schema, 4096).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn m04_what_is_told_stays_within_the_limit() {
        let rule = |n: usize| json!({"if": {"required": [format!("a{n}")]}, "then": {"minProperties": n}});
        let many: Vec<_> = (0..200).map(rule).collect();
        let folded = folded(json!({"type": "object", "description": "d", "allOf": many}));
        assert_eq!(folded["description"], json!(format!("d\n\n{TOO_LONG}")));
    }
}
