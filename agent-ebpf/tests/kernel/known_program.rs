//! A static ELF program of four functions, written byte by byte: start calls outer, that calls middle, and that calls
//! inner, which computes forever.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use athanor_agent_ebpf::layout::{CfaRule, RbpRule, UnwindRow};
use tempfile::TempDir;

use crate::support::ChildProcess;

/// Address of the file in memory and in the ELF file.
pub const BASE: u64 = 0x40_0000;
/// End of its only mapping.
pub const END: u64 = BASE + 0x1000;
const CODE_OFFSET: u64 = 64 + 56;

/// Addresses of frames: of the call for callers.
pub const START_FRAME: u64 = BASE + CODE_OFFSET + 4;
pub const OUTER_FRAME: u64 = OUTER + 8;
pub const MIDDLE_FRAME: u64 = MIDDLE + 12;

const OUTER: u64 = BASE + CODE_OFFSET + 7;
const MIDDLE: u64 = OUTER + 14;
/// First instruction of the innermost function.
pub const INNER: u64 = MIDDLE + 15;
/// Address behind its last instruction.
pub const INNER_END: u64 = INNER + 5;

const CODE: [u8; 41] = [
    0xe8, 0x02, 0x00, 0x00, 0x00, // start: call outer
    0xeb, 0xfe, // jump to itself
    0x48, 0x83, 0xec, 0x18, // outer: sub rsp, 24
    0xe8, 0x05, 0x00, 0x00, 0x00, // call middle
    0x48, 0x83, 0xc4, 0x18, // add rsp, 24
    0xc3, // ret
    0x55, // middle: push rbp
    0x48, 0x89, 0xe5, // mov rbp, rsp
    0x48, 0x83, 0xec, 0x40, // sub rsp, 64
    0xe8, 0x02, 0x00, 0x00, 0x00, // call inner
    0xc9, // leave
    0xc3, // ret
    0x48, 0xff, 0xc0, // inner: inc rax
    0xeb, 0xfb, // jump to inner
];

/// Returns the rows of the code.
pub fn rows() -> Vec<UnwindRow> {
    let row =
        |address: u64, rule, cfa, rbp_rule, rbp| UnwindRow::new(address as u16, rule, cfa, rbp_rule, rbp);
    vec![
        row(BASE, CfaRule::End, 0, RbpRule::Same, 0),
        row(OUTER, CfaRule::Rsp, 8, RbpRule::Same, 0),
        row(OUTER + 4, CfaRule::Rsp, 32, RbpRule::Same, 0),
        row(MIDDLE, CfaRule::Rsp, 8, RbpRule::Same, 0),
        row(MIDDLE + 1, CfaRule::Rsp, 16, RbpRule::AtCfa, -2),
        row(MIDDLE + 4, CfaRule::Rbp, 16, RbpRule::AtCfa, -2),
        row(INNER, CfaRule::Rsp, 8, RbpRule::Same, 0),
    ]
}

/// Replaces the rules of the middle function, after its first instructions.
pub fn rows_with_middle(rule: CfaRule, cfa: i32) -> Vec<UnwindRow> {
    let mut rows = rows();
    rows[5] = UnwindRow::new((MIDDLE + 4) as u16, rule, cfa, RbpRule::AtRbp, 0);
    rows
}

/// Running program.
pub struct KnownProgram {
    pub child: ChildProcess,
    _folder: TempDir,
}

impl KnownProgram {
    /// Writes and starts the program.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known");
        fs::write(&path, image()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let child = ChildProcess::start(path.to_str().unwrap(), &[]);
        Self { child, _folder: folder }
    }
}

fn image() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    bytes.extend([2, 0, 62, 0, 1, 0, 0, 0]); // executable, x86-64, version 1
    bytes.extend((BASE + CODE_OFFSET).to_le_bytes()); // entry
    bytes.extend(64u64.to_le_bytes()); // program headers
    bytes.extend([0; 12]); // no sections, no flags
    bytes.extend([64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]); // sizes and numbers of headers
    bytes.extend([1, 0, 0, 0, 5, 0, 0, 0]); // loaded, readable and executable
    let size = CODE_OFFSET + CODE.len() as u64;
    for number in [0, BASE, BASE, size, size, 0x1000] {
        bytes.extend(u64::to_le_bytes(number));
    }
    bytes.extend(CODE);
    bytes
}
