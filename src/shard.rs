//! One core's state machine: takes batches from its lanes, applies watermarks, joins, hands on.
//!
//! A shard knows no thread, no IO and no time but what it is given: a driver calls
//! [`Shard::step`] again and again. So the same code runs on pinned threads, on io_uring executors,
//! in a caller's own loop, and in a simulation that is replayed from a seed.
//!
//! Steps are grouped in rounds, and a round follows the protocol that keeps a watermark from
//! overtaking data: load all watermarks; see what has been asked of the shard and what every lane
//! holds now; process exactly that, over as many steps as the budget makes of it; apply what was
//! loaded. Rows that a watermark frees are worked off between batches, a little faster than
//! batches arrive, so that no step is long and none falls behind.

mod any;
mod budget;
mod control;
mod error;
mod meter;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::error::JoinError;
use crate::event::EventBatch;
use crate::exchange::{Doorbell, LinkReceiver, Loaded, Pacer, WatermarkReader, Watermarks};
use crate::join::{Counters, Emit, IntervalJoin, Sink};
use crate::time::{Clock, WATERMARK_START};

use budget::Budget;
pub use control::ShardHandle;
use control::{Command, Inbox};
pub use error::ShardError;
use meter::Meter;
pub use meter::ShardReport;

/// What a shard runs: an operator with state of its own. [`IntervalJoin`] is the first; tests and
/// users plug in others.
pub trait Operator {
    /// Takes a batch of one source.
    ///
    /// # Errors
    /// [`JoinError`] stops the shard.
    fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError>;

    /// Applies both sides' watermarks; smaller ones than before are ignored.
    fn advance(&mut self, left: i64, right: i64);

    /// All input has ended.
    fn finish(&mut self);

    /// Does some of what the watermarks demand; returns whether more is left.
    fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool;

    /// What has gone wrong in [`work`](Self::work): it stops the shard.
    fn failure(&self) -> Option<JoinError> {
        None
    }

    /// No result with a smaller time will follow, once [`work`](Self::work) has returned `false`.
    fn output_watermark(&self) -> i64;

    /// The counts so far.
    fn counters(&self) -> &Counters;

    /// Bytes of state as allocated.
    fn state_bytes(&self) -> u64;

    /// Whether it does with the rows of a key that is split over several shards what it does with
    /// them on one: see [`JoinSpec::spread_sides`](crate::join::JoinSpec::spread_sides), and
    /// [`BatchKind::Copy`](crate::event::BatchKind::Copy). If not, no key is split.
    fn splits_keys(&self) -> bool {
        false
    }

    /// The part of [`state_bytes`](Self::state_bytes) that holds nothing and waits to be used
    /// again, as far as it is known.
    fn pooled_bytes(&self) -> u64 {
        0
    }

    /// Memory that was taken before the first row; part of [`state_bytes`](Self::state_bytes) only
    /// while it is used.
    fn reserved_bytes(&self) -> u64 {
        0
    }

    /// Gives memory back that is part of state only because it may be used again, all but about
    /// `keep_bytes` of it.
    fn trim(&mut self, keep_bytes: u64) {
        let _ = keep_bytes;
    }

    /// Tells the time, in nanoseconds of the driver's clock: at every step that may do something.
    /// Returns whether that made something for [`work`](Self::work) to do.
    #[inline]
    fn tick(&mut self, now_ns: u64) -> bool {
        let _ = now_ns;
        false
    }

    /// When [`tick`](Self::tick) is to be called next although nothing comes; `None`: never.
    fn next_tick_ns(&self) -> Option<u64> {
        None
    }

    /// Gives rows up, or puts them into files, until about so many bytes hold rows and so many rows
    /// are left, as its [`Overflow`](crate::limits::Overflow) says; for 0, as little as can be. An
    /// operator that cannot should refuse to be made under such limits; without this the engine
    /// fails at its bound.
    ///
    /// # Errors
    /// [`JoinError`] stops the shard.
    fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        let _ = (bytes_max, rows_max);
        Ok(())
    }

    /// Rows that the bound on rows is about: those in memory.
    fn rows_in_memory(&self) -> u64 {
        self.counters().buffered()
    }
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Something was done or is left to do: step again.
    Busy,
    /// Nothing to do until a lane, a watermark or a command brings something: the driver may rest.
    Idle,
    /// All input has ended and everything was handed on: step no more.
    Finished,
}

/// One core's part of a join.
pub struct Shard<S: Sink, J: Operator = IntervalJoin> {
    join: J,
    sink: S,
    links: Vec<Link>,
    watermarks: WatermarkReader,
    inbox: Inbox,
    round: Option<Round>,
    /// The watermarks that were applied last.
    applied: [i64; 2],
    output_watermark: i64,
    /// The operator has more to free.
    work_is_left: bool,
    /// All input has ended and the operator knows: what is left is work.
    is_ending: bool,
    sink_is_dirty: bool,
    sink_flushed_ns: u64,
    end: Option<Result<(), ShardError>>,
    meter: Meter,
    budget: Option<Budget>,
}

struct Link {
    receiver: LinkReceiver,
    /// Batches of this round still to be taken.
    pending: usize,
}

struct Round {
    loaded: Loaded,
    /// The link to look at next.
    cursor: usize,
    /// Batches still to be taken, from all links together.
    pending: usize,
}

/// Sink flushes under load are this far apart, so that a sink can write in blocks.
const SINK_FLUSH_NS: u64 = 2_000_000;

/// Rows freed per event taken: more than one, or freeing would fall behind for ever.
const WORK_PER_EVENT: usize = 2;

/// Links whose producer is gone are looked for once in so many rounds.
const ROUNDS_PER_PURGE: u64 = 256;

impl<S: Sink, J: Operator> Shard<S, J> {
    /// A shard with its links, one for each producer (more may come through the handle), and a
    /// handle to it. `bell` wakes the driver that steps it.
    pub fn new(
        join: J,
        sink: S,
        links: Vec<LinkReceiver>,
        watermarks: &Watermarks,
        bell: Doorbell,
    ) -> (Shard<S, J>, ShardHandle) {
        let (inbox, handle) = control::pair(bell);
        let shard = Shard {
            join,
            sink,
            links: links.into_iter().map(|receiver| Link { receiver, pending: 0 }).collect(),
            watermarks: watermarks.reader(),
            inbox,
            round: None,
            applied: [WATERMARK_START; 2],
            output_watermark: WATERMARK_START,
            work_is_left: false,
            is_ending: false,
            sink_is_dirty: false,
            sink_flushed_ns: 0,
            end: None,
            meter: Meter::new(),
            budget: None,
        };
        (shard, handle)
    }

    /// Tells the engine's pacer, as shard number `number`, how far it is and how large its state
    /// is. Under a pacer with a bound on state, all shards together must stay within it.
    pub fn paced_by(mut self, pacer: Pacer, number: usize) -> Shard<S, J> {
        let mut budget = Budget::new(pacer, number);
        budget.note_bytes(&self.join);
        self.budget = Some(budget);
        self
    }

    /// Does up to about `budget` events' worth of work (a batch is not split, and up to twice as
    /// many rows are freed).
    ///
    /// Before a driver sleeps it calls [`Doorbell::prepare`], steps once more, and sleeps only if
    /// that step says [`Progress::Idle`] as well.
    ///
    /// # Errors
    /// [`ShardError`], and the same one at every later call. Its lanes are closed then, so that
    /// producers are refused and do not wait for ever.
    pub fn step(&mut self, budget: usize, clock: &impl Clock) -> Result<Progress, ShardError> {
        if let Some(end) = &self.end {
            return end.clone().map(|()| Progress::Finished);
        }
        let outcome = self.try_step(budget.max(1), clock);
        self.note_failure(outcome)
    }

    /// Makes room if all shards that share a bound on state are called to: also in a step, but
    /// none of them goes on before all have done so. Whoever cannot step a shard for a while, which
    /// the others may wait for, calls this in its place. Returns whether no call is under way.
    ///
    /// # Errors
    /// As for [`step`](Self::step).
    pub fn answer_call(&mut self) -> Result<bool, ShardError> {
        let Some(budget) = self.budget.as_mut().filter(|budget| budget.is_called()) else {
            return Ok(true);
        };
        let answered = budget.answer(&mut self.join).map_err(ShardError::Join);
        self.note_failure(answered)
    }

    fn note_failure<T>(&mut self, outcome: Result<T, ShardError>) -> Result<T, ShardError> {
        if let Err(error) = &outcome {
            self.end = Some(Err(error.clone()));
            self.links.clear();
            self.inbox.abandon();
            self.budget = None;
        }
        outcome
    }

    /// What was done so far. Copies two histograms.
    pub fn report(&self) -> ShardReport {
        ShardReport {
            counters: *self.join.counters(),
            state_bytes: self.join.state_bytes(),
            state_bytes_pooled: self.join.pooled_bytes(),
            state_bytes_reserved: self.join.reserved_bytes(),
            watermarks: self.applied,
            output_watermark: self.output_watermark,
            ..self.meter.report.clone()
        }
    }

    /// The operator.
    pub fn operator(&self) -> &J {
        &self.join
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// The sink, for whoever drives the shard.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Takes the shard apart. Its lanes close, so what is still pushed to them is refused.
    pub fn into_parts(self) -> (J, S, ShardReport) {
        let report = self.report();
        (self.join, self.sink, report)
    }

    fn try_step(&mut self, budget: usize, clock: &impl Clock) -> Result<Progress, ShardError> {
        if !self.answer_call()? {
            return Ok(Progress::Idle);
        }
        if !self.is_ending {
            self.begin_round();
            if self.is_quiet() && !self.is_tick_due(clock) {
                self.round = None;
                self.flush_sink()?;
                return Ok(Progress::Idle);
            }
        }
        let start_ns = clock.now_ns();
        self.work_is_left |= self.join.tick(start_ns);
        let event_count = self.drain(budget, clock)?;
        self.end_round();
        self.work(budget.max(event_count).saturating_mul(WORK_PER_EVENT))?;
        let now_ns = clock.now_ns();
        self.meter.step(start_ns, now_ns, &self.join);
        if self.is_ending && !self.work_is_left {
            self.finish()?;
            return Ok(Progress::Finished);
        }
        if now_ns.saturating_sub(self.sink_flushed_ns) >= SINK_FLUSH_NS {
            self.sink_flushed_ns = now_ns;
            self.flush_sink()?;
        }
        Ok(Progress::Busy)
    }

    /// Begins a round unless one is under way. The order of its three looks is the protocol.
    fn begin_round(&mut self) {
        if self.round.is_some() {
            return;
        }
        // 1. Watermarks. What they speak for is in lanes by now, in known ones or in ones that
        //    were announced before it was pushed.
        let loaded = self.watermarks.load();
        // 2. Commands: links that bring such lanes, and barriers, which wait for the round after
        //    this one because its watermarks were loaded before they came.
        self.inbox.begin_round();
        while let Some(command) = self.inbox.next() {
            match command {
                Command::Link(receiver) => self.links.push(Link { receiver, pending: 0 }),
                Command::Report(reply) => drop(reply.send(self.report())),
            }
        }
        if self.meter.report.rounds.is_multiple_of(ROUNDS_PER_PURGE) {
            self.links.retain_mut(|link| !link.receiver.is_closed());
        }
        // 3. What the lanes hold now: all of it is processed before `loaded` is applied.
        let mut pending = 0;
        for link in &mut self.links {
            link.pending = link.receiver.len();
            pending += link.pending;
        }
        self.meter.round(pending);
        self.round = Some(Round { loaded, cursor: 0, pending });
    }

    /// In how many nanoseconds the shard is to be stepped although nothing comes; `None`: never.
    pub fn steps_in_ns(&self, clock: &impl Clock) -> Option<u64> {
        let next_ns = self.join.next_tick_ns().filter(|_| self.end.is_none())?;
        Some(next_ns.saturating_sub(clock.now_ns()))
    }

    fn is_tick_due(&self, clock: &impl Clock) -> bool {
        self.steps_in_ns(clock) == Some(0)
    }

    /// Whether the round that began has nothing to do.
    fn is_quiet(&self) -> bool {
        let has_news = self.round.as_ref().is_some_and(|round| {
            round.pending > 0 || round.loaded.all_finished || round.loaded.sides != self.applied
        });
        !has_news && !self.work_is_left && !self.inbox.has_barriers()
    }

    /// Processes batches of the round, one a link in turn, until the budget is used up.
    /// Returns how many events that were.
    fn drain(&mut self, budget: usize, clock: &impl Clock) -> Result<usize, ShardError> {
        let Some(round) = &mut self.round else { return Ok(0) };
        let link_count = self.links.len();
        let mut events = 0;
        while round.pending > 0 && events < budget {
            // Others wait for this shard to make room.
            if self.budget.as_ref().is_some_and(Budget::is_called) {
                break;
            }
            let at = round.cursor;
            let link = &mut self.links[at];
            round.cursor = if round.cursor + 1 == link_count { 0 } else { round.cursor + 1 };
            if link.pending == 0 {
                continue;
            }
            link.pending -= 1;
            round.pending -= 1;
            // Always some: nobody else takes from the lane.
            let Some(batch) = link.receiver.try_recv() else { continue };
            self.links[round.cursor].receiver.prefetch();
            let pairs_before = self.join.counters().pairs;
            self.sink_is_dirty = true;
            self.join.on_batch(&batch, &mut self.sink).map_err(ShardError::Join)?;
            if let Some(budget) = &mut self.budget {
                budget.joined(&batch, &mut self.join).map_err(ShardError::Join)?;
            }
            let pairs = self.join.counters().pairs - pairs_before;
            if pairs > 0 && batch.arrived_ns > 0 {
                self.meter.pairs(clock.now_ns().saturating_sub(batch.arrived_ns), pairs);
            }
            events += batch.len();
            self.links[at].receiver.give_back(batch);
        }
        self.meter.report.events += events as u64;
        if events > 0
            && let Some(budget) = &mut self.budget
        {
            budget.note_work(&self.join);
        }
        Ok(events)
    }

    /// Applies what the round loaded, once all of its batches are processed.
    fn end_round(&mut self) {
        let Some(Round { loaded, .. }) = self.round.take_if(|round| round.pending == 0) else {
            return;
        };
        self.inbox.end_round();
        if loaded.all_finished {
            self.is_ending = true;
            self.join.finish();
        } else if loaded.sides != self.applied {
            let [left, right] = loaded.sides;
            self.join.advance(left, right);
        } else {
            return;
        }
        self.work_is_left = true;
        self.applied = loaded.sides;
        self.meter.applied(loaded.sides);
    }

    /// Does some of the work that the applied watermarks made; when none is left, says so to the
    /// sink and to those that wait for it.
    fn work(&mut self, budget: usize) -> Result<(), ShardError> {
        if self.work_is_left {
            self.sink_is_dirty = true;
            self.work_is_left = self.join.work(budget, &mut self.sink);
            if let Some(error) = self.join.failure() {
                return Err(ShardError::Join(error));
            }
            let output_watermark = self.join.output_watermark();
            if !self.work_is_left && output_watermark > self.output_watermark {
                self.output_watermark = output_watermark;
                self.sink.output_watermark(output_watermark).map_err(ShardError::Sink)?;
            }
            // After the sink has passed the watermark on: what others free by it is not yet freed.
            if let Some(budget) = &mut self.budget {
                budget.worked((!self.work_is_left).then_some(self.applied), &mut self.join);
            }
            if self.work_is_left {
                return Ok(());
            }
        }
        if self.inbox.has_barriers_to_answer() {
            self.flush_sink()?;
            self.inbox.answer_barriers();
        }
        Ok(())
    }

    fn flush_sink(&mut self) -> Result<(), ShardError> {
        if std::mem::take(&mut self.sink_is_dirty) {
            self.sink.flush().map_err(ShardError::Sink)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ShardError> {
        let left_over: usize = self.links.iter_mut().map(|link| link.receiver.len()).sum();
        if left_over > 0 {
            return Err(ShardError::Join(JoinError::Unbalanced(format!(
                "{left_over} batches came after all sources had ended"
            ))));
        }
        self.sink.finish().map_err(ShardError::Sink)?;
        self.end = Some(Ok(()));
        self.budget = None;
        self.links.clear();
        self.inbox.close(&self.report());
        Ok(())
    }
}
