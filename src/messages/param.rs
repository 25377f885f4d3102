//! One frozen message.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::content::{self, ContentBlock};
use super::facts::{Facts, Role};
use super::json::{self, Fields};
use crate::error::{Error, Result};

/// One message as it goes over the wire: a role and JSON that is never rewritten.
///
/// ```
/// use agentloop::{ContentBlock, MessageParam};
///
/// let question = MessageParam::user("What is in this file?")?;
/// assert_eq!(question.json(), r#"{"role":"user","content":"What is in this file?"}"#);
/// assert!(MessageParam::user("  ").is_err());
/// # Ok::<(), agentloop::Error>(())
/// ```
#[derive(Clone)]
pub struct MessageParam {
    json: Arc<str>,
    facts: Arc<Facts>,
}

/// What a message can be made of: text, or blocks.
pub trait IntoContent: private::Sealed {
    #[doc(hidden)]
    fn into_json(self) -> Box<RawValue>;
}

mod private {
    pub trait Sealed {}

    impl Sealed for &str {}
    impl Sealed for &String {}
    impl Sealed for String {}
    impl Sealed for super::ContentBlock {}
    impl Sealed for Vec<super::ContentBlock> {}
    impl<const N: usize> Sealed for [super::ContentBlock; N] {}
}

impl MessageParam {
    /// A user message.
    ///
    /// # Errors
    /// The content is blank or empty, or a block is one that the API refuses: a blank text, an
    /// image without data or of another type than declared, a `tool_use` block.
    pub fn user(content: impl IntoContent) -> Result<Self> {
        Self::made(Role::User, &content.into_json())
    }

    /// An assistant message that the caller makes up, as an example for the model.
    ///
    /// # Errors
    /// As [`user`](Self::user); here a `tool_result` block is refused, and an `input` that is not
    /// an object.
    pub fn assistant(content: impl IntoContent) -> Result<Self> {
        Self::made(Role::Assistant, &content.into_json())
    }

    /// An instruction in the middle of a conversation, on models that take one.
    ///
    /// # Errors
    /// As [`user`](Self::user).
    pub fn system(content: impl IntoContent) -> Result<Self> {
        Self::made(Role::System, &content.into_json())
    }

    /// Any message, kept as this text. Only the shape is checked: what the content holds is
    /// judged where the message is used, by [`Conversation::push`](super::Conversation::push)
    /// and [`Conversation::check`](super::Conversation::check).
    ///
    /// # Errors
    /// The text is not a JSON object with a `role` and a `content`.
    pub fn from_json(text: &str) -> Result<Self> {
        let raw = serde_json::from_str::<&RawValue>(text).map_err(|error| {
            Error::request("a message is not valid JSON").with_source(json::place(&error))
        })?;
        Self::from_raw(raw)
    }

    pub(crate) fn from_raw(raw: &RawValue) -> Result<Self> {
        let shape = |text: &'static str| Error::request(text);
        let fields = Fields::parse(raw.get()).ok_or_else(|| shape("a message must be a JSON object"))?;
        let role = fields.str("role").ok_or_else(|| shape("a message must have a role"))?;
        let config = fields.get("output_config").is_some_and(|config| !json::is_null(config));
        // A system message that only sets an effort may have none.
        let content = fields.get("content").or_else(|| config.then_some(RawValue::NULL));
        let content = content.ok_or_else(|| shape("a message must have a content"))?;
        Ok(Self { facts: Arc::new(Facts::find(Role::from(&*role), content, config)), json: raw.get().into() })
    }

    /// A message of exactly this content.
    pub(crate) fn frozen(role: Role, content: &RawValue) -> Self {
        let json = format!(r#"{{"role":"{}","content":{}}}"#, role.as_str(), content.get());
        Self { facts: Arc::new(Facts::find(role, content, false)), json: json.into() }
    }

    fn made(role: Role, content: &RawValue) -> Result<Self> {
        let message = Self::frozen(role, content);
        message.sound()?;
        Ok(message)
    }

    /// Fails if the message is flawed by itself.
    pub(crate) fn sound(&self) -> Result<()> {
        match &self.facts.flaw {
            Some(flaw) => {
                Err(Error::request(format!("this {} message can't be sent: {flaw}", self.facts.role)))
            }
            None => Ok(()),
        }
    }

    /// Who speaks.
    #[must_use]
    pub fn role(&self) -> Role {
        self.facts.role.clone()
    }

    /// The wire text.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The content as typed blocks; a string is one text block.
    #[must_use]
    pub fn content(&self) -> Vec<ContentBlock> {
        content_of(&self.json)
    }

    pub(crate) fn facts(&self) -> &Arc<Facts> {
        &self.facts
    }

    pub(crate) fn stored(json: &str, facts: Arc<Facts>) -> Self {
        Self { json: json.into(), facts }
    }
}

/// The content of a message's wire text as typed blocks.
pub(crate) fn content_of(message: &str) -> Vec<ContentBlock> {
    let fields = Fields::parse(message).unwrap_or_default();
    fields.get("content").map(content::blocks_of).unwrap_or_default()
}

impl Serialize for MessageParam {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json::serialize_text(&self.json, serializer)
    }
}

impl<'de> Deserialize<'de> for MessageParam {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = json::raw(deserializer, "MessageParam::from_json")?;
        Self::from_raw(&raw).map_err(serde::de::Error::custom)
    }
}

/// Role and size: a message is somebody's words.
impl fmt::Debug for MessageParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageParam")
            .field("role", &self.facts.role.as_str())
            .field("bytes", &self.json.len())
            .finish()
    }
}

impl IntoContent for &str {
    fn into_json(self) -> Box<RawValue> {
        content::raw(self)
    }
}

impl IntoContent for &String {
    fn into_json(self) -> Box<RawValue> {
        content::raw(self)
    }
}

impl IntoContent for String {
    fn into_json(self) -> Box<RawValue> {
        content::raw(&self)
    }
}

impl IntoContent for ContentBlock {
    fn into_json(self) -> Box<RawValue> {
        json::to_raw(&[self])
    }
}

impl IntoContent for Vec<ContentBlock> {
    fn into_json(self) -> Box<RawValue> {
        json::to_raw(&self)
    }
}

impl<const N: usize> IntoContent for [ContentBlock; N] {
    fn into_json(self) -> Box<RawValue> {
        json::to_raw(self.as_slice())
    }
}
