//! BPF programs and maps of this process, read from /proc: the proof that nothing stays and that programs stay small.

use std::collections::{BTreeMap, BTreeSet};

use aya::maps::loaded_maps;
use aya::programs::loaded_programs;

/// Instructions that the verifier processed, per program and kernel, when they were recorded.
const RECORDED: &str = include_str!("verified_instructions.txt");
/// Growth that needs no new record.
const MAX_GROWTH: f64 = 1.2;

/// Descriptors of a process that are objects of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelObjects {
    /// Verified instructions of programs by tag.
    pub programs: BTreeMap<String, u64>,
    /// Ids of programs.
    pub program_ids: BTreeSet<u32>,
    /// Ids of maps.
    pub map_ids: BTreeSet<u32>,
    /// Number of maps.
    pub maps: usize,
    /// Bytes of maps.
    pub map_bytes: u64,
    /// Number of perf events.
    pub perf_events: usize,
    /// Number of all descriptors.
    pub descriptors: usize,
}

impl KernelObjects {
    /// Reads the objects of a process: a pid or `self`.
    pub fn of_process(pid: &str) -> Self {
        let mut objects = Self::default();
        let folder = std::path::Path::new("/proc").join(pid);
        for entry in std::fs::read_dir(folder.join("fd")).unwrap() {
            let Ok(entry) = entry else { continue };
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            objects.descriptors += 1;
            let info = folder.join("fdinfo").join(entry.file_name());
            let info = std::fs::read_to_string(info).unwrap_or_default();
            let number =
                |name: &str| field(&info, name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
            match target.to_string_lossy().as_ref() {
                "anon_inode:bpf-prog" => {
                    let tag = field(&info, "prog_tag:").unwrap_or_default();
                    objects.program_ids.insert(number("prog_id:") as u32);
                    objects.programs.insert(tag.to_owned(), number("verified_insns:"));
                }
                "anon_inode:bpf-map" => {
                    objects.maps += 1;
                    objects.map_ids.insert(number("map_id:") as u32);
                    objects.map_bytes += number("memlock:");
                }
                "anon_inode:[perf_event]" => objects.perf_events += 1,
                _ => {}
            }
        }
        objects
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Checks that no program needs much more verification on this kernel than recorded. A kernel without a record passes.
pub fn check_verified_instructions(objects: &KernelObjects) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let series = release.split('.').take(2).collect::<Vec<_>>().join(".");
    let seen = objects.programs.values().copied().max().unwrap_or(0);
    println!("guest: {seen} verified instructions on {series}");
    assert!(seen > 0, "the kernel tells the number: {objects:?}");
    let recorded = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let recorded = recorded.filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == series);
    let Some((_, recorded)) = recorded else { return };
    let limit = recorded.trim().parse::<f64>().unwrap() * MAX_GROWTH;
    assert!(
        seen as f64 <= limit,
        "{seen} verified instructions on {series}, the limit is {limit:.0}; make the program smaller, or record the number"
    );
}

/// Ids of everything that is loaded into this kernel.
#[derive(Clone, Debug, Default)]
pub struct ExistingIds {
    /// Programs.
    pub programs: BTreeSet<u32>,
    /// Maps.
    pub maps: BTreeSet<u32>,
}

/// Returns the ids of all programs and maps of this kernel. One that is freed meanwhile is left out.
pub fn existing_ids() -> ExistingIds {
    ExistingIds {
        programs: loaded_programs().filter_map(|info| Some(info.ok()?.id())).collect(),
        maps: loaded_maps().filter_map(|info| Some(info.ok()?.id())).collect(),
    }
}
