//! Name of an application with labels: `checkout.cpu{region=eu,pod=a-1}`.
//!
//! Values are not quoted. Blanks around names and values are ignored. Text after the closing brace is
//! ignored, and so is a label without an end. If a label is given twice, the last one wins.

use std::collections::BTreeMap;

/// Name of an application with its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppName {
    /// Text before the brace.
    pub app: String,
    /// Labels by name, sorted.
    pub labels: BTreeMap<String, String>,
}

/// Reason for refusing a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppNameError {
    /// The name is empty.
    #[error("the application's name is empty; send name=application or name=application{{label=value}}")]
    Empty,
    /// The name has a character that is not allowed.
    #[error(
        "invalid character {character:?} in the application's name; letters, digits and _ - . / are allowed"
    )]
    Character {
        /// First character that is not allowed.
        character: char,
    },
    /// The name of a label is empty or has a character that is not allowed.
    #[error("invalid label name {name:?} in the application's name; letters, digits, _ and . are allowed")]
    Label {
        /// First 100 characters of the label's name.
        name: String,
    },
}

/// Label that replaces the application's name.
const APP_NAME_LABEL: &str = "__name__";

impl AppName {
    /// Splits a name into application and labels.
    ///
    /// # Errors
    ///
    /// The name is empty, or a character in it is not allowed.
    pub fn parse(text: &str) -> Result<Self, AppNameError> {
        let (app, mut rest) = text.split_once('{').unwrap_or((text, ""));
        let mut name = AppName { app: app.trim().to_owned(), labels: BTreeMap::new() };
        if name.app.is_empty() {
            return Err(AppNameError::Empty);
        }
        if let Some(character) = name.app.chars().find(|&c| !is_label_character(c) && c != '-' && c != '/') {
            return Err(AppNameError::Character { character });
        }
        while let Some((label, value, after)) = next_label(rest) {
            rest = after;
            if label == APP_NAME_LABEL {
                value.clone_into(&mut name.app);
            } else if label.is_empty() || !label.chars().all(is_label_character) {
                return Err(AppNameError::Label { name: label.chars().take(100).collect() });
            } else {
                name.labels.insert(label.to_owned(), value.to_owned());
            }
        }
        Ok(name)
    }
}

fn is_label_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == '.'
}

/// Returns the next `label=value` and the rest after it. A value ends with a comma or a brace. Further labels
/// may follow even after a brace.
fn next_label(text: &str) -> Option<(&str, &str, &str)> {
    let (label, rest) = text.split_once('=').filter(|(label, _)| !label.contains('}'))?;
    let (value, rest) = rest.split_once([',', '}'])?;
    Some((label.trim(), value.trim(), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<String, AppNameError> {
        AppName::parse(text).map(|name| {
            let labels: Vec<String> = name.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("{}|{}", name.app, labels.join("|"))
        })
    }

    #[test]
    fn names_are_taken_apart() {
        for (text, expected) in [
            ("app", "app|"),
            (" app.cpu ", "app.cpu|"),
            ("a/b-c.d_E9", "a/b-c.d_E9|"),
            ("app{}", "app|"),
            ("app{pod=p1, region = eu ,v=a b}", "app|pod=p1|region=eu|v=a b"),
            ("app{pod=\"p1\"}", "app|pod=\"p1\""),
            ("app{pod=p1", "app|"),
            ("app{pod", "app|"),
            ("app{pod=p1}rest", "app|pod=p1"),
            ("app{pod=p1}x=y", "app|pod=p1"),
            ("app{pod=p1},", "app|pod=p1"),
            ("app{}x=y,", "app|"),
            ("app{pod=,x=1}", "app|pod=|x=1"),
            ("app{pod=a,pod=b}", "app|pod=b"),
            ("app{expr=a=b}", "app|expr=a=b"),
            ("app{k8s.pod=p,__own__=1}", "app|__own__=1|k8s.pod=p"),
            ("app{__name__=other}", "other|"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn names_are_refused_with_the_reason() {
        let label = |name: &str| AppNameError::Label { name: name.into() };
        for (text, expected) in [
            ("", AppNameError::Empty),
            ("{a=b}", AppNameError::Empty),
            ("a b", AppNameError::Character { character: ' ' }),
            ("größe", AppNameError::Character { character: 'ö' }),
            ("app{a-b=c}", label("a-b")),
            ("app{=c}", label("")),
            ("app{v={x},w=1}", label(",w")),
        ] {
            assert_eq!(read(text), Err(expected), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a{}=, ü-]{0,20}") {
            if let Ok(name) = AppName::parse(&text) {
                prop_assert!(name.labels.keys().all(|label| !label.is_empty()));
            }
        }

        #[test]
        fn what_was_written_reads_back(
            app in "[a-z./-]{1,8}",
            labels in prop::collection::btree_map("[a-z][a-z_.]{0,5}", "[^,}\\s]{1,6}", 0..5),
        ) {
            let inner: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let text = format!("{app}{{{}}}", inner.join(","));
            prop_assert_eq!(AppName::parse(&text), Ok(AppName { app, labels }));
        }
    }
}
