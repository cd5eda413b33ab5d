//! Metrics, settings and commands that pages name exist in the generated pages of `docs/reference`.

use std::collections::BTreeSet;

use super::source::{TextFile, Workspace};

/// Prefix of the product's own metrics.
const METRIC_PREFIX: &str = "athanor_";
/// Endings that an exposition adds to the name of a histogram.
const HISTOGRAM_ENDINGS: [&str; 3] = ["_bucket", "_sum", "_count"];
/// First words of commands in prose that belong to no command of this program.
const OTHER_WORDS: [&str; 2] = ["serve", "help"];

/// Returns the text of a page of `docs/reference`.
fn reference_page(pages: &[TextFile], name: &str) -> String {
    let path = format!("docs/reference/{name}");
    pages.iter().find(|page| page.path == path).map(|page| page.text.clone()).unwrap_or_default()
}

/// Returns the parts of a page in backticks or in code blocks.
fn code_spans(text: &str) -> Vec<String> {
    let mut spans = Vec::new();
    let mut is_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            spans.push(line.to_owned());
        } else {
            spans.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    spans
}

/// Returns the words of a span that consist of the letters of names.
fn name_words(span: &str) -> impl Iterator<Item = &str> {
    span.split(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.')))
        .map(|word| word.trim_matches('.'))
}

fn is_known_metric(reference: &str, word: &str) -> bool {
    let plain = HISTOGRAM_ENDINGS.iter().find_map(|ending| word.strip_suffix(ending)).unwrap_or(word);
    let has = |name: &str| reference.contains(&format!("`{name}`"));
    has(word) || has(plain) || (word.ends_with('_') && reference.contains(&format!("`{word}")))
}

/// Returns the sections of the settings: the first parts of their paths.
fn setting_sections(reference: &str) -> BTreeSet<&str> {
    let paths = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    paths.filter_map(|path| path.split_once('.').map(|(section, _)| section)).collect()
}

fn is_known_setting(reference: &str, word: &str) -> bool {
    reference.contains(&format!("`{word}`")) || reference.contains(&format!("`{word}."))
}

/// Returns the unknown names of one page.
fn unknown_names(page: &TextFile, metrics: &str, settings: &str, commands: &str) -> Vec<String> {
    let sections = setting_sections(settings);
    let mut unknown = Vec::new();
    for span in code_spans(&page.text) {
        for word in name_words(&span) {
            let is_metric = word.starts_with(METRIC_PREFIX) && word.matches('_').count() > 1;
            let is_setting = word.split_once('.').is_some_and(|(section, key)| {
                sections.contains(section) && key.contains('_') && !key.ends_with("_file.rs")
            });
            if is_metric && !word.contains('.') && !is_known_metric(metrics, word) {
                unknown.push(format!("{}: metric {word}", page.path));
            } else if is_setting && !is_known_setting(settings, word) {
                unknown.push(format!("{}: setting {word}", page.path));
            }
        }
        if let Some(command) = span.strip_prefix("athanor ") {
            let first = command.split_whitespace().next().unwrap_or_default();
            let is_word = first.len() > 1 && first.bytes().all(|letter| letter.is_ascii_lowercase());
            if is_word && !OTHER_WORDS.contains(&first) && !commands.contains(&format!("`athanor {first}")) {
                unknown.push(format!("{}: command {span}", page.path));
            }
        }
    }
    unknown
}

#[test]
fn pages_name_metrics_settings_and_commands_that_exist() {
    let pages = Workspace::read().pages;
    let metrics = reference_page(&pages, "metrics.md") + &reference_page(&pages, "agent-metrics.md");
    let settings = reference_page(&pages, "config.md");
    let commands = reference_page(&pages, "cli.md");
    assert!(metrics.len() > 1000 && settings.len() > 1000 && commands.len() > 1000);
    let read = pages.iter().filter(|page| !page.path.starts_with("CHANGELOG"));
    let unknown: BTreeSet<String> =
        read.flat_map(|page| unknown_names(page, &metrics, &settings, &commands)).collect();
    assert!(unknown.is_empty(), "{}", unknown.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn unknown_names_are_found() {
    let page = |text: &str| TextFile { path: "a.md".to_owned(), text: text.to_owned() };
    let metrics = "| `athanor_wal_size_bytes` | `athanor_http_request_duration_seconds`";
    let settings = "| `ingester.flush.max_head_age` | duration |\n";
    let commands = "[`athanor flush`](#athanor-flush)";
    let unknown = |text: &str| unknown_names(&page(text), metrics, settings, commands).len();
    let known = "`athanor_wal_size_bytes` `athanor_http_request_duration_seconds_bucket{le=\"1\"}` `ingester.flush.max_head_age`\n\
                 ```sh\nathanor flush --data x\n```\n";
    assert_eq!(unknown(known), 0);
    assert_eq!(unknown("`athanor_log_bytes` and `ingester.cut.max_age` and `athanor cut`"), 3);
    assert_eq!(unknown("athanor_log_bytes in prose is no name"), 0);
}
