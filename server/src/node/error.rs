//! Why a node does not start.

use athanor_chassis::compute::ComputeError;
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{Code, Coded};
use athanor_consensus::{log, replicated};

use crate::config::BadSetting;
use crate::folder::FolderError;
use crate::http::ListenerError;
use crate::identity::IdentityError;
use crate::others::JoinError;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum StartError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("threads cannot be started")]
    Compute(#[from] ComputeError),
    #[error("the bucket cannot be opened")]
    Store(#[from] athanor_storage::StoreError),
    #[error("the log cannot be opened")]
    Log(#[from] log::OpenError),
    #[error("the catalogue cannot be opened")]
    Catalogue(#[from] replicated::OpenError),
    #[error(transparent)]
    Ingester(#[from] athanor_ingester::OpenError),
    #[error("the catalogue is not rebuilt: {0}")]
    Rebuild(athanor_chassis::Status),
    #[error("{0}")]
    Token(athanor_chassis::Status),
    #[error(transparent)]
    Founding(#[from] athanor_metastore::FoundingError),
    #[error(transparent)]
    Listener(#[from] ListenerError),
    #[error(transparent)]
    Setting(#[from] BadSetting),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Task(#[from] SpawnError),
}

impl Coded for StartError {
    fn code(&self) -> Code {
        match self {
            Self::Folder(error) => error.code(),
            Self::Identity(error) => error.code(),
            Self::Compute(_) => Code::Unavailable,
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
