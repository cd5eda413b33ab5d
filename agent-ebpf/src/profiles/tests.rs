//! Tests of profiles against the decoder and `go tool pprof`.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Timestamp;
use athanor_profile::Profile;
use athanor_profile::formats::pprof::{self, DecodeLimits};
use proptest::prelude::*;

use super::*;
use crate::frame::{FileId, FrameCode, PackedFrame};
use crate::layout::{FRAME_FILE_BIT, FRAME_FILE_SHIFT, FRAME_KERNEL_BIT, FRAME_POINTER_BIT, StackEnd};
use crate::processes::{ProcessFacts, ProcessIdentity};
use crate::window::{FrameName, SampledFile, SampledProcess};

const KERNEL_ADDRESS: u64 = 0xffff_ffff_8100_1000;
const MODULE_ADDRESS: u64 = 0xffff_ffff_c000_2000;
const PERIOD_NANOS: u64 = 52_631_578;

fn file_frame(file: u32, address: u64) -> PackedFrame {
    PackedFrame(FRAME_FILE_BIT | u64::from(file) << FRAME_FILE_SHIFT | address)
}

fn named(function: &str, module: &str) -> FrameName {
    FrameName { function: function.into(), system_name: None, module: module.into() }
}

fn process(comm: &str) -> SampledProcess {
    let identity = ProcessIdentity { pid: 42, host_pid: 1042, start_nanos: 1, exec_id: 0 };
    let facts = ProcessFacts {
        identity,
        oldest_ancestor_pid: 0,
        parent_pid: 1,
        is_kernel_thread: false,
        comm: comm.into(),
        command_line: "".into(),
        executable: "/usr/bin/shop".into(),
        build_id: "".into(),
        compiler: "".into(),
        is_static: None,
        is_stripped: None,
        cgroup: "".into(),
        container: None,
        systemd_unit: "".into(),
        systemd_slice: "".into(),
        user_id: None,
        environment: Vec::new(),
    };
    SampledProcess { facts: Arc::new(facts) }
}

fn stack(frames: &[PackedFrame], end: StackEnd, samples: u64) -> CountedStack {
    CountedStack {
        process: 0,
        comm: "shop".into(),
        end,
        frames: frames.into(),
        kernel_frames: 0,
        samples,
        nanos: samples * PERIOD_NANOS,
    }
}

fn window(stacks: Vec<CountedStack>) -> SampleWindow {
    let files = vec![
        SampledFile { id: FileId(1), path: "/usr/lib/libc.so.6".into(), build_id: "aabbccdd00".into() },
        SampledFile { id: FileId(2), path: "/srv/shop".into(), build_id: "1122334455".into() },
    ];
    let mut names = HashMap::new();
    names.insert(FrameCode::Kernel(KERNEL_ADDRESS), named("vfs_read", "[kernel]"));
    names.insert(FrameCode::Kernel(MODULE_ADDRESS), named("ext4_read", "ext4"));
    let mut main = named("shop::main", "");
    main.system_name = Some("_ZN4shop4mainE".into());
    names.insert(FrameCode::File { file: FileId(2), address: 0x2000 }, main);
    SampleWindow {
        started_at: Timestamp::from_seconds(1_800_000_000),
        duration: Duration::from_secs(10),
        period_nanos: PERIOD_NANOS,
        processes: vec![process("shop")],
        files,
        stacks,
        names,
    }
}

fn full_window() -> SampleWindow {
    let read = file_frame(1, 0x1234);
    let main = file_frame(2, 0x2000);
    let kernel = PackedFrame(KERNEL_ADDRESS);
    let module = PackedFrame(MODULE_ADDRESS);
    window(vec![
        stack(&[module, kernel, read, main], StackEnd::Complete, 3),
        stack(&[read, main], StackEnd::Complete, 2),
        stack(&[read, PackedFrame(read.0 | FRAME_POINTER_BIT)], StackEnd::RowsNotLoaded, 5),
        stack(&[PackedFrame(0x7f00_0000_1000), main], StackEnd::Complete, 7),
        stack(&[PackedFrame(0x7f00_0000_2000), main], StackEnd::Complete, 11),
        stack(&[main, main], StackEnd::Truncated, 1),
        stack(&[], StackEnd::NoRegisters, 4),
    ])
}

fn decode(bytes: &[u8]) -> Profile {
    pprof::decode(bytes, &DecodeLimits::default()).unwrap().0
}

#[test]
fn folded_stacks_show_every_frame() {
    let window = full_window();
    let text = write_folded(&window, window.stacks.iter());
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "[incomplete: no_registers] 4",
            "[incomplete: rows_not_loaded];libc.so.6+0x1234;libc.so.6+0x1234 5",
            "[truncated];shop::main;shop::main 1",
            "shop::main;[anonymous] 18",
            "shop::main;libc.so.6+0x1234 2",
            "shop::main;libc.so.6+0x1234;vfs_read;ext4_read 3",
        ]
    );
}

#[test]
fn pprof_has_totals_header_and_mappings() {
    let window = full_window();
    let profile = decode(&encode_pprof(&window, window.stacks.iter(), UnnamedFrames::AddressOnly));
    assert_eq!(profile.total(0), 33);
    assert_eq!(profile.total(1), 33 * PERIOD_NANOS as i64);
    assert_eq!(profile.samples.len(), 6, "both anonymous addresses are one stack");
    let header = &profile.header;
    assert_eq!(header.time_nanos, 1_800_000_000_000_000_000);
    assert_eq!(header.duration_nanos, 10_000_000_000);
    assert_eq!(header.period, PERIOD_NANOS as i64);
    assert_eq!(header.period_type.as_ref().unwrap().kind, "cpu");
    let types: Vec<&str> = header.types.iter().map(|value_type| value_type.kind.as_str()).collect();
    assert_eq!(types, ["samples", "cpu"]);
    let symbols = &profile.dictionary.symbols;
    let text = |id: u32| symbols.strings.get(id);
    let mappings = symbols.mappings().iter();
    let mut mappings: Vec<(&str, &str, u8)> =
        mappings.map(|mapping| (text(mapping.filename), text(mapping.build_id), mapping.flags)).collect();
    mappings.sort_unstable();
    assert_eq!(
        mappings,
        [
            ("/srv/shop", "1122334455", 17),
            ("/usr/lib/libc.so.6", "aabbccdd00", 16),
            ("[kernel.kallsyms]", "", 1),
            ("ext4", "", 1),
        ]
    );
}

#[test]
fn location_without_name_has_address_of_file_and_no_function() {
    let window = full_window();
    let profile = decode(&encode_pprof(&window, window.stacks.iter(), UnnamedFrames::AddressOnly));
    let symbols = &profile.dictionary.symbols;
    let unnamed: Vec<u64> = (0u32..)
        .zip(symbols.locations())
        .filter(|(id, _)| symbols.lines(*id).is_empty())
        .map(|(_, location)| symbols.sent_address(location))
        .collect();
    assert_eq!(unnamed, [0x1234]);
    let mut functions = symbols.functions().iter();
    let main = functions.find(|function| symbols.strings.get(function.name) == "shop::main");
    assert_eq!(symbols.strings.get(main.unwrap().system_name), "_ZN4shop4mainE");
}

#[test]
fn order_of_stacks_does_not_change_bytes() {
    let window = full_window();
    let forward = encode_pprof(&window, window.stacks.iter(), UnnamedFrames::Display);
    let backward = encode_pprof(&window, window.stacks.iter().rev(), UnnamedFrames::Display);
    assert_eq!(forward, backward);
}

#[test]
fn go_tool_shows_the_same_functions() {
    let window = full_window();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.pb");
    std::fs::write(&path, encode_pprof(&window, window.stacks.iter(), UnnamedFrames::Display)).unwrap();
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-top", "-sample_index=samples", "-nodecount=100"]).arg(&path);
    let Ok(output) = command.output() else { return println!("skip: go is not installed") };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("of 33 total"), "{text}");
    let flat = |name: &str| {
        let line = text.lines().find(|line| line.trim_end().ends_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {text}"));
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(flat("[anonymous]"), 18);
    assert_eq!(flat("libc.so.6+0x1234"), 7);
    assert_eq!(flat("ext4_read"), 3);
    assert_eq!(flat("[incomplete: no_registers]"), 4);
}

#[test]
fn tables_escape_and_cut_hostile_texts() {
    let mut window = full_window();
    window.processes = vec![process("\x1b[2Jevil\n")];
    let code = FrameCode::File { file: FileId(2), address: 0x2000 };
    window.names.insert(code, named(&"\x1b]0;title\x07".repeat(1000), ""));
    let options = TopOptions { max_processes: 5, max_functions: 3, width: 100 };
    let text = write_top(&window, options);
    assert!(text.contains("\\u{1b}[2Jevil\\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    assert!(text.contains("       42    17.4        33"), "{text}");
    assert_eq!(text.lines().count(), 7, "two headings, a process, an empty line and three functions: {text}");
}

#[test]
fn svg_escapes_hostile_names() {
    let mut window = full_window();
    let code = FrameCode::File { file: FileId(2), address: 0x2000 };
    window.names.insert(code, named("</title><script>", ""));
    let text = write_svg(&window, window.stacks.iter(), "cpu");
    assert!(text.contains("&lt;/title&gt;&lt;script&gt;"));
    assert!(!text.contains("</title><script>"));
}

fn any_frame() -> impl Strategy<Value = PackedFrame> {
    prop_oneof![
        any::<u64>().prop_map(PackedFrame),
        (0u32..4, 0u64..4).prop_map(|(file, address)| file_frame(file, address << 12)),
        (0u64..4).prop_map(|address| PackedFrame(FRAME_KERNEL_BIT | address)),
    ]
}

fn any_stack() -> impl Strategy<Value = CountedStack> {
    let frames = prop::collection::vec(any_frame(), 0..8);
    let end = prop::sample::select(StackEnd::ALL.to_vec());
    (frames, end, 1u64..1 << 30).prop_map(|(frames, end, samples)| stack(&frames, end, samples))
}

proptest! {
    #[test]
    fn totals_of_any_stacks_are_kept(stacks in prop::collection::vec(any_stack(), 0..20)) {
        let window = window(stacks);
        let samples: u64 = window.stacks.iter().map(|stack| stack.samples).sum();
        for unnamed in [UnnamedFrames::AddressOnly, UnnamedFrames::Display] {
            let profile = decode(&encode_pprof(&window, window.stacks.iter(), unnamed));
            prop_assert_eq!(profile.total(0) as u64, samples);
            prop_assert_eq!(profile.total(1) as u64, samples * PERIOD_NANOS);
        }
        let folded = write_folded(&window, window.stacks.iter());
        let counts = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        prop_assert_eq!(counts.sum::<u64>(), samples);
    }
}
