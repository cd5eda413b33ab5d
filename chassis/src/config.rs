//! Settings: defaults, overridden by one YAML file, then by the environment, then by flags.
//!
//! [`ConfigSources`] are merged into one tree, which is then deserialized into a type whose fields all have
//! defaults. An unknown key is rejected with its path and the nearest known name. All errors are reported at
//! once, each with its line. [`LoadedConfig::effective_settings`] lists every setting in force and its
//! source.

mod secret;
mod suggest;
mod yaml_lines;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

pub use secret::SecretString;
pub use suggest::nearest_name;

use crate::code::{ErrorCode, ErrorCodeExt};
use suggest::suggest_known_name;
use yaml_lines::lines_by_path;

/// Sources of settings, merged from the weakest to the strongest.
#[derive(Clone, Debug, Default)]
pub struct ConfigSources {
    tree: Map<String, Value>,
    given: BTreeMap<String, RawSetting>,
    /// Line numbers of the settings of the file, by path.
    lines: BTreeMap<String, u32>,
}

/// Settings in force.
#[derive(Clone, Debug)]
pub struct LoadedConfig<T> {
    /// Deserialized settings.
    pub value: T,
    given: BTreeMap<String, RawSetting>,
    lines: BTreeMap<String, u32>,
}

/// Location of a setting in its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingLocation {
    /// File, variable or flag of the setting.
    pub origin: SettingSource,
    /// Line number, if the source is a file.
    pub line: Option<u32>,
}

/// Setting in force, with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Path of the setting, such as `ingester.flush.max_head_age`.
    pub path: String,
    /// Value as JSON, with secrets masked.
    pub value: String,
    /// Source of the value.
    pub origin: SettingSource,
}

/// Source of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// No source sets it.
    Default,
    /// File at that path.
    File(PathBuf),
    /// Environment variable of that name.
    Environment(String),
    /// Flag on the command line.
    Flag,
}

/// Rejection of settings. The process ends with [`crate::code::EXIT_USAGE`].
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration file {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The text is not YAML, or not a table of settings.
    #[error("{origin}: {reason}")]
    Syntax {
        /// Source of the text.
        origin: SettingSource,
        /// Reason for the rejection.
        reason: String,
    },
    /// A flag has no path or no value.
    #[error("--set {0:?} cannot be read; write for example --set ingester.flush.max_head_age=30s")]
    Flag(String),
    /// A key is unknown, or a value does not fit its setting.
    #[error("{path}: {reason}{hint} (from {place})")]
    Value {
        /// Path of the setting.
        path: String,
        /// Reason for the rejection.
        reason: String,
        /// Suggestion of the nearest known name, if one is near.
        hint: String,
        /// Location of the setting.
        place: SettingLocation,
    },
    /// All errors, one per line.
    #[error("{} settings are wrong:\n{}", .0.len(), format_errors(.0))]
    Several(Vec<ConfigError>),
}

#[derive(Clone, Debug)]
struct RawSetting {
    origin: SettingSource,
    /// Text as typed, kept while the value may still be meant as a string.
    text: Option<String>,
}

const ENV_PREFIX: &str = "ATHANOR_";
/// Upper bound of errors that are listed at once.
const MAX_LISTED_ERRORS: usize = 100;
/// Suffixes of variables for clients: address of the server, tenant and credentials.
const CLIENT_ENV_SUFFIXES: [&str; 4] = ["URL", "TENANT", "USER", "TOKEN"];

/// Returns the environment of this process for [`ConfigSources::with_environment`]. Variables that are not
/// UTF-8 are left out.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn process_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

// === impl ConfigSources ===

impl ConfigSources {
    /// Adds the settings of a YAML file.
    pub fn with_file(self, path: &Path) -> Result<Self, ConfigError> {
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        self.with_yaml(path, &text)
    }

    /// Adds the settings of a YAML text. Messages name it `path`.
    pub fn with_yaml(self, path: &Path, text: &str) -> Result<Self, ConfigError> {
        let origin = SettingSource::File(path.to_owned());
        let overlay = match parse_yaml(text) {
            Ok(Value::Object(map)) => map,
            Ok(Value::Null) => Map::new(),
            Ok(_) => {
                return Err(ConfigError::Syntax {
                    origin,
                    reason: "expected a table of settings".to_owned(),
                });
            }
            Err(reason) => return Err(ConfigError::Syntax { origin, reason }),
        };
        let mut sources = self.with_overlay(&origin, overlay);
        sources.lines = lines_by_path(text);
        Ok(sources)
    }

    /// Creates sources from a table of defaults and a table above it. `lines` are those of the table above.
    pub(crate) fn from_tables(
        path: &Path,
        below: Map<String, Value>,
        above: Map<String, Value>,
        lines: BTreeMap<String, u32>,
    ) -> Self {
        let sources = Self { tree: below, given: BTreeMap::new(), lines };
        sources.with_overlay(&SettingSource::File(path.to_owned()), above)
    }

    /// Returns the line of a setting of the file.
    pub(crate) fn line_of(&self, path: &str) -> Option<u32> {
        self.lines.get(path).copied()
    }

    /// Returns the lines of the settings below a path.
    pub(crate) fn lines_below(&self, path: &str) -> BTreeMap<String, u32> {
        let below = |(key, line): (&String, &u32)| Some((key.strip_prefix(path)?.to_owned(), *line));
        self.lines.iter().filter_map(below).collect()
    }

    fn with_overlay(mut self, origin: &SettingSource, overlay: Map<String, Value>) -> Self {
        let mut leaves = Vec::new();
        for (key, value) in &overlay {
            collect_leaves(key, value, &mut leaves);
        }
        for (path, _) in leaves {
            self.given.insert(path, RawSetting { origin: origin.clone(), text: None });
        }
        merge(&mut self.tree, overlay);
        self
    }

    /// Adds the variables that begin with `ATHANOR_`: `ATHANOR_INGESTER__FLUSH__MAX_HEAD_AGE=30s` sets
    /// `ingester.flush.max_head_age`. Variables that Kubernetes sets for a service named athanor are ignored,
    /// and so are those that configure the client commands.
    #[must_use]
    pub fn with_environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut taken: Vec<_> = variables.into_iter().collect();
        taken.sort_unstable();
        for (name, text) in taken {
            let Some(key) = name.strip_prefix(ENV_PREFIX) else { continue };
            if key.is_empty() || CLIENT_ENV_SUFFIXES.contains(&key) || is_kubernetes_service_variable(key) {
                continue;
            }
            let path = key.to_ascii_lowercase().replace("__", ".");
            self.set_setting(&path, &text, SettingSource::Environment(name));
        }
        self
    }

    /// Adds flags of the form `ingester.flush.max_head_age=30s`.
    pub fn with_flags<'a>(mut self, flags: impl IntoIterator<Item = &'a str>) -> Result<Self, ConfigError> {
        for flag in flags {
            match flag.split_once('=') {
                Some((path, text)) if path.split('.').all(|part| !part.trim().is_empty()) => {
                    self.set_setting(path.trim(), text, SettingSource::Flag);
                }
                _ => return Err(ConfigError::Flag(flag.to_owned())),
            }
        }
        Ok(self)
    }

    /// Deserializes all sources into a type.
    pub fn load<T: DeserializeOwned>(self) -> Result<LoadedConfig<T>, ConfigError> {
        let (loaded, errors) = self.load_partial();
        match (loaded, ConfigError::from_errors(errors)) {
            (Some(loaded), None) => Ok(loaded),
            (_, Some(error)) => Err(error),
            (None, None) => unreachable!("settings that are not read come with an error"),
        }
    }

    /// Deserializes all sources into a type without the invalid settings, and returns an error for each of
    /// these. Nothing is loaded if the type requires one of them.
    pub fn load_partial<T: DeserializeOwned>(mut self) -> (Option<LoadedConfig<T>>, Vec<ConfigError>) {
        let mut errors = Vec::new();
        // A value from a flag or a variable is parsed as YAML first. If that does not fit its field, the
        // value is retried as the string that was typed: `--set s3.secret_key=12345`.
        loop {
            let tree = Value::Object(self.tree.clone());
            let error = match serde_path_to_error::deserialize::<_, T>(&tree) {
                Ok(value) => {
                    return (Some(LoadedConfig { value, given: self.given, lines: self.lines }), errors);
                }
                Err(error) => error,
            };
            let path = error.path().to_string();
            let typed = self.given.get_mut(&path).and_then(|given| given.text.take());
            if let Some(text) = typed.filter(|_| !setting_slot(&mut self.tree, &path).is_string()) {
                *setting_slot(&mut self.tree, &path) = Value::String(text);
                continue;
            }
            let is_removed = remove_setting(&mut self.tree, error.path().iter());
            let reason = error.into_inner().to_string();
            let place = locate_setting(&self.given, &self.lines, &path);
            errors.push(ConfigError::Value { hint: suggest_known_name(&reason, &path), path, reason, place });
            if !is_removed || errors.len() == MAX_LISTED_ERRORS {
                return (None, errors);
            }
        }
    }

    fn set_setting(&mut self, path: &str, text: &str, origin: SettingSource) {
        let value = parse_yaml(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        let below = format!("{path}.");
        self.given.retain(|key, _| !key.starts_with(&below));
        let mut leaves = Vec::new();
        collect_leaves(path, &value, &mut leaves);
        for (leaf, _) in leaves {
            let text = (leaf == path).then(|| text.to_owned());
            self.given.insert(leaf, RawSetting { origin: origin.clone(), text });
        }
        *setting_slot(&mut self.tree, path) = value;
    }
}

// === impl ConfigError ===

impl ConfigError {
    /// Combines errors into one. Returns none if there are none.
    pub fn from_errors(mut errors: Vec<Self>) -> Option<Self> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(Self::Several(errors)),
        }
    }

    /// Returns the path of the setting, if the error concerns one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Value { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Splits a combined error into its parts.
    pub fn into_errors(self) -> Vec<Self> {
        match self {
            Self::Several(errors) => errors,
            error => vec![error],
        }
    }
}

fn format_errors(errors: &[ConfigError]) -> String {
    let line = |error: &ConfigError| format!("  {error}");
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

// === impl LoadedConfig ===

impl<T> LoadedConfig<T> {
    /// Creates the error of a setting that was parsed but is invalid.
    pub fn setting_error(&self, path: &str, reason: String) -> ConfigError {
        let place = locate_setting(&self.given, &self.lines, path);
        ConfigError::Value { path: path.to_owned(), reason, hint: String::new(), place }
    }
}

impl<T: Serialize> LoadedConfig<T> {
    /// Lists every setting in force, in order of their paths.
    ///
    /// # Panics
    /// If the type does not serialize to JSON: its maps must have strings as keys.
    pub fn effective_settings(&self) -> Vec<EffectiveSetting> {
        let value = serde_json::to_value(&self.value).expect("settings serialise to JSON");
        let mut leaves = Vec::new();
        collect_leaves("", &value, &mut leaves);
        let explain = |(path, value): (String, String)| EffectiveSetting {
            origin: source_of_setting(&self.given, &path),
            path,
            value,
        };
        leaves.into_iter().map(explain).collect()
    }
}

/// Returns the location of a setting. The line is its own, or that of the table or list around it. A missing
/// setting is located at the table of the file in which it is missing.
fn locate_setting(
    given: &BTreeMap<String, RawSetting>,
    lines: &BTreeMap<String, u32>,
    path: &str,
) -> SettingLocation {
    let mut line = None;
    let mut around = Some(path);
    while let Some(path) = around.filter(|_| line.is_none()) {
        line = lines.get(path).copied();
        around = path.rfind(['.', '[']).map(|end| &path[..end]);
    }
    let file =
        given.values().map(|given| &given.origin).find(|origin| matches!(origin, SettingSource::File(_)));
    match (source_of_setting(given, path), file) {
        (SettingSource::Default, Some(file)) if line.is_some() => {
            SettingLocation { origin: file.clone(), line }
        }
        (origin @ SettingSource::File(_), _) => SettingLocation { origin, line },
        (origin, _) => SettingLocation { origin, line: None },
    }
}

/// Removes a setting, with the whole list if it is in one. Returns false if there is nothing to remove.
fn remove_setting<'a>(tree: &mut Map<String, Value>, path: impl Iterator<Item = &'a Segment>) -> bool {
    let keys: Vec<&str> = path
        .map_while(|segment| match segment {
            Segment::Map { key } => Some(key.as_str()),
            _ => None,
        })
        .collect();
    let Some((last, tables)) = keys.split_last() else { return false };
    let mut table = tree;
    for key in tables {
        match table.get_mut(*key) {
            Some(Value::Object(below)) => table = below,
            _ => return false,
        }
    }
    table.remove(*last).is_some()
}

/// Returns the source of a setting: its own, that of the table or list around it, or that of the first
/// setting in it.
fn source_of_setting(given: &BTreeMap<String, RawSetting>, path: &str) -> SettingSource {
    let below = format!("{path}.");
    let mut around = path;
    loop {
        if let Some(given) = given.get(around) {
            return given.origin.clone();
        }
        match around.rfind(['.', '[']) {
            Some(end) => around = &around[..end],
            None => break,
        }
    }
    let within = given.iter().find(|(key, _)| path == "." || key.starts_with(&below));
    within.map_or(SettingSource::Default, |(_, given)| given.origin.clone())
}

fn parse_yaml(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// Returns the slot of a path in the tree. Tables are created on the way and replace other values.
fn setting_slot<'a>(tree: &'a mut Map<String, Value>, path: &str) -> &'a mut Value {
    let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
    let child = tree.entry(head).or_insert(Value::Null);
    let Some(rest) = rest else { return child };
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    setting_slot(child.as_object_mut().expect("made a table just above"), rest)
}

fn merge(base: &mut Map<String, Value>, overlay: Map<String, Value>) {
    for (key, over) in overlay {
        match (base.get_mut(&key), over) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            (_, over) => {
                base.insert(key, over);
            }
        }
    }
}

fn collect_leaves(path: &str, value: &Value, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect_leaves(&path, value, leaves);
            }
        }
        Value::Object(_) if path.is_empty() => {}
        _ => leaves.push((path.to_owned(), value.to_string())),
    }
}

/// Matches `ATHANOR_SERVICE_HOST`, `ATHANOR_PORT`, `ATHANOR_PORT_4040_TCP_ADDR`, which Kubernetes sets for
/// services.
fn is_kubernetes_service_variable(key: &str) -> bool {
    let links = key == "PORT" || key.starts_with("PORT_") || key.ends_with("_PORT") || key.contains("_PORT_");
    !key.contains("__") && (links || key.contains("SERVICE_HOST") || key.contains("SERVICE_PORT"))
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("defaults"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag => f.write_str("flag --set"),
        }
    }
}

impl fmt::Display for SettingLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, line } = self;
        match line {
            Some(line) => write!(f, "{origin}, line {line}"),
            None => origin.fmt(f),
        }
    }
}

impl ErrorCodeExt for ConfigError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Read { .. } => ErrorCode::NotFound,
            Self::Syntax { .. } | Self::Flag(_) | Self::Value { .. } | Self::Several(_) => ErrorCode::Invalid,
        }
    }
}

#[cfg(test)]
mod tests;
