//! What the files of a host say, beyond its topology. Whatever is not there is `None`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::doctor::clock;
use crate::runtime::Topology;
use crate::state::Simd;

/// A host, or a copy of one.
pub(super) struct Host {
    pub(super) topology: Topology,
    /// Whether there is anything about CPUs below `/sys`.
    pub(super) sys_readable: bool,
    /// Whether the control groups that bound CPU time can be looked at; true where there are none.
    pub(super) groups_readable: bool,
    /// Whether the system says which CPUs share a core.
    pub(super) siblings_known: bool,
    pub(super) online: Option<Vec<usize>>,
    /// CPUs that the kernel keeps free of other work, allowed or not.
    pub(super) isolated: Option<Vec<usize>>,
    /// Periods in which the quota was used up, and all periods.
    pub(super) throttled: Option<(u64, u64)>,
    /// By allowed CPU, where one is known.
    pub(super) governors: Vec<String>,
    /// Of the allowed CPUs, the idle state that is left last, of those that are not switched off:
    /// its name and how long waking from it takes, in us.
    pub(super) idle_state: Option<(String, u64)>,
    /// Whether the clock rate may go above what is always kept.
    pub(super) turbo: Option<Turbo>,
    /// Whether the kernel looks for CPUs that hang by interrupting each from time to time.
    pub(super) nmi_watchdog: Option<bool>,
    pub(super) is_virtual: bool,
    /// Whether a container runtime has left its mark.
    pub(super) is_container: bool,
    /// `always`, `madvise` or `never`.
    pub(super) huge_pages: Option<String>,
    pub(super) clock_source: Option<String>,
    pub(super) clock_sources: Vec<String>,
    /// How long a look at the clock takes, in ns; of this host only.
    pub(super) clock_ns: Option<f64>,
    pub(super) simd: Option<Simd>,
    /// The share of CPU time that a hypervisor gave to others since the start of the system.
    pub(super) stolen: Option<f64>,
    /// Threads that ran or wanted to, over the last minute.
    pub(super) load: Option<f64>,
}

/// The switch of the higher clock rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turbo {
    pub(super) is_on: bool,
    /// The file, and what switches it on and off there.
    pub(super) path: &'static str,
    pub(super) on_off: [&'static str; 2],
}

impl Host {
    /// This host.
    pub(super) fn read() -> Host {
        let mut host = Host::of(Path::new("/"), Topology::read());
        host.simd = Some(Simd::detect());
        host.clock_ns = Some(clock::look_ns());
        host
    }

    /// The host whose files were copied below `root`.
    pub(super) fn read_copy(root: &Path) -> Host {
        Host::of(root, Topology::read_copy(root))
    }

    fn of(root: &Path, topology: Topology) -> Host {
        let cpus = root.join("sys/devices/system/cpu");
        let clock = root.join("sys/devices/system/clocksource/clocksource0");
        let cpuinfo = read(&root.join("proc/cpuinfo")).unwrap_or_default();
        let of_cpu = |name: &str| {
            let path = |id: usize| cpus.join(format!("cpu{id}")).join(name);
            topology.cpus.iter().map(|cpu| path(cpu.id)).collect::<Vec<PathBuf>>()
        };
        let siblings_known = of_cpu("topology").iter().any(|path| path.is_dir());
        let governors = of_cpu("cpufreq/scaling_governor").iter().filter_map(|p| read(p)).collect();
        Host {
            sys_readable: cpus.is_dir(),
            groups_readable: groups_readable(root),
            siblings_known,
            online: read_list(&cpus.join("online")),
            isolated: read_list(&cpus.join("isolated")),
            throttled: throttled(root),
            governors,
            idle_state: of_cpu("cpuidle")
                .iter()
                .filter_map(|path| deepest(path))
                .max_by_key(|s| s.1),
            turbo: turbo(root),
            nmi_watchdog: read(&root.join("proc/sys/kernel/nmi_watchdog")).map(|text| text != "0"),
            is_virtual: flags(&cpuinfo).any(|flag| flag == "hypervisor"),
            is_container: [".dockerenv", "run/.containerenv"]
                .iter()
                .any(|name| root.join(name).exists()),
            huge_pages: read(&root.join("sys/kernel/mm/transparent_hugepage/enabled"))
                .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
            clock_source: read(&clock.join("current_clocksource")),
            clock_sources: read(&clock.join("available_clocksource"))
                .map(|text| text.split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
            clock_ns: None,
            simd: simd_of(&cpuinfo),
            stolen: read(&root.join("proc/stat")).and_then(|text| stolen(&text)),
            load: read(&root.join("proc/loadavg"))
                .and_then(|text| text.split_whitespace().next()?.parse().ok()),
            topology,
        }
    }
}

/// A file's text without the white space around it; `None` for an empty one, too.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The CPUs in a list. An empty file is an empty list.
fn read_list(path: &Path) -> Option<Vec<usize>> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    crate::runtime::parse_cpu_list(text)
}

/// The flags of the first processor.
fn flags(cpuinfo: &str) -> impl Iterator<Item = &str> {
    let is_flags = |line: &&str| line.starts_with("flags") || line.starts_with("Features");
    let line = cpuinfo.lines().find(is_flags).unwrap_or_default();
    line.split_once(':').map_or("", |(_, flags)| flags).split_whitespace()
}

fn simd_of(cpuinfo: &str) -> Option<Simd> {
    let has = |name: &str| flags(cpuinfo).any(|flag| flag == name);
    if has("asimd") {
        Some(Simd::Neon)
    } else if has("avx512f") && has("avx512vl") {
        Some(Simd::Avx512)
    } else if has("avx2") {
        Some(Simd::Avx2)
    } else {
        flags(cpuinfo).next().map(|_| Simd::Scalar)
    }
}

/// The idle state of a CPU that takes longest to leave, of those that it may enter.
fn deepest(cpuidle: &Path) -> Option<(String, u64)> {
    let states = fs::read_dir(cpuidle).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let state = |path: PathBuf| {
        let us: u64 = read(&path.join("latency"))?.parse().ok()?;
        let is_off = read(&path.join("disable")).is_some_and(|text| text != "0");
        (!is_off).then_some((read(&path.join("name"))?, us))
    };
    states.filter_map(state).max_by_key(|(_, us)| *us)
}

/// Intel's own driver has a switch of its own; the others have one in common.
fn turbo(root: &Path) -> Option<Turbo> {
    let switches = [
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", ["0", "1"]),
        ("/sys/devices/system/cpu/cpufreq/boost", ["1", "0"]),
    ];
    switches.into_iter().find_map(|(path, on_off)| {
        let text = read(&root.join(path.trim_start_matches('/')))?;
        Some(Turbo { is_on: text == on_off[0], path, on_off })
    })
}

/// The share of stolen time in the sum line of `/proc/stat`.
fn stolen(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().map_while(|time| time.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
    let all: u64 = times.iter().take(8).sum();
    let stolen = *times.get(7)?;
    (all > 0).then(|| stolen as f64 / all as f64)
}

/// Periods throttled and all periods of the group of this process, or of the nearest group above it
/// that counts them.
fn throttled(root: &Path) -> Option<(u64, u64)> {
    let groups = read(&root.join("proc/self/cgroup"))?;
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let mount = match controllers {
            "" => root.join("sys/fs/cgroup"),
            _ if controllers.split(',').any(|name| name == "cpu") => {
                root.join("sys/fs/cgroup").join("cpu")
            }
            _ => return None,
        };
        let group = mount.join(path.trim_start_matches('/'));
        let mut folders = group.ancestors().take_while(|folder| folder.starts_with(&mount));
        folders.find_map(|folder| periods(&read(&folder.join("cpu.stat"))?))
    })
}

/// Whether one of the mounts that may hold CPU quotas is there to be looked into. A kernel without
/// control groups has no quotas to hide.
fn groups_readable(root: &Path) -> bool {
    let Some(groups) = read(&root.join("proc/self/cgroup")) else {
        // Where even this is hidden, nothing is known.
        return root.join("proc/self/status").is_file();
    };
    let mounts = groups.lines().filter_map(|line| {
        let controllers = line.split(':').nth(1)?;
        match controllers {
            "" => Some(&["", "unified"][..]),
            _ if controllers.split(',').any(|name| name == "cpu") => Some(&["cpu", "cpu,cpuacct"]),
            _ => None,
        }
    });
    let holds_files = |mount: &&str| {
        let folder = root.join("sys/fs/cgroup").join(mount);
        // A folder that only holds the mounts of others has none of these.
        let files = ["cgroup.procs", "cpu.max", "cpu.stat", "cpu.cfs_quota_us"];
        files.iter().any(|name| folder.join(name).exists())
    };
    mounts.flatten().any(holds_files)
}

fn periods(stat: &str) -> Option<(u64, u64)> {
    let value = |name: &str| {
        stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some((value("nr_throttled ")?, value("nr_periods ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_out_of_their_files() {
        let stat = "cpu  10 0 10 70 0 0 0 10 5 0\ncpu0 1 2 3\n";
        assert_eq!(stolen(stat), Some(0.1));
        assert_eq!(stolen("cpu  1 2\n"), None);
        assert_eq!(stolen("cpu  0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(periods("nr_periods 8\nnr_throttled 2\n"), Some((2, 8)));
        assert_eq!(periods("usage_usec 1\n"), None);
        assert_eq!(simd_of("flags\t: fpu avx2 popcnt\n"), Some(Simd::Avx2));
        assert_eq!(simd_of("flags\t: avx512f avx512vl\n"), Some(Simd::Avx512));
        assert_eq!(simd_of("flags\t: fpu\n"), Some(Simd::Scalar));
        assert_eq!(simd_of("Features\t: fp asimd\n"), Some(Simd::Neon));
        assert_eq!(simd_of(""), None);
    }
}
