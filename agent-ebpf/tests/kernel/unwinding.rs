//! Stacks of a program whose rows are written by hand.

use athanor_agent_ebpf::frame::{FileId, FrameCode, PackedFrame};
use athanor_agent_ebpf::kernel::{KernelConfig, KernelSampler, SideSampling};
use athanor_agent_ebpf::layout::{
    CfaRule, MappingKey, MappingValue, PAGE_EMPTY, PAGE_LOADED, PROCESS_LOADED, PageKey, PageValue,
    ProcessValue, REQUEST_MAPPING, REQUEST_PAGE, REQUEST_PROCESS, ROW_PAGE_SHIFT, RequestRecord, StackEnd,
    UnwindRow,
};

use crate::known_program::{
    BASE, END, INNER, INNER_END, KnownProgram, MIDDLE_FRAME, OUTER_FRAME, START_FRAME, rows, rows_with_middle,
};
use crate::support::{Stack, WindowReader, has_privileges, load, wait_for};

const FILE: u32 = 5;
const PAGE: PageKey = PageKey { file: FILE, page: (BASE >> ROW_PAGE_SHIFT) as u32 };
const CHUNK: u32 = 2;
const FIRST_ROW: u32 = 700;

/// Sampler of one known program.
struct Sampled {
    program: KnownProgram,
    sampler: KernelSampler,
    windows: WindowReader,
}

impl Sampled {
    fn start() -> Self {
        let program = KnownProgram::start();
        let config =
            KernelConfig { frequency_hz: 997, process: Some(program.child.pid()), ..KernelConfig::default() };
        let mut sampler = load(&config);
        sampler.attach().unwrap();
        Self { program, sampler, windows: WindowReader::default() }
    }

    fn wait_for_request(&mut self, kind: u32) -> RequestRecord {
        let request = wait_for("a request", || {
            std::iter::from_fn(|| self.sampler.next_request()).find(|request| request.kind == kind)
        });
        assert_eq!(request.pid, self.program.child.pid());
        request
    }

    fn set_process_loaded(&mut self, request: &RequestRecord) {
        let value = ProcessValue {
            start_nanos: request.start_nanos,
            requested_at: 0,
            exec_id: request.exec_id,
            state: PROCESS_LOADED,
        };
        self.sampler.set_process(request.pid, &value).unwrap();
    }

    fn insert_mapping(&mut self) {
        let pid = self.program.child.pid();
        let page_bits = 32 + 64 - 12;
        let key = MappingKey { prefix_bits: page_bits, pid_be: pid.to_be(), address_be: BASE.to_be() };
        let value = MappingValue { start: BASE, end: END, bias: 0, file: FILE, reserved: 0 };
        self.sampler.insert_mapping(&key, &value).unwrap();
    }

    fn set_rows(&mut self, rows: &[UnwindRow]) {
        self.sampler.write_rows(CHUNK, FIRST_ROW, rows).unwrap();
        let row_count = rows.len() as u32;
        let page = PageValue {
            state: PAGE_LOADED,
            chunk: CHUNK,
            first_row: FIRST_ROW,
            row_count,
            used_in: 0,
            reserved: 0,
        };
        self.sampler.set_page(PAGE, &page).unwrap();
    }

    /// Starts with process, mapping and rows loaded.
    fn with_rows(rows: &[UnwindRow]) -> Self {
        let mut sampled = Self::start();
        let request = sampled.wait_for_request(REQUEST_PROCESS);
        sampled.insert_mapping();
        sampled.set_rows(rows);
        sampled.set_process_loaded(&request);
        sampled
    }

    /// Returns the stacks of the first windows with 20 samples.
    fn stacks(&mut self) -> Vec<Stack> {
        self.windows.close_window(&mut self.sampler, SideSampling::ALL);
        let mut stacks = Vec::new();
        wait_for("20 samples", || {
            stacks.extend(self.windows.close_window(&mut self.sampler, SideSampling::ALL));
            let samples: u64 = stacks.iter().map(|stack: &Stack| stack.count.samples).sum();
            (samples >= 20).then_some(())
        });
        stacks
    }

    /// Checks that all stacks end in one way, and that the callers of the inner function are these.
    fn expect(&mut self, end: StackEnd, is_marked: bool, callers: &[(u64, bool)]) {
        for stack in self.stacks() {
            assert_eq!(StackEnd::from_number(stack.key.end), Some(end), "{stack:x?}");
            let frames: Vec<_> = stack.user_frames.iter().map(|frame| file_frame(*frame)).collect();
            let (inner, others) = frames.split_first().unwrap();
            assert!((INNER..INNER_END).contains(&inner.0), "{frames:x?}");
            assert_eq!(inner.1, is_marked);
            assert_eq!(others, callers, "{frames:x?}");
            assert_eq!(&stack.key.comm, b"known\0\0\0\0\0\0\0\0\0\0\0");
        }
    }
}

/// Returns the address in the file and the mark.
fn file_frame(frame: u64) -> (u64, bool) {
    let frame = PackedFrame(frame);
    match frame.code() {
        FrameCode::File { file: FileId(FILE), address } => (address, frame.is_frame_pointer()),
        other => panic!("{other:x?}"),
    }
}

fn monotonic_millis() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[test]
fn rows_lead_to_the_outermost_frame() {
    if !has_privileges() {
        return;
    }
    let mut sampled = Sampled::with_rows(&rows());
    let callers = [(MIDDLE_FRAME, false), (OUTER_FRAME, false), (START_FRAME, false)];
    sampled.expect(StackEnd::Complete, false, &callers);
    let used_in = sampled.sampler.get_page(PAGE).unwrap().unwrap().used_in;
    assert!(u64::from(used_in) + 3 > sampled.sampler.window(), "{used_in}");
}

#[test]
fn code_without_rows_is_left_by_frame_pointer_with_a_mark() {
    if !has_privileges() {
        return;
    }
    let mut sampled = Sampled::with_rows(&rows_with_middle(CfaRule::None, 0));
    let callers = [(MIDDLE_FRAME, true), (OUTER_FRAME, false), (START_FRAME, false)];
    sampled.expect(StackEnd::Complete, false, &callers);
}

#[test]
fn known_frame_pointer_leaves_no_mark() {
    if !has_privileges() {
        return;
    }
    let mut sampled = Sampled::with_rows(&rows_with_middle(CfaRule::FramePointer, 0));
    let callers = [(MIDDLE_FRAME, false), (OUTER_FRAME, false), (START_FRAME, false)];
    sampled.expect(StackEnd::Complete, false, &callers);
}

#[test]
fn rules_that_lead_nowhere_end_the_stack_with_their_reason() {
    if !has_privileges() {
        return;
    }
    let cases = [
        (CfaRule::Unsupported, 0, StackEnd::UnsupportedRule),
        // rbx is not known after the first step.
        (CfaRule::Register, 3, StackEnd::RegisterUnknown),
        (CfaRule::Rbp, -256, StackEnd::NotProgressing),
        (CfaRule::Rbp, 1 << 30, StackEnd::MemoryNotReadable),
    ];
    let mut sampled = Sampled::with_rows(&rows());
    for (rule, cfa, end) in cases {
        sampled.sampler.remove_page(PAGE).unwrap();
        sampled.set_rows(&rows_with_middle(rule, cfa));
        sampled.expect(end, false, &[(MIDDLE_FRAME, false)]);
    }
}

#[test]
fn empty_page_is_left_by_frame_pointers() {
    if !has_privileges() {
        return;
    }
    let mut sampled = Sampled::with_rows(&rows());
    let empty =
        PageValue { state: PAGE_EMPTY, chunk: 0, first_row: 0, row_count: 0, used_in: 0, reserved: 0 };
    sampled.sampler.set_page(PAGE, &empty).unwrap();
    // The inner function has no frame: its caller is missing, as the mark says.
    sampled.expect(StackEnd::Complete, true, &[(OUTER_FRAME, true)]);
}

#[test]
fn missing_page_is_requested_once() {
    if !has_privileges() {
        return;
    }
    let mut sampled = Sampled::start();
    let process = sampled.wait_for_request(REQUEST_PROCESS);
    sampled.insert_mapping();
    sampled.set_process_loaded(&process);
    let request = sampled.wait_for_request(REQUEST_PAGE);
    assert_eq!(request.page, PAGE);
    sampled.expect(StackEnd::RowsNotLoaded, false, &[]);
    assert!(sampled.sampler.next_request().is_none());
    sampled.set_rows(&rows());
    let callers = [(MIDDLE_FRAME, false), (OUTER_FRAME, false), (START_FRAME, false)];
    sampled.expect(StackEnd::Complete, false, &callers);
}

#[test]
fn missing_mapping_is_requested_at_a_bounded_rate() {
    if !has_privileges() {
        return;
    }
    let mut sampled = Sampled::start();
    let process = sampled.wait_for_request(REQUEST_PROCESS);
    let started_at = monotonic_millis();
    sampled.set_process_loaded(&process);
    let request = sampled.wait_for_request(REQUEST_MAPPING);
    assert!((INNER..INNER_END).contains(&request.address));
    let stacks = sampled.stacks();
    for stack in &stacks {
        assert_eq!(stack.key.end, StackEnd::Complete as u32);
        let outer = PackedFrame(stack.user_frames[1]);
        assert_eq!(stack.user_frames.len(), 2);
        assert_eq!(outer.code(), FrameCode::Other(OUTER_FRAME));
        assert!(outer.is_frame_pointer());
    }
    sampled.sampler.set_stopped(true);
    let requests = std::iter::from_fn(|| sampled.sampler.next_request()).count() as u64;
    let elapsed = monotonic_millis() - started_at;
    assert!(requests <= elapsed / 100 + 1, "{requests} requests in {elapsed} ms");
}

#[test]
fn process_of_another_exec_is_requested_and_has_its_innermost_frames() {
    if !has_privileges() {
        return;
    }
    let mut sampled = Sampled::start();
    let request = sampled.wait_for_request(REQUEST_PROCESS);
    assert_eq!(request.host_pid, sampled.program.child.pid());
    sampled.insert_mapping();
    sampled.set_rows(&rows());
    let other_exec = RequestRecord { exec_id: request.exec_id.wrapping_add(1), ..request };
    sampled.set_process_loaded(&other_exec);
    // Each request has the address that the sample found the process at.
    let repeated = sampled.wait_for_request(REQUEST_PROCESS);
    assert_eq!(RequestRecord { address: request.address, ..repeated }, request);
    for stack in sampled.stacks() {
        assert_eq!(stack.key.end, StackEnd::ProcessNotLoaded as u32);
        let codes: Vec<_> = stack.user_frames.iter().map(|frame| PackedFrame(*frame).code()).collect();
        assert!(matches!(codes[0], FrameCode::Other(INNER..INNER_END)), "{codes:x?}");
        assert_eq!(codes[1..], [FrameCode::Other(OUTER_FRAME)]);
    }
}

#[test]
fn full_maps_do_not_hide_what_is_missing() {
    if !has_privileges() {
        return;
    }
    let program = KnownProgram::start();
    let config = KernelConfig {
        frequency_hz: 997,
        process: Some(program.child.pid()),
        max_processes: 1,
        max_pages: 1,
        ..KernelConfig::default()
    };
    let mut sampler = load(&config);
    let other = ProcessValue { start_nanos: 0, requested_at: 0, exec_id: 0, state: PROCESS_LOADED };
    sampler.set_process(u32::MAX, &other).unwrap();
    let empty =
        PageValue { state: PAGE_EMPTY, chunk: 0, first_row: 0, row_count: 0, used_in: 0, reserved: 0 };
    sampler.set_page(PageKey { file: 1, page: 1 }, &empty).unwrap();
    sampler.attach().unwrap();
    let mut sampled = Sampled { program, sampler, windows: WindowReader::default() };
    let request = sampled.wait_for_request(REQUEST_PROCESS);
    sampled.sampler.remove_process(u32::MAX).unwrap();
    sampled.insert_mapping();
    sampled.set_process_loaded(&request);
    assert_eq!(sampled.wait_for_request(REQUEST_PAGE).page, PAGE);
}
