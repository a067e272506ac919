//! The interval join operator.

mod bounds;
mod choosing;

use choosing::Choosing;

use crate::error::{JoinError, SpecError};
use crate::event::{BatchKind, Event, EventBatch, Key, KeyHasher, KeyKind, Side, split_keyed_row};
use crate::join::counters::check_rows;
use crate::join::emit::single_without_key;
use crate::join::late::{lag_of, take_late};
use crate::join::room::MakesRoom;
use crate::join::ttl::Ttl;
use crate::join::visit::{ConditionVisit, IntPairs, PairVisit};
use crate::join::{Counters, Emit, JoinSpec};
use crate::limits::{BATCH_EVENTS_MAX, Limits, Overflow};
use crate::state::{BatchStats, Class, Filter, Layout, Probe, Simd, State, StateFull, Visit};
use crate::time::{LatenessClock, WATERMARK_END, WATERMARK_START};

/// An interval join of one shard: state of both sides, clocks, counts. No thread, clock or IO.
///
/// Feed it batches with [`on_batch`](Self::on_batch) and watermarks with
/// [`advance`](Self::advance); call [`work`](Self::work) until it returns `false` to have
/// everything done that those watermarks demand.
pub struct IntervalJoin {
    spec: JoinSpec,
    hasher: KeyHasher,
    limits: Limits,
    state: State,
    counters: Counters,
    /// By [`Side::index`].
    watermarks: [i64; 2],
    /// Everything is to be freed, once.
    flushing: bool,
    /// All input has ended: not merely promised to, by watermarks at their end.
    finished: bool,
    classes: Vec<Class>,
    /// Where not all matches count: the rows that wait for theirs.
    choices: Option<Box<Choosing>>,
    ttl: Option<Ttl>,
}

impl IntervalJoin {
    /// An operator with empty state. `hasher` is the one that makes the batches' key values.
    ///
    /// # Errors
    /// [`SpecError::Window`] when the spec is that of a window join, [`SpecError::Overflow`] when
    /// rows are to be given up and not all matches count.
    pub fn new(
        spec: JoinSpec,
        hasher: KeyHasher,
        limits: Limits,
    ) -> Result<IntervalJoin, SpecError> {
        IntervalJoin::with_simd(spec, hasher, limits, Simd::detect())
    }

    /// As [`new`](Self::new), with a given instruction set; where the machine has not got it, the
    /// best it has.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_simd(
        spec: JoinSpec,
        hasher: KeyHasher,
        limits: Limits,
        simd: Simd,
    ) -> Result<IntervalJoin, SpecError> {
        if spec.windows().is_some() {
            return Err(SpecError::Window(
                "window joins have an operator of their own: WindowJoin",
            ));
        }
        bounds::check(&spec, &limits)?;
        let choices = spec.chooses().then(|| {
            let spills = limits.overflow == Overflow::Spill;
            Box::new(Choosing::new(spec.clone(), spills))
        });
        let ttl = spec.ttl().map(Ttl::new);
        let waits = |side| spec.kind().emits_unmatched(side) && choices.is_none();
        let layout = Layout::for_interval(spec.interval(), spec.lateness().allowed)
            .with(spec.bucket_width(), spec.chunk_bytes());
        let layout = Layout {
            filter: Filter::new(simd).unwrap_or_else(Filter::detect),
            expires: Side::BOTH.map(waits),
            reserve_bytes: usize::try_from(spec.reserve_bytes()).unwrap_or(usize::MAX),
            ..layout
        };
        Ok(IntervalJoin {
            spec,
            hasher,
            limits,
            state: State::new(layout),
            counters: Counters::default(),
            watermarks: [WATERMARK_START; 2],
            flushing: false,
            finished: false,
            classes: Vec::new(),
            choices,
            ttl,
        })
    }

    /// Matches a batch with the other side's state, emits, and keeps what may still match.
    ///
    /// # Errors
    /// [`JoinError::StateFull`] when the state's bound does not allow the batch, of which nothing
    /// was taken then. After others (a late event under `LatePolicy::Fail`, state that cannot name
    /// more rows) the operator must not be used any more.
    pub fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        if batch.kind != BatchKind::NullKey {
            self.check_state(batch)?;
        }
        let count = batch.len() as u64;
        if batch.kind != BatchKind::Copy {
            self.counters.sides[batch.side().index()].rows += count;
        }
        match batch.kind {
            BatchKind::NullKey => {
                self.on_null_keys(batch, out);
                return Ok(());
            }
            BatchKind::Late => {
                self.classify(batch, |index, _| Some(lag_of(batch, index)), out)?;
            }
            BatchKind::Keyed => self.judge(batch, out)?,
            BatchKind::Judged | BatchKind::Copy => self.take_judged(batch),
        }
        self.join(batch, out)
    }

    /// Applies both sides' watermarks (smaller ones than before are ignored). What they free comes
    /// out of the following calls of [`work`](Self::work).
    pub fn advance(&mut self, left: i64, right: i64) {
        self.watermarks[0] = self.watermarks[0].max(left);
        self.watermarks[1] = self.watermarks[1].max(right);
    }

    /// All input has ended: both watermarks are at their end, and everything left is freed by the
    /// following calls of [`work`](Self::work). An event that arrives afterwards is late, unless
    /// its time is `i64::MAX`.
    pub fn finish(&mut self) {
        self.watermarks = [WATERMARK_END; 2];
        self.flushing = true;
        self.finished = true;
    }

    /// Frees and pads rows that the watermarks have passed, about `budget` of them at the most.
    /// Returns whether more is left to do.
    pub fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        if self.choose(budget, out) {
            return true;
        }
        let floors = Side::BOTH.map(|side| self.floor(side));
        let ends = self.ends();
        let IntervalJoin { hasher, state, counters, flushing, .. } = self;
        let has_dead = self.ttl.is_some() && state.has_dead();
        let more = has_dead
            && state.expire_dead(budget, |side, key, ts, stored| {
                counters.sides[side.index()].singles += 1;
                out.single(side, event_of(hasher, key, ts, stored));
            });
        if more {
            return true;
        }
        let more =
            state.expire((!*flushing).then_some(floors), ends, budget, |side, key, ts, stored| {
                counters.sides[side.index()].singles += 1;
                out.single(side, event_of(hasher, key, ts, stored));
            });
        if more {
            return true;
        }
        if self.failure().is_some() {
            return false;
        }
        let IntervalJoin { state, counters, flushing, .. } = self;
        for side in Side::BOTH {
            let freed = if *flushing {
                state.retire_all(side)
            } else {
                state.retire(side, floors[side.index()])
            };
            let dead = if has_dead { state.retire_dead(side) } else { 0 };
            counters.sides[side.index()].freed += freed + dead;
        }
        *flushing = false;
        false
    }

    /// No result with a smaller time will follow, once [`work`](Self::work) has returned `false`.
    pub fn output_watermark(&self) -> i64 {
        // Rows near the end of time outlive even the last watermark.
        if self.finished {
            return WATERMARK_END;
        }
        let merged = self.watermarks[0].min(self.watermarks[1]);
        self.spec.output_watermark(merged)
    }

    /// What was joined, and how.
    pub fn spec(&self) -> &JoinSpec {
        &self.spec
    }

    /// The counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The watermarks that were applied last, left and right.
    pub fn watermarks(&self) -> [i64; 2] {
        self.watermarks
    }

    /// Rows in the memory of state, of both sides.
    pub fn state_rows(&self) -> u64 {
        self.state.row_count()
    }

    /// Bytes of state: index, arenas and pools as allocated, and rows that wait for their match.
    pub fn state_bytes(&self) -> u64 {
        let waiting = self.choices.as_ref().map_or(0, |choices| choices.bytes());
        (self.state.bytes() + waiting) as u64
    }

    /// The part of [`state_bytes`](Self::state_bytes) that holds no row and waits to be used again.
    pub fn pooled_bytes(&self) -> u64 {
        self.state.pooled_bytes() as u64
    }

    /// Memory that was taken before the first row, as
    /// [`JoinSpecBuilder::reserve_bytes`](crate::join::JoinSpecBuilder::reserve_bytes) has asked
    /// for, rounded up. It is in [`state_bytes`](Self::state_bytes) only while rows use it.
    pub fn reserved_bytes(&self) -> u64 {
        self.state.reserved_bytes() as u64
    }

    /// Frees what of its memory waits to be used again, all but about `keep_bytes` of it.
    pub fn trim(&mut self, keep_bytes: u64) {
        self.state.trim(usize::try_from(keep_bytes).unwrap_or(usize::MAX));
    }

    /// What a row of each side has to add to its time to get its end.
    fn ends(&self) -> [i128; 2] {
        let allowed = i128::from(self.spec.lateness().allowed);
        let interval = self.spec.interval();
        Side::BOTH.map(|side| i128::from(interval.seen_from(side).hi()) + allowed)
    }

    /// The part of [`state_bytes`](Self::state_bytes) that a look-up by key touches at random.
    pub fn index_bytes(&self) -> u64 {
        self.state.index_bytes() as u64
    }

    /// The watermark that frees rows of `side`.
    fn freeing_watermark(&self, side: Side) -> i64 {
        match self.spec.lateness().clock {
            LatenessClock::Merged => self.watermarks[0].min(self.watermarks[1]),
            LatenessClock::Own => self.watermarks[side.other().index()],
        }
    }

    /// The smallest time that a row of `side` may have and still be kept.
    fn floor(&self, side: Side) -> i64 {
        self.spec.retained_from(side, self.freeing_watermark(side))
    }

    fn on_null_keys<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) {
        let side = batch.side();
        let counters = &mut self.counters.sides[side.index()];
        counters.null_key += batch.len() as u64;
        if self.spec.kind().emits_unmatched(side) {
            counters.singles += batch.len() as u64;
            for index in 0..batch.len() {
                single_without_key(batch, index, &self.hasher, out);
            }
        }
    }

    /// Judges lateness here, where the spec's clock is the merged watermark.
    fn judge<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        self.classes.clear();
        let lateness = self.spec.lateness();
        if lateness.clock == LatenessClock::Merged {
            let threshold = lateness.threshold(self.watermarks[0].min(self.watermarks[1]));
            let earliest = batch.timestamps().iter().copied().min().unwrap_or(i64::MAX);
            if earliest < threshold {
                let lag_of = |_, ts| (ts < threshold).then(|| threshold.saturating_sub(ts));
                return self.classify(batch, lag_of, out);
            }
        }
        self.counters.sides[batch.side().index()].on_time += batch.len() as u64;
        Ok(())
    }

    /// Counts what its producer has found on time.
    fn take_judged(&mut self, batch: &EventBatch) {
        self.classes.clear();
        let lateness = self.spec.lateness();
        let counters = &mut self.counters.sides[batch.side().index()];
        match batch.kind {
            BatchKind::Copy => counters.copies += batch.len() as u64,
            _ => counters.on_time += batch.len() as u64,
        }
        if lateness.clock == LatenessClock::Merged {
            let threshold = lateness.threshold(self.watermarks[0].min(self.watermarks[1]));
            let overtaken = batch.timestamps().iter().filter(|&&ts| ts < threshold);
            counters.overtaken += overtaken.count() as u64;
        }
    }

    /// Notes for every event whether it is late, and does what the policy says.
    fn classify<E: Emit>(
        &mut self,
        batch: &EventBatch,
        lag_of: impl Fn(usize, i64) -> Option<i64>,
        out: &mut E,
    ) -> Result<(), JoinError> {
        let side = batch.side();
        let counters = &mut self.counters.sides[side.index()];
        self.classes.clear();
        for (index, &ts) in batch.timestamps().iter().enumerate() {
            let Some(lag) = lag_of(index, ts) else {
                counters.on_time += 1;
                self.classes.push(Class::OnTime);
                continue;
            };
            counters.late += 1;
            let event = (side, batch.event(index, &self.hasher));
            let is_joined = take_late(self.spec.lateness().policy, event, lag, out)?;
            self.classes.push(if is_joined { Class::Late } else { Class::Skip });
        }
        Ok(())
    }

    /// What has gone wrong in [`work`](Self::work), which says that nothing more is left then: rows
    /// cannot be read back from the files of [`Overflow::Spill`]. The operator must not be used any
    /// more.
    pub fn failure(&self) -> Option<JoinError> {
        let waiting = self.choices.as_ref().and_then(|choices| choices.failure());
        self.state.failure().or(waiting).map(|error| JoinError::Spill(error.clone()))
    }

    fn check_state(&mut self, batch: &EventBatch) -> Result<(), JoinError> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        if self.limits.overflow != Overflow::Refuse {
            self.make_room_for(batch)?;
        }
        check_rows(&self.limits, self.rows_in_memory(), batch)?;
        let Some(bytes_max) = self.limits.state_bytes_max else { return Ok(()) };
        let more = batch.row_bytes() as u64;
        if self.state_bytes() + more <= bytes_max {
            return Ok(());
        }
        // What waits to be used again does not count.
        self.trim(0);
        let bytes = self.state_bytes() + more;
        if bytes > bytes_max { Err(JoinError::StateFull { bytes, bytes_max }) } else { Ok(()) }
    }

    fn join<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        if self.choices.is_some() {
            return self.join_choosing(batch, out);
        }
        let side = batch.side();
        let probe = self.probe(side);
        let visit = PairVisit::new(self.spec.kind(), &self.hasher, batch, out);
        let (state, classes) = (&mut self.state, &self.classes[..]);
        let (joined, singles) = match (visit.is_short(), side) {
            _ if let Some(condition) = self.spec.condition() => {
                let mut visit = ConditionVisit::new(visit, condition);
                (join_all(state, batch, classes, probe, &mut visit), visit.singles())
            }
            (true, Side::Left) => {
                let mut visit = IntPairs::<E, true>::new(visit);
                (join_all(state, batch, classes, probe, &mut visit), visit.singles())
            }
            (true, Side::Right) => {
                let mut visit = IntPairs::<E, false>::new(visit);
                (join_all(state, batch, classes, probe, &mut visit), visit.singles())
            }
            (false, _) => {
                let mut visit = visit;
                (join_all(state, batch, classes, probe, &mut visit), visit.singles())
            }
        };
        let (stats, done) = joined;
        count(&mut self.counters, side, &stats);
        for (side, singles) in Side::BOTH.into_iter().zip(singles) {
            self.counters.sides[side.index()].singles += singles;
        }
        done.map_err(|StateFull| self.full())
    }

    fn probe(&self, side: Side) -> Probe {
        Probe {
            interval: self.spec.interval().seen_from(side),
            partner_floor: self.floor(side.other()),
            own_floor: self.floor(side),
        }
    }

    fn full(&self) -> JoinError {
        let bytes = self.state_bytes();
        self.failure().unwrap_or(JoinError::Exhausted { bytes })
    }
}

/// A batch of any length, piece by piece.
fn join_all<V: Visit>(
    state: &mut State,
    batch: &EventBatch,
    classes: &[Class],
    probe: Probe,
    visit: &mut V,
) -> (BatchStats, Result<(), StateFull>) {
    let mut all = BatchStats::default();
    let mut start = 0;
    while start < batch.len() {
        let end = batch.len().min(start + BATCH_EVENTS_MAX);
        match state.join_batch(batch, start..end, classes, probe, visit) {
            Ok(stats) => all += stats,
            Err(StateFull) => return (all, Err(StateFull)),
        }
        start = end;
    }
    (all, Ok(()))
}

fn count(counters: &mut Counters, side: Side, stats: &BatchStats) {
    counters.pairs += stats.pairs;
    let own = &mut counters.sides[side.index()];
    own.stored += stats.stored;
    own.matched += stats.matched;
    own.late_matched += stats.late_matched;
    let other = &mut counters.sides[side.other().index()];
    other.matched += stats.partners_matched;
    other.late_matched += stats.late_partners_matched;
}

/// An event out of state, as a sink sees it.
#[inline]
pub(super) fn event_of<'a>(hasher: &KeyHasher, key: u64, ts: i64, stored: &'a [u8]) -> Event<'a> {
    match hasher.kind() {
        KeyKind::Int => Event { key: Key::Int(hasher.unmix_int(key)), ts, row: stored },
        KeyKind::Bytes => {
            let (key, row) = split_keyed_row(stored);
            Event { key: Key::Bytes(key), ts, row }
        }
    }
}
