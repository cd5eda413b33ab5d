//! Records of process events as whole records.

use std::process::Command;

use athanor_agent_ebpf::kernel::KernelConfig;

use crate::support::{has_privileges, load, wait_for};

const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_FORK: u32 = 7;
const RECORD_MMAP2: u32 = 10;
/// Processor mode bits of MMAP2 records: a build id instead of an inode.
const MISC_BUILD_ID: u16 = 1 << 14;

#[test]
fn started_program_is_reported_by_whole_records() {
    if !has_privileges() {
        return;
    }
    // A ring of one page: records continue at its start.
    let mut sampler = load(&KernelConfig { sideband_ring_bytes: 4096, ..KernelConfig::default() });
    sampler.attach().unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    let mut build_ids = 0;
    wait_for("records of all kinds", || {
        for _ in 0..20 {
            let mut child = Command::new("/bin/true").spawn().unwrap();
            let pid = child.id();
            child.wait().unwrap();
            sampler.drain_sideband(|record| {
                let kind = u32::from_ne_bytes(record[..4].try_into().unwrap());
                let misc = u16::from_ne_bytes(record[4..6].try_into().unwrap());
                let size = u16::from_ne_bytes(record[6..8].try_into().unwrap());
                assert_eq!(usize::from(size), record.len());
                assert!(kind <= 21, "kind {kind}");
                // Process and thread at the end are those of the event.
                if record.len() >= 24 && record[8..12] == pid.to_ne_bytes() {
                    kinds.insert(kind);
                    build_ids += u32::from(kind == RECORD_MMAP2 && misc & MISC_BUILD_ID != 0);
                }
            });
        }
        let expected = [RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_MMAP2];
        (expected.iter().all(|kind| kinds.contains(kind)) && build_ids > 0).then_some(())
    });
}

#[test]
fn half_full_ring_of_process_events_wakes_up() {
    if !has_privileges() {
        return;
    }
    let mut sampler =
        load(&KernelConfig { sideband_ring_bytes: 4096, frequency_hz: 1, ..KernelConfig::default() });
    sampler.attach().unwrap();
    wait_for("a wake-up by process events", || {
        Command::new("/bin/true").status().unwrap();
        let is_woken = sampler.wait_for_wakeup(std::time::Duration::ZERO);
        let has_requests = std::iter::from_fn(|| sampler.next_request()).count() > 0;
        (is_woken && !has_requests).then_some(())
    });
    assert!(sampler.drain_sideband(|_| ()) > 0);
}
