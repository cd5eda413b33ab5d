//! Markdown page of all settings.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::settings::SettingsSection;

/// Beginning of the page.
const INTRODUCTION: &str = "# Configuration reference

This page lists all settings with their types, defaults and effects.
Read it to find a setting; [configuration.md](../operate/configuration.md) explains how settings are given.

The page is generated from the doc comments of the config structs. After a change of these, run
`ATHANOR_WRITE_REFERENCE=1 cargo test --package athanor-cli --test reference`.

| type | form |
|---|---|
| size | bytes with a unit: `64MiB`, `4GiB` |
| duration | numbers with units: `500ms`, `30s`, `1h30m`, `31d` |
| percent | an integer without a sign for percent |
| list | in brackets: `[a, b]` |
| secret | text that no page and no message shows |

A setting without a default is optional.
";

/// Returns the page of all settings.
pub fn render(sections: &[SettingsSection], defaults: &BTreeMap<String, String>) -> String {
    let mut page = INTRODUCTION.to_owned();
    for section in sections {
        let heading = match section.path.as_str() {
            "" => "Top level".to_owned(),
            path => format!("`{path}`"),
        };
        write!(page, "\n## {heading}\n\n").unwrap();
        if !section.description.is_empty() {
            write!(page, "{}\n\n", section.description).unwrap();
        }
        if section.settings.is_empty() {
            continue;
        }
        page.push_str("| setting | type | default | description |\n|---|---|---|---|\n");
        for setting in &section.settings {
            let default = match defaults[&setting.path].as_str() {
                "" => String::new(),
                value => format!("`{value}`"),
            };
            let cells = [
                format!("`{}`", setting.path),
                setting.value_type.to_owned(),
                default,
                setting.description.replace('|', "\\|"),
            ];
            writeln!(page, "| {} |", cells.join(" | ")).unwrap();
        }
    }
    page
}
