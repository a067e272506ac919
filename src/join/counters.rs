//! What a join counts. The sums that must hold are in [`Counters::check`].

use crate::error::JoinError;
use crate::event::{EventBatch, Side};
use crate::limits::Limits;

/// Counts of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideCounters {
    /// Events that arrived: on time, late, or without a key.
    pub rows: u64,
    /// Events that were on time and had a key.
    pub on_time: u64,
    /// Events with a key that were late, whatever the policy did with them.
    pub late: u64,
    /// Events without a key, whatever their time: they are never judged late.
    pub null_key: u64,
    /// On-time rows with at least one match so far; where there are copies, each of them counts
    /// for itself: see [`matched_rows`](Self::matched_rows).
    pub matched: u64,
    /// Late rows that matched, under `LatePolicy::Join`.
    pub late_matched: u64,
    /// Rows that came out by themselves: padded, semi or anti.
    pub singles: u64,
    /// Rows that were put into state.
    pub stored: u64,
    /// Rows that watermarks, or the end of input, have freed from state.
    pub freed: u64,
    /// Rows whose time to live ended before a watermark freed them; see
    /// [`JoinSpecBuilder::ttl`](crate::join::JoinSpecBuilder::ttl).
    pub timed_out: u64,
    /// Rows that were given up to keep state within its bound, under
    /// [`Overflow::Shed`](crate::limits::Overflow::Shed).
    pub shed: u64,
    /// Of these, the ones that had no match by then.
    pub shed_unmatched: u64,
    /// Copies of other shards' rows, of keys that are split: none of them is in the counts above
    /// but `matched`, `stored`, `freed` and `spilled`.
    pub copies: u64,
    /// Rows and copies that their producer found on time and that the watermark had overtaken on
    /// their way: what they should have met may have been freed. Only rows that come after their
    /// own source has promised that they do not, or out of a source that was idle.
    pub overtaken: u64,
    /// Rows that were put into files, under
    /// [`Overflow::Spill`](crate::limits::Overflow::Spill); they are in state as before. A row goes
    /// there once; of a row with copies each core counts its own, so that it is one of `on_time`
    /// and `copies` together, late rows that joined among them.
    pub spilled: u64,
}

impl SideCounters {
    /// On-time rows with at least one match so far, and without; `None` where rows were copied to
    /// other shards, as it is not known then which of the matches are the same row's.
    pub fn matched_rows(&self) -> Option<(u64, u64)> {
        (self.copies == 0).then(|| (self.matched, self.unmatched()))
    }

    /// On-time rows without a match so far; where there are copies, fewer: see
    /// [`matched_rows`](Self::matched_rows).
    pub fn unmatched(&self) -> u64 {
        self.on_time.saturating_sub(self.matched)
    }

    /// Rows in state now.
    pub fn buffered(&self) -> u64 {
        self.stored - self.gone()
    }

    /// Rows that were in state and are not any more.
    fn gone(&self) -> u64 {
        self.freed + self.timed_out + self.shed
    }

    /// Adds another shard's counts.
    pub fn add(&mut self, other: &SideCounters) {
        self.rows += other.rows;
        self.on_time += other.on_time;
        self.late += other.late;
        self.null_key += other.null_key;
        self.matched += other.matched;
        self.late_matched += other.late_matched;
        self.singles += other.singles;
        self.stored += other.stored;
        self.freed += other.freed;
        self.timed_out += other.timed_out;
        self.shed += other.shed;
        self.shed_unmatched += other.shed_unmatched;
        self.copies += other.copies;
        self.overtaken += other.overtaken;
        self.spilled += other.spilled;
    }
}

/// Whether the bound on rows leaves room for a batch beside those that are there.
///
/// # Errors
/// [`JoinError::RowsFull`] when it does not.
#[inline]
pub(super) fn check_rows(
    limits: &Limits,
    buffered: u64,
    batch: &EventBatch,
) -> Result<(), JoinError> {
    let Some(rows_max) = limits.state_rows_max else { return Ok(()) };
    let rows = buffered + batch.len() as u64;
    if rows > rows_max { Err(JoinError::RowsFull { rows, rows_max }) } else { Ok(()) }
}

/// Counts of a join: plain numbers on the core that counts, copied out on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By [`Side::index`].
    pub sides: [SideCounters; 2],
    /// Pairs that matched (for semi and anti joins they do not come out as such).
    pub pairs: u64,
}

impl Counters {
    /// The counts of one side.
    pub fn side(&self, side: Side) -> &SideCounters {
        &self.sides[side.index()]
    }

    /// Rows of both sides in state now.
    pub fn buffered(&self) -> u64 {
        self.sides.iter().map(SideCounters::buffered).sum()
    }

    /// Adds another shard's counts.
    pub fn add(&mut self, other: &Counters) {
        for side in Side::BOTH {
            self.sides[side.index()].add(other.side(side));
        }
        self.pairs += other.pairs;
    }

    /// Checks the sums that must hold at every moment.
    ///
    /// # Errors
    /// [`JoinError::Unbalanced`] names the sum that does not hold: a fault of the engine.
    pub fn check(&self) -> Result<(), JoinError> {
        for side in Side::BOTH {
            let (name, counts) = (side.name(), self.side(side));
            if counts.rows != counts.on_time + counts.late + counts.null_key {
                return Err(JoinError::Unbalanced(format!(
                    "{name}: {} rows are not {} on time + {} late + {} without key",
                    counts.rows, counts.on_time, counts.late, counts.null_key
                )));
            }
            let matched_max = counts.on_time + counts.copies;
            let is_more = counts.gone() > counts.stored || counts.spilled > counts.stored;
            if counts.matched > matched_max || is_more {
                return Err(JoinError::Unbalanced(format!("{name}: {counts:?}")));
            }
        }
        Ok(())
    }
}
