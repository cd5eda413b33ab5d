//! Fields and doc comments of the config structs, read from their source.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Attribute above each config struct.
const CONFIG_ATTRIBUTE: &str = "#[serde(default, deny_unknown_fields";

/// Field of a config struct.
pub struct ConfigField {
    pub name: String,
    /// Type as written, such as `Option<athanor_storage::S3Config>`.
    pub type_text: String,
    pub doc: String,
}

/// Config structs of the workspace by name.
pub struct ConfigStructs(BTreeMap<String, Vec<ConfigField>>);

impl ConfigStructs {
    /// Reads the structs from the source of all crates.
    pub fn read(root: &Path) -> Self {
        let mut structs = BTreeMap::new();
        for entry in fs::read_dir(root).unwrap() {
            for file in rust_files(&entry.unwrap().path().join("src")) {
                parse_structs(&fs::read_to_string(file).unwrap(), &mut structs);
            }
        }
        Self(structs)
    }

    /// Returns the fields of a config struct. Returns none for other types.
    pub fn fields(&self, type_text: &str) -> Option<&[ConfigField]> {
        self.0.get(bare_type(type_text)).map(Vec::as_slice)
    }
}

/// Returns the name of a type without `Option` and without its path.
pub fn bare_type(type_text: &str) -> &str {
    let inner = type_text.strip_prefix("Option<").and_then(|rest| rest.strip_suffix('>'));
    let inner = inner.unwrap_or(type_text);
    if inner.contains('<') { inner } else { inner.rsplit("::").next().unwrap_or(inner) }
}

/// Returns the Rust files below a folder. Returns none if it does not exist.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Adds the config structs of a file, which is formatted by rustfmt.
fn parse_structs(text: &str, structs: &mut BTreeMap<String, Vec<ConfigField>>) {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !line.starts_with(CONFIG_ATTRIBUTE) {
            continue;
        }
        let declaration = lines.by_ref().find(|line| !line.starts_with("#[")).unwrap_or_default();
        let name = declaration.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {"));
        if let Some(name) = name {
            let before = structs.insert(name.to_owned(), parse_fields(&mut lines));
            assert!(before.is_none(), "two config structs are named {name}");
        }
    }
}

/// Returns the fields up to the end of the struct.
fn parse_fields<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<ConfigField> {
    let mut fields = Vec::new();
    let mut doc: Vec<&str> = Vec::new();
    for line in lines.take_while(|line| *line != "}").map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if let Some(field) = line.strip_prefix("pub ") {
            let (name, type_text) = field.split_once(": ").unwrap();
            fields.push(ConfigField {
                name: name.to_owned(),
                type_text: type_text.trim_end_matches(',').to_owned(),
                doc: doc.join(" "),
            });
            doc.clear();
        }
    }
    fields
}

#[test]
fn fields_and_their_docs_are_found() {
    let text = "/// A config.\n#[derive(Deserialize)]\n#[serde(default, deny_unknown_fields)]\npub struct Outer {\n    \
                /// First\n    /// words.\n    #[serde(with = \"x\")]\n    pub inner: Option<a::Inner>,\n}\n\
                pub struct Other {\n    /// Unused.\n    pub field: u8,\n}\n";
    let mut structs = BTreeMap::new();
    parse_structs(text, &mut structs);
    let structs = ConfigStructs(structs);
    let [field] = structs.fields("crate::Outer").unwrap() else { panic!("one field is declared") };
    assert_eq!((field.name.as_str(), field.doc.as_str()), ("inner", "First words."));
    assert_eq!(bare_type(&field.type_text), "Inner");
    assert!(structs.fields("Other").is_none());
}
