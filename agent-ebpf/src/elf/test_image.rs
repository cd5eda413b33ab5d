//! Small ELF files for tests.

/// Address of the first byte of code.
pub const CODE_ADDRESS: u64 = 0x41_0000;
/// Address of the call frame information.
pub const FRAME_ADDRESS: u64 = 0x60_0000;

/// Parts of a file.
#[derive(Clone, Debug, Default)]
pub struct TestImage {
    /// Bytes of code at [`CODE_ADDRESS`].
    pub code: Vec<u8>,
    /// Bytes of a read-only segment at [`FRAME_ADDRESS`].
    pub frame: Vec<u8>,
    /// Offset and length of `.eh_frame_hdr` in `frame`.
    pub frame_header: Option<(u64, u64)>,
    /// Notes.
    pub notes: Vec<u8>,
    /// Sections: name, type, flags, address, bytes.
    pub sections: Vec<(&'static str, u32, u64, u64, Vec<u8>)>,
    /// Address of the first instruction.
    pub entry: u64,
}

fn segment(kind: u32, flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    for field in [offset, address, address, size, size, 0x1000] {
        bytes.extend(field.to_le_bytes());
    }
    bytes
}

fn section(name: u32, kind: u32, flags: u64, address: u64, place: (u64, u64)) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(name.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    for field in [flags, address, place.0, place.1] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend([0; 8]);
    bytes.extend([0; 16]);
    bytes
}

impl TestImage {
    /// Returns the bytes of the file.
    pub fn build(&self) -> Vec<u8> {
        const CODE_OFFSET: u64 = 0x1000;
        let frame_offset = (CODE_OFFSET + self.code.len() as u64).next_multiple_of(0x1000);
        let notes_offset = frame_offset + self.frame.len() as u64;
        let mut segments = vec![
            segment(1, 5, CODE_OFFSET, CODE_ADDRESS, self.code.len() as u64),
            segment(1, 4, frame_offset, FRAME_ADDRESS, self.frame.len() as u64),
        ];
        if let Some((offset, length)) = self.frame_header {
            segments.push(segment(0x6474_e550, 4, frame_offset + offset, FRAME_ADDRESS + offset, length));
        }
        if !self.notes.is_empty() {
            segments.push(segment(4, 4, notes_offset, 0, self.notes.len() as u64));
        }
        let mut body = Vec::new();
        body.extend(segments.concat());
        body.resize((CODE_OFFSET - 64) as usize, 0);
        body.extend(&self.code);
        body.resize((frame_offset - 64) as usize, 0);
        body.extend(&self.frame);
        body.extend(&self.notes);
        let section_table = self.append_sections(&mut body);
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
        for field in [self.entry, 64, section_table] {
            file.extend(field.to_le_bytes());
        }
        let section_count = if section_table == 0 { 0 } else { self.sections.len() as u16 + 2 };
        file.extend([0; 4]);
        for field in [64, 56, segments.len() as u16, 64, section_count, section_count.saturating_sub(1)] {
            file.extend(field.to_le_bytes());
        }
        file.extend(body);
        file
    }

    /// Appends the sections to what follows the file header. Returns the offset of their table, 0 without any.
    fn append_sections(&self, body: &mut Vec<u8>) -> u64 {
        if self.sections.is_empty() {
            return 0;
        }
        let mut names = vec![0];
        let mut table = vec![section(0, 0, 0, 0, (0, 0))];
        for (name, kind, flags, address, bytes) in &self.sections {
            let place = (64 + body.len() as u64, bytes.len() as u64);
            table.push(section(names.len() as u32, *kind, *flags, *address, place));
            names.extend(name.as_bytes());
            names.push(0);
            body.extend(bytes);
        }
        table.push(section(0, 3, 0, 0, (64 + body.len() as u64, names.len() as u64)));
        body.extend(names);
        let offset = 64 + body.len() as u64;
        body.extend(table.concat());
        offset
    }
}

/// Returns a note.
pub fn note(owner: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((owner.len() as u32).to_le_bytes());
    bytes.extend((content.len() as u32).to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    for field in [owner, content] {
        bytes.extend(field);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}
