//! One thread that pushes its share of the events when they are due.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::engine::Source;
use crate::error::PushError;
use crate::event::{EventBatch, Key, Side};
use crate::time::{Clock, MonotonicClock, Timestamp};
use crate::workload::load::shape::Shaped;
use crate::workload::load::waiting::{Waiting, Watch};
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
    /// What it waited for a CPU.
    pub(super) waiting: Option<Waiting>,
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
    held: Held,
    watch: Watch,
    produced: Produced,
}

/// When the engine held a producer up: the time of its pushes. What else an event waited for
/// between its due time and its own push is the producer's doing.
#[derive(Debug, Default)]
struct Held {
    /// Beginning and end of each push that an event which is still to come may have waited for, and
    /// the time of all before it.
    pushes: VecDeque<(u64, u64, u64)>,
    total_ns: u64,
}

impl Held {
    fn add(&mut self, begin_ns: u64, end_ns: u64) {
        self.pushes.push_back((begin_ns, end_ns, self.total_ns));
        self.total_ns += end_ns.saturating_sub(begin_ns);
    }

    /// No event that is due before this is still to come.
    fn forget_before(&mut self, due_ns: u64) {
        while self.pushes.front().is_some_and(|&(_, end_ns, _)| end_ns <= due_ns) {
            self.pushes.pop_front();
        }
    }

    /// By how much an event due then is late by the producer's own doing, if it is pushed now.
    fn own_late_ns(&self, due_ns: u64, now_ns: u64) -> u64 {
        let first = self.pushes.partition_point(|&(_, end_ns, _)| end_ns <= due_ns);
        let held_ns = self.pushes.get(first).map_or(0, |&(begin_ns, _, before_ns)| {
            self.total_ns - before_ns - due_ns.saturating_sub(begin_ns)
        });
        now_ns.saturating_sub(due_ns).saturating_sub(held_ns)
    }
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
            held: Held::default(),
            watch: Watch::new(),
            lines: sources.map(line),
            schedule,
            pace: plan.pace,
            count,
            produced: Produced {
                pushed: 0,
                late_ns: sink::histogram(),
                cpu: 0.0,
                stopped: None,
                waiting: None,
            },
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
            if now_ns >= self.schedule.measured_from_ns {
                self.watch.look(now_ns);
            }
            self.collect(now_ns);
            self.push().map_err(LoadError::Push)?;
        }
        let cpu_ns = CpuClock::Thread.now_ns() - from_cpu_ns;
        let wall_ns = MonotonicClock.now_ns().saturating_sub(from_ns).max(1);
        self.produced.cpu = cpu_ns as f64 / wall_ns as f64;
        self.produced.waiting = self.watch.finish();
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
        let first_ns = self.due_ns().unwrap_or(now_ns);
        self.held.forget_before(first_ns);
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
                let mark = schedule.mark(due_ns);
                sink::write_row(&mut line.row, event.id, mark);
                let (key, hasher) = (Key::Int(event.key), line.source.hasher());
                let pushed = line.batch.push(hasher, key, ts, &line.row);
                // Integer keys and rows of bounded length in batches of few: nothing to refuse.
                debug_assert!(pushed.is_ok());
                if mark > 0 {
                    let late_ns = self.held.own_late_ns(due_ns, now_ns);
                    self.produced.late_ns.saturating_record(late_ns);
                }
                line.place += 2 * self.count as u64;
            }
        }
    }

    fn push(&mut self) -> Result<(), PushError> {
        let begin_ns = MonotonicClock.now_ns();
        for line in &mut self.lines {
            if !line.batch.is_empty() {
                line.source.push_batch(&line.batch)?;
                self.produced.pushed += line.batch.len() as u64;
            }
        }
        self.held.add(begin_ns, MonotonicClock.now_ns());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lateness of events due each 10 ns from 0 on, by a producer that sleeps until `wake_ns` and
    /// then pushes up to 4 at a time, each push of which takes `push_ns`.
    fn lateness(wake_ns: u64, push_ns: u64) -> Vec<u64> {
        let (mut held, mut late, mut now_ns) = (Held::default(), Vec::new(), wake_ns);
        let mut due = (0..100).map(|event| event * 10).peekable();
        while let Some(&first_ns) = due.peek() {
            now_ns = now_ns.max(first_ns);
            held.forget_before(first_ns);
            for _ in 0..4 {
                late.extend(
                    due.next_if(|&due_ns| due_ns <= now_ns)
                        .map(|due_ns| held.own_late_ns(due_ns, now_ns)),
                );
            }
            held.add(now_ns, now_ns + push_ns);
            now_ns += push_ns;
        }
        late
    }

    #[test]
    fn every_event_that_a_producer_slept_through_is_late() {
        // All of them were due when it woke, however many pushes it takes to get rid of them.
        let late = lateness(1_000, 5);
        assert_eq!(late.len(), 100);
        assert!(late.iter().zip(0..).all(|(&late, event)| late == 1_000 - event * 10), "{late:?}");
    }

    #[test]
    fn what_the_engine_held_up_is_not_the_producer_s() {
        // An engine that takes twice as long as events are due for: they wait for it alone.
        let late = lateness(0, 80);
        assert!(late.iter().all(|&late| late == 0), "{late:?}");
        // Half of each: slept until 500, and then the engine takes its time.
        let late = lateness(500, 80);
        let own = |event: u64| 500u64.saturating_sub(event * 10);
        assert!(late.iter().zip(0..).all(|(&late, event)| late == own(event)), "{late:?}");
    }

    #[test]
    fn a_push_under_way_counts_from_the_due_time_on() {
        let mut held = Held::default();
        held.add(100, 200);
        held.add(250, 300);
        assert_eq!(held.own_late_ns(150, 320), 170 - 50 - 50);
        assert_eq!(held.own_late_ns(220, 320), 100 - 50);
        assert_eq!(held.own_late_ns(310, 320), 10);
        held.forget_before(220);
        assert_eq!(held.pushes.len(), 1);
        assert_eq!(held.own_late_ns(220, 320), 50);
    }
}
