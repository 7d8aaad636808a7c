//! The functions of the C library that the simulation replaces, so that the standard library, tokio and other crates get the clock and the
//! random numbers of the seed. They replace those of the C library because the linker finds them first. There is one thread: timed waits of
//! threads would compare these clocks with those of the kernel.

#![allow(unsafe_code, reason = "functions of C have raw pointers")]

use std::cell::Cell;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, c_long, c_uint, c_void, clockid_t, size_t, ssize_t, timespec};

use crate::choices::split_mix;

/// The state of the random numbers; 0 while the functions are those of the C library.
static STATE: AtomicU64 = AtomicU64::new(0);
/// The time since the start of the simulation, in nanoseconds, as last seen.
static ELAPSED: AtomicU64 = AtomicU64::new(0);
static START: OnceLock<Instant> = OnceLock::new();

/// The times of the clocks at the start, in seconds since 1970 and since the computer was started.
const WALL_CLOCK: u64 = 1_767_225_600;
const BOOT_CLOCK: u64 = 100_000;

thread_local! {
    /// `true` while the clock of tokio is read, which may read the clock of the computer itself.
    static READS_TOKIO: Cell<bool> = const { Cell::new(false) };
}

/// Makes the rest of this process depend on `seed` alone.
pub(crate) fn simulate(seed: u64) {
    STATE.store(split_mix(&mut { seed }) | 1, Ordering::Relaxed);
    START.set(Instant::now()).expect("it is called once");
}

/// The longest time of one seed, in seconds.
const PATIENCE: c_uint = 120;

/// Ends this process by a signal if it takes longer than [`PATIENCE`].
pub(crate) fn limit_time() {
    // SAFETY: `alarm` has no pointer.
    unsafe { libc::alarm(PATIENCE) };
}

/// Runs this program again, with the same arguments, without the random layout of memory. Returns in the process that has none.
pub(crate) fn fix_layout() {
    const FIXED: c_int = libc::ADDR_NO_RANDOMIZE;
    // SAFETY: `personality` has no pointer.
    let before = unsafe { libc::personality(0xffff_ffff) };
    if before & FIXED != 0 {
        return;
    }
    // SAFETY: as above.
    let changed = unsafe { libc::personality(libc::c_ulong::from((before | FIXED).cast_unsigned())) };
    assert!(
        before != -1 && changed != -1,
        "the layout of memory cannot be fixed: personality(2) is refused here"
    );
    let arguments: Vec<CString> = std::env::args_os()
        .map(|argument| CString::new(argument.as_bytes()).expect("an argument contains no 0"))
        .collect();
    let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: the list of pointers to strings with a final 0 ends with a null pointer, and outlives the call.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), pointers.as_ptr()) };
    panic!("the program cannot be run again: {}", std::io::Error::last_os_error());
}

/// Returns the time since the start of the simulation by the clock of tokio.
fn elapsed() -> Duration {
    let outermost = READS_TOKIO.try_with(|reads| !reads.replace(true)).unwrap_or(false);
    if outermost {
        if let Some(start) = START.get() {
            let now = tokio::time::Instant::now().into_std().saturating_duration_since(*start);
            let nanos = u64::try_from(now.as_nanos()).expect("it is less than five centuries");
            ELAPSED.fetch_max(nanos, Ordering::Relaxed);
        }
        READS_TOKIO.set(false);
    }
    Duration::from_nanos(ELAPSED.load(Ordering::Relaxed))
}

/// Fills `bytes` with the next random numbers; returns `false` while nothing is simulated.
fn fill(bytes: &mut [u8]) -> bool {
    let mut state = STATE.load(Ordering::Relaxed);
    if state == 0 {
        return false;
    }
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&split_mix(&mut state).to_ne_bytes()[..chunk.len()]);
    }
    STATE.store(state, Ordering::Relaxed);
    true
}

/// `getrandom(2)`.
///
/// # Safety
///
/// `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(buffer: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    let arguments = [buffer as c_long, length.cast_signed() as c_long, flags.into(), 0, 0, 0];
    // SAFETY: the arguments are those of the caller.
    let read = unsafe { call(libc::SYS_getrandom, arguments) };
    ssize_t::try_from(read).expect("both have the width of a register")
}

/// `syscall(2)`, by which some crates call `getrandom(2)`. It has the arguments of the system call with the most of them; those that a
/// caller does not pass have any value, and the kernel does not look at them.
///
/// # Safety
///
/// The arguments are those that the system call needs.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    // SAFETY: the arguments are those of the caller.
    unsafe { call(number, [first, second, third, fourth, fifth, sixth]) }
}

/// Makes a system call, except for random numbers of a simulation. Returns -1 and sets `errno` if it fails.
///
/// # Safety
///
/// The arguments are those that the system call needs.
unsafe fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    if number == libc::SYS_getrandom && arguments[0] != 0 {
        let length = usize::try_from(arguments[1]).expect("a length is positive");
        // SAFETY: the caller gives a buffer of this length.
        let bytes = unsafe { std::slice::from_raw_parts_mut(arguments[0] as *mut u8, length) };
        if fill(bytes) {
            return arguments[1];
        }
    }
    // SAFETY: the arguments are those of the caller.
    let result = unsafe { enter_kernel(number, arguments) };
    // The kernel returns the number of an error below zero.
    if (-4095..0).contains(&result) {
        // SAFETY: the place of `errno` is valid in each thread.
        unsafe { *libc::__errno_location() = c_int::try_from(-result).expect("it is small") };
        return -1;
    }
    result
}

/// Enters the kernel as its calling convention says (`syscall(2)`, architecture calling conventions).
#[cfg(target_arch = "x86_64")]
unsafe fn enter_kernel(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: it changes the registers that are named, and the memory that the arguments name.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number => result, in("rdi") first, in("rsi") second,
            in("rdx") third, in("r10") fourth, in("r8") fifth, in("r9") sixth, lateout("rcx") _,
            lateout("r11") _, options(nostack));
    }
    result
}

/// Enters the kernel as its calling convention says (`syscall(2)`, architecture calling conventions).
#[cfg(target_arch = "aarch64")]
unsafe fn enter_kernel(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: it changes the register that is named, and the memory that the arguments name.
    unsafe {
        std::arch::asm!("svc 0", in("x8") number, inlateout("x0") first => result, in("x1") second,
            in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth, options(nostack));
    }
    result
}

/// `clock_gettime(2)`.
///
/// # Safety
///
/// `time` points to a `timespec`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    if STATE.load(Ordering::Relaxed) == 0 {
        // SAFETY: the arguments are those of the caller.
        let result = unsafe { call(libc::SYS_clock_gettime, [clock.into(), time as c_long, 0, 0, 0, 0]) };
        return c_int::try_from(result).expect("it is 0 or -1");
    }
    let is_wall_clock = [libc::CLOCK_REALTIME, libc::CLOCK_REALTIME_COARSE, libc::CLOCK_TAI].contains(&clock);
    let start = if is_wall_clock { WALL_CLOCK } else { BOOT_CLOCK };
    let now = Duration::from_secs(start) + elapsed();
    let (seconds, nanos) = (now.as_secs().cast_signed(), now.subsec_nanos().into());
    // SAFETY: the caller gives a place for a `timespec`.
    unsafe { *time = timespec { tv_sec: seconds, tv_nsec: nanos } };
    0
}
