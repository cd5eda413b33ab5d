//! Inputs of the targets that read ELF files and call frame information.

use crate::unwind_file::{self, FrameLayout};

/// Common entry with relative addresses of 4 bytes, without its length: rsp + 8, return address at the CFA − 8.
const COMMON_ENTRY: [u8; 20] =
    [0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
/// Common entry of `.debug_frame`, without its length.
const DEBUG_COMMON_ENTRY: [u8; 16] = [0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
/// Address of the call frame information, as in the target.
const FRAME_ADDRESS: u32 = 0x10_0000;
const HEADER_BYTES: u32 = 12;

/// Programs as compilers and assemblers write them.
const PROGRAMS: [&[u8]; 8] = [
    &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x02, 0x80, 0x0c, 7, 8],
    &[0x44, 0x0a, 0x0e, 8, 0x41, 0x0b, 0x03, 0, 1, 0xc6],
    &[0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22],
    &[0x45, 0x0c, 10, 0, 0x4a, 0x10, 6, 2, 0x76, 0, 0x46, 0x0f, 3, 0x76, 0x78, 0x06],
    &[0x0f, 6, 0x77, 0x98, 1, 0x06, 0x23, 8, 0x86, 3],
    &[0x07, 16],
    &[0x0f, 4, 0x77, 0xa0, 1, 0x06, 0x10, 16, 3, 0x77, 0xa8, 1],
    &[0x04, 0, 0, 1, 0, 0x2e, 16, 0x16, 6, 2, 0x77, 0, 0x3f],
];

fn entry(body: &[&[u8]]) -> Vec<u8> {
    let mut body = body.concat();
    body.resize(body.len().next_multiple_of(4), 0);
    [&(body.len() as u32).to_le_bytes()[..], &body].concat()
}

/// Returns `.eh_frame`, the addresses of its entries, and their positions. `before` bytes are in front of it.
fn eh_frame(before: u32) -> (Vec<u8>, Vec<(u32, u32)>) {
    let mut section = entry(&[&COMMON_ENTRY]);
    let mut places = Vec::new();
    for (number, program) in (1u32..).zip(PROGRAMS) {
        let position = section.len() as u32;
        let start = number * 0x3000;
        let displacement = start.wrapping_sub(FRAME_ADDRESS + before + position + 8);
        let head = [position + 4, displacement, 0x2f00].map(u32::to_le_bytes).concat();
        section.extend(entry(&[&head, &[0], program]));
        places.push((start, position));
    }
    section.extend([0; 4]);
    (section, places)
}

/// Saves all of them.
pub fn seeds(save: &impl Fn(&str, &str, &[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let table_bytes = PROGRAMS.len() as u32 * 8;
    let (section, places) = eh_frame(HEADER_BYTES + table_bytes);
    let mut header = vec![1, 0x1b, 3, 0x3b];
    header.extend((HEADER_BYTES + table_bytes - 4).to_le_bytes());
    header.extend((places.len() as u32).to_le_bytes());
    for (start, position) in places {
        header.extend(start.wrapping_sub(FRAME_ADDRESS).to_le_bytes());
        header.extend((HEADER_BYTES + table_bytes + position).to_le_bytes());
    }
    let with_table = [header, section].concat();
    let without_table = eh_frame(HEADER_BYTES).0;
    let mut debug_frame = entry(&[&DEBUG_COMMON_ENTRY]);
    for (number, program) in (1u64..).zip(PROGRAMS) {
        let addresses = [number * 0x3000, 0x2f00].map(u64::to_le_bytes).concat();
        debug_frame.extend(entry(&[&[0; 4], &addresses, program]));
    }
    let layouts = [FrameLayout::WithHeader, FrameLayout::WithoutTable, FrameLayout::DebugFrame];
    let contents = [with_table, without_table, debug_frame];
    for ((number, layout), content) in (0u8..).zip(layouts).zip(contents) {
        save("unwind-rows", &format!("seed-{number}"), &[&[number][..], &content].concat())?;
        save("elf-file", &format!("seed-{number}"), &unwind_file::build(layout, &content))?;
    }
    Ok(())
}
