//! Splits the text of a Rust file into code and comments, line by line.

/// Attribute of an item that only tests have, as rustfmt writes it.
const TEST_ATTRIBUTE: &str = "#[cfg(test)]";
/// Prefixes of string literals, without the hashes of raw strings.
const STRING_PREFIXES: [&str; 6] = ["", "b", "c", "r", "br", "cr"];

/// One line of a Rust file.
#[derive(Clone, Default)]
pub struct SourceLine {
    /// Code without comments. Each character of a literal is replaced by a quotation mark.
    pub code: String,
    /// Comment with its marker.
    pub comment: String,
}

impl SourceLine {
    /// Returns whether the line has code.
    pub fn has_code(&self) -> bool {
        !self.code.trim().is_empty()
    }
}

/// Lines of a Rust file without items that only tests have.
pub struct ProductLines {
    /// All lines of the file; those of test items are empty.
    pub lines: Vec<SourceLine>,
    /// Modules that only tests have and that lie in files of their own.
    pub test_modules: Vec<String>,
}

/// Splits a file and empties the lines of items under `#[cfg(test)]`.
pub fn split_product(text: &str) -> ProductLines {
    let mut lines = split_lines(text);
    let mut test_modules = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        if lines[index].code.trim() != TEST_ATTRIBUTE {
            index += 1;
            continue;
        }
        let end = end_of_item(&lines, index);
        for line in &mut lines[index..end] {
            let code = line.code.trim();
            let module = code.strip_suffix(';').and_then(|code| code.rsplit_once("mod "));
            test_modules.extend(module.map(|(_, name)| name.to_owned()));
            *line = SourceLine::default();
        }
        index = end;
    }
    ProductLines { lines, test_modules }
}

/// Returns the line after the item whose attribute is at `start`. In formatted code, an item ends with the first line
/// that has its indentation and closes it.
fn end_of_item(lines: &[SourceLine], start: usize) -> usize {
    let indentation = |code: &str| code.len() - code.trim_start().len();
    let indent = indentation(&lines[start].code);
    let is_last = |line: &SourceLine| {
        let code = line.code.trim_end();
        indentation(code) == indent && !code.trim_start().starts_with('#') && code.ends_with([';', '}', ','])
    };
    let length = lines[start..].iter().position(is_last);
    length.map_or(lines.len(), |length| start + length + 1)
}

/// Splits each line of a Rust file into code and comment.
pub fn split_lines(text: &str) -> Vec<SourceLine> {
    let mut splitter = Splitter { lines: vec![SourceLine::default()] };
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let piece;
        if let Some(length) = comment_length(rest) {
            piece = &rest[..length];
            splitter.push_comment(piece);
        } else if let Some(length) = string_length(rest).or_else(|| character_length(rest)) {
            piece = &rest[..length];
            splitter.push_literal(piece);
        } else {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let word_length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            piece = &rest[..word_length.max(first.len_utf8())];
            splitter.push_code(piece);
        }
        rest = &rest[piece.len()..];
    }
    splitter.lines
}

/// Lines that were split so far.
struct Splitter {
    lines: Vec<SourceLine>,
}

impl Splitter {
    fn push_code(&mut self, piece: &str) {
        for c in piece.chars() {
            self.push(c, |line, c| line.code.push(c));
        }
    }
    fn push_literal(&mut self, piece: &str) {
        for c in piece.chars() {
            self.push(c, |line, _| line.code.push('"'));
        }
    }
    fn push_comment(&mut self, piece: &str) {
        for c in piece.chars() {
            self.push(c, |line, c| line.comment.push(c));
        }
    }
    /// Adds a character to the last line, or begins a line.
    fn push(&mut self, c: char, add: impl Fn(&mut SourceLine, char)) {
        if c == '\n' {
            self.lines.push(SourceLine::default());
        } else if let Some(line) = self.lines.last_mut() {
            add(line, c);
        }
    }
}

/// Returns the length of the comment that a text begins with.
fn comment_length(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let mut depth = 0usize;
    let mut end = 0;
    while text.len() > end && (depth > 0 || text.starts_with("/*")) {
        if text[end..].starts_with("/*") {
            depth += 1;
            end += 2;
        } else if text[end..].starts_with("*/") {
            depth -= 1;
            end += 2;
            if depth == 0 {
                break;
            }
        } else {
            end += text[end..].chars().next().map_or(1, char::len_utf8);
        }
    }
    (end > 0).then_some(end)
}

/// Returns the length of the string literal that a text begins with.
fn string_length(text: &str) -> Option<usize> {
    let prefix = STRING_PREFIXES.iter().rev().find(|prefix| {
        let rest = text.strip_prefix(**prefix);
        rest.is_some_and(|rest| rest.starts_with('"') || prefix.ends_with('r') && rest.starts_with('#'))
    })?;
    let is_raw = prefix.ends_with('r');
    let after_prefix = &text[prefix.len()..];
    let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
    let body = after_prefix[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let body_length = if is_raw { body.find(&end)? } else { unescaped_length(body, '"')? };
    Some(prefix.len() + hashes + 1 + body_length + end.len())
}

/// Returns the length of the character literal that a text begins with; a lifetime is none.
fn character_length(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let first = body.chars().next()?;
    if first == '\\' || body[first.len_utf8()..].starts_with('\'') {
        return Some(unescaped_length(body, '\'')? + 2);
    }
    None
}

/// Returns the length of a text up to the first such quotation mark that no backslash escapes.
fn unescaped_length(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (index, c) in text.char_indices() {
        if c == quote && !is_escaped {
            return Some(index);
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_separated_from_code() {
        let text = "let a = \"// {\\\"\"; // b\nlet c: &'a str = r#\"\"{\"#; /* d\n/* e */ f */ g('{', b\"\\\\\", '\\'');";
        let lines = split_lines(text);
        let code: Vec<String> = lines.iter().map(|line| line.code.replace('"', "")).collect();
        assert_eq!(code, ["let a = ; ", "let c: &'a str = ; ", " g(, , );"]);
        let comments: Vec<&str> = lines.iter().map(|line| line.comment.as_str()).collect();
        assert_eq!(comments, ["// b", "/* d", "/* e */ f */"]);
    }

    #[test]
    fn string_over_several_lines_is_code_on_each() {
        let lines = split_lines("let a = \"b\n// c\n\";");
        assert_eq!(lines.iter().filter(|line| line.has_code()).count(), 3);
    }

    #[test]
    fn test_items_are_emptied_and_test_modules_named() {
        let text = "// a\nfn a() {}\n\n#[cfg(test)]\nmod oracle;\n\nstruct B {\n    #[cfg(test)]\n    seen: u8,\n    c: u8,\n}\n\
                    #[cfg(test)]\n#[expect(x)]\nmod tests {\n    // d\n    fn a(\n    ) {\n    }\n}\nfn b() {}\n";
        let product = split_product(text);
        assert_eq!(product.lines.iter().filter(|line| line.has_code()).count(), 5);
        assert_eq!(product.lines.iter().filter(|line| !line.comment.is_empty()).count(), 1);
        assert_eq!(product.test_modules, ["oracle"]);
    }
}
