//! What a measurement comes to, and how the repeats of one configuration are put together.

use crate::runtime::RuntimeKind;
use crate::workload::bench::{Checked, FIRST_RUN, Once, Subject};
use crate::workload::{Events, Look, Measured, Moved, Outcome, Roofline, Yardstick};

/// A figure over the repeats; smaller is better.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The least.
    pub best: f64,
    /// The one in the middle, or the mean of the two that are.
    pub median: f64,
    /// The largest.
    pub worst: f64,
}

impl Spread {
    /// Of some figures; all 0 of none.
    pub fn of(figures: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(&best), Some(&worst)) = (sorted.first(), sorted.last()) else {
            return Spread::default();
        };
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Spread { best, median, worst }
    }

    /// How far the figures lie apart, as a share of the median.
    pub fn share(&self) -> f64 {
        if self.median > 0.0 { (self.worst - self.best) / self.median } else { 0.0 }
    }
}

/// One configuration's figures: where nothing else is said, the best over the repeats.
#[derive(Clone, Debug)]
pub struct BenchRow {
    /// The configuration.
    pub subject: Subject,
    /// Cores in use.
    pub cores: usize,
    /// What drove them, in an engine.
    pub runtime: Option<RuntimeKind>,
    /// How often a key that was too much for one core was split, in the last run.
    pub keys_split: u64,
    /// Rows that were copied for it.
    pub copies: u64,
    /// Events of both sides.
    pub events: u64,
    /// Pairs and checksum, the same in every repeat; the first one's where rows are given up.
    pub outcome: Outcome,
    /// Rows that came out alone: padded, semi, anti.
    pub singles: u64,
    /// What pairs and checksum were compared with.
    pub checked_against: &'static str,
    /// How many fewer pairs the first run found than that, where rows are given up.
    pub pairs_missing: Option<u64>,
    /// Rows that bounds on state have cost their place in memory, in the first run.
    pub moved: Moved,
    /// Wall nanoseconds an event.
    pub ns_per_event: Spread,
    /// CPU nanoseconds an event, all threads.
    pub cpu_ns_per_event: Spread,
    /// CPU nanoseconds an event for freeing what is left at the end of input; not in the above.
    pub finish_cpu_ns_per_event: f64,
    /// The largest state.
    pub state_rows_peak: u64,
    /// Its bytes, as allocated.
    pub state_bytes_peak: u64,
    /// The index's part of them.
    pub index_bytes_peak: u64,
    /// Step times: half of the steps took no longer.
    pub step_ns_p50: u64,
    /// 99 in 100.
    pub step_ns_p99: u64,
    /// 999 in 1,000.
    pub step_ns_p999: u64,
    /// The slowest.
    pub step_ns_max: u64,
    /// The kernel, if it ran.
    pub roofline: Option<RooflineRow>,
    /// How fast the machine was beside the repeats, if that was looked at.
    pub yardstick: Option<Look>,
    /// How many repeats there were: fewer than planned where the measurement was stopped.
    pub repeat: u32,
}

/// The roofline kernel's figures.
#[derive(Clone, Copy, Debug)]
pub struct RooflineRow {
    /// CPU nanoseconds an event, the best over the repeats.
    pub ns_per_event: f64,
    /// The size of its table.
    pub table_bytes: u64,
}

impl BenchRow {
    /// Bytes of state a buffered row, both at their peaks.
    pub fn bytes_per_buffered_row(&self) -> f64 {
        self.state_bytes_peak as f64 / self.state_rows_peak.max(1) as f64
    }

    /// CPU nanoseconds an event over the kernel's.
    pub fn ratio_to_roofline(&self) -> Option<f64> {
        self.roofline.map(|roofline| self.cpu_ns_per_event.best / roofline.ns_per_event)
    }
}

/// The runs of one configuration so far.
pub(super) struct Runs {
    pub(super) subject: Subject,
    measured: Vec<Measured>,
    cores: usize,
    runtime: Option<RuntimeKind>,
    keys_split: u64,
    copies: u64,
    kernel: Option<Roofline>,
    kernel_ns: f64,
    looks: Vec<Look>,
    /// The first run.
    checked: Checked,
}

impl Runs {
    pub(super) fn new(subject: Subject) -> Runs {
        Runs {
            subject,
            measured: Vec::new(),
            cores: 1,
            runtime: None,
            keys_split: 0,
            copies: 0,
            kernel: None,
            kernel_ns: f64::INFINITY,
            looks: Vec::new(),
            checked: Checked { against: FIRST_RUN, pairs_missing: None },
        }
    }

    /// Whether nothing was measured.
    pub(super) fn is_empty(&self) -> bool {
        self.measured.is_empty()
    }

    /// Looks at the machine, right before or after a run.
    pub(super) fn look(&mut self, yardstick: Option<&mut Yardstick>) {
        self.looks.extend(yardstick.map(Yardstick::look));
    }

    pub(super) fn take(&mut self, run: Once, checked: Checked) {
        if self.is_empty() {
            self.checked = checked;
        }
        (self.cores, self.runtime) = (run.cores, run.runtime);
        (self.keys_split, self.copies) = (run.keys_split, run.copies);
        self.measured.push(run.measured);
    }

    /// Runs the kernel once, with a table as large as one core's index was in the first run.
    pub(super) fn roofline(&mut self, events: &Events, batch: usize) {
        let index_bytes = self.measured.first().map_or(0, |run| run.peak.index_bytes);
        let table_bytes = index_bytes / self.cores.max(1) as u64;
        let kernel = self.kernel.get_or_insert_with(|| Roofline::new(table_bytes));
        self.kernel_ns = self.kernel_ns.min(kernel.run(events, batch));
    }

    pub(super) fn best(self) -> BenchRow {
        let runs = &self.measured;
        let least = |of: fn(&Measured) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
        let step = |share: f64| {
            let steps = runs.iter().map(|run| run.steps.quantile_ns(share));
            steps.min().unwrap_or_default()
        };
        let peak = runs.iter().fold(Default::default(), |peak, run| run.peak.max(peak));
        let first = runs.first().cloned().unwrap_or_default();
        let table_bytes = self.kernel.as_ref().map(Roofline::table_bytes);
        let roofline = table_bytes
            .map(|table_bytes| RooflineRow { ns_per_event: self.kernel_ns, table_bytes });
        BenchRow {
            subject: self.subject,
            cores: self.cores,
            runtime: self.runtime,
            keys_split: self.keys_split,
            copies: self.copies,
            events: first.events,
            outcome: first.outcome,
            singles: first.singles,
            checked_against: self.checked.against,
            pairs_missing: self.checked.pairs_missing,
            moved: first.moved,
            ns_per_event: Spread::of(runs.iter().map(Measured::wall_ns_per_event)),
            cpu_ns_per_event: Spread::of(runs.iter().map(Measured::cpu_ns_per_event)),
            finish_cpu_ns_per_event: least(|run| {
                run.finish_cpu_ns as f64 / run.events.max(1) as f64
            }),
            state_rows_peak: peak.rows,
            state_bytes_peak: peak.bytes,
            index_bytes_peak: peak.index_bytes,
            step_ns_p50: step(0.5),
            step_ns_p99: step(0.99),
            step_ns_p999: step(0.999),
            step_ns_max: step(1.0),
            roofline,
            yardstick: Look::of(&self.looks),
            repeat: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_both_ends() {
        let of = |figures: &[f64]| Spread::of(figures.iter().copied());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Spread { best: 1.0, median: 2.0, worst: 3.0 });
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(of(&[5.0]).share(), 0.0);
        assert_eq!(of(&[1.0, 2.0, 4.0]).share(), 1.5);
        assert_eq!(of(&[]), Spread::default());
    }
}
