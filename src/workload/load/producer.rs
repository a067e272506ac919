//! One thread that pushes its share of the events when they are due.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::engine::Source;
use crate::error::PushError;
use crate::event::{EventBatch, Key, Side};
use crate::time::{Clock, MonotonicClock, Timestamp};
use crate::workload::load::{LoadError, LoadPlan, Pace, sink};
use crate::workload::{CpuClock, Events};

/// Events of a side that go to the engine in one call at most: who is behind does not go on for
/// long without looking at the clock.
const PUSH_EVENTS_MAX: usize = 256;
/// Sleepers look around at least this often.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// When events are due, on the engine's clock.
#[derive(Debug)]
pub(super) struct Schedule {
    start_ns: u64,
    rate: f64,
    /// Events due before this are not measured.
    measured_from_ns: u64,
    /// When to give up.
    end_ns: u64,
    event_count: u64,
}

impl Schedule {
    pub(super) fn new(plan: &LoadPlan, start_ns: u64) -> Schedule {
        let ns = |duration: Duration| duration.as_nanos() as u64;
        Schedule {
            start_ns,
            rate: plan.rate,
            measured_from_ns: start_ns + ns(plan.warm_up),
            end_ns: start_ns + 2 * ns(plan.duration),
            event_count: plan.event_count(),
        }
    }

    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// When event `k` of both sides together is due. Exact to the nanosecond for 100 days.
    pub(super) fn due_ns(&self, k: u64) -> u64 {
        self.start_ns + (k as f64 * (1e9 / self.rate)) as u64
    }

    /// What a row says of when it was due: 0 for "not measured".
    fn mark(&self, due_ns: u64) -> u64 {
        if due_ns < self.measured_from_ns { 0 } else { due_ns }
    }
}

/// What a producer did.
#[derive(Debug)]
pub(super) struct Produced {
    pub(super) pushed: u64,
    /// See [`LoadRun::producer_late_ns`](super::LoadRun::producer_late_ns).
    pub(super) late_ns: Histogram<u64>,
    /// The share of a core that it used.
    pub(super) cpu: f64,
}

/// A producer: of `count` of them, this one pushes every `count`-th event of each side.
pub(super) struct Producer {
    schedule: Arc<Schedule>,
    sources: [Source; 2],
    batches: [EventBatch; 2],
    pace: Pace,
    /// The place in its side of the next event.
    next: usize,
    side: Side,
    count: usize,
    /// When the engine had taken the last push.
    released_ns: u64,
    produced: Produced,
}

impl Producer {
    pub(super) fn new(
        schedule: Arc<Schedule>,
        sources: [Source; 2],
        (index, count): (usize, usize),
        plan: &LoadPlan,
    ) -> Producer {
        let batch = |side| {
            EventBatch::with_capacity(side, PUSH_EVENTS_MAX, PUSH_EVENTS_MAX * sink::ROW_BYTES)
        };
        Producer {
            released_ns: schedule.start_ns(),
            schedule,
            sources,
            batches: Side::BOTH.map(batch),
            pace: plan.pace,
            next: index,
            side: Side::Left,
            count,
            produced: Produced { pushed: 0, late_ns: sink::histogram(), cpu: 0.0 },
        }
    }

    /// Pushes everything. Gives the sources back, still open.
    pub(super) fn run(
        mut self,
        events: &Events,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Produced, [Source; 2]), LoadError> {
        let (from_ns, from_cpu_ns) = (self.schedule.start_ns(), CpuClock::Thread.now_ns());
        loop {
            if stop() {
                return Err(LoadError::Interrupted);
            }
            let k = self.place();
            let now_ns = MonotonicClock.now_ns();
            if k >= self.schedule.event_count || now_ns > self.schedule.end_ns {
                break;
            }
            let due_ns = self.schedule.due_ns(k);
            if now_ns < due_ns {
                self.wait(due_ns - now_ns);
                continue;
            }
            self.collect(events, now_ns);
            self.push().map_err(LoadError::Push)?;
        }
        let cpu_ns = CpuClock::Thread.now_ns() - from_cpu_ns;
        let wall_ns = MonotonicClock.now_ns().saturating_sub(from_ns).max(1);
        self.produced.cpu = cpu_ns as f64 / wall_ns as f64;
        Ok((self.produced, self.sources))
    }

    /// The place of the next event among those of both sides.
    fn place(&self) -> u64 {
        2 * self.next as u64 + self.side.index() as u64
    }

    fn wait(&self, ns: u64) {
        match self.pace {
            Pace::Spin => std::hint::spin_loop(),
            Pace::Sleep => std::thread::sleep(Duration::from_nanos(ns).min(SLEEP_MAX)),
        }
    }

    /// Puts all events that are due into the batches of their sides.
    fn collect(&mut self, events: &Events, now_ns: u64) {
        for (batch, side) in self.batches.iter_mut().zip(Side::BOTH) {
            batch.reset(side, 0, Default::default());
        }
        loop {
            let k = self.place();
            let due_ns = self.schedule.due_ns(k);
            let batch = &mut self.batches[self.side.index()];
            let is_full = batch.len() >= PUSH_EVENTS_MAX;
            if k >= self.schedule.event_count || due_ns > now_ns || is_full {
                return;
            }
            let (columns, i) = (events.side(self.side), self.next);
            let key = Key::Int(columns.keys[i]);
            let ts = Timestamp::new(columns.ts[i]).unwrap_or(Timestamp::MIN);
            let row = sink::row(columns.ids[i], self.schedule.mark(due_ns));
            let hasher = self.sources[self.side.index()].hasher();
            let pushed = batch.push(hasher, key, ts, &row);
            // Integer keys and short rows in batches of bounded length: nothing to refuse.
            debug_assert!(pushed.is_ok());
            // The engine is to blame for the time up to when it had taken what came before.
            let ready_ns = due_ns.max(self.released_ns);
            self.produced.late_ns.saturating_record(now_ns.saturating_sub(ready_ns));
            if self.side == Side::Right {
                self.next += self.count;
            }
            self.side = self.side.other();
        }
    }

    fn push(&mut self) -> Result<(), PushError> {
        for (source, batch) in self.sources.iter_mut().zip(&self.batches) {
            if !batch.is_empty() {
                source.push_batch(batch)?;
                self.produced.pushed += batch.len() as u64;
            }
        }
        self.released_ns = MonotonicClock.now_ns();
        Ok(())
    }
}
