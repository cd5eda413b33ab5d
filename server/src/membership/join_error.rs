//! Error that keeps a node from joining its cluster.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{ErrorCode, ErrorCodeExt};
use athanor_cluster::gossip::GossipError;
use athanor_cluster::secret::SecretError;

use crate::membership::tls_files::TlsFileError;

/// Error that keeps a node from joining its cluster.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum ClusterJoinError {
    #[error("cluster.secret_file: {}: {source}", path.display())]
    Secret { path: PathBuf, source: SecretError },
    #[error("cluster.secret_file: {} cannot be read: {source}", path.display())]
    SecretFile { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Certificates(#[from] TlsFileError),
    #[error(
        "cannot listen for other nodes on {at}: {source}; choose another address with cluster.internal_listen_address"
    )]
    Listen { at: SocketAddr, source: io::Error },
    #[error(transparent)]
    Gossip(#[from] GossipError),
    #[error(transparent)]
    Task(#[from] SpawnError),
}

impl ErrorCodeExt for ClusterJoinError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Secret { .. } => ErrorCode::Invalid,
            Self::SecretFile { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => ErrorCode::NotFound,
                io::ErrorKind::PermissionDenied => ErrorCode::PermissionDenied,
                _ => ErrorCode::Unavailable,
            },
            Self::Certificates(error) => error.code(),
            Self::Listen { .. } => ErrorCode::Unavailable,
            Self::Gossip(error) => error.code(),
            Self::Task(error) => error.code(),
        }
    }
}
