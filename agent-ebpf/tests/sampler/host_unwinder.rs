//! The unwinder of the BPF program, compiled for the host with sanitizers, as a child process.

use std::io::{BufReader, BufWriter, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use athanor_agent_ebpf::frame::PackedFrame;
use athanor_agent_ebpf::layout::{
    MAX_USER_FRAMES, MappingValue, PageKey, PageValue, ProcessValue, StackEnd, UnwindRow,
};

use crate::programs::ProgramBuild;

const COMMAND_TABLES: u32 = 1;
const COMMAND_UNWIND: u32 = 2;

/// Headers of programs with the unwinder.
pub const HOST_HEADERS: &[&str] =
    &["../../../bpf/unwind.h", "../../../bpf/layout.h", "../../../bpf/host/host_tables.h"];
const HOST_BUILD: ProgramBuild = ProgramBuild {
    headers: HOST_HEADERS,
    arguments: &["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    ..ProgramBuild::c("unwind_host", &["../../../bpf/host/unwind_host.c"])
};

/// Maps of the BPF program and memory of a process.
#[derive(Clone, Debug)]
pub struct UnwindTables {
    /// Process id.
    pub pid: u32,
    /// Entry of the process.
    pub process: ProcessValue,
    /// Stack pointer of the first instruction of the process. 0 if it is not known.
    pub stack_start: u64,
    /// Mappings.
    pub mappings: Vec<MappingValue>,
    /// Pages of rows.
    pub pages: Vec<(PageKey, PageValue)>,
    /// Rows of all chunks.
    pub rows: Vec<UnwindRow>,
    /// Readable memory by address.
    pub memory: Vec<(u64, Vec<u8>)>,
}

/// State of a thread to unwind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Registers by DWARF number.
    pub registers: [u64; 16],
    /// Instruction pointer.
    pub ip: u64,
}

/// Result of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwoundStack {
    /// Reason why the walk ended.
    pub end: StackEnd,
    /// Frames, innermost first.
    pub frames: Vec<PackedFrame>,
    /// Requests for what is not loaded.
    pub requests: u32,
}

/// Running unwinder.
#[derive(Debug)]
pub struct HostUnwinder {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
    identity: ProcessIdentityOfWalk,
}

/// Identity of the process in the samples.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessIdentityOfWalk {
    pid: u32,
    exec_id: u32,
    start_nanos: u64,
}

impl HostUnwinder {
    /// Builds and starts the unwinder. Returns None and prints a skip line without a C compiler.
    pub fn start(test: &str) -> Option<Self> {
        let path = HOST_BUILD.build(test)?;
        let mut command = Command::new(path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = BufWriter::new(child.stdin.take().unwrap());
        let output = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, input, output, identity: ProcessIdentityOfWalk::default() })
    }

    /// Replaces all tables.
    pub fn load(&mut self, tables: &UnwindTables) {
        let process = tables.process;
        self.identity = ProcessIdentityOfWalk {
            pid: tables.pid,
            exec_id: process.exec_id,
            start_nanos: process.start_nanos,
        };
        self.write_u32(&[COMMAND_TABLES, tables.pid]);
        self.write_u64(&[process.start_nanos, process.requested_at]);
        self.write_u32(&[process.exec_id, process.state]);
        self.write_u64(&[tables.stack_start]);
        self.write_count(tables.mappings.len());
        for mapping in &tables.mappings {
            self.write_u64(&[mapping.start, mapping.end, mapping.bias]);
            self.write_u32(&[mapping.file, mapping.reserved]);
        }
        self.write_count(tables.pages.len());
        for (key, page) in &tables.pages {
            self.write_u32(&[key.file, key.page, page.state, page.chunk, page.first_row]);
            self.write_u32(&[page.row_count, page.used_in, page.reserved]);
        }
        self.write_count(tables.rows.len());
        for row in &tables.rows {
            self.write(&row.pc.to_ne_bytes());
            self.write(&[row.rule, row.rbp_offset8.cast_unsigned()]);
            self.write(&row.cfa.to_ne_bytes());
        }
        self.write_count(tables.memory.len());
        for (address, bytes) in &tables.memory {
            self.write_u64(&[*address, bytes.len() as u64]);
        }
        for (_, bytes) in &tables.memory {
            self.write(bytes);
        }
    }

    /// Unwinds a thread of the process of the tables.
    pub fn unwind(&mut self, thread: &ThreadState) -> UnwoundStack {
        let identity = self.identity;
        self.write_u32(&[COMMAND_UNWIND, identity.pid, identity.exec_id]);
        self.write_u64(&[identity.start_nanos]);
        self.write_u64(&thread.registers);
        self.write_u64(&[thread.ip]);
        self.input.flush().expect("the unwinder lives");
        let end = self.read_u32();
        let count = self.read_u32() as usize;
        let requests = self.read_u32();
        assert!(count <= MAX_USER_FRAMES, "{count} frames");
        let mut bytes = vec![0; count * 8];
        self.output.read_exact(&mut bytes).expect("the unwinder lives");
        let frames =
            bytes.chunks_exact(8).map(|word| PackedFrame(u64::from_ne_bytes(word.try_into().unwrap())));
        let end = StackEnd::from_number(end).unwrap_or_else(|| panic!("{end} is no end of a stack"));
        UnwoundStack { end, frames: frames.collect(), requests }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).expect("the unwinder lives");
    }

    fn write_count(&mut self, count: usize) {
        self.write_u32(&[u32::try_from(count).unwrap()]);
    }

    fn write_u32(&mut self, numbers: &[u32]) {
        for number in numbers {
            self.write(&number.to_ne_bytes());
        }
    }

    fn write_u64(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.write(&number.to_ne_bytes());
        }
    }

    fn read_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.output.read_exact(&mut bytes).expect("the unwinder lives");
        u32::from_ne_bytes(bytes)
    }
}

impl Drop for HostUnwinder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
