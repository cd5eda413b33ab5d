//! All settings with their types, descriptions and defaults.

use std::collections::BTreeMap;

use athanor_server::ServerConfig;
use serde_json::Value;

use super::source::{ConfigField, ConfigStructs, bare_type};

/// Type of the root of all settings.
const ROOT_STRUCT: &str = "ServerConfig";

/// Settings of one config struct.
pub struct SettingsSection {
    /// Path of the section, empty for the root.
    pub path: String,
    pub description: String,
    pub settings: Vec<Setting>,
}

/// One setting.
pub struct Setting {
    pub path: String,
    pub value_type: &'static str,
    pub description: String,
}

/// Returns all sections in the order of their declaration, each before the sections in it.
pub fn list_settings(structs: &ConfigStructs) -> Vec<SettingsSection> {
    let mut sections = Vec::new();
    let root = SettingsSection { path: String::new(), description: String::new(), settings: Vec::new() };
    add_section(structs, root, structs.fields(ROOT_STRUCT).unwrap(), &mut sections);
    sections
}

fn add_section(
    structs: &ConfigStructs,
    mut section: SettingsSection,
    fields: &[ConfigField],
    sections: &mut Vec<SettingsSection>,
) {
    let prefix = if section.path.is_empty() { String::new() } else { format!("{}.", section.path) };
    let mut inner = Vec::new();
    for field in fields {
        let path = format!("{prefix}{}", field.name);
        let description = field.doc.clone();
        match structs.fields(&field.type_text) {
            Some(fields) => {
                inner.push((SettingsSection { path, description, settings: Vec::new() }, fields));
            }
            None => {
                let value_type = value_type(&path, bare_type(&field.type_text));
                section.settings.push(Setting { path, value_type, description });
            }
        }
    }
    sections.push(section);
    for (section, fields) in inner {
        add_section(structs, section, fields, sections);
    }
}

/// Returns the type of a setting in the words of the page.
fn value_type(path: &str, type_name: &str) -> &'static str {
    match type_name {
        "bool" => "boolean",
        "u8" | "u16" | "u32" | "u64" | "usize" if path.ends_with("_percent") => "percent",
        "u8" | "u16" | "u32" | "u64" | "usize" => "integer",
        "ByteSize" => "size",
        "Duration" => "duration",
        "String" => "text",
        "SecretString" => "secret",
        "PathBuf" => "path",
        "Vec<String>" => "list of texts",
        "Vec<Value>" => "list of rules",
        "TargetRoles" | "LogFormat" | "DefaultRulesPosition" => "choice",
        other => panic!("{path}: {other} has no name on the page; add one here"),
    }
}

/// Returns the default of each setting, as it is written in a settings file.
pub fn default_values() -> BTreeMap<String, String> {
    let mut config = ServerConfig::default();
    // Without these sections their settings have no default to show.
    config.storage.s3 = Some(Default::default());
    config.storage.gcs = Some(Default::default());
    config.storage.azure = Some(Default::default());
    let mut defaults = BTreeMap::new();
    collect_defaults("", &serde_json::to_value(&config).unwrap(), &mut defaults);
    defaults
}

fn collect_defaults(path: &str, value: &Value, defaults: &mut BTreeMap<String, String>) {
    let text = match value {
        Value::Object(table) => {
            for (name, value) in table {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect_defaults(&path, value, defaults);
            }
            return;
        }
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    defaults.insert(path.to_owned(), text);
}
