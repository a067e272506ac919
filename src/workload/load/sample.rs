//! Looks at a running load from time to time: memory, state, and the latency since the last look.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::engine::Engine;
use crate::event::Side;
use crate::time::{Clock, MonotonicClock};
use crate::workload::load::sink::LatencySink;

/// A look at a running load.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Since the first event was due.
    pub at: Duration,
    /// Memory of the whole process; `None` where the system does not say.
    pub rss_bytes: Option<u64>,
    /// Bytes of state, as allocated.
    pub state_bytes: u64,
    /// Of these, what holds no row and waits to be used again.
    pub state_bytes_pooled: u64,
    /// Rows in state.
    pub state_rows: u64,
    /// Pairs measured since the sample before; there is no latency without one.
    pub pairs: u64,
    /// Their latency from the due time: median, 99th percentile and largest, in ns.
    pub latency_ns: Option<[u64; 3]>,
}

/// Latencies of one shard that nobody has looked at yet. A coarse histogram: 2 figures.
#[derive(Clone, Debug)]
pub(super) struct Window(Arc<Mutex<Histogram<u64>>>);

impl Window {
    pub(super) fn new(latency_ns_max: u64) -> Window {
        let histogram = Histogram::new_with_bounds(1, latency_ns_max, 2)
            .expect("bounds and figures are within what it allows");
        Window(Arc::new(Mutex::new(histogram)))
    }

    /// An empty histogram of the same kind.
    pub(super) fn empty(&self) -> Histogram<u64> {
        Histogram::new_from(&*self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hands latencies over, and empties `from`.
    pub(super) fn add(&self, from: &mut Histogram<u64>) {
        // Both have the same bounds, so nothing is out of range.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).add(&*from);
        from.reset();
    }

    /// Takes what has been handed over.
    fn take(&self, to: &mut Histogram<u64>) {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = to.add(&*window);
        window.reset();
    }
}

/// Takes samples of an engine.
pub(super) struct Sampler {
    pub(super) windows: Vec<Window>,
    pub(super) every: Duration,
    pub(super) start_ns: u64,
    merged: Option<Histogram<u64>>,
    pub(super) samples: Vec<Sample>,
}

impl Sampler {
    /// `expected` samples have room from the start, so that taking them is no growth.
    pub(super) fn new(
        windows: Vec<Window>,
        every: Duration,
        start_ns: u64,
        expected: usize,
    ) -> Self {
        let merged = windows.first().map(Window::empty);
        let samples = Vec::with_capacity(expected.min(1 << 20));
        Sampler { windows, every, start_ns, merged, samples }
    }

    /// Samples until everyone who can send has gone.
    pub(super) fn run(&mut self, engine: &Engine<LatencySink>, done: &Receiver<()>) {
        let every_ns = (self.every.as_nanos() as u64).max(1);
        let mut due_ns = self.start_ns + every_ns;
        loop {
            let now_ns = MonotonicClock.now_ns();
            match done.recv_timeout(Duration::from_nanos(due_ns.saturating_sub(now_ns))) {
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => self.take(engine),
                Ok(()) => {}
            }
            // A look that took long is not made up for by several at once.
            let now_ns = MonotonicClock.now_ns();
            due_ns += every_ns * (1 + now_ns.saturating_sub(due_ns) / every_ns);
        }
    }

    fn take(&mut self, engine: &Engine<LatencySink>) {
        // An engine that has stopped says why at its end.
        let Ok(metrics) = engine.metrics() else { return };
        let now_ns = MonotonicClock.now_ns();
        let (mut pairs, mut latency_ns) = (0, None);
        if let Some(merged) = &mut self.merged {
            merged.reset();
            self.windows.iter().for_each(|window| window.take(merged));
            pairs = merged.len();
            latency_ns = (pairs > 0).then(|| {
                [merged.value_at_quantile(0.5), merged.value_at_quantile(0.99), merged.max()]
            });
        }
        let counters = &metrics.counters;
        self.samples.push(Sample {
            at: Duration::from_nanos(now_ns.saturating_sub(self.start_ns)),
            rss_bytes: rss_bytes(),
            state_bytes: metrics.state_bytes,
            state_bytes_pooled: metrics.state_bytes_pooled,
            state_rows: Side::BOTH.iter().map(|&side| counters.side(side).buffered()).sum(),
            pairs,
            latency_ns,
        });
    }
}

/// The memory that this process holds now, where Linux tells it.
fn rss_bytes() -> Option<u64> {
    parse_rss(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status() {
        assert_eq!(parse_rss("Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t  2048 kB\n"), Some(2 << 20));
        assert_eq!(parse_rss("VmHWM:\t 9 kB\n"), None);
    }

    #[test]
    fn a_window_is_taken_once() {
        let window = Window::new(1_000_000);
        let (mut from, mut to) = (window.empty(), window.empty());
        from.saturating_record(5);
        window.add(&mut from);
        assert!(from.is_empty());
        window.take(&mut to);
        assert_eq!((to.len(), to.max()), (1, 5));
        window.take(&mut to);
        assert_eq!(to.len(), 1);
    }
}
