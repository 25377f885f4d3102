//! What the keywords of JSON Schema mean, as far as it matters here.

use serde_json::value::RawValue;

use crate::messages::json;
use crate::tool::subschema::{Holds, holds};

/// What the value of a keyword is.
#[derive(Clone, Copy)]
pub(super) enum Is {
    /// One or more schemas.
    Schemas(Holds),
    /// A number that limits others.
    Bound,
    /// The name of a type, or a list of such names.
    Type,
    /// A list of values.
    Values,
    /// A list of names.
    Names,
    /// A text for the reader.
    Text,
    /// A text with a meaning.
    Word,
    /// `true` or `false`.
    Flag,
    /// Anything.
    Data,
}

pub(super) fn meaning(keyword: &str) -> Is {
    if let Some(holds) = holds(keyword) {
        return Is::Schemas(holds);
    }
    match keyword {
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "minLength" | "maxLength"
        | "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minContains" | "maxContains"
        | "multipleOf" => Is::Bound,
        "type" => Is::Type,
        "enum" | "examples" => Is::Values,
        "required" => Is::Names,
        "title" | "description" | "$comment" => Is::Text,
        "$ref" | "$id" | "$schema" | "$anchor" | "$dynamicRef" | "$dynamicAnchor" | "format" | "pattern"
        | "contentEncoding" | "contentMediaType" => Is::Word,
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => Is::Flag,
        _ => Is::Data,
    }
}

pub(super) fn is_string(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

pub(super) fn is_empty_list(text: &str) -> bool {
    json::items(text).is_some_and(|items| items.is_empty())
}

pub(super) fn is_type(value: &RawValue) -> bool {
    let known = |value: &RawValue| json::string(value).is_some_and(|name| TYPES.contains(&&*name));
    match json::items(value.get()) {
        Some(names) => !names.is_empty() && names.into_iter().all(known),
        None => known(value),
    }
}

/// True for a number beyond 2^53, from where on many readers of JSON round integers.
pub(super) fn is_beyond_exact(number: &str) -> bool {
    match number.parse::<i128>() {
        Ok(number) => number.unsigned_abs() > 1 << 53,
        Err(_) => number.parse::<f64>().is_ok_and(|number| number.abs() > 9_007_199_254_740_992.0),
    }
}

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
