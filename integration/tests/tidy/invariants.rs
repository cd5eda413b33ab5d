//! The invariants page and the code agree: numbers are defined and cited, and what the page names exists.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use super::source::{TextFile, read_files, root};

const PAGE_PATH: &str = "docs/design/invariants.md";
const SECTION_LABELS: [&str; 4] = ["- Reason: ", "- Enforced in: ", "- Tests: ", "- Mutants: "];
/// Numbers of the old form of citation, an `E` and a number.
const OLD_NUMBERS: RangeInclusive<u8> = 1..=20;

/// Returns the numbers that a text cites or defines, as they are written.
fn cited_numbers(text: &str) -> BTreeSet<&str> {
    let after = text.split("INV-").skip(1);
    let digits = after.map(|rest| &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]);
    digits.filter(|digits| !digits.is_empty()).collect()
}

/// Returns the numbers that the page's headings define.
fn defined_numbers(page: &str) -> BTreeSet<&str> {
    page.lines().filter(|line| line.starts_with("## ")).flat_map(cited_numbers).collect()
}

/// Returns whether a line cites an invariant by an `E` and its number. In code only comments cite.
fn has_old_citation(line: &str, is_code: bool) -> bool {
    let prose = if is_code { line.split_once("//").map_or("", |(_, comment)| comment) } else { line };
    let words = prose.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut numbers = words.filter_map(|word| word.strip_prefix('E')?.parse::<u8>().ok());
    numbers.any(|number| OLD_NUMBERS.contains(&number))
}

/// Returns where numbers and citations do not fit together.
fn citation_problems(page: &str, sources: &[TextFile]) -> Vec<String> {
    let defined = defined_numbers(page);
    let mut unused = defined.clone();
    let mut problems = Vec::new();
    for TextFile { path, text } in sources {
        let is_code = path.ends_with(".rs");
        let cited = cited_numbers(text);
        for number in cited.difference(&defined) {
            problems.push(format!("{path} cites invariant {number}, which {PAGE_PATH} does not define"));
        }
        if is_code {
            unused.retain(|number| !cited.contains(number));
        }
        for (index, _) in text.lines().enumerate().filter(|(_, line)| has_old_citation(line, is_code)) {
            problems.push(format!("{path}:{} cites an invariant in the old form", index + 1));
        }
    }
    problems.extend(unused.iter().map(|number| format!("no code cites invariant {number}")));
    problems
}

/// Returns what is wrong with a name in backticks: a path, a test as `path::function`, or a mutant.
fn name_problem(root: &Path, name: &str, is_mutant: bool) -> Option<String> {
    if is_mutant {
        let is_there = root.join(format!("integration/mutants/{name}.patch")).is_file();
        return (!is_there).then(|| format!("there is no mutant {name}"));
    }
    let (path, function) = name.split_once("::").unwrap_or((name, ""));
    if !path.ends_with(".rs") {
        return None;
    }
    let Ok(text) = std::fs::read_to_string(root.join(path)) else {
        return Some(format!("there is no file {path}"));
    };
    let is_there = function.is_empty() || text.contains(&format!("fn {function}("));
    (!is_there).then(|| format!("{path} has no function {function}"))
}

/// Returns which names of the page do not exist, and which sections lack something.
fn page_problems(root: &Path, page: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for line in page.lines() {
        let names = line.split('`').skip(1).step_by(2);
        let is_mutant = line.starts_with("- Mutants: ");
        problems.extend(names.filter_map(|name| name_problem(root, name, is_mutant)));
    }
    for section in page.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap_or_default();
        for label in SECTION_LABELS.iter().filter(|label| !section.contains(&format!("\n{label}"))) {
            problems.push(format!("section {title} has no line `{label}`"));
        }
    }
    problems
}

#[test]
fn invariants_are_defined_cited_and_proven() {
    let sources = read_files(&root(), &["rs", "md", "patch"]);
    let page = &sources.iter().find(|source| source.path == PAGE_PATH).expect("the page of invariants").text;
    assert!(!defined_numbers(page).is_empty(), "{PAGE_PATH} defines nothing");
    let mut problems = citation_problems(page, &sources);
    problems.extend(page_problems(&root(), page));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn wrong_citations_are_listed() {
    let prefix = "INV-";
    let page = format!("# Page\n\n## {prefix}01: one\n\n## {prefix}02: two\n");
    let source = |path: &str, text: String| TextFile { path: path.to_owned(), text };
    let good = source("a.rs", format!("fn a<E1>() {{}} // [{prefix}01, {prefix}02]\n"));
    assert_eq!(citation_problems(&page, &[good]), [""; 0]);
    let unknown = source("a.rs", format!("// [{prefix}01] and {prefix}03\n"));
    assert_eq!(citation_problems(&page, &[unknown]).len(), 2, "one is undefined, one is not cited");
    let old = source("a.md", format!("It counts once ({}7), {prefix}02.\n", 'E'));
    assert_eq!(citation_problems(&page, &[old]).len(), 3, "no code cites either");
}

#[test]
fn missing_names_and_lines_are_listed() {
    let page = "# Page\n\n## One\n- Tests: `Cargo.toml`, `x/missing.rs`, `chassis/src/lib.rs::missing`\n\
                - Mutants: `missing`\n";
    assert_eq!(page_problems(&root(), page).len(), 5, "{:?}", page_problems(&root(), page));
}
