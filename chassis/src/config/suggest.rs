//! Suggestion of the nearest known name for an unknown one.

/// Parses serde's ``unknown field `a`, expected one of `b`, `c` `` (or variant) and suggests the nearest
/// expected name. A field is named by its whole path; `path` is that of the unknown one. Returns an empty
/// string for other messages, or if no name is near.
pub(super) fn suggest_known_name(reason: &str, path: &str) -> String {
    if !reason.starts_with("unknown ") {
        return String::new();
    }
    let mut quoted = reason.split('`').skip(1).step_by(2);
    let Some(unknown) = quoted.next() else { return String::new() };
    let section = if reason.starts_with("unknown field ") { path.strip_suffix(unknown) } else { None };
    let section = section.unwrap_or_default();
    nearest_name(unknown, quoted)
        .map(|known| format!("; did you mean `{section}{known}`?"))
        .unwrap_or_default()
}

/// Returns the known name that is nearest to an unknown one, if any is near.
pub fn nearest_name<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (steps, known) = known.into_iter().map(|known| (edit_distance(unknown, known), known)).min()?;
    (steps <= known.chars().count().div_ceil(3)).then_some(known)
}

/// Returns the Levenshtein distance: characters to add, remove or replace.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_hinted_and_far_ones_are_not() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(
            suggest_known_name("unknown field `bukcet`, expected one of `bucket`, `region`", "bukcet"),
            "; did you mean `bucket`?"
        );
        assert_eq!(
            suggest_known_name("unknown field `bukcet`, expected `bucket`", "storage.s3.bukcet"),
            "; did you mean `storage.s3.bucket`?"
        );
        assert_eq!(
            suggest_known_name("unknown variant `jsno`, expected `text` or `json`", "telemetry.format"),
            "; did you mean `json`?"
        );
        assert_eq!(suggest_known_name("unknown field `zzz`, expected `bucket`", "zzz"), "");
        assert_eq!(suggest_known_name("invalid type: `bucket` and `bukcet`", "bukcet"), "");
    }
}
