//! Query string of a URL.

use athanor_chassis::Status;

use crate::validate::invalid_argument;

/// Maximum length of a query string in bytes.
const MAX_URL_QUERY_BYTES: usize = 128 * 1024;
/// Maximum number of parameters.
const MAX_URL_PARAMETERS: usize = 256;

/// Names and values of parameters, in their order.
#[derive(Debug, Default)]
pub(crate) struct UrlParameters(Vec<(String, String)>);

/// Parses a query string to names and values. `+` is a space, `%41` is a byte, and invalid UTF-8 is replaced.
pub fn parse(query: &str) -> Result<Vec<(String, String)>, Status> {
    if query.len() > MAX_URL_QUERY_BYTES {
        let seen = query.len();
        return Err(invalid_argument(format!(
            "query has {seen} bytes, the limit is {MAX_URL_QUERY_BYTES}; shorten the selector"
        )));
    }
    let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
    let pairs: Vec<(String, String)> = pairs.take(MAX_URL_PARAMETERS + 1).collect();
    if pairs.len() > MAX_URL_PARAMETERS {
        return Err(invalid_argument(format!(
            "query has more than {MAX_URL_PARAMETERS} parameters; group by fewer labels"
        )));
    }
    Ok(pairs)
}

impl UrlParameters {
    pub(super) fn parse(query: &str) -> Result<Self, Status> {
        parse(query).map(UrlParameters)
    }
    /// Sets a parameter if it is missing.
    pub(super) fn set_default(&mut self, name: &str, value: &str) {
        if self.first(name).is_none() {
            self.0.push((name.to_owned(), value.to_owned()));
        }
    }
    /// Returns all names with their values, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
    /// Returns all values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |pair| pair.0 == name).map(|pair| pair.1.as_str())
    }
    /// Returns the first value of a name.
    pub(super) fn first<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }
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
