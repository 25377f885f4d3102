//! The part of JSON Schema that `strict` tools and `output_config.format` take.

use serde_json::Value;

use super::{Object, Verdict, list};

const REFUSED: &[&str] = &[
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "prefixItems",
    "minProperties",
    "maxProperties",
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];
const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];
const REFUSED_PATTERNS: &[&str] = &["(?=", "(?!", "(?<", "\\b", "\\1", "\\2", "\\3"];
const MOST_OPTIONAL: usize = 24;
const MOST_UNIONS: usize = 16;

/// What counts over all strict schemas of a request.
#[derive(Debug, Default)]
pub(super) struct Load {
    optional: usize,
    unions: usize,
}

pub(super) fn strict(schema: &Value, path: &str, load: &mut Load) -> Verdict {
    Walk { root: schema, load, refs: Vec::new() }.schema(schema, path)?;
    if load.optional > MOST_OPTIONAL || load.unions > MOST_UNIONS {
        return Err(format!("{path}: Schema is too complex for compilation."));
    }
    Ok(())
}

struct Walk<'a, 'l> {
    root: &'a Value,
    load: &'l mut Load,
    /// The references that the walk is inside of.
    refs: Vec<&'a str>,
}

impl<'a> Walk<'a, '_> {
    fn schema(&mut self, schema: &'a Value, path: &str) -> Verdict {
        let object = match schema {
            Value::Object(object) => object,
            Value::Bool(_) => return Ok(()),
            _ => return Err(format!("{path}: a schema must be an object")),
        };
        keywords(object, path)?;
        if let Some(reference) = object.get("$ref") {
            self.reference(reference, path)?;
        }
        self.object(object, path)?;
        if let Some(items) = object.get("items") {
            self.schema(items, &format!("{path}.items"))?;
        }
        for name in ["anyOf", "allOf"] {
            for (index, part) in list(object, name).iter().enumerate() {
                let path = format!("{path}.{name}.{index}");
                if name == "allOf" && part.get("$ref").is_some() {
                    return Err(format!("{path}: `allOf` with `$ref` is not supported"));
                }
                self.schema(part, &path)?;
            }
        }
        for name in ["$defs", "definitions"] {
            let definitions = object.get(name).and_then(Value::as_object);
            for (key, part) in definitions.into_iter().flatten() {
                self.schema(part, &format!("{path}.{name}.{key}"))?;
            }
        }
        Ok(())
    }

    fn object(&mut self, object: &'a Object, path: &str) -> Verdict {
        let types = match object.get("type") {
            Some(Value::Array(types)) => types.as_slice(),
            Some(kind) => std::slice::from_ref(kind),
            None => &[],
        };
        let properties = object.get("properties").and_then(Value::as_object);
        let is_object = types.iter().any(|kind| kind == "object") || properties.is_some();
        if is_object && object.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err(format!(
                "{path}: For 'object' type, 'additionalProperties' must be explicitly set to false"
            ));
        }
        let required = list(object, "required");
        for (name, part) in properties.into_iter().flatten() {
            if !required.iter().any(|required| required == name.as_str()) {
                self.load.optional += 1;
            }
            if part.get("anyOf").is_some() || part.get("type").is_some_and(Value::is_array) {
                self.load.unions += 1;
            }
            self.schema(part, &format!("{path}.properties.{name}"))?;
        }
        Ok(())
    }

    fn reference(&mut self, reference: &'a Value, path: &str) -> Verdict {
        let pointer = reference.as_str().and_then(|reference| reference.strip_prefix('#'));
        let pointer = pointer.ok_or_else(|| format!("{path}.$ref: external references are not supported"))?;
        if pointer.is_empty() || self.refs.contains(&pointer) {
            return Err(format!("{path}.$ref: recursive schemas are not supported"));
        }
        let target = self.root.pointer(pointer);
        let target =
            target.ok_or_else(|| format!("{path}.$ref: `#{pointer}` was not found in the schema"))?;
        self.refs.push(pointer);
        // A second visit would count twice what the definition's own place counts already.
        let mut inner =
            Walk { root: self.root, load: &mut Load::default(), refs: std::mem::take(&mut self.refs) };
        inner.schema(target, path)?;
        self.refs = inner.refs;
        self.refs.pop();
        Ok(())
    }
}

fn keywords(object: &Object, path: &str) -> Verdict {
    if let Some(name) = object.keys().find(|name| REFUSED.contains(&name.as_str())) {
        return Err(format!("{path}: property '{name}' is not supported"));
    }
    if object.get("minItems").is_some_and(|count| !matches!(count.as_u64(), Some(0 | 1))) {
        return Err(format!("{path}: 'minItems' values other than 0 or 1 are not supported"));
    }
    if let Some(format) = object.get("format").and_then(Value::as_str)
        && !FORMATS.contains(&format)
    {
        return Err(format!("{path}: string format '{format}' is not supported"));
    }
    if let Some(pattern) = object.get("pattern").and_then(Value::as_str)
        && REFUSED_PATTERNS.iter().any(|part| pattern.contains(part))
    {
        return Err(format!("{path}: the regex of 'pattern' is not supported"));
    }
    Ok(())
}
