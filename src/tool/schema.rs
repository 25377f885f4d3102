//! Schemas derived from Rust types.

use std::any::{TypeId, type_name};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{fold, strict};
use crate::error::{Error, Result};

/// The schema of an input type, as the API takes it.
#[derive(Clone)]
pub(super) struct Derived {
    schema: Value,
    type_name: &'static str,
}

impl Derived {
    pub(super) fn of<T: JsonSchema + 'static>() -> Result<Self> {
        let type_name = type_name::<T>();
        if TypeId::of::<T>() == TypeId::of::<()>() {
            return Ok(Self { schema: json!({"type": "object", "properties": {}}), type_name });
        }
        let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
        let schema = fold::fold_root(schema.to_value()).map_err(|reason| {
            Error::request(format!("`{type_name}` can't be the input of a tool: {reason}"))
        })?;
        Ok(Self { schema, type_name })
    }

    /// The schema's JSON, rewritten where it has to be strict.
    pub(super) fn json(&self, strict: bool) -> Result<Box<RawValue>> {
        let json = if strict {
            let schema = strict::rewrite(&self.schema).map_err(|reason| {
                Error::request(format!("`{}` can't be the input of a strict tool: {reason}", self.type_name))
            })?;
            to_raw_value(&schema)
        } else {
            to_raw_value(&self.schema)
        };
        json.map_err(|error| Error::request(format!("the schema of `{}`", self.type_name)).with_source(error))
    }
}
