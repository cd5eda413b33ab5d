//! Builder of call frame information.

use std::sync::Arc;

use crate::elf::test_image::{FRAME_ADDRESS, TestImage};
use crate::elf::{ElfFile, MemoryImage};
use crate::unwind_rows::RowSource;

/// Augmentation, encoding of addresses and first instructions of the usual common entry.
pub const USUAL_COMMON: (&[u8], &[u8]) = (b"zR\0", &[0x0c, 7, 8, 0x90, 1]);

/// Section under construction, for [`FRAME_ADDRESS`].
#[derive(Clone, Debug, Default)]
pub struct FrameBuilder {
    /// Bytes of `.eh_frame`.
    pub bytes: Vec<u8>,
    /// Address and position of each entry.
    pub entries: Vec<(u64, u64)>,
    common: u64,
}

impl FrameBuilder {
    /// Starts with the usual common entry.
    pub fn new() -> Self {
        let mut builder = Self::default();
        builder.common(USUAL_COMMON.0, USUAL_COMMON.1);
        builder
    }

    fn append(&mut self, body: &[u8]) -> u64 {
        let position = self.bytes.len() as u64;
        let length = (body.len() as u32 + 4).next_multiple_of(8) - 4;
        self.bytes.extend(length.to_le_bytes());
        self.bytes.extend(body);
        self.bytes.resize(position as usize + 4 + length as usize, 0);
        position
    }

    /// Appends a common entry that the following entries use. Addresses are relative, with 4 bytes.
    pub fn common(&mut self, augmentation: &[u8], instructions: &[u8]) {
        let head = [&[0, 0, 0, 0, 1][..], augmentation, &[1, 0x78, 16, 1, 0x1b]].concat();
        self.common = self.append(&[&head[..], instructions].concat());
    }

    /// Appends an entry.
    pub fn entry(&mut self, start: u64, length: u32, instructions: &[u8]) {
        let position = self.bytes.len() as u64;
        let common_distance = (position + 4 - self.common) as u32;
        let displacement = start.wrapping_sub(FRAME_ADDRESS + position + 8) as u32;
        let head = [common_distance.to_le_bytes(), displacement.to_le_bytes(), length.to_le_bytes()].concat();
        self.append(&[&head[..], &[0], instructions].concat());
        self.entries.push((start, position));
    }

    /// Returns a file with the section and, if wanted, its search table.
    pub fn image(&self, with_table: bool) -> TestImage {
        let mut frame = self.bytes.clone();
        frame.extend([0; 4]);
        let header_offset = frame.len() as u64;
        let header_address = FRAME_ADDRESS + header_offset;
        let mut entries = self.entries.clone();
        entries.sort_by_key(|(start, _)| *start);
        let mut header =
            vec![1, 0x1b, if with_table { 3 } else { 0xff }, if with_table { 0x3b } else { 0xff }];
        header.extend((FRAME_ADDRESS.wrapping_sub(header_address + 4) as u32).to_le_bytes());
        if with_table {
            header.extend((entries.len() as u32).to_le_bytes());
            for (start, position) in entries {
                header.extend((start.wrapping_sub(header_address) as u32).to_le_bytes());
                header.extend(((FRAME_ADDRESS + position).wrapping_sub(header_address) as u32).to_le_bytes());
            }
        }
        let frame_header = Some((header_offset, header.len() as u64));
        frame.extend(header);
        TestImage { code: vec![0x90; 0x3_0000], frame, frame_header, ..TestImage::default() }
    }
}

/// Opens the rows of a file.
pub fn open_rows(image: &TestImage) -> RowSource {
    RowSource::open(&ElfFile::open(Arc::new(MemoryImage(image.build()))).unwrap()).unwrap()
}
