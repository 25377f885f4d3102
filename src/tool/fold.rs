//! The root of an input schema as the API takes it: one object, no combinators, no reference.

use serde_json::{Value, json};

use super::subschema::{self, CONTAINERS, Object, alternatives, has_type, items, sentences};

/// Makes the root one object. Variants become the union of their properties, of which those are
/// required that every variant requires; which belong together is told in the description.
/// Every reference still leads where it led. `Err` says what has no such form.
#[cfg(feature = "schemars")]
pub(super) fn fold_root(schema: Value) -> Result<Value, String> {
    fold_root_as(schema, "Takes exactly one of these forms:")
}

/// [`fold_root`] with other words before the list of forms.
pub(crate) fn fold_root_as(mut schema: Value, lead: &str) -> Result<Value, String> {
    let Some(object) = schema.as_object_mut() else {
        return match schema {
            Value::Bool(true) => Ok(json!({"type": "object"})),
            _ => Err("it is not a schema".to_owned()),
        };
    };
    object.shift_remove("$schema");
    let title = object.shift_remove("title");
    let description = object.shift_remove("description");
    if COMBINATORS.iter().any(|combinator| object.contains_key(*combinator)) {
        keep_root(&mut schema, title.as_ref());
    }

    let mut variants = Vec::new();
    for variant in alternatives(&schema, &schema, &mut Vec::new())? {
        let mut variant = variant.schema;
        // An input is always an object, so an alternative that is `null` is never taken.
        if variant.get("type").is_some_and(|kind| kind == "null") {
            continue;
        }
        CONTAINERS.iter().for_each(|container| drop(variant.shift_remove(*container)));
        let kind = ["enum", "const", "type"].iter().find_map(|keyword| variant.get(*keyword));
        if let Some(kind) = kind
            && !has_type(&variant, "object")
        {
            return Err(format!("an input is always an object, and {kind} is not"));
        }
        variants.push(variant);
    }
    let mut folded = match <[_; 1]>::try_from(variants) {
        Ok([mut variant]) => {
            let own = variant.shift_remove("description");
            let text =
                sentences(description.as_ref().and_then(Value::as_str), own.as_ref().and_then(Value::as_str));
            with_description(variant, &text)
        }
        Err(variants) if variants.is_empty() => return Err("no input fits it".to_owned()),
        Err(variants) => {
            let forms = forms(&variants, lead);
            with_description(
                fold(&variants)?,
                &sentences(description.as_ref().and_then(Value::as_str), Some(&forms)),
            )
        }
    };
    for container in CONTAINERS {
        if let Some(definitions) = schema.get(container) {
            folded.insert(container.to_owned(), definitions.clone());
        }
    }
    let mut folded = Value::Object(folded);
    prune(&mut folded);
    for reference in subschema::references(&folded, true) {
        subschema::resolve(&folded, &reference)?;
    }
    Ok(folded)
}

/// Where the schema refers to its own root, which is about to change, the root as it was becomes
/// a definition.
fn keep_root(schema: &mut Value, title: Option<&Value>) {
    if !subschema::references(schema, true).iter().any(|reference| reference == "#") {
        return;
    }
    let taken = |name: &str| schema.get("$defs").is_some_and(|definitions| definitions.get(name).is_some());
    let mut name: String = title.and_then(Value::as_str).unwrap_or_default().to_owned();
    name.retain(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    while name.is_empty() || taken(&name) {
        name.push_str("Root");
    }
    let reference = format!("#/$defs/{name}");
    subschema::walk(schema, &mut |object| {
        if let Some(target) = object.get_mut("$ref")
            && target == "#"
        {
            *target = Value::String(reference.clone());
        }
    });
    let mut root = schema.clone();
    if let (Some(root), Some(schema)) = (root.as_object_mut(), schema.as_object_mut()) {
        CONTAINERS.iter().for_each(|container| drop(root.shift_remove(*container)));
        let definitions = schema.entry("$defs").or_insert_with(|| json!({}));
        if let Some(definitions) = definitions.as_object_mut() {
            definitions.insert(name, Value::Object(root.clone()));
        }
    }
}

/// One object for all variants.
fn fold(variants: &[Object]) -> Result<Object, String> {
    let mut properties = Object::new();
    for (name, schema) in variants.iter().flat_map(properties_of) {
        if let Some(list) = properties.entry(name.clone()).or_insert_with(|| json!([])).as_array_mut()
            && !list.iter().any(|other| same(other, schema))
        {
            list.push(schema.clone());
        }
    }
    for schemas in properties.values_mut() {
        *schemas = either(schemas.as_array().map(Vec::as_slice).unwrap_or_default());
    }
    let everywhere = |name: &&Value| variants.iter().all(|variant| requires(variant, name));
    let required: Vec<_> =
        items(variants.first().and_then(|variant| variant.get("required"))).filter(everywhere).collect();
    let mut folded = Object::new();
    folded.insert("type".to_owned(), json!("object"));
    folded.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        folded.insert("required".to_owned(), json!(required));
    }
    for (key, value) in variants.iter().flatten() {
        let common = variants.iter().all(|variant| variant.get(key) == Some(value));
        match key.as_str() {
            "type" | "properties" | "required" | "description" | "title" => {}
            _ if common => drop(folded.insert(key.clone(), value.clone())),
            // What is not said is allowed, so leaving these out only widens the schema.
            "additionalProperties"
            | "unevaluatedProperties"
            | "default"
            | "examples"
            | "deprecated"
            | "$comment" => {}
            _ => return Err(format!("its variants differ in `{key}`, which one object can't express")),
        }
    }
    Ok(folded)
}

/// What the variants are, for the model.
fn forms(variants: &[Object], lead: &str) -> String {
    let mut text = lead.to_owned();
    for variant in variants {
        let mut fields = Vec::new();
        for (name, schema) in properties_of(variant) {
            fields.push(match single(schema) {
                Some(value) => format!("`{name}`: {value}"),
                None if requires(variant, &json!(name)) => format!("`{name}`"),
                None => format!("`{name}` (optional)"),
            });
        }
        let fields = if fields.is_empty() { "no fields".to_owned() } else { fields.join(", ") };
        text.push_str("\n- ");
        text.push_str(&fields);
        if let Some(description) = variant.get("description").and_then(Value::as_str) {
            text.push_str(": ");
            text.push_str(&description.replace('\n', " "));
        }
    }
    text
}

/// A schema for what fits any of several.
fn either(schemas: &[Value]) -> Value {
    if let [schema] = schemas {
        return schema.clone();
    }
    let tags: Option<Vec<_>> = schemas.iter().map(single).collect();
    match tags {
        Some(tags) if tags.iter().all(|tag| tag.is_string()) => json!({"type": "string", "enum": tags}),
        _ => json!({"anyOf": schemas}),
    }
}

/// The one value that fits, as in the tag of a variant.
fn single(schema: &Value) -> Option<&Value> {
    let object = schema.as_object()?;
    match object.get("enum").and_then(Value::as_array).map(Vec::as_slice) {
        Some([value]) => Some(value),
        _ => object.get("const"),
    }
}

/// True if two schemas differ in nothing but what they tell the reader.
fn same(one: &Value, other: &Value) -> bool {
    let bare = |schema: &Value| {
        let mut schema = schema.clone();
        if let Some(object) = schema.as_object_mut() {
            object.shift_remove("description");
        }
        schema
    };
    one == other || bare(one) == bare(other)
}

fn properties_of(variant: &Object) -> impl Iterator<Item = (&String, &Value)> {
    variant.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn requires(variant: &Object, name: &Value) -> bool {
    items(variant.get("required")).any(|required| required == name)
}

/// The schema as an object's, with `type` and `description` first.
fn with_description(schema: Object, text: &str) -> Object {
    let mut described = Object::new();
    described.insert("type".to_owned(), json!("object"));
    if !text.is_empty() {
        described.insert("description".to_owned(), json!(text));
    }
    for (key, value) in schema {
        described.entry(key).or_insert(value);
    }
    described
}

/// Takes out the definitions that nothing refers to any longer.
fn prune(schema: &mut Value) {
    let mut open = subschema::references(schema, false);
    let mut used = Vec::new();
    while let Some(reference) = open.pop() {
        let Some((container, name)) = subschema::definition(&reference) else { continue };
        if used.contains(&(container, name.clone())) {
            continue;
        }
        if let Some(definition) = schema.get(container).and_then(|definitions| definitions.get(&name)) {
            open.extend(subschema::references(definition, true));
        }
        used.push((container, name));
    }
    let Some(object) = schema.as_object_mut() else { return };
    for container in CONTAINERS {
        let Some(definitions) = object.get_mut(container).and_then(Value::as_object_mut) else { continue };
        definitions.retain(|name, _| used.iter().any(|(other, used)| *other == container && used == name));
        if definitions.is_empty() {
            object.shift_remove(container);
        }
    }
}

const COMBINATORS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

#[cfg(all(test, feature = "schemars"))]
mod tests {
    use super::*;

    fn folded(schema: Value) -> Value {
        fold_root(schema).unwrap()
    }

    fn text(schema: &Value) -> &str {
        schema["description"].as_str().unwrap_or_default()
    }

    #[test]
    fn an_object_stays_as_it_is() {
        let schema = json!({
            "$schema": "s", "title": "T", "description": "d", "type": "object",
            "properties": {"z": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "a": {"title": "kept"}},
            "required": ["z"], "x-own": 1, "$defs": {},
        });
        let expected = json!({
            "type": "object", "description": "d",
            "properties": {"z": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "a": {"title": "kept"}},
            "required": ["z"], "x-own": 1,
        });
        assert_eq!(folded(schema).to_string(), expected.to_string());
        assert_eq!(folded(json!({"title": "AnyValue"})), json!({"type": "object"}));
        assert_eq!(folded(json!(true)), json!({"type": "object"}));
    }

    #[test]
    fn a_root_reference_is_put_in_place_and_what_it_needs_stays() {
        let schema = json!({
            "$ref": "#/$defs/A~1b%20c",
            "description": "outer",
            "$defs": {
                "A/b c": {"description": "inner", "type": "object", "properties": {"n": {"$ref": "#/$defs/A~1b%20c"}, "p": {"$ref": "#/$defs/P"}}},
                "P": {"type": "string"},
                "Unused": {"$ref": "#/$defs/P"},
            },
        });
        let folded = folded(schema);
        assert_eq!(text(&folded), "outer\n\ninner");
        assert_eq!(folded["properties"]["p"], json!({"$ref": "#/$defs/P"}));
        let names: Vec<_> = folded["$defs"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["A/b c", "P"]);
    }

    #[test]
    fn variants_become_one_object() {
        let schema = json!({
            "description": "Does sums.",
            "oneOf": [
                {"description": "Adds\nboth", "type": "object", "properties": {"op": {"type": "string", "const": "add"}, "a": {"type": "number"}, "b": {"type": "number"}}, "required": ["op", "a", "b"]},
                {"type": "object", "properties": {"op": {"type": "string", "const": "neg"}, "a": {"type": "number", "description": "what"}, "exact": {"type": "boolean"}}, "required": ["op", "a"]},
                {"type": "object", "properties": {"op": {"type": "string", "const": "pi"}, "a": {"type": "null"}}, "required": ["op", "a"]},
            ],
        });
        let folded = folded(schema);
        assert_eq!(
            folded["properties"],
            json!({
                "op": {"type": "string", "enum": ["add", "neg", "pi"]},
                "a": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                "b": {"type": "number"},
                "exact": {"type": "boolean"},
            })
        );
        assert_eq!(folded["required"], json!(["op", "a"]));
        assert_eq!(
            text(&folded),
            "Does sums.\n\nTakes exactly one of these forms:\n\
             - `op`: \"add\", `a`, `b`: Adds both\n- `op`: \"neg\", `a`, `exact` (optional)\n- `op`: \"pi\", `a`"
        );
        assert!(folded.get("oneOf").is_none());
    }

    #[test]
    fn combinators_beside_properties_join_them() {
        let schema = json!({
            "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
            "allOf": [
                {"anyOf": [{"properties": {"b": {}}, "required": ["b"]}, {"properties": {"c": {}}, "required": ["c"]}]},
                {"$ref": "#/$defs/D"},
            ],
            "$defs": {"D": {"type": "object", "properties": {"d": {}}, "required": ["d"]}},
        });
        let folded = folded(schema);
        assert_eq!(folded["properties"], json!({"a": {"type": "string"}, "b": {}, "d": {}, "c": {}}));
        assert_eq!(folded["required"], json!(["a", "d"]));
        assert!(text(&folded).ends_with("- `a`, `b`, `d`\n- `a`, `c`, `d`"), "{folded}");
        assert!(folded.get("$defs").is_none());
    }

    /// A recursive enum refers to its root, which is another schema afterwards.
    #[test]
    fn a_root_that_changes_stays_reachable() {
        let schema = json!({
            "title": "Tree<u8>",
            "oneOf": [
                {"type": "object", "properties": {"Leaf": {"type": "integer"}}, "required": ["Leaf"], "additionalProperties": false},
                {"type": "object", "properties": {"Node": {"type": "array", "items": {"$ref": "#"}}}, "required": ["Node"], "additionalProperties": false},
            ],
            "$defs": {"Treeu8": {"type": "string"}},
        });
        let folded = folded(schema);
        assert_eq!(folded["properties"]["Node"]["items"], json!({"$ref": "#/$defs/Treeu8Root"}));
        let kept = &folded["$defs"]["Treeu8Root"];
        assert_eq!(kept["oneOf"][1]["properties"]["Node"]["items"], json!({"$ref": "#/$defs/Treeu8Root"}));
        assert_eq!(folded["additionalProperties"], json!(false));
        assert!(folded.get("required").is_none());
    }

    #[test]
    fn null_beside_an_object_is_never_taken() {
        let object = json!({"type": "object", "properties": {"a": {}}});
        let schema = json!({"anyOf": [object, {"type": "null"}]});
        assert_eq!(folded(schema), object);
        assert_eq!(folded(json!({"type": ["object", "null"]})), json!({"type": "object"}));
    }

    #[test]
    fn what_has_no_form_is_refused() {
        let object = json!({"type": "object"});
        for (schema, reason) in [
            (json!({"type": "string"}), "\"string\" is not"),
            (json!({"type": ["string", "null"]}), "is not"),
            (json!({"enum": ["a"]}), "[\"a\"] is not"),
            (json!({"type": "null"}), "no input fits"),
            (json!({"oneOf": [object, {"type": "string", "enum": ["A"]}]}), "[\"A\"] is not"),
            (json!({"oneOf": []}), "no input fits"),
            (json!(false), "not a schema"),
            (json!({"$ref": "#"}), "refers to itself"),
            (json!({"$ref": "https://example.com/s"}), "leaves the schema"),
            (json!({"$ref": "#/$defs/X"}), "leads nowhere"),
            (json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/X"}}}), "leads nowhere"),
            (json!({"oneOf": [object, {"type": "object", "minProperties": 1}]}), "`minProperties`"),
            (json!({"allOf": [{"type": "object"}, {"type": "array"}]}), "nothing is both"),
            (
                json!({"allOf": [{"properties": {"a": {"type": "null"}}}, {"properties": {"a": {}}}]}),
                "`a` is defined twice",
            ),
        ] {
            let error = fold_root(schema.clone()).unwrap_err();
            assert!(error.contains(reason), "{schema}: {error}");
        }
        let many: Vec<_> = (0..9).map(|n| json!({"properties": {format!("p{n}"): {}}})).collect();
        let error = fold_root(json!({"anyOf": many, "oneOf": many})).unwrap_err();
        assert!(error.contains("more than 64 variants"), "{error}");
    }
}
