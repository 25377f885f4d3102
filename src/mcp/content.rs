//! One piece of a result: what a server sent, and what the model gets of it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::value::RawValue;

use super::clean::clean;
use super::result::ResultOptions;
use crate::messages::content::ContentBlock;
use crate::messages::image::media_type;
use crate::messages::json::{self, Fields};

/// A piece of content on its way to the model.
pub(super) enum Part {
    Text(String),
    Image {
        media_type: &'static str,
        data: String,
        /// What stands for it where no image may be.
        placeholder: String,
    },
    Pdf {
        data: String,
        placeholder: String,
    },
}

impl Part {
    /// Reads one item of a result's `content`. Nothing is left without a word.
    pub(super) fn read(item: &RawValue, options: ResultOptions) -> Self {
        let fields = Fields::parse(item.get()).unwrap_or_default();
        let text = |name| fields.str(name).map(String::from);
        let kind = fields.str("type").unwrap_or_default();
        let part = match &*kind {
            "text" => text("text").map(Self::Text),
            "image" | "audio" => {
                text("data").map(|data| Media::read(&data).part(&kind, &fields, None, options))
            }
            "resource_link" => text("uri").map(|uri| Self::Text(link(&uri, &fields))),
            "resource" => fields.get("resource").and_then(|resource| embedded(resource, options)),
            _ => None,
        };
        part.unwrap_or_else(|| Self::Text(unknown(&kind, &fields)))
    }

    /// The block that is sent. Every text goes through here, so this is where it is cleaned.
    pub(super) fn block(self) -> ContentBlock {
        match self {
            Self::Text(text) => ContentBlock::text(clean(&text, usize::MAX)),
            Self::Image { media_type, data, .. } => ContentBlock::image_base64(media_type, &data),
            Self::Pdf { data, .. } => {
                let data = json::to_raw(&data);
                let source = format!(r#"{{"type":"base64","media_type":"{PDF}","data":{data}}}"#);
                ContentBlock::from_raw(&json::text(&format!(r#"{{"type":"document","source":{source}}}"#)))
            }
        }
    }

    /// The same as text alone.
    pub(super) fn without_media(self) -> Self {
        match self {
            Self::Image { placeholder, .. } | Self::Pdf { placeholder, .. } => Self::Text(placeholder),
            text => text,
        }
    }

    pub(super) fn is_blank(&self) -> bool {
        matches!(self, Self::Text(text) if clean(text, usize::MAX).trim().is_empty())
    }
}

/// Data that came as base64.
struct Media<'a> {
    text: &'a str,
    /// How many bytes it stands for; where it is no base64, how many it would be.
    size: usize,
}

impl<'a> Media<'a> {
    fn read(text: &'a str) -> Self {
        let letters = text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=').count();
        Self { text, size: letters / 4 * 3 + letters % 4 * 3 / 4 }
    }

    /// The data as the API takes it, and the bytes. Some servers break lines, leave the padding
    /// out, or use the alphabet for URLs.
    fn decode(&self) -> Option<(String, Vec<u8>)> {
        if let Ok(bytes) = STANDARD.decode(self.text) {
            return Some((self.text.to_owned(), bytes));
        }
        let plain: String = self.text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
        let plain = plain.trim_end_matches('=');
        let bytes = STANDARD_NO_PAD.decode(plain).or_else(|_| URL_SAFE_NO_PAD.decode(plain)).ok()?;
        Some((STANDARD.encode(&bytes), bytes))
    }

    /// The media as a block, if the API takes it, and else what stands for it. `uri` is that of an
    /// embedded resource.
    fn part(&self, kind: &str, fields: &Fields<'_>, uri: Option<&str>, options: ResultOptions) -> Part {
        let declared = fields.str("mimeType").map(|mime| line(&mime)).filter(|mime| !mime.is_empty());
        let is_untold = declared.is_none();
        let declared = declared.unwrap_or_else(|| "unknown type".to_owned());
        let what = uri.map_or_else(|| kind.to_owned(), |uri| format!("resource: {uri}"));
        let separator = if uri.is_some() { "," } else { ":" };
        let placeholder = format!("[{what}{separator} {declared}, {} bytes]", self.size);
        let essence = declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_image = ACCEPTED.contains(&&*essence) || (kind == "image" && is_untold);
        let is_pdf = options.pdf && essence == PDF;
        if !is_image && !is_pdf {
            return Part::Text(placeholder);
        }
        let fits = self.text.len() <= options.max_media_bytes;
        match fits.then(|| self.decode()).flatten() {
            // The bytes decide: the API refuses an image that is declared as another.
            Some((data, bytes)) if is_image => match media_type(&bytes) {
                Some(media_type) => Part::Image { media_type, data, placeholder },
                None => Part::Text(placeholder),
            },
            Some((data, bytes)) if bytes.starts_with(b"%PDF-") => Part::Pdf { data, placeholder },
            _ => Part::Text(placeholder),
        }
    }
}

/// A resource that came with the result.
fn embedded(resource: &RawValue, options: ResultOptions) -> Option<Part> {
    let fields = Fields::parse(resource.get())?;
    let uri = line(&fields.str("uri").unwrap_or_default());
    if let Some(text) = fields.str("text") {
        return Some(Part::Text(format!("[resource: {uri}]\n{text}")));
    }
    let blob = fields.str("blob")?;
    Some(Media::read(&blob).part("resource", &fields, Some(&uri), options))
}

/// A link to a resource. It is not followed.
fn link(uri: &str, fields: &Fields<'_>) -> String {
    let word = |name| fields.str(name).map(|text| line(&text)).filter(|text| !text.is_empty());
    let mut text = String::from("[resource] ");
    if let Some(name) = word("name").or_else(|| word("title")) {
        text.push_str(&name);
        text.push(' ');
    }
    text.push_str(&format!("<{}>", line(uri)));
    if let Some(mime) = word("mimeType") {
        text.push_str(&format!(" ({mime})"));
    }
    if let Some(description) = fields.str("description").filter(|text| !text.trim().is_empty()) {
        text.push('\n');
        text.push_str(&description);
    }
    text
}

/// What stands for content of a kind that is not known, or not of its kind's shape.
fn unknown(kind: &str, fields: &Fields<'_>) -> String {
    let kind = if kind.is_empty() { "content without a type".to_owned() } else { json::shown(&line(kind)) };
    match fields.str("mimeType") {
        Some(mime) => format!("[{kind}: {}, not shown]", json::shown(&line(&mime))),
        None => format!("[{kind}: not shown]"),
    }
}

/// A name on one line, so that it can't pass for what stands around it.
fn line(text: &str) -> String {
    clean(text, usize::MAX).split_whitespace().collect::<Vec<_>>().join(" ")
}

const PDF: &str = "application/pdf";

const ACCEPTED: [&str; 5] = ["image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"];
