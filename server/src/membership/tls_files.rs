//! TLS certificate files for connections between nodes, reloaded while the server runs.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, ComputePool, ErrorCode, ErrorCodeExt, Net, Status};
use athanor_cluster::tls::{PemFiles, TlsContext, TlsError, TlsNet};
use tokio_util::sync::CancellationToken;

use crate::config::ClusterTlsFiles;

/// Interval between reloads of the files.
const TLS_RELOAD_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum size of each file in bytes.
const MAX_PEM_FILE_BYTES: u64 = 1 << 20;

/// Watcher of the TLS files with the loaded certificates.
pub struct TlsFileWatcher {
    files: ClusterTlsFiles,
    tls: TlsContext,
}

/// Errors of the TLS files of this node.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// A file cannot be read.
    #[error("cluster.tls.{setting}: {} cannot be read: {source}", path.display())]
    File {
        /// Name of the setting.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// I/O error of the read.
        source: io::Error,
    },
    /// The contents of the files are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ErrorCodeExt for TlsFileError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::File { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => ErrorCode::NotFound,
                io::ErrorKind::PermissionDenied => ErrorCode::PermissionDenied,
                _ => ErrorCode::Unavailable,
            },
            Self::Tls(error) => error.code(),
        }
    }
}

impl TlsFileWatcher {
    /// Reads the files and loads their certificates.
    pub fn read(files: ClusterTlsFiles) -> Result<Self, TlsFileError> {
        let tls = TlsContext::load(pems(&files)?)?;
        Ok(Self { files, tls })
    }

    /// Returns a network that wraps its streams in TLS with these certificates.
    pub fn wrap_network(&self, net: Arc<dyn Net>, clock: &Clock) -> Arc<dyn Net> {
        Arc::new(TlsNet::new(net, self.tls.clone(), clock.clone()))
    }

    /// Reloads the files periodically until the token is cancelled.
    pub async fn watch(self, compute: ComputePool, clock: Clock, token: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = clock.sleep(TLS_RELOAD_INTERVAL) => {}
            }
            let files = self.files.clone();
            let tls = self.tls.clone();
            let taken = compute.run(move || Ok::<_, TlsFileError>(tls.replace(pems(&files)?)?)).await;
            let taken = match taken {
                Ok(taken) => taken.map_err(|error| Status::from_error(&error).message),
                Err(error) => Err(error.to_string()),
            };
            match taken {
                Ok(true) => tracing::info!("reloaded TLS certificates, new connections use them"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(error, "TLS certificate reload failed, keeping the previous ones")
                }
            }
        }
    }
}

fn pems(files: &ClusterTlsFiles) -> Result<PemFiles, TlsFileError> {
    let ClusterTlsFiles { cert_file, key_file, ca_file } = files;
    let read = |setting: &'static str, path: &Path| {
        let read = bytes(path);
        read.map_err(|source| TlsFileError::File { setting, path: path.to_owned(), source })
    };
    let certificate = read("cert_file", cert_file)?;
    let key = read("key_file", key_file)?;
    Ok(PemFiles { certificate, key, authorities: read("ca_file", ca_file)? })
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_PEM_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= MAX_PEM_FILE_BYTES {
        true => Ok(bytes),
        false => Err(io::Error::other(format!(
            "file has more than {MAX_PEM_FILE_BYTES} bytes, the limit; name a smaller file"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_there_and_files_that_say_nothing_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let files =
            ClusterTlsFiles { cert_file: at("node"), key_file: at("key"), ca_file: at("authorities") };
        let refused = || TlsFileWatcher::read(files.clone()).map(drop).unwrap_err();
        let missing = refused();
        assert_eq!(missing.code(), ErrorCode::NotFound);
        assert!(missing.to_string().starts_with("cluster.tls.cert_file: "), "{missing}");
        for name in ["node", "key", "authorities"] {
            std::fs::write(at(name), "nothing\n").unwrap();
        }
        let empty = refused();
        assert_eq!(empty.code(), ErrorCode::Invalid);
        assert!(empty.to_string().contains("no certificate in the file"), "{empty}");
    }
}
