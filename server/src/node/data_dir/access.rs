//! Access control of the data folder: only the server's user can open it, and no link inside leads elsewhere.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use athanor_chassis::observability::process;

/// Subfolders of a data folder.
const DATA_DIR_FOLDERS: [&str; 6] = ["wal", "state", "cache", "activity", "bucket", super::SCRATCH_FOLDER];
/// Files of a data folder, and the folder that a new file system contains.
const DATA_DIR_FILES: [&str; 3] =
    ["abort-marker", crate::http::admin::socket::ADMIN_SOCKET_FILE, "lost+found"];
/// Depth of the search for links. It reaches the tenant folders of a local bucket.
const MAX_LINK_DEPTH: usize = 3;
const UNLISTED_ERRORS: [ErrorKind; 3] =
    [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::PermissionDenied];
const OTHERS_MODE_MASK: u32 = 0o077;
const OWNER_ONLY_MODE: u32 = 0o700;

/// Creates the data folder if necessary and removes access of other users to it and its parts. Files that the
/// process creates later are restricted as well.
///
/// A folder with files of other programs stays open, because others may need them; a log line warns about it.
pub fn restrict(data: &Path) {
    process::restrict_file_permissions();
    if fs::create_dir_all(data).is_err() {
        // Opening the subfolders fails in the same way and reports the error.
        return;
    }
    for folder in
        DATA_DIR_FOLDERS.map(|part| data.join(part)).iter().filter(|folder| is_open_to_others(folder))
    {
        close(folder);
    }
    if !is_open_to_others(data) {
        return;
    }
    if is_own(data) {
        close(data);
    } else {
        tracing::warn!(
            folder = %data.display(),
            "data folder is accessible to other users and contains foreign files; give the server a separate folder"
        );
    }
}

/// Returns a symbolic link in the data folder, if there is one.
pub fn find_link(data: &Path) -> io::Result<Option<PathBuf>> {
    let mut folders = vec![(data.to_owned(), 1)];
    while let Some((folder, depth)) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // The code that opens the folder later reports the error.
            Err(error) if UNLISTED_ERRORS.contains(&error.kind()) => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                return Ok(Some(entry.path()));
            }
            if kind.is_dir() && depth < MAX_LINK_DEPTH {
                folders.push((entry.path(), depth + 1));
            }
        }
    }
    Ok(None)
}

fn is_open_to_others(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & OTHERS_MODE_MASK != 0)
}

/// Returns whether a folder contains only files of a server.
fn is_own(data: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(data) else { return false };
    entries.all(|entry| {
        let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
        DATA_DIR_FOLDERS.iter().chain(&DATA_DIR_FILES).any(|known| name == *known)
    })
}

fn close(folder: &Path) {
    if let Err(error) = fs::set_permissions(folder, Permissions::from_mode(OWNER_ONLY_MODE)) {
        tracing::warn!(folder = %folder.display(), %error, "failed to restrict access to a folder of the data folder; run chmod 700");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn folders_and_new_files_are_their_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path| {
            fs::create_dir_all(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        };
        let [new, own, mixed] = ["new/deep", "own", "mixed"].map(|name| folder.path().join(name));
        open(&own);
        open(&own.join("wal"));
        open(&mixed);
        open(&mixed.join("state"));
        open(&mixed.join("photos"));
        for data in [&new, &own, &mixed] {
            restrict(data);
        }
        assert_eq!([&new, &own, &own.join("wal")].map(|path| mode(path)), [0o700; 3]);
        assert_eq!(mode(&mixed), 0o755, "others may need it");
        assert_eq!((mode(&mixed.join("state")), mode(&mixed.join("photos"))), (0o700, 0o755));
        let file = new.join("file");
        fs::write(&file, "x").unwrap();
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn links_are_found_as_deep_as_folders_of_tenants() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        assert_eq!(find_link(&data).unwrap(), None);
        for below in ["", "wal", "bucket/adhoc"] {
            fs::create_dir_all(data.join(below)).unwrap();
            assert_eq!(find_link(&data).unwrap(), None);
            let link = data.join(below).join("link");
            symlink(folder.path(), &link).unwrap();
            assert_eq!(find_link(&data).unwrap(), Some(link.clone()));
            fs::remove_file(link).unwrap();
        }
    }
}
