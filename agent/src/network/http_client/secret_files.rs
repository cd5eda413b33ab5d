//! Cache of files with secrets. A file is read again if its metadata changed.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use athanor_chassis::config::SecretString;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;

use super::HttpClientError;
use crate::scrape_target::Secret;

/// Maximum bytes of a file with a secret or with certificates.
const MAX_SECRET_FILE_BYTES: u64 = 4 << 20;

/// Contents of the files that the settings of one client name.
#[derive(Default)]
pub(super) struct SecretFiles {
    files: Mutex<HashMap<PathBuf, CachedFile>>,
}

struct CachedFile {
    version: FileVersion,
    content: Arc<Vec<u8>>,
}

/// Metadata that changes with the content: also if a link to the file is replaced, as Kubernetes does.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl SecretFiles {
    /// Returns a secret as text, without surrounding white space if it is in a file.
    pub(super) async fn read_text(&self, secret: &Secret) -> Result<SecretString, HttpClientError> {
        let path = match secret {
            Secret::Inline(text) => return Ok(text.clone()),
            Secret::File(path) => path,
        };
        let content = self.read_file(path).await?;
        match str::from_utf8(&content) {
            Ok(text) => Ok(SecretString::new(text.trim())),
            Err(_) => {
                Err(file_error(path, io::Error::new(io::ErrorKind::InvalidData, "content is not UTF-8")))
            }
        }
    }

    /// Returns a secret as bytes.
    pub(super) async fn read_bytes(&self, secret: &Secret) -> Result<Arc<Vec<u8>>, HttpClientError> {
        match secret {
            Secret::Inline(text) => Ok(Arc::new(text.expose().as_bytes().to_vec())),
            Secret::File(path) => self.read_file(path).await,
        }
    }

    async fn read_file(&self, path: &Path) -> Result<Arc<Vec<u8>>, HttpClientError> {
        let metadata = tokio::fs::metadata(path).await.map_err(|error| file_error(path, error))?;
        let version = FileVersion::from_metadata(&metadata);
        if let Some(file) = self.files.lock().get(path)
            && file.version == version
        {
            return Ok(Arc::clone(&file.content));
        }
        let content = Arc::new(read_bounded(path).await.map_err(|error| file_error(path, error))?);
        let file = CachedFile { version, content: Arc::clone(&content) };
        self.files.lock().insert(path.to_owned(), file);
        Ok(content)
    }
}

impl FileVersion {
    fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

async fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let file = tokio::fs::File::open(path).await?;
    let mut content = Vec::new();
    file.take(MAX_SECRET_FILE_BYTES + 1).read_to_end(&mut content).await?;
    if content.len() as u64 > MAX_SECRET_FILE_BYTES {
        let message = format!("file has over {MAX_SECRET_FILE_BYTES} bytes, which is the limit");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(content)
}

fn file_error(path: &Path, source: io::Error) -> HttpClientError {
    HttpClientError::SecretFile { path: path.to_owned(), source }
}
