//! Files of the repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Folders of build output and installed packages.
const BUILT_FOLDERS: [&str; 2] = ["target", "node_modules"];

/// Any text file of the repository, with its path below the root.
pub struct TextFile {
    pub path: String,
    pub text: String,
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
