//! CPU time, asked of the operating system.

use std::io;

/// Whose CPU time is counted. On a shared machine wall time says little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuClock {
    /// The calling thread's.
    Thread,
    /// That of all threads of the process.
    Process,
}

impl CpuClock {
    /// Nanoseconds of CPU time so far, user and system; a system call, about 200 ns.
    ///
    /// # Panics
    /// Where the operating system has no such clock (every Unix has).
    pub fn now_ns(self) -> u64 {
        let id = match self {
            CpuClock::Thread => libc::CLOCK_THREAD_CPUTIME_ID,
            CpuClock::Process => libc::CLOCK_PROCESS_CPUTIME_ID,
        };
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec that lives across the call, which writes only to it.
        let status = unsafe { libc::clock_gettime(id, &raw mut time) };
        assert!(status == 0, "no CPU clock: {}", io::Error::last_os_error());
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// How often the calling thread was taken off its CPU without having asked for it, where the system
/// counts that; a system call, about 300 ns.
pub(super) fn switches_unasked() -> Option<u64> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` lives across the call, which writes only to it.
        let status = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
        // SAFETY: it is zeroed, which is a value of a struct of integers, whatever the call did.
        let usage = unsafe { usage.assume_init() };
        (status == 0).then(|| usage.ru_nivcsw.try_into().ok()).flatten()
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_clocks_count_work_and_the_process_counts_all_threads() {
        let (thread, process) = (CpuClock::Thread.now_ns(), CpuClock::Process.now_ns());
        let spin = || {
            let start = CpuClock::Thread.now_ns();
            while CpuClock::Thread.now_ns() < start + 20_000_000 {}
        };
        std::thread::spawn(spin).join().unwrap();
        assert!(CpuClock::Thread.now_ns() - thread < 15_000_000);
        assert!(CpuClock::Process.now_ns() - process >= 20_000_000);
    }
}
