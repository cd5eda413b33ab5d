//! Page of all settings, from the doc comments of the config structs and from their defaults.

mod page;
mod settings;
mod source;

use std::path::Path;

use settings::{default_values, list_settings};
use source::ConfigStructs;

/// Returns the page of the settings in the sources below `root`.
pub fn render_page(root: &Path) -> String {
    page::render(&list_settings(&ConfigStructs::read(root)), &default_values())
}

#[test]
fn every_setting_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let sections = list_settings(&ConfigStructs::read(root));
    let settings = || sections.iter().flat_map(|section| &section.settings);
    let documented: Vec<&str> = settings().map(|setting| setting.path.as_str()).collect();
    let defaults = default_values();
    let known: Vec<&str> = defaults.keys().map(String::as_str).collect();
    let mut sorted = documented.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, known, "settings of the structs' source and of the loaded config");
    let undescribed: Vec<&str> = settings()
        .filter(|setting| setting.description.is_empty())
        .map(|setting| setting.path.as_str())
        .collect();
    assert!(undescribed.is_empty(), "{undescribed:?}");
}
