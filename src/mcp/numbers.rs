//! Numbers that would not reach a server as the model wrote them.

/// The first number in a JSON text that is another one once it was read as a `serde_json::Number`,
/// which is what `rmcp` sends.
pub(super) fn rounded(json: &str) -> Option<&str> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at += string_length(&bytes[at..]),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let length = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                let number = &json[at..at + length];
                if !is_kept(number) {
                    return Some(number);
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    None
}

/// How long a string is, both quotes included.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn is_kept(text: &str) -> bool {
    let Ok(number) = text.parse::<serde_json::Number>() else { return false };
    // With exact numbers switched on by another crate nothing is lost.
    let sent = number.to_string();
    sent == text || (value(text).is_some() && value(&sent) == value(text))
}

/// Sign, digits and exponent, without what does not change the value. `None` for an exponent that
/// no number can have.
fn value(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => (true, mantissa),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let exponent = exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let exponent = exponent.checked_add(i64::try_from(digits.len() - significant.len()).ok()?)?;
    let significant = significant.trim_start_matches('0');
    match significant.is_empty() {
        // Zero keeps its sign, which a server may see.
        true => Some((is_negative, String::new(), 0)),
        false => Some((is_negative, significant.to_owned(), exponent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_changes_is_found() {
        for kept in [
            "{}",
            r#"{"a":1,"b":[-1,0,0.1,1.50,1e2,-2.5E-3,1e300,18446744073709551615,-9223372036854775808]}"#,
            r#"{"a":"1234567890123456789012345","b\"123456789012345678901234567890":1}"#,
            "0.30000000000000004",
            "100e-2",
            "9007199254740993",
            "1.0",
            "-0.0",
        ] {
            assert_eq!(rounded(kept), None, "{kept}");
        }
        // Where a crate switches exact numbers on, they are sent as they are.
        let exact = "1.00000000000000000001".parse::<serde_json::Number>().unwrap().to_string().len() > 10;
        for (text, number) in [
            (r#"{"a":[1,{"b":1234567890123456789012345}]}"#, "1234567890123456789012345"),
            ("18446744073709551616", "18446744073709551616"),
            ("1.00000000000000000001", "1.00000000000000000001"),
            ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
            ("1e-400", "1e-400"),
        ] {
            assert_eq!(rounded(text), Some(number).filter(|_| !exact), "{text}");
        }
    }
}
