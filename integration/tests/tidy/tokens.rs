//! Words and punctuation of Rust code.

use super::split::SourceLine;

/// Punctuation that is one token although it has two characters.
const LONG_PUNCTUATION: [&str; 3] = ["::", "->", "=>"];

/// One word or punctuation mark of the code; literals have none.
pub struct Token {
    pub text: String,
    /// Line, counted from 1.
    pub line: usize,
}

/// Returns the tokens of split lines.
pub fn tokenize(lines: &[SourceLine]) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let mut rest = line.code.trim_start();
        while !rest.is_empty() {
            let (text, after) = rest.split_at(token_length(rest));
            if text != "\"" {
                tokens.push(Token { text: text.to_owned(), line: index + 1 });
            }
            rest = after.trim_start();
        }
    }
    tokens
}

/// Returns the length of the token that a text begins with.
fn token_length(text: &str) -> usize {
    if LONG_PUNCTUATION.iter().any(|mark| text.starts_with(mark)) {
        return 2;
    }
    let prefix = if text.starts_with("r#") { 2 } else { usize::from(text.starts_with('\'')) };
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let word = text[prefix..].find(|c| !is_word(c)).unwrap_or(text.len() - prefix);
    if word > 0 { prefix + word } else { text.chars().next().map_or(0, char::len_utf8) }
}

/// Returns the text of a token, empty past the end.
pub fn text_at(tokens: &[Token], index: usize) -> &str {
    tokens.get(index).map_or("", |token| &token.text)
}

/// Returns how a token changes the depth of nesting.
pub fn depth_change(text: &str) -> isize {
    match text {
        "(" | "[" | "{" => 1,
        ")" | "]" | "}" => -1,
        _ => 0,
    }
}

/// Returns the index of the bracket that closes the one at `open`.
pub fn closing_index(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().enumerate().skip(open).find_map(|(index, token)| {
        depth += depth_change(&token.text);
        (depth == 0).then_some(index)
    })
}

/// Returns the index of the angle bracket that closes the one at `open`.
fn closing_angle(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().enumerate().skip(open).find_map(|(index, token)| {
        depth += angle_change(&token.text);
        (depth == 0).then_some(index)
    })
}

/// Returns how a token changes the depth of angle brackets.
pub fn angle_change(text: &str) -> isize {
    match text {
        "<" => 1,
        ">" => -1,
        _ => 0,
    }
}

/// Signature and body of a function, as indexes of tokens.
pub struct FunctionSpan {
    /// Index of the word `fn`.
    pub start: usize,
    /// Indexes of the parentheses around the parameters.
    pub parameters: (usize, usize),
    /// Indexes of the braces around the body; a declaration has none.
    pub body: Option<(usize, usize)>,
}

/// Returns all named functions, those inside others included.
pub fn find_functions(tokens: &[Token]) -> Vec<FunctionSpan> {
    let starts = (0..tokens.len()).filter(|&index| tokens[index].text == "fn");
    starts.filter_map(|start| find_function(tokens, start)).collect()
}

fn find_function(tokens: &[Token], start: usize) -> Option<FunctionSpan> {
    let name = text_at(tokens, start + 1);
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return None;
    }
    let mut open = start + 2;
    if text_at(tokens, open) == "<" {
        open = closing_angle(tokens, open)? + 1;
    }
    if text_at(tokens, open) != "(" {
        return None;
    }
    let close = closing_index(tokens, open)?;
    let mut index = close + 1;
    while !matches!(text_at(tokens, index), "{" | ";" | "") {
        let is_nested = depth_change(&tokens[index].text) > 0;
        index = if is_nested { closing_index(tokens, index)? + 1 } else { index + 1 };
    }
    let body = (text_at(tokens, index) == "{").then(|| closing_index(tokens, index)).flatten();
    Some(FunctionSpan { start, parameters: (open, close), body: body.map(|end| (index, end)) })
}

#[cfg(test)]
mod tests {
    use super::super::split::split_lines;
    use super::*;

    #[test]
    fn code_is_cut_into_words_and_punctuation() {
        let tokens = tokenize(&split_lines("use a::{b};\nfn r#type<'a>(x: &'a str) -> u8 { \"c\".d() }"));
        let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        let expected = "use a :: { b } ; fn r#type < 'a > ( x : & 'a str ) -> u8 { . d ( ) }";
        assert_eq!(texts, expected.split(' ').collect::<Vec<_>>());
        assert_eq!(tokens[7].line, 2);
    }

    #[test]
    fn functions_are_found_with_parameters_and_body() {
        let text = "trait A { fn a(&self) -> [u8; 4]; }\nfn b<F: Fn(u8) -> u8>(f: F) where F: Send {\n fn c() {}\n}\ntype D = fn(u8);";
        let tokens = tokenize(&split_lines(text));
        let functions = find_functions(&tokens);
        let lines = |span: &FunctionSpan| span.body.map(|(start, end)| tokens[end].line - tokens[start].line);
        assert_eq!(functions.iter().map(lines).collect::<Vec<_>>(), [None, Some(2), Some(0)]);
        let parameters: Vec<usize> =
            functions.iter().map(|span| span.parameters.1 - span.parameters.0).collect();
        assert_eq!(parameters, [3, 4, 1]);
    }
}
