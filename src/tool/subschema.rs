//! JSON schemas as values: walking them, following references, and joining two into one.

use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

/// One way to fit a schema, free of `$ref`, `allOf`, `anyOf` and `oneOf` at its root.
#[derive(Clone)]
pub(super) struct Alternative {
    pub(super) schema: Object,
    /// The references that were followed to get here.
    pub(super) refs: Vec<String>,
}

/// All ways to fit a schema. `Err` says why it can't be taken apart.
pub(super) fn alternatives(
    root: &Value,
    schema: &Value,
    followed: &mut Vec<String>,
) -> Result<Vec<Alternative>, String> {
    let mut base = match schema {
        Value::Object(object) => object.clone(),
        Value::Bool(true) => Object::new(),
        _ => return Ok(Vec::new()),
    };
    let reference = base.shift_remove("$ref");
    let all = base.shift_remove("allOf");
    let choices = [base.shift_remove("oneOf"), base.shift_remove("anyOf")];
    let mut list = vec![Alternative { schema: base, refs: Vec::new() }];
    if let Some(reference) = reference {
        let reference = reference.as_str().unwrap_or_default();
        if followed.iter().any(|earlier| earlier == reference) {
            return Err(format!("`{reference}` refers to itself"));
        }
        followed.push(reference.to_owned());
        let mut targets = alternatives(root, resolve(root, reference)?, followed)?;
        followed.pop();
        targets.iter_mut().for_each(|target| target.refs.push(reference.to_owned()));
        list = combine(&list, &targets)?;
    }
    for member in items(all.as_ref()) {
        list = combine(&list, &alternatives(root, member, followed)?)?;
    }
    for choice in choices.iter().flatten() {
        let mut branches = Vec::new();
        for branch in items(Some(choice)) {
            branches.extend(alternatives(root, branch, followed)?);
        }
        list = combine(&list, &branches)?;
    }
    Ok(list)
}

/// Every pair of both, joined.
fn combine(left: &[Alternative], right: &[Alternative]) -> Result<Vec<Alternative>, String> {
    if left.len() * right.len() > MAX_ALTERNATIVES {
        return Err(format!("it has more than {MAX_ALTERNATIVES} variants"));
    }
    let mut list = Vec::with_capacity(left.len() * right.len());
    for one in left {
        for other in right {
            let schema = join(one.schema.clone(), &other.schema)?;
            let refs = one.refs.iter().chain(&other.refs).cloned().collect();
            list.push(Alternative { schema, refs });
        }
    }
    Ok(list)
}

/// The schema that both describe together. `Err` names the keyword that has no common form.
fn join(mut base: Object, other: &Object) -> Result<Object, String> {
    for (key, value) in other {
        let Some(own) = base.get_mut(key) else {
            base.insert(key.clone(), value.clone());
            continue;
        };
        match key.as_str() {
            _ if own == value => {}
            "properties" => {
                let (Some(own), Some(other)) = (own.as_object_mut(), value.as_object()) else { continue };
                for (name, schema) in other {
                    match own.get(name) {
                        Some(earlier) if earlier != schema => {
                            return Err(format!("`{name}` is defined twice, in two ways"));
                        }
                        Some(_) => {}
                        None => drop(own.insert(name.clone(), schema.clone())),
                    }
                }
            }
            "required" => {
                let (Some(own), Some(other)) = (own.as_array_mut(), value.as_array()) else { continue };
                let missing: Vec<_> = other.iter().filter(|name| !own.contains(name)).cloned().collect();
                own.extend(missing);
            }
            "type" => {
                let common: Vec<_> =
                    items_or_one(own).filter(|name| items_or_one(value).any(|o| o == *name)).collect();
                *own = match common[..] {
                    [] => return Err(format!("nothing is both {own} and {value}")),
                    [one] => one.clone(),
                    _ => common.into_iter().cloned().collect(),
                };
            }
            "description" => *own = Value::String(sentences(own.as_str(), value.as_str())),
            // Each of both speaks of its own properties, and the joined schema has all of them.
            "additionalProperties" | "unevaluatedProperties" if own == &Value::Bool(false) => {}
            "additionalProperties" | "unevaluatedProperties" if value == &Value::Bool(false) => {
                *own = value.clone()
            }
            "title" | "default" | "examples" | "$comment" => {}
            _ => return Err(format!("`{key}` is given twice, in two ways")),
        }
    }
    Ok(base)
}

/// The schema that a local reference points to.
pub(crate) fn resolve<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, String> {
    let Some(fragment) = reference.strip_prefix('#') else {
        return Err(format!("the reference `{reference}` leaves the schema"));
    };
    root.pointer(&percent_decode(fragment))
        .ok_or_else(|| format!("the reference `{reference}` leads nowhere"))
}

/// The container and the name of the definition that a reference points to, if it does.
pub(super) fn definition(reference: &str) -> Option<(&'static str, String)> {
    CONTAINERS.into_iter().find_map(|container| {
        let name = reference.strip_prefix("#/")?.strip_prefix(container)?.strip_prefix('/')?;
        let name = name.split('/').next().unwrap_or_default();
        Some((container, percent_decode(name).replace("~1", "/").replace("~0", "~")))
    })
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match tail {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                bytes.push(high * 16 + low);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// How a keyword holds schemas.
#[derive(Clone, Copy)]
pub(crate) enum Holds {
    /// One.
    One,
    /// An object of them, under names of the author's choice.
    Named,
    /// A list of them.
    List,
    /// `items`: one, or in older drafts a list.
    OneOrList,
}

/// How a keyword holds schemas, `None` if it holds none.
pub(crate) fn holds(keyword: &str) -> Option<Holds> {
    Some(match keyword {
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => Holds::Named,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Holds::List,
        "items" => Holds::OneOrList,
        "additionalItems"
        | "unevaluatedItems"
        | "contains"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else"
        | "contentSchema" => Holds::One,
        _ => return None,
    })
}

/// Calls `f` for a schema and every schema in it.
pub(super) fn walk(schema: &mut Value, f: &mut dyn FnMut(&mut Object)) {
    let Some(object) = schema.as_object_mut() else { return };
    f(object);
    for (key, value) in object.iter_mut() {
        match (holds(key), value) {
            (Some(Holds::Named), Value::Object(map)) => {
                map.values_mut().for_each(|schema| walk(schema, f));
            }
            (Some(Holds::List | Holds::OneOrList), Value::Array(list)) => {
                list.iter_mut().for_each(|schema| walk(schema, f));
            }
            (Some(Holds::One | Holds::OneOrList), value) => walk(value, f),
            _ => {}
        }
    }
}

/// The references in a schema, those in its definitions only where `definitions` says so.
pub(super) fn references(schema: &Value, definitions: bool) -> Vec<String> {
    let mut schema = schema.clone();
    if !definitions && let Some(object) = schema.as_object_mut() {
        CONTAINERS.iter().for_each(|container| drop(object.shift_remove(*container)));
    }
    let mut list = Vec::new();
    walk(&mut schema, &mut |object| {
        list.extend(object.get("$ref").and_then(Value::as_str).map(ToOwned::to_owned));
    });
    list
}

pub(crate) fn items(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

/// The items of a list, or the value itself.
pub(super) fn items_or_one(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice).iter()
}

/// True if `type` names a type, alone or among others.
pub(crate) fn has_type(schema: &Object, name: &str) -> bool {
    schema.get("type").is_some_and(|kind| items_or_one(kind).any(|kind| kind == name))
}

/// Two descriptions as one.
pub(crate) fn sentences(one: Option<&str>, other: Option<&str>) -> String {
    match (one.filter(|text| !text.is_empty()), other.filter(|text| !text.is_empty())) {
        (Some(one), Some(other)) => format!("{one}\n\n{other}"),
        (one, other) => one.or(other).unwrap_or_default().to_owned(),
    }
}

pub(super) const CONTAINERS: [&str; 2] = ["$defs", "definitions"];

const MAX_ALTERNATIVES: usize = 64;
