//! Filters for text from profiles, which is untrusted, before it is shown.

use std::borrow::Cow;

/// Returns whether a terminal or a browser would act on a character instead of showing it. These are control
/// characters, marks that change the writing direction or have no width, and characters that XML does not
/// allow.
pub fn is_control(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    c.is_control() || turns || matches!(c, '\u{61c}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Replaces each such character with one replacement character, as drawings need it.
pub fn replace_control(text: &str) -> Cow<'_, str> {
    if text.contains(is_control) {
        text.chars()
            .map(|c| if is_control(c) { char::REPLACEMENT_CHARACTER } else { c })
            .collect::<String>()
            .into()
    } else {
        text.into()
    }
}

/// Replaces each such character with an escape such as `\u{1b}`.
pub fn escape_control(text: &str) -> String {
    let escape = |c: char| if is_control(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Maximum number of characters of a name in drawings.
const MAX_NAME_CHARS: usize = 1000;

/// Shortens a name for drawing, with an ellipsis. A long name could otherwise be repeated thousands of times.
pub fn shorten_name(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(MAX_NAME_CHARS) {
        None => name.into(),
        Some((end, _)) => format!("{}…", &name[..end]).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_shown_is_obeyed() {
        assert_eq!(replace_control("a\x1b[2J\n\u{202e}b\u{9b}"), "a\u{fffd}[2J\u{fffd}\u{fffd}b\u{fffd}");
        assert_eq!(escape_control("a\x1b[2J\n\u{202e}b\u{9b}"), "a\\u{1b}[2J\\n\\u{202e}b\\u{9b}");
        for harmless in ["größer<T>", "名前::f", "a b;c"] {
            assert_eq!(
                (replace_control(harmless).as_ref(), escape_control(harmless).as_str()),
                (harmless, harmless)
            );
        }
    }
}
