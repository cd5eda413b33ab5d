//! ELF files with call frame information of the fuzzer.

/// Address of the call frame information. Code lies below.
const FRAME_ADDRESS: u64 = 0x10_0000;
/// Bytes of an `.eh_frame_hdr` without a search table.
const BARE_HEADER: [u8; 12] = [1, 0x1b, 0xff, 0xff, 8, 0, 0, 0, 0, 0, 0, 0];
const FILE_HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
const SECTION_NAMES: &[u8] = b"\0.debug_frame\0";

/// Place of the call frame information in the file.
#[derive(Clone, Copy)]
pub enum FrameLayout {
    /// `.eh_frame_hdr` and what follows it.
    WithHeader,
    /// `.eh_frame` without a search table.
    WithoutTable,
    /// `.debug_frame`.
    DebugFrame,
}

fn segment(kind: u32, flags: u32, place: [u64; 3]) -> Vec<u8> {
    let [offset, address, size] = place;
    let mut bytes = [kind.to_le_bytes(), flags.to_le_bytes()].concat();
    bytes.extend([offset, address, address, size, size, 0x1000].map(u64::to_le_bytes).concat());
    bytes
}

fn section(name: u32, kind: u32, place: [u64; 2]) -> Vec<u8> {
    let mut bytes = [name.to_le_bytes(), kind.to_le_bytes()].concat();
    bytes.extend([0, 0, place[0], place[1], 0, 0, 0].map(u64::to_le_bytes).concat());
    bytes
}

/// Returns the bytes of a file.
pub fn build(layout: FrameLayout, content: &[u8]) -> Vec<u8> {
    let frame = match layout {
        FrameLayout::WithoutTable => [&BARE_HEADER[..], content].concat(),
        FrameLayout::WithHeader | FrameLayout::DebugFrame => content.to_vec(),
    };
    let frame_offset = FILE_HEADER_BYTES + 3 * SEGMENT_BYTES;
    let frame_bytes = frame.len() as u64;
    let header_bytes = if matches!(layout, FrameLayout::DebugFrame) { 0 } else { frame_bytes };
    let names_offset = frame_offset + frame_bytes;
    let sections = [
        section(0, 0, [0, 0]),
        section(1, 1, [frame_offset, frame_bytes]),
        section(0, 3, [names_offset, SECTION_NAMES.len() as u64]),
    ];
    let section_count = if header_bytes == 0 { 3u16 } else { 0 };
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    let sections_offset = names_offset + SECTION_NAMES.len() as u64;
    file.extend([0x100, FILE_HEADER_BYTES, sections_offset].map(u64::to_le_bytes).concat());
    file.extend([0; 4]);
    file.extend([64, SEGMENT_BYTES as u16, 3, 64, section_count, 2].map(u16::to_le_bytes).concat());
    file.extend(segment(1, 5, [0, 0, frame_offset]));
    file.extend(segment(1, 4, [frame_offset, FRAME_ADDRESS, frame_bytes]));
    file.extend(segment(0x6474_e550, 4, [frame_offset, FRAME_ADDRESS, header_bytes]));
    file.extend(frame);
    file.extend(SECTION_NAMES);
    file.extend(sections.concat());
    file
}
