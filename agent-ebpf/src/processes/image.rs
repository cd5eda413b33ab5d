//! State of a process between two execs.

use std::sync::Arc;

use super::facts::ProcessFacts;
use super::maps::{Mapping, MappingKind};
use crate::perf_events::BuildId;

/// Program of a process: what changes with an exec.
#[derive(Clone, Debug, Default)]
pub struct ProcessImage {
    /// Name. Empty if unknown.
    pub comm: Arc<str>,
    /// Path of the executable as the process sees it. Empty if unknown.
    pub executable: Arc<str>,
    /// Build id of the executable, if the kernel reported it.
    pub build_id: Option<BuildId>,
    /// Arguments. None if they were not read.
    pub command_line: Option<Arc<str>>,
    /// Allowed environment variables.
    pub environment: Arc<[(Arc<str>, Arc<str>)]>,
    /// Executable mappings by address.
    pub mappings: Arc<Vec<Mapping>>,
    /// Properties that were read from the executable.
    pub details: Option<ExecutableDetails>,
    /// The next mapped file is the executable.
    pub(super) awaits_executable: bool,
    /// Facts as they were returned last.
    pub(super) facts: Option<Arc<ProcessFacts>>,
}

/// Properties of an executable that come from its content.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ExecutableDetails {
    /// Build id in hex. Empty if unknown.
    pub build_id: Arc<str>,
    /// Compiler. Empty if unknown.
    pub compiler: Arc<str>,
    /// The executable is statically linked.
    pub is_static: Option<bool>,
    /// The executable has no symbol table.
    pub is_stripped: Option<bool>,
}

/// State of a process as `/proc` has it.
#[derive(Clone, Debug, Default)]
pub struct ProcessSnapshot {
    /// Start in clock ticks since boot.
    pub start_ticks: u64,
    /// Parent process.
    pub parent_pid: u32,
    /// Thread of the kernel.
    pub is_kernel_thread: bool,
    /// Name.
    pub comm: Arc<str>,
    /// Path of the executable as the process sees it.
    pub executable: Arc<str>,
    /// Arguments.
    pub command_line: Arc<str>,
    /// Allowed environment variables.
    pub environment: Arc<[(Arc<str>, Arc<str>)]>,
    /// Real user id.
    pub user_id: Option<u32>,
    /// Most specific path of a cgroup. None if it could not be read.
    pub cgroup: Option<Arc<str>>,
    /// Path of the cgroup in the v2 hierarchy.
    pub unified_cgroup: Option<Arc<str>>,
    /// Executable mappings. None if they were not read.
    pub mappings: Option<Vec<Mapping>>,
}

// === impl ProcessSnapshot ===

impl ProcessSnapshot {
    /// Returns the bytes that it adds to a process.
    pub(super) fn bytes(&self) -> usize {
        let environment: usize = self.environment.iter().map(|(name, value)| name.len() + value.len()).sum();
        let mappings = self.mappings.as_ref().map_or(0, |mappings| mapping_bytes(mappings));
        let texts = self.comm.len() + self.executable.len() + self.command_line.len();
        environment + texts + mappings + self.cgroup.as_ref().map_or(0, |path| path.len())
    }
}

// === impl ProcessImage ===

impl ProcessImage {
    /// Creates the image that an exec starts: its executable follows with the first mapped file.
    pub fn from_exec(comm: Arc<str>) -> Self {
        Self { comm, awaits_executable: true, ..Self::default() }
    }

    /// Returns the mapping that contains an address.
    pub fn mapping_at(&self, address: u64) -> Option<&Mapping> {
        let index = self.mappings.partition_point(|mapping| mapping.end <= address);
        self.mappings.get(index).filter(|mapping| mapping.contains(address))
    }

    /// Returns the bytes that only this image has: all but the mappings, which processes share after a fork.
    pub(super) fn own_bytes(&self) -> usize {
        let environment: usize = self.environment.iter().map(|(name, value)| name.len() + value.len()).sum();
        let texts = self.comm.len() + self.executable.len() + environment;
        let command_line = self.command_line.as_ref().map_or(0, |text| text.len());
        let facts = if self.facts.is_some() { size_of::<ProcessFacts>() } else { 0 };
        size_of::<Self>() + texts + command_line + facts
    }

    /// Adds a new mapping and removes what it covers of older ones.
    pub(super) fn map(&mut self, mapping: Mapping, is_executable: bool, max_mappings: usize) {
        if is_executable && self.awaits_executable && mapping.kind == MappingKind::File {
            self.executable = String::from_utf8_lossy(&mapping.path).into();
            self.build_id = mapping.build_id;
            self.awaits_executable = false;
            self.facts = None;
        }
        let mappings = Arc::make_mut(&mut self.mappings);
        let first = mappings.partition_point(|old| old.end <= mapping.start);
        let end = mappings.partition_point(|old| old.start < mapping.end).max(first);
        let below = mappings.get(first..end).and_then(|covered| covered.first());
        let below = below.and_then(|old| clip_mapping(old, old.start, mapping.start));
        let above = mappings.get(first..end).and_then(|covered| covered.last());
        let above = above.and_then(|old| clip_mapping(old, mapping.end, old.end));
        let has_capacity = is_executable && mappings.len() < max_mappings;
        let new = has_capacity.then_some(mapping);
        mappings.splice(first..end, below.into_iter().chain(new).chain(above));
    }

    /// Replaces the mappings by those of `/proc`. Build ids that the kernel reported are kept.
    pub(super) fn replace_mappings(&mut self, mut mappings: Vec<Mapping>) {
        for mapping in &mut mappings {
            let old = self.mapping_at(mapping.start);
            let is_same = |old: &&Mapping| {
                old.path == mapping.path && old.start == mapping.start && old.offset == mapping.offset
            };
            mapping.build_id = old.filter(is_same).and_then(|old| old.build_id);
        }
        self.mappings = Arc::new(mappings);
    }
}

/// Returns the bytes of mappings. Neighbors of one path share it.
pub(super) fn mapping_bytes(mappings: &[Mapping]) -> usize {
    let mut bytes = size_of_val(mappings);
    let mut last: Option<&Arc<[u8]>> = None;
    for mapping in mappings {
        if last.is_none_or(|last| !Arc::ptr_eq(last, &mapping.path)) {
            bytes += mapping.path.len();
        }
        last = Some(&mapping.path);
    }
    bytes
}

/// Returns the part of a mapping between two addresses.
fn clip_mapping(mapping: &Mapping, start: u64, end: u64) -> Option<Mapping> {
    if start >= end {
        return None;
    }
    let skipped = start.saturating_sub(mapping.start);
    let offset = match mapping.kind {
        MappingKind::File => mapping.offset.saturating_add(skipped),
        MappingKind::Anonymous | MappingKind::Vdso => mapping.offset,
    };
    Some(Mapping { start, end, offset, ..mapping.clone() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn new_mapping(start: u64, end: u64, number: u64) -> Mapping {
        Mapping::new(start..end, start * 100 + number * 1_000_000, format!("/{number}").as_bytes())
    }

    proptest! {
        /// Oracle: the last mapping of each single address.
        #[test]
        fn mapped_ranges_agree_with_table_of_addresses(
            ranges in prop::collection::vec((0_u64..60, 1_u64..20, prop::bool::weighted(0.8)), 0..30),
        ) {
            let mut image = ProcessImage::default();
            let mut by_address = vec![None; 100];
            for (number, (start, length, is_executable)) in (0_u64..).zip(ranges) {
                let mapping = new_mapping(start, start + length, number);
                for address in start..start + length {
                    let offset = mapping.offset + (address - start);
                    by_address[address as usize] = is_executable.then(|| (mapping.path.clone(), offset));
                }
                image.map(mapping, is_executable, 1000);
            }
            for (address, expected) in (0_u64..).zip(by_address) {
                let found = image.mapping_at(address);
                let found = found.map(|mapping| (mapping.path.clone(), mapping.offset + (address - mapping.start)));
                prop_assert_eq!(found, expected);
            }
            prop_assert!(image.mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }

    #[test]
    fn first_mapped_file_after_exec_is_executable() {
        let mut image = ProcessImage::from_exec("a".into());
        image.map(Mapping::new(1..2, 0, b"//anon"), true, 10);
        image.map(Mapping::new(2..3, 0, b"/not/executable"), false, 10);
        image.map(Mapping::new(3..4, 0, b"/bin/a"), true, 10);
        image.map(Mapping::new(4..5, 0, b"/lib/ld.so"), true, 10);
        assert_eq!(&*image.executable, "/bin/a");
        assert_eq!(image.mappings.len(), 3);
    }

    #[test]
    fn mappings_above_bound_are_dropped() {
        let mut image = ProcessImage::default();
        for start in 0..10 {
            image.map(new_mapping(start, start + 1, 0), true, 4);
        }
        assert_eq!(image.mappings.len(), 4);
    }
}
