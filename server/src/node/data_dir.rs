//! Data folder of a server: opened and locked, or rejected with an error that names it.

mod access;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use athanor_chassis::disk::{DiskError, LocalDisk};
use athanor_chassis::requests::activity_tracker::{PreviousRun, install_abort_marker};
use athanor_chassis::{ErrorCode, ErrorCodeExt};

/// Error for a data folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the data folder {folder} cannot be used: {why}; {way_out}")]
pub struct DataDirError {
    folder: String,
    why: String,
    way_out: &'static str,
    code: ErrorCode,
}

impl ErrorCodeExt for DataDirError {
    fn code(&self) -> ErrorCode {
        self.code
    }
}

const CHOOSE_OTHER_HINT: &str = "name another one with --data";
const GRANT_WRITE_HINT: &str = "grant this user write access, or name another one with --data";

/// Subfolder for inputs and outputs of compaction jobs. A compactor empties it at start.
pub const SCRATCH_FOLDER: &str = "compactor";

/// Subfolders of a data folder, exclusive to this process.
pub struct DataDir {
    /// Disk of the write-ahead log.
    pub wal: LocalDisk,
    /// Disk of snapshots and of the node's identity.
    pub state: LocalDisk,
    /// Disk of the cache of block data, if it can be opened: its contents are disposable.
    pub cache: Option<LocalDisk>,
    /// Records of running queries, for the case that one crashes the process, if they can be opened.
    pub activity: Option<PreviousRun>,
}

/// Opens and locks a data folder. Creates it if it does not exist.
pub fn open(data: &Path) -> Result<DataDir, DataDirError> {
    let refused =
        |why: String, way_out, code| DataDirError { folder: data.display().to_string(), why, way_out, code };
    if let Ok(link) = fs::read_link(data)
        && fs::metadata(data).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    {
        let why = format!("symbolic link to {}, which does not exist", link.display());
        return Err(refused(why, "create that folder, or name another one with --data", ErrorCode::NotFound));
    }
    if fs::metadata(data).is_ok_and(|found| !found.is_dir()) {
        return Err(refused("not a folder".to_owned(), CHOOSE_OTHER_HINT, ErrorCode::Conflict));
    }
    // Links are checked first: restricting a folder would change the target of a link.
    let unreadable = |error: io::Error| refused(error.to_string(), CHOOSE_OTHER_HINT, ErrorCode::Unavailable);
    if let Some(link) = access::find_link(data).map_err(unreadable)? {
        let why = format!(
            "{} is a symbolic link, which could redirect the server to foreign files",
            link.display()
        );
        let way_out = "replace the link with its target (with a mount or storage.local), or name another one with --data";
        return Err(refused(why, way_out, ErrorCode::PermissionDenied));
    }
    access::restrict(data);
    let taken = |error: DiskError| {
        let (way_out, code) = match &error {
            DiskError::Io { source, .. } => match source.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    (GRANT_WRITE_HINT, ErrorCode::PermissionDenied)
                }
                ErrorKind::NotADirectory => (CHOOSE_OTHER_HINT, ErrorCode::Conflict),
                _ => (CHOOSE_OTHER_HINT, error.code()),
            },
            DiskError::Locked { .. } => {
                ("stop that process, or name another folder with --data", error.code())
            }
            DiskError::Full { .. } => ("free some space, or name another folder with --data", error.code()),
            _ => (CHOOSE_OTHER_HINT, error.code()),
        };
        let why = match &error {
            DiskError::Io { source, .. } => format!("{error}: {source}"),
            _ => error.to_string(),
        };
        refused(why, way_out, code)
    };
    let open = |part| LocalDisk::open(data.join(part)).map_err(taken);
    let wal = open("wal")?;
    let state = open("state")?;
    let cache = LocalDisk::open(data.join("cache")).inspect_err(|error| {
        tracing::warn!(%error, "disk cache disabled, using memory only");
    });
    let unknown = |error: &dyn std::fmt::Display| {
        tracing::warn!(%error, "crash tracking disabled, queries that crash the process will not be quarantined");
    };
    let activity = LocalDisk::open(data.join("activity")).inspect_err(|error| unknown(error)).ok();
    let activity = activity.and_then(|disk| {
        let has_aborted =
            install_abort_marker(&data.join("abort-marker")).inspect_err(|error| unknown(error)).ok()?;
        Some(PreviousRun { disk: Arc::new(disk), has_aborted })
    });
    Ok(DataDir { wal, state, cache: cache.ok(), activity })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_that_cannot_be_used_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "x").unwrap();
        symlink(at("nowhere"), at("link")).unwrap();
        let refused = |name: &str| open(&at(name)).map(drop).unwrap_err();
        for (name, why, code) in [
            ("file", "not a folder", ErrorCode::Conflict),
            ("file/below", "Not a directory", ErrorCode::Conflict),
            ("link", "nowhere, which does not exist", ErrorCode::NotFound),
        ] {
            let error = refused(name);
            let said = error.to_string();
            assert!(said.contains(&at(name).display().to_string()) && said.contains(why), "{said}");
            assert!(said.ends_with("with --data") && error.code() == code, "{said}");
        }
        assert!(!at("nowhere").exists(), "nothing is begun");
        fs::create_dir(at("linked")).unwrap();
        symlink(folder.path(), at("linked/wal")).unwrap();
        let error = refused("linked");
        assert!(error.to_string().contains("linked/wal is a symbolic link"), "{error}");
        assert_eq!(error.code(), ErrorCode::PermissionDenied);
        let held = open(&at("mine")).unwrap();
        assert_eq!(refused("mine").code(), ErrorCode::Conflict);
        drop(held);
        assert!(open(&at("mine")).is_ok());
    }
}
