//! Records of perf events that report mappings, names, forks and exits of processes.
//!
//! The events are opened with `sample_id_all` and the sample type `TID | TIME`, so each record ends with process,
//! thread and time.

mod queue;
mod record;

pub use queue::RecordQueue;
pub use record::{
    BuildId, CgroupRecord, CommRecord, LostRecord, MappedInode, MmapRecord, RecordError, SidebandEvent,
    SidebandRecord, TaskRecord,
};

#[cfg(test)]
mod tests;
