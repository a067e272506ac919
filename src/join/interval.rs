//! The interval join operator.

use crate::error::JoinError;
use crate::event::{EventBatch, KeyHasher};
use crate::join::{Counters, Emit, JoinSpec};
use crate::limits::Limits;

/// An interval join of one shard: state of both sides, clocks, counts. No thread, clock or IO.
///
/// Feed it batches with [`on_batch`](Self::on_batch) and watermarks with
/// [`advance`](Self::advance); call [`work`](Self::work) until it returns `false` to have
/// everything done that those watermarks demand.
pub struct IntervalJoin {
    spec: JoinSpec,
    counters: Counters,
}

impl IntervalJoin {
    /// An operator with empty state. `hasher` is the one that made the batches' key values.
    pub fn new(spec: JoinSpec, hasher: KeyHasher, limits: Limits) -> IntervalJoin {
        let _ = (hasher, limits);
        IntervalJoin { spec, counters: Counters::default() }
    }

    /// Matches a batch with the other side's state, emits, and keeps what may still match.
    ///
    /// # Errors
    /// [`JoinError`] for a late event under `LatePolicy::Fail` and for state over its bound.
    pub fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        let _ = (batch, out);
        todo!("landing with the state rooms")
    }

    /// Applies both sides' watermarks (smaller ones than before are ignored). What they free comes
    /// out of the following calls of [`work`](Self::work).
    pub fn advance(&mut self, left: i64, right: i64) {
        let _ = (left, right);
        todo!("landing with the state rooms")
    }

    /// All input has ended: everything left is freed by the following calls of
    /// [`work`](Self::work). Events that arrive afterwards are late.
    pub fn finish(&mut self) {
        todo!("landing with the state rooms")
    }

    /// Frees and pads rows that the watermarks have passed, about `budget` of them at the most.
    /// Returns whether more is left to do.
    pub fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        let _ = (budget, out);
        todo!("landing with the state rooms")
    }

    /// No result with a smaller time will follow, once [`work`](Self::work) has returned `false`.
    pub fn output_watermark(&self) -> i64 {
        todo!("landing with the state rooms")
    }

    /// What was joined, and how.
    pub fn spec(&self) -> &JoinSpec {
        &self.spec
    }

    /// The counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The part of [`state_bytes`](Self::state_bytes) that a look-up by key touches at random.
    pub fn index_bytes(&self) -> u64 {
        todo!("landing with the state rooms")
    }

    /// Bytes of state: index, arenas and pools as allocated.
    pub fn state_bytes(&self) -> u64 {
        todo!("landing with the state rooms")
    }
}
