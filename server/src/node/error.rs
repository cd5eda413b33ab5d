//! Errors that keep a node from starting.

use athanor_chassis::compute::ComputeError;
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{ErrorCode, ErrorCodeExt};
use athanor_consensus::{log, replicated};
use athanor_http_server::ListenerError;

use crate::config::SettingError;
use crate::membership::join_error::ClusterJoinError;
use crate::node::data_dir::DataDirError;
use crate::node::node_identity::NodeIdentityError;

/// Error that keeps a node from starting.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum StartError {
    #[error(transparent)]
    Folder(#[from] DataDirError),
    #[error(transparent)]
    Identity(#[from] NodeIdentityError),
    #[error("failed to start threads")]
    Compute(#[from] ComputeError),
    #[error("failed to open the bucket")]
    Store(#[from] athanor_storage::StoreError),
    #[error("failed to open the log")]
    Log(#[from] log::LogOpenError),
    #[error("failed to open the catalog")]
    Catalogue(#[from] replicated::GroupOpenError),
    #[error(transparent)]
    Ingester(#[from] athanor_ingester::IngesterOpenError),
    #[error("failed to recover the catalog: {0}")]
    Rebuild(athanor_chassis::Status),
    #[error("{0}")]
    Token(athanor_chassis::Status),
    #[error(transparent)]
    Founding(#[from] athanor_metastore::BootstrapError),
    #[error(transparent)]
    Listener(#[from] ListenerError),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Join(#[from] ClusterJoinError),
    #[error(transparent)]
    Task(#[from] SpawnError),
}

impl ErrorCodeExt for StartError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Folder(error) => error.code(),
            Self::Identity(error) => error.code(),
            Self::Compute(_) => ErrorCode::Unavailable,
            Self::Store(error) => error.code(),
            Self::Log(error) => error.code(),
            Self::Catalogue(error) => error.code(),
            Self::Ingester(error) => error.code(),
            Self::Rebuild(status) | Self::Token(status) => status.code,
            Self::Founding(error) => error.code(),
            Self::Listener(error) => error.code(),
            Self::Setting(error) => error.code(),
            Self::Join(error) => error.code(),
            Self::Task(error) => error.code(),
        }
    }
}
