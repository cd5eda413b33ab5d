//! Snapshots of real processes, unwound three times: by the unwinder of the BPF program over the rows of
//! `unwind_rows`, by framehop over the call frame information itself, and by gdb. All agree frame by frame, apart from
//! explained differences.

mod debugger;
mod framehop_stack;
mod process_image;

use std::collections::BTreeMap;
use std::process::Command;

use athanor_agent_ebpf::frame::{FrameCode, PackedFrame};
use athanor_agent_ebpf::layout::StackEnd;

use crate::host_unwinder::{HostUnwinder, ThreadState, UnwoundStack};
use crate::known_chains::prepare_program;
use crate::programs::{ProgramBuild, RunningProgram};
use crate::requirements::{can_sample, has_tool};
use framehop_stack::FramehopStacks;
use process_image::ProcessImage;

const TEST: &str = "snapshots";
/// Snapshots of all programs together, unless `ATHANOR_SNAPSHOTS` says otherwise.
const SNAPSHOTS: usize = 500;
const HZ: &str = "499";
/// Share of different stacks that may be of chance, as a divisor.
const MAX_DIFFERENT_DIVISOR: usize = 50;
/// Least share of equal stacks among those that both can unwind from a snapshot, in percent.
const MIN_EQUAL_PERCENT: usize = 90;
/// Programs whose mappings stay as they are, and whose files have call frame information.
const PROGRAMS: [&str; 8] =
    ["chains", "signals", "exceptions", "threads", "burn_rust", "openssl", "go_plain", "go_cgo"];
/// Stacks by gdb, if `ATHANOR_GDB_SNAPSHOTS` is set.
const GDB_PROGRAMS: [&str; 5] = ["chains", "signals", "exceptions", "burn_rust", "openssl"];

const TAKE_SNAPSHOTS: ProgramBuild = ProgramBuild::c("take_snapshots", &["take_snapshots.c"]);

/// Registers and stack of a thread.
#[derive(Clone, Debug)]
pub struct ThreadSnapshot {
    /// Registers.
    pub state: ThreadState,
    /// Parts of its stacks: the address of the first byte, and the bytes.
    pub memory: Vec<(u64, Vec<u8>)>,
}

impl ThreadSnapshot {
    /// Returns a word of the stack.
    pub fn word_at(&self, address: u64) -> Option<u64> {
        self.memory.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
            let word = bytes.get(offset..offset.checked_add(8)?)?;
            Some(u64::from_ne_bytes(word.try_into().ok()?))
        })
    }
}

/// Result of the comparison of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Comparison {
    /// Both have the same frames and reach the outermost one.
    Equal,
    /// Both have the same frames until the stack continues behind the part that the snapshot holds.
    EqualUntilCutOff,
    /// Ours reaches the outermost frame and the other does not, after a frame whose rule needs more than rsp, rbp and
    /// an offset: framehop lacks signal frames, other registers, addresses that are themselves on the stack, and the
    /// outermost functions of Go.
    OtherLacksRule,
    /// Ours goes on by frame pointer where the file has no information, and the other guesses or ends.
    NoInformation,
    /// The rule reads below the stack pointer, or the stack of a program that a signal handler with a stack of its own
    /// interrupted, and the other guesses.
    StackCutOff,
    /// The row tells that its rule cannot be expressed.
    UnsupportedRule,
    /// An instruction pointer of a prologue or epilogue, which the other unwinder analyzes instead of the information.
    OtherAnalyzesCode,
    /// None of the above.
    Different,
}

#[test]
fn snapshots_unwind_as_by_framehop() {
    if !can_sample(TEST) {
        return;
    }
    let Some(mut unwinder) = HostUnwinder::start(TEST) else { return };
    let wanted = count_from("ATHANOR_SNAPSHOTS").unwrap_or(SNAPSHOTS);
    let mut failures = Vec::new();
    for name in PROGRAMS {
        let Some((path, arguments)) = prepare_program(name) else { continue };
        let program = RunningProgram::start(&path, &arguments);
        wait_until_started(&program);
        let Some(snapshots) = take_snapshots(program.pid(), wanted / PROGRAMS.len() + 1) else { return };
        let image = ProcessImage::of(program.pid());
        let others = FramehopStacks::of(&image);
        let mut comparisons: BTreeMap<Comparison, usize> = BTreeMap::new();
        let mut differences = Vec::new();
        for snapshot in &snapshots {
            unwinder.load(&image.tables(snapshot));
            let ours = unwinder.unwind(&snapshot.state);
            let other = others.unwind(snapshot);
            let comparison = compare(&image, &ours, &other);
            *comparisons.entry(comparison).or_default() += 1;
            if comparison == Comparison::Different {
                differences.push(format!("{name}:\n{}", image.describe(&ours, &other.frames)));
            }
        }
        println!("{name:<12} {} snapshots: {comparisons:?}", snapshots.len());
        if differences.len() * MAX_DIFFERENT_DIVISOR > snapshots.len() {
            failures.append(&mut differences);
        }
        let count = |comparison| comparisons.get(&comparison).copied().unwrap_or(0);
        let limited = count(Comparison::OtherLacksRule) + count(Comparison::StackCutOff);
        let comparable = snapshots.len() - limited;
        let equal = count(Comparison::Equal) + count(Comparison::EqualUntilCutOff);
        if comparable == 0 || equal * 100 < comparable * MIN_EQUAL_PERCENT {
            failures.push(format!("{name}: {equal} of {comparable} are equal: {comparisons:?}"));
        }
    }
    let shown = failures.iter().take(6).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} failures:\n{shown}", failures.len());
}

#[test]
fn snapshots_unwind_as_by_gdb() {
    let Some(wanted) = count_from("ATHANOR_GDB_SNAPSHOTS") else { return };
    if !has_tool(TEST, "gdb") {
        return;
    }
    let Some(mut unwinder) = HostUnwinder::start(TEST) else { return };
    let mut failures = Vec::new();
    for name in GDB_PROGRAMS {
        let Some((path, arguments)) = prepare_program(name) else { continue };
        let program = RunningProgram::start(&path, &arguments);
        wait_until_started(&program);
        let image = ProcessImage::of(program.pid());
        let mut equal = 0;
        let count = wanted / GDB_PROGRAMS.len() + 1;
        for _ in 0..count {
            let (snapshot, frames) = debugger::stop_and_unwind(program.pid());
            unwinder.load(&image.tables(&snapshot));
            let ours = unwinder.unwind(&snapshot.state);
            let addresses = image.return_addresses(&ours);
            if addresses == frames || !image.is_covered(&ours) {
                equal += usize::from(addresses == frames);
            } else {
                failures.push(format!("{name}:\n{addresses:x?}\n{frames:x?}"));
            }
        }
        println!("{name:<12} {equal} of {count} as by gdb");
        assert!(equal * 10 >= count * 9, "{name}: {equal} of {count}");
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Stack of another unwinder: addresses for lookups, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherStack {
    /// Addresses.
    pub frames: Vec<u64>,
    /// The walk ended at an outermost frame.
    pub is_complete: bool,
}

fn compare(image: &ProcessImage, ours: &UnwoundStack, other: &OtherStack) -> Comparison {
    let addresses = image.lookup_addresses(ours);
    let common = addresses.iter().zip(&other.frames).take_while(|(ours, other)| ours == other).count();
    if common > 0 && common == addresses.len() && common == other.frames.len() {
        return match (ours.end, other.is_complete) {
            (StackEnd::Complete, true) => Comparison::Equal,
            (StackEnd::MemoryNotReadable, false) => Comparison::EqualUntilCutOff,
            (StackEnd::Complete, false) if image.is_outermost(ours.frames[common - 1]) => {
                Comparison::OtherLacksRule
            }
            (StackEnd::UnsupportedRule | StackEnd::RegisterUnknown, false) => Comparison::UnsupportedRule,
            _ => explain_difference(image, ours, other, common),
        };
    }
    explain_difference(image, ours, other, common)
}

/// Explains why the stacks differ behind `common` equal frames.
fn explain_difference(
    image: &ProcessImage,
    ours: &UnwoundStack,
    other: &OtherStack,
    common: usize,
) -> Comparison {
    let Some(last_common) = common.checked_sub(1).and_then(|last| ours.frames.get(last)) else {
        return Comparison::Different;
    };
    if last_common.is_frame_pointer() {
        return Comparison::NoInformation;
    }
    if ours.end == StackEnd::UnsupportedRule && ours.frames.len() == common {
        return Comparison::UnsupportedRule;
    }
    if ours.end == StackEnd::MemoryNotReadable {
        let is_cut_off = ours.frames.iter().any(|frame| image.is_signal(*frame))
            || image.reads_below_stack(*last_common) && common == 1;
        return if is_cut_off { Comparison::StackCutOff } else { Comparison::Different };
    }
    if ours.end != StackEnd::Complete {
        return Comparison::Different;
    }
    // By chance the other may end in a guess that looks like an outermost frame.
    if image.needs_rule_of_ours(*last_common) {
        return Comparison::OtherLacksRule;
    }
    if other.is_complete {
        return Comparison::Different;
    }
    if ours.frames[..common].iter().any(|frame| image.needs_rule_of_ours(*frame)) {
        return Comparison::OtherLacksRule;
    }
    if common == 1 && image.is_innermost_analyzed(*last_common) {
        return Comparison::OtherAnalyzesCode;
    }
    Comparison::Different
}

/// Returns the snapshots of a process. None and a skip line if the kernel refuses them.
fn take_snapshots(pid: u32, count: usize) -> Option<Vec<ThreadSnapshot>> {
    let mut command = Command::new(TAKE_SNAPSHOTS.build(TEST)?);
    let output = command.args([&pid.to_string(), &count.to_string(), HZ]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut rest = output.stdout.as_slice();
    let mut snapshots = Vec::new();
    while rest.len() >= 18 * 8 && snapshots.len() < count {
        let word = |index: usize| u64::from_ne_bytes(rest[index * 8..index * 8 + 8].try_into().unwrap());
        let state = ThreadState { registers: std::array::from_fn(word), ip: word(16) };
        let size = word(17) as usize;
        let stack = rest[18 * 8..18 * 8 + size].to_vec();
        rest = &rest[18 * 8 + size..];
        snapshots.push(ThreadSnapshot { memory: vec![(state.registers[7], stack)], state });
    }
    Some(snapshots)
}

/// Waits until a program has loaded its libraries and burns.
fn wait_until_started(program: &RunningProgram) {
    for _ in 0..400 {
        if crate::cpu_shares::cpu_seconds(program.pid()).is_some_and(|seconds| seconds > 0.1) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    panic!("{} does not burn", program.pid());
}

fn count_from(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Returns the address of a frame in the file, or in the process.
fn frame_address(frame: PackedFrame) -> u64 {
    match frame.code() {
        FrameCode::Kernel(address) | FrameCode::Other(address) => address,
        FrameCode::File { address, .. } => address,
    }
}
