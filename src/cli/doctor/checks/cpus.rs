//! Which CPUs there are, what they are worth, and who else uses them.

use std::collections::BTreeSet;

use crate::cli::doctor::checks::{Finding, MOUNT_SYS, ranges};
use crate::cli::doctor::host::Host;
use crate::cli::profile::unswept;
use crate::state::Simd;

/// Of stolen CPU time: what shows in tail latency, and what shows everywhere.
const STOLEN_WARN: f64 = 0.005;
const STOLEN_BAD: f64 = 0.05;
/// Of periods in which a quota ran out.
const THROTTLED_BAD: f64 = 0.01;

fn ids(host: &Host) -> Vec<usize> {
    host.topology.cpus.iter().map(|cpu| cpu.id).collect()
}

pub(super) fn allowed(host: &Host) -> Finding {
    const NAME: &str = "cores";
    let allowed = ids(host);
    let (count, list) = (allowed.len(), ranges(&allowed));
    match &host.online {
        Some(online) if online.len() > count => {
            let all = ranges(online);
            Finding::warn(NAME, format!("{count} of {} CPUs allowed ({list})", online.len()))
                .costs(format!("a join gets {count} workers at most; other CPUs do nothing for it"))
                .fix(format!(
                    "taskset -c {all} intervale ...; in a container: \
                     docker update --cpuset-cpus={all} NAME"
                ))
        }
        _ if count == 1 => Finding::warn(NAME, format!("1 CPU allowed ({list})"))
            .costs("the one worker shares it with whatever feeds it and with everything else")
            .fix("give the machine or container a second CPU"),
        Some(_) => Finding::ok(NAME, format!("{count} CPUs, all of this host ({list})")),
        None => {
            Finding::unknown(NAME, format!("{count} CPUs allowed ({list}), of who knows how many"))
                .fix(MOUNT_SYS)
        }
    }
}

pub(super) fn quota(host: &Host) -> Finding {
    const NAME: &str = "quota";
    let cpus = host.topology.cpus.len();
    let Some(quota) = host.topology.quota_cpus else {
        return match host.groups_readable {
            true => Finding::ok(NAME, "no CPU quota"),
            false => Finding::unknown(NAME, "the files of control groups are not readable")
                .costs("a quota that is there stops all workers when it is used up, unseen")
                .fix("in a container: leave /sys/fs/cgroup as the runtime mounts it"),
        };
    };
    let mut found = format!("{quota:.2} CPUs of {cpus} allowed");
    let mut ran_out = 0.0;
    if let Some((throttled, periods)) = host.throttled.filter(|&(_, periods)| periods > 0) {
        ran_out = throttled as f64 / periods as f64;
        found.push_str(&format!("; used up in {throttled} of {periods} periods so far"));
    }
    if quota >= cpus as f64 {
        return Finding::ok(NAME, found);
    }
    let finding = match ran_out {
        share if share >= THROTTLED_BAD => Finding::bad(NAME, found),
        _ => Finding::warn(NAME, found),
    };
    finding
        .costs(
            "when it is used up every worker stands still to the end of the period (100 ms unless \
             set otherwise), and so does every pair",
        )
        .fix(format!(
            "docker update --cpus={cpus} NAME; for a service: systemctl set-property NAME CPUQuota="
        ))
}

pub(super) fn siblings(host: &Host) -> Finding {
    const NAME: &str = "smt";
    if !host.siblings_known {
        return Finding::unknown(NAME, "the system does not say which CPUs share a core");
    }
    let cpus = &host.topology.cpus;
    let cores: BTreeSet<&[usize]> = cpus.iter().map(|cpu| &cpu.siblings[..]).collect();
    if cores.len() == cpus.len() {
        return Finding::ok(NAME, "no two allowed CPUs share a core");
    }
    let first_threads = &host.topology.cpus_by_preference()[..cores.len()];
    let plural = if cores.len() == 1 { "" } else { "s" };
    Finding::warn(NAME, format!("{} CPUs on {} core{plural}", cpus.len(), cores.len()))
        .costs("two workers on one core share its units and caches: each is slower than alone")
        .fix(format!(
            "--cores {} (one worker a core); for all programs: \
             echo off | sudo tee /sys/devices/system/cpu/smt/control (nosmt at boot)",
            cores_option(first_threads)
        ))
}

/// A list for `--cores` of any command: a lone number is a count, and `bench` takes several of them
/// for counts to sweep.
fn cores_option(ids: &[usize]) -> String {
    match ids {
        [id] => format!("{id}-{id}"),
        _ => unswept(&ranges(ids)),
    }
}

pub(super) fn nodes(host: &Host) -> Finding {
    const NAME: &str = "numa";
    let cpus = &host.topology.cpus;
    let nodes: BTreeSet<usize> = cpus.iter().filter_map(|cpu| cpu.node).collect();
    let Some(&first) = nodes.first() else {
        return Finding::unknown(NAME, "the system does not say to which memory CPUs are near");
    };
    if nodes.len() == 1 {
        return Finding::ok(NAME, format!("one memory node (node {first})"));
    }
    let near: Vec<usize> =
        cpus.iter().filter(|cpu| cpu.node == Some(first)).map(|cpu| cpu.id).collect();
    Finding::warn(NAME, format!("allowed CPUs lie on {} memory nodes", nodes.len()))
        .costs(
            "batches between nodes, and state that has come to lie on the other one, take longer",
        )
        .fix(format!("numactl --membind={first} intervale ... --cores {}", cores_option(&near)))
}

pub(super) fn isolated(host: &Host) -> Finding {
    const NAME: &str = "isolation";
    let Some(isolated) = &host.isolated else {
        return Finding::unknown(NAME, "the system does not say which CPUs it isolates");
    };
    let allowed = ids(host);
    let ours: Vec<usize> = isolated.iter().copied().filter(|id| allowed.contains(id)).collect();
    if isolated.is_empty() {
        let rest = allowed.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(&allowed);
        return Finding::warn(NAME, "no CPU is isolated")
            .costs(
                "the kernel runs other work on a worker's CPU, milliseconds at a time: it shows in \
                 the highest percentiles of latency",
            )
            .fix(match (host.is_virtual, host.is_container) {
                (true, _) => "nothing from inside: a virtual machine cannot isolate CPUs that its \
                     host shares; rent dedicated ones, or take --profile shared-vm"
                    .to_owned(),
                (_, true) => "nothing from inside a container; on its host, as for a join that \
                     runs there (tuning/README.md), then docker run --cpuset-cpus=..."
                    .to_owned(),
                _ => format!(
                    "where tail latency counts: sudo tuning/prepare-host.sh --cores {0} --boot \
                     --apply (isolcpus={0} nohz_full={0}), start again, and run with --cores {1}; \
                     sudo tuning/undo-host.sh --apply undoes it",
                    ranges(rest),
                    cores_option(rest)
                ),
            });
    }
    let list = ranges(isolated);
    if ours.is_empty() {
        return Finding::warn(
            NAME,
            format!("CPUs {list} are isolated, and none of them is allowed"),
        )
        .costs("the quiet CPUs of this host are not used")
        .fix(format!("taskset -c {list} intervale ... --cores {}", cores_option(isolated)));
    }
    let finding = Finding::ok(NAME, format!("CPUs {} are isolated and allowed", ranges(&ours)));
    if ours.len() < allowed.len() {
        finding.fix(format!("--cores {} uses just these", cores_option(&ours)))
    } else {
        finding
    }
}

pub(super) fn governor(host: &Host) -> Finding {
    const NAME: &str = "governor";
    let kinds: BTreeSet<&str> = host.governors.iter().map(String::as_str).collect();
    if kinds.is_empty() {
        return Finding::unknown(
            NAME,
            match host.is_virtual {
                true => "a virtual machine: its host sets the clock rate",
                false => "the system does not say how it sets the clock rate",
            },
        );
    }
    let found = kinds.iter().copied().collect::<Vec<_>>().join(", ");
    if found == "performance" {
        return Finding::ok(NAME, found);
    }
    Finding::warn(NAME, found)
        .costs("the clock rate falls when a worker waits, and the next events are joined slowly")
        .fix("echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
}

pub(super) fn stolen(host: &Host) -> Finding {
    const NAME: &str = "steal";
    let Some(stolen) = host.stolen else {
        return Finding::unknown(NAME, "the system does not count stolen CPU time");
    };
    let found = format!("{:.2} % of CPU time went to other virtual machines", stolen * 100.0);
    let finding = match stolen {
        share if share >= STOLEN_BAD => Finding::bad(NAME, found),
        share if share >= STOLEN_WARN => Finding::warn(NAME, found),
        _ => return Finding::ok(NAME, found),
    };
    finding
        .costs("workers stand still without notice; measured figures differ from run to run")
        .fix("rent dedicated CPUs, and compare only what was measured in one run, in turn")
}

pub(super) fn load(host: &Host) -> Finding {
    const NAME: &str = "load";
    let Some(load) = host.load else {
        return Finding::unknown(NAME, "the system does not say how busy it is");
    };
    let cpus = host.online.as_ref().map_or(host.topology.cpus.len(), Vec::len);
    let found = format!("{load:.2} threads at work on {cpus} CPUs over the last minute");
    // Whoever runs this has built or run something a moment ago: half the CPUs are no reason.
    if load <= cpus as f64 / 2.0 {
        return Finding::ok(NAME, found);
    }
    Finding::warn(NAME, found)
        .costs("other work takes turns with the workers, or their CPUs' caches and clock rate")
        .fix("top -o %CPU shows what runs; stop it, or keep it off with taskset")
}

pub(super) fn simd(host: &Host) -> Finding {
    const NAME: &str = "simd";
    match host.simd {
        None => Finding::unknown(NAME, "the system does not say what the processor can do"),
        Some(Simd::Scalar) => Finding::warn(NAME, "none that is used here")
            .costs("times are compared one by one: long runs of rows of a key take longer")
            .fix(match host.is_virtual {
                true => "let the virtual machine see the processor's own model (QEMU: -cpu host)",
                false => "a processor with AVX2",
            }),
        Some(simd) => Finding::ok(NAME, simd.name()),
    }
}
