//! Arbitrary bytes as the mappings of a process: the same in parts of any size, in order, without overlap, and covered
//! exactly by prefixes. The same bytes as mounts and as the state of a process.
//!
//! The first byte is the size of a part.
#![no_main]

use athanor_agent_ebpf::processes::{
    MapsParser, MappingList, MountTable, ProcessStat, ProcessStatus, cover_with_prefixes,
};
use libfuzzer_sys::fuzz_target;

const MAX_MAPPINGS: usize = 100;

fn parse_in_parts(bytes: &[u8], part_bytes: usize) -> MappingList {
    let mut parser = MapsParser::new(MAX_MAPPINGS);
    for part in bytes.chunks(part_bytes) {
        parser.push(part);
    }
    parser.finish()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&part_bytes, text)) = bytes.split_first() else { return };
    let list = parse_in_parts(text, usize::from(part_bytes) + 1);
    assert_eq!(list, parse_in_parts(text, usize::MAX));
    assert!(list.mappings.len() <= MAX_MAPPINGS);
    let mut last_end = 0;
    for mapping in &list.mappings {
        assert!(last_end <= mapping.start && mapping.start < mapping.end);
        last_end = mapping.end;
        let mut next = mapping.start;
        for prefix in cover_with_prefixes(mapping.start, mapping.end) {
            assert_eq!(prefix.address, next);
            next += 1 << (64 - prefix.bits);
        }
        assert_eq!(next, mapping.end);
    }
    let mounts = MountTable::parse(text);
    mounts.crosses_remote(text);
    ProcessStat::parse(text);
    ProcessStatus::parse(text);
});
