//! Memory that is shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Shared mapping of a BPF map or of the buffer of a perf event. Unmapped on drop.
pub(super) struct MemoryMap {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the value, and all access is by atomic words or by copies of bytes.
unsafe impl Send for MemoryMap {}
// SAFETY: as above. Writers of bytes need `&mut`.
unsafe impl Sync for MemoryMap {}

impl MemoryMap {
    /// Maps `length` bytes of a descriptor, readable and writable.
    pub(super) fn new(fd: BorrowedFd<'_>, length: usize, offset: u64) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses the address, so no other memory is replaced.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { address, length })
    }

    /// Returns the word at a byte offset.
    ///
    /// # Panics
    ///
    /// If the word is outside or not aligned: offsets are constants of layouts.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        let address = self.checked_address(offset, align_of::<AtomicU64>(), size_of::<AtomicU64>());
        // SAFETY: in bounds and aligned. The kernel writes concurrently, which atomics allow.
        unsafe { &*address.cast::<AtomicU64>() }
    }

    /// Returns the half word at a byte offset.
    ///
    /// # Panics
    ///
    /// If it is outside or not aligned.
    pub(super) fn half_word(&self, offset: usize) -> &AtomicU32 {
        let address = self.checked_address(offset, align_of::<AtomicU32>(), size_of::<AtomicU32>());
        // SAFETY: in bounds and aligned. The kernel writes concurrently, which atomics allow.
        unsafe { &*address.cast::<AtomicU32>() }
    }

    /// Copies bytes from an offset.
    ///
    /// # Panics
    ///
    /// If the range is outside.
    pub(super) fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.checked_address(offset, 1, bytes.len());
        // SAFETY: in bounds. The protocol of the ring keeps the kernel from writing to this range.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies bytes to an offset.
    ///
    /// # Panics
    ///
    /// If the range is outside.
    pub(super) fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.checked_address(offset, 1, bytes.len());
        // SAFETY: in bounds, and `&mut` excludes other writers of the process.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    fn checked_address(&self, offset: usize, alignment: usize, length: usize) -> *mut u8 {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(
            is_inside && offset.is_multiple_of(alignment),
            "offset {offset} is not in {} bytes",
            self.length
        );
        // SAFETY: in bounds of the mapping.
        unsafe { self.address.as_ptr().add(offset) }
    }
}

impl Drop for MemoryMap {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to the value, and no reference outlives it.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
    }
}
