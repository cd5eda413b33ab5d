//! Folders of a spool on the local disk, or in memory if they are not writable.

use std::path::Path;
use std::sync::Arc;

use athanor_chassis::Disk;
use athanor_chassis::disk::{DiskError, LocalDisk};

use super::volatile_disk::VolatileDisk;

const REFUSED_FOLDER: &str = "refused";

/// Disks of the spool of one server.
#[derive(Clone, Debug)]
pub struct SpoolDisks {
    /// Folder of the spool files.
    pub files: Arc<dyn Disk>,
    /// Folder of the refused profiles.
    pub refused: Arc<dyn Disk>,
    /// Whether both are in memory.
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
    fn spool_is_in_memory_if_the_folder_cannot_be_created() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(SpoolDisks::open(file.path(), "main").unwrap().is_in_memory);
    }
}
