//! Object storage as Athanor sees it.
//!
//! The bucket holds what lasts: blocks, snapshots of the catalogue, debug information. This crate hides which vendor
//! keeps it, and everything that can go wrong on the way there and back.
//!
//! ```text
//!   path::Key ──► Store::{create, get, get_range(s), head, list, delete}
//!                   │   bounded concurrency
//!                   │   attempts: deadline each, deadline in all, jittered back-off
//!                   ▼
//!                 S3 · GCS · Azure · a local folder · memory
//! ```
//!
//! * [`path`]: the one place that knows how a key is spelt.
//! * [`StorageConfig`]: which bucket, and how patient to be; [`Store::open_object_store`] builds from it.
//! * [`Store`]: the calls. Names are written once: [`Store::create`] refuses a name that exists, and there is no
//!   call that overwrites. A retry that meets the object of its own earlier attempt counts as success.
//! * [`UploadSpace`]: how much uploads may take beside blocks, and what they leave free on the disk of a local folder.
//! * [`Store::probe`]: whether the bucket exists and lets this process in.
//! * [`StoreError`]: says the call, the key, how often it was tried, and why it failed.
//!
//! What is not promised: that every server enforces conditional writes. Some accept the condition and ignore it;
//! nothing may be built on `create` as a lock. Names are drawn so that nobody else draws them.

mod config;
mod error;
pub mod path;
mod retry;
mod store;
mod upload_space;

pub use config::{AzureConfig, GcsConfig, S3Config, StorageConfig, StorageRetryConfig};
pub use error::{ProbeError, StoreError};
pub use store::{ObjectInfo, Store, StoreDeps};
pub use upload_space::{SpaceReservation, UploadKind, UploadLimits, UploadSpace};
