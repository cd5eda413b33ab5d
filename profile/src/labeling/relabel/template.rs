//! Template with `$1`, `${1}` or `$name`, which stand for the text of matched groups.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Template that was parsed once.
#[derive(Clone, Debug)]
pub(super) struct RelabelTemplate(Vec<TemplatePart>);

#[derive(Clone, Debug)]
enum TemplatePart {
    Text(String),
    /// Replaced by the first of these groups that matched, or by nothing.
    Groups(Vec<usize>),
}

impl RelabelTemplate {
    /// Parses a template. `names` lists the group names, from the first group on. A `$` without a reference
    /// is literal, and `$$` is one `$`.
    pub(super) fn new(text: &str, names: &[String]) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            pieces.push(TemplatePart::Text(before.to_owned()));
            rest = after;
            if let Some(after) = rest.strip_prefix('$') {
                pieces.push(TemplatePart::Text("$".to_owned()));
                rest = after;
                continue;
            }
            match reference(rest) {
                Some((name, after)) => {
                    pieces.push(TemplatePart::Groups(groups(name, names)));
                    rest = after;
                }
                None => pieces.push(TemplatePart::Text("$".to_owned())),
            }
        }
        pieces.push(TemplatePart::Text(rest.to_owned()));
        RelabelTemplate(pieces)
    }

    pub(super) fn expand(&self, matched: &Captures<'_>) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                TemplatePart::Text(piece) => text.push_str(piece),
                TemplatePart::Groups(groups) => {
                    let group = groups.iter().find_map(|&group| matched.get(group));
                    text.push_str(group.map_or("", |group| group.as_str()));
                }
            }
        }
        text
    }
}

/// Returns the longest possible name at the beginning, and the rest after it.
fn reference(text: &str) -> Option<(&str, &str)> {
    static GROUP_NAME_REGEX: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(?:\{([\pL\p{Nd}_]+)\}|([\pL\p{Nd}_]+))").expect("it is an expression")
    });
    let found = GROUP_NAME_REGEX.captures(text)?;
    let name = found.get(1).or_else(|| found.get(2))?;
    Some((name.as_str(), &text[found.get_match().end()..]))
}

/// Returns the groups that a name refers to. A number without leading zeros refers to the group with that
/// number.
fn groups(name: &str, names: &[String]) -> Vec<usize> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    match name.parse() {
        Ok(number) if is_number => vec![number],
        _ => (1..).zip(names).filter(|(_, known)| *known == name).map(|(group, _)| group).collect(),
    }
}
