//! Places of blocks of rows in chunks.

use std::collections::BTreeMap;

use crate::layout::{MAX_ROW_CHUNKS, ROWS_PER_CHUNK, UnwindRow};

/// Bytes of one chunk.
const CHUNK_BYTES: u64 = ROWS_PER_CHUNK as u64 * size_of::<UnwindRow>() as u64;

/// Rows of one page in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowBlock {
    /// Index of the chunk.
    pub chunk: u32,
    /// First row in the chunk.
    pub first_row: u32,
    /// Number of rows.
    pub row_count: u32,
}

/// Allocator of blocks of rows. Chunks that no block is in take no memory.
#[derive(Debug)]
pub struct RowArena {
    max_chunks: u32,
    chunks: Vec<Chunk>,
    used_rows: u64,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Free rows: number by first row. Empty if the chunk is not in use.
    free: BTreeMap<u32, u32>,
    /// Used rows: number by first row.
    used: BTreeMap<u32, u32>,
}

impl Chunk {
    fn is_in_use(&self) -> bool {
        !self.used.is_empty()
    }

    fn has_free_range(&self, row_count: u32) -> bool {
        self.free.values().any(|free| *free >= row_count)
    }

    /// Takes rows from the smallest free range that has enough of them.
    fn allocate(&mut self, row_count: u32) -> Option<u32> {
        let fitting = self.free.iter().filter(|(_, free)| **free >= row_count);
        let (first_row, free) =
            fitting.min_by_key(|(_, free)| **free).map(|(first, free)| (*first, *free))?;
        self.free.remove(&first_row);
        if free > row_count {
            self.free.insert(first_row + row_count, free - row_count);
        }
        self.used.insert(first_row, row_count);
        Some(first_row)
    }

    /// Returns rows to the free ranges and joins neighbors.
    fn release(&mut self, first_row: u32, row_count: u32) {
        let mut start = first_row;
        let mut end = first_row + row_count;
        if let Some(after) = self.free.remove(&end) {
            end += after;
        }
        let before = self.free.range(..start).next_back().map(|(first, free)| (*first, *free));
        if let Some((before_start, before_count)) = before
            && before_start + before_count == start
        {
            start = before_start;
        }
        self.free.insert(start, end - start);
    }
}

impl RowArena {
    /// Starts empty. `max_bytes` bounds the bytes of chunks.
    pub fn new(max_bytes: u64) -> Self {
        let max_chunks = (max_bytes / CHUNK_BYTES).min(MAX_ROW_CHUNKS.into()) as u32;
        Self { max_chunks, chunks: Vec::new(), used_rows: 0 }
    }

    /// Places rows. Chunks with low numbers go first, so that those with high numbers become empty. None if no chunk
    /// has enough free rows in one piece, or there are no rows.
    pub fn allocate(&mut self, row_count: u32) -> Option<RowBlock> {
        if row_count == 0 || row_count > ROWS_PER_CHUNK {
            return None;
        }
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            if !chunk.is_in_use() {
                chunk.free = BTreeMap::from([(0, ROWS_PER_CHUNK)]);
            }
            if let Some(first_row) = chunk.allocate(row_count) {
                self.used_rows += u64::from(row_count);
                return Some(RowBlock { chunk: index as u32, first_row, row_count });
            }
        }
        if self.chunks.len() >= self.max_chunks as usize {
            return None;
        }
        self.chunks.push(Chunk::default());
        self.allocate(row_count)
    }

    /// Frees a block. Returns whether its chunk is empty now. A block that is not allocated is ignored.
    pub fn free(&mut self, block: RowBlock) -> bool {
        let Some(chunk) = self.chunks.get_mut(block.chunk as usize) else { return false };
        if chunk.used.get(&block.first_row) != Some(&block.row_count) {
            return false;
        }
        chunk.used.remove(&block.first_row);
        chunk.release(block.first_row, block.row_count);
        self.used_rows -= u64::from(block.row_count);
        !chunk.is_in_use()
    }

    /// Starts a trial of freeing blocks.
    pub(super) fn trial(&self) -> FreeingTrial<'_> {
        FreeingTrial { arena: self, chunks: BTreeMap::new() }
    }

    /// Returns the rows in blocks.
    pub fn used_rows(&self) -> u64 {
        self.used_rows
    }

    /// Returns the bytes of all chunks with blocks.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.is_in_use()).count() as u64 * CHUNK_BYTES
    }
}

/// Chunks as they would be if blocks were free.
pub(super) struct FreeingTrial<'a> {
    arena: &'a RowArena,
    chunks: BTreeMap<u32, Chunk>,
}

impl FreeingTrial<'_> {
    /// Frees an allocated block in the trial. Returns whether its chunk has enough free rows in one piece then.
    pub(super) fn free(&mut self, block: RowBlock, row_count: u32) -> bool {
        let Some(original) = self.arena.chunks.get(block.chunk as usize) else { return false };
        let chunk = self.chunks.entry(block.chunk).or_insert_with(|| original.clone());
        chunk.release(block.first_row, block.row_count);
        chunk.has_free_range(row_count)
    }
}
