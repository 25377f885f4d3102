//! Content blocks: typed views for reading, and constructors for what a caller sends.

use std::borrow::Cow;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::image;
use super::json::{self, Fields};
use crate::error::{Error, Result};

/// One block of a message, as a typed view.
///
/// A block that this version does not know, or a known one whose shape is not the expected one,
/// is [`Other`](Self::Other) and keeps its JSON. Each typed block keeps the fields that it does
/// not name, so a message rebuilt from its blocks loses none. The wire text of a message is
/// never rewritten from this view.
///
/// The API adds blocks: a match needs an arm for the rest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ContentBlock {
    /// A document that the caller sends.
    Document(DocumentBlock),
    /// An image that the caller sends.
    Image(ImageBlock),
    /// Thinking that only the API can read.
    RedactedThinking(RedactedThinkingBlock),
    /// The result of a tool that the API ran.
    ServerToolResult(ServerToolResultBlock),
    /// A call of a tool that the API runs itself.
    ServerToolUse(ServerToolUseBlock),
    /// Text.
    Text(TextBlock),
    /// The model's thinking; empty text with a signature where it is not displayed.
    Thinking(ThinkingBlock),
    /// The answer to a call.
    ToolResult(ToolResultBlock),
    /// A call that the caller has to answer.
    ToolUse(ToolUseBlock),
    /// Any other block, as JSON.
    Other(OtherBlock),
}

/// The fields of a block that its type does not name, in the order of the wire.
#[derive(Clone, Default)]
pub struct Extra {
    entries: Vec<(Box<str>, Box<RawValue>)>,
}

/// Text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TextBlock {
    /// The text.
    pub text: String,
    /// `citations`, `cache_control` and whatever else there is.
    pub extra: Extra,
}

/// Thinking.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThinkingBlock {
    /// The text, empty where the API does not display it.
    pub thinking: String,
    /// What makes the block valid when it is sent back.
    pub signature: Option<String>,
    /// The other fields.
    pub extra: Extra,
}

/// Thinking that only the API can read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedactedThinkingBlock {
    /// The encrypted thinking.
    pub data: String,
    /// The other fields.
    pub extra: Extra,
}

/// A call that the caller has to answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolUseBlock {
    /// The id, unique in the conversation.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The input as the model wrote it, digit by digit.
    pub input: Box<RawValue>,
    /// `caller`, `toolset_name` and whatever else there is.
    pub extra: Extra,
}

/// A call of a tool that the API runs: `server_tool_use` or `mcp_tool_use`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerToolUseBlock {
    /// The block's `type`.
    pub kind: Box<str>,
    /// The id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The input as the model wrote it.
    pub input: Box<RawValue>,
    /// The other fields.
    pub extra: Extra,
}

/// The result of a tool that the API ran: any `…_tool_result`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerToolResultBlock {
    /// The block's `type`, `web_search_tool_result` for instance.
    pub kind: Box<str>,
    /// The id of the call.
    pub tool_use_id: String,
    /// The result; a list, an object or a string, as the tool has it.
    pub content: Box<RawValue>,
    /// The other fields.
    pub extra: Extra,
}

/// The answer to a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolResultBlock {
    /// The id of the call.
    pub tool_use_id: String,
    /// A string or a list of blocks; absent for an empty result.
    pub content: Option<Box<RawValue>>,
    /// True if the call failed.
    pub is_error: bool,
    /// The other fields.
    pub extra: Extra,
}

/// An image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImageBlock {
    /// `{"type":"base64"|"url"|"file",…}`.
    pub source: Box<RawValue>,
    /// The other fields.
    pub extra: Extra,
}

/// A document.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DocumentBlock {
    /// `{"type":"base64"|"text"|"content"|"url"|"file",…}`.
    pub source: Box<RawValue>,
    /// `title`, `context`, `citations` and whatever else there is.
    pub extra: Extra,
}

/// A block as JSON.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OtherBlock {
    /// The block's `type`, empty where it has none.
    pub kind: Box<str>,
    /// The whole block.
    pub json: Box<RawValue>,
}

impl ContentBlock {
    /// A text block. Blank text is refused by the message that it is put into.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), extra: Extra::default() })
    }

    /// An image from its bytes; the media type is read from them.
    ///
    /// # Errors
    /// The bytes are not a PNG, JPEG, GIF or WebP image.
    pub fn image(bytes: &[u8]) -> Result<Self> {
        let media_type = image::media_type(bytes).ok_or_else(|| {
            Error::request(
                "the bytes of the image are neither PNG, JPEG, GIF nor WebP: the API takes no others",
            )
        })?;
        Ok(Self::image_base64(media_type, &image::encode(bytes)))
    }

    /// An image that is base64 already. No data, or a media type that the data contradicts, is
    /// refused by the message that the block is put into.
    #[must_use]
    pub fn image_base64(media_type: &str, data: &str) -> Self {
        let source = object(&[("type", &"base64"), ("media_type", &media_type), ("data", &data)]);
        Self::Image(ImageBlock { source, extra: Extra::default() })
    }

    /// An image by its URL. A URL that expires breaks the replay of the conversation.
    #[must_use]
    pub fn image_url(url: &str) -> Self {
        let source = object(&[("type", &"url"), ("url", &url)]);
        Self::Image(ImageBlock { source, extra: Extra::default() })
    }

    /// A document of plain text.
    #[must_use]
    pub fn document_text(text: &str) -> Self {
        let source = object(&[("type", &"text"), ("media_type", &"text/plain"), ("data", &text)]);
        Self::Document(DocumentBlock { source, extra: Extra::default() })
    }

    /// The answer to a call, as text.
    #[must_use]
    pub fn tool_result(tool_use_id: impl Into<String>, text: &str) -> Self {
        Self::ToolResult(ToolResultBlock {
            tool_use_id: tool_use_id.into(),
            content: Some(raw(text)),
            is_error: false,
            extra: Extra::default(),
        })
    }

    /// The answer to a call that failed.
    #[must_use]
    pub fn tool_error(tool_use_id: impl Into<String>, text: &str) -> Self {
        Self::ToolResult(ToolResultBlock {
            tool_use_id: tool_use_id.into(),
            content: Some(raw(text)),
            is_error: true,
            extra: Extra::default(),
        })
    }

    /// Reads any block.
    ///
    /// # Errors
    /// The text is not a JSON object. What the object holds is not judged here.
    pub fn from_json(text: &str) -> Result<Self> {
        let raw = serde_json::from_str::<&RawValue>(text).map_err(|error| {
            Error::request("a content block is not valid JSON").with_source(json::place(&error))
        })?;
        if !json::is_object(raw) {
            return Err(Error::request("a content block must be a JSON object"));
        }
        Ok(Self::from_raw(raw))
    }

    /// Reads a block and never fails: what has another shape is [`Other`](Self::Other).
    pub(crate) fn from_raw(raw: &RawValue) -> Self {
        let fields = Fields::parse(raw.get()).unwrap_or_default();
        let kind = fields.str("type").unwrap_or_default();
        typed(&kind, &fields)
            .unwrap_or_else(|| Self::Other(OtherBlock { kind: (&*kind).into(), json: raw.to_owned() }))
    }

    /// The block's `type` on the wire.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Document(_) => "document",
            Self::Image(_) => "image",
            Self::RedactedThinking(_) => "redacted_thinking",
            Self::ServerToolResult(block) => &block.kind,
            Self::ServerToolUse(block) => &block.kind,
            Self::Text(_) => "text",
            Self::Thinking(_) => "thinking",
            Self::ToolResult(_) => "tool_result",
            Self::ToolUse(_) => "tool_use",
            Self::Other(block) => &block.kind,
        }
    }

    /// The text, if this is a text block.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(block) => Some(&block.text),
            _ => None,
        }
    }

    /// Marks the block as the end of a cached prefix: `cache_control: {"type":"ephemeral"}`.
    /// Does nothing on thinking and on blocks of other kinds.
    #[must_use]
    pub fn cached(mut self) -> Self {
        let extra = match &mut self {
            Self::Document(block) => &mut block.extra,
            Self::Image(block) => &mut block.extra,
            Self::Text(block) => &mut block.extra,
            Self::ToolResult(block) => &mut block.extra,
            Self::ToolUse(block) => &mut block.extra,
            _ => return self,
        };
        extra.set("cache_control", object(&[("type", &"ephemeral")]));
        self
    }
}

/// True if a block of this kind is a call, whoever runs it.
pub(crate) fn is_call(kind: &str) -> bool {
    matches!(kind, "tool_use" | "server_tool_use" | "mcp_tool_use")
}

/// The typed view of a known block whose shape is the expected one.
fn typed(kind: &str, fields: &Fields<'_>) -> Option<ContentBlock> {
    let text = |name| fields.str(name).map(Cow::into_owned);
    Some(match kind {
        "text" => ContentBlock::Text(TextBlock { text: text("text")?, extra: fields.extra(&["text"]) }),
        "thinking" => ContentBlock::Thinking(ThinkingBlock {
            thinking: text("thinking")?,
            // A signature of another shape stays among the other fields.
            signature: text("signature"),
            extra: match fields.str("signature") {
                Some(_) => fields.extra(&["thinking", "signature"]),
                None => fields.extra(&["thinking"]),
            },
        }),
        "redacted_thinking" => ContentBlock::RedactedThinking(RedactedThinkingBlock {
            data: text("data")?,
            extra: fields.extra(&["data"]),
        }),
        "tool_use" => ContentBlock::ToolUse(ToolUseBlock {
            id: text("id")?,
            name: text("name")?,
            input: fields.get("input").filter(|input| json::is_object(input))?.to_owned(),
            extra: fields.extra(&["id", "name", "input"]),
        }),
        "server_tool_use" | "mcp_tool_use" => ContentBlock::ServerToolUse(ServerToolUseBlock {
            kind: kind.into(),
            id: text("id")?,
            name: text("name")?,
            input: fields.get("input")?.to_owned(),
            extra: fields.extra(&["id", "name", "input"]),
        }),
        "tool_result" => ContentBlock::ToolResult(ToolResultBlock {
            tool_use_id: text("tool_use_id")?,
            content: fields.get("content").map(ToOwned::to_owned),
            is_error: fields.bool("is_error") == Some(true),
            extra: match fields.bool("is_error") {
                Some(true) => fields.extra(&["tool_use_id", "content", "is_error"]),
                _ => fields.extra(&["tool_use_id", "content"]),
            },
        }),
        "image" => ContentBlock::Image(ImageBlock {
            source: fields.get("source").filter(|source| json::is_object(source))?.to_owned(),
            extra: fields.extra(&["source"]),
        }),
        "document" => ContentBlock::Document(DocumentBlock {
            source: fields.get("source").filter(|source| json::is_object(source))?.to_owned(),
            extra: fields.extra(&["source"]),
        }),
        _ if kind.ends_with("_tool_result") => ContentBlock::ServerToolResult(ServerToolResultBlock {
            kind: kind.into(),
            tool_use_id: text("tool_use_id")?,
            content: fields.get("content")?.to_owned(),
            extra: fields.extra(&["tool_use_id", "content"]),
        }),
        _ => return None,
    })
}

impl Serialize for ContentBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let extra = match self {
            Self::Document(block) => &block.extra,
            Self::Image(block) => &block.extra,
            Self::RedactedThinking(block) => &block.extra,
            Self::ServerToolResult(block) => &block.extra,
            Self::ServerToolUse(block) => &block.extra,
            Self::Text(block) => &block.extra,
            Self::Thinking(block) => &block.extra,
            Self::ToolResult(block) => &block.extra,
            Self::ToolUse(block) => &block.extra,
            Self::Other(block) => return block.json.serialize(serializer),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.kind())?;
        match self {
            Self::Document(block) => map.serialize_entry("source", &block.source)?,
            Self::Image(block) => map.serialize_entry("source", &block.source)?,
            Self::RedactedThinking(block) => map.serialize_entry("data", &block.data)?,
            Self::ServerToolResult(block) => {
                map.serialize_entry("tool_use_id", &block.tool_use_id)?;
                map.serialize_entry("content", &block.content)?;
            }
            Self::ServerToolUse(block) => {
                map.serialize_entry("id", &block.id)?;
                map.serialize_entry("name", &block.name)?;
                map.serialize_entry("input", &block.input)?;
            }
            Self::Text(block) => map.serialize_entry("text", &block.text)?,
            Self::Thinking(block) => {
                map.serialize_entry("thinking", &block.thinking)?;
                if let Some(signature) = &block.signature {
                    map.serialize_entry("signature", signature)?;
                }
            }
            Self::ToolResult(block) => {
                map.serialize_entry("tool_use_id", &block.tool_use_id)?;
                if let Some(content) = &block.content {
                    map.serialize_entry("content", content)?;
                }
                if block.is_error {
                    map.serialize_entry("is_error", &true)?;
                }
            }
            Self::ToolUse(block) => {
                map.serialize_entry("id", &block.id)?;
                map.serialize_entry("name", &block.name)?;
                map.serialize_entry("input", &block.input)?;
            }
            Self::Other(_) => {}
        }
        for (name, value) in &extra.entries {
            map.serialize_entry(&**name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        json::raw(deserializer, "ContentBlock::from_json").map(|raw| Self::from_raw(&raw))
    }
}

impl ToolUseBlock {
    /// Reads the input as a type.
    ///
    /// # Errors
    /// The input does not fit the type. The error may quote it.
    pub fn input_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.input.get())
    }
}

impl ToolResultBlock {
    /// The content as blocks; a string is one text block.
    #[must_use]
    pub fn blocks(&self) -> Vec<ContentBlock> {
        let Some(content) = &self.content else { return Vec::new() };
        blocks_of(content)
    }

    /// The text of the content, its text blocks joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.blocks().iter().filter_map(ContentBlock::as_text).collect()
    }
}

/// Reads `content`: a string is one text block, a list its blocks, anything else none.
pub(crate) fn blocks_of(content: &RawValue) -> Vec<ContentBlock> {
    if let Some(text) = json::string(content) {
        return vec![ContentBlock::text(text)];
    }
    json::items(content.get()).unwrap_or_default().into_iter().map(ContentBlock::from_raw).collect()
}

impl Extra {
    /// The JSON text of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.iter().rev().find(|(key, _)| &**key == name).map(|(_, value)| value.get())
    }

    /// The fields and their JSON text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (&**name, value.get()))
    }

    pub(crate) fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.entries.iter_mut().find(|(key, _)| &**key == name) {
            Some((_, old)) => *old = value,
            None => self.entries.push((name.into(), value)),
        }
    }
}

impl Extra {
    pub(crate) fn remove(&mut self, name: &str) {
        self.entries.retain(|(key, _)| &**key != name);
    }
}

impl fmt::Debug for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Fields<'_> {
    /// The fields besides `type` and those that a block names itself.
    fn extra(&self, named: &[&str]) -> Extra {
        let rest = self.iter().filter(|(name, _)| *name != "type" && !named.contains(name));
        Extra { entries: rest.map(|(name, value)| (name.into(), value.to_owned())).collect() }
    }
}

/// A string as JSON.
pub(crate) fn raw(text: &str) -> Box<RawValue> {
    json::to_raw(&text)
}

/// An object of strings as JSON.
fn object(fields: &[(&str, &&str)]) -> Box<RawValue> {
    struct Object<'a>(&'a [(&'a str, &'a &'a str)]);

    impl Serialize for Object<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.0.iter().copied())
        }
    }

    json::to_raw(&Object(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes in goes out, as a JSON value, whatever the block is.
    #[test]
    fn blocks_keep_every_field() {
        let blocks = [
            r#"{"type":"text","text":"a","citations":null,"x":1e2}"#,
            r#"{"type":"thinking","thinking":"","signature":"S"}"#,
            r#"{"type":"thinking","thinking":"t","signature":null}"#,
            r#"{"type":"redacted_thinking","data":"d"}"#,
            r#"{"type":"tool_use","id":"t","name":"f","input":{"n":1234567890123456789012345},"caller":{"type":"direct"},"toolset_name":"c"}"#,
            r#"{"type":"tool_use","id":"t","name":"f","input":"text"}"#,
            r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#,
            r#"{"type":"mcp_tool_use","id":"s","name":"f","input":{},"server_name":"crm"}"#,
            r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[]}"#,
            r#"{"type":"tool_result","tool_use_id":"t","content":"x","is_error":true}"#,
            r#"{"type":"tool_result","tool_use_id":"t"}"#,
            r#"{"type":"tool_result","tool_use_id":"t","content":"x","is_error":false}"#,
            r#"{"type":"image","source":{"type":"url","url":"u"},"transformations":{}}"#,
            r#"{"type":"document","source":{"type":"file","file_id":"f"},"title":"t"}"#,
            r#"{"type":"future","x":[1,{"y":2.50}]}"#,
            r#"{"no":"type"}"#,
        ];
        for text in blocks {
            let block = ContentBlock::from_json(text).unwrap();
            let back = serde_json::to_string(&block).unwrap();
            assert_eq!(back, text, "{block:?}");
        }
        assert!(matches!(ContentBlock::from_json(blocks[5]).unwrap(), ContentBlock::Other(_)));
        assert!(ContentBlock::from_json("[]").is_err());
    }

    #[test]
    fn a_marked_block_holds_one_mark() {
        let block = ContentBlock::text("a").cached().cached();
        let text = serde_json::to_string(&block).unwrap();
        assert_eq!(text, r#"{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}"#);
    }
}
