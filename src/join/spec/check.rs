//! What goes with what in a spec, and with its limits.

use super::JoinSpecBuilder;
use crate::error::SpecError;
use crate::join::{Asof, MatchChoice};
use crate::limits::{
    Limits, Overflow, STATE_CHUNK_BYTES_MAX, STATE_CHUNK_BYTES_MIN, STATE_CHUNKS_WITHIN_BOUND,
};
use crate::time::IntervalError;

/// Why rows stay where they are when state is full.
pub(in crate::join) const NOT_PLAIN: &str =
    "rows are given up in interval joins of all matches only";

impl JoinSpecBuilder {
    pub(super) fn check_overflow(&self, limits: &Limits, is_plain: bool) -> Result<(), SpecError> {
        if limits.overflow == Overflow::Shed && !is_plain {
            return Err(SpecError::Overflow(NOT_PLAIN));
        }
        Ok(())
    }

    pub(super) fn check_ttl(&self) -> Result<(), SpecError> {
        match self.ttl {
            None => Ok(()),
            Some(ttl) if ttl.is_zero() => Err(SpecError::Ttl("a time to live is more than 0")),
            Some(_) if self.windows.is_some() => Err(SpecError::Ttl(
                "rows of a window have their turn at its end, so one that is gone by then would \
                 come out without the partners that it has; leave the time to live out, and let \
                 silent sources be idle",
            )),
            Some(_) if self.choice == MatchChoice::OneToOne => Err(SpecError::Ttl(
                "rows that are paired one to one wait for each other, so one that is gone would \
                 change the pairs of others; leave the time to live out, or choose among the \
                 matches of each left row",
            )),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn check_layout(&self, limits: &Limits) -> Result<(), SpecError> {
        if let Some(ticks) = self.bucket_width.filter(|&ticks| ticks < 1) {
            return Err(SpecError::BucketWidth(ticks));
        }
        let most = limits.state_bytes_max.map_or(STATE_CHUNK_BYTES_MAX, |bytes| {
            // The smallest always goes.
            let share = (bytes / STATE_CHUNKS_WITHIN_BOUND).max(STATE_CHUNK_BYTES_MIN);
            // Sizes are rounded up to powers of two, and the largest such one is what fits.
            (1 << share.ilog2()).min(STATE_CHUNK_BYTES_MAX)
        });
        match self.chunk_bytes {
            Some(bytes) if !(STATE_CHUNK_BYTES_MIN..=most).contains(&bytes) => {
                Err(SpecError::ChunkBytes { bytes, bytes_max: most })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_asof(&self, asof: Asof) -> Result<(), SpecError> {
        match asof.tolerance() {
            Some(ticks) if ticks < 0 => return Err(SpecError::NegativeTolerance(ticks)),
            Some(0) if asof.is_apart() => return Err(IntervalError::Empty { lo: 0, hi: 0 }.into()),
            _ => {}
        }
        // Semi and anti joins do not choose, so they would count a row at the same time.
        if self.choice != asof.choice() || (asof.is_apart() && !self.kind.emits_pairs()) {
            return Err(SpecError::AsofKind);
        }
        Ok(())
    }
}
