//! Our own join in the caller's thread: the operator that a shard runs, without the engine.

use std::ops::Range;
use std::time::Instant;

use crate::error::{JoinError, SpecError};
use crate::event::{Event, EventBatch, KeyHasher, KeyKind, Side};
use crate::join::{AnyJoin, Counters, Emit, JoinSpec};
use crate::limits::{BATCH_EVENTS_MAX, Limits};
use crate::state::Simd;
use crate::workload::{Events, Moved, Outcome, StateSize, Stepped, Watermarks};

/// Counts pairs and sums their checksum, from the ids in the rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutcomeSink {
    /// What came out in pairs.
    pub outcome: Outcome,
    /// What came out alone.
    pub singles: u64,
}

impl Emit for OutcomeSink {
    #[inline]
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self.outcome.add(row_id(left.row), row_id(right.row));
    }

    #[inline]
    fn pairs<'a>(
        &mut self,
        side: Side,
        event: Event<'_>,
        partners: impl Iterator<Item = Event<'a>>,
    ) {
        self.outcome.add_all(side, row_id(event.row), partners.map(|partner| row_id(partner.row)));
    }

    fn single(&mut self, _side: Side, _event: Event<'_>) {
        self.singles += 1;
    }
}

/// The id in a workload's payload; a row of another length would spoil the checksum, not panic.
#[inline]
pub(super) fn row_id(row: &[u8]) -> u64 {
    row.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Rows to free at a time; the steps go on until none is left to do.
const WORK_ROWS: usize = 4 * BATCH_EVENTS_MAX;

/// [`AnyJoin`] over a workload. Filling the batches from the columns is part of each step.
pub struct SingleJoin {
    join: AnyJoin,
    hasher: KeyHasher,
    batch: EventBatch,
    out: OutcomeSink,
    /// Where rows live only so long by the clock on the wall: since when it runs.
    start: Option<Instant>,
}

impl SingleJoin {
    /// An empty join, without a bound on state.
    ///
    /// # Errors
    /// [`SpecError`] as the join has it.
    pub fn new(spec: JoinSpec, simd: Simd) -> Result<SingleJoin, SpecError> {
        SingleJoin::within(spec, simd, Limits::UNBOUNDED)
    }

    /// An empty join with bounds on state: a step that would be over one fails, unless rows are to
    /// be given up or put into files. It is told the time, if its spec asks for that.
    ///
    /// # Errors
    /// [`SpecError`] as the join has it.
    pub fn within(spec: JoinSpec, simd: Simd, limits: Limits) -> Result<SingleJoin, SpecError> {
        let hasher = KeyHasher::random(KeyKind::Int);
        Ok(SingleJoin {
            start: spec.ttl().map(|_| Instant::now()),
            join: AnyJoin::new(spec, hasher.clone(), limits, Some(simd))?,
            hasher,
            batch: EventBatch::with_capacity(
                Side::Left,
                BATCH_EVENTS_MAX,
                BATCH_EVENTS_MAX * size_of::<u64>(),
            ),
            out: OutcomeSink::default(),
        })
    }

    /// Its counts.
    pub fn counters(&self) -> &Counters {
        self.join.counters()
    }
}

/// The part of a join's state that a look-up by key touches at random; unknown (0) of windows.
pub(super) fn index_bytes(join: &AnyJoin) -> u64 {
    match join {
        AnyJoin::Interval(join) => join.index_bytes(),
        AnyJoin::Window(_) => 0,
    }
}

impl Stepped for SingleJoin {
    fn step(
        &mut self,
        events: &Events,
        side: Side,
        range: Range<usize>,
        watermarks: &Watermarks,
    ) -> Result<(), JoinError> {
        events.side(side).fill(&mut self.batch, &self.hasher, side, range);
        if let Some(start) = self.start {
            self.join.tick(start.elapsed().as_nanos() as u64);
        }
        self.join.on_batch(&self.batch, &mut self.out)?;
        self.join.advance(watermarks.side(Side::Left), watermarks.side(Side::Right));
        while self.join.work(WORK_ROWS, &mut self.out) {}
        Ok(())
    }

    fn finish(&mut self) -> Result<(), JoinError> {
        self.join.finish();
        while self.join.work(WORK_ROWS, &mut self.out) {}
        match self.join.failure() {
            Some(error) => Err(error),
            None => self.join.counters().check(),
        }
    }

    fn outcome(&self) -> Outcome {
        self.out.outcome
    }

    fn singles(&self) -> u64 {
        self.out.singles
    }

    fn moved(&self) -> Moved {
        Moved::of(self.join.counters())
    }

    fn state(&self) -> StateSize {
        StateSize {
            rows: self.join.rows_in_memory(),
            bytes: self.join.state_bytes(),
            index_bytes: index_bytes(&self.join),
        }
    }
}
