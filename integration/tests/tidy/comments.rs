//! Measures of comments: how documentation begins, and words that name no component.

use super::measurement::{Measurement, Place, share_tenths};
use super::source::{SourceFile, Workspace};
use super::split::SourceLine;

/// Words that documentation does not begin with: they leave open what the item is.
const WEAK_FIRST_WORDS: [&str; 17] = [
    "what", "who", "whom", "whose", "which", "how", "of", "whether", "it", "they", "those", "some", "one",
    "nothing", "nobody", "whoever", "whatever",
];

/// Measures documentation whose first word is weak, in percent of all blocks of documentation.
pub fn weak_first_words(workspace: &Workspace) -> Measurement {
    let mut count = 0;
    let mut places = Vec::new();
    for file in &workspace.files {
        for block in find_doc_blocks(file) {
            count += 1;
            if WEAK_FIRST_WORDS.contains(&block.first_word.as_str()) {
                let detail = format!("documentation begins with {:?}", block.first_word);
                places.push(Place { path: file.path.clone(), line: block.line, weight: 1, detail });
            }
        }
    }
    Measurement::share_of(places, count, 100)
}

/// Measures "what" per 10 000 words of comments.
pub fn uses_of_what(workspace: &Workspace) -> Measurement {
    uses_of(workspace, &["what"])
}

/// Measures "who" and its forms per 10 000 words of comments.
pub fn uses_of_who(workspace: &Workspace) -> Measurement {
    uses_of(workspace, &["who", "whom", "whose", "whoever"])
}

/// Measures "tell" and "say" and their forms per 10 000 words of comments.
pub fn uses_of_tell(workspace: &Workspace) -> Measurement {
    uses_of(workspace, &["tell", "tells", "told", "say", "says", "said"])
}

/// Measures words per 10 000 words of comments. The worst places are the files that use them most.
fn uses_of(workspace: &Workspace, wanted: &[&str]) -> Measurement {
    let mut word_count = 0;
    let mut use_count = 0;
    let mut places = Vec::new();
    for file in &workspace.files {
        let mut lines = Vec::new();
        for (index, line) in file.lines.iter().enumerate() {
            let words = comment_words(&line.comment);
            word_count += words.len();
            let uses = words.iter().filter(|word| wanted.contains(&word.as_str()));
            lines.extend(uses.map(|_| index + 1));
        }
        use_count += lines.len();
        if let Some(&line) = lines.first() {
            let detail = format!("{} in this file, the first of them here", lines.len());
            places.push(Place { path: file.path.clone(), line, weight: lines.len(), detail });
        }
    }
    Measurement { tenths: share_tenths(use_count, word_count, 10_000), places }
}

/// Returns the words of a comment in lower case.
fn comment_words(comment: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '\'');
    let words = comment.split(|c| !is_part(c)).filter(|word| word.contains(char::is_alphabetic));
    words.map(|word| word.trim_matches('\'').to_lowercase()).collect()
}

/// Lines of documentation that follow each other.
struct DocBlock {
    /// First line, counted from 1.
    line: usize,
    first_word: String,
}

fn find_doc_blocks(file: &SourceFile) -> Vec<DocBlock> {
    let mut blocks: Vec<DocBlock> = Vec::new();
    let mut open_marker = None;
    for (index, line) in file.lines.iter().enumerate() {
        let marker = doc_marker(line);
        if marker.is_some() && marker != open_marker {
            blocks.push(DocBlock { line: index + 1, first_word: String::new() });
        }
        if let (Some(_), Some(block)) = (marker, blocks.last_mut())
            && block.first_word.is_empty()
        {
            block.first_word = first_word(&line.comment);
        }
        open_marker = marker;
    }
    blocks
}

/// Returns the marker of documentation that a line consists of.
fn doc_marker(line: &SourceLine) -> Option<&'static str> {
    let is_doc = |marker: &&str| line.comment.starts_with(*marker) && !line.comment.starts_with("////");
    ["///", "//!"].into_iter().find(is_doc).filter(|_| !line.has_code())
}

fn first_word(comment: &str) -> String {
    let text = comment.trim_start_matches(|c: char| !c.is_alphabetic());
    text.chars().take_while(|c| c.is_alphabetic()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::samples::code_of;
    use super::*;

    #[test]
    fn first_word_of_each_block_counts() {
        let text = "//! What it is.\n//! Who.\n/// Returns it.\nfn a() {}\n\n///\n/// `Of` those.\n#[a]\n/// It's.\nfn b() {}\n\
                    //// Who\n// Who\nlet a = \"/// Who\";\n";
        let measured = weak_first_words(&code_of(text));
        assert_eq!(measured.tenths, 750);
        let lines: Vec<usize> = measured.places.iter().map(|place| place.line).collect();
        assert_eq!(lines, [1, 6, 9]);
    }

    #[test]
    fn words_are_counted_in_comments_only() {
        let text = "// What who's whose\nfn what() { a(\"what\") } // says: 4 it_told, told\n#[cfg(test)]\nfn b() {\n    // what\n}\n";
        let workspace = code_of(text);
        assert_eq!(uses_of_what(&workspace).tenths, 10 * 10_000 / 6 + 1);
        assert_eq!(uses_of_who(&workspace).tenths, 10 * 10_000 / 6 + 1);
        assert_eq!(uses_of_tell(&workspace).tenths, 2 * 10 * 10_000 / 6);
        assert_eq!(uses_of_tell(&workspace).places[0].line, 2);
    }
}
