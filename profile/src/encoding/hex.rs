//! Hexadecimal texts of bytes, and of ids of spans and traces.

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Formats bytes with two lowercase digits each.
pub fn encode_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(HEX_DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Parses two digits per byte, in either case.
pub fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// Parses an id of exactly `digits` digits, in either case: 16 for a span, 32 for a trace.
///
/// An id of zeros is well formed, and its value 0 means "no id", as in OpenTelemetry. Callers that count or
/// look up ids leave it out.
pub fn parse_hex_id(text: &str, digits: usize) -> Option<u128> {
    // `from_str_radix` alone takes a sign, too.
    let is_id = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_back_from_both_cases() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = encode_hex(&bytes);
        assert!(text.starts_with("000102") && text.ends_with("fdfeff"));
        assert_eq!(decode_hex(&text), Some(bytes.clone()));
        assert_eq!(decode_hex(&text.to_uppercase()), Some(bytes));
        for wrong in ["0", "0g", "+1", "é", "00 "] {
            assert_eq!(decode_hex(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn id_has_exact_length_and_may_be_zero() {
        assert_eq!(parse_hex_id("00000000000000Ff", 16), Some(255));
        assert_eq!(parse_hex_id("0000000000000000", 16), Some(0));
        assert_eq!(parse_hex_id(&"f".repeat(32), 32), Some(u128::MAX));
        for wrong in ["", "ff", "+00000000000000f", "00000000000000fg", "000000000000000ff"] {
            assert_eq!(parse_hex_id(wrong, 16), None, "{wrong:?}");
        }
    }
}
