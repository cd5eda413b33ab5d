//! Source files and Markdown pages of the workspace.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::split::{SourceLine, split_product};
use super::tokens::{Token, tokenize};

/// Folders whose Rust files are no product code.
const TEST_FOLDERS: [&str; 4] = ["tests", "benches", "fuzz", "examples"];
/// Folders of build output and installed packages.
const BUILT_FOLDERS: [&str; 2] = ["target", "node_modules"];

/// Any text file of the repository, with its path below the root.
pub struct TextFile {
    pub path: String,
    pub text: String,
}

/// Rust file of product code.
pub struct SourceFile {
    /// Path below the root.
    pub path: String,
    /// All lines of the file; those of test items are empty.
    pub lines: Vec<SourceLine>,
    pub tokens: Vec<Token>,
}

impl SourceFile {
    /// Returns the number of lines that have code.
    pub fn count_code_lines(&self) -> usize {
        self.lines.iter().filter(|line| line.has_code()).count()
    }
}

/// Product code and Markdown pages of the workspace.
pub struct Workspace {
    pub files: Vec<SourceFile>,
    pub pages: Vec<TextFile>,
}

impl Workspace {
    /// Reads the workspace that this crate belongs to.
    pub fn read() -> Self {
        Self::from_texts(read_files(&root(), &["rs", "md"]))
    }

    /// Sorts texts into product code and pages, and leaves out tests.
    pub fn from_texts(texts: Vec<TextFile>) -> Self {
        let mut workspace = Self { files: Vec::new(), pages: Vec::new() };
        let mut test_paths = BTreeSet::new();
        for file in texts {
            if file.path.ends_with(".md") {
                workspace.pages.push(file);
            } else if is_product(&file.path) {
                let product = split_product(&file.text);
                let folder = module_folder(&file.path);
                test_paths.extend(product.test_modules.iter().map(|name| format!("{folder}/{name}")));
                let tokens = tokenize(&product.lines);
                workspace.files.push(SourceFile { path: file.path, lines: product.lines, tokens });
            }
        }
        let is_test = |path: &str| {
            let mut modules = test_paths.iter().filter_map(|module| path.strip_prefix(module.as_str()));
            modules.any(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        workspace.files.retain(|file| !is_test(&file.path));
        workspace
    }
}

/// Returns whether a path is that of product code.
fn is_product(path: &str) -> bool {
    let mut parts = path.split('/');
    let is_test_file = path == "tests.rs" || path.ends_with("/tests.rs");
    !is_test_file && !parts.any(|part| TEST_FOLDERS.contains(&part))
}

/// Returns the folder in which the modules lie that a file declares.
fn module_folder(path: &str) -> &str {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let of_crate = stem.strip_suffix("/lib").or_else(|| stem.strip_suffix("/main"));
    of_crate.unwrap_or(stem)
}

/// Returns the top of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above").to_owned()
}

/// Finds all folders below a folder and the files with these extensions, in the order of their paths. Build output
/// and hidden folders are left out.
pub fn walk(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let is_wanted = |extension: &OsStr| extensions.iter().any(|wanted| extension == *wanted);
    let entries = std::fs::read_dir(folder).expect("readable");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with('.') || BUILT_FOLDERS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            found.push(path.clone());
            walk(&path, extensions, found);
        } else if path.extension().is_some_and(is_wanted) {
            found.push(path);
        }
    }
}

/// Reads all files with these extensions below a folder.
pub fn read_files(root: &Path, extensions: &[&str]) -> Vec<TextFile> {
    let mut paths = Vec::new();
    walk(root, extensions, &mut paths);
    let read = |path: &PathBuf| {
        let below = path.strip_prefix(root).expect("a path below the root");
        let text = std::fs::read_to_string(path).expect("readable");
        TextFile { path: below.to_str().expect("a path of UTF-8").to_owned(), text }
    };
    paths.iter().filter(|path| path.is_file()).map(read).collect()
}

/// Made-up workspaces for tests of measures.
#[cfg(test)]
pub mod samples {
    use super::{TextFile, Workspace};

    /// Returns a workspace of these paths and texts.
    pub fn workspace_of(files: &[(&str, &str)]) -> Workspace {
        let text_file = |(path, text): &(&str, &str)| TextFile { path: (*path).into(), text: (*text).into() };
        Workspace::from_texts(files.iter().map(text_file).collect())
    }

    /// Returns a workspace of one source file.
    pub fn code_of(text: &str) -> Workspace {
        workspace_of(&[("a/src/lib.rs", text)])
    }
}

#[cfg(test)]
mod tests {
    use super::samples::workspace_of;

    #[test]
    fn tests_are_no_product_code() {
        let workspace = workspace_of(&[
            ("a/src/lib.rs", "#[cfg(test)]\nmod model;\nmod modeling;\n"),
            ("a/src/model.rs", ""),
            ("a/src/model/steps.rs", ""),
            ("a/src/modeling.rs", "#[cfg(test)]\nmod oracle;\n"),
            ("a/src/modeling/oracle.rs", ""),
            ("a/src/modeling/tests.rs", ""),
            ("a/src/modeling/tests/one.rs", ""),
            ("a/tests/model.rs", ""),
            ("a/benches/model.rs", ""),
            ("fuzz/src/lib.rs", ""),
            ("examples/main.rs", ""),
            ("README.md", ""),
        ]);
        let paths: Vec<&str> = workspace.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a/src/lib.rs", "a/src/modeling.rs"]);
        assert_eq!(workspace.pages.len(), 1);
    }
}
