//! Tests of the parser of mappings.

use proptest::prelude::*;

use super::*;

fn parse_in_parts(bytes: &[u8], part_bytes: usize) -> MappingList {
    let mut parser = MapsParser::new(100_000);
    for part in bytes.chunks(part_bytes.max(1)) {
        parser.push(part);
    }
    parser.finish()
}

fn parse(text: &str) -> MappingList {
    parse_in_parts(text.as_bytes(), usize::MAX)
}

fn paths(list: &MappingList) -> Vec<String> {
    list.mappings.iter().map(|mapping| mapping.path.escape_ascii().to_string()).collect()
}

#[test]
fn executable_mappings_of_all_kinds_are_kept() {
    let text = "\
55d0c0a00000-55d0c0a02000 r--p 00000000 08:01 4711                       /usr/bin/a
55d0c0a02000-55d0c0a07000 r-xp 00002000 08:01 4711                       /usr/bin/a
55d0c0a07000-55d0c0a08000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 
7f0000001000-7f0000002000 r-xs 00000000 00:01 12                         /dev/zero (deleted)
7f0000004000-7f0000005000 r-xp 00001000 103:05 99                        /opt/a b\\012c (deleted)
7f0000006000-7f0000007000 r-xp 00000000 00:01 2050                       /memfd:code (deleted)
7f0000008000-7f0000009000 r-xp 00000000 00:0e 5                          anon_inode:[io_uring]
7f000000a000-7f000000b000 r-xs 00000000 00:01 7                          /SYSV00000000 (deleted)
7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
    let list = parse(text);
    assert_eq!(list.malformed_lines, 0);
    let mapping = |start: u64, end: u64, kind, path: &str| Mapping {
        start,
        end,
        offset: 0,
        kind,
        device: DeviceNumber::default(),
        inode: 0,
        build_id: None,
        path: path.as_bytes().into(),
        is_deleted: false,
    };
    let expected = [
        Mapping {
            offset: 0x2000,
            device: DeviceNumber { major: 8, minor: 1 },
            inode: 4711,
            ..mapping(0x55d0_c0a0_2000, 0x55d0_c0a0_7000, MappingKind::File, "/usr/bin/a")
        },
        mapping(0x7f00_0000_0000, 0x7f00_0000_2000, MappingKind::Anonymous, ""),
        Mapping {
            offset: 0x1000,
            device: DeviceNumber { major: 0x103, minor: 5 },
            inode: 99,
            is_deleted: true,
            ..mapping(0x7f00_0000_4000, 0x7f00_0000_5000, MappingKind::File, "/opt/a b\nc")
        },
        Mapping {
            device: DeviceNumber { major: 0, minor: 1 },
            inode: 2050,
            is_deleted: true,
            ..mapping(0x7f00_0000_6000, 0x7f00_0000_7000, MappingKind::File, "/memfd:code")
        },
        mapping(0x7f00_0000_8000, 0x7f00_0000_9000, MappingKind::Anonymous, ""),
        mapping(0x7f00_0000_a000, 0x7f00_0000_b000, MappingKind::Anonymous, ""),
        mapping(0x7fff_f7fc_1000, 0x7fff_f7fc_3000, MappingKind::Vdso, "[vdso]"),
    ];
    assert_eq!(list.mappings, expected);
    assert!(list.mappings[3].is_memory_file() && !list.mappings[2].is_memory_file());
}

#[test]
fn hostile_lines_are_counted_and_skipped() {
    for line in [
        "x",
        "",
        "1000-2000",
        "1000-2000 r-xp 0 08:01",
        "2000-1000 r-xp 0 08:01 1 /a",
        "1000-1000 r-xp 0 08:01 1 /a",
        "+1000-2000 r-xp 0 08:01 1 /a",
        "1000-2000 r-xp 0 0801 1 /a",
        "1000-2000 r-xp 0 fffffffff:01 1 /a",
        "1000-2000 r-xp 0 08:01 99999999999999999999999 /a",
        "10000000000000000000-2 r-xp 0 08:01 1 /a",
    ] {
        let list = parse(&format!("{line}\n3000-4000 r-xp 0 08:01 1 /ok\n"));
        assert_eq!((list.malformed_lines, paths(&list)), (1, vec!["/ok".to_owned()]), "{line}");
    }
    let overlap = "1000-3000 r-xp 0 08:01 1 /a\n2000-4000 r-xp 0 08:01 1 /b\n3000-4000 r-xp 0 08:01 1 /c\n";
    let list = parse(overlap);
    assert_eq!((list.malformed_lines, paths(&list)), (1, vec!["/a".to_owned(), "/c".to_owned()]));
}

#[test]
fn line_without_end_uses_bounded_memory() {
    let mut parser = MapsParser::new(10);
    parser.push(b"1000-2000 r-xp 0 08:01 1 /");
    for _ in 0..10_000 {
        parser.push(&[b'x'; 1000]);
        assert!(parser.line.len() <= MAX_LINE_BYTES);
    }
    parser.push(b"\n3000-4000 r-xp 0 08:01 1 /ok");
    let list = parser.finish();
    assert_eq!((list.malformed_lines, paths(&list)), (1, vec!["/ok".to_owned()]));
}

#[test]
fn longest_path_is_kept() {
    let path = format!("/{}", "\\012".repeat(4095));
    let list = parse_in_parts(format!("1000-2000 r-xp 0 08:01 1 {path}\n").as_bytes(), 4096);
    assert_eq!(list.mappings[0].path.len(), 4096);
}

#[test]
fn thirty_thousand_mappings_are_kept_and_more_are_counted() {
    let mut text = String::new();
    for number in 0..30_000_u64 {
        let start = number * 0x2000;
        text += &format!("{start:x}-{:x} r-xp 00000000 08:01 {number} /file\n", start + 0x1000);
    }
    let list = parse_in_parts(text.as_bytes(), 4096);
    assert_eq!(list.mappings.len(), 30_000);
    assert!(list.mappings.iter().all(|mapping| Arc::ptr_eq(&mapping.path, &list.mappings[0].path)));
    let mut parser = MapsParser::new(1000);
    parser.push(text.as_bytes());
    let list = parser.finish();
    assert_eq!((list.mappings.len(), list.dropped_mappings), (1000, 29_000));
}

#[test]
fn mappings_are_bounded_in_bytes() {
    let mut text = String::new();
    for number in 0..3000_u64 {
        let start = number * 0x2000;
        let path = format!("/{number}{}", "x".repeat(4000));
        text += &format!("{start:x}-{:x} r-xp 00000000 08:01 {number} {path}\n", start + 0x1000);
    }
    let list = parse_in_parts(text.as_bytes(), 4096);
    let bytes: usize = list.mappings.iter().map(|mapping| size_of::<Mapping>() + mapping.path.len()).sum();
    assert!(bytes <= MAX_MAPPING_BYTES && bytes > MAX_MAPPING_BYTES - 5000, "{bytes}");
    assert_eq!(list.mappings.len() as u64 + list.dropped_mappings, 3000);
}

#[test]
fn anonymous_memory_leaves_half_of_the_places_to_files() {
    let mut text = String::new();
    for number in 0..100_u64 {
        let start = number * 0x2000;
        text += &format!("{start:x}-{:x} rwxp 00000000 00:00 0\n", start + 0x1000);
    }
    text += "7f0000000000-7f0000001000 r-xp 00000000 08:01 7 /lib/a.so\n";
    let mut parser = MapsParser::new(20);
    parser.push(text.as_bytes());
    let list = parser.finish();
    assert_eq!((list.mappings.len(), list.dropped_mappings), (11, 90));
    assert_eq!(list.mappings.last().unwrap().path.as_ref(), b"/lib/a.so");
}

proptest! {
    /// Oracle: what was written is read, in parts of any size.
    #[test]
    fn written_mappings_are_read(
        ranges in prop::collection::vec((1_u64..50, 1_u64..50, "[ -~\\n]{0,30}", any::<bool>()), 0..40),
        part_bytes in 1_usize..300,
    ) {
        let mut text = Vec::new();
        let mut expected = Vec::new();
        let mut start = 0;
        for (gap, length, name, is_executable) in ranges {
            start += gap * 0x1000;
            let end = start + length * 0x1000;
            let path = format!("/p{name}x");
            let flag = if is_executable { 'x' } else { '-' };
            let escaped = path.replace('\n', "\\012");
            text.extend(format!("{start:08x}-{end:08x} r-{flag}p 00001000 08:0a 77     {escaped}\n").into_bytes());
            if is_executable {
                expected.push((start, end, path.replace("\\012", "\n")));
            }
            start = end;
        }
        let list = parse_in_parts(&text, part_bytes);
        let found: Vec<_> = list.mappings.iter().map(|mapping| {
            (mapping.start, mapping.end, String::from_utf8(mapping.path.to_vec()).unwrap())
        }).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(list.malformed_lines, 0);
    }

    #[test]
    fn any_bytes_give_ordered_mappings(
        lines in prop::collection::vec("[0-9a-f]{0,17}-[0-9a-f]{0,17} [rwxp-]{0,5} .{0,30}", 0..20),
        part_bytes in 1_usize..300,
    ) {
        let list = parse_in_parts(lines.join("\n").as_bytes(), part_bytes);
        prop_assert!(list.mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
        prop_assert!(list.mappings.iter().all(|mapping| mapping.start < mapping.end));
    }
}
