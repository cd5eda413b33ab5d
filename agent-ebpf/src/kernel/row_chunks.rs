//! Unwind rows in the map `row_chunks`.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::maps::{Array, ArrayOfMaps, IterableMap, MapData};

use super::error::KernelError;
use super::memory_map::MemoryMap;
use super::syscalls::delete_array_entry;
use crate::layout::{MAX_ROW_CHUNKS, ROWS_PER_CHUNK, UnwindRow};

/// Flag of an array that can be mapped.
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// Memory of a chunk: its rows and the header of the array.
const CHUNK_BYTES: u64 = ROWS_PER_CHUNK as u64 * size_of::<UnwindRow>() as u64 + 1024;

/// Chunk of rows. The type of the elements is that of the definition in C.
type RowChunk = Array<MapData, u64>;

/// Chunks that exist, each an array in the map of arrays.
pub(super) struct RowChunks {
    outer: ArrayOfMaps<MapData, RowChunk>,
    outer_fd: OwnedFd,
    chunks: BTreeMap<u32, RowChunk>,
}

impl RowChunks {
    /// Takes over the map of arrays.
    pub(super) fn new(outer: ArrayOfMaps<MapData, RowChunk>, outer_fd: OwnedFd) -> Self {
        Self { outer, outer_fd, chunks: BTreeMap::new() }
    }

    /// Returns the memory of all chunks. Kernels before 6.4 report twice of it.
    pub(super) fn bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES
    }

    /// Writes rows and creates the chunk if it does not exist.
    pub(super) fn write(
        &mut self,
        chunk: u32,
        first_row: u32,
        rows: &[UnwindRow],
    ) -> Result<(), KernelError> {
        let end_row = u64::from(first_row) + rows.len() as u64;
        if chunk >= MAX_ROW_CHUNKS || end_row > u64::from(ROWS_PER_CHUNK) {
            let max_chunks = MAX_ROW_CHUNKS;
            return Err(KernelError::RowsOutOfBounds {
                chunk,
                first_row,
                end_row,
                max_chunks,
                max_rows: ROWS_PER_CHUNK,
            });
        }
        if !self.chunks.contains_key(&chunk) {
            let created = self.create(chunk)?;
            self.chunks.insert(chunk, created);
        }
        match self.chunks.get(&chunk) {
            Some(array) if !rows.is_empty() => write_rows(descriptor_of(array), first_row, rows),
            _ => Ok(()),
        }
    }

    /// Removes a chunk. Its memory is free as soon as no program uses it.
    pub(super) fn free(&mut self, chunk: u32) -> Result<(), KernelError> {
        if self.chunks.remove(&chunk).is_none() {
            return Ok(());
        }
        delete_array_entry(self.outer_fd.as_fd(), chunk)
            .map_err(|error| KernelError::call("remove a chunk of unwind rows", error))
    }

    fn create(&mut self, chunk: u32) -> Result<RowChunk, KernelError> {
        let created = RowChunk::create(ROWS_PER_CHUNK, BPF_F_MMAPABLE)
            .map_err(|error| KernelError::Map { operation: "create a chunk of unwind rows", error })?;
        self.outer
            .set(chunk, &created, 0)
            .map_err(|error| KernelError::Map { operation: "add a chunk of unwind rows", error })?;
        Ok(created)
    }
}

fn descriptor_of(chunk: &RowChunk) -> BorrowedFd<'_> {
    IterableMap::map(chunk).fd().as_fd()
}

/// Writes rows through a mapping of their pages. It is short-lived: pages of the map that stay mapped count as memory
/// of the process.
fn write_rows(array: BorrowedFd<'_>, first_row: u32, rows: &[UnwindRow]) -> Result<(), KernelError> {
    let page_size = rustix::param::page_size();
    let start = first_row as usize * size_of::<UnwindRow>();
    let page_start = start - start % page_size;
    let bytes: Vec<u8> = rows.iter().flat_map(row_bytes).collect();
    let length = (start + bytes.len()).next_multiple_of(page_size) - page_start;
    let mut memory = MemoryMap::new(array, length, page_start as u64)
        .map_err(|error| KernelError::call("map a chunk of unwind rows", error))?;
    memory.copy_in(start - page_start, &bytes);
    Ok(())
}

fn row_bytes(row: &UnwindRow) -> [u8; 8] {
    let [pc_low, pc_high] = row.pc.to_ne_bytes();
    let [offset] = row.rbp_offset8.to_ne_bytes();
    let [cfa_0, cfa_1, cfa_2, cfa_3] = row.cfa.to_ne_bytes();
    [pc_low, pc_high, row.rule, offset, cfa_0, cfa_1, cfa_2, cfa_3]
}
