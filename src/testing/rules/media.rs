//! Images and documents.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::request::NOT_COUNTED;
use super::{Object, Setting, Verdict, blocks, list, require_text, text};

type Magic = fn(&[u8]) -> bool;

const IMAGES: &[(&str, Magic)] = &[
    ("image/jpeg", |bytes| bytes.starts_with(b"\xff\xd8\xff")),
    ("image/png", |bytes| bytes.starts_with(b"\x89PNG\r\n\x1a\n")),
    ("image/gif", |bytes| bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a")),
    ("image/webp", |bytes| bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")),
];

pub(super) fn image(block: &Object, path: &str, setting: &Setting<'_>) -> Verdict {
    let path = format!("{path}.image.source");
    let source = source(block, &path, setting)?;
    match text(source, "type") {
        Some("base64") => base64_image(source, &format!("{path}.base64")),
        Some("url") => require_text(source, "url", &path).map(drop),
        Some("file") => require_text(source, "file_id", &path).map(drop),
        other => Err(blocks::unknown(other.unwrap_or_default(), &path)),
    }
}

fn base64_image(source: &Object, path: &str) -> Verdict {
    let declared = require_text(source, "media_type", path)?;
    if !IMAGES.iter().any(|(name, _)| *name == declared) {
        return Err(format!(
            "{path}.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        ));
    }
    let data = text(source, "data").ok_or_else(|| format!("{path}.data: Input should be a valid string"))?;
    if data.is_empty() {
        return Err(format!("{path}.data: image cannot be empty"));
    }
    let bytes =
        STANDARD.decode(data).map_err(|error| format!("{path}.data: invalid base64 data ({error})"))?;
    match IMAGES.iter().find(|(_, is)| is(&bytes)) {
        Some((actual, _)) if *actual == declared => Ok(()),
        Some((actual, _)) => Err(format!(
            "{path}.data: The image was specified using the {declared} media type, but the image appears to be a {actual} image"
        )),
        None => Err(format!("{path}.data: Could not process image")),
    }
}

pub(super) fn document(block: &Object, path: &str, setting: &Setting<'_>) -> Verdict {
    let path = format!("{path}.document.source");
    let source = source(block, &path, setting)?;
    match text(source, "type") {
        Some("base64") => {
            if text(source, "media_type") != Some("application/pdf") {
                return Err(format!("{path}.base64.media_type: Input should be 'application/pdf'"));
            }
            require_text(source, "data", &format!("{path}.base64")).map(drop)
        }
        Some("text") => {
            if text(source, "media_type") != Some("text/plain") {
                return Err(format!("{path}.text.media_type: Input should be 'text/plain'"));
            }
            require_text(source, "data", &format!("{path}.text")).map(drop)
        }
        Some("content") => match source.get("content") {
            Some(Value::String(_)) => Ok(()),
            Some(Value::Array(_)) => content(source, &path, setting),
            _ => Err(format!("{path}.content.content: Input should be a valid string or list")),
        },
        Some("url") => require_text(source, "url", &path).map(drop),
        Some("file") => require_text(source, "file_id", &path).map(drop),
        other => Err(blocks::unknown(other.unwrap_or_default(), &path)),
    }
}

fn content(source: &Object, path: &str, setting: &Setting<'_>) -> Verdict {
    list(source, "content").iter().enumerate().try_for_each(|(index, block)| {
        let path = format!("{path}.content.{index}");
        match block.as_object() {
            Some(object) if text(object, "type") == Some("image") => image(object, &path, setting),
            _ => blocks::plain_text(block, &path, setting),
        }
    })
}

fn source<'a>(block: &'a Object, path: &str, setting: &Setting<'_>) -> Result<&'a Object, String> {
    let source =
        block.get("source").and_then(Value::as_object).ok_or_else(|| format!("{path}: Field required"))?;
    match text(source, "type") {
        Some("file") if setting.counts => Err(format!("{path}: File sources {NOT_COUNTED}")),
        Some("url") if setting.counts => Err(format!("{path}: URL sources {NOT_COUNTED}")),
        _ => Ok(source),
    }
}
