//! The operator where not all matches count: the same state, other visitors, and rows that wait.

use std::path::Path;

use super::{IntervalJoin, count, join_all};
use crate::error::JoinError;
use crate::event::{EventBatch, Key, KeyHasher, Side};
use crate::join::choice::{Choices, Emitted, LeftVisit, RightVisit};
use crate::join::pairing::{Pairing, PairingVisit};
use crate::join::{Counters, Emit, JoinSpec, MatchChoice};
use crate::spill::SpillError;
use crate::state::{BatchStats, Class, Probe, State, StateFull};
use crate::time::Timestamp;

/// The rows that wait for their match.
pub(super) enum Choosing {
    /// One match for each left row.
    Each(Choices),
    /// At most one for each row of either side.
    OneToOne(Pairing),
}

impl Choosing {
    /// `spills`: rows may go into files.
    pub(super) fn new(spec: JoinSpec, spills: bool) -> Choosing {
        match spec.choice() {
            MatchChoice::OneToOne => Choosing::OneToOne(Pairing::new(spec, spills)),
            _ => Choosing::Each(Choices::new(spec)),
        }
    }

    /// Those of [`bytes`](Self::bytes) that are rows in memory.
    pub(super) fn row_bytes(&self) -> usize {
        match self {
            Choosing::Each(choices) => choices.row_bytes(),
            Choosing::OneToOne(pairing) => pairing.row_bytes(),
        }
    }

    /// Puts all rows that wait into files in `folder`.
    pub(super) fn spill(&mut self, folder: &Path) -> Result<(), SpillError> {
        match self {
            Choosing::Each(choices) => choices.spill(folder),
            Choosing::OneToOne(pairing) => pairing.spill(folder),
        }
    }

    /// Has memory keep no more of rows in files than it must.
    pub(super) fn forget(&mut self) {
        match self {
            Choosing::Each(choices) => choices.forget(),
            Choosing::OneToOne(pairing) => pairing.forget(),
        }
    }

    /// Why rows could not be read back from files, if they could not.
    pub(super) fn failure(&self) -> Option<&SpillError> {
        match self {
            Choosing::Each(choices) => choices.failure(),
            Choosing::OneToOne(pairing) => pairing.failure(),
        }
    }

    /// All rows up to now were stored before `now_ns`.
    pub(super) fn close_epoch(&mut self, now_ns: u64) {
        if let Choosing::Each(choices) = self {
            choices.close_epoch(now_ns);
        }
    }

    /// Rows that were stored up to `to_ns` are over. Those paired one to one have no such time.
    pub(super) fn age_out(&mut self, to_ns: u64) {
        if let Choosing::Each(choices) = self {
            choices.age_out(to_ns);
        }
    }

    /// Bytes as allocated.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Choosing::Each(choices) => choices.bytes(),
            Choosing::OneToOne(pairing) => pairing.bytes(),
        }
    }
}

/// What a batch is joined with, beside the state.
struct Work<'a> {
    batch: &'a EventBatch,
    classes: &'a [Class],
    hasher: &'a KeyHasher,
    probe: Probe,
    /// The watermark that rows wait for.
    clock: i64,
}

type Joined = (BatchStats, Result<(), StateFull>);

impl IntervalJoin {
    /// A batch where not all matches count.
    #[inline(never)]
    pub(super) fn join_choosing<E: Emit>(
        &mut self,
        batch: &EventBatch,
        out: &mut E,
    ) -> Result<(), JoinError> {
        let side = batch.side();
        let (probe, clock) = (self.probe(side), self.choosing_clock());
        let IntervalJoin { spec, hasher, state, classes, choices, counters, .. } = self;
        let work = Work { batch, classes, hasher, probe, clock };
        let done = match choices.as_deref_mut() {
            Some(Choosing::Each(choices)) => {
                let ((stats, done), emitted) = work.each(state, choices, out)?;
                // Matches that were not chosen are none that came out.
                count(counters, side, &BatchStats { pairs: 0, ..stats });
                count_chosen(counters, emitted);
                done
            }
            Some(Choosing::OneToOne(pairing)) => {
                let settled = spec.lateness().threshold(clock);
                let (stats, done) = work.one_to_one(settled, state, pairing, counters, out)?;
                // Nothing is matched but what was made a pair.
                count(counters, side, &BatchStats { stored: stats.stored, ..Default::default() });
                done
            }
            None => Ok(()),
        };
        done.map_err(|StateFull| self.full())?;
        self.failure().map_or(Ok(()), Err)
    }

    /// Emits matches that the watermarks have settled, and rows that have none; returns whether
    /// more is left to do.
    pub(super) fn choose<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        let clock = (!self.flushing).then(|| self.choosing_clock());
        let IntervalJoin { hasher, choices, counters, .. } = self;
        match choices.as_deref_mut() {
            Some(Choosing::Each(choices)) => {
                let (more, emitted) = choices.work(clock, budget, hasher, out);
                count_chosen(counters, emitted);
                more
            }
            Some(Choosing::OneToOne(pairing)) => pairing.work(clock, budget, hasher, counters, out),
            None => false,
        }
    }

    fn choosing_clock(&self) -> i64 {
        match self.choices.as_deref() {
            // A pair is settled when nothing earlier can come from either side.
            Some(Choosing::OneToOne(_)) => self.watermarks[0].min(self.watermarks[1]),
            _ => self.freeing_watermark(Side::Left),
        }
    }
}

impl Work<'_> {
    fn each<E: Emit>(
        self,
        state: &mut State,
        choices: &mut Choices,
        out: &mut E,
    ) -> Result<(Joined, Emitted), JoinError> {
        let Work { batch, classes, hasher, probe, clock } = self;
        if batch.side() == Side::Right {
            let emitted = Emitted::default();
            let mut visit = RightVisit { choices, batch, hasher, clock, out, emitted };
            let joined = join_all(state, batch, classes, probe, &mut visit);
            return Ok((joined, visit.emitted));
        }
        let marked = choices.mark(batch, classes, hasher.kind())?;
        let mut visit = LeftVisit { choices, batch, hasher };
        let joined = join_all(state, &marked, classes, probe, &mut visit);
        Ok((joined, choices.settle_batch(marked, (clock, probe.own_floor), hasher, out)))
    }

    /// Pairs off a batch. A pair whose time has been reached is made as soon as its second row is
    /// there, so where that may be (rows up to `settled`) rows come one after the other.
    fn one_to_one<E: Emit>(
        self,
        settled: i64,
        state: &mut State,
        pairing: &mut Pairing,
        counters: &mut Counters,
        out: &mut E,
    ) -> Result<Joined, JoinError> {
        let Work { batch, classes, hasher, probe, clock } = self;
        if batch.len() < 2 || batch.timestamps().iter().all(|&ts| ts > settled) {
            return self.one_to_one_at_once(state, pairing, counters, out);
        }
        let (mut all, mut row) = (BatchStats::default(), EventBatch::default());
        for index in 0..batch.len() {
            let Some(ts) = Timestamp::new(batch.timestamps()[index]) else { continue };
            row.reset(batch.side(), batch.source, batch.kind);
            // A key of bytes stands in the stored row already.
            row.push_with_value(batch.keys()[index], Key::Int(0), ts, batch.stored_row(index))
                .map_err(JoinError::Refused)?;
            let classes = classes.get(index..=index).unwrap_or(&[]);
            let one = Work { batch: &row, classes, hasher, probe, clock };
            let (stats, done) = one.one_to_one_at_once(state, pairing, counters, out)?;
            all += stats;
            if done.is_err() {
                return Ok((all, done));
            }
        }
        Ok((all, Ok(())))
    }

    fn one_to_one_at_once<E: Emit>(
        self,
        state: &mut State,
        pairing: &mut Pairing,
        counters: &mut Counters,
        out: &mut E,
    ) -> Result<Joined, JoinError> {
        let Work { batch, classes, hasher, probe, clock } = self;
        // What watermarks have left to do goes on bit by bit.
        let has_backlog = pairing.is_due(clock);
        let marked = pairing.mark(batch, classes, hasher.kind())?;
        let mut visit = PairingVisit { pairing, batch, hasher };
        let joined = join_all(state, &marked, classes, probe, &mut visit);
        pairing.settle_batch(marked);
        if !has_backlog {
            pairing.work(Some(clock), usize::MAX, hasher, counters, out);
        }
        Ok(joined)
    }
}

fn count_chosen(counters: &mut Counters, emitted: Emitted) {
    counters.pairs += emitted.pairs;
    counters.sides[Side::Left.index()].singles += emitted.singles;
}
