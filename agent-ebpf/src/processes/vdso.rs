//! Code that the kernel maps into each process (vdso).

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::folder::ProcFolder;
use super::maps::{Mapping, MappingKind, MapsParser};

const MAX_VDSO_BYTES: usize = 64 << 10;
const MAX_MAPS_BYTES: usize = 4 << 20;
const MAX_MAPPINGS: usize = 4096;
/// Processes of 32 bits, which have another image, map it below.
const MIN_ADDRESS: u64 = 1 << 32;

/// Image of the vdso of processes of 64 bits, copied from the agent itself.
///
/// The memory of another process is never read: it could put a file of a remote file system at the place of its vdso
/// at any time, and the read would wait for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdsoImage {
    /// Bytes.
    pub bytes: Arc<[u8]>,
}

// === impl VdsoImage ===

impl VdsoImage {
    /// Copies the image of the agent. Returns None if it has none.
    pub fn read(proc_folder: &ProcFolder) -> Option<Self> {
        let mut parser = MapsParser::new(MAX_MAPPINGS);
        parser.push(&proc_folder.read("self/maps", MAX_MAPS_BYTES).ok()?);
        let mappings = parser.finish().mappings;
        let mapping = mappings.iter().find(|mapping| mapping.kind == MappingKind::Vdso)?;
        let length = usize::try_from(mapping.end - mapping.start).ok()?;
        let mut bytes = vec![0; length.min(MAX_VDSO_BYTES)];
        let memory = proc_folder.open_file("self/mem").ok()?;
        read_memory(memory.as_fd(), mapping.start, &mut bytes).ok()?;
        (bytes.len() == length).then(|| Self { bytes: bytes.into() })
    }

    /// Returns whether a mapping has this image.
    pub fn is_mapped_at(&self, mapping: &Mapping) -> bool {
        let length = mapping.end.saturating_sub(mapping.start);
        mapping.start >= MIN_ADDRESS && usize::try_from(length) == Ok(self.bytes.len())
    }
}

/// Reads exactly these bytes.
fn read_memory(memory: BorrowedFd<'_>, start: u64, bytes: &mut [u8]) -> Result<(), Errno> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(memory, rest, start.saturating_add(filled as u64)) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_mapped_in_processes_of_64_bits_only() {
        let image = VdsoImage::read(&ProcFolder::open("/proc".as_ref()).unwrap()).unwrap();
        assert_eq!(image.bytes.get(..4), Some(&b"\x7fELF"[..]));
        let length = image.bytes.len() as u64;
        let mapping = |start: u64, length: u64| Mapping::new(start..start + length, 0, b"[vdso]");
        assert!(image.is_mapped_at(&mapping(0x7fff_0000_0000, length)));
        assert!(!image.is_mapped_at(&mapping(0xf7f0_0000, length)));
        assert!(!image.is_mapped_at(&mapping(0x7fff_0000_0000, length + 4096)));
    }
}
