//! Folders of a spool on the local disk, or in memory if they are not writable.

use std::path::Path;
use std::sync::Arc;

use athanor_chassis::Disk;
use athanor_chassis::disk::{DiskError, LocalDisk};

use super::file_name::FILE_SUFFIX;
use super::volatile_disk::VolatileDisk;

const REFUSED_FOLDER: &str = "refused";
/// Maximum number of entries of the folder that are searched for spools of other servers.
const MAX_SEARCHED_FOLDERS: usize = 1000;

/// Disks of the spool of one server.
#[derive(Clone, Debug)]
pub struct SpoolDisks {
    /// Folder of the spool files.
    pub files: Arc<dyn Disk>,
    /// Folder of the refused profiles.
    pub refused: Arc<dyn Disk>,
    /// True if both are in memory.
    pub is_in_memory: bool,
}

impl SpoolDisks {
    /// Opens the folder of a server below `folder`. If it is not writable, the spool is in memory, and the
    /// reason is logged. Blocks.
    ///
    /// # Errors
    ///
    /// Another process uses the folder.
    pub fn open(folder: &Path, server: &str) -> Result<Self, DiskError> {
        let path = folder.join(server);
        let opened =
            LocalDisk::open(&path).and_then(|files| Ok((files, LocalDisk::open(path.join(REFUSED_FOLDER))?)));
        match opened {
            Ok((files, refused)) => {
                Ok(Self { files: Arc::new(files), refused: Arc::new(refused), is_in_memory: false })
            }
            Err(error @ DiskError::Locked { .. }) => Err(error),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(
                    server,
                    %error,
                    cause,
                    "spool folder is not writable, profiles are spooled in memory and lost if the agent ends; \
                     set spool.folder to a writable folder"
                );
                Ok(Self::in_memory())
            }
        }
    }

    /// Returns folders in memory.
    pub fn in_memory() -> Self {
        Self {
            files: Arc::new(VolatileDisk::default()),
            refused: Arc::new(VolatileDisk::default()),
            is_in_memory: true,
        }
    }
}

/// Finds the spools below `folder` that no configured server delivers, for example after a server was renamed. Logs
/// each, and returns the warnings for the operator. Skips spools that another process uses. Blocks.
pub fn report_abandoned_spools(folder: &Path, servers: &[String]) -> Vec<String> {
    // A folder that does not exist contains no spool.
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut warnings = Vec::new();
    for entry in entries.take(MAX_SEARCHED_FOLDERS).flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if servers.contains(&name) || !has_spool_files(&path) || is_in_use(&path) {
            continue;
        }
        let warning = format!(
            "the folder {} contains profiles that are not delivered, because no server has the name {name:?}; set \
             servers.name of their server to it, or delete the folder",
            path.display()
        );
        tracing::error!(folder = %path.display(), "{warning}");
        warnings.push(warning);
    }
    warnings.sort();
    warnings
}

fn has_spool_files(path: &Path) -> bool {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with(FILE_SUFFIX))
}

fn is_in_use(path: &Path) -> bool {
    matches!(LocalDisk::open(path), Err(DiskError::Locked { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_of_another_process_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let first = SpoolDisks::open(folder.path(), "main").unwrap();
        assert!(!first.is_in_memory);
        let error = SpoolDisks::open(folder.path(), "main").unwrap_err();
        assert!(matches!(error, DiskError::Locked { .. }), "{error}");
        assert!(!SpoolDisks::open(folder.path(), "other").unwrap().is_in_memory);
    }

    #[test]
    fn spools_without_a_server_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let names = ["configured", "renamed", "used", "empty"];
        let disks = names.map(|name| SpoolDisks::open(&path.join("spool"), name).unwrap());
        for used in &disks[..3] {
            used.files.write("1.spool", b"x").unwrap();
        }
        let [configured, renamed, used, empty] = disks;
        drop((configured, renamed, empty));
        let warnings = report_abandoned_spools(&path.join("spool"), &["configured".to_owned()]);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("spool/renamed ") && warnings[0].contains("servers.name"),
            "{warnings:?}"
        );
        drop(used);
        assert_eq!(report_abandoned_spools(&path.join("spool"), &["configured".to_owned()]).len(), 2);
        assert_eq!(report_abandoned_spools(&path.join("absent"), &[]), Vec::<String>::new());
    }

    #[test]
    fn spool_is_in_memory_if_the_folder_cannot_be_created() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(SpoolDisks::open(file.path(), "main").unwrap().is_in_memory);
    }
}
