//! One descriptor that is readable when there is work.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

use super::error::KernelError;

/// Events taken from the kernel by one call.
const EVENTS_PER_CALL: usize = 16;

/// Set of descriptors as one descriptor.
pub(super) struct Wakeups {
    set: OwnedFd,
}

impl Wakeups {
    /// Creates an empty set.
    pub(super) fn new() -> Result<Self, KernelError> {
        let set = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|error| KernelError::call("create an epoll descriptor", error.into()))?;
        Ok(Self { set })
    }

    /// Adds a descriptor that counts as readable while it has data.
    pub(super) fn add_readable(&self, fd: BorrowedFd<'_>) -> Result<(), KernelError> {
        self.add(fd, EventFlags::IN)
    }

    /// Adds a descriptor that counts as readable after a wake-up only. A ring with data whose writer asked for no
    /// wake-up does not count.
    pub(super) fn add_woken(&self, fd: BorrowedFd<'_>) -> Result<(), KernelError> {
        self.add(fd, EventFlags::IN | EventFlags::ET)
    }

    fn add(&self, fd: BorrowedFd<'_>, flags: EventFlags) -> Result<(), KernelError> {
        epoll::add(&self.set, fd, EventData::new_u64(0), flags)
            .map_err(|error| KernelError::call("add a descriptor to epoll", error.into()))
    }

    /// Waits for a wake-up, and forgets it. Returns whether there was one.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let empty = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [empty; EVENTS_PER_CALL];
        // The longest wait that the kernel accepts is far above any timeout.
        let timeout = Timespec::try_from(timeout).ok();
        let woken = epoll::wait(&self.set, &mut events, timeout.as_ref()).unwrap_or(0);
        let mut last = woken;
        let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
        // More descriptors than fit into one call: each call returns others. Readable ones return forever, so the
        // number of calls is bounded.
        for _ in 0..EVENTS_PER_CALL {
            if last < EVENTS_PER_CALL {
                break;
            }
            last = epoll::wait(&self.set, &mut events, Some(&nothing)).unwrap_or(0);
        }
        woken > 0
    }
}

impl AsFd for Wakeups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
