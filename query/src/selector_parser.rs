//! The grammar of selectors.

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};

/// Most bytes of a selector.
pub const MAX_SELECTOR_BYTES: usize = 64 * 1024;
/// Most matchers of a selector.
pub const MAX_MATCHERS: usize = 256;
/// Most regular expressions of a selector: each may compile to a megabyte.
pub const MAX_REGEXES: usize = 32;

/// Why a selector was refused. Places are characters, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// No text.
    #[error("selector is empty; write {{}} for all series, or for example {{service_name=\"shop\"}}")]
    Empty,
    /// More bytes than are read.
    #[error(
        "selector has {seen} bytes, the limit is {MAX_SELECTOR_BYTES}; select by fewer or shorter values"
    )]
    TooLong {
        /// Its length.
        seen: usize,
    },
    /// More matchers than are read.
    #[error("selector has more than {MAX_MATCHERS} matchers; join values of one label in one =~ matcher")]
    TooMany,
    /// More regular expressions than are compiled.
    #[error("selector has more than {MAX_REGEXES} regular expressions; join values of one label in one")]
    TooManyRegexes,
    /// Something else stands where this was needed.
    #[error("selector needs {expected} at character {at}, it has {seen}")]
    Expected {
        /// Where.
        at: usize,
        /// What was needed.
        expected: &'static str,
        /// What stands there.
        seen: String,
    },
    /// An escape that does not exist.
    #[error("selector has a bad escape at character {at}; use \\n \\t \\r \\\\ \\\" \\' \\xNN or \\uNNNN")]
    Escape {
        /// Where the backslash stands.
        at: usize,
    },
    /// A regular expression that does not compile.
    #[error("regular expression {pattern:?} at character {at}: {why}")]
    Regex {
        /// Where it stands.
        at: usize,
        /// The expression.
        pattern: String,
        /// What is wrong.
        why: String,
    },
}

impl ErrorCodeExt for SelectorError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchOperator {
    Equal,
    NotEqual,
    Match,
    NotMatch,
}

impl MatchOperator {
    pub(crate) fn text(self) -> &'static str {
        match self {
            MatchOperator::Equal => "=",
            MatchOperator::NotEqual => "!=",
            MatchOperator::Match => "=~",
            MatchOperator::NotMatch => "!~",
        }
    }
}

/// A matcher as written; `at` is where its value stands.
pub(crate) struct RawMatcher {
    pub(crate) name: String,
    pub(crate) operator: MatchOperator,
    pub(crate) value: String,
    pub(crate) at: usize,
}

pub(crate) fn parse_matchers(text: &str) -> Result<Vec<RawMatcher>, SelectorError> {
    if text.len() > MAX_SELECTOR_BYTES {
        return Err(SelectorError::TooLong { seen: text.len() });
    }
    if text.trim().is_empty() {
        return Err(SelectorError::Empty);
    }
    let mut parser = SelectorParser { text, rest: text };
    parser.token("{", "an opening brace {")?;
    let mut matchers = Vec::new();
    while !parser.accept("}") {
        if matchers.len() == MAX_MATCHERS {
            return Err(SelectorError::TooMany);
        }
        matchers.push(parser.matcher()?);
        if !parser.accept(",") {
            parser.token("}", "a comma or a closing brace }")?;
            break;
        }
    }
    match parser.peek() {
        None => Ok(matchers),
        Some(_) => Err(parser.expected("its end")),
    }
}

struct SelectorParser<'t> {
    text: &'t str,
    rest: &'t str,
}

impl SelectorParser<'_> {
    /// The next character that is not a space; spaces are passed over.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }
    fn place(&self) -> usize {
        self.text[..self.text.len() - self.rest.len()].chars().count() + 1
    }
    fn expected(&mut self, expected: &'static str) -> SelectorError {
        let seen = self.peek().map_or("its end".to_owned(), |found| format!("{found:?}"));
        SelectorError::Expected { at: self.place(), expected, seen }
    }
    fn accept(&mut self, token: &str) -> bool {
        self.peek();
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest;
        true
    }
    fn token(&mut self, token: &str, expected: &'static str) -> Result<(), SelectorError> {
        if self.accept(token) { Ok(()) } else { Err(self.expected(expected)) }
    }
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn matcher(&mut self) -> Result<RawMatcher, SelectorError> {
        let name = match self.peek() {
            Some('"' | '\'' | '`') => self.string()?,
            _ => self.name()?,
        };
        // The longer ones first: "=" begins "=~".
        let operators =
            [MatchOperator::Match, MatchOperator::NotMatch, MatchOperator::NotEqual, MatchOperator::Equal];
        let found = operators.into_iter().find(|operator| self.accept(operator.text()));
        let operator = found.ok_or_else(|| self.expected("one of = != =~ !~"))?;
        self.peek();
        let at = self.place();
        Ok(RawMatcher { name, operator, value: self.string()?, at })
    }

    fn name(&mut self) -> Result<String, SelectorError> {
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        if end == 0 || self.rest.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
            return Err(self.expected("a label name"));
        }
        let (name, rest) = self.rest.split_at(end);
        let name = name.to_owned();
        self.rest = rest;
        Ok(name)
    }

    fn string(&mut self) -> Result<String, SelectorError> {
        let quote = match self.peek() {
            Some(quote @ ('"' | '\'' | '`')) => quote,
            _ => return Err(self.expected("a quoted value")),
        };
        self.next();
        let mut value = String::new();
        loop {
            let at = self.place();
            match self.next() {
                None => return Err(self.expected("the closing quote of a value")),
                Some(end) if end == quote => return Ok(value),
                Some('\\') if quote != '`' => {
                    value.push(self.escape().ok_or(SelectorError::Escape { at })?);
                }
                Some(other) => value.push(other),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let digits = match self.next()? {
            'n' => return Some('\n'),
            't' => return Some('\t'),
            'r' => return Some('\r'),
            same @ ('\\' | '"' | '\'') => return Some(same),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return None,
        };
        let hex = self.rest.get(..digits).filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        let code = u32::from_str_radix(hex, 16).ok()?;
        self.rest = &self.rest[digits..];
        char::from_u32(code)
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
}

/// A value as it is written.
pub(crate) fn quote_value(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A name as it is written: quoted only if it must be.
pub(crate) fn quote_name(name: &str) -> String {
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if starts && name.chars().all(is_name) { name.to_owned() } else { quote_value(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_place() {
        for (text, message) in [
            ("a", "selector needs an opening brace { at character 1, it has 'a'"),
            ("{a}", "selector needs one of = != =~ !~ at character 3, it has '}'"),
            ("{ä=\"b\"}", "selector needs a label name at character 2, it has 'ä'"),
            ("{a=b}", "selector needs a quoted value at character 4, it has 'b'"),
            ("{a=\"ä", "selector needs the closing quote of a value at character 6, it has its end"),
            ("{a=\"b\" c=\"d\"}", "selector needs a comma or a closing brace } at character 8, it has 'c'"),
            ("{} x", "selector needs its end at character 4, it has 'x'"),
            (
                "{a=\"\\q\"}",
                "selector has a bad escape at character 5; use \\n \\t \\r \\\\ \\\" \\' \\xNN or \\uNNNN",
            ),
        ] {
            assert_eq!(parse_matchers(text).err().unwrap().to_string(), message, "{text}");
        }
    }

    #[test]
    fn limits_are_kept() {
        assert_eq!(parse_matchers(" ").err(), Some(SelectorError::Empty));
        assert_eq!(parse_matchers(&"x".repeat(70_000)).err(), Some(SelectorError::TooLong { seen: 70_000 }));
        let many = format!("{{{}}}", "a=\"b\",".repeat(MAX_MATCHERS + 1));
        assert_eq!(parse_matchers(&many).err(), Some(SelectorError::TooMany));
        assert_eq!(
            parse_matchers(&format!("{{{}}}", "a=\"b\",".repeat(MAX_MATCHERS))).unwrap().len(),
            MAX_MATCHERS
        );
    }
}
