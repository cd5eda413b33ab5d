//! Translator of Prometheus regular expressions (RE2 syntax) to the syntax of the `regex` crate.
//!
//! Most patterns have the same meaning in both syntaxes. Where they differ, a selector would silently pick
//! other series. Within `[...]` the crate supports intersection and nesting. Its `\w`, `\d` and `\s` are
//! Unicode classes. It refuses `\Q`, and a `{` that is not a count. The translator therefore parses a pattern
//! by Prometheus's rules and writes each piece in a form with only one meaning.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;

/// Maximum count of a repetition.
const MAX_REPEAT_COUNT: u32 = 1000;
/// Maximum bytes of a compiled expression.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// Maximum nesting depth of an expression.
const MAX_NESTING_DEPTH: u32 = 50;
/// Texts around an expression that must match a whole text.
const FULL_MATCH: [&str; 2] = ["^(?s:", ")$"];
/// Texts around an expression that may match any part of a text.
const PARTIAL_MATCH: [&str; 2] = ["(?:", ")"];

/// Expression that must match a whole text, with capture groups.
#[derive(Clone, Debug)]
pub(crate) struct CapturePattern {
    pub(crate) regex: Regex,
    /// Names of the groups, from the first one. Empty for a group without a name.
    pub(crate) names: Vec<String>,
}

/// Error of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// Character at which the error was detected, counted from 1. `None` if it is not known.
    pub position: Option<usize>,
    /// Description of the error.
    pub why: String,
}

/// Returns the place of an error in the text of an error message, empty if it is not known.
pub fn position_text(position: Option<usize>) -> String {
    position.map(|position| format!(" at character {position}")).unwrap_or_default()
}

/// Compiles an expression that must match a whole text, or returns the error. A dot also matches a line end.
pub fn compile_full_match(pattern: &str) -> Result<Regex, PatternError> {
    compile(pattern, FULL_MATCH, None)
}

/// Compiles an expression that may match any part of a text, or returns the error.
pub fn compile_partial_match(pattern: &str) -> Result<Regex, PatternError> {
    compile(pattern, PARTIAL_MATCH, None)
}

/// Compiles like [`compile_full_match`], and keeps the groups.
pub(crate) fn compile_with_groups(pattern: &str) -> Result<CapturePattern, PatternError> {
    let mut names = Vec::new();
    let regex = compile(pattern, FULL_MATCH, Some(&mut names))?;
    Ok(CapturePattern { regex, names })
}

/// Translates and compiles a pattern between two texts, with limits on size and nesting.
fn compile(
    pattern: &str,
    [before, after]: [&str; 2],
    names: Option<&mut Vec<String>>,
) -> Result<Regex, PatternError> {
    let has_groups = names.is_some();
    let expression = format!("{before}{}{after}", translate(pattern, names)?);
    let failed = |error: regex::Error| {
        let offset = find_error_offset(&expression).map(|offset| offset.saturating_sub(before.len()));
        let position = offset.map(|offset| find_position(pattern, offset, has_groups));
        PatternError { position, why: describe_error(&error) }
    };
    RegexBuilder::new(&expression)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .nest_limit(MAX_NESTING_DEPTH)
        .build()
        .map_err(failed)
}

fn describe_error(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("compiled pattern exceeds {limit} bytes; simplify the pattern")
        }
        // The message shows the pattern on several lines. Its last line describes the error.
        other => {
            other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    }
}

/// Returns the byte of a translated pattern at which its syntax is wrong. Errors of the `regex` crate do not state it.
fn find_error_offset(expression: &str) -> Option<usize> {
    match ParserBuilder::new().nest_limit(MAX_NESTING_DEPTH).build().parse(expression) {
        Err(regex_syntax::Error::Parse(error)) => Some(error.span().start.offset),
        Err(regex_syntax::Error::Translate(error)) => Some(error.span().start.offset),
        _ => None,
    }
}

/// Returns the last character of the piece of a pattern whose translation has the byte at an offset, counted from 1.
fn find_position(pattern: &str, offset: usize, has_groups: bool) -> usize {
    let mut names = Vec::new();
    let mut translation = PatternTranslator::new(pattern, has_groups.then_some(&mut names));
    while translation.out.len() <= offset {
        let Some(next) = translation.rest.next() else { break };
        if translation.piece(next).is_err() {
            break;
        }
    }
    pattern.chars().count() - translation.rest.count()
}

/// Translates a pattern for the `regex` crate, or returns the error. Without `names`, groups do not capture.
fn translate(pattern: &str, names: Option<&mut Vec<String>>) -> Result<String, PatternError> {
    let length = pattern.chars().count();
    let mut translation = PatternTranslator::new(pattern, names);
    while let Some(next) = translation.rest.next() {
        if let Err(why) = translation.piece(next) {
            return Err(PatternError { position: Some(length - translation.rest.count()), why });
        }
    }
    match translation.open {
        0 => Ok(translation.out),
        _ => Err(PatternError {
            position: Some(length),
            why: "a group is not closed: ) is missing".to_owned(),
        }),
    }
}

struct PatternTranslator<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    /// Names of the capture groups, if the caller needs groups.
    names: Option<&'a mut Vec<String>>,
    /// Number of groups that are not closed yet.
    open: usize,
    last: RepeatTarget,
}

/// Kind of the preceding piece, which decides whether a repetition may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RepeatTarget {
    Nothing,
    One,
    Repeated,
}

/// Member of `[...]` or result of an escape: one character, or a class of several.
enum ClassMember {
    One(char),
    Several(String),
}

impl<'a> PatternTranslator<'a> {
    fn new(pattern: &'a str, names: Option<&'a mut Vec<String>>) -> Self {
        let rest = pattern.chars().peekable();
        PatternTranslator { rest, out: String::new(), open: 0, last: RepeatTarget::Nothing, names }
    }

    fn piece(&mut self, next: char) -> Result<(), String> {
        match next {
            '\\' => return self.escape(),
            '[' => self.class()?,
            '(' => return self.group(),
            ')' if self.open == 0 => return Err("a ) closes no group".into()),
            ')' => {
                self.open -= 1;
                self.out.push(')');
            }
            '|' => {
                self.out.push('|');
                self.last = RepeatTarget::Nothing;
                return Ok(());
            }
            '*' | '+' | '?' => return self.repeat(&next.to_string()),
            '{' => match self.count() {
                Some(count) => return self.repeat(&count?),
                None => self.literal('{'),
            },
            '^' | '$' | '.' => self.out.push(next),
            _ => self.literal(next),
        }
        self.last = RepeatTarget::One;
        Ok(())
    }

    fn literal(&mut self, character: char) {
        self.out.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
    }

    fn take(&mut self, expected: char) -> bool {
        self.rest.next_if_eq(&expected).is_some()
    }

    fn repeat(&mut self, operator: &str) -> Result<(), String> {
        match self.last {
            RepeatTarget::Nothing => {
                return Err(format!("nothing to repeat before {operator}"));
            }
            RepeatTarget::Repeated => {
                return Err(format!("{operator} repeats a repetition; put that into a group"));
            }
            RepeatTarget::One => {}
        }
        self.out.push_str(operator);
        if self.take('?') {
            self.out.push('?');
        }
        self.last = RepeatTarget::Repeated;
        Ok(())
    }

    /// Parses the count after a `{`. Returns `None` if it is not a count: then the brace is a literal.
    fn count(&mut self) -> Option<Result<String, String>> {
        let mut ahead = self.rest.clone();
        let least = number(&mut ahead)?;
        let most = match ahead.next_if_eq(&',') {
            None => Some(least),
            Some(_) if ahead.peek() == Some(&'}') => None,
            Some(_) => Some(number(&mut ahead)?),
        };
        ahead.next_if_eq(&'}')?;
        self.rest = ahead;
        if least.max(most.unwrap_or(0)) > MAX_REPEAT_COUNT {
            return Some(Err(format!("repeat count exceeds {MAX_REPEAT_COUNT}, the limit")));
        }
        Some(match most {
            Some(most) if most < least => Err(format!("{{{least},{most}}} is reversed")),
            Some(most) => Ok(format!("{{{least},{most}}}")),
            None => Ok(format!("{{{least},}}")),
        })
    }

    fn group(&mut self) -> Result<(), String> {
        if !self.take('?') {
            self.begin_group(String::new());
            return Ok(());
        }
        let mut ahead = self.rest.clone();
        ahead.next_if_eq(&'P');
        if ahead.next_if_eq(&'<').is_some() {
            self.rest = ahead;
            return self.name();
        }
        self.flags()
    }

    fn name(&mut self) -> Result<(), String> {
        let mut name = String::new();
        while let Some(next) = self.rest.next_if(|next| *next != '>') {
            name.push(next);
        }
        let is_name = !name.is_empty() && name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
        if !self.take('>') || !is_name {
            return Err(format!("{name:?} is not a group name"));
        }
        self.begin_group(name);
        Ok(())
    }

    /// Begins a group. If the caller needs no groups, it does not capture. A name is never written, because
    /// the crate does not accept every name.
    fn begin_group(&mut self, name: String) {
        match &mut self.names {
            Some(names) => {
                names.push(name);
                self.begin("(");
            }
            None => self.begin("(?:"),
        }
    }

    fn begin(&mut self, group: &str) {
        self.out.push_str(group);
        self.open += 1;
        self.last = RepeatTarget::Nothing;
    }

    fn flags(&mut self) -> Result<(), String> {
        let mut flags = String::new();
        while let Some(flag) = self.rest.next_if(|next| matches!(next, 'i' | 'm' | 's' | 'U' | '-')) {
            flags.push(flag);
        }
        let is_group = self.rest.peek() == Some(&':');
        let (on, off) = flags.split_once('-').unwrap_or((&flags, ""));
        if !(is_group || self.rest.peek() == Some(&')')) || off.contains('-') || flags.ends_with('-') {
            return Err("(? must be followed by :, a name as in P<name>, or flags of i, m, s and U".into());
        }
        self.rest.next();
        // A flag may be given twice. If it is off in one place, it is off.
        let one = |flag: &char, of: &str| of.contains(*flag);
        let off: String = "imsU".chars().filter(|flag| one(flag, off)).collect();
        let on: String = "imsU".chars().filter(|flag| one(flag, on) && !one(flag, &off)).collect();
        let minus = if off.is_empty() { "" } else { "-" };
        self.last = RepeatTarget::Nothing;
        match is_group {
            true => self.begin(&format!("(?{on}{minus}{off}:")),
            // The crate does not accept a group with no flag.
            false if on.is_empty() && off.is_empty() => {}
            false => self.out.push_str(&format!("(?{on}{minus}{off})")),
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.rest.next() {
            Some('Q') => return self.quoted(),
            Some(place @ ('A' | 'z')) => self.out.extend(['\\', place]),
            Some(boundary @ ('b' | 'B')) => self.out.push_str(&format!("(?-u:\\{boundary})")),
            Some(other) => match self.escaped(other)? {
                ClassMember::One(character) => self.literal(character),
                ClassMember::Several(class) => self.out.push_str(&format!("[{class}]")),
            },
            None => return Err("pattern ends with \\".into()),
        }
        self.last = RepeatTarget::One;
        Ok(())
    }

    /// Writes the text between `\Q` and `\E` as literals.
    fn quoted(&mut self) -> Result<(), String> {
        while let Some(next) = self.rest.next() {
            if next == '\\' && self.take('E') {
                return Ok(());
            }
            self.literal(next);
            self.last = RepeatTarget::One;
        }
        Err("\\Q is not closed: \\E is missing".into())
    }

    /// Returns the meaning of an escape, both outside of `[...]` and within.
    fn escaped(&mut self, letter: char) -> Result<ClassMember, String> {
        let class = |class: &str| Ok(ClassMember::Several(class.to_owned()));
        match letter {
            'd' => class("0-9"),
            'D' => class("[^0-9]"),
            's' => class("\\t\\n\\x0c\\r "),
            'S' => class("[^\\t\\n\\x0c\\r ]"),
            'w' => class("0-9A-Za-z_"),
            'W' => class("[^0-9A-Za-z_]"),
            'p' | 'P' => self.property(letter == 'P').map(ClassMember::Several),
            'a' => Ok(ClassMember::One('\x07')),
            'f' => Ok(ClassMember::One('\x0c')),
            't' => Ok(ClassMember::One('\t')),
            'n' => Ok(ClassMember::One('\n')),
            'r' => Ok(ClassMember::One('\r')),
            'v' => Ok(ClassMember::One('\x0b')),
            'x' => self.hexadecimal().map(ClassMember::One),
            '0'..='7' => self.octal(letter).map(ClassMember::One),
            mark if mark.is_ascii() && !mark.is_ascii_alphanumeric() => Ok(ClassMember::One(mark)),
            other => Err(format!("unknown escape \\{other}")),
        }
    }

    fn property(&mut self, mut negated: bool) -> Result<String, String> {
        let mut name = String::new();
        match self.rest.next() {
            Some('{') => {
                negated ^= self.take('^');
                while let Some(next) = self.rest.next_if(|next| *next != '}') {
                    name.push(next);
                }
                if !self.take('}') {
                    return Err("\\p{ is not closed: } is missing".into());
                }
            }
            Some(letter) => name.push(letter),
            None => return Err("\\p without a property".into()),
        }
        if name.is_empty() || !name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_') {
            return Err(format!("{name:?} is not a character property"));
        }
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }

    fn hexadecimal(&mut self) -> Result<char, String> {
        let wrong = || "\\x needs two hexadecimal digits, or the number of a character in braces".to_owned();
        let mut digits = String::new();
        if self.take('{') {
            while let Some(digit) = self.rest.next_if(char::is_ascii_hexdigit) {
                digits.push(digit);
            }
            if !self.take('}') {
                return Err(wrong());
            }
        } else {
            for _ in 0..2 {
                digits.extend(self.rest.next_if(char::is_ascii_hexdigit));
            }
            if digits.len() != 2 {
                return Err(wrong());
            }
        }
        u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).ok_or_else(wrong)
    }

    fn octal(&mut self, first: char) -> Result<char, String> {
        let mut number = u32::from(first) - u32::from('0');
        let mut digits = 1;
        while digits < 3 {
            let Some(digit) = self.rest.next_if(|next| matches!(next, '0'..='7')) else { break };
            number = number * 8 + u32::from(digit) - u32::from('0');
            digits += 1;
        }
        match char::from_u32(number) {
            Some(character) if digits > 1 || first == '0' => Ok(character),
            _ => Err(format!("reference \\{first} to a group is not supported")),
        }
    }

    /// Translates a class after its `[`.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.take('^') {
            self.out.push('^');
        }
        let mut is_first = true;
        while is_first || self.rest.peek() != Some(&']') {
            is_first = false;
            match self.member()? {
                ClassMember::Several(class) => self.out.push_str(&class),
                ClassMember::One(from) => {
                    let mut ahead = self.rest.clone();
                    let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|next| next != ']');
                    let mut to = from;
                    if is_range {
                        self.rest.next();
                        to = match self.end()? {
                            to if to < from => {
                                return Err(format!("range {from:?} to {to:?} is reversed"));
                            }
                            to => to,
                        };
                    }
                    self.range(from, to);
                }
            }
        }
        self.rest.next();
        self.out.push(']');
        Ok(())
    }

    fn range(&mut self, from: char, to: char) {
        let number = u32::from;
        match from == to {
            true => self.out.push_str(&format!("\\x{{{:x}}}", number(from))),
            false => self.out.push_str(&format!("\\x{{{:x}}}-\\x{{{:x}}}", number(from), number(to))),
        }
    }

    /// Returns the last character of a range.
    fn end(&mut self) -> Result<char, String> {
        match self.rest.next() {
            Some('\\') => match self.rest.next().map(|letter| self.escaped(letter)).transpose()? {
                Some(ClassMember::One(character)) => Ok(character),
                _ => Err("a range does not end with a character".into()),
            },
            Some(character) => Ok(character),
            None => Err("a [ is not closed: ] is missing".into()),
        }
    }

    fn member(&mut self) -> Result<ClassMember, String> {
        let unclosed = || "a [ is not closed: ] is missing".to_owned();
        match self.rest.next().ok_or_else(unclosed)? {
            '\\' => {
                let letter = self.rest.next().ok_or_else(unclosed)?;
                self.escaped(letter)
            }
            '[' => self.named(),
            character => Ok(ClassMember::One(character)),
        }
    }

    /// Parses a class such as `[:alpha:]`. Without its end, the bracket is a literal.
    fn named(&mut self) -> Result<ClassMember, String> {
        let mut ahead = self.rest.clone();
        if ahead.next_if_eq(&':').is_none() {
            return Ok(ClassMember::One('['));
        }
        let mut name = String::new();
        while let Some(next) = ahead.next() {
            if next == ':' && ahead.next_if_eq(&']').is_some() {
                const POSIX_CLASS_NAMES: [&str; 14] = [
                    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
                    "space", "upper", "word", "xdigit",
                ];
                if !POSIX_CLASS_NAMES.contains(&name.trim_start_matches('^')) {
                    return Err(format!("[:{name}:] is not a character class"));
                }
                self.rest = ahead;
                return Ok(ClassMember::Several(format!("[:{name}:]")));
            }
            name.push(next);
        }
        Ok(ClassMember::One('['))
    }
}

/// Parses a number without leading zeros.
fn number(rest: &mut Peekable<Chars<'_>>) -> Option<u32> {
    let first = rest.next_if(char::is_ascii_digit)?;
    let mut number = first.to_digit(10)?;
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        if first == '0' {
            return None;
        }
        number = number.saturating_mul(10).saturating_add(digit.to_digit(10)?);
    }
    Some(number)
}

#[cfg(test)]
mod tests;
