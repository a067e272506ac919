//! One thread that pushes its share of the events when they are due.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::engine::Source;
use crate::error::PushError;
use crate::event::{EventBatch, Key, Side};
use crate::time::{Clock, MonotonicClock, Timestamp};
use crate::workload::load::shape::Shaped;
use crate::workload::load::{LoadError, LoadPlan, Pace, Scenario, Supply, sink};
use crate::workload::{CpuClock, SideEvents, WorkloadEvent};

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
    scenario: Scenario,
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
            scenario: plan.scenario,
            measured_from_ns: start_ns + ns(plan.warm_up),
            end_ns: start_ns + 2 * ns(plan.duration),
            event_count: plan.event_count(),
        }
    }

    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// When event `k` of both sides together is due. Exact to the nanosecond for 100 days.
    /// `can_stall` is whether it comes from the source that falls silent, if one does.
    fn due_ns(&self, k: u64, can_stall: bool) -> u64 {
        let even_ns = (k as f64 * (1e9 / self.rate)) as u64;
        self.start_ns + self.scenario.due_ns(even_ns, can_stall)
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
    /// When it was stopped, if it was.
    pub(super) stopped: Option<Stopped>,
}

/// What a producer that was stopped leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopped {
    pub(super) at_ns: u64,
    /// Events that were due by then and not pushed.
    pub(super) left: u64,
    /// For how long the first of them had been due.
    pub(super) behind_ns: u64,
}

/// Where the events of one source come from.
enum Stream<'a> {
    Memory { events: &'a SideEvents, next: usize, step: usize },
    Made { events: Box<Shaped>, skip: usize, step: usize },
}

impl Iterator for Stream<'_> {
    type Item = WorkloadEvent;

    #[inline]
    fn next(&mut self) -> Option<WorkloadEvent> {
        match self {
            Stream::Memory { events, next, step } => {
                let i = *next;
                *next += *step;
                let (key, ts, id) = (*events.keys.get(i)?, *events.ts.get(i)?, *events.ids.get(i)?);
                Some(WorkloadEvent { key, ts, id: u64::from(id) })
            }
            Stream::Made { events, skip, step } => {
                let event = events.nth(*skip);
                *skip = *step - 1;
                event
            }
        }
    }
}

/// One source of a producer, and its events.
struct Line<'a> {
    source: Source,
    stream: Stream<'a>,
    batch: EventBatch,
    /// The place among those of both sides of the next event.
    place: u64,
    can_stall: bool,
    /// What rows are written into: their payload does not change.
    row: Vec<u8>,
}

/// A producer: of `count` of them, this one pushes every `count`-th event of each side.
pub(super) struct Producer<'a> {
    schedule: Arc<Schedule>,
    lines: [Line<'a>; 2],
    pace: Pace,
    count: usize,
    /// When the engine had taken the last push.
    released_ns: u64,
    produced: Produced,
}

impl<'a> Producer<'a> {
    pub(super) fn new(
        schedule: Arc<Schedule>,
        sources: [Source; 2],
        (index, count): (usize, usize),
        plan: &LoadPlan,
        supply: Supply<'a>,
    ) -> Producer<'a> {
        let line = |source: Source| {
            let side = source.side();
            let row = sink::blank_row(plan.workload.payload_bytes);
            Line {
                source,
                stream: supply.stream(plan, side, (index, count)),
                batch: EventBatch::with_capacity(
                    side,
                    PUSH_EVENTS_MAX,
                    PUSH_EVENTS_MAX * row.len(),
                ),
                row,
                place: 2 * index as u64 + side.index() as u64,
                can_stall: index == 0 && side == Side::Left,
            }
        };
        Producer {
            released_ns: schedule.start_ns(),
            lines: sources.map(line),
            schedule,
            pace: plan.pace,
            count,
            produced: Produced { pushed: 0, late_ns: sink::histogram(), cpu: 0.0, stopped: None },
        }
    }

    /// Pushes everything, or, when it is stopped, what was due by then. Gives the sources back,
    /// still open.
    pub(super) fn run(
        mut self,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Produced, [Source; 2]), LoadError> {
        let (from_ns, from_cpu_ns) = (self.schedule.start_ns(), CpuClock::Thread.now_ns());
        loop {
            if stop() {
                self.produced.stopped = Some(self.stopped());
                break;
            }
            let now_ns = MonotonicClock.now_ns();
            let Some(due_ns) = self.due_ns().filter(|_| now_ns <= self.schedule.end_ns) else {
                break;
            };
            if now_ns < due_ns {
                self.wait(due_ns - now_ns);
                continue;
            }
            self.collect(now_ns);
            self.push().map_err(LoadError::Push)?;
        }
        let cpu_ns = CpuClock::Thread.now_ns() - from_cpu_ns;
        let wall_ns = MonotonicClock.now_ns().saturating_sub(from_ns).max(1);
        self.produced.cpu = cpu_ns as f64 / wall_ns as f64;
        Ok((self.produced, self.lines.map(|line| line.source)))
    }

    /// What is left undone, if it stops now.
    fn stopped(&self) -> Stopped {
        let at_ns = MonotonicClock.now_ns();
        let (step, most) = (2 * self.count as u64, self.schedule.event_count);
        let left = |line: &Line<'_>| {
            // Due times only go up: half of what is left is looked at, then half of that.
            let (mut due, mut open) = (0, most.saturating_sub(line.place).div_ceil(step));
            while due < open {
                let middle = due + (open - due) / 2;
                if self.schedule.due_ns(line.place + middle * step, line.can_stall) <= at_ns {
                    due = middle + 1;
                } else {
                    open = middle;
                }
            }
            due
        };
        let first_ns = self.due_ns().unwrap_or(at_ns);
        Stopped {
            at_ns,
            left: self.lines.iter().map(left).sum(),
            behind_ns: at_ns.saturating_sub(first_ns),
        }
    }

    /// When the next event of either side is due; `None` when there is none any more.
    fn due_ns(&self) -> Option<u64> {
        let left = self.lines.iter().filter(|line| line.place < self.schedule.event_count);
        left.map(|line| self.schedule.due_ns(line.place, line.can_stall)).min()
    }

    fn wait(&self, ns: u64) {
        match self.pace {
            Pace::Spin => std::hint::spin_loop(),
            Pace::Sleep => std::thread::sleep(Duration::from_nanos(ns).min(SLEEP_MAX)),
        }
    }

    /// Puts all events that are due into the batches of their sides, up to a full one each.
    fn collect(&mut self, now_ns: u64) {
        let schedule = &self.schedule;
        for line in &mut self.lines {
            line.batch.reset(line.source.side(), 0, Default::default());
            while line.place < schedule.event_count && line.batch.len() < PUSH_EVENTS_MAX {
                let due_ns = schedule.due_ns(line.place, line.can_stall);
                if due_ns > now_ns {
                    break;
                }
                // There are as many as the schedule asks for: this was seen to before.
                let Some(event) = line.stream.next() else { break };
                let ts = Timestamp::new(event.ts).unwrap_or(Timestamp::MIN);
                sink::write_row(&mut line.row, event.id, schedule.mark(due_ns));
                let (key, hasher) = (Key::Int(event.key), line.source.hasher());
                let pushed = line.batch.push(hasher, key, ts, &line.row);
                // Integer keys and rows of bounded length in batches of few: nothing to refuse.
                debug_assert!(pushed.is_ok());
                // The engine is to blame for the time up to when it had taken what came before.
                let ready_ns = due_ns.max(self.released_ns);
                self.produced.late_ns.saturating_record(now_ns.saturating_sub(ready_ns));
                line.place += 2 * self.count as u64;
            }
        }
    }

    fn push(&mut self) -> Result<(), PushError> {
        for line in &mut self.lines {
            if !line.batch.is_empty() {
                line.source.push_batch(&line.batch)?;
                self.produced.pushed += line.batch.len() as u64;
            }
        }
        self.released_ns = MonotonicClock.now_ns();
        Ok(())
    }
}

impl<'a> Supply<'a> {
    /// Every `count`-th event of a side, from `index` on.
    fn stream(&self, plan: &LoadPlan, side: Side, (index, count): (usize, usize)) -> Stream<'a> {
        match *self {
            Supply::Memory(events) => {
                Stream::Memory { events: events.side(side), next: index, step: count }
            }
            Supply::Made { seed } => {
                let most = plan.events_per_side();
                let events = Shaped::new(plan.workload, side, seed, most, plan.scenario);
                Stream::Made { events: Box::new(events), skip: index, step: count }
            }
        }
    }
}
