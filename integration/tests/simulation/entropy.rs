//! What libraries ask the system for, given by a seed: entropy and the time.
//!
//! Hash maps, gossip and `select!` draw where nothing can be handed in; they end at the two functions of libc below. The
//! linker prefers those of the program, for this process alone. Threads that are not simulated ask the kernel as ever.
#![expect(unsafe_code, reason = "symbols of libc, and calls that nothing safe makes")]

use std::arch::asm;
use std::cell::Cell;
use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

const PER_NANO: i64 = 1_000_000_000;
const ADDR_NO_RANDOMIZE: c_ulong = 0x0004_0000;

#[cfg(target_arch = "x86_64")]
const GETRANDOM: c_long = 318;
#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const GETRANDOM: c_long = 278;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;

thread_local! {
    /// Zero on threads that are not simulated.
    static DRAWN: Cell<u64> = const { Cell::new(0) };
    static MOMENTS: Cell<i64> = const { Cell::new(0) };
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: c_long,
}

unsafe extern "C" {
    fn personality(persona: c_ulong) -> c_int;
    fn __errno_location() -> *mut c_int;
}

/// This thread is simulated from now on. Nothing may have hashed or drawn on it before.
pub fn begin(seed: u64) {
    DRAWN.set(seed | 1 << 63);
}

/// Processes that this one starts from now on have their memory at the same addresses, each time: some hashes are
/// seeded by addresses.
pub fn place_alike() {
    // SAFETY: it changes a flag of this process, which only the start of programs looks at.
    let before = unsafe { personality(0xffff_ffff) };
    if before >= 0 {
        // SAFETY: as above.
        unsafe { personality(before as c_ulong | ADDR_NO_RANDOMIZE) };
    }
}

fn draw() -> Option<u64> {
    DRAWN.with(|drawn| {
        let position = drawn.get();
        if position == 0 {
            return None;
        }
        drawn.set(position.wrapping_add(0x9e37_79b9_7f4a_7c15).max(1));
        let mut mixed = (position ^ (position >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    })
}

/// # Safety
/// As that of libc: `into` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(into: *mut c_void, length: usize, flags: c_uint) -> isize {
    if DRAWN.get() == 0 {
        // SAFETY: what the caller promised is what the kernel asks.
        return told(unsafe { kernel(GETRANDOM, into as usize, length, flags as usize) });
    }
    // SAFETY: the caller promised the room.
    let bytes = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        let drawn = draw().unwrap_or_default().to_le_bytes();
        chunk.copy_from_slice(&drawn[..chunk.len()]);
    }
    length as isize
}

/// # Safety
/// As that of libc: `into` points to a time.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, into: *mut Timespec) -> c_int {
    if DRAWN.get() == 0 {
        // SAFETY: what the caller promised is what the kernel asks.
        return told(unsafe { kernel(CLOCK_GETTIME, clock as usize, into as usize, 0) }) as c_int;
    }
    // Who measures finds that time passes; nothing may depend on how much.
    let moment = MOMENTS.get() + 1_000;
    MOMENTS.set(moment);
    let time = Timespec { seconds: 1_900_000_000 + moment / PER_NANO, nanos: (moment % PER_NANO) as c_long };
    // SAFETY: the caller promised the place.
    unsafe { into.write(time) };
    0
}

/// An answer of the kernel, as libc gives it.
fn told(answer: isize) -> isize {
    if answer >= 0 {
        return answer;
    }
    // SAFETY: it gives the place of this thread.
    unsafe { *__errno_location() = -answer as c_int };
    -1
}

#[cfg(target_arch = "x86_64")]
unsafe fn kernel(number: c_long, a: usize, b: usize, c: usize) -> isize {
    let answer: isize;
    // SAFETY: the calling convention of the kernel; the caller vouches for the arguments.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => answer, in("rdi") a, in("rsi") b, in("rdx") c,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    answer
}

#[cfg(target_arch = "aarch64")]
unsafe fn kernel(number: c_long, a: usize, b: usize, c: usize) -> isize {
    let answer: isize;
    // SAFETY: the calling convention of the kernel; the caller vouches for the arguments.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => answer, in("x1") b, in("x2") c,
            options(nostack));
    }
    answer
}
