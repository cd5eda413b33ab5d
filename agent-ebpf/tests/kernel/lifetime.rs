//! Loading, memory and what stays in the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use athanor_agent_ebpf::kernel::KernelConfig;
use athanor_agent_ebpf::layout::{
    CfaRule, MappingKey, MappingValue, PAGE_LOADED, PROCESS_LOADED, PageKey, PageValue, ProcessValue,
    ROWS_PER_CHUNK, RbpRule, UnwindRow,
};

use crate::support::{ChildProcess, expect_success, has_privileges, load, wait_for};

/// Verified instructions on kernel 6.18. They may grow by a fifth without a change of this number.
const VERIFIED_INSTRUCTIONS: u32 = 10_500;

/// Descriptors of BPF objects and perf events.
fn own_kernel_descriptors() -> usize {
    let folder = fs::read_dir("/proc/self/fd").unwrap();
    let links = folder.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("anon_inode:")).count()
}

/// Returns the ids of programs and maps that a process holds.
fn held_ids(pid: u32, prefix: &str) -> Vec<u32> {
    let folder = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let texts = folder.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let lines: Vec<String> =
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.iter().filter_map(|line| line.strip_prefix(prefix)?.trim().parse().ok()).collect()
}

#[test]
fn program_needs_a_bounded_number_of_verified_instructions() {
    if !has_privileges() {
        return;
    }
    let sampler = load(&KernelConfig::default());
    let verified = sampler.program().verified_instructions.unwrap();
    println!("{}: {verified} verified instructions", sampler.program().name);
    assert!(verified <= VERIFIED_INSTRUCTIONS * 6 / 5, "{verified}");
}

#[test]
fn sampler_that_is_loaded_and_dropped_leaves_nothing() {
    if has_privileges() {
        expect_success("lifetime::load_and_drop_a_hundred_times", &[]);
    }
}

#[test]
#[ignore = "counts descriptors; started by another test in a process of its own"]
fn load_and_drop_a_hundred_times() {
    let mut resident = 0;
    for round in 0..100 {
        let mut sampler = load(&KernelConfig::default());
        sampler.attach().unwrap();
        sampler.write_rows(0, 0, &[UnwindRow::new(0, CfaRule::End, 0, RbpRule::Same, 0)]).unwrap();
        assert!(own_kernel_descriptors() > 10);
        drop(sampler);
        assert_eq!(own_kernel_descriptors(), 0);
        if round == 20 {
            resident = resident_kib();
        }
    }
    let grown = resident_kib().saturating_sub(resident);
    assert!(grown < 4096, "{grown} KiB");
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn killed_process_leaves_no_program_and_no_map() {
    if !has_privileges() {
        return;
    }
    let executable = std::env::current_exe().unwrap();
    let test = "lifetime::hold_a_sampler";
    let mut holder = ChildProcess::start(executable.to_str().unwrap(), &["--ignored", "--exact", test]);
    let pid = holder.pid();
    let programs = wait_for("a loaded program", || {
        let ids = held_ids(pid, "prog_id:");
        // Eleven maps and the type information are loaded before the clocks start.
        (!ids.is_empty() && held_ids(pid, "map_id:").len() >= 10).then_some(ids)
    });
    let maps = held_ids(pid, "map_id:");
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    wait_for("the kernel to free the programs", || {
        let loaded = aya::programs::loaded_programs().filter_map(Result::ok);
        let ids: Vec<u32> = loaded.map(|program| program.id()).collect();
        (!programs.iter().any(|id| ids.contains(id))).then_some(())
    });
    wait_for("the kernel to free the maps", || {
        let ids: Vec<u32> = aya::maps::loaded_maps().filter_map(Result::ok).map(|map| map.id()).collect();
        (!maps.iter().any(|id| ids.contains(id))).then_some(())
    });
}

#[test]
#[ignore = "started by another test, which kills it"]
fn hold_a_sampler() {
    let mut sampler = load(&KernelConfig::default());
    sampler.attach().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn rows_outside_of_a_chunk_are_refused() {
    if !has_privileges() {
        return;
    }
    let mut sampler = load(&KernelConfig::default());
    let row = UnwindRow::new(0, CfaRule::Rsp, 8, RbpRule::Same, 0);
    sampler.write_rows(3, ROWS_PER_CHUNK - 1, &[row]).unwrap();
    let error = sampler.write_rows(3, ROWS_PER_CHUNK - 1, &[row, row]).unwrap_err();
    assert_eq!(error.to_string(), "rows 32767..32769 of chunk 3 are outside of 1024 chunks of 32768 rows");
    assert!(sampler.write_rows(1024, 0, &[row]).is_err());
    sampler.free_chunk(3).unwrap();
    sampler.free_chunk(3).unwrap();
}

#[test]
fn entries_that_are_missing_are_none() {
    if !has_privileges() {
        return;
    }
    let mut sampler = load(&KernelConfig { max_pages: 1, ..KernelConfig::default() });
    let key = PageKey { file: 1, page: 2 };
    let page =
        PageValue { state: PAGE_LOADED, chunk: 0, first_row: 0, row_count: 1, used_in: 0, reserved: 0 };
    assert_eq!(sampler.get_page(key).unwrap(), None);
    sampler.set_page(key, &page).unwrap();
    assert_eq!(sampler.get_page(key).unwrap(), Some(page));
    let error = sampler.set_page(PageKey { file: 1, page: 3 }, &page).unwrap_err();
    assert!(error.is_map_full(), "{error}");
    sampler.remove_page(key).unwrap();
    sampler.remove_page(key).unwrap();
    let process = ProcessValue { start_nanos: 1, requested_at: 0, exec_id: 2, state: PROCESS_LOADED };
    sampler.set_process(7, &process).unwrap();
    assert_eq!(sampler.get_process(7).unwrap(), Some(process));
    sampler.remove_process(7).unwrap();
    assert_eq!(sampler.read_processes(|_, _| ()).unwrap(), 0);
    assert_eq!(sampler.get_process(7).unwrap(), None);
    sampler.remove_process(7).unwrap();
}

#[test]
fn entries_are_read_in_batches() {
    if !has_privileges() {
        return;
    }
    let mut sampler = load(&KernelConfig::default());
    let page = PageValue { state: PAGE_LOADED, row_count: 3, ..PageValue::default() };
    let expected: BTreeSet<_> = (0..5000).map(|number| PageKey { file: number % 7, page: number }).collect();
    for key in &expected {
        sampler.set_page(*key, &page).unwrap();
        sampler.set_process(key.page + 1, &ProcessValue::default()).unwrap();
    }
    let mut keys = BTreeSet::new();
    let read = sampler
        .read_pages(|key, value| {
            assert_eq!(*value, page);
            assert!(keys.insert(*key));
        })
        .unwrap();
    assert_eq!(read, expected.len());
    assert_eq!(keys, expected);
    let mut pids = BTreeSet::new();
    sampler.read_processes(|pid, _| assert!(pids.insert(*pid))).unwrap();
    assert_eq!(pids, (1..=5000).collect());
}

#[test]
fn memory_of_maps_grows_with_what_is_in_them() {
    if !has_privileges() {
        return;
    }
    let mut sampler = load(&KernelConfig::default());
    let empty = sampler.map_bytes();
    assert!((512 << 10..6 << 20).contains(&empty), "{empty}");
    let row = UnwindRow::new(0, CfaRule::Rsp, 8, RbpRule::Same, 0);
    sampler.write_rows(0, 0, &[row]).unwrap();
    let chunk = sampler.map_bytes() - empty;
    assert!((262_144..300_000).contains(&chunk), "{chunk}");
    sampler.free_chunk(0).unwrap();
    assert_eq!(sampler.map_bytes(), empty);
    let value = MappingValue { start: 0, end: 4096, bias: 0, file: 1, reserved: 0 };
    let key = |pid: u32| MappingKey { prefix_bits: 84, pid_be: pid.to_be(), address_be: 0 };
    for pid in 0..1000 {
        sampler.insert_mapping(&key(pid), &value).unwrap();
    }
    let mappings = sampler.map_bytes() - empty;
    assert!((40_000..400_000).contains(&mappings), "{mappings}");
    for pid in 0..1001 {
        sampler.remove_mapping(&key(pid)).unwrap();
    }
    assert!(sampler.map_bytes() <= empty + 1024);
}
