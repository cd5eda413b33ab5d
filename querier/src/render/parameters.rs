//! The part of a URL behind `?`.

use athanor_chassis::Status;

use crate::check::invalid;

/// Most bytes.
const MAX_TEXT: usize = 128 * 1024;
/// Most parameters.
const MAX_COUNT: usize = 256;

/// Names and values, in their order.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

/// Names and values of the part of a URL behind `?`: `+` is a space, `%41` is a byte; what is not UTF-8 is replaced.
pub fn parse(query: &str) -> Result<Vec<(String, String)>, Status> {
    if query.len() > MAX_TEXT {
        let seen = query.len();
        return Err(invalid(format!("query has {seen} bytes, the limit is {MAX_TEXT}; select by less text")));
    }
    let parts: Vec<&str> = query.split('&').filter(|part| !part.is_empty()).take(MAX_COUNT + 1).collect();
    if parts.len() > MAX_COUNT {
        return Err(invalid(format!("query has more than {MAX_COUNT} parameters")));
    }
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(name), decode(value))
    };
    Ok(parts.into_iter().map(pair).collect())
}

impl Parameters {
    pub(super) fn parse(query: &str) -> Result<Self, Status> {
        parse(query).map(Parameters)
    }
    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |pair| pair.0 == name).map(|pair| pair.1.as_str())
    }
    /// The first value of a name.
    pub(super) fn first<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let escaped = digits.filter(is_hex).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, escaped) {
            (b'%', Some(escaped)) => {
                decoded.push(escaped);
                at += 3;
                continue;
            }
            (b'+', _) => decoded.push(b' '),
            _ => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8(decoded).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_decoded() {
        let pairs = parse("a=b+c%7B%22%C3%BC&&a=%4&b&=x&c=%zz%+1").unwrap();
        let shown: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(shown, [("a", "b c{\"ü"), ("a", "%4"), ("b", ""), ("", "x"), ("c", "%zz% 1")]);
        assert!(parse(&"a&".repeat(300)).is_err() && parse(&"a".repeat(200_000)).is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[a-c%+&=0-9ü]{0,30}") {
            parse(&text).unwrap();
        }
    }
}
