//! Judges a host: each check is a function from what was read to a [`Finding`].

mod cpus;
mod power;
mod system;

use crate::cli::doctor::host::Host;

/// How much a finding matters, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Ok,
    /// The system does not say.
    Unknown,
    /// It costs something.
    Warn,
    /// It costs much.
    Bad,
}

impl Status {
    pub(super) fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Unknown => "unknown",
            Status::Warn => "warn",
            Status::Bad => "bad",
        }
    }
}

/// One thing about a host.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// A name for scripts; it stays.
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// What is the case.
    pub(super) found: String,
    /// What that does to a join.
    pub(super) cost: Option<String>,
    /// The command that changes it, or what else to do.
    pub(super) fix: Option<String>,
}

impl Finding {
    fn ok(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { name, status: Status::Ok, found: found.into(), cost: None, fix: None }
    }

    fn unknown(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { status: Status::Unknown, ..Finding::ok(name, found) }
    }

    fn warn(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { status: Status::Warn, ..Finding::ok(name, found) }
    }

    fn bad(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { status: Status::Bad, ..Finding::ok(name, found) }
    }

    fn costs(self, cost: impl Into<String>) -> Finding {
        Finding { cost: Some(cost.into()), ..self }
    }

    fn fix(self, fix: impl Into<String>) -> Finding {
        Finding { fix: Some(fix.into()), ..self }
    }
}

/// What brings back the files of a host that most findings are read from.
const MOUNT_SYS: &str =
    "sudo mount -t sysfs sysfs /sys -o ro; in a container: leave /sys as the runtime mounts it";

/// Findings that are read from files below `/sys`.
const OF_SYS: [&str; 9] = [
    "cores",
    "smt",
    "numa",
    "isolation",
    "governor",
    "huge_pages",
    "clock",
    "idle_states",
    "turbo",
];

/// Everything there is to say, CPUs first.
pub(super) fn all(host: &Host) -> Vec<Finding> {
    let mut findings = each(host);
    if !host.sys_readable {
        let of_sys = |finding: &&mut Finding| OF_SYS.contains(&finding.name);
        for finding in findings.iter_mut().filter(of_sys) {
            if finding.status == Status::Unknown {
                finding.found = format!("/sys is not readable: {}", finding.found);
            }
        }
    }
    for finding in findings.iter_mut().filter(|finding| finding.status == Status::Unknown) {
        let (cost, look) = of_unknown(finding.name);
        finding.cost.get_or_insert_with(|| cost.to_owned());
        finding.fix.get_or_insert_with(|| look.to_owned());
    }
    findings
}

/// What a finding that is unknown may cost, and how to know.
fn of_unknown(name: &str) -> (&'static str, &'static str) {
    match name {
        "cores" => ("more CPUs may be there than a join gets", "nproc --all, on the host"),
        "smt" => ("two workers may share a core, and each be slower", "lscpu -e, on the host"),
        "numa" => ("state may lie on the far memory node", "numactl --hardware, on the host"),
        "isolation" => (
            "other work may run on workers' CPUs, which shows in the highest percentiles",
            "cat /sys/devices/system/cpu/isolated, on the host",
        ),
        "governor" => (
            "the clock rate may fall while a worker waits",
            "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor, on the host",
        ),
        "steal" => ("workers may stand still without notice", "vmstat 1 (st), on the machine"),
        "load" => ("other work may take turns with the workers", "uptime, on the host"),
        "simd" => ("times may be compared one by one", "grep -m1 flags /proc/cpuinfo"),
        "kernel" => ("without io_uring, threads do the work", "uname -r"),
        "io_uring" => (
            "without it, threads do the work; the results are the same",
            "intervale doctor, on the running host",
        ),
        "memlock" => ("below 512 KiB threads do the work, not io_uring", "ulimit -l"),
        "huge_pages" => (
            "looks into a large state may miss the address cache more often",
            "cat /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        "clock" => (
            "each look at the clock may be a system call",
            "cat /sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        "idle_states" => (
            "the first event after a pause may wait for its CPU to wake, up to hundreds of us",
            "cat /sys/devices/system/cpu/cpu0/cpuidle/state*/latency, on the host",
        ),
        "turbo" => (
            "figures may differ by the clock rate, which goes by heat and by what others do",
            "cat /sys/devices/system/cpu/intel_pstate/no_turbo, or cpufreq/boost, on the host",
        ),
        "nmi_watchdog" => (
            "workers may be interrupted each few seconds",
            "cat /proc/sys/kernel/nmi_watchdog, on the host",
        ),
        _ => ("nobody knows", "intervale doctor, on the running host"),
    }
}

fn each(host: &Host) -> Vec<Finding> {
    vec![
        cpus::allowed(host),
        cpus::quota(host),
        cpus::siblings(host),
        cpus::nodes(host),
        cpus::isolated(host),
        cpus::governor(host),
        cpus::stolen(host),
        cpus::load(host),
        cpus::simd(host),
        system::kernel(host),
        system::io_uring(host),
        system::memlock(host),
        system::huge_pages(host),
        system::clock_source(host),
        power::idle_states(host),
        power::turbo(host),
        power::nmi_watchdog(host),
    ]
}

/// A profile for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// As `--profile` takes it.
    pub(super) profile: &'static str,
    pub(super) why: &'static str,
}

/// The profile that fits the host, if another one than the defaults does.
pub(super) fn profile(host: &Host, findings: &[Finding]) -> Option<Advice> {
    let is = |name: &str, status: &[Status]| {
        findings.iter().any(|finding| finding.name == name && status.contains(&finding.status))
    };
    let poor = [Status::Warn, Status::Bad];
    let shared = |why| Some(Advice { profile: "shared-vm", why });
    match () {
        () if is("quota", &poor) => shared("a quota stops workers that wait busily, too"),
        () if is("steal", &poor) => shared("other virtual machines use its CPUs as well"),
        () if is("isolation", &[Status::Ok]) => Some(Advice {
            profile: "latency",
            why: "it has CPUs that run nothing else; give them with --cores",
        }),
        () if host.is_virtual => shared("its CPUs are threads of another system"),
        () if is("load", &poor) => shared("other work uses its CPUs as well"),
        () => None,
    }
}

/// CPUs as the kernel writes them and `--cores` takes them: `0-3,8`.
fn ranges(ids: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &id in ids {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == id => *last = id,
            _ => runs.push((id, id)),
        }
    }
    let run = |(first, last): (usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.into_iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_are_written_as_the_kernel_does() {
        assert_eq!(super::ranges(&[]), "");
        assert_eq!(super::ranges(&[3]), "3");
        assert_eq!(super::ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
