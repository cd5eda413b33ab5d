//! CPU sampler: records stacks of this process on a timer signal.
//!
//! ```text
//!  ITIMER_PROF ─► SIGPROF ─► handler: addresses of one stack ─► a free slot of SLOTS
//!                                                                     │ drain, before the slots are full
//!                                                                     ▼
//!                                                              Stacks: counts by stack
//! ```
//!
//! The handler may interrupt any thread at any instruction, so it takes no lock and allocates no memory. It
//! claims a slot by compare-and-swap. If no slot is free, the sample counts as lost.
//! Since glibc 2.35 the unwinder finds its tables without a lock. The slots occupy no physical memory until
//! the first sample.

#![expect(unsafe_code, reason = "timers and signals have no safe interface")]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Samples per second of processor time.
pub const SAMPLES_PER_SECOND: u32 = 99;
/// Maximum number of recorded frames per stack, from the innermost.
const MAX_STACK_FRAMES: usize = 128;
/// Samples that may wait to be drained: one megabyte.
pub const SLOT_COUNT: usize = 1024;
/// Different stacks that are counted one by one.
const MAX_STACKS: usize = 16_384;

const SLOT_FREE: u32 = 0;
const SLOT_CLAIMED: u32 = 1;
const SLOT_FULL: u32 = 2;

/// Slot of one sample. The thread that moves the state away from `SLOT_FREE` or `SLOT_FULL` owns the frames
/// until its next state change.
struct SampleSlot {
    state: AtomicU32,
    depth: AtomicUsize,
    frames: UnsafeCell<[usize; MAX_STACK_FRAMES]>,
}

// SAFETY: `state` gives the frames to one thread at a time.
unsafe impl Sync for SampleSlot {}

static SAMPLE_SLOTS: [SampleSlot; SLOT_COUNT] = [const {
    SampleSlot {
        state: AtomicU32::new(SLOT_FREE),
        depth: AtomicUsize::new(0),
        frames: UnsafeCell::new([0; MAX_STACK_FRAMES]),
    }
}; SLOT_COUNT];
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(0);
static LOST_SAMPLES: AtomicU64 = AtomicU64::new(0);
static IS_SAMPLING: AtomicBool = AtomicBool::new(false);

/// Running sampler. Sampling ends on drop. A process has at most one.
pub struct StackSampler(());

impl StackSampler {
    /// Starts the timer. Returns `None` while there is another sampler.
    pub fn start() -> io::Result<Option<Self>> {
        if IS_SAMPLING.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        let mut sampler = Self(());
        // Slots may still hold samples of the previous sampler.
        sampler.drain(&mut StackCounts::default());
        LOST_SAMPLES.store(0, Ordering::Relaxed);
        warm_up();
        handle_signal()?;
        set_timer(1_000_000 / i64::from(SAMPLES_PER_SECOND))?;
        Ok(Some(sampler))
    }

    /// Moves the samples that were taken since the last call into `stacks`.
    pub fn drain(&mut self, stacks: &mut StackCounts) {
        for slot in &SAMPLE_SLOTS {
            if slot.state.load(Ordering::Acquire) != SLOT_FULL {
                continue;
            }
            // SAFETY: only `drain` changes a full slot, and there is one sampler.
            let frames = unsafe { &*slot.frames.get() };
            stacks.add(&frames[..slot.depth.load(Ordering::Relaxed)]);
            slot.state.store(SLOT_FREE, Ordering::Release);
        }
        stacks.lost = LOST_SAMPLES.load(Ordering::Relaxed);
    }
}

impl Drop for StackSampler {
    fn drop(&mut self) {
        // It cannot fail with a timer of zero. The handler stays: it does nothing without a sampler.
        let _ = set_timer(0);
        IS_SAMPLING.store(false, Ordering::Release);
    }
}

/// Samples by stack. A stack is instruction addresses, the innermost first.
#[derive(Default)]
pub struct StackCounts {
    counts: HashMap<Box<[usize]>, u64>,
    /// Samples of stacks beyond [`MAX_STACKS`].
    pub others: u64,
    /// Samples that found no free slot.
    pub lost: u64,
}

impl StackCounts {
    fn add(&mut self, stack: &[usize]) {
        if let Some(count) = self.counts.get_mut(stack) {
            *count += 1;
        } else if self.counts.len() < MAX_STACKS {
            self.counts.insert(stack.into(), 1);
        } else {
            self.others += 1;
        }
    }

    /// Returns each stack and its number of samples.
    pub fn iter(&self) -> impl Iterator<Item = (&[usize], u64)> {
        self.counts.iter().map(|(stack, &count)| (&**stack, count))
    }

    /// Returns whether no sample was taken.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

/// File that is mapped into this process as a program or library.
pub struct LoadedModule {
    /// Path of the file. The program itself is `/proc/self/exe`, which it stays when the file is replaced.
    pub path: String,
    /// Address in memory minus address in the file.
    pub bias: usize,
    /// Address ranges in memory.
    pub ranges: Vec<std::ops::Range<usize>>,
}

impl LoadedModule {
    /// Returns the path of its file. The kernel's own code in each process has none.
    pub fn file(&self) -> Option<&str> {
        self.path.contains('/').then_some(&self.path)
    }

    /// Returns the last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Lists the program and its libraries.
pub fn modules() -> Vec<LoadedModule> {
    let mut modules = Vec::new();
    // SAFETY: the callback gets the pointer that is passed here, and is not called later.
    unsafe { libc::dl_iterate_phdr(Some(add_module), ptr::from_mut(&mut modules).cast()) };
    modules
}

extern "C" fn add_module(info: *mut libc::dl_phdr_info, _size: usize, modules: *mut c_void) -> c_int {
    // SAFETY: the loader's description is valid during the call, and `modules` is what `modules()` passes.
    let info = unsafe { &*info };
    // SAFETY: as above.
    let modules = unsafe { &mut *modules.cast::<Vec<LoadedModule>>() };
    let path = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: a name ends with a zero byte.
        unsafe { std::ffi::CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    let path = if path.is_empty() { "/proc/self/exe".to_owned() } else { path };
    let bias = info.dlpi_addr as usize;
    let headers = if info.dlpi_phdr.is_null() {
        &[]
    } else {
        // SAFETY: the loader provides the position and the number of the headers.
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
    };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let ranges = loaded
        .map(|header| {
            let start = bias.wrapping_add(header.p_vaddr as usize);
            start..start.saturating_add(header.p_memsz as usize)
        })
        .collect();
    modules.push(LoadedModule { path, bias, ranges });
    0
}

/// Unwinds once outside of the handler: the first time binds symbols and initializes the unwinder.
fn warm_up() {
    // SAFETY: `unsynchronized` means the symbol tables, which only reading names would use.
    unsafe { backtrace::trace_unsynchronized(|frame| !frame.ip().is_null()) };
}

fn handle_signal() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is valid, and the handler does what a signal handler may.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
        action.sa_sigaction = handler as usize;
        // The handler runs on the thread's own stack: the standard library's signal stack is too small for
        // unwinding.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends SIGPROF whenever the process has consumed this many microseconds of CPU time; 0 stops the timer.
fn set_timer(microseconds: i64) -> io::Result<()> {
    let every = libc::timeval { tv_sec: 0, tv_usec: microseconds as libc::suseconds_t };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the timer is valid, and the call does not return the old one.
    let result = unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn on_signal(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    if !IS_SAMPLING.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: libc gives each thread an errno. The interrupted code must find its own value.
    let errno = unsafe { *libc::__errno_location() };
    let slot = &SAMPLE_SLOTS[NEXT_SLOT.fetch_add(1, Ordering::Relaxed) % SLOT_COUNT];
    if slot.state.compare_exchange(SLOT_FREE, SLOT_CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_err() {
        LOST_SAMPLES.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // SAFETY: the slot was claimed above.
    let frames = unsafe { &mut *slot.frames.get() };
    // SAFETY: the kernel passes the context that was interrupted.
    let interrupted = unsafe { interrupted_at(context) };
    let mut depth = 0;
    // SAFETY: `unsynchronized` means the symbol tables, which only reading names would use.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let address = frame.ip() as usize;
            // Frames before belong to the handler.
            if depth > 0 || interrupted.is_none_or(|interrupted| interrupted == address) {
                frames[depth] = address;
                depth += 1;
            }
            depth < MAX_STACK_FRAMES
        });
    }
    if depth == 0
        && let Some(interrupted) = interrupted
    {
        frames[0] = interrupted;
        depth = 1;
    }
    slot.depth.store(depth, Ordering::Relaxed);
    slot.state.store(SLOT_FULL, Ordering::Release);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the address of the interrupted instruction.
///
/// # Safety
/// `context` is the third argument of a signal handler.
unsafe fn interrupted_at(context: *mut c_void) -> Option<usize> {
    // SAFETY: guaranteed by the caller.
    let context = unsafe { context.cast::<libc::ucontext_t>().as_ref() }?;
    #[cfg(target_arch = "x86_64")]
    return Some(context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize);
    #[cfg(target_arch = "aarch64")]
    return Some(context.uc_mcontext.pc as usize);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return {
        let _ = context;
        None
    };
}
