//! Division of the memory of a sampler among its parts.

use athanor_chassis::ByteSize;

use crate::layout::{MappingValue, StackCount, StackKey};

/// Parts that the memory is divided into. The shares together have all of them.
const PARTS: u64 = 32;
const ROW_PARTS: u64 = 6;
const NAME_PARTS: u64 = 6;
const WINDOW_FRAME_PARTS: u64 = 5;
const WINDOW_NAME_PARTS: u64 = 2;
const COUNT_PARTS: u64 = 2;
const PREFIX_PARTS: u64 = 4;
const FILE_PARTS: u64 = 4;
const PROCESS_PARTS: u64 = 3;

/// Bytes of one prefix of a mapping: in the kernel the node of an entry, and as many nodes between entries. In user
/// space its mapping.
const BYTES_PER_PREFIX: u64 = (2 * 96 + size_of::<MappingValue>()) as u64;
/// Bytes of a counted stack in one of the two maps: key and value, and what the kernel has beside them.
const BYTES_PER_COUNT: u64 = (size_of::<StackKey>() + size_of::<StackCount>() + 48) as u64;
const COUNT_MAPS: u64 = 2;
const MIN_PREFIXES: u64 = 2048;
const MAX_PREFIXES: u64 = 1 << 20;
const MIN_STACKS: u64 = 1024;
/// Servers take profiles of up to 16 000 stacks.
const MAX_STACKS: u64 = 15_000;

const _: () = assert!(
    ROW_PARTS
        + NAME_PARTS
        + WINDOW_FRAME_PARTS
        + WINDOW_NAME_PARTS
        + COUNT_PARTS
        + PREFIX_PARTS
        + FILE_PARTS
        + PROCESS_PARTS
        == PARTS
);

/// Bounds of the parts of a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryShares {
    /// Unwind rows in the kernel.
    pub(super) row_bytes: u64,
    /// Cached names and symbol tables.
    pub(super) name_bytes: usize,
    /// Frames that wait for the end of their window.
    pub(super) window_frame_bytes: usize,
    /// Names of one window.
    pub(super) window_name_bytes: usize,
    /// Counted stacks of one window.
    pub(super) max_stacks: u32,
    /// Prefixes of mappings.
    pub(super) max_prefixes: u32,
    /// Open files and what was read of them.
    pub(super) file_bytes: u64,
    /// Known processes with their mappings.
    pub(super) process_bytes: usize,
}

impl MemoryShares {
    pub(super) fn new(max_memory: ByteSize) -> Self {
        let share = |parts: u64| max_memory.get() / PARTS * parts;
        let length = |parts: u64| usize::try_from(share(parts)).unwrap_or(usize::MAX);
        let stacks = share(COUNT_PARTS) / COUNT_MAPS / BYTES_PER_COUNT;
        let prefixes = share(PREFIX_PARTS) / BYTES_PER_PREFIX;
        Self {
            row_bytes: share(ROW_PARTS),
            name_bytes: length(NAME_PARTS),
            window_frame_bytes: length(WINDOW_FRAME_PARTS),
            window_name_bytes: length(WINDOW_NAME_PARTS),
            max_stacks: stacks.clamp(MIN_STACKS, MAX_STACKS) as u32,
            max_prefixes: prefixes.clamp(MIN_PREFIXES, MAX_PREFIXES) as u32,
            file_bytes: share(FILE_PARTS),
            process_bytes: length(PROCESS_PARTS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_together_stay_within_the_memory() {
        for max_memory in [ByteSize::mib(16), ByteSize::mib(64), ByteSize::mib(4096)] {
            let shares = MemoryShares::new(max_memory);
            let counts = u64::from(shares.max_stacks) * BYTES_PER_COUNT * COUNT_MAPS;
            let prefixes = u64::from(shares.max_prefixes) * BYTES_PER_PREFIX;
            let tables = shares.name_bytes
                + shares.window_frame_bytes
                + shares.window_name_bytes
                + shares.process_bytes;
            let total = shares.row_bytes + shares.file_bytes + tables as u64 + counts + prefixes;
            assert!(total <= max_memory.get(), "{total} of {max_memory:?}");
        }
        let shares = MemoryShares::new(ByteSize::mib(64));
        assert_eq!(shares.max_stacks, 15_000);
        assert_eq!(shares.max_prefixes, 37_449);
    }
}
