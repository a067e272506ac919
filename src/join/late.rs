//! Late events, as every operator takes them.

use crate::error::JoinError;
use crate::event::{BatchKind, Event, EventBatch, Side};
use crate::join::Emit;
use crate::time::{LatePolicy, Lateness, LatenessClock};

/// The time from which on an event of a batch would be on time. What its source has judged stands;
/// an event that it has not found late is on time by its own clock, whatever that shows.
#[inline]
pub(super) fn on_time_from(
    lateness: Lateness,
    merged: i64,
    batch: &EventBatch,
    index: usize,
) -> i64 {
    let ts = batch.timestamps()[index];
    match (batch.kind, lateness.clock) {
        (BatchKind::Late, _) => ts.saturating_add(lag_of(batch, index)),
        (_, LatenessClock::Merged) => lateness.threshold(merged),
        (_, LatenessClock::Own) => ts,
    }
}

/// By how much the source of a late batch has found an event behind.
#[inline]
pub(super) fn lag_of(batch: &EventBatch, index: usize) -> i64 {
    batch.lags().get(index).copied().unwrap_or(0)
}

/// Does what the policy says with a late event; returns whether it is joined all the same.
///
/// # Errors
/// [`JoinError::Late`] under [`LatePolicy::Fail`].
pub(super) fn take_late<E: Emit>(
    policy: LatePolicy,
    (side, event): (Side, Event<'_>),
    lag: i64,
    out: &mut E,
) -> Result<bool, JoinError> {
    match policy {
        LatePolicy::Drop => {}
        LatePolicy::Output => out.late(side, event, lag),
        LatePolicy::Join => return Ok(true),
        LatePolicy::Fail => {
            return Err(JoinError::Late { side, ts: event.ts, lag, row: event.row.into() });
        }
    }
    Ok(false)
}
