//! Digest of a part of the content of a file.

use super::file::ElfFile;
use super::read_at::ReadError;

const BLOCK_BYTES: u64 = 4096;
/// Blocks in equal distances over the file. A file that has not more than these is read whole.
const BLOCKS: u64 = 32;
/// Bytes of the program headers: the most that the kernel runs.
const MAX_SEGMENT_TABLE_BYTES: u64 = 64 << 10;
const DIGEST_BYTES: usize = 16;

/// First half of the SHA-256 of parts of a file: headers, both ends, blocks in equal distances, and the start of its
/// table of unwind entries. Files of up to 128 KiB count whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentDigest([u8; DIGEST_BYTES]);

impl ElfFile {
    /// Reads at most 260 KiB of the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn content_digest(&self) -> Result<ContentDigest, ReadError> {
        let source = self.source();
        let size = source.size();
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        context.update(&size.to_be_bytes());
        let mut add = |offset: u64, length: u64| -> Result<(), ReadError> {
            context.update(&source.read_up_to(offset, length)?);
            Ok(())
        };
        if size <= BLOCKS * BLOCK_BYTES {
            add(0, size)?;
        } else {
            for block in 0..BLOCKS {
                add(block_offset(size, block), BLOCK_BYTES)?;
            }
            let (offset, length) = self.segment_table();
            add(offset, length.min(MAX_SEGMENT_TABLE_BYTES))?;
            // Headers may point behind the end of a damaged file.
            let parts = self.eh_frame_header().into_iter().chain(self.code_segments().take(BLOCKS as usize));
            for part in parts.filter(|part| part.offset < size) {
                add(part.offset, part.file_size.min(BLOCK_BYTES))?;
            }
        }
        let digest = context.finish();
        let mut bytes = [0; DIGEST_BYTES];
        bytes.iter_mut().zip(digest.as_ref()).for_each(|(target, byte)| *target = *byte);
        Ok(ContentDigest(bytes))
    }
}

/// Returns the offset of a block: the first one starts the file, and the last one ends it.
fn block_offset(size: u64, block: u64) -> u64 {
    let last = u128::from(size.saturating_sub(BLOCK_BYTES));
    // Not above `last`, which is a u64.
    (last * u128::from(block) / u128::from(BLOCKS - 1)) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::elf::MemoryImage;
    use crate::elf::test_image::TestImage;

    fn digest(bytes: &[u8]) -> ContentDigest {
        ElfFile::open(Arc::new(MemoryImage(bytes.to_vec()))).unwrap().content_digest().unwrap()
    }

    #[test]
    fn small_file_counts_whole() {
        let bytes = TestImage { code: vec![0x90; 20_000], ..TestImage::default() }.build();
        for position in (0x1000..bytes.len()).step_by(997) {
            let mut other = bytes.clone();
            other[position] ^= 1;
            assert_ne!(digest(&other), digest(&bytes), "byte {position}");
        }
        assert_eq!(digest(&bytes), digest(&bytes));
    }

    #[test]
    fn large_file_counts_in_blocks_over_all_of_it() {
        let bytes = TestImage { code: vec![0x90; 4 << 20], ..TestImage::default() }.build();
        let same = digest(&bytes);
        for block in 0..BLOCKS {
            let mut other = bytes.clone();
            let position = block_offset(bytes.len() as u64, block) as usize + 4000;
            other[position] ^= 1;
            assert_ne!(digest(&other), same, "block {block}");
        }
        assert_eq!(block_offset(bytes.len() as u64, BLOCKS - 1) + BLOCK_BYTES, bytes.len() as u64);
    }
}
