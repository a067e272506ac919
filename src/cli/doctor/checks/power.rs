//! What saves power, or watches, at the cost of latency or of steady figures.

use crate::cli::doctor::checks::Finding;
use crate::cli::doctor::host::Host;

/// Waking from an idle state takes longer than a worker's own way to a pair.
const WAKE_US_WARN: u64 = 10;

pub(super) fn idle_states(host: &Host) -> Finding {
    const NAME: &str = "idle_states";
    let Some((name, us)) = &host.idle_state else {
        return Finding::unknown(
            NAME,
            match host.is_virtual {
                true => "a virtual machine: its host decides how deep an idle CPU sleeps",
                false => "the system does not say how deep an idle CPU sleeps",
            },
        );
    };
    let found = format!("an idle CPU goes down to {name}, {us} us to wake");
    if *us <= WAKE_US_WARN {
        return Finding::ok(NAME, found);
    }
    let fix = format!(
        "where tail latency counts: sudo cpupower idle-set -D {WAKE_US_WARN} (sudo cpupower \
         idle-set -E undoes it), or sudo tuning/prepare-host.sh --cores ... --apply, which does \
         so on workers' CPUs; or --idle spin, whose CPUs are never idle"
    );
    Finding::warn(NAME, found)
        .costs(format!("the first event after a pause waits up to {us} us for its CPU to wake"))
        .fix(match host.is_container {
            true => format!("not from inside a container; on its host, {fix}"),
            false => fix,
        })
}

pub(super) fn turbo(host: &Host) -> Finding {
    const NAME: &str = "turbo";
    let Some(turbo) = host.turbo else {
        return Finding::unknown(
            NAME,
            match host.is_virtual {
                true => "a virtual machine: its host sets the clock rate",
                false => "the system does not say whether the clock rate may go above its base",
            },
        );
    };
    let [on, off] = turbo.on_off;
    if turbo.is_on {
        return Finding::ok(
            NAME,
            format!(
                "on: fastest, but the clock rate goes by heat and by how many cores work; to \
                 compare figures, off (echo {off} | sudo tee {})",
                turbo.path
            ),
        );
    }
    Finding::warn(NAME, "off: the clock rate stays at its base")
        .costs("each event takes longer, by as much as the rate is lower; figures are steadier")
        .fix(format!("to run rather than to compare: echo {on} | sudo tee {}", turbo.path))
}

pub(super) fn nmi_watchdog(host: &Host) -> Finding {
    const NAME: &str = "nmi_watchdog";
    match host.nmi_watchdog {
        None => Finding::unknown(NAME, "the system does not say whether it has one"),
        Some(false) => Finding::ok(NAME, "off"),
        Some(true) => Finding::warn(NAME, "on")
            .costs(
                "it interrupts every CPU each few seconds, isolated ones too, and takes one of the \
                 counters that perf measures with",
            )
            .fix("sudo sysctl kernel.nmi_watchdog=0"),
    }
}
