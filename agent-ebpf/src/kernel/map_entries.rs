//! Entries of hash maps, read in batches.

use std::io;
use std::os::fd::BorrowedFd;

use super::syscalls::{BatchCommand, BatchPosition, read_batch};

const FIRST_BATCH_ENTRIES: usize = 512;

/// Passes all entries of a hash map to `receive`, and deletes them with [`BatchCommand::Take`]. Returns their number.
/// The result is exact if nobody writes to the map meanwhile.
pub(super) fn read_entries<K: aya::Pod + Default, V: aya::Pod + Default>(
    map: BorrowedFd<'_>,
    command: BatchCommand,
    max_entries: usize,
    mut receive: impl FnMut(&K, &V),
) -> io::Result<usize> {
    let mut position = BatchPosition::default();
    let mut batch = FIRST_BATCH_ENTRIES.min(max_entries).max(1);
    let mut keys = vec![K::default(); batch];
    let mut values = vec![V::default(); batch];
    let mut read = 0;
    loop {
        let result = match read_batch(map, command, &mut position, &mut keys, &mut values) {
            Ok(result) => result,
            // A batch holds at least one whole bucket: a larger one may succeed.
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && batch < max_entries => {
                batch = (batch * 2).min(max_entries);
                keys.resize(batch, K::default());
                values.resize(batch, V::default());
                continue;
            }
            Err(error) => return Err(error),
        };
        keys.iter().zip(&values).take(result.count).for_each(|(key, value)| receive(key, value));
        read += result.count;
        if result.is_last {
            return Ok(read);
        }
    }
}
