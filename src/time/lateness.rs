//! When an event counts as late, and what happens to it then.

/// What happens to an event that is late: `ts < W - allowed lateness`.
///
/// ```
/// use intervale::event::{Event, Key, Side};
/// use intervale::join::{Emit, Join, JoinSpec};
/// use intervale::limits::Limits;
/// use intervale::time::{Bound, LatePolicy, Lateness};
///
/// /// Pairs, and by how much events were late.
/// #[derive(Default)]
/// struct Out(u32, Vec<i64>);
/// impl Emit for Out {
///     fn pair(&mut self, _left: Event<'_>, _right: Event<'_>) {
///         self.0 += 1;
///     }
///     fn late(&mut self, _side: Side, _event: Event<'_>, lag: i64) {
///         self.1.push(lag);
///     }
/// }
///
/// let run = |policy| {
///     let lateness = Lateness { policy, allowed: 5, ..Lateness::default() };
///     let spec = JoinSpec::between(Bound::Closed(-90), Bound::Closed(90)).lateness(lateness);
///     let mut join = Join::new(spec.build(&Limits::default())?, Limits::default())?;
///     let mut out = Out::default();
///     join.push(Side::Left, Key::Int(1), 60, b"left", &mut out)?;
///     Side::BOTH.map(|side| join.advance(side, 50, &mut out));
///     // 45 is on time, 40 is not.
///     join.push(Side::Right, Key::Int(1), 45, b"right", &mut out)?;
///     join.push(Side::Right, Key::Int(1), 40, b"right", &mut out)?;
///     Ok::<_, Box<dyn std::error::Error>>((out.0, out.1))
/// };
/// assert_eq!(run(LatePolicy::Drop)?, (1, vec![]));
/// assert_eq!(run(LatePolicy::Output)?, (1, vec![5]));
/// assert_eq!(run(LatePolicy::Join)?, (2, vec![]));
/// assert!(run(LatePolicy::Fail).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
