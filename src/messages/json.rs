//! Reading JSON objects without rewriting them: the fields of an object as raw text, in order.
//!
//! Nothing here builds a number, so `serde_json/arbitrary_precision` changes nothing, and no
//! digit, key order or escape is lost.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

/// The fields of a JSON object, borrowed from its text, in the order of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields<'a> {
    entries: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    /// Reads an object; `None` if the text is not one.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The value of a field. Where a name stands twice the last one counts, as in most parsers.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.entries.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// The value of a field that is a string.
    pub(crate) fn str(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(string)
    }

    /// The value of a field that is `true` or `false`.
    pub(crate) fn bool(&self, name: &str) -> Option<bool> {
        match self.get(name)?.get() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.entries.iter().map(|(key, value)| (&**key, *value))
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(Str(key)) = map.next_key()? {
                    entries.push((key, map.next_value()?));
                }
                Ok(Fields { entries })
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// A string, borrowed where it holds no escapes (serde's own `Cow` never borrows).
#[derive(Debug)]
pub(crate) struct Str<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Str<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Str(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Str(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// The text of a JSON string; `None` if the value is not one. Half of a surrogate pair, which no
/// Rust text can hold, is read as U+FFFD.
pub(crate) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    let exact = serde_json::from_str::<Str<'_>>(value.get()).ok();
    exact.map(|Str(text)| text).or_else(|| {
        let whole = with_whole_pairs(value.get())?;
        serde_json::from_str(&whole).ok().map(Cow::Owned)
    })
}

/// A JSON text with each half of a surrogate pair replaced; `None` if there is none.
pub(crate) fn with_whole_pairs(text: &str) -> Option<String> {
    // The four digits behind a `\u` that begins at `at`.
    let unit = |at: usize| {
        let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut whole = String::with_capacity(text.len());
    let (mut from, mut at, mut changed) = (0, 0, false);
    while let Some(found) = text.get(at..)?.find('\\') {
        at += found;
        let Some(high) = unit(at) else {
            // Another escape: the backslash and what it escapes.
            at += 1 + text.get(at + 1..)?.chars().next()?.len_utf8();
            continue;
        };
        let is_pair = matches!(high, 0xd800..=0xdbff) && matches!(unit(at + 6), Some(0xdc00..=0xdfff));
        if matches!(high, 0xd800..=0xdfff) && !is_pair {
            whole.push_str(&text[from..at]);
            whole.push_str("\\ufffd");
            from = at + 6;
            changed = true;
        }
        at += if is_pair { 12 } else { 6 };
    }
    whole.push_str(&text[from..]);
    changed.then_some(whole)
}

/// The items of a JSON array; `None` if the value is not one.
pub(crate) fn items(text: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(text).ok()
}

pub(crate) fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

pub(crate) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// A value as JSON text, for types whose serialization can't fail: strings and maps of strings.
pub(crate) fn to_raw<T: serde::Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_default()
}

/// The raw text behind a `Deserialize`. Formats other than JSON, and serde's own buffers for
/// tagged and flattened types, have none, so the error names the way that always works.
pub(crate) fn raw<'de, D: Deserializer<'de>>(
    deserializer: D,
    instead: &str,
) -> Result<Box<RawValue>, D::Error> {
    Box::<RawValue>::deserialize(deserializer)
        .map_err(|error| de::Error::custom(format!("{error}; outside plain JSON, and inside a tagged, untagged or flattened type, keep the text and read it with `{instead}`")))
}

/// Writes text that is JSON already.
pub(crate) fn serialize_text<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let raw: &RawValue = serde_json::from_str(text).map_err(serde::ser::Error::custom)?;
    serde::Serialize::serialize(raw, serializer)
}

/// A name or an id that somebody else chose, for a message: one line of its first 128 bytes.
pub(crate) fn shown(name: &str) -> String {
    let cut = &name[..floor(name, 128)];
    let more = if cut.len() < name.len() { "…" } else { "" };
    format!("{}{more}", cut.escape_debug())
}

/// The largest character boundary that is not above `at`.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// Text that is JSON already.
pub(crate) fn text(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap_or_default()
}

/// What is wrong with a JSON text, and where. serde's own words may quote the text, and that may
/// be somebody's prompt.
pub(crate) fn place(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Eof => "it ends too early",
        Category::Syntax => "it is not valid JSON",
        Category::Data | Category::Io => "it is JSON of another shape",
    };
    format!("{what} (line {}, column {})", error.line(), error.column())
}

/// An object with a field set: replaced where it stands, else put at the end. Every other field
/// keeps its text and its place. Anything that is no object becomes one.
pub(crate) fn with_field(object: &str, name: &str, value: &str) -> Box<RawValue> {
    let fields = Fields::parse(object).unwrap_or_default();
    let mut text = String::with_capacity(object.len() + name.len() + value.len() + 4);
    let mut set = false;
    let mut put = |key: &str, value: &str| {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(to_raw(key).get());
        text.push(':');
        text.push_str(value);
    };
    for (key, old) in fields.iter() {
        if key == name {
            if !set {
                put(key, value);
            }
            set = true;
        } else {
            put(key, old.get());
        }
    }
    if !set {
        put(name, value);
    }
    text.push('}');
    RawValue::from_string(text).unwrap_or_default()
}

/// An object with the fields of another one laid over it, objects inside likewise. What is null
/// there changes nothing.
pub(crate) fn merged(old: &RawValue, new: &RawValue, depth: usize) -> Box<RawValue> {
    let (Some(old), Some(new)) = (Fields::parse(old.get()), Fields::parse(new.get())) else {
        return new.to_owned();
    };
    let mut rest: HashMap<&str, &RawValue> = new.iter().collect();
    // Of equal names the last one counts.
    let last: HashMap<&str, usize> = old.iter().enumerate().map(|(at, (key, _))| (key, at)).collect();
    let mut text = String::from("{");
    let mut put = |key: &str, value: &str| {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(to_raw(key).get());
        text.push(':');
        text.push_str(value);
    };
    for (_, (key, value)) in old.iter().enumerate().filter(|(at, (key, _))| last.get(key) == Some(at)) {
        match rest.remove(key) {
            Some(new) if is_object(new) && is_object(value) && depth > 0 => {
                put(key, merged(value, new, depth - 1).get());
            }
            Some(new) if !is_null(new) => put(key, new.get()),
            _ => put(key, value.get()),
        }
    }
    for (key, _) in new.iter() {
        if let Some(value) = rest.remove(key) {
            put(key, value.get());
        }
    }
    text.push('}');
    RawValue::from_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_order_text_and_the_last_of_a_name() {
        let text = r#"{"b":1e2,"a":"x\u00e9","b":{"z":1,"a":2},"t\u0079pe":"k"}"#;
        let fields = Fields::parse(text).unwrap();
        let names: Vec<_> = fields.iter().map(|(name, value)| (name, value.get())).collect();
        assert_eq!(names[0], ("b", "1e2"));
        assert_eq!(fields.get("b").unwrap().get(), r#"{"z":1,"a":2}"#);
        assert_eq!(fields.str("a").unwrap(), "xé");
        assert_eq!(fields.str("type").unwrap(), "k");
        assert!(Fields::parse("[]").is_none());
    }

    #[test]
    fn half_a_surrogate_pair_is_read_as_a_replacement() {
        for (text, read) in [
            (r#""a\ud83db""#, "a\u{fffd}b"),
            (r#""\ude00""#, "\u{fffd}"),
            (r#""\ud83d\ude00\ud83d""#, "😀\u{fffd}"),
            (r#""\ud83d\ud83d\ude00é\\ud83d""#, "\u{fffd}😀é\\ud83d"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
        ] {
            let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
            assert_eq!(string(&raw).unwrap(), read, "{text}");
        }
    }

    #[test]
    fn objects_are_laid_over_each_other() {
        let raw = text;
        let old = raw(r#"{"a":1,"b":{"x":1e2,"y":2},"c":3,"n":null}"#);
        let new = raw(r#"{"c":null,"d":4,"b":{"y":5,"z":6},"a":7,"n":8}"#);
        assert_eq!(merged(&old, &new, 4).get(), r#"{"a":7,"b":{"x":1e2,"y":5,"z":6},"c":3,"n":8,"d":4}"#);
        assert_eq!(merged(&old, &new, 0).get(), r#"{"a":7,"b":{"y":5,"z":6},"c":3,"n":8,"d":4}"#);
        assert_eq!(merged(&raw("null"), &new, 4).get(), new.get());
        assert_eq!(
            merged(&raw(r#"{"a":1,"a":2}"#), &new, 0).get(),
            r#"{"a":7,"c":null,"d":4,"b":{"y":5,"z":6},"n":8}"#
        );
        assert_eq!(
            merged(&old, &raw(r#"{"a":5,"a":6}"#), 0).get(),
            r#"{"a":6,"b":{"x":1e2,"y":2},"c":3,"n":null}"#
        );
    }

    #[test]
    fn a_field_is_set_in_its_place() {
        assert_eq!(with_field(r#"{"a":1e2,"b":2,"a":3}"#, "a", "{}").get(), r#"{"a":{},"b":2}"#);
        assert_eq!(with_field(r#"{"a":1e2}"#, "b", "2").get(), r#"{"a":1e2,"b":2}"#);
        assert_eq!(with_field("null", "b", "2").get(), r#"{"b":2}"#);
    }
}
