//! Removal of frames that a profile itself declares uninteresting (`drop_frames`, `keep_frames`).
//!
//! The rules are those of `go tool pprof`. A stack is scanned from the root, and all frames from the first
//! dropped one to the leaf are removed. Nothing is removed before the scan has seen a frame that stays, so no
//! stack disappears entirely.

use std::collections::HashMap;

use regex::Regex;

use crate::analysis::merge::DictionaryRemapper;
use crate::data_model::model::{Dictionary, Profile, Samples};
use crate::data_model::symbols::{Line, NO_ENTRY, SymbolTable};

/// Pattern that is not a valid regular expression. Nothing was pruned.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{field} {pattern:?} of the profile is ignored, not a regular expression: {why}")]
pub struct PrunePatternError {
    /// Name of the field: `drop_frames` or `keep_frames`.
    pub field: &'static str,
    /// Pattern as written in the profile.
    pub pattern: String,
    /// Error message of the regular expression.
    pub why: String,
}

/// Returns the profile without its uninteresting frames, and the error if a pattern is invalid.
pub fn prune(profile: Profile) -> (Profile, Option<PrunePatternError>) {
    match patterns(&profile) {
        Ok(Some((drop, keep))) => (prune_profile(&profile, &drop, keep.as_ref()), None),
        Ok(None) => (profile, None),
        Err(bad) => (profile, Some(bad)),
    }
}

fn patterns(profile: &Profile) -> Result<Option<(Regex, Option<Regex>)>, PrunePatternError> {
    let compile = |field, pattern: &str| -> Result<Option<Regex>, PrunePatternError> {
        if pattern.is_empty() {
            return Ok(None);
        }
        let bad = |error: regex::Error| PrunePatternError {
            field,
            pattern: pattern.into(),
            why: error.to_string(),
        };
        Regex::new(&format!("^({pattern})$")).map(Some).map_err(bad)
    };
    let Some(drop) = compile("drop_frames", &profile.header.drop_frames)? else { return Ok(None) };
    Ok(Some((drop, compile("keep_frames", &profile.header.keep_frames)?)))
}

/// Action for a location.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PruneAction {
    Keep,
    /// Removes the location and all of its callees.
    Drop,
    /// Removes its inlined lines and all of their callees. This many outer lines stay.
    Shorten(usize),
}

fn prune_profile(profile: &Profile, drop: &Regex, keep: Option<&Regex>) -> Profile {
    let from = &profile.dictionary;
    let verdicts = prune_actions(&from.symbols, drop, keep);
    let mut adopter = DictionaryRemapper::new(from);
    let mut pruned = Profile { header: profile.header.clone(), ..Profile::default() };
    let mut samples = Samples::default();
    let mut stacks = vec![NO_ENTRY; from.stacks.len()];
    for (stack, labels, values) in profile.samples.rows(profile.header.types.len()) {
        let new = &mut stacks[stack as usize];
        if *new == NO_ENTRY {
            *new = prune_stack(&mut pruned.dictionary, from, stack, &verdicts);
        }
        samples.push(*new, adopter.labels(&mut pruned.dictionary, labels), values);
    }
    pruned.samples = samples;
    pruned.compact();
    pruned
}

fn prune_actions(symbols: &SymbolTable, drop: &Regex, keep: Option<&Regex>) -> Vec<PruneAction> {
    let mut dropped: HashMap<u32, bool> = HashMap::new();
    let mut is_dropped = |function: u32| {
        *dropped.entry(symbols.functions()[function as usize].name).or_insert_with(|| {
            let whole = symbols.function_name(function);
            let name = plain_name(whole);
            !whole.is_empty() && drop.is_match(name) && !keep.is_some_and(|keep| keep.is_match(name))
        })
    };
    let verdict = |location| {
        let lines = symbols.lines(location);
        match lines.iter().rposition(|line| is_dropped(line.function)) {
            None => PruneAction::Keep,
            Some(at) if at + 1 == lines.len() => PruneAction::Drop,
            Some(at) => PruneAction::Shorten(lines.len() - at - 1),
        }
    };
    (0..symbols.locations().len() as u32).map(verdict).collect()
}

/// Returns a name without its argument list, and without the leading dot that some ABIs add.
fn plain_name(name: &str) -> &str {
    let name = name.strip_prefix('.').unwrap_or(name);
    let mut at = 0;
    while let Some(found) = name[at..].find('(') {
        let open = at + found;
        if name[open..].starts_with("(anonymous namespace)") {
            at = open + "(anonymous namespace)".len();
        } else if name[at..open].ends_with("operator") && name[open..].starts_with("()") {
            at = open + 2;
        } else {
            return &name[..open];
        }
    }
    name
}

fn prune_stack(to: &mut Dictionary, from: &Dictionary, stack: u32, verdicts: &[PruneAction]) -> u32 {
    let path: Vec<u32> = from.stacks.locations(stack).collect();
    let mut start = 0;
    let mut has_kept_location = false;
    for (at, &location) in path.iter().enumerate().rev() {
        match verdicts[location as usize] {
            PruneAction::Keep => has_kept_location = true,
            PruneAction::Drop if has_kept_location => {
                start = at + 1;
                break;
            }
            PruneAction::Shorten(_) if has_kept_location => {
                start = at;
                break;
            }
            PruneAction::Drop | PruneAction::Shorten(_) => {}
        }
    }
    let mut locations: Vec<u32> = Vec::with_capacity(path.len() - start);
    for &location in &path[start..] {
        let new = match verdicts[location as usize] {
            PruneAction::Shorten(lines) => shorten(to, from, location, lines),
            _ => to.symbols.adopt_location(&from.symbols, location),
        };
        locations.push(new);
    }
    to.stacks.intern(&to.symbols, &locations)
}

fn shorten(to: &mut Dictionary, from: &Dictionary, location: u32, lines: usize) -> u32 {
    let entry = from.symbols.locations()[location as usize];
    let mapping = match entry.mapping {
        NO_ENTRY => NO_ENTRY,
        mapping => to.symbols.adopt_mapping(&from.symbols, mapping),
    };
    let all = from.symbols.lines(location);
    let outer: Vec<Line> = all[all.len() - lines..]
        .iter()
        .map(|line| Line { function: to.symbols.adopt_function(&from.symbols, line.function), ..*line })
        .collect();
    to.symbols.intern_location(mapping, entry.address, entry.folded, &outer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_model::model::ValueType;

    fn pruned(drop: &str, keep: &str, stacks: &[&str]) -> Vec<(String, i64)> {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("samples", "count")];
        (profile.header.drop_frames, profile.header.keep_frames) = (drop.into(), keep.into());
        for stack in stacks {
            let stack = profile.dictionary.intern_named_stack(stack.split(';'));
            profile.samples.push(stack, 0, &[1]);
        }
        let (pruned, bad) = prune(profile);
        assert_eq!(bad.is_some(), drop == "(");
        let names = |stack| {
            let symbols = &pruned.dictionary.symbols;
            let path = pruned.dictionary.stacks.locations(stack);
            let mut path: Vec<&str> =
                path.map(|location| symbols.function_name(symbols.lines(location)[0].function)).collect();
            path.reverse();
            path.join(";")
        };
        pruned.samples.rows(1).map(|(stack, _, values)| (names(stack), values[0])).collect()
    }

    #[test]
    fn frames_go_from_the_first_match_to_the_leaf() {
        let stacks = ["main;malloc;brk", "main;malloc(long)", "main;xmalloc", "malloc;main;malloc;brk"];
        let expected = [("main", 2), ("main;xmalloc", 1), ("malloc;main", 1)];
        assert_eq!(
            pruned("malloc|free", "", &stacks),
            expected.map(|(name, count)| (name.to_owned(), count))
        );
    }

    #[test]
    fn kept_frames_and_bad_patterns() {
        assert_eq!(pruned("m.*", "m2", &["a;m2;m3"]), [("a;m2".to_owned(), 1)]);
        assert_eq!(pruned(".*b?", "a", &["a;(x)"]), [("a".to_owned(), 1)], "arguments are all of a name");
        assert_eq!(pruned("(", "", &["a;("]), [("a;(".to_owned(), 1)]);
    }

    #[test]
    fn names_lose_their_arguments_only() {
        assert_eq!(plain_name(".f(int)"), "f");
        assert_eq!(plain_name("(anonymous namespace)::g(int)"), "(anonymous namespace)::g");
        assert_eq!(plain_name("A::operator()(int)"), "A::operator()");
    }
}
