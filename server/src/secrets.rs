//! Warnings about files with secrets that other users of the machine can read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::config::ServerConfig;

/// Names of settings that hold secrets.
pub const SECRET_SETTINGS: [&str; 3] =
    ["storage.s3.secret_key", "storage.gcs.service_account_key", "storage.azure.access_key"];

const READABLE_BY_ALL: u32 = 0o004;

/// Warns of each configured file with a secret that all users can read.
pub fn warn_of_readable_files(config: &ServerConfig) {
    let files = [
        ("admin_token_file", &config.admin_token_file),
        ("cluster.secret_file", &config.cluster.secret_file),
        ("cluster.tls.key_file", &config.cluster.tls.key_file),
    ];
    for (setting, file) in files {
        file.iter().for_each(|file| warn_if_readable(setting, file));
    }
}

/// Warns if all users can read a file that holds the secret of a setting.
pub fn warn_if_readable(setting: &str, file: &Path) {
    if is_readable_by_all(file) {
        tracing::warn!(setting, file = %file.display(), "secret file is readable by all users of this machine; run chmod 600");
    }
}

fn is_readable_by_all(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.permissions().mode() & READABLE_BY_ALL != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn file_is_readable_by_all_by_its_last_digit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, expected) in [(0o600, false), (0o640, false), (0o644, true), (0o604, true)] {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_readable_by_all(file.path()), expected, "{mode:o}");
        }
        assert!(!is_readable_by_all(Path::new("/nowhere")));
    }
}
