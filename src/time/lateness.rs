//! When an event counts as late, and what happens to it then.

/// What happens to an event that is late: `ts < W - allowed lateness`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePolicy {
    /// Count it and forget it.
    #[default]
    Drop,
    /// Count it and hand it to [`Emit::late`](crate::join::Emit::late).
    Output,
    /// Count it, match it with what is buffered, and keep it while its own interval is open
    /// (what Flink SQL does).
    Join,
    /// Stop with an error.
    Fail,
}

/// Which watermark an event is judged by, and which frees state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatenessClock {
    /// The minimum of both sides' watermarks judges events and frees state (Flink's way).
    #[default]
    Merged,
    /// The event's own source's watermark judges it before partitioning, and each side's state is
    /// freed by the other side's watermark: the same input gives the same pairs on any number of
    /// cores.
    Own,
}

/// Lateness as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// What happens to late events.
    pub policy: LatePolicy,
    /// Whose watermark judges.
    pub clock: LatenessClock,
    /// How far behind the watermark an event is still on time, in ticks; never negative.
    pub allowed: i64,
}

impl Lateness {
    /// The smallest time that is on time at `watermark`.
    #[inline]
    pub const fn threshold(self, watermark: i64) -> i64 {
        watermark.saturating_sub(self.allowed)
    }
}
