//! Measures of the shape of code: tuples, and lengths of functions, files and folders.

use std::collections::BTreeMap;

use super::measurement::{Measurement, Place};
use super::source::{SourceFile, Workspace};
use super::tokens::{
    FunctionSpan, Token, angle_change, closing_index, depth_change, find_functions, text_at,
};

/// Code lines that a file may have.
const MAX_FILE_LINES: usize = 500;
/// Code lines that a function may have, its signature and braces included.
const MAX_FUNCTION_LINES: usize = 70;

/// Measures lets that bind a tuple pattern to a literal tuple, per 1000 lines of code.
pub fn tuple_lets(workspace: &Workspace) -> Measurement {
    let mut places = Vec::new();
    for file in &workspace.files {
        let starts = (0..file.tokens.len()).filter(|&index| is_tuple_let(&file.tokens, index));
        places.extend(starts.map(|start| token_place(file, start, 1, "several bindings in one let".into())));
    }
    let lines = workspace.files.iter().map(SourceFile::count_code_lines).sum();
    Measurement::share_of(places, lines, 1000)
}

/// Returns whether a statement `let (…) = (…);` begins at a token.
fn is_tuple_let(tokens: &[Token], index: usize) -> bool {
    let starts_let = text_at(tokens, index) == "let" && text_at(tokens, index + 1) == "(";
    let pattern_end = starts_let.then(|| closing_index(tokens, index + 1)).flatten();
    let Some(mut equals) = pattern_end.map(|end| end + 1) else {
        return false;
    };
    while !matches!(text_at(tokens, equals), "=" | ";" | "{" | "") {
        equals += 1;
    }
    if text_at(tokens, equals) != "=" || text_at(tokens, equals + 1) != "(" {
        return false;
    }
    let end = closing_index(tokens, equals + 1);
    end.is_some_and(|end| text_at(tokens, end + 1) == ";" && has_comma(&tokens[equals + 2..end]))
}

/// Returns whether tokens have a comma that lies in no brackets.
fn has_comma(tokens: &[Token]) -> bool {
    let mut depth = 0;
    tokens.iter().any(|token| {
        depth += depth_change(&token.text);
        depth == 0 && token.text == ","
    })
}

/// Counts parameters of functions that are tuple patterns; those of closures do not count.
pub fn tuple_parameters(workspace: &Workspace) -> Measurement {
    let mut places = Vec::new();
    for file in &workspace.files {
        for function in find_functions(&file.tokens) {
            let name = text_at(&file.tokens, function.start + 1);
            let indexes = tuple_parameters_of(&file.tokens, &function);
            let detail = || format!("tuple parameter of {name}");
            places.extend(indexes.into_iter().map(|index| token_place(file, index, 1, detail())));
        }
    }
    Measurement::count_of(places)
}

/// Returns the indexes of the parentheses of tuple patterns among the parameters of a function.
fn tuple_parameters_of(tokens: &[Token], function: &FunctionSpan) -> Vec<usize> {
    let mut found = Vec::new();
    let mut depth = 0;
    let mut is_start = true;
    for index in function.parameters.0 + 1..function.parameters.1 {
        let text = text_at(tokens, index);
        if depth == 0 && is_start && text == "(" {
            let close = closing_index(tokens, index);
            found.extend(close.filter(|close| text_at(tokens, close + 1) == ":").map(|_| index));
        }
        depth += depth_change(text) + angle_change(text);
        is_start = depth == 0 && (text == "," || is_start && text == "&");
    }
    found
}

/// Measures the most Rust files that lie directly in one folder.
pub fn files_in_one_folder(workspace: &Workspace) -> Measurement {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &workspace.files {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *counts.entry(folder).or_default() += 1;
    }
    let place = |(folder, count): (&str, usize)| {
        let detail = format!("{count} files");
        Place { path: folder.to_owned(), line: 0, weight: count, detail }
    };
    Measurement::greatest_of(counts.into_iter().map(place).collect())
}

/// Counts files that have too many lines of code.
pub fn long_files(workspace: &Workspace) -> Measurement {
    let counted = workspace.files.iter().map(|file| (file, file.count_code_lines()));
    let long = counted.filter(|(_, count)| *count > MAX_FILE_LINES);
    let place = |(file, count): (&SourceFile, usize)| {
        let detail = format!("{count} lines of code");
        Place { path: file.path.clone(), line: 0, weight: count, detail }
    };
    Measurement::count_of(long.map(place).collect())
}

/// Counts functions that have too many lines of code, those of nested functions included.
pub fn long_functions(workspace: &Workspace) -> Measurement {
    let mut places = Vec::new();
    for file in &workspace.files {
        for function in find_functions(&file.tokens) {
            let count = count_function_lines(file, &function);
            if count > MAX_FUNCTION_LINES {
                let name = text_at(&file.tokens, function.start + 1);
                let detail = format!("{name} has {count} lines of code");
                places.push(token_place(file, function.start, count, detail));
            }
        }
    }
    Measurement::count_of(places)
}

fn count_function_lines(file: &SourceFile, function: &FunctionSpan) -> usize {
    let first_line = file.tokens[function.start].line;
    let last_line = function.body.map_or(first_line, |(_, end)| file.tokens[end].line);
    file.lines[first_line - 1..last_line].iter().filter(|line| line.has_code()).count()
}

fn token_place(file: &SourceFile, index: usize, weight: usize, detail: String) -> Place {
    Place { path: file.path.clone(), line: file.tokens[index].line, weight, detail }
}

#[cfg(test)]
mod tests {
    use super::super::source::samples::{code_of, workspace_of};
    use super::*;

    #[test]
    fn lets_that_pack_tuples_are_counted() {
        let text = "fn f() {\n    let (a, b) = (x, y);\n    let (mut c, d): (u8, Vec<u8>) = (\n        g(1, 2),\n        \"\",\n    );\n\
                    \x20   let (e, h) = split(i, j);\n    let (k, l) = (m).n();\n    let (Some(o), p) = (q, r) else { return };\n\
                    \x20   if let (Some(s), t) = (u, v) {}\n    let w = (x, y);\n    let (z) = (z(a, b));\n}\n";
        let measured = tuple_lets(&code_of(text));
        assert_eq!(measured.tenths, 2 * 10 * 1000 / 13);
        assert_eq!(measured.places.iter().map(|place| place.line).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn parameters_that_are_tuple_patterns_are_counted() {
        let text = "fn a((b, c): (u8, u8), d: HashMap<u8, (u8, u8)>, &(e, f): &(u8, u8)) -> (u8, u8) {\n\
                    \x20   g.map(|(h, i): (u8, u8)| h);\n}\nfn j<K: Fn(u8) -> (u8,)>(\n    k: K,\n    (l, m): (u8, u8),\n) {}\n";
        let measured = tuple_parameters(&code_of(text));
        assert_eq!(measured.tenths, 30);
        assert_eq!(measured.places[2].to_string(), "a/src/lib.rs:6: tuple parameter of j");
    }

    #[test]
    fn fullest_folder_counts() {
        let texts = [("a/src/lib.rs", ""), ("a/src/b.rs", ""), ("a/src/tests.rs", ""), ("a/src/b/c.rs", "")];
        assert_eq!(files_in_one_folder(&workspace_of(&texts)).tenths, 20);
    }

    #[test]
    fn lines_of_code_make_a_file_or_function_long() {
        let statements = |count: usize| "    a();\n\n    // b\n".repeat(count);
        let function = |count: usize| format!("fn a(\n) {{\n{}}}\n", statements(count));
        let text = format!("{}{}", function(67), function(68));
        let measured = long_functions(&code_of(&text));
        assert_eq!(measured.tenths, 10);
        assert_eq!(measured.places[0].weight, 71);
        assert_eq!(long_files(&code_of(&function(497))).tenths, 0);
        assert_eq!(long_files(&code_of(&function(498))).tenths, 10);
    }
}
