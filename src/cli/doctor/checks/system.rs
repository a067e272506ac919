//! What the kernel offers: io_uring, memory, time.

use crate::cli::doctor::checks::{Finding, MOUNT_SYS};
use crate::cli::doctor::host::Host;
use crate::cli::join::show_size;
use crate::runtime::{IoUring, KERNEL_MIN, MEMLOCK_BYTES_MIN};

/// A look at the clock that takes longer than this is a system call.
const LOOK_NS_WARN: f64 = 200.0;

pub(super) fn kernel(host: &Host) -> Finding {
    const NAME: &str = "kernel";
    match host.topology.kernel {
        None => Finding::unknown(NAME, "the system does not say which kernel it is"),
        Some(kernel) if kernel < KERNEL_MIN => Finding::warn(NAME, kernel.to_string())
            .costs(format!("before {KERNEL_MIN} there is no io_uring for joins: threads do it"))
            .fix(format!("a kernel from {KERNEL_MIN} on")),
        Some(kernel) => Finding::ok(NAME, kernel.to_string()),
    }
}

pub(super) fn io_uring(host: &Host) -> Finding {
    const NAME: &str = "io_uring";
    if !cfg!(all(feature = "glommio", target_os = "linux")) {
        return Finding::warn(NAME, "this program was built without it")
            .costs("--runtime auto means threads; the results are the same")
            .fix("cargo build --release --features glommio");
    }
    let finding = match host.topology.io_uring_refusal() {
        Some(reason) => Finding::warn(NAME, reason),
        None if host.topology.io_uring == IoUring::Unknown => {
            return Finding::unknown(NAME, "only a running host can say whether it is allowed");
        }
        None => return Finding::ok(NAME, "allowed"),
    };
    let finding =
        finding.costs("--runtime auto means threads instead of io_uring; the results are the same");
    match &host.topology.io_uring {
        IoUring::Refused { reason } if reason.contains("io_uring_disabled") => {
            finding.fix("sudo sysctl kernel.io_uring_disabled=0")
        }
        IoUring::Refused { reason } if reason.contains("seccomp") => {
            finding.fix("docker run --security-opt seccomp=PROFILE.json, a profile that allows it")
        }
        IoUring::Refused { reason } if reason.contains("/sys") => finding.fix(MOUNT_SYS),
        IoUring::Refused { .. } => finding.fix("ulimit -l unlimited, or another kernel"),
        _ => finding.fix("see the kernel and memlock findings"),
    }
}

pub(super) fn memlock(host: &Host) -> Finding {
    const NAME: &str = "memlock";
    match host.topology.memlock_bytes {
        None => Finding::unknown(NAME, "the system does not say how much memory may be locked"),
        Some(u64::MAX) => Finding::ok(NAME, "no limit"),
        Some(bytes) if bytes < MEMLOCK_BYTES_MIN => {
            let need = show_size(MEMLOCK_BYTES_MIN);
            Finding::warn(
                NAME,
                format!("{} may be locked, and {need} are needed", show_size(bytes)),
            )
            .costs("--runtime auto means threads instead of io_uring")
            .fix(
                "ulimit -l unlimited; in a container: docker run --ulimit memlock=-1; for a \
                     service: LimitMEMLOCK=infinity",
            )
        }
        Some(bytes) => Finding::ok(NAME, format!("{} may be locked", show_size(bytes))),
    }
}

pub(super) fn huge_pages(host: &Host) -> Finding {
    const NAME: &str = "huge_pages";
    let Some(mode) = &host.huge_pages else {
        return Finding::unknown(NAME, "the system does not say whether it gives huge pages");
    };
    if mode == "always" {
        return Finding::ok(NAME, mode);
    }
    Finding::warn(NAME, mode)
        .costs(
            "looks into a large state, each at a random place, miss the address cache more often",
        )
        .fix("echo always | sudo tee /sys/kernel/mm/transparent_hugepage/enabled")
}

pub(super) fn clock_source(host: &Host) -> Finding {
    const NAME: &str = "clock";
    let slow = host.clock_ns.filter(|&ns| ns > LOOK_NS_WARN);
    let look = host.clock_ns.map(|ns| format!("; a look takes {ns:.0} ns")).unwrap_or_default();
    let Some(source) = &host.clock_source else {
        return match slow {
            Some(_) => Finding::warn(NAME, format!("of unknown source{look}"))
                .costs("every step and every push looks at the clock"),
            None => Finding::unknown(NAME, format!("the system does not name its source{look}")),
        };
    };
    let found = format!("{source}{look}");
    // These are read without a system call.
    let fast = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    if fast.contains(&source.as_str()) && slow.is_none() {
        return Finding::ok(NAME, found);
    }
    let better = fast
        .iter()
        .find(|&&name| name != source && host.clock_sources.iter().any(|known| known == name));
    let finding = match host.clock_ns {
        Some(_) if slow.is_none() => return Finding::ok(NAME, found),
        _ => Finding::bad(NAME, found),
    };
    finding.costs("a look at the clock is a system call, and every step and push takes one").fix(
        match better {
            Some(name) => format!(
                "echo {name} | sudo tee \
                 /sys/devices/system/clocksource/clocksource0/current_clocksource"
            ),
            None => "boot with clocksource=tsc tsc=reliable, if the processor's counter is \
                     constant (grep constant_tsc /proc/cpuinfo)"
                .to_owned(),
        },
    )
}
