//! Asks the kernel which version it is and whether it lets this process use io_uring.

use std::fmt;
use std::path::Path;

/// A version of the Linux kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// The 6 of 6.12.3.
    pub major: u32,
    /// The 12 of 6.12.3.
    pub minor: u32,
    /// The 3 of 6.12.3.
    pub patch: u32,
}

impl KernelVersion {
    /// Reads the version that a release text such as `6.12.3-generic` starts with.
    pub fn parse(release: &str) -> Option<KernelVersion> {
        let end = release.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(release.len());
        let mut numbers = release[..end].split('.').map_while(|number| number.parse().ok());
        Some(KernelVersion {
            major: numbers.next()?,
            minor: numbers.next()?,
            patch: numbers.next().unwrap_or(0),
        })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Whether io_uring can be used by this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoUring {
    /// A ring was set up and closed again.
    Available,
    /// It cannot be used.
    Refused {
        /// Why, and what would help.
        reason: String,
    },
    /// It was not tried: these are the files of another host.
    Unknown,
}

/// Sets up a small ring and closes it again: the only reliable way to know.
pub(crate) fn probe_io_uring(root: &Path) -> IoUring {
    match set_up_ring() {
        Ok(()) if !cpus_are_readable() => IoUring::Refused { reason: NO_CPUS.to_owned() },
        Ok(()) => IoUring::Available,
        Err(error) => IoUring::Refused { reason: explain(root, &error) },
    }
}

const NO_CPUS: &str =
    "/sys is not readable, and the io_uring driver needs /sys/devices/system/cpu to place threads";

/// Whether the driver will find the CPUs where it looks for them; it panics if not.
#[cfg(all(feature = "glommio", target_os = "linux"))]
fn cpus_are_readable() -> bool {
    glommio::CpuSet::online().is_ok()
}

#[cfg(not(all(feature = "glommio", target_os = "linux")))]
fn cpus_are_readable() -> bool {
    true
}

/// What the files of another host say.
pub(crate) fn io_uring_of_copy(root: &Path) -> IoUring {
    if is_switched_off(root) {
        IoUring::Refused { reason: SWITCHED_OFF.to_owned() }
    } else {
        IoUring::Unknown
    }
}

const SWITCHED_OFF: &str = "io_uring is switched off (sysctl kernel.io_uring_disabled=0 allows it)";

fn is_switched_off(root: &Path) -> bool {
    let sysctl = std::fs::read_to_string(root.join("proc/sys/kernel/io_uring_disabled"));
    sysctl.is_ok_and(|text| text.trim() != "0")
}

#[cfg(target_os = "linux")]
fn set_up_ring() -> std::io::Result<()> {
    use std::os::fd::{FromRawFd, OwnedFd};

    // `struct io_uring_params` is 120 bytes of 32- and 64-bit numbers, all zero for defaults.
    let mut params = [0u64; 15];
    let entry_count: libc::c_uint = 1;
    // SAFETY: the call reads and writes the 120 bytes that the pointer leads to, for its duration
    // only; they are owned here, writable and aligned for the structure's widest field.
    let fd = unsafe {
        libc::syscall(libc::SYS_io_uring_setup, entry_count, params.as_mut_ptr().cast::<u8>())
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor, so it is open and nobody else owns it.
    drop(unsafe { OwnedFd::from_raw_fd(fd as std::os::fd::RawFd) });
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn set_up_ring() -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

fn explain(root: &Path, error: &std::io::Error) -> String {
    let disabled = is_switched_off(root);
    if cfg!(not(target_os = "linux")) {
        return "io_uring exists on Linux only".to_owned();
    }
    match error.kind() {
        std::io::ErrorKind::PermissionDenied if disabled => SWITCHED_OFF.to_owned(),
        std::io::ErrorKind::PermissionDenied => {
            "io_uring is refused, likely by a container's seccomp profile (allow io_uring_setup, \
             io_uring_enter and io_uring_register there)"
                .to_owned()
        }
        std::io::ErrorKind::OutOfMemory => {
            "too little memory may be locked for io_uring (raise ulimit -l)".to_owned()
        }
        _ => format!("io_uring cannot be set up: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions() {
        let version = |text| KernelVersion::parse(text).map(|version| version.to_string());
        assert_eq!(version("6.18.44-fc-v657\n"), Some("6.18.44".to_owned()));
        assert_eq!(version("6.1"), Some("6.1.0".to_owned()));
        assert_eq!(version("none"), None);
        assert!(KernelVersion::parse("5.10.1") > KernelVersion::parse("5.8.9"));
    }

    #[test]
    fn probing_leaves_no_descriptor_open_and_refusals_say_what_to_do() {
        #[cfg(target_os = "linux")]
        {
            // Rows that tests of state put into files are in many of them.
            let is_other = |entry: std::io::Result<std::fs::DirEntry>| {
                let target = entry.and_then(|entry| std::fs::read_link(entry.path()));
                target.is_ok_and(|target| !target.to_string_lossy().contains(".spill"))
            };
            let open = || {
                let all = std::fs::read_dir("/proc/self/fd");
                all.map_or(0, |all| all.filter_map(|entry| is_other(entry).then_some(())).count())
            };
            let before = open();
            for _ in 0..64 {
                probe_io_uring(Path::new("/"));
            }
            // Other tests of this process open files meanwhile, but not as many as 64.
            assert!(open() < before + 32);
        }
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let text = explain(Path::new("/nonexistent"), &denied);
        assert!(!cfg!(target_os = "linux") || text.contains("seccomp"), "{text}");
    }
}
