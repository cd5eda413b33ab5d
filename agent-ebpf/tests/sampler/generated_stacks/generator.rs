//! Generator of stacks: draws a plan, then lays out code, rows and stack memory for it.
//!
//! Each frame has a row of its own, in a slot of 16 bytes of code. Frames are laid out twice: sizes from the innermost
//! frame outwards, values of rbp from the outermost frame inwards, because a callee saves the rbp of its caller.

use athanor_agent_ebpf::frame::PackedFrame;
use athanor_agent_ebpf::layout::{
    CfaRule, FRAME_FILE_BIT, FRAME_FILE_SHIFT, FRAME_POINTER_BIT, MAX_USER_FRAMES, MappingValue, PAGE_EMPTY,
    PAGE_LOADED, PAGE_REQUESTED, PROCESS_LOADED, PageKey, PageValue, ProcessValue, RbpRule, StackEnd,
    UnwindRow,
};
use athanor_chassis::Random;

use crate::host_unwinder::{ThreadState, UnwindTables};

const FILE: u32 = 7;
/// Address of the file in the process and its virtual address in the file.
const FILE_START: u64 = 0x5555_0000_0000;
const FILE_ADDRESS: u64 = 0x10_0000;
const ANONYMOUS_START: u64 = 0x7f00_1234_0000;
const STACK_START: u64 = 0x7ffd_0000_1000;
const SLOT_BYTES: u64 = 16;
const SLOTS_PER_PAGE: u64 = 65_536 / SLOT_BYTES;
const PAGES: u64 = 3;
/// Page of the file without rows.
const EMPTY_PAGE: u64 = PAGES;
/// Page of the file that is not loaded.
const MISSING_PAGE: u64 = PAGES + 1;
const FILE_BYTES: u64 = (PAGES + 2) << 16;
/// Stack of the code that calls main.
const MAX_START_BYTES: u64 = 256;
const UCONTEXT_REGISTERS: u64 = 40;
/// DWARF numbers in the order of the ucontext.
const UCONTEXT_ORDER: [usize; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7];
/// DWARF numbers of all registers that no other rule needs.
const UNCHANGED_REGISTERS: [usize; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
const RBP: usize = 6;
const RSP: usize = 7;

/// Ends that the generator makes.
pub const GENERATED_ENDS: [StackEnd; 8] = [
    StackEnd::Complete,
    StackEnd::Truncated,
    StackEnd::ProcessNotLoaded,
    StackEnd::RowsNotLoaded,
    StackEnd::UnsupportedRule,
    StackEnd::RegisterUnknown,
    StackEnd::MemoryNotReadable,
    StackEnd::BadFramePointer,
];

/// Rules of one frame.
#[derive(Clone, Copy, Debug)]
struct FramePlan {
    cfa: CfaRule,
    rbp: RbpRule,
    /// Words from rsp to the CFA.
    words: u64,
    /// Frame is innermost or interrupted by a signal: all registers are known, `ip` is the instruction.
    is_exact: bool,
    /// Bytes of the instruction pointer behind the begin of its slot, 1 to 15.
    ip_offset: u64,
}

/// Rules of a stack.
#[derive(Clone, Debug)]
pub struct StackPlan {
    frames: Vec<FramePlan>,
    end: StackEnd,
    /// The end is told by a return address of 0 instead of a row.
    ends_by_address: bool,
}

/// Stack with its expected frames.
#[derive(Clone, Debug)]
pub struct GeneratedStack {
    /// Maps and memory.
    pub tables: UnwindTables,
    /// Innermost frame.
    pub thread: ThreadState,
    /// Expected frames, innermost first.
    pub frames: Vec<PackedFrame>,
    /// Expected end.
    pub end: StackEnd,
    /// Something that is not loaded is requested.
    pub has_request: bool,
}

/// Returns tables of a loaded process without anything.
pub fn empty_tables() -> UnwindTables {
    UnwindTables {
        pid: 42,
        process: ProcessValue { start_nanos: 99, requested_at: 0, exec_id: 3, state: PROCESS_LOADED },
        stack_start: 0,
        mappings: Vec::new(),
        pages: Vec::new(),
        rows: Vec::new(),
        memory: Vec::new(),
    }
}

impl StackPlan {
    /// Draws the rules of a stack.
    pub fn draw(random: &Random) -> Self {
        let end = match random.next_below(16) {
            8 => StackEnd::Truncated,
            9 => StackEnd::ProcessNotLoaded,
            10 => StackEnd::RowsNotLoaded,
            11 => StackEnd::UnsupportedRule,
            12 => StackEnd::RegisterUnknown,
            13 => StackEnd::MemoryNotReadable,
            14 => StackEnd::BadFramePointer,
            _ => StackEnd::Complete,
        };
        let depth = match end {
            StackEnd::Truncated => MAX_USER_FRAMES as u64 + 1 + random.next_below(20),
            _ => 2 + random.next_below(if random.next_below(8) == 0 { 254 } else { 24 }),
        };
        let mut is_exact = true;
        let mut frames = Vec::new();
        for _ in 0..depth {
            let frame = FramePlan::draw(random, is_exact);
            is_exact = frame.cfa == CfaRule::Signal;
            frames.push(frame);
        }
        let mut plan = Self { frames, end, ends_by_address: random.next_below(2) == 0 };
        plan.set_end();
        plan
    }

    /// Gives the outermost frames the rules that lead to the end.
    fn set_end(&mut self) {
        let [.., caller, last] = self.frames.as_mut_slice() else { panic!("two frames at least") };
        // The last frame is reached by a plain call.
        (caller.cfa, caller.rbp, caller.words) = (CfaRule::Rsp, RbpRule::AtCfa, caller.words.max(4));
        last.is_exact = false;
        (last.cfa, last.rbp, last.words) = (CfaRule::Rsp, RbpRule::AtCfa, last.words.max(4));
        match self.end {
            StackEnd::Complete if !self.ends_by_address => last.cfa = CfaRule::End,
            StackEnd::UnsupportedRule => last.cfa = CfaRule::Unsupported,
            StackEnd::RegisterUnknown if self.ends_by_address => last.cfa = CfaRule::Register,
            StackEnd::RegisterUnknown => {
                caller.rbp = RbpRule::Unknown;
                last.cfa = CfaRule::Rbp;
            }
            StackEnd::BadFramePointer => last.cfa = CfaRule::None,
            _ => {}
        }
    }
}

impl FramePlan {
    fn draw(random: &Random, is_exact: bool) -> Self {
        let cfa = match random.next_below(if is_exact { 20 } else { 18 }) {
            0..=6 => CfaRule::Rsp,
            7..=9 => CfaRule::Rbp,
            10 => CfaRule::DerefRsp,
            11..=12 => CfaRule::DerefRbp,
            13 => CfaRule::Signal,
            14..=15 => CfaRule::FramePointer,
            16..=17 => CfaRule::None,
            18 => CfaRule::Plt,
            _ => CfaRule::Register,
        };
        let rbp = match (cfa, random.next_below(5)) {
            (CfaRule::FramePointer | CfaRule::None, _) => RbpRule::AtRbp,
            (CfaRule::Plt | CfaRule::Signal, _) | (_, 0..=1) => RbpRule::Same,
            (_, 2..=3) => RbpRule::AtCfa,
            _ => RbpRule::AtRbp,
        };
        let ip_offset = 1 + random.next_below(SLOT_BYTES - 1);
        let words = match cfa {
            CfaRule::Plt => 1 + ip_offset / 8,
            CfaRule::Signal => 23 + random.next_below(40),
            _ => 4 + random.next_below(120),
        };
        Self { cfa, rbp, words, is_exact, ip_offset }
    }
}

/// Values of one frame.
#[derive(Clone, Copy, Debug, Default)]
struct FrameValues {
    rsp: u64,
    rbp: u64,
    cfa: u64,
    ip: u64,
}

/// Layout under construction.
struct StackLayout<'a> {
    random: &'a Random,
    frames: Vec<FramePlan>,
    values: Vec<FrameValues>,
    memory: Vec<u8>,
    rows: Vec<(u64, UnwindRow)>,
    thread: ThreadState,
}

impl GeneratedStack {
    /// Lays out a plan.
    pub fn new(plan: &StackPlan, random: &Random) -> Self {
        let mut layout = StackLayout::place(plan, random);
        layout.set_frame_pointers(plan);
        for index in 0..layout.frames.len() {
            layout.write_frame(index);
        }
        layout.set_end_address(plan);
        let mut expected: Vec<PackedFrame> = layout.packed_frames().collect();
        let mut tables = layout.tables();
        match plan.end {
            StackEnd::Truncated => expected.truncate(MAX_USER_FRAMES),
            StackEnd::MemoryNotReadable => layout.remove_last_frame(&mut tables),
            StackEnd::BadFramePointer => layout.set_stack_start(plan, &mut tables),
            StackEnd::ProcessNotLoaded => tables.process.state = PROCESS_LOADED + 1,
            _ => {}
        }
        if plan.end == StackEnd::ProcessNotLoaded {
            // Only the innermost frame, as an address: its frame pointer leads nowhere.
            let first = FRAME_POINTER_BIT | layout.values[0].ip;
            expected = vec![PackedFrame(first)];
            layout.thread.registers[RBP] = 0x10;
        }
        let has_request = matches!(plan.end, StackEnd::ProcessNotLoaded)
            || plan.end == StackEnd::RowsNotLoaded && plan.ends_by_address;
        let ends_at_start = plan.end == StackEnd::BadFramePointer && plan.ends_by_address;
        let end = if ends_at_start { StackEnd::Complete } else { plan.end };
        Self { tables, thread: layout.thread, frames: expected, end, has_request }
    }
}

impl<'a> StackLayout<'a> {
    /// Gives each frame its place on the stack and its slot of code.
    fn place(plan: &StackPlan, random: &'a Random) -> Self {
        let mut rsp = STACK_START;
        let first_slot = random.next_below(PAGES * SLOTS_PER_PAGE - plan.frames.len() as u64);
        let last = plan.frames.len() - 1;
        let mut values = Vec::new();
        for (index, frame) in plan.frames.iter().enumerate() {
            let mut slot_start = FILE_START + (first_slot + index as u64) * SLOT_BYTES;
            if frame.cfa == CfaRule::None {
                let page = if random.next_below(2) == 0 || index == last { Some(EMPTY_PAGE) } else { None };
                let start = page.map_or(ANONYMOUS_START, |page| FILE_START + (page << 16));
                slot_start = start + index as u64 * SLOT_BYTES;
            }
            if index == last && plan.end == StackEnd::RowsNotLoaded {
                let page = if plan.ends_by_address { MISSING_PAGE + 1 } else { MISSING_PAGE };
                slot_start = FILE_START + (page << 16);
            }
            values.push(FrameValues {
                rsp,
                rbp: 0,
                cfa: rsp + frame.words * 8,
                ip: slot_start + frame.ip_offset,
            });
            rsp += frame.words * 8;
        }
        let memory =
            (0..(rsp - STACK_START) / 8 + 64).flat_map(|_| random.next_u64().to_ne_bytes()).collect();
        let registers = std::array::from_fn(|_| random.next_u64());
        let thread = ThreadState { registers, ip: values[0].ip };
        Self { random, frames: plan.frames.clone(), values, memory, rows: Vec::new(), thread }
    }

    /// Chooses rbp in each frame, outermost first.
    fn set_frame_pointers(&mut self, plan: &StackPlan) {
        let mut outer = 0x7000_0000_0000 + self.random.next_below(1 << 40) * 8;
        for index in (0..self.frames.len()).rev() {
            let values = self.values[index];
            let frame = &mut self.frames[index];
            let is_last = index + 1 == plan.frames.len();
            let needed = match (frame.cfa, frame.rbp) {
                (CfaRule::None, _) if is_last && plan.end == StackEnd::BadFramePointer => {
                    Some(values.rsp - 64)
                }
                (CfaRule::FramePointer | CfaRule::None, _) => Some(values.cfa - 16),
                // The first word of the frame: the slot of the saved rbp, or one beside that of the CFA.
                (CfaRule::Rbp | CfaRule::DerefRbp, _) | (_, RbpRule::AtRbp) => Some(values.rsp),
                _ => None,
            };
            let passes = frame.rbp == RbpRule::Same && frame.cfa != CfaRule::Signal;
            if passes && needed.is_some_and(|needed| needed != outer) {
                frame.rbp = RbpRule::AtCfa;
            }
            let own = match needed {
                Some(needed) => needed,
                None if frame.rbp == RbpRule::Same && frame.cfa != CfaRule::Signal => outer,
                None => self.random.next_u64(),
            };
            self.values[index].rbp = own;
            outer = own;
        }
        self.thread.registers[RBP] = self.values[0].rbp;
        self.thread.registers[RSP] = self.values[0].rsp;
    }

    fn write_word(&mut self, address: u64, word: u64) {
        let offset = (address - STACK_START) as usize;
        self.memory[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
    }

    /// Writes what the frame saves, and its row.
    fn write_frame(&mut self, index: usize) {
        let frame = self.frames[index];
        let values = self.values[index];
        let outer = self.values.get(index + 1).copied().unwrap_or_default();
        if frame.cfa == CfaRule::Signal {
            self.write_ucontext(values.rsp + UCONTEXT_REGISTERS, outer);
            self.add_row(values.ip, UnwindRow::new(0, CfaRule::Signal, 0, RbpRule::Same, 0));
            return;
        }
        self.write_word(values.cfa - 8, outer.ip);
        let mut rbp_offset8 = 0;
        match frame.rbp {
            RbpRule::AtRbp => self.write_word(values.rbp, outer.rbp),
            RbpRule::AtCfa => {
                // Word 2 or higher: below are the target of rbp and the CFA.
                let word = 2 + self.random.next_below(frame.words - 3);
                let address = values.rsp + word * 8;
                self.write_word(address, outer.rbp);
                rbp_offset8 = -i8::try_from((values.cfa - address) / 8).unwrap();
            }
            RbpRule::Same | RbpRule::Unknown => {}
        }
        if frame.cfa == CfaRule::None {
            return;
        }
        let cfa = self.write_cfa(&frame, values);
        self.add_row(values.ip, UnwindRow::new(0, frame.cfa, cfa, frame.rbp, rbp_offset8));
    }

    /// Writes the memory that the CFA rule reads. Returns the operand of the rule.
    fn write_cfa(&mut self, frame: &FramePlan, values: FrameValues) -> i32 {
        let from = |base: u64| i32::try_from(values.cfa.wrapping_sub(base).cast_signed()).unwrap();
        // Word 1 of the frame holds the CFA, less a random offset.
        let slot = values.rsp + 8;
        let high = self.random.next_below(4096) as i16 - 2048;
        let packed = |base: u64| i32::from(high) << 16 | i32::from((slot - base) as u16);
        match frame.cfa {
            CfaRule::Rsp => from(values.rsp),
            CfaRule::Rbp => from(values.rbp),
            CfaRule::DerefRsp | CfaRule::DerefRbp => {
                self.write_word(slot, values.cfa.wrapping_add_signed(-i64::from(high)));
                packed(if frame.cfa == CfaRule::DerefRsp { values.rsp } else { values.rbp })
            }
            CfaRule::Plt => 8,
            CfaRule::Register if frame.is_exact => {
                let number = UNCHANGED_REGISTERS[self.random.next_below(14) as usize];
                let offset = self.random.next_below(1 << 20) as i32 - (1 << 19);
                let value = values.cfa.wrapping_add_signed(-i64::from(offset));
                self.set_register(values, number, value);
                offset << 4 | number as i32
            }
            // A register that only an exact frame knows.
            CfaRule::Register => 10,
            _ => 0,
        }
    }

    /// Sets a register of an exact frame: in the thread, or in the ucontext below.
    fn set_register(&mut self, values: FrameValues, number: usize, value: u64) {
        if values.rsp == STACK_START {
            self.thread.registers[number] = value;
            return;
        }
        let index =
            self.values.iter().position(|other| other.cfa == values.rsp).expect("there is an inner frame");
        let place = UCONTEXT_ORDER.iter().position(|at| *at == number).unwrap() as u64;
        self.write_word(self.values[index].rsp + UCONTEXT_REGISTERS + place * 8, value);
    }

    fn write_ucontext(&mut self, start: u64, outer: FrameValues) {
        for (place, number) in UCONTEXT_ORDER.iter().enumerate() {
            let value = match *number {
                RBP => outer.rbp,
                RSP => outer.rsp,
                _ => self.random.next_u64(),
            };
            self.write_word(start + place as u64 * 8, value);
        }
        self.write_word(start + 128, outer.ip);
    }

    fn add_row(&mut self, ip: u64, row: UnwindRow) {
        if ip < FILE_START + (PAGES << 16) {
            let slot_start = (ip - FILE_START) / SLOT_BYTES * SLOT_BYTES;
            self.rows.push((slot_start, row));
        }
    }

    /// Returns the frames that the unwinder reports: the instruction, or the byte before the return address.
    fn packed_frames(&self) -> impl Iterator<Item = PackedFrame> {
        self.values.iter().zip(&self.frames).map(|(values, frame)| {
            let address = if frame.is_exact { values.ip } else { values.ip - 1 };
            let mark = if frame.cfa == CfaRule::None { FRAME_POINTER_BIT } else { 0 };
            let in_file = (FILE_START..FILE_START + FILE_BYTES + (1 << 16)).contains(&address);
            let file = FRAME_FILE_BIT | u64::from(FILE) << FRAME_FILE_SHIFT;
            let code = if in_file { file | (address - FILE_START + FILE_ADDRESS) } else { address };
            PackedFrame(code | mark)
        })
    }

    /// Sets the return address of the outermost frame.
    fn set_end_address(&mut self, plan: &StackPlan) {
        let last = self.values[self.values.len() - 1];
        let frame = self.frames[self.frames.len() - 1];
        if plan.end == StackEnd::Complete && frame.cfa == CfaRule::Rsp {
            self.write_word(last.cfa - 8, 0);
        }
    }

    /// Sets the start of the stack: a little above the outermost frame, or too far above.
    fn set_stack_start(&self, plan: &StackPlan, tables: &mut UnwindTables) {
        let last = self.values[self.values.len() - 1];
        let distance = if plan.ends_by_address { 0 } else { MAX_START_BYTES };
        tables.stack_start = last.rsp + distance + self.random.next_below(MAX_START_BYTES / 8) * 8;
    }

    /// Makes the memory of the outermost frame unreadable.
    fn remove_last_frame(&self, tables: &mut UnwindTables) {
        let last = self.values[self.values.len() - 1];
        let keep = (last.rsp - STACK_START) as usize;
        tables.memory[0].1.truncate(keep);
    }

    fn tables(&self) -> UnwindTables {
        let mut tables = empty_tables();
        tables.mappings = vec![
            MappingValue {
                start: FILE_START,
                end: FILE_START + FILE_BYTES + (1 << 16),
                bias: FILE_START - FILE_ADDRESS,
                file: FILE,
                reserved: 0,
            },
            MappingValue {
                start: ANONYMOUS_START,
                end: ANONYMOUS_START + (1 << 16),
                bias: 0,
                file: 0,
                reserved: 0,
            },
        ];
        let mut rows = self.rows.clone();
        rows.sort_by_key(|(start, _)| *start);
        let first_page = (FILE_ADDRESS >> 16) as u32;
        for page in 0..PAGES {
            let own = rows.iter().filter(|(start, _)| start >> 16 == page);
            let own = own.map(|(start, row)| UnwindRow { pc: *start as u16, ..*row });
            // Each page begins with a row, as the contract says.
            let mut own: Vec<UnwindRow> = own.collect();
            if own.first().is_none_or(|row| row.pc != 0) {
                own.insert(0, UnwindRow::new(0, CfaRule::Unsupported, 0, RbpRule::Unknown, 0));
            }
            let value = PageValue {
                state: PAGE_LOADED,
                chunk: 0,
                first_row: tables.rows.len() as u32,
                row_count: own.len() as u32,
                used_in: 0,
                reserved: 0,
            };
            tables.rows.extend(own);
            tables.pages.push((PageKey { file: FILE, page: first_page + page as u32 }, value));
        }
        let special =
            |state| PageValue { state, chunk: 0, first_row: 0, row_count: 0, used_in: 0, reserved: 0 };
        for (page, state) in [(EMPTY_PAGE, PAGE_EMPTY), (MISSING_PAGE, PAGE_REQUESTED)] {
            tables.pages.push((PageKey { file: FILE, page: first_page + page as u32 }, special(state)));
        }
        tables.memory = vec![(STACK_START, self.memory.clone())];
        tables
    }
}
