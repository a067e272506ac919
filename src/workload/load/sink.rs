//! The sink of a load: looks at the clock for every pair.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::event::{Event, Side};
use crate::join::{Emit, Sink};
use crate::time::{Clock, MonotonicClock};
use crate::workload::Outcome;
use crate::workload::load::Scenario;
use crate::workload::load::sample::Window;
use crate::workload::load::waiting::Watch;

/// Bytes of a row before its payload: the event's number, and when it was due.
const ROW_BYTES: usize = 16;

/// Longer latencies are recorded as this: an hour.
pub(super) const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// What [`write_row`] writes into: a row with a payload.
pub(super) fn blank_row(payload_bytes: u32) -> Vec<u8> {
    vec![b'.'; ROW_BYTES + payload_bytes as usize]
}

/// Writes a row's number and due time, which is 0 during the warm-up.
pub(super) fn write_row(row: &mut [u8], id: u64, due_ns: u64) {
    let (numbers, _) = row.as_chunks_mut();
    if let [of_id, of_due, ..] = numbers {
        (*of_id, *of_due) = (id.to_le_bytes(), due_ns.to_le_bytes());
    }
}

/// A histogram of nanoseconds: 3 significant figures up to an hour.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .expect("bounds and figures are within what it allows")
}

/// Measures the pairs of one shard.
#[derive(Debug)]
pub(super) struct LatencySink {
    pub(super) outcome: Outcome,
    pub(super) latency_ns: Histogram<u64>,
    /// Of the shard's thread, from the first pair that is measured on.
    pub(super) watch: Watch,
    samples: Option<Samples>,
    pauses: Option<Pauses>,
}

/// What is handed to whoever takes samples.
#[derive(Debug)]
struct Samples {
    window: Window,
    latency_ns: Histogram<u64>,
    every_ns: u64,
    due_ns: u64,
}

/// When a slow sink stands still: on its first pair, and then from time to time.
#[derive(Debug)]
struct Pauses {
    pause: Duration,
    every_ns: u64,
    due_ns: u64,
}

impl LatencySink {
    /// `sampled` is where latencies of the last moments go, and how often.
    pub(super) fn new(scenario: Scenario, sampled: Option<(Window, Duration)>) -> LatencySink {
        let pauses = match scenario {
            Scenario::SlowSink { pause, every } => {
                Some(Pauses { pause, every_ns: every.as_nanos() as u64, due_ns: 0 })
            }
            _ => None,
        };
        let samples = sampled.map(|(window, every)| Samples {
            latency_ns: window.empty(),
            window,
            every_ns: every.as_nanos() as u64,
            due_ns: 0,
        });
        LatencySink {
            outcome: Outcome::default(),
            latency_ns: histogram(),
            watch: Watch::new(),
            samples,
            pauses,
        }
    }

    #[inline]
    fn measure(&mut self, due_ns: u64) {
        let mut now_ns = MonotonicClock.now_ns();
        if let Some(pauses) = self.pauses.as_mut().filter(|pauses| now_ns >= pauses.due_ns) {
            std::thread::sleep(pauses.pause);
            now_ns = MonotonicClock.now_ns();
            pauses.due_ns = now_ns + pauses.every_ns;
        }
        self.watch.look(now_ns);
        let latency_ns = now_ns.saturating_sub(due_ns);
        self.latency_ns.saturating_record(latency_ns);
        if let Some(samples) = &mut self.samples {
            samples.latency_ns.saturating_record(latency_ns);
            if now_ns >= samples.due_ns {
                samples.window.add(&mut samples.latency_ns);
                // Twice a sample, so that each has about what came in its time.
                samples.due_ns = now_ns + samples.every_ns / 2;
            }
        }
    }
}

/// The number and the due time in a row; a row of another length would spoil the checksum, not
/// panic.
#[inline]
fn split(row: &[u8]) -> (u64, u64) {
    match row.as_chunks().0 {
        [id, due_ns, ..] => (u64::from_le_bytes(*id), u64::from_le_bytes(*due_ns)),
        _ => (0, 0),
    }
}

impl Emit for LatencySink {
    #[inline]
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        let (left, right) = (split(left.row), split(right.row));
        self.outcome.add(left.0, right.0);
        // The pair is due when both events are.
        let due_ns = left.1.max(right.1);
        if due_ns > 0 {
            self.measure(due_ns);
        }
    }

    fn single(&mut self, _side: Side, _event: Event<'_>) {}
}

impl Sink for LatencySink {}
