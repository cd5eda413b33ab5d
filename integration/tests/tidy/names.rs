//! Measures of names: types, constants and statics.

use std::collections::BTreeMap;

use super::measurement::{Measurement, Place, share_tenths};
use super::source::{SourceFile, Workspace};
use super::tokens::{depth_change, text_at};

const TYPE_KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];
const ITEM_KEYWORDS: [&str; 7] = ["impl", "trait", "fn", "mod", "struct", "enum", "extern"];

/// Name that a file defines.
struct DefinedName<'a> {
    name: &'a str,
    path: &'a str,
    line: usize,
}

impl DefinedName<'_> {
    fn to_place(&self, weight: usize, detail: String) -> Place {
        Place { path: self.path.to_owned(), line: self.line, weight, detail }
    }
}

/// Measures types of one word, in percent.
pub fn one_word_types(workspace: &Workspace) -> Measurement {
    let types = all_types(workspace);
    let short = types.iter().filter(|defined| count_words(defined.name) == 1);
    let places = short.map(|defined| defined.to_place(1, format!("type {}", defined.name)));
    Measurement::share_of(places.collect(), types.len(), 100)
}

/// Measures types that share their name with another type of the workspace, in percent. The worst places are the most
/// frequent names.
pub fn shared_type_names(workspace: &Workspace) -> Measurement {
    let types = all_types(workspace);
    let mut by_name: BTreeMap<&str, Vec<&DefinedName>> = BTreeMap::new();
    for defined in &types {
        by_name.entry(defined.name).or_default().push(defined);
    }
    by_name.retain(|_, group| group.len() > 1);
    let count = by_name.values().map(Vec::len).sum();
    let place = |group: &Vec<&DefinedName>| {
        let detail = format!("{} types are named {}, the first of them here", group.len(), group[0].name);
        group[0].to_place(group.len(), detail)
    };
    Measurement {
        tenths: share_tenths(count, types.len(), 100),
        places: by_name.values().map(place).collect(),
    }
}

/// Measures constants and statics of one word, in percent.
pub fn one_word_constants(workspace: &Workspace) -> Measurement {
    let constants: Vec<DefinedName> = workspace.files.iter().flat_map(find_constants).collect();
    let short = constants.iter().filter(|defined| !defined.name.trim_matches('_').contains('_'));
    let places = short.map(|defined| defined.to_place(1, format!("constant {}", defined.name)));
    Measurement::share_of(places.collect(), constants.len(), 100)
}

fn all_types(workspace: &Workspace) -> Vec<DefinedName<'_>> {
    workspace.files.iter().flat_map(find_types).collect()
}

/// Returns the types that a file defines. Associated types do not count.
fn find_types(file: &SourceFile) -> Vec<DefinedName<'_>> {
    let mut types = Vec::new();
    // For each open brace, whether it is that of an `impl` or a `trait`.
    let mut scopes: Vec<bool> = Vec::new();
    let mut item_keyword = "";
    let mut nesting = 0isize;
    for (index, token) in file.tokens.iter().enumerate() {
        let text = token.text.as_str();
        match text {
            "{" => scopes.push(matches!(item_keyword, "impl" | "trait")),
            "}" => drop(scopes.pop()),
            _ => nesting += depth_change(text),
        }
        if matches!(text, "{" | "}") || text == ";" && nesting == 0 {
            item_keyword = "";
        } else if item_keyword.is_empty() && ITEM_KEYWORDS.contains(&text) {
            item_keyword = text;
        }
        let name = text_at(&file.tokens, index + 1);
        let is_associated = text == "type" && scopes.last() == Some(&true);
        if TYPE_KEYWORDS.contains(&text) && name.starts_with(char::is_uppercase) && !is_associated {
            types.push(DefinedName { name, path: &file.path, line: token.line });
        }
    }
    types
}

/// Returns the constants and statics that a file defines; parameters of types do not count.
fn find_constants(file: &SourceFile) -> Vec<DefinedName<'_>> {
    let tokens = &file.tokens;
    let mut constants = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let is_definition = matches!(token.text.as_str(), "const" | "static");
        let is_parameter = index > 0 && matches!(text_at(tokens, index - 1), "<" | "," | "*");
        let after = if text_at(tokens, index + 1) == "mut" { index + 2 } else { index + 1 };
        let name = text_at(tokens, after);
        let is_named = name.starts_with(char::is_uppercase) && text_at(tokens, after + 1) == ":";
        if is_definition && !is_parameter && is_named {
            constants.push(DefinedName { name, path: &file.path, line: token.line });
        }
    }
    constants
}

/// Returns the number of words of a name in PascalCase; a row of capitals is one word.
fn count_words(name: &str) -> usize {
    let letters: Vec<char> = name.chars().collect();
    let begins_word = |&index: &usize| {
        let follows_capital = index > 0 && letters[index - 1].is_uppercase();
        let precedes_small = letters.get(index + 1).is_some_and(|c| c.is_lowercase());
        letters[index].is_uppercase() && (!follows_capital || precedes_small)
    };
    (0..letters.len()).filter(begins_word).count()
}

#[cfg(test)]
mod tests {
    use super::super::source::samples::{code_of, workspace_of};
    use super::*;

    #[test]
    fn words_of_pascal_case_are_counted() {
        let counts = ["Told", "IO", "IoError", "HTTPServer", "V2", "LeaderTerm"].map(count_words);
        assert_eq!(counts, [1, 1, 2, 2, 1, 2]);
    }

    #[test]
    fn types_of_one_word_are_a_share() {
        let text = "pub struct Told;\nenum LeaderTerm { Held }\ntrait Store {\n    type Item;\n}\n\
                    impl Iterator for Told { type Item = u8; fn a(&self) { struct InnerType; } }\n\
                    fn f(a: [u8; 4]) -> impl Fn() {\n    type Alias = u8;\n}\n// struct Comment\n";
        let measured = one_word_types(&code_of(text));
        assert_eq!(measured.tenths, 600, "three of five");
        assert_eq!(measured.places[2].to_string(), "a/src/lib.rs:8: type Alias");
    }

    #[test]
    fn shared_names_are_counted_over_all_crates() {
        let texts = [
            ("a/src/lib.rs", "struct Head;\nstruct Other;\nimpl A for B { type Head = u8; }\n"),
            ("b/src/lib.rs", "enum Head {}\n"),
            ("b/src/c.rs", "struct Third;\n"),
        ];
        let measured = shared_type_names(&workspace_of(&texts));
        assert_eq!(measured.tenths, 500);
        let expected = "a/src/lib.rs:1: 2 types are named Head, the first of them here";
        assert_eq!(measured.places[0].to_string(), expected);
    }

    #[test]
    fn constants_of_one_word_are_a_share() {
        let text = "const LINES: usize = 1;\npub static MAX_LINES: &'static str = \"\";\nconst fn a() {}\n\
                    struct A<const N: usize>;\nconst _: () = ();\nstatic mut TABLE: u8 = 0;\nimpl B { const C_D: *const T = e; }\n";
        assert_eq!(one_word_constants(&code_of(text)).tenths, 500);
    }
}
