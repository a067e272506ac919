//! Sizes as people write them, and how much memory this process may count on.

use std::fs;
use std::path::Path;

/// What to assume when the system does not say how much memory there is.
const MEMORY_UNKNOWN: u64 = 4 << 30;

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// Reads `4GiB`, `1.5 GB`, `512m` (a lone letter counts in 1024s) or plain bytes.
///
/// # Errors
/// A sentence that says what is wrong.
pub(in crate::cli) fn parse_size(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let mut unit = unit.trim().to_ascii_lowercase();
    if matches!(unit.as_str(), "k" | "m" | "g" | "t") {
        unit.push_str("ib");
    }
    let wrong = || format!("\"{text}\" is no size; give a number and a unit, like 4GiB or 500MB");
    let factor = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
    let bytes = match number.parse::<u64>() {
        Ok(count) => count.checked_mul(factor).ok_or_else(wrong)?,
        Err(_) => {
            let count: f64 = number.parse().map_err(|_| wrong())?;
            // Exact enough for a bound; out of range saturates and is refused by nothing else.
            (count * factor as f64) as u64
        }
    };
    if bytes == 0 {
        Err(format!("\"{text}\" leaves no room at all; give 1MiB or more"))
    } else {
        Ok(bytes)
    }
}

/// Writes a number of bytes for people: `512 B`, `1.5 MiB`.
pub(in crate::cli) fn show_size(bytes: u64) -> String {
    show(bytes, |tenths| tenths.round())
}

/// The same, rounded up.
pub(super) fn show_size_up(bytes: u64) -> String {
    show(bytes, |tenths| tenths.ceil())
}

/// The same, rounded down; `4.1MiB`, which is cut to whole bytes when it is read, stays that.
pub(super) fn show_size_down(bytes: u64) -> String {
    show(bytes, |tenths| (tenths + 1e-3).floor())
}

fn show(bytes: u64, round: impl Fn(f64) -> f64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{:.1} {unit}", round(value * 10.0) / 10.0)
    }
}

/// Bytes of memory that this process may count on: the host's, or its control group's when that is
/// smaller.
pub(in crate::cli) fn memory_bytes() -> u64 {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_total(&text));
    let group = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| cgroup_memory_bytes(&text, Path::new("/sys/fs/cgroup")));
    match (host, group) {
        (Some(host), Some(group)) => host.min(group),
        (Some(bytes), None) | (None, Some(bytes)) => bytes,
        (None, None) => MEMORY_UNKNOWN,
    }
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit on the way from the process's control group up to the root; `cgroup` is the
/// text of `/proc/self/cgroup`. Version 2 has one tree, version 1 one for memory.
fn cgroup_memory_bytes(cgroup: &str, root: &Path) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in cgroup.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (tree, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            "memory" => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        // In a container the path may name the host's view; the tree's own root still applies.
        let mut dir = tree.join(path.trim_start_matches('/'));
        loop {
            let limit = fs::read_to_string(dir.join(file)).ok();
            if let Some(bytes) = limit.and_then(|text| text.trim().parse::<u64>().ok()) {
                least = Some(least.map_or(bytes, |known| known.min(bytes)));
            }
            if dir == tree || !dir.pop() {
                break;
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [
            ("4GiB", 4 << 30),
            ("4 gib", 4 << 30),
            ("500MB", 500_000_000),
            ("512m", 512 << 20),
            ("1.5k", 1536),
            ("7", 7),
            ("7b", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "4 boxes", "-1", "0", "1e3", "99999999999999TiB", "1.2.3k"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(show_size(512), "512 B");
        assert_eq!(show_size(3 << 19), "1.5 MiB");
        assert_eq!(show_size_up((4 << 20) + 1), "4.1 MiB", "a need is seen to be above 4 MiB");
        assert_eq!([show_size_up(4 << 20), show_size_down(4 << 20)], ["4.0 MiB", "4.0 MiB"]);
        assert_eq!(show_size_down(parse_size("4.1MiB").unwrap()), "4.1 MiB");
        assert_eq!(show_size_down((5 << 20) - 1000), "4.9 MiB");
    }

    #[test]
    fn memory_is_the_smaller_of_host_and_group() {
        assert_eq!(meminfo_total("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16 << 10));
        assert_eq!(meminfo_total("nothing"), None);
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("a/memory.max"), "1000\n").unwrap();
        assert_eq!(cgroup_memory_bytes("0::/a/b\n", root.path()), Some(1000));
        assert_eq!(cgroup_memory_bytes("0::/elsewhere\n", root.path()), None);
        let v1 = root.path().join("memory/x");
        fs::create_dir_all(&v1).unwrap();
        fs::write(v1.join("memory.limit_in_bytes"), "77\n").unwrap();
        assert_eq!(cgroup_memory_bytes("5:cpu:/x\n4:memory:/x\n", root.path()), Some(77));
    }
}
