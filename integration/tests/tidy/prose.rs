//! Measures of the documents: the longest sentence, and the words of two pages.

use super::measurement::{Measurement, Place};
use super::source::Workspace;

/// Pages beside those in `docs` whose sentences count.
const TOP_PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
/// Words that end with a full stop and end no sentence.
const ABBREVIATIONS: [&str; 4] = ["e.g.", "i.e.", "vs.", "cf."];
/// Words of a sentence that its finding shows.
const SHOWN_WORDS: usize = 8;

/// Character that stands for punctuation in code, which ends no sentence.
const CODE_DOT: char = '\u{2024}';

/// Text that belongs together: a paragraph, a heading, a list item or a cell of a table.
struct TextUnit {
    /// First line, counted from 1.
    line: usize,
    text: String,
}

/// Measures the longest sentence of the documents, in words.
pub fn longest_sentence(workspace: &Workspace) -> Measurement {
    let is_document =
        |path: &str| TOP_PAGES.contains(&path) || path.starts_with("docs/") && path.ends_with(".md");
    let mut places = Vec::new();
    for page in workspace.pages.iter().filter(|page| is_document(&page.path)) {
        for unit in find_units(&page.text) {
            for sentence in split_sentences(&unit.text) {
                let count = sentence.len();
                let shown = sentence[..count.min(SHOWN_WORDS)].join(" ");
                let detail = format!("{count} words: {shown} …");
                places.push(Place { path: page.path.clone(), line: unit.line, weight: count, detail });
            }
        }
    }
    Measurement::greatest_of(places)
}

/// Counts the words of `ARCHITECTURE.md`.
pub fn architecture_words(workspace: &Workspace) -> Measurement {
    page_words(workspace, "ARCHITECTURE.md")
}

/// Counts the words of `README.md`.
pub fn readme_words(workspace: &Workspace) -> Measurement {
    page_words(workspace, "README.md")
}

/// Counts the words of a page, without blocks of code. Its longest sections are the worst places.
fn page_words(workspace: &Workspace, path: &str) -> Measurement {
    let mut count = 0;
    let mut places: Vec<Place> = Vec::new();
    let page = workspace.pages.iter().find(|page| page.path == path);
    for unit in page.iter().flat_map(|page| find_units(&page.text)) {
        let words = split_sentences(&unit.text).iter().map(Vec::len).sum::<usize>();
        count += words;
        if unit.text.starts_with('#') || places.is_empty() {
            places.push(Place { path: path.to_owned(), line: unit.line, weight: 0, detail: String::new() });
        }
        if let Some(section) = places.last_mut() {
            section.weight += words;
            section.detail = format!("{} words in this section", section.weight);
        }
    }
    Measurement { tenths: 10 * count as u64, places }
}

/// Returns the lines of a page that lie in no block of code, with their numbers.
pub fn lines_outside_code(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut outside = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        if !is_fence && !is_code {
            outside.push((index + 1, line));
        }
        is_code ^= is_fence;
    }
    outside
}

/// Returns the units of a page's text.
fn find_units(text: &str) -> Vec<TextUnit> {
    let mut units: Vec<TextUnit> = Vec::new();
    let mut is_open = false;
    let mut last_line = 0;
    for (line, raw) in lines_outside_code(text) {
        let content = raw.trim_start_matches(['>', ' ', '\t']).trim_end();
        let is_row = content.starts_with('|');
        let is_heading = content.starts_with('#');
        let list_item = strip_list_marker(content);
        let continues = is_open && line == last_line + 1;
        if is_row {
            let cells = content.split('|').filter(|cell| !cell.trim().is_empty());
            units.extend(cells.map(|cell| TextUnit { line, text: cell.trim().to_owned() }));
        } else if continues && !is_heading && list_item.is_none() && !content.is_empty() {
            if let Some(unit) = units.last_mut() {
                unit.text.push(' ');
                unit.text.push_str(content);
            }
        } else if !content.is_empty() {
            units.push(TextUnit { line, text: list_item.unwrap_or(content).to_owned() });
        }
        is_open = !is_row && !is_heading && !content.is_empty();
        last_line = line;
    }
    units
}

/// Returns the text of a list item.
fn strip_list_marker(content: &str) -> Option<&str> {
    let after_number = content.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = after_number.strip_prefix(". ").filter(|_| after_number.len() < content.len());
    numbered.or_else(|| ["- ", "* ", "+ "].iter().find_map(|marker| content.strip_prefix(marker)))
}

/// Splits a unit into sentences, and these into words.
fn split_sentences(unit: &str) -> Vec<Vec<String>> {
    let text = plain_text(unit);
    let mut sentences = vec![Vec::new()];
    for word in text.split_whitespace() {
        let bare = word.trim_end_matches([')', '"', '*', '_', '”', '’']);
        if word.contains(char::is_alphanumeric)
            && let Some(sentence) = sentences.last_mut()
        {
            sentence.push(word.to_owned());
        }
        if bare.ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&bare.trim_start_matches('(')) {
            sentences.push(Vec::new());
        }
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

/// Returns the text of a unit with links replaced by their text. Code in the text ends no sentence.
fn plain_text(unit: &str) -> String {
    let mut plain = String::new();
    let mut is_code = false;
    let mut rest = unit;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        is_code ^= c == '`';
        if c == ']' && !is_code && rest.starts_with('(') {
            rest = rest.find(')').map_or("", |end| &rest[end + 1..]);
        } else if is_code && matches!(c, '.' | '!' | '?') {
            plain.push(CODE_DOT);
        } else if !matches!(c, '`' | '[' | ']') {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::source::samples::workspace_of;
    use super::*;

    fn sentences_of(text: &str) -> Vec<String> {
        let units = find_units(text);
        let sentences = units.iter().flat_map(|unit| split_sentences(&unit.text));
        sentences.map(|words| words.join(" ")).collect()
    }

    #[test]
    fn units_and_sentences_are_separated() {
        let text = "# A title\nOne two\nthree. Four (e.g. five.)  Six\n- seven\n  eight\n1. nine\n\n```sh\nten. eleven\n```\n\
                    | twelve | 1.5 `a. b` |\n|---|---|\nSee [the\npage](docs/x.md#y), [z](w).\n";
        let expected = [
            "A title",
            "One two three.",
            "Four (e.g. five.)",
            "Six",
            "seven eight",
            "nine",
            "twelve",
            "1.5 a\u{2024} b",
            "See the page, z.",
        ];
        assert_eq!(sentences_of(text), expected);
    }

    #[test]
    fn longest_sentence_of_documents_counts() {
        let workspace = workspace_of(&[
            ("README.md", "One two.\n"),
            ("docs/design/a.md", "x\n\nOne two\nthree\n"),
            ("CHANGELOG.md", "One two three four five.\n"),
        ]);
        assert_eq!(longest_sentence(&workspace).tenths, 30);
    }

    #[test]
    fn words_of_a_page_are_counted_by_section() {
        let text = "# One\n\ntwo three\n\n## Four\n- five six [seven](eight.md)\n```\nnine\n```\n";
        let measured = page_words(&workspace_of(&[("README.md", text)]), "README.md");
        assert_eq!(measured.tenths, 70);
        assert_eq!(measured.places[1].to_string(), "README.md:5: 4 words in this section");
    }
}
