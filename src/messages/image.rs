//! What the bytes of an image say about it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The media type that the first bytes tell, among those that the API takes.
pub(crate) fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// What is wrong with the data of a base64 image, judged by its first bytes; `None` where
/// nothing is, or where the bytes are of no kind that is known here.
pub(crate) fn flaw(declared: &str, data: &str) -> Option<String> {
    if data.trim().is_empty() {
        return Some("an image has no data".to_owned());
    }
    if data.starts_with("data:") {
        return Some("the data of an image is a data URL; only what follows its comma is base64".to_owned());
    }
    // 16 characters are 12 bytes, enough for every magic number above.
    let head = data.get(..data.len().min(16)).unwrap_or_default();
    let bytes = STANDARD.decode(head).ok()?;
    let actual = media_type(&bytes)?;
    (actual != declared).then(|| format!("an image is declared as {declared}, but its bytes are {actual}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_decide() {
        let png = encode(&[0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', 0, 0, 0, 13]);
        let jpeg = encode(&[0xff, 0xd8, 0xff, 0xe0, 0, 16, b'J', b'F', b'I', b'F', 0, 1]);
        assert_eq!(flaw("image/png", &png), None);
        assert!(flaw("image/png", &jpeg).unwrap().contains("image/jpeg"));
        assert!(flaw("image/png", " ").is_some());
        assert!(flaw("image/png", &format!("data:image/png;base64,{png}")).is_some());
        // Data that is short, or of a kind unknown here, is for the API to judge.
        assert_eq!(flaw("image/png", "aGk="), None);
        assert_eq!(flaw("image/png", "é"), None);
    }
}
