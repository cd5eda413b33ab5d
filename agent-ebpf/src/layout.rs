//! Layout of what the BPF programs and user space share: the twin of `bpf/layout.h`. Both assert the sizes.

/// Maximum number of user frames of a stack.
pub const MAX_USER_FRAMES: usize = 256;
/// Maximum number of kernel frames of a stack.
pub const MAX_KERNEL_FRAMES: usize = 127;
/// Rows of one chunk of the map `row_chunks`.
pub const ROWS_PER_CHUNK: u32 = 32_768;
/// Maximum number of chunks.
pub const MAX_ROW_CHUNKS: u32 = 1024;
/// Rows are loaded by pages of `1 << ROW_PAGE_SHIFT` bytes of code.
pub const ROW_PAGE_SHIFT: u32 = 16;

/// Set in kernel addresses.
pub const FRAME_KERNEL_BIT: u64 = 1 << 63;
/// Set in frames that name a file.
pub const FRAME_FILE_BIT: u64 = 1 << 62;
/// Set in frames without a row, whose caller was found by frame pointer.
pub const FRAME_POINTER_BIT: u64 = 1 << 61;
/// Position of the file id.
pub const FRAME_FILE_SHIFT: u32 = 40;
/// Mask of the file id, after the shift.
pub const FRAME_FILE_MASK: u64 = 0x1f_ffff;
/// Mask of the address of a file frame.
pub const FRAME_FILE_ADDRESS_MASK: u64 = (1 << 40) - 1;
/// Mask of the address of other frames.
pub const FRAME_ADDRESS_MASK: u64 = (1 << 57) - 1;

/// Reason why the user part of a stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum StackEnd {
    /// Ended at the outermost frame, or it is a kernel thread.
    Complete = 0,
    /// Ended after [`MAX_USER_FRAMES`].
    Truncated = 1,
    /// The mappings of the process are not loaded yet.
    ProcessNotLoaded = 2,
    /// The process is outside of the PID namespace of the agent.
    ProcessNotVisible = 3,
    /// The rows of a page of code are not loaded yet.
    RowsNotLoaded = 4,
    /// The rule of a row cannot be followed.
    UnsupportedRule = 5,
    /// A rule needs a register whose value is lost.
    RegisterUnknown = 6,
    /// Stack memory is not resident.
    MemoryNotReadable = 7,
    /// There are no rows, and the frame pointer leads nowhere.
    BadFramePointer = 8,
    /// The caller's frame is not above the frame.
    NotProgressing = 9,
    /// User registers are not available.
    NoRegisters = 10,
    /// The frames did not fit into the memory for stacks of a window. The BPF program does not have this reason.
    FramesDropped = 11,
}

impl StackEnd {
    /// All reasons, by number.
    pub const ALL: [Self; 12] = [
        Self::Complete,
        Self::Truncated,
        Self::ProcessNotLoaded,
        Self::ProcessNotVisible,
        Self::RowsNotLoaded,
        Self::UnsupportedRule,
        Self::RegisterUnknown,
        Self::MemoryNotReadable,
        Self::BadFramePointer,
        Self::NotProgressing,
        Self::NoRegisters,
        Self::FramesDropped,
    ];

    /// Returns the reason with a number of the BPF program.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Returns the name in root frames and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Truncated => "truncated",
            Self::ProcessNotLoaded => "process_not_loaded",
            Self::ProcessNotVisible => "process_not_visible",
            Self::RowsNotLoaded => "rows_not_loaded",
            Self::UnsupportedRule => "unsupported_rule",
            Self::RegisterUnknown => "register_unknown",
            Self::MemoryNotReadable => "memory_not_readable",
            Self::BadFramePointer => "bad_frame_pointer",
            Self::NotProgressing => "not_progressing",
            Self::NoRegisters => "no_registers",
            Self::FramesDropped => "frames_dropped",
        }
    }
}

/// Reason why a sample that was taken was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum LostReason {
    /// No memory or capacity for a new key.
    CountsFull = 0,
    /// The frames of a new key did not fit into the ring.
    RingFull = 1,
    /// The state of the CPU was not found.
    NoState = 2,
}

impl LostReason {
    /// All reasons, by number.
    pub const ALL: [Self; 3] = [Self::CountsFull, Self::RingFull, Self::NoState];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::CountsFull => "counts_full",
            Self::RingFull => "ring_full",
            Self::NoState => "no_state",
        }
    }
}

/// Rule for the CFA of a frame: the stack pointer of its caller after the return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CfaRule {
    /// No row. By frame pointer, and the frame gets the mark.
    None = 0,
    /// rsp + cfa.
    Rsp = 1,
    /// rbp + cfa.
    Rbp = 2,
    /// rsp + 8, and 8 more if `ip & 15 >= cfa`.
    Plt = 3,
    /// Registers are in the ucontext at rsp.
    Signal = 4,
    /// `*(rsp + low half of cfa) + high half`.
    DerefRsp = 5,
    /// `*(rbp + low half of cfa) + high half`.
    DerefRbp = 6,
    /// DWARF register `cfa & 15` plus `cfa >> 4`.
    Register = 7,
    /// Code that is known to keep a frame pointer. The frame gets no mark.
    FramePointer = 8,
    /// Outermost frame.
    End = 9,
    /// A rule that the others cannot express.
    Unsupported = 10,
}

/// Rule for rbp of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RbpRule {
    /// Unchanged.
    Same = 0,
    /// At CFA + 8 × `rbp_offset8`.
    AtCfa = 1,
    /// At `*rbp`, in functions that realign their stack.
    AtRbp = 2,
    /// Not expressed.
    Unknown = 3,
}

/// Rule for the code from `pc` to the next row of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct UnwindRow {
    /// Low 16 bits of the address in the file.
    pub pc: u16,
    /// [`CfaRule`] in the low four bits, [`RbpRule`] above.
    pub rule: u8,
    /// Offset of the saved rbp from the CFA, in words.
    pub rbp_offset8: i8,
    /// Offset of the CFA.
    pub cfa: i32,
}

impl UnwindRow {
    /// Packs a row.
    pub fn new(pc: u16, cfa_rule: CfaRule, cfa: i32, rbp_rule: RbpRule, rbp_offset8: i8) -> Self {
        Self { pc, rule: cfa_rule as u8 | (rbp_rule as u8) << 4, rbp_offset8, cfa }
    }
}

/// Key of the map `pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(C)]
pub struct PageKey {
    /// File id.
    pub file: u32,
    /// Address in the file >> [`ROW_PAGE_SHIFT`].
    pub page: u32,
}

/// The BPF program has requested the page.
pub const PAGE_REQUESTED: u32 = 1;
/// The rows of the page are loaded.
pub const PAGE_LOADED: u32 = 2;
/// The page has no rows.
pub const PAGE_EMPTY: u32 = 3;

/// Value of the map `pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct PageValue {
    /// [`PAGE_REQUESTED`], [`PAGE_LOADED`] or [`PAGE_EMPTY`].
    pub state: u32,
    /// Index into `row_chunks`.
    pub chunk: u32,
    /// First row in the chunk.
    pub first_row: u32,
    /// Number of rows.
    pub row_count: u32,
    /// Low bits of the last window in which a sample used the page.
    pub used_in: u32,
    /// Zero.
    pub reserved: u32,
}

/// Key of the LPM trie `mappings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct MappingKey {
    /// Bits of `pid_be` and `address_be` that count.
    pub prefix_bits: u32,
    /// Process id, big endian.
    pub pid_be: u32,
    /// Address, big endian.
    pub address_be: u64,
}

/// Value of the map `mappings`: the whole mapping that the prefix is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct MappingValue {
    /// Start of the mapping.
    pub start: u64,
    /// End of the mapping.
    pub end: u64,
    /// Address in the file = address − bias, wrapping.
    pub bias: u64,
    /// File id. 0 is anonymous memory.
    pub file: u32,
    /// Zero.
    pub reserved: u32,
}

/// The BPF program has requested the process.
pub const PROCESS_REQUESTED: u32 = 1;
/// The mappings of the process are loaded.
pub const PROCESS_LOADED: u32 = 2;

/// Value of the map `processes`, by pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ProcessValue {
    /// Start of the process since boot.
    pub start_nanos: u64,
    /// Time of the last request of the process or of a mapping, `CLOCK_MONOTONIC`.
    pub requested_at: u64,
    /// Number that changes with each exec.
    pub exec_id: u32,
    /// [`PROCESS_REQUESTED`] or [`PROCESS_LOADED`].
    pub state: u32,
}

/// Identity of a counted stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(C)]
pub struct StackKey {
    /// Hash of all frames and the end.
    pub hash: [u64; 2],
    /// Start of the process since boot.
    pub start_nanos: u64,
    /// Id of the cgroup.
    pub cgroup: u64,
    /// Process id in the PID namespace of the agent. 0 if it is not visible.
    pub pid: u32,
    /// Process id in the initial namespace.
    pub host_pid: u32,
    /// Number that changes with each exec.
    pub exec_id: u32,
    /// [`StackEnd`].
    pub end: u32,
    /// Name of the process, or of the thread if requested.
    pub comm: [u8; 16],
}

/// Count of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct StackCount {
    /// Samples.
    pub samples: u64,
    /// Sum of period ÷ probability.
    pub nanos: u64,
}

/// Header of a record of the ring `stacks`. The frames follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StackRecord {
    /// Window of the sample.
    pub window: u64,
    /// Number of kernel frames.
    pub kernel_frames: u16,
    /// Number of user frames.
    pub user_frames: u16,
    /// Zero.
    pub reserved: u32,
    /// Identity.
    pub key: StackKey,
}

/// Request for the mappings of a process.
pub const REQUEST_PROCESS: u32 = 1;
/// The process has no mapping at an address.
pub const REQUEST_MAPPING: u32 = 2;
/// Request for the rows of a page.
pub const REQUEST_PAGE: u32 = 3;

/// Record of the ring `requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RequestRecord {
    /// [`REQUEST_PROCESS`], [`REQUEST_MAPPING`] or [`REQUEST_PAGE`].
    pub kind: u32,
    /// Process id.
    pub pid: u32,
    /// Process id in the initial namespace.
    pub host_pid: u32,
    /// Number that changes with each exec.
    pub exec_id: u32,
    /// Start of the process since boot.
    pub start_nanos: u64,
    /// Address without a mapping.
    pub address: u64,
    /// Page without rows.
    pub page: PageKey,
}

/// Value of the map `control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Control {
    /// Number of the window. Its lowest bit is the side.
    pub window: u64,
    /// Per side: a sample is taken if a random u32 is below.
    pub threshold: [u64; 2],
    /// Per side: 1 ÷ probability, 16 fractional bits.
    pub nanos_factor: [u64; 2],
    /// Not zero: no samples.
    pub is_stopped: u32,
    /// Process to sample. 0: all.
    pub pid_filter: u32,
    /// Not zero: stacks are counted by thread name.
    pub thread_names: u32,
    /// Inode of the PID namespace of the agent.
    pub pid_namespace_inode: u32,
    /// Not zero: with kernel frames.
    pub with_kernel_frames: u32,
    /// Zero.
    pub reserved_word: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

/// Counters of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CpuState {
    /// Odd while the program is inside.
    pub entries: u64,
    /// Samples taken: delivered and lost.
    pub taken: u64,
    /// Samples that are in a count.
    pub delivered: u64,
    /// Samples left out by probability.
    pub thinned: u64,
    /// Samples of an idle CPU.
    pub idle: u64,
    /// Lost samples by [`LostReason`].
    pub lost: [u64; 4],
    /// Delivered samples by [`StackEnd`].
    pub ends: [u64; 16],
    /// Time inside of the program, without the entry of the kernel.
    pub run_nanos: u64,
    /// Zero.
    pub reserved: [u64; 6],
}

const _: () = {
    assert!(size_of::<UnwindRow>() == 8);
    assert!(size_of::<PageKey>() == 8);
    assert!(size_of::<PageValue>() == 24);
    assert!(size_of::<MappingKey>() == 16);
    assert!(size_of::<MappingValue>() == 32);
    assert!(size_of::<ProcessValue>() == 24);
    assert!(size_of::<StackKey>() == 64);
    assert!(size_of::<StackCount>() == 16);
    assert!(size_of::<StackRecord>() == 80);
    assert!(size_of::<RequestRecord>() == 40);
    assert!(size_of::<Control>() == 96);
    assert!(size_of::<CpuState>() == 256);
};
