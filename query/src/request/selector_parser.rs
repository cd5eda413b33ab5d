//! Parser of selectors.

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};

/// Maximum length of a selector in bytes.
pub const MAX_SELECTOR_BYTES: usize = 64 * 1024;
/// Maximum number of matchers of a selector.
pub const MAX_MATCHERS: usize = 256;
/// Maximum number of regular expressions of a selector: each may compile to a megabyte.
pub const MAX_REGEXES: usize = 32;

/// Reasons why a selector is rejected. Positions are characters, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The selector has no text.
    #[error("selector is empty; write {{}} for all series, or for example {{service_name=\"shop\"}}")]
    Empty,
    /// The selector has too many bytes.
    #[error(
        "selector has {seen} bytes, the limit is {MAX_SELECTOR_BYTES}; select by fewer or shorter values"
    )]
    TooLong {
        /// Length of the selector in bytes.
        seen: usize,
    },
    /// The selector has too many matchers.
    #[error("selector has more than {MAX_MATCHERS} matchers; join values of one label in one =~ matcher")]
    TooMany,
    /// The selector has too many regular expressions.
    #[error("selector has more than {MAX_REGEXES} regular expressions; join values of one label in one")]
    TooManyRegexes,
    /// The selector has another token than the expected one.
    #[error("selector needs {expected} at character {at}, it has {seen}")]
    Expected {
        /// Position of the unexpected token.
        at: usize,
        /// Description of the expected token.
        expected: &'static str,
        /// Token at the position.
        seen: String,
    },
    /// The selector has an unknown escape sequence.
    #[error("selector has a bad escape at character {at}; use \\n \\t \\r \\\\ \\\" \\' \\xNN or \\uNNNN")]
    Escape {
        /// Position of the backslash.
        at: usize,
    },
    /// A regular expression does not compile.
    #[error("regular expression {pattern:?} at character {at}: {why}")]
    Regex {
        /// Position of the value.
        at: usize,
        /// Text of the regular expression.
        pattern: String,
        /// Error of the compiler.
        why: String,
    },
}

impl ErrorCodeExt for SelectorError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

/// Comparison operator of a matcher.
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

/// Matcher in its source form. `at` is the position of its value.
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
    /// Skips spaces and returns the next character without consuming it.
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
        // Longer operators come first, because "=" is a prefix of "=~".
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

/// Formats a value with quotes and escapes.
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

/// Formats a name, with quotes only if they are necessary.
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
