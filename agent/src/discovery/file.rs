//! Discovery of targets in files.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::Clock;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;

use super::file_pattern::{FilePattern, list_format};
use super::file_watch::FileWatch;
use super::polling::{GroupSource, PartResult, PollingDiscoverer};
use super::target_list::{ListedGroup, MAX_LIST_BYTES, TargetListFormat, parse_target_list};
use super::{DiscoveryError, DiscoveryKind, DiscoveryStats, FileDiscoverySettings, TargetGroup};

const PATH_LABEL: &str = "__meta_filepath";

/// Files that match patterns.
pub(super) struct FileSource {
    patterns: Vec<FilePattern>,
    refresh_interval: Duration,
    /// None if the system cannot notify of changes.
    watch: Option<FileWatch>,
    /// Paths of each pattern, as listed last.
    listed: Mutex<HashMap<usize, Vec<String>>>,
}

/// Creates a discoverer of files.
pub(super) fn file_discoverer(
    settings: &FileDiscoverySettings,
    clock: Clock,
    stats: Arc<DiscoveryStats>,
) -> Result<PollingDiscoverer<FileSource>, DiscoveryError> {
    let patterns: Result<Vec<_>, _> = settings.files.iter().map(|path| FilePattern::parse(path)).collect();
    let patterns = patterns?;
    let watch = match FileWatch::new(patterns.clone(), clock.clone()) {
        Ok(watch) => Some(watch),
        Err(error) => {
            tracing::warn!(%error, "failed to watch files, reading them in intervals only");
            None
        }
    };
    let source =
        FileSource { patterns, refresh_interval: settings.refresh_interval, watch, listed: Mutex::default() };
    Ok(PollingDiscoverer::new(source, clock, stats))
}

#[async_trait]
impl GroupSource for FileSource {
    fn kind(&self) -> DiscoveryKind {
        DiscoveryKind::File
    }

    fn refresh_interval(&self) -> Duration {
        self.refresh_interval
    }

    async fn refresh(&self) -> Vec<PartResult> {
        // Folders are watched before they are read, so that no change is lost.
        for (folder, error) in self.watch.iter().flat_map(FileWatch::add_folders) {
            tracing::debug!(folder = %folder.display(), %error, "failed to watch folder");
        }
        let mut results: Vec<PartResult> = Vec::new();
        for (index, pattern) in self.patterns.iter().enumerate() {
            match pattern.list_files().await {
                Ok(paths) => drop(self.listed.lock().insert(index, paths)),
                Err(source) => {
                    let part = pattern.folder().display().to_string();
                    let groups = Err(DiscoveryError::File { path: part.clone(), source });
                    results.push(PartResult { part, groups });
                }
            }
            let paths = self.listed.lock().get(&index).cloned().unwrap_or_default();
            for path in paths {
                if !results.iter().any(|result| result.part == path) {
                    let groups = read_groups(&path).await;
                    results.push(PartResult { part: path, groups });
                }
            }
        }
        results
    }

    async fn wait_for_change(&self) {
        match &self.watch {
            Some(watch) => watch.wait_for_change().await,
            None => std::future::pending().await,
        }
    }
}

async fn read_groups(path: &str) -> Result<Vec<TargetGroup>, DiscoveryError> {
    let content =
        read_file(path).await.map_err(|source| DiscoveryError::File { path: path.to_owned(), source })?;
    let format = list_format(path).unwrap_or(TargetListFormat::Yaml);
    let listed = parse_target_list(&content, format)
        .map_err(|source| DiscoveryError::List { origin: path.to_owned(), source })?;
    let groups = listed.into_iter().enumerate();
    let to_group = |(index, group): (usize, ListedGroup)| {
        group.into_group(format!("{path}:{index}"), (PATH_LABEL, path), false)
    };
    Ok(groups.map(to_group).collect())
}

/// Reads a file up to one byte over the limit.
async fn read_file(path: &str) -> std::io::Result<Vec<u8>> {
    let file = tokio::fs::File::open(path).await?;
    let mut content = Vec::new();
    file.take(MAX_LIST_BYTES + 1).read_to_end(&mut content).await?;
    Ok(content)
}

#[cfg(test)]
mod tests;
