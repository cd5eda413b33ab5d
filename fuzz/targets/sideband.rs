//! Arbitrary bytes as a ring of records of perf events: each is parsed or skipped, and all processes that follow stay
//! within their bound.
#![no_main]

use athanor_agent_ebpf::perf_events::{SidebandEvent, SidebandRecord};
use athanor_agent_ebpf::processes::{ClockTick, ProcessHistory, ProcessRequest};
use libfuzzer_sys::fuzz_target;

const MAX_PROCESSES: usize = 8;
const MAX_BYTES: usize = 64 << 10;

/// Looks for the process of a record, as a sample does.
fn request(history: &mut ProcessHistory, pid: u32, start_nanos: u64, exec_id: u32) {
    let request = ProcessRequest { pid, start_nanos, exec_id };
    history.find_or_add(&request);
    if let Some(mapping) = history.resolve(&request, start_nanos) {
        assert!(mapping.contains(start_nanos));
    }
}

fuzz_target!(|ring: &[u8]| {
    let mut history = ProcessHistory::new(MAX_PROCESSES, MAX_BYTES, ClockTick::per_second(100));
    let mut rest = ring;
    while let Ok(size) = SidebandRecord::record_bytes(rest) {
        match SidebandRecord::parse(rest) {
            Ok((record, parsed_size)) => {
                assert_eq!(parsed_size, size);
                history.apply_record(&record);
                assert!(history.memory() <= MAX_BYTES);
                match record.event {
                    SidebandEvent::Other(exec_id) => {
                        request(&mut history, record.pid, record.time_nanos, exec_id);
                    }
                    SidebandEvent::Lost(_) => drop(history.end_window()),
                    _ => {}
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert!(history.len() <= MAX_PROCESSES);
        rest = rest.get(size..).unwrap_or_default();
    }
    history.take_changed();
});
