//! Object storage of Athanor.
//!
//! The bucket holds all durable data: blocks, catalog snapshots, debug information. This crate hides the
//! vendor of the bucket and handles failed calls.
//!
//! ```text
//!   path::ObjectKey ──► Store::{create, create_writer, get, get_range(s), head, list, delete}
//!                         │   bounded concurrency
//!                         │   attempts: timeout for each and for all, backoff with jitter
//!                         ▼
//!                       S3 · GCS · Azure · a local folder · memory
//! ```
//!
//! * [`path`]: the only module that formats and parses keys.
//! * [`StorageConfig`]: bucket, timeouts and retries. [`Store::open`] opens the configured bucket.
//! * [`Store`]: the calls. Objects are immutable: [`Store::create`] rejects a name that exists, and no call
//!   overwrites. If a retry finds the object of its own earlier attempt, the call succeeds.
//! * [`ObjectWriter`]: writes a large object in parts, in bounded memory.
//! * [`UploadSpace`]: quotas of uploads beside blocks, and the free space that uploads leave on the disk of a
//!   local folder.
//! * [`Store::probe`]: checks that the bucket exists and grants access.
//! * [`StoreError`]: names the call, the key, the number of attempts and the cause.
//!
//! The crate does not promise that every server enforces conditional writes. Some accept the condition and
//! ignore it, so `create` must not serve as a lock. Writers draw unique names.

mod config;
mod error;
mod object_writer;
pub mod path;
mod retry;
mod store;
#[cfg(feature = "test-util")]
pub mod test_bucket;
mod upload_space;

pub use config::{AzureConfig, GcsConfig, S3Config, StorageConfig, StorageRetryConfig};
pub use error::{ProbeError, StoreError};
pub use object_writer::{ObjectWriter, UPLOAD_PART_BYTES};
pub use store::{ObjectInfo, Store, StoreDeps};
pub use upload_space::{SpaceReservation, UploadKind, UploadLimits, UploadSpace};
