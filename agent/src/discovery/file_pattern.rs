//! Patterns of file names.

use std::io;
use std::path::Path;

use super::DiscoveryError;
use super::target_list::TargetListFormat;

/// Maximum entries of a folder that are compared with a pattern.
const MAX_FOLDER_ENTRIES: usize = 100_000;
/// Maximum files of a pattern.
const MAX_FILES_PER_PATTERN: usize = 1_000;

/// Path with `*` in the file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePattern {
    /// Folder. Empty for the working folder.
    folder: String,
    file_name: String,
}

impl FilePattern {
    /// Splits a path.
    ///
    /// # Errors
    ///
    /// The folder contains `*`, or the file name has no known extension.
    pub(super) fn parse(path: &str) -> Result<Self, DiscoveryError> {
        let (folder, file_name) = match path.rsplit_once('/') {
            Some((folder, file_name)) => (&path[..(folder.len()).max(1)], file_name),
            None => ("", path),
        };
        let is_valid = !folder.contains('*') && list_format(file_name).is_some();
        if !is_valid {
            let reason = format!(
                "path {path:?} of file_sd_configs is not valid; it must end in .json, .yml or .yaml and may have * \
                 in the file name only"
            );
            return Err(DiscoveryError::Settings { reason });
        }
        Ok(Self { folder: folder.to_owned(), file_name: file_name.to_owned() })
    }

    /// Folder that contains the files.
    pub(super) fn folder(&self) -> &Path {
        Path::new(if self.folder.is_empty() { "." } else { &self.folder })
    }

    /// Returns whether a file name matches.
    pub(super) fn matches(&self, file_name: &str) -> bool {
        matches_wildcards(self.file_name.as_bytes(), file_name.as_bytes())
    }

    /// Returns the paths of the files that match, sorted. Without `*`, the path itself if the file exists.
    pub(super) async fn list_files(&self) -> io::Result<Vec<String>> {
        if !self.file_name.contains('*') {
            let path = self.join(&self.file_name);
            let exists = tokio::fs::try_exists(&path).await?;
            return Ok(if exists { vec![path] } else { Vec::new() });
        }
        let mut entries = match tokio::fs::read_dir(self.folder()).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        let mut seen = 0;
        while let Some(entry) = entries.next_entry().await? {
            seen += 1;
            if seen > MAX_FOLDER_ENTRIES || names.len() > MAX_FILES_PER_PATTERN {
                let message = format!(
                    "folder has over {MAX_FOLDER_ENTRIES} entries or {MAX_FILES_PER_PATTERN} matching files; use \
                     fewer files with more groups"
                );
                return Err(io::Error::other(message));
            }
            if let Ok(name) = entry.file_name().into_string()
                && self.matches(&name)
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names.iter().map(|name| self.join(name)).collect())
    }

    fn join(&self, name: &str) -> String {
        match self.folder.as_str() {
            "" => name.to_owned(),
            "/" => format!("/{name}"),
            folder => format!("{folder}/{name}"),
        }
    }
}

/// Returns the format of a file by its extension.
pub(super) fn list_format(path: &str) -> Option<TargetListFormat> {
    let (_, extension) = path.rsplit_once('.')?;
    match extension.to_ascii_lowercase().as_str() {
        "json" => Some(TargetListFormat::Json),
        "yml" | "yaml" => Some(TargetListFormat::Yaml),
        _ => None,
    }
}

/// Returns whether a text matches a pattern in which `*` stands for any text.
fn matches_wildcards(pattern: &[u8], text: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&[u8]> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        let Some(at) = rest.windows(part.len()).position(|window| window == part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_any_text() {
        let pattern = |text: &str| FilePattern::parse(text).unwrap();
        assert!(pattern("a/*.json").matches("x.json") && pattern("a/*.json").matches(".json"));
        assert!(!pattern("a/*.json").matches("x.yml") && !pattern("a/*.json").matches("json"));
        assert!(pattern("t-*-b*.yml").matches("t-1-b-b.yml") && !pattern("t-*-b*.yml").matches("t-b.yml"));
        assert!(pattern("x.yml").matches("x.yml") && !pattern("x.yml").matches("xx.yml"));
        assert!(!pattern("ab*ba.yml").matches("aba.yml"), "parts do not overlap");
        assert!(!pattern("a*.yml").matches("a.yml.bak"));
    }

    #[test]
    fn paths_are_split_and_checked() {
        assert_eq!(FilePattern::parse("/x.yml").unwrap().folder(), Path::new("/"));
        assert_eq!(FilePattern::parse("/x.yml").unwrap().join("y"), "/y");
        assert_eq!(FilePattern::parse("a/b/x.YAML").unwrap().folder(), Path::new("a/b"));
        assert_eq!(FilePattern::parse("x.yml").unwrap().folder(), Path::new("."));
        for path in ["", "x", "x.txt", "*/x.yml", "a*/b/x.yml", "x.yml/"] {
            let error = FilePattern::parse(path).unwrap_err().to_string();
            assert!(error.contains("must end in .json"), "{error}");
        }
    }
}
