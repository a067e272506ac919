//! What only the operating system knows: Ctrl-C, a closed standard output, and what the process has
//! used.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The signal that came, or 0: set by the signal handler, read by whoever waits for the work.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// When it came, in milliseconds of the monotonic clock; 0 before.
static SIGNAL_MS: AtomicU64 = AtomicU64::new(0);

/// Signals that come within so many milliseconds are one: `timeout` sends its own to the program
/// and to the group that the program is in.
const ONE_SIGNAL_MS: u64 = 300;

/// Set before the work begins, when there is no standard output.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// CPU seconds of what ran in this process before the program did: `exec` keeps the count going.
static CPU_S_BEFORE: OnceLock<f64> = OnceLock::new();

/// Who asked the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// Ctrl-C, SIGINT.
    Interrupt,
    /// SIGTERM, as of `kill` and of service managers.
    Terminate,
}

impl StopSignal {
    /// As messages call it.
    pub fn name(self) -> &'static str {
        match self {
            StopSignal::Interrupt => "Ctrl-C",
            StopSignal::Terminate => "SIGTERM",
        }
    }

    /// The exit status that shells give to it: 128 and the signal's number.
    pub fn exit_code(self) -> u8 {
        match self {
            StopSignal::Interrupt => 130,
            StopSignal::Terminate => 143,
        }
    }
}

/// Notes that the process began without a standard output.
pub(super) fn note_closed_stdout() {
    // Pairs with the load in `stdout_is_closed`, on this thread; the flag guards no other memory.
    STDOUT_CLOSED.store(true, Ordering::Relaxed);
}

/// Whether the process began without a standard output.
pub(super) fn stdout_is_closed() -> bool {
    // Pairs with the store in `note_closed_stdout`; the flag guards no other memory.
    STDOUT_CLOSED.load(Ordering::Relaxed)
}

/// Begins to count [`usage`]: what ran in the process before (a shell or `cargo run`, which become
/// the program) is none of it.
pub(super) fn start_usage() {
    CPU_S_BEFORE.get_or_init(|| counted().cpu_s);
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// The most memory it ever held, in bytes.
    pub(super) rss_bytes_peak: u64,
    /// CPU seconds of all its threads, in user and system mode.
    pub(super) cpu_s: f64,
}

/// Lets the first Ctrl-C (or SIGTERM) set the flag that [`interrupted`] reads. One that comes later
/// ends the process at once, as if this had not been called. A signal that whoever started us has
/// set to be ignored (background jobs of scripts, `trap ''`) stays ignored.
pub(super) fn catch_interrupts() {
    // SAFETY: all bytes zero is a valid `sigaction`: no flags, an empty mask, the default handler.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_interrupt as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all bytes zero is a valid `sigaction`, as above.
        let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is changed, and the pointer is to a `sigaction` that lives through the
        // call.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut old) };
        if old.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        // SAFETY: `action` is initialised and lives through the call, the old action is not asked
        // for, and the handler does nothing that is not async-signal-safe: see there.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// The signal that came since [`catch_interrupts`], if one did.
pub(super) fn interrupted() -> Option<StopSignal> {
    // Pairs with the store in the handler; the number guards no other memory.
    match SIGNAL.load(Ordering::Relaxed) {
        libc::SIGINT => Some(StopSignal::Interrupt),
        libc::SIGTERM => Some(StopSignal::Terminate),
        _ => None,
    }
}

extern "C" fn on_interrupt(signal: libc::c_int) {
    let now_ms = monotonic_ms();
    // Pairs with itself in later signals; the time guards no other memory.
    match SIGNAL_MS.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed) {
        // Pairs with the load in `interrupted`; the number guards no other memory.
        Ok(_) => SIGNAL.store(signal, Ordering::Relaxed),
        Err(first_ms) if now_ms.saturating_sub(first_ms) < ONE_SIGNAL_MS => {}
        // SAFETY: both calls are async-signal-safe and take a signal's number. The signal is
        // blocked in its own handler, so it ends the process when that returns.
        Err(_) => unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        },
    }
}

/// Milliseconds of the monotonic clock, at least 1. Async-signal-safe.
fn monotonic_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a `timespec` that lives through the call, which is
    // async-signal-safe.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Neither is negative.
    (time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000).max(1)
}

/// Raises the limit on files that the process may have open as far as it may itself; returns what
/// it is then, where that is known.
pub(super) fn raise_file_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to an `rlimit` that lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return None;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the pointer is to an `rlimit` that lives through the call. Nothing here waits for
    // descriptors by `select`, which knows the first 1,024 only.
    let is_raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0;
    Some(if is_raised { raised.rlim_cur } else { limit.rlim_cur })
}

/// Has a write beyond the limit on the size of files (`ulimit -f`) fail, with an error that says
/// so, where the signal would end the process without a word.
pub(super) fn ignore_file_size_signal() {
    // SAFETY: to ignore a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// What this program has used; zeros where the system does not say.
pub(super) fn usage() -> Usage {
    let counted = counted();
    Usage {
        rss_bytes_peak: status_peak().unwrap_or(counted.rss_bytes_peak),
        cpu_s: (counted.cpu_s - CPU_S_BEFORE.get().copied().unwrap_or(0.0)).max(0.0),
    }
}

/// The peak since `exec`, where Linux tells it.
fn status_peak() -> Option<u64> {
    parse_status_peak(&fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_status_peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What the system has counted for the process, whatever program it was.
fn counted() -> Usage {
    // SAFETY: all bytes zero is a valid `rusage`: a struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `rusage` that lives through the call.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    if result != 0 {
        return Usage::default();
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    // Linux counts in KiB, Apple's systems in bytes.
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    Usage {
        rss_bytes_peak: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(unit),
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
    }
}

/// The name of this machine's processor, where the system tells it.
pub(super) fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_peak_is_read_from_the_status() {
        let status = "Name:\tintervale\nVmPeak:\t   9999 kB\nVmHWM:\t    2048 kB\n";
        assert_eq!(super::parse_status_peak(status), Some(2 << 20));
        assert_eq!(super::parse_status_peak("VmRSS:\t 2048 kB\n"), None);
    }

    #[test]
    fn a_process_has_used_something() {
        let usage = super::usage();
        assert!(usage.rss_bytes_peak > 100_000 && usage.rss_bytes_peak < 1 << 40, "{usage:?}");
        assert!(usage.cpu_s >= 0.0);
    }
}
