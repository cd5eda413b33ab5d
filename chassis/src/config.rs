//! Settings: one YAML file, the environment over it, flags over both, typed defaults below.
//!
//! [`Sources`] are read into one tree, which is then taken into a type whose fields all have defaults. A key that
//! the type does not know is refused, with its path and the nearest name it does know. [`Loaded::explain`] tells
//! every setting in force and where it came from.

mod secret;
mod suggest;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use secret::Secret;
pub use suggest::nearest;

use crate::code::{Code, Coded};
use suggest::hint;

/// Where settings come from, the weakest first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    tree: Map<String, Value>,
    given: BTreeMap<String, Given>,
}

/// Settings in force.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// The settings.
    pub value: T,
    given: BTreeMap<String, Given>,
}

/// One setting in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Its path, such as `ingester.cut.max_age`.
    pub path: String,
    /// Its value as JSON; secrets are masked.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The file of that name.
    File(PathBuf),
    /// The environment variable of that name.
    Environment(String),
    /// A flag on the command line.
    Flag,
}

/// Why settings were not taken. The process ends with [`crate::code::EXIT_USAGE`].
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Text that is not YAML, or not a table of settings.
    #[error("{origin}: {reason}")]
    Syntax {
        /// Where the text is.
        origin: Origin,
        /// What is wrong with it.
        reason: String,
    },
    /// A flag without a path or a value.
    #[error("--set {0:?} cannot be read; write for example --set ingester.cut.max_age=30s")]
    Flag(String),
    /// An unknown key, or a value that does not fit.
    #[error("{path}: {reason}{hint} (from {origin})")]
    Value {
        /// The path of the setting.
        path: String,
        /// What is wrong with it.
        reason: String,
        /// The nearest name, where one is near.
        hint: String,
        /// Where it came from.
        origin: Origin,
    },
}

#[derive(Clone, Debug)]
struct Given {
    origin: Origin,
    /// The text as it was typed, where it may yet turn out to be meant as a string.
    text: Option<String>,
}

const PREFIX: &str = "ATHANOR_";
/// What follows the prefix in variables that tell a client of a server which one it is, and who asks.
const OF_CLIENTS: [&str; 4] = ["URL", "TENANT", "USER", "TOKEN"];

/// The environment of this process, as [`Sources::environment`] takes it. Variables that are not UTF-8 are left out.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn process_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

// === impl Sources ===

impl Sources {
    /// Reads a YAML file.
    pub fn file(self, path: &Path) -> Result<Self, ConfigError> {
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        self.yaml(path, &text)
    }

    /// Takes the text of a YAML file; `path` is what messages call it.
    pub fn yaml(self, path: &Path, text: &str) -> Result<Self, ConfigError> {
        let origin = Origin::File(path.to_owned());
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
        Ok(self.overlaid(&origin, overlay))
    }

    /// One table of settings over another, which counts as the defaults.
    pub(crate) fn table(path: &Path, below: Map<String, Value>, above: Map<String, Value>) -> Self {
        let sources = Self { tree: below, given: BTreeMap::new() };
        sources.overlaid(&Origin::File(path.to_owned()), above)
    }

    fn overlaid(mut self, origin: &Origin, overlay: Map<String, Value>) -> Self {
        let mut leaves = Vec::new();
        for (key, value) in &overlay {
            collect_leaves(key, value, &mut leaves);
        }
        for (path, _) in leaves {
            self.given.insert(path, Given { origin: origin.clone(), text: None });
        }
        merge(&mut self.tree, overlay);
        self
    }

    /// Takes the variables that begin with `ATHANOR_`: `ATHANOR_INGESTER__CUT__MAX_AGE=30s` sets
    /// `ingester.cut.max_age`. The variables that Kubernetes sets for a service called athanor, and those that tell
    /// the command line which server to ask, are left alone.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut taken: Vec<_> = variables.into_iter().collect();
        taken.sort_unstable();
        for (name, text) in taken {
            let Some(key) = name.strip_prefix(PREFIX) else { continue };
            if key.is_empty() || OF_CLIENTS.contains(&key) || names_a_service(key) {
                continue;
            }
            let path = key.to_ascii_lowercase().replace("__", ".");
            self.put(&path, &text, Origin::Environment(name));
        }
        self
    }

    /// Takes flags of the form `ingester.cut.max_age=30s`.
    pub fn flags<'a>(mut self, flags: impl IntoIterator<Item = &'a str>) -> Result<Self, ConfigError> {
        for flag in flags {
            match flag.split_once('=') {
                Some((path, text)) if path.split('.').all(|part| !part.trim().is_empty()) => {
                    self.put(path.trim(), text, Origin::Flag);
                }
                _ => return Err(ConfigError::Flag(flag.to_owned())),
            }
        }
        Ok(self)
    }

    /// Takes all sources into a type.
    pub fn load<T: DeserializeOwned>(mut self) -> Result<Loaded<T>, ConfigError> {
        // A value from a flag or a variable is read as YAML first. Where that does not fit its field, it is tried
        // once more as the string that was typed: `--set s3.secret_key=12345`.
        loop {
            let tree = Value::Object(self.tree.clone());
            let error = match serde_path_to_error::deserialize::<_, T>(&tree) {
                Ok(value) => return Ok(Loaded { value, given: self.given }),
                Err(error) => error,
            };
            let path = error.path().to_string();
            let reason = error.into_inner().to_string();
            let typed = self.given.get_mut(&path).and_then(|given| given.text.take());
            match typed {
                Some(text) if !slot(&mut self.tree, &path).is_string() => {
                    *slot(&mut self.tree, &path) = Value::String(text);
                }
                _ => {
                    let origin = origin_of(&self.given, &path);
                    return Err(ConfigError::Value { hint: hint(&reason), path, reason, origin });
                }
            }
        }
    }

    fn put(&mut self, path: &str, text: &str, origin: Origin) {
        let value = parse_yaml(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        let below = format!("{path}.");
        self.given.retain(|key, _| !key.starts_with(&below));
        let mut leaves = Vec::new();
        collect_leaves(path, &value, &mut leaves);
        for (leaf, _) in leaves {
            let text = (leaf == path).then(|| text.to_owned());
            self.given.insert(leaf, Given { origin: origin.clone(), text });
        }
        *slot(&mut self.tree, path) = value;
    }
}

// === impl Loaded ===

impl<T: Serialize> Loaded<T> {
    /// Every setting in force, in order of their paths.
    ///
    /// # Panics
    /// If the type does not serialise to JSON: its maps must have strings as keys.
    pub fn explain(&self) -> Vec<Explained> {
        let value = serde_json::to_value(&self.value).expect("settings serialise to JSON");
        let mut leaves = Vec::new();
        collect_leaves("", &value, &mut leaves);
        let explain = |(path, value): (String, String)| Explained {
            origin: origin_of(&self.given, &path),
            path,
            value,
        };
        leaves.into_iter().map(explain).collect()
    }
}

/// The origin of a setting: of itself, of the table or list around it, or of the first setting within it.
fn origin_of(given: &BTreeMap<String, Given>, path: &str) -> Origin {
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
    within.map_or(Origin::Default, |(_, given)| given.origin.clone())
}

fn parse_yaml(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// The place of a path in the tree; tables are made on the way, in place of anything else.
fn slot<'a>(tree: &'a mut Map<String, Value>, path: &str) -> &'a mut Value {
    let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
    let child = tree.entry(head).or_insert(Value::Null);
    let Some(rest) = rest else { return child };
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    slot(child.as_object_mut().expect("made a table just above"), rest)
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

/// `ATHANOR_SERVICE_HOST`, `ATHANOR_PORT`, `ATHANOR_PORT_4040_TCP_ADDR`: set by Kubernetes, not meant for us.
fn names_a_service(key: &str) -> bool {
    let links = key == "PORT" || key.starts_with("PORT_") || key.ends_with("_PORT") || key.contains("_PORT_");
    !key.contains("__") && (links || key.contains("SERVICE_HOST") || key.contains("SERVICE_PORT"))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("defaults"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag => f.write_str("flag --set"),
        }
    }
}

impl Coded for ConfigError {
    fn code(&self) -> Code {
        match self {
            Self::Read { .. } => Code::NotFound,
            Self::Syntax { .. } | Self::Flag(_) | Self::Value { .. } => Code::Invalid,
        }
    }
}

#[cfg(test)]
mod tests;
