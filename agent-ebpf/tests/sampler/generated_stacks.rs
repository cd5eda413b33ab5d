//! Generated stacks: random rows and the memory that fits them. The unwinder returns exactly the generated frames.
//! Damaged ones neither crash it nor make it loop.

mod generator;

use std::process::Command;
use std::time::Duration;

use athanor_agent_ebpf::layout::{
    CfaRule, MAX_USER_FRAMES, MappingValue, PAGE_LOADED, PageKey, PageValue, RbpRule, StackEnd, UnwindRow,
};
use athanor_chassis::{Clock, Random};

use crate::host_unwinder::{HOST_HEADERS, HostUnwinder, ThreadState, UnwindTables};
use crate::programs::ProgramBuild;
use generator::{GeneratedStack, StackPlan};

const TEST: &str = "generated stacks";
const STACKS: u64 = 3000;
const DAMAGED_STACKS: u64 = 3000;
const RANDOM_SECONDS: u64 = 3;
const FUZZ_SECONDS: &str = "5";
/// Inputs of different coverage that a second of fuzzing finds.
const MIN_FUZZ_INPUTS: usize = 30;
const FUZZ_BUILD: ProgramBuild = ProgramBuild {
    tool: "clang-14",
    headers: HOST_HEADERS,
    arguments: &["-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"],
    ..ProgramBuild::c("unwind_fuzz", &["../../../bpf/host/unwind_fuzz.c"])
};
const REGISTER_STACK: u64 = 0x7ff0_0000;

#[test]
fn generated_stack_unwinds_to_its_frames() {
    let Some(mut unwinder) = HostUnwinder::start(TEST) else { return };
    let mut ends = [0; StackEnd::ALL.len()];
    for seed in 0..STACKS {
        let stack = GeneratedStack::new(&StackPlan::draw(&Random::from_seed(seed)), &Random::from_seed(seed));
        unwinder.load(&stack.tables);
        let unwound = unwinder.unwind(&stack.thread);
        assert_eq!(unwound.end, stack.end, "seed {seed}: {stack:#x?}\n{unwound:#x?}");
        assert_eq!(unwound.frames, stack.frames, "seed {seed}: {stack:#x?}");
        assert_eq!(unwound.requests > 0, stack.has_request, "seed {seed}");
        ends[stack.end as usize] += 1;
    }
    for end in generator::GENERATED_ENDS {
        assert!(ends[end as usize] > STACKS / 100, "{end:?} is generated: {ends:?}");
    }
}

/// A function without calls leaves the register alone by which its caller finds its frame. A value that leads out of the
/// stack shows that it did not, and two calls are one too many.
#[test]
fn caller_may_find_its_frame_by_a_register() {
    let Some(mut unwinder) = HostUnwinder::start(TEST) else { return };
    let mut caller_of = |register: u64, inner_calls: usize| {
        let (tables, mut thread) = stack_with_register(inner_calls);
        thread.registers[10] = register;
        unwinder.load(&tables);
        let unwound = unwinder.unwind(&thread);
        (unwound.frames.len(), unwound.end)
    };
    let saved_pointer = REGISTER_STACK + 64;
    assert_eq!(caller_of(saved_pointer, 1), (3, StackEnd::Complete));
    assert_eq!(caller_of(saved_pointer, 2), (3, StackEnd::RegisterUnknown));
    assert_eq!(caller_of(REGISTER_STACK - 8, 1), (2, StackEnd::RegisterUnknown));
    assert_eq!(caller_of(saved_pointer + 1, 1), (2, StackEnd::RegisterUnknown));
    assert_eq!(caller_of(saved_pointer << 24, 1), (2, StackEnd::RegisterUnknown));
}

#[test]
fn damaged_stack_ends_the_walk() {
    let Some(mut unwinder) = HostUnwinder::start(TEST) else { return };
    let mut same = 0;
    for seed in 0..DAMAGED_STACKS {
        let random = Random::from_seed(seed);
        let mut stack = GeneratedStack::new(&StackPlan::draw(&random), &random);
        for _ in 0..=random.next_below(4) {
            damage(&mut stack, &random);
        }
        unwinder.load(&stack.tables);
        let unwound = unwinder.unwind(&stack.thread);
        assert!(unwound.frames.len() <= MAX_USER_FRAMES, "seed {seed}");
        assert_eq!(
            unwound,
            unwinder.unwind(&stack.thread),
            "seed {seed}: the walk depends on its tables only"
        );
        same += u64::from(unwound.frames == stack.frames && unwound.end == stack.end);
    }
    assert!(
        same < DAMAGED_STACKS * 3 / 4,
        "{same} of {DAMAGED_STACKS} are unwound as if nothing were damaged"
    );
}

#[test]
fn random_tables_end_the_walk() {
    let Some(mut unwinder) = HostUnwinder::start(TEST) else { return };
    let clock = Clock::system();
    let deadline = clock.monotonic() + Duration::from_secs(RANDOM_SECONDS);
    let first = Random::system().next_u64();
    println!("random tables from seed {first:#x}");
    let random = Random::from_seed(first);
    let mut walks = 0;
    let mut deep = 0;
    while clock.monotonic() < deadline {
        let seed = random.next_u64();
        let (tables, thread) = random_tables(&Random::from_seed(seed));
        unwinder.load(&tables);
        deep += u64::from(unwinder.unwind(&thread).frames.len() > 3);
        walks += 1;
    }
    assert!(walks > 100 && deep > walks / 100, "{deep} of {walks} walks passed the third frame");
}

/// Inputs that a fuzzer derives from the coverage of the unwinder. The target checks the bounds and the end of each walk.
#[test]
fn fuzzed_stack_ends_the_walk() {
    let Some(fuzzer) = FUZZ_BUILD.build(TEST) else { return };
    let seconds = std::env::var("ATHANOR_UNWINDER_FUZZ_SECONDS");
    let seconds = seconds.as_deref().unwrap_or(FUZZ_SECONDS);
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(fuzzer);
    command.arg(format!("-max_total_time={seconds}")).args(["-max_len=8192", "-rss_limit_mb=1024"]);
    let output = command.arg(folder.path()).current_dir(folder.path()).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let found = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(found >= MIN_FUZZ_INPUTS, "{found} inputs cover new code of the unwinder: {log}");
    println!("the fuzzer found {found} inputs that cover new code");
}

/// Returns a stack of `inner_calls` functions below one with a frame by r10, and the outermost one.
fn stack_with_register(inner_calls: usize) -> (UnwindTables, ThreadState) {
    const CODE: u64 = 0x40_0000;
    let mut tables = generator::empty_tables();
    tables.rows = vec![
        UnwindRow::new(0, CfaRule::Rsp, 8, RbpRule::Same, 0),
        UnwindRow::new(0x1000, CfaRule::Register, 8 << 4 | 10, RbpRule::Same, 0),
        UnwindRow::new(0x2000, CfaRule::End, 0, RbpRule::Same, 0),
    ];
    let page = PageValue {
        state: PAGE_LOADED,
        chunk: 0,
        first_row: 0,
        row_count: tables.rows.len() as u32,
        used_in: 0,
        reserved: 0,
    };
    tables.pages = vec![(PageKey { file: 1, page: 0 }, page)];
    tables.mappings =
        vec![MappingValue { start: CODE, end: CODE + 0x3000, bias: CODE, file: 1, reserved: 0 }];
    let mut words = [0u64; 16];
    words[..inner_calls].fill(CODE + 0x100);
    words[inner_calls - 1] = CODE + 0x1100;
    words[8] = CODE + 0x2100;
    tables.memory = vec![(REGISTER_STACK, words.iter().flat_map(|word| word.to_ne_bytes()).collect())];
    let mut registers = [0; 16];
    registers[7] = REGISTER_STACK;
    (tables, ThreadState { registers, ip: CODE + 0x100 })
}

fn pick(random: &Random, count: usize) -> usize {
    random.next_below(count as u64) as usize
}

/// Changes one thing of the tables, the memory or the registers.
fn damage(stack: &mut GeneratedStack, random: &Random) {
    let tables = &mut stack.tables;
    let noise = random.next_u64();
    match random.next_below(7) {
        0 => {
            let row = pick(random, tables.rows.len());
            tables.rows[row] = random_row(random, tables.rows[row].pc);
        }
        1 => {
            let page = pick(random, tables.pages.len());
            tables.pages[page].1 = random_page(random);
        }
        2 => {
            let mapping = pick(random, tables.mappings.len());
            tables.mappings[mapping].bias ^= 1 << random.next_below(64);
        }
        3 => {
            let region = pick(random, tables.memory.len());
            let length = tables.memory[region].1.len();
            tables.memory[region].1.truncate(pick(random, length + 1));
        }
        4 => {
            let region = pick(random, tables.memory.len());
            for byte in tables.memory[region].1.iter_mut().step_by(1 + pick(random, 64)) {
                *byte ^= noise as u8;
            }
        }
        5 => stack.thread.registers[6 + pick(random, 2)] ^= 1 << random.next_below(64),
        _ => stack.thread.ip ^= 1 << random.next_below(64),
    }
}

fn random_row(random: &Random, pc: u16) -> UnwindRow {
    let noise = random.next_u64();
    // Mostly small rules and offsets: those that lead on.
    let cfa = if noise & 3 == 0 { (noise >> 32) as i32 } else { (noise >> 32 & 0x78) as i32 + 8 };
    let rule =
        if noise & 12 == 0 { (noise >> 8) as u8 } else { (noise >> 8) as u8 & 0x30 | CfaRule::Rsp as u8 };
    UnwindRow { pc, rule, rbp_offset8: (noise >> 16) as i8 >> (noise & 7), cfa }
}

fn random_page(random: &Random) -> PageValue {
    let is_wild = || random.next_below(12) == 0;
    let wild = |usual: u64| {
        if is_wild() { u32::MAX >> random.next_below(32) } else { random.next_below(usual) as u32 }
    };
    PageValue {
        state: if is_wild() { wild(4) } else { PAGE_LOADED },
        chunk: wild(1),
        first_row: wild(128),
        row_count: 1 + wild(128) / 2,
        used_in: 0,
        reserved: 0,
    }
}

/// Random tables in which addresses often lead somewhere.
fn random_tables(random: &Random) -> (UnwindTables, ThreadState) {
    const CODE: u64 = 0x40_0000;
    const STACK: u64 = 0x7ff0_0000;
    let address = || match random.next_below(12) {
        0 => random.next_u64(),
        1..=8 => CODE + random.next_below(0x8_0000),
        _ => STACK + random.next_below(0x1000) / 8 * 8,
    };
    let memory: Vec<u8> = (0..0x1000 / 8).flat_map(|_| address().to_ne_bytes()).collect();
    let mut rows: Vec<UnwindRow> = (0..256).map(|_| random_row(random, random.next_u64() as u16)).collect();
    rows.sort_by_key(|row| row.pc);
    let mut tables = generator::empty_tables();
    tables.rows = rows;
    let file = || (random.next_below(12) as u32).min(3);
    tables.pages = (0..32).map(|i| (PageKey { file: i / 8, page: i % 8 }, random_page(random))).collect();
    tables.mappings = (0..4)
        .map(|part| {
            let start = CODE + part * 0x2_0000;
            let bias = if random.next_below(12) == 0 { random.next_u64() } else { CODE };
            MappingValue { start, end: start + 0x2_0000, bias, file: file(), reserved: 0 }
        })
        .collect();
    tables.memory = vec![(STACK, memory)];
    let mut registers = std::array::from_fn(|_| address());
    registers[7] = STACK + random.next_below(0x100) * 8;
    (tables, ThreadState { registers, ip: CODE + random.next_below(0x8_0000) })
}
