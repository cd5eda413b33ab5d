//! Links between the pages of the repository: files and headings that they name exist.

use std::collections::BTreeSet;
use std::path::Path;

use super::prose::lines_outside_code;
use super::source::{TextFile, read_files, root};

/// Link of a page.
struct PageLink<'a> {
    line: usize,
    target: &'a str,
}

/// Returns the links of a page, those in code left out.
fn find_links(text: &str) -> Vec<PageLink<'_>> {
    let mut links = Vec::new();
    for (line, content) in lines_outside_code(text) {
        // Every second part lies in backticks. A link may contain code, so that its target is looked for after it.
        let prose = content.split('`').step_by(2);
        let inline =
            prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
        let definition = content.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let targets = inline.chain(definition.map(|(_, target)| target));
        let without_title = targets.filter_map(|target| target.split_whitespace().next());
        links.extend(without_title.map(|target| PageLink { line, target }));
    }
    links
}

/// Returns the anchors of a page's headings, as GitHub forms them.
fn heading_anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in lines_outside_code(text) {
        if let Some((_, title)) =
            line.split_once("# ").filter(|(marker, _)| marker.trim_matches('#').is_empty())
        {
            let letters =
                title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let anchor: String = letters.flat_map(char::to_lowercase).collect();
            anchors.insert(anchor.replace(' ', "-"));
        }
    }
    anchors
}

/// Returns the reason why a relative link leads nowhere.
fn link_problem(root: &Path, page: &TextFile, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let linked = root.join(&page.path).parent()?.join(path);
    if !linked.exists() {
        return Some(format!("there is no {target}"));
    }
    let linked_text = std::fs::read_to_string(&linked).unwrap_or_default();
    let text = if path.is_empty() { &page.text } else { &linked_text };
    let is_found = anchor.is_empty() || heading_anchors(text).contains(anchor);
    (!is_found).then(|| format!("no heading has the anchor {target}"))
}

fn link_problems(root: &Path, page: &TextFile) -> Vec<String> {
    let problem = |link: PageLink| {
        let reason = link_problem(root, page, link.target)?;
        Some(format!("{}:{}: {reason}", page.path, link.line))
    };
    find_links(&page.text).into_iter().filter_map(problem).collect()
}

#[test]
fn relative_links_lead_to_files_and_headings() {
    let pages = read_files(&root(), &["md"]);
    assert!(pages.iter().any(|page| page.path == "README.md"), "the pages are not found");
    let problems: Vec<String> = pages.iter().flat_map(|page| link_problems(&root(), page)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn broken_links_are_listed() {
    let text = "# A `b`, c\n[a](README.md) [b](docs/missing.md), [c](#a-b-c)\n[d](#e) `[f](g)` [`h`](i \"j\") [k](https://l.m/n)\n\
                ```\n[o](p)\n```\n[q]: r.md\n[s](docs/)\n";
    let page = TextFile { path: "made-up.md".to_owned(), text: text.to_owned() };
    let problems = link_problems(&root(), &page);
    let ends = [
        "2: there is no docs/missing.md",
        "3: no heading has the anchor #e",
        "3: there is no i",
        "7: there is no r.md",
    ];
    assert_eq!(problems.len(), ends.len(), "{problems:?}");
    assert!(problems.iter().zip(ends).all(|(problem, end)| problem.ends_with(end)), "{problems:?}");
}
