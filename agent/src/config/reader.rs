//! Reader of settings from a YAML tree. It collects errors and goes on with the next setting.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use athanor_chassis::config::nearest_name;
use athanor_profile::Labels;

use super::duration::parse_prometheus_duration;
use super::error::{ConfigError, Position, shorten};
use super::yaml::{YamlEntry, YamlNode, YamlScalar, YamlValue};

/// Maximum errors that are reported at once.
const MAX_ERRORS: usize = 100;

/// State of reading one configuration: errors, and keys that have no effect.
#[derive(Debug)]
pub(super) struct ConfigReader {
    /// Folder of the configuration file. Relative paths are relative to it.
    folder: PathBuf,
    errors: Vec<ConfigError>,
    /// Keys of other programs that have no meaning here.
    ignored: BTreeSet<String>,
}

/// Table of settings. It records the keys that were read, which are the known ones.
pub(super) struct ConfigTable<'n> {
    /// Position of the table.
    pub(super) position: Position,
    /// Name for messages, such as `scrape_configs`.
    pub(super) name: &'static str,
    entries: &'n [YamlEntry],
    known: RefCell<Vec<&'static str>>,
    /// Keys of other programs.
    foreign: RefCell<Vec<&'static str>>,
}

impl ConfigReader {
    /// Creates a reader of the file at a path.
    pub(super) fn new(file: &Path) -> Self {
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        ConfigReader { folder, errors: Vec::new(), ignored: BTreeSet::new() }
    }

    /// Records an error.
    pub(super) fn refuse(&mut self, position: Position, message: impl Into<String>) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(ConfigError { position, message: message.into() });
        }
    }

    /// Returns the errors in order of their positions, and the ignored keys.
    pub(super) fn into_results(mut self) -> (Vec<ConfigError>, BTreeSet<String>) {
        self.errors.sort();
        self.errors.dedup();
        (self.errors, self.ignored)
    }

    /// Returns the number of errors so far.
    pub(super) fn error_count(&self) -> usize {
        self.errors.len()
    }

    /// Records a key that has no meaning here.
    pub(super) fn ignore(&mut self, key: String) {
        self.ignored.insert(key);
    }

    /// Returns a path, relative to the folder of the file.
    pub(super) fn resolve_path(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// Reads a table. `name` is its name for messages.
    pub(super) fn table<'n>(&mut self, name: &'static str, node: &'n YamlNode) -> Option<ConfigTable<'n>> {
        match &node.value {
            YamlValue::Table(entries) => {
                let (known, foreign) = Default::default();
                Some(ConfigTable { position: node.position, name, entries, known, foreign })
            }
            value => {
                self.refuse(
                    node.position,
                    format!("{name} is {}; write a table of settings", kind_of(value)),
                );
                None
            }
        }
    }

    /// Reads a list. `name` is its name for messages.
    pub(super) fn list<'n>(&mut self, name: &str, node: &'n YamlNode) -> &'n [YamlNode] {
        match &node.value {
            YamlValue::List(items) => items,
            YamlValue::Null => &[],
            value => {
                self.refuse(node.position, format!("{name} is {}; write a list", kind_of(value)));
                &[]
            }
        }
    }

    /// Reads a text. Numbers and truth values are texts, too.
    pub(super) fn text(&mut self, name: &str, node: &YamlNode) -> Option<String> {
        match &node.value {
            YamlValue::Scalar(YamlScalar { text, .. }) => Some(text.clone()),
            YamlValue::Null => Some(String::new()),
            value => {
                self.refuse(node.position, format!("{name} is {}; write a text", kind_of(value)));
                None
            }
        }
    }

    /// Reads a list of texts.
    pub(super) fn texts(&mut self, name: &str, node: &YamlNode) -> Vec<String> {
        let items = self.list(name, node);
        items.iter().filter_map(|item| self.text(name, item)).collect()
    }

    /// Reads a truth value.
    pub(super) fn truth(&mut self, name: &str, node: &YamlNode) -> Option<bool> {
        match &node.value {
            YamlValue::Scalar(YamlScalar { truth: Some(truth), .. }) => Some(*truth),
            value => {
                self.refuse(node.position, format!("{name} is {}; write true or false", shown(value)));
                None
            }
        }
    }

    /// Reads a value with a parser.
    pub(super) fn parsed<T>(&mut self, name: &str, node: &YamlNode) -> Option<T>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        let text = self.text(name, node)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.refuse(node.position, format!("{name} is {:?}: {error}", shorten(&text)));
                None
            }
        }
    }

    /// Reads a whole number from 0 to `max`.
    pub(super) fn number(&mut self, name: &str, node: &YamlNode, max: u64) -> Option<u64> {
        let text = self.text(name, node)?;
        let number = text.parse().ok().filter(|number| *number <= max);
        if number.is_none() {
            let text = shorten(&text);
            self.refuse(node.position, format!("{name} is {text:?}; write a whole number from 0 to {max}"));
        }
        number
    }

    /// Reads a duration.
    pub(super) fn duration(&mut self, name: &str, node: &YamlNode) -> Option<Duration> {
        let text = self.text(name, node)?;
        match parse_prometheus_duration(&text) {
            Ok(duration) => Some(duration),
            Err(error) => {
                self.refuse(node.position, format!("{name}: {error}"));
                None
            }
        }
    }

    /// Reads labels: a table of names and values.
    pub(super) fn labels(&mut self, name: &'static str, node: &YamlNode) -> Labels {
        let Some(table) = self.table(name, node) else { return Labels::default() };
        let mut labels = Labels::default();
        for entry in table.entries {
            if entry.key.is_empty() {
                self.refuse(entry.key_position, format!("a label of {name} has no name; name it"));
            }
            if let Some(value) = self.text(&entry.key, &entry.node) {
                labels.set(&entry.key, &value);
            }
        }
        labels
    }
}

impl<'n> ConfigTable<'n> {
    /// Returns the value of a key, unless it is absent or null. The key counts as known.
    pub(super) fn get(&self, key: &'static str) -> Option<&'n YamlNode> {
        self.get_nullable(key).filter(|node| !matches!(node.value, YamlValue::Null))
    }

    /// Returns the value of a key, which may be null. The key counts as known.
    pub(super) fn get_nullable(&self, key: &'static str) -> Option<&'n YamlNode> {
        self.known.borrow_mut().push(key);
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// Returns the position of a key, or that of the table if the key is absent.
    pub(super) fn position_of(&self, key: &str) -> Position {
        let entry = self.entries.iter().find(|entry| entry.key == key);
        entry.map_or(self.position, |entry| entry.node.position)
    }

    /// Returns all entries.
    pub(super) fn entries(&self) -> &'n [YamlEntry] {
        self.entries
    }

    /// Reads the text of a key.
    pub(super) fn text(&self, reader: &mut ConfigReader, key: &'static str) -> Option<String> {
        self.get(key).and_then(|node| reader.text(key, node))
    }

    /// Reads the text of a key, if it is not empty.
    pub(super) fn filled_text(&self, reader: &mut ConfigReader, key: &'static str) -> Option<String> {
        self.text(reader, key).filter(|text| !text.is_empty())
    }

    /// Reads the truth value of a key.
    pub(super) fn truth(&self, reader: &mut ConfigReader, key: &'static str) -> Option<bool> {
        self.get(key).and_then(|node| reader.truth(key, node))
    }

    /// Reads the duration of a key.
    pub(super) fn duration(&self, reader: &mut ConfigReader, key: &'static str) -> Option<Duration> {
        self.get(key).and_then(|node| reader.duration(key, node))
    }

    /// Reads the value of a key with a parser.
    pub(super) fn parsed<T>(&self, reader: &mut ConfigReader, key: &'static str) -> Option<T>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        self.get(key).and_then(|node| reader.parsed(key, node))
    }

    /// Reads the labels of a key.
    pub(super) fn labels(&self, reader: &mut ConfigReader, key: &'static str) -> Labels {
        self.get(key).map(|node| reader.labels(key, node)).unwrap_or_default()
    }

    /// Reads the texts of a key.
    pub(super) fn texts(&self, reader: &mut ConfigReader, key: &'static str) -> Vec<String> {
        self.get(key).map(|node| reader.texts(key, node)).unwrap_or_default()
    }

    /// Accepts keys that have a meaning only in other programs. Those that are present are listed in a warning.
    pub(super) fn ignore_all(&self, reader: &mut ConfigReader, keys: &[&'static str]) {
        for key in keys {
            self.foreign.borrow_mut().push(key);
            if self.entries.iter().any(|entry| entry.key == *key) {
                reader.ignore(format!("{}.{key}", self.name).trim_start_matches("configuration.").to_owned());
            }
        }
    }

    /// Refuses keys that were not read, with the nearest known name.
    pub(super) fn finish(self, reader: &mut ConfigReader) {
        self.finish_except(reader, |_| false);
    }

    /// Refuses keys that were not read, except those that were refused already.
    pub(super) fn finish_except(self, reader: &mut ConfigReader, is_refused: impl Fn(&str) -> bool) {
        let known = self.known.into_inner();
        let foreign = self.foreign.into_inner();
        for entry in self.entries {
            let key = entry.key.as_str();
            if known.contains(&key) || foreign.contains(&key) || is_refused(key) {
                continue;
            }
            let hint = match nearest_name(key, known.iter().chain(&foreign).copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known keys are {}", sorted_names(&known)),
            };
            let key = shorten(key);
            reader.refuse(entry.key_position, format!("unknown key {key} in {}; {hint}", self.name));
        }
    }
}

fn sorted_names(names: &[&'static str]) -> String {
    let names: BTreeSet<&str> = names.iter().copied().collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn kind_of(value: &YamlValue) -> &'static str {
    match value {
        YamlValue::Null => "empty",
        YamlValue::Scalar(_) => "a single value",
        YamlValue::List(_) => "a list",
        YamlValue::Table(_) => "a table",
    }
}

fn shown(value: &YamlValue) -> String {
    match value {
        YamlValue::Scalar(scalar) => format!("{:?}", shorten(&scalar.text)),
        value => kind_of(value).to_owned(),
    }
}
