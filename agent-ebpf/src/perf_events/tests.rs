//! Tests of the parser.

use proptest::prelude::*;

use super::record::*;

const MMAP2: u32 = 10;
const BUILD_ID_BIT: u16 = 1 << 14;
const EXEC_BIT: u16 = 1 << 13;

/// Record with the process 7, thread 8 and time 9 at its end.
fn encode(record_type: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len() + 16).unwrap();
    let mut bytes = record_type.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(body);
    bytes.extend([7_u32, 8].map(u32::to_ne_bytes).concat());
    bytes.extend(9_u64.to_ne_bytes());
    bytes
}

fn task_body() -> Vec<u8> {
    [[100_u32, 99, 101, 98].map(u32::to_ne_bytes).concat(), 12_345_u64.to_ne_bytes().to_vec()].concat()
}

/// Fields of a mapping up to the path.
fn mmap_body(identity: &[u8; 24], protection: u32) -> Vec<u8> {
    let mut body = [100_u32, 101].map(u32::to_ne_bytes).concat();
    body.extend([0x7f00_0000_1000_u64, 0x2000, 0x3000].map(u64::to_ne_bytes).concat());
    body.extend(identity);
    body.extend([protection, 2].map(u32::to_ne_bytes).concat());
    body
}

fn inode_identity() -> [u8; 24] {
    let mut identity = [0; 24];
    identity[..4].copy_from_slice(&8_u32.to_ne_bytes());
    identity[4..8].copy_from_slice(&3_u32.to_ne_bytes());
    identity[8..16].copy_from_slice(&4711_u64.to_ne_bytes());
    identity
}

fn build_id_identity(length: u8) -> [u8; 24] {
    let mut identity = [0xee; 24];
    identity[0] = length;
    identity
}

fn parse(bytes: &[u8]) -> SidebandEvent<'_> {
    let (record, size) = SidebandRecord::parse(bytes).unwrap();
    assert_eq!((record.pid, record.tid, record.time_nanos), (7, 8, 9));
    assert_eq!(size, bytes.len());
    record.event
}

#[test]
fn mmap_has_inode_or_build_id() {
    let path = b"/lib/a b\xff.so\0\0\0";
    let bytes = encode(MMAP2, 2, &[mmap_body(&inode_identity(), 5), path.to_vec()].concat());
    let expected = MmapRecord {
        pid: 100,
        tid: 101,
        start: 0x7f00_0000_1000,
        bytes: 0x2000,
        offset: 0x3000,
        inode: MappedInode::Inode { major: 8, minor: 3, inode: 4711 },
        is_executable: true,
        path: b"/lib/a b\xff.so",
    };
    assert_eq!(parse(&bytes), SidebandEvent::Mmap(expected.clone()));
    for length in [1, 8, 16, 20] {
        let body = [mmap_body(&build_id_identity(length), 1), path.to_vec()].concat();
        let bytes = encode(MMAP2, 2 | BUILD_ID_BIT, &body);
        let id = BuildId::from_bytes(&[0xee; 20][..usize::from(length)]).unwrap();
        assert_eq!(id.to_hex(), "ee".repeat(usize::from(length)));
        let inode = MappedInode::BuildId(id);
        let expected = MmapRecord { inode, is_executable: false, ..expected.clone() };
        assert_eq!(parse(&bytes), SidebandEvent::Mmap(expected));
    }
    for length in [0, 21, 255] {
        let body = [mmap_body(&build_id_identity(length), 1), path.to_vec()].concat();
        let error = SidebandRecord::parse(&encode(MMAP2, BUILD_ID_BIT, &body)).unwrap_err();
        assert_eq!(error, RecordError::BuildId { length });
    }
}

#[test]
fn path_without_end_is_bounded() {
    let long = vec![b'x'; 60_000];
    let bytes = encode(MMAP2, 0, &[mmap_body(&inode_identity(), 4), long].concat());
    let SidebandEvent::Mmap(mmap) = parse(&bytes) else { panic!("a mapping") };
    assert_eq!(mmap.path, [b'x'; 4096]);
    let bytes = encode(MMAP2, 0, &mmap_body(&inode_identity(), 4));
    let SidebandEvent::Mmap(mmap) = parse(&bytes) else { panic!("a mapping") };
    assert_eq!(mmap.path, b"");
}

#[test]
fn names_forks_and_exits_are_parsed() {
    let ids = [100_u32, 101].map(u32::to_ne_bytes).concat();
    for (misc, is_exec) in [(0, false), (EXEC_BIT, true)] {
        let bytes = encode(3, misc, &[&ids[..], b"a)\n\xff\0\0\0\0"].concat());
        let expected = CommRecord { pid: 100, tid: 101, is_exec, comm: b"a)\n\xff" };
        assert_eq!(parse(&bytes), SidebandEvent::Comm(expected));
    }
    let bytes = encode(3, 0, &[&ids[..], &[b'x'; 64]].concat());
    assert_eq!(
        parse(&bytes),
        SidebandEvent::Comm(CommRecord { pid: 100, tid: 101, is_exec: false, comm: &[b'x'; 16] })
    );
    let task = TaskRecord { pid: 100, parent_pid: 99, tid: 101, parent_tid: 98, time_nanos: 12_345 };
    assert_eq!(parse(&encode(7, 0, &task_body())), SidebandEvent::Fork(task));
    assert_eq!(parse(&encode(4, 0, &task_body())), SidebandEvent::Exit(task));
}

#[test]
fn losses_cgroups_and_other_records_are_parsed() {
    let numbers = [5_u64, 17].map(u64::to_ne_bytes).concat();
    assert_eq!(parse(&encode(2, 0, &numbers)), SidebandEvent::Lost(LostRecord { count: 17 }));
    assert_eq!(parse(&encode(13, 0, &numbers)), SidebandEvent::Lost(LostRecord { count: 5 }));
    let cgroup = [&numbers[..8], b"/a.slice/b\0\0"].concat();
    let expected = CgroupRecord { id: 5, path: b"/a.slice/b" };
    assert_eq!(parse(&encode(19, 0, &cgroup)), SidebandEvent::Cgroup(expected));
    assert_eq!(parse(&encode(9, 0, &[])), SidebandEvent::Other(9));
}

#[test]
fn record_cut_at_any_length_is_refused() {
    let record = encode(MMAP2, 0, &[mmap_body(&inode_identity(), 4), b"/a\0\0\0\0\0\0".to_vec()].concat());
    for end in 0..record.len() {
        let error = SidebandRecord::parse(&record[..end]).unwrap_err();
        assert!(matches!(error, RecordError::Size { .. }), "{end}: {error}");
    }
    // The size fits the ring, but not the fields.
    for (record_type, needed) in [(MMAP2, 72), (3, 16), (4, 32), (7, 32), (2, 24), (13, 16), (19, 16), (9, 8)]
    {
        for size in 8..needed + 16 {
            let mut bytes = record.clone();
            bytes[..4].copy_from_slice(&u32::to_ne_bytes(record_type));
            bytes[6..8].copy_from_slice(&u16::try_from(size).unwrap().to_ne_bytes());
            let result = SidebandRecord::parse(&bytes);
            assert_eq!(result, Err(RecordError::TooShort { record_type, size }), "{record_type}");
        }
    }
    for size in 0..8_u16 {
        let mut bytes = record.clone();
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        assert!(matches!(SidebandRecord::record_bytes(&bytes), Err(RecordError::Size { .. })));
    }
}

proptest! {
    /// Any ring: parsing ends, and each record advances by its size.
    #[test]
    fn any_bytes_are_parsed_or_skipped(ring in prop::collection::vec(any::<u8>(), 0..4000)) {
        let mut rest = &ring[..];
        while let Ok(size) = SidebandRecord::record_bytes(rest) {
            if let Ok((_, parsed_size)) = SidebandRecord::parse(rest) {
                prop_assert_eq!(parsed_size, size);
            }
            prop_assert!(size >= 8);
            rest = &rest[size..];
        }
    }
}
