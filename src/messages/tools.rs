//! How the model may use its tools, and how hard it works.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::open::open_enum;

open_enum! {
    /// How much work the model puts into an answer. Which levels exist depends on the model.
    Effort {
        /// Little.
        Low = "low",
        /// The default of some models.
        Medium = "medium",
        /// The default of most.
        High = "high",
        /// More than high.
        XHigh = "xhigh",
        /// All that the model has.
        Max = "max",
    }
}

/// Which tools the model may call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides; the default.
    Auto {
        /// At most one call in a turn.
        one_at_a_time: bool,
    },
    /// The model must call some tool. Current models refuse this with a 400, and a loop that
    /// forces a call on every turn ends by its cap.
    Any,
    /// The model must call this tool, with the same caveats as [`Any`](Self::Any).
    Tool(String),
    /// No calls.
    None,
}

impl Serialize for ToolChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Auto { one_at_a_time } => {
                map.serialize_entry("type", "auto")?;
                if *one_at_a_time {
                    map.serialize_entry("disable_parallel_tool_use", &true)?;
                }
            }
            Self::Any => map.serialize_entry("type", "any")?,
            Self::Tool(name) => {
                map.serialize_entry("type", "tool")?;
                map.serialize_entry("name", name)?;
            }
            Self::None => map.serialize_entry("type", "none")?,
        }
        map.end()
    }
}
