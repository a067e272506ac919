//! What this host gives an engine: CPUs, their siblings and memory nodes, quota, io_uring.
//!
//! Every reading is optional: a container may hide `/sys`, and other systems have none of it.
//! Nothing here is cached; reading all of it takes well under a millisecond on a small host.

use std::fs;
use std::path::{Path, PathBuf};

use crate::runtime::probe::{IoUring, KernelVersion, io_uring_of_copy, probe_io_uring};

/// Bytes that one io_uring executor must be able to lock.
pub const MEMLOCK_BYTES_MIN: u64 = 512 * 1024;

/// The oldest kernel that the io_uring driver runs on.
pub const KERNEL_MIN: KernelVersion = KernelVersion { major: 5, minor: 8, patch: 0 };

/// One CPU (hardware thread) that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The system's number of it.
    pub id: usize,
    /// All CPUs of the same physical core, itself included; only itself where that is unknown.
    pub siblings: Vec<usize>,
    /// The memory node it belongs to.
    pub node: Option<usize>,
    /// Kept free of other work by the kernel (`isolcpus`).
    pub isolated: bool,
}

/// What the host gives this process.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The CPUs that the calling thread may run on, ascending; never empty.
    pub cpus: Vec<Cpu>,
    /// CPU seconds a second that the control group grants, e.g. 1.5; `None` without a bound.
    pub quota_cpus: Option<f64>,
    /// Bytes that may be locked in memory; `u64::MAX` without a bound.
    pub memlock_bytes: Option<u64>,
    /// The running kernel.
    pub kernel: Option<KernelVersion>,
    /// Whether io_uring can be used.
    pub io_uring: IoUring,
}

impl Topology {
    /// Reads the host. Call it before any thread is pinned: a pinned thread sees one CPU.
    pub fn read() -> Topology {
        let allowed = core_affinity::get_core_ids()
            .map(|ids| ids.into_iter().map(|core| core.id).collect())
            .unwrap_or_default();
        Topology::read_under(Path::new("/"), allowed, probe_io_uring)
    }

    /// Reads a copy of another host's `/proc` and `/sys` below `root`. The CPUs allowed are those
    /// of `proc/self/status`, else all online ones; io_uring is [`IoUring::Unknown`] unless a
    /// setting refuses it.
    pub fn read_copy(root: &Path) -> Topology {
        let status = read_text(&root.join("proc/self/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let mut allowed = allowed.and_then(parse_cpu_list).unwrap_or_default();
        if allowed.is_empty() {
            allowed = read_list(&root.join("sys/devices/system/cpu/online"));
        }
        Topology::read_under(root, allowed, io_uring_of_copy)
    }

    /// Reads the files of a host whose root is `root`; tests pass a made-up one.
    fn read_under(root: &Path, mut allowed: Vec<usize>, probe: fn(&Path) -> IoUring) -> Topology {
        if allowed.is_empty() {
            let count = std::thread::available_parallelism().map_or(1, |count| count.get());
            allowed = (0..count).collect();
        }
        allowed.sort_unstable();
        let nodes = read_nodes(root);
        let isolated = read_list(&root.join("sys/devices/system/cpu/isolated"));
        let cpus = allowed
            .iter()
            .map(|&id| Cpu {
                id,
                siblings: read_siblings(root, id),
                node: nodes.iter().find(|(_, cpus)| cpus.contains(&id)).map(|&(node, _)| node),
                isolated: isolated.contains(&id),
            })
            .collect();
        Topology {
            cpus,
            quota_cpus: read_quota(root),
            memlock_bytes: read_memlock(root),
            kernel: read_text(&root.join("proc/sys/kernel/osrelease"))
                .and_then(|text| KernelVersion::parse(&text)),
            io_uring: probe(root),
        }
    }

    /// How many CPUs' worth of work can run at once: the allowed CPUs, or the quota if smaller.
    pub fn cpus_usable(&self) -> usize {
        let quota = self.quota_cpus.map_or(usize::MAX, |cpus| (cpus.ceil() as usize).max(1));
        self.cpus.len().min(quota)
    }

    /// The allowed CPUs in the order in which workers should take them: one CPU of each physical
    /// core first, then the second ones, each time in ascending order.
    pub fn cpus_by_preference(&self) -> Vec<usize> {
        let mut ranked: Vec<(usize, usize)> = self
            .cpus
            .iter()
            .map(|cpu| {
                let allowed_before =
                    self.cpus.iter().filter(|c| c.id < cpu.id && cpu.siblings.contains(&c.id));
                (allowed_before.count(), cpu.id)
            })
            .collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, id)| id).collect()
    }

    /// Why the io_uring driver cannot run here, and what would help; `None` when it can.
    pub fn io_uring_refusal(&self) -> Option<String> {
        if let IoUring::Refused { reason } = &self.io_uring {
            return Some(reason.clone());
        }
        if let Some(kernel) = self.kernel.filter(|&kernel| kernel < KERNEL_MIN) {
            return Some(format!("the kernel is {kernel}, and {KERNEL_MIN} is the least"));
        }
        let locked = self.memlock_bytes.filter(|&bytes| bytes < MEMLOCK_BYTES_MIN)?;
        Some(format!(
            "only {} KiB may be locked in memory, and {} are needed (ulimit -l {})",
            locked >> 10,
            MEMLOCK_BYTES_MIN >> 10,
            MEMLOCK_BYTES_MIN >> 10
        ))
    }
}

/// Parses a list of CPUs as the kernel writes it and people do: `0-3,8`. `None` if it is not one.
pub(crate) fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut ids = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<usize>().ok()?);
        // No system has more CPUs than this; a typing slip must not fill the memory.
        if first > last || last >= CPU_ID_END {
            return None;
        }
        ids.extend(first..=last);
    }
    Some(ids)
}

/// One more than the largest CPU number that can be meant.
const CPU_ID_END: usize = 1 << 16;

fn read_text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn read_list(path: &Path) -> Vec<usize> {
    read_text(path).and_then(|text| parse_cpu_list(&text)).unwrap_or_default()
}

fn read_siblings(root: &Path, cpu: usize) -> Vec<usize> {
    let folder = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
    // The second name is the one that kernels before 5.4 used.
    let lists =
        ["core_cpus_list", "thread_siblings_list"].map(|name| read_list(&folder.join(name)));
    let found = lists.into_iter().find(|list| list.contains(&cpu));
    found.unwrap_or_else(|| vec![cpu])
}

fn read_nodes(root: &Path) -> Vec<(usize, Vec<usize>)> {
    let folder = root.join("sys/devices/system/node");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let node = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            Some((node, read_list(&entry.path().join("cpulist"))))
        })
        .collect()
}

fn read_memlock(root: &Path) -> Option<u64> {
    let limits = read_text(&root.join("proc/self/limits"))?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        bytes => bytes.parse().ok(),
    }
}

/// The tightest CPU quota of this process's control group and its ancestors, in either version.
fn read_quota(root: &Path) -> Option<f64> {
    let groups = read_text(&root.join("proc/self/cgroup"))?;
    let mut tightest: Option<f64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            tighten(root, &["", "unified"], path, read_quota_v2, &mut tightest);
        } else if controllers.split(',').any(|name| name == "cpu") {
            tighten(root, &["cpu", "cpu,cpuacct"], path, read_quota_v1, &mut tightest);
        }
    }
    tightest
}

fn tighten(
    root: &Path,
    mounts: &[&str],
    group: &str,
    read: fn(&Path) -> Option<f64>,
    tightest: &mut Option<f64>,
) {
    for mount in mounts {
        let mount = root.join("sys/fs/cgroup").join(mount);
        for quota in group_and_ancestors(&mount, group).iter().filter_map(|group| read(group)) {
            *tightest = Some(tightest.map_or(quota, |least| least.min(quota)));
        }
    }
}

/// The folders from a group up to its mount. A container may see its host's path without the
/// folders of it; those are skipped by whoever reads.
fn group_and_ancestors(mount: &Path, path: &str) -> Vec<PathBuf> {
    let group = mount.join(path.trim_start_matches('/'));
    group.ancestors().take_while(|folder| folder.starts_with(mount)).map(PathBuf::from).collect()
}

/// `cpu.max`: quota and period in microseconds, or `max`.
fn read_quota_v2(group: &Path) -> Option<f64> {
    let text = read_text(&group.join("cpu.max"))?;
    let mut fields = text.split_whitespace();
    quota(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?)
}

fn read_quota_v1(group: &Path) -> Option<f64> {
    let read = |name| read_text(&group.join(name))?.trim().parse::<f64>().ok();
    quota(read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?)
}

/// Version 1 writes -1 for "no bound".
fn quota(quota_us: f64, period_us: f64) -> Option<f64> {
    (quota_us > 0.0 && period_us > 0.0).then(|| quota_us / period_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up host: files by path under a folder that goes away with the value.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn available(_: &Path) -> IoUring {
        IoUring::Available
    }

    #[test]
    fn a_host_that_hides_everything_still_has_its_cpus() {
        let topology = Topology::read_under(host(&[]).path(), vec![3, 1], available);
        assert_eq!(topology.cpus.iter().map(|cpu| cpu.id).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(topology.cpus[0].siblings, [1]);
        assert_eq!((topology.quota_cpus, topology.memlock_bytes), (None, None));
        assert_eq!(topology.cpus_usable(), 2);
        assert_eq!(topology.io_uring_refusal(), None);
        assert!(!Topology::read_under(host(&[]).path(), vec![], available).cpus.is_empty());
    }

    #[test]
    fn physical_cores_come_before_their_second_threads() {
        let root = host(&[
            ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0-1\n"),
            ("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "0-1\n"),
            ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2,3\n"),
            ("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "2,3\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3\n"),
        ]);
        let topology = Topology::read_under(root.path(), vec![0, 1, 2, 3], available);
        assert_eq!(topology.cpus_by_preference(), [0, 2, 1, 3]);
        assert_eq!((topology.cpus[1].node, topology.cpus[2].node), (Some(0), Some(1)));
        assert!(topology.cpus[2].isolated && !topology.cpus[0].isolated);
        // When only second threads are allowed, they are as good as first ones.
        let topology = Topology::read_under(root.path(), vec![1, 2, 3], available);
        assert_eq!(topology.cpus_by_preference(), [1, 2, 3]);
    }

    #[test]
    fn the_tightest_quota_of_all_ancestors_counts() {
        let root = host(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
        ]);
        let topology = Topology::read_under(root.path(), vec![0, 1, 2], available);
        assert_eq!((topology.quota_cpus, topology.cpus_usable()), (Some(1.5), 2));
        let old = host(&[
            ("proc/self/cgroup", "2:cpuacct:/\n1:cpu:/host/only\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        let topology = Topology::read_under(old.path(), vec![0, 1, 2], available);
        assert_eq!((topology.quota_cpus, topology.cpus_usable()), (Some(0.5), 1));
        fs::write(old.path().join("sys/fs/cgroup/cpu/cpu.cfs_quota_us"), "-1\n").unwrap();
        assert_eq!(Topology::read_under(old.path(), vec![0], available).quota_cpus, None);
    }

    #[test]
    fn what_keeps_io_uring_out_is_named() {
        let limits = "Limit  Soft  Hard  Units\nMax locked memory  65536  65536  bytes\n";
        let root = host(&[("proc/self/limits", limits)]);
        let topology = Topology::read_under(root.path(), vec![0], available);
        let refusal = topology.io_uring_refusal().unwrap();
        assert!(refusal.contains("only 64 KiB") && refusal.contains("ulimit -l 512"), "{refusal}");
        let old = host(&[("proc/sys/kernel/osrelease", "5.4.0-42-generic\n")]);
        let refusal = Topology::read_under(old.path(), vec![0], available).io_uring_refusal();
        assert!(refusal.unwrap().contains("the kernel is 5.4.0"));
    }

    #[test]
    fn a_copy_of_a_host_is_read_and_nothing_else() {
        let root = host(&[
            ("proc/self/status", "Name: x\nCpus_allowed_list:\t5,7\n"),
            ("proc/sys/kernel/io_uring_disabled", "2\n"),
        ]);
        let topology = Topology::read_copy(root.path());
        assert_eq!(topology.cpus.iter().map(|cpu| cpu.id).collect::<Vec<_>>(), [5, 7]);
        assert!(topology.io_uring_refusal().unwrap().contains("io_uring_disabled=0"));
        let root = host(&[("sys/devices/system/cpu/online", "0-2\n")]);
        let topology = Topology::read_copy(root.path());
        assert_eq!((topology.cpus.len(), topology.io_uring), (3, IoUring::Unknown));
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_cpu_list("\n"), Some(vec![]));
        assert_eq!(parse_cpu_list("3-1"), None);
        assert_eq!(parse_cpu_list("0-99999999999"), None);
        assert_eq!(parse_cpu_list("one"), None);
    }
}
