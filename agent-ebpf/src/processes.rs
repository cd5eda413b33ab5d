//! Processes of the host: identity, mappings and facts.
//!
//! ```text
//!   perf events ─► RecordQueue ─┐            ┌─► mappings, prefixes, open files ─► maps of the kernel
//!                (order of time)▼            │
//!                         ProcessHistory ────┤
//!   requests, stacks ─► ProcessTable ▲       └─► ProcessFacts ─► labels
//!                               │    │
//!                               ▼    │ ProcessSnapshot
//!                        ProcessFolder (/proc/PID)
//! ```
//!
//! * [`ProcessHistory`]: the state machine, without access to the machine. A process is identified by id and start, and
//!   has an image per exec.
//! * [`ProcessTable`]: the history together with `/proc`, the caller's entry.
//! * [`ProcessFolder`]: bounded reads of one process. Its descriptor never leads to another process with the same id.
//! * [`MappedFileOpener`]: opens mapped files so that nothing can block, lead out of the root of the process, or be
//!   confused with another file.
//! * [`cover_with_prefixes`], [`PrefixChanges`]: mappings as entries of the trie.

mod error;
mod facts;
mod folder;
mod history;
mod host;
mod image;
mod mapped_file;
mod maps;
mod mounts;
mod prefixes;
mod stat;
mod state;
mod table;
mod table_facts;
#[cfg(test)]
#[path = "processes/tests/test_processes.rs"]
mod test_processes;
mod vdso;

pub use error::{OpenError, ProcessError};
pub use facts::{ContainerFacts, ContainerRuntime, ProcessFacts, ProcessIdentity};
pub use folder::{MAPS_TIMEOUT, MAX_MAPPINGS, ProcFolder, ProcessFolder};
pub use history::{ProcessHistory, ProcessRequest, RemovedProcess};
pub use host::{HostFacts, parse_number_list};
pub use image::{ExecutableDetails, ProcessImage, ProcessSnapshot};
pub use mapped_file::{FileStamp, MappedFileOpener, MappedSource};
pub use maps::{DeviceNumber, Mapping, MappingKind, MappingList, MapsParser, USER_ADDRESS_END};
pub use mounts::{FileSystemKind, Mount, MountTable};
pub use prefixes::{AddressPrefix, PrefixChanges, PrefixCover, cover_with_prefixes};
pub use stat::{ClockTick, ProcessStat, ProcessStatus};
pub use state::ProcessState;
pub use table::{LoadedProcess, ProcessTable, ProcessTableConfig};
pub use vdso::VdsoImage;
