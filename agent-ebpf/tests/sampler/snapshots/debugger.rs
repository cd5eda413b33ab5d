//! Stacks by gdb: it stops the process, and prints its registers and the frames.

use std::process::{Command, Stdio};

use super::ThreadSnapshot;
use crate::host_unwinder::ThreadState;

const REGISTERS: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "rip",
];
/// Prints the instruction pointer of each frame. Frames of inlined functions share one with their caller.
const PRINT_FRAMES: &str = "python
frame = gdb.newest_frame()
while frame is not None:
    if frame.type() != gdb.INLINE_FRAME:
        print('frame', hex(frame.pc()))
    frame = frame.older()
end";

/// Saves the stack while the process is stopped, and the stack that a signal handler with a stack of its own
/// interrupted: from the red zone on up to 64 KiB, as far as they are readable.
const SAVE_STACKS: &str = "python
import struct
part_bytes = 65536
with open('FILE', 'wb') as file:
    saved = []
    frame = gdb.newest_frame()
    while frame is not None:
        pointer = int(frame.read_register('rsp')) & (1 << 64) - 1
        if not any(start <= pointer < start + part_bytes for start in saved):
            start = pointer - 128
            saved.append(start)
            words = []
            try:
                for address in range(start, start + part_bytes, 8):
                    words.append(gdb.selected_inferior().read_memory(address, 8).tobytes())
            except gdb.MemoryError:
                pass
            file.write(struct.pack('<QQ', start, 8 * len(words)) + b''.join(words))
        frame = frame.older()
end";

/// Stops a process. Returns the state of its first thread and the addresses of its frames by gdb.
pub fn stop_and_unwind(pid: u32) -> (ThreadSnapshot, Vec<u64>) {
    let mut commands = vec!["set pagination off".to_owned(), "set backtrace past-main on".to_owned()];
    commands.push("set backtrace past-entry on".to_owned());
    commands.push("thread 1".to_owned());
    commands.extend(REGISTERS.iter().map(|name| format!("printf \"register %lx\\n\", ${name}")));
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    commands.push(PRINT_FRAMES.to_owned());
    let stack_file = folder.path().join("stack");
    commands.push(SAVE_STACKS.replace("FILE", &stack_file.display().to_string()));
    std::fs::write(&script, commands.join("\n")).unwrap();
    let mut command = Command::new("gdb");
    command.args(["-q", "-nx", "-batch", "-p", &pid.to_string(), "-x"]).arg(&script);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers = |prefix: &str| -> Vec<u64> {
        let values = text.lines().filter_map(|line| line.strip_prefix(prefix));
        values.map(|value| u64::from_str_radix(value.trim().trim_start_matches("0x"), 16).unwrap()).collect()
    };
    let registers = numbers("register ");
    assert_eq!(registers.len(), REGISTERS.len(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let state = ThreadState { registers: std::array::from_fn(|index| registers[index]), ip: registers[16] };
    let memory = parse_parts(&std::fs::read(&stack_file).unwrap());
    (ThreadSnapshot { state, memory }, numbers("frame "))
}

/// Reads parts of memory: address, size and bytes of each.
fn parse_parts(mut rest: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (head, bytes) = rest.split_at(16);
        let start = u64::from_le_bytes(head[..8].try_into().unwrap());
        let size = u64::from_le_bytes(head[8..].try_into().unwrap()) as usize;
        parts.push((start, bytes[..size].to_vec()));
        rest = &bytes[size..];
    }
    parts
}
