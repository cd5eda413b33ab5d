//! What of a text may be shown: names come out of profiles, that is from anywhere.

use std::borrow::Cow;

/// Whether a terminal or a browser would obey a character rather than show it: control characters, marks that turn
/// the direction of writing or have no width, and characters that XML has no place for.
pub fn is_control(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    c.is_control() || turns || matches!(c, '\u{61c}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A text with a mark of one character in place of each that would be obeyed, as drawings need it.
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

/// A text with an escape such as `\u{1b}` in place of each character that would be obeyed.
pub fn escape_control(text: &str) -> String {
    let escape = |c: char| if is_control(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Letters of a name that are drawn.
const MAX_NAME_CHARS: usize = 1000;

/// A name as it is drawn: a very long one would be there thousands of times, so an ellipsis stands for its end.
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
