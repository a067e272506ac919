//! The interval of a join: which right times match a left time.

use std::fmt;

/// One end of an [`Interval`], relative to the left event's time, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The end belongs to the interval.
    Closed(i64),
    /// The end does not: one tick further in is the first that does.
    Open(i64),
    /// No end on this side. State is then freed only at the end of input, so a spec with an
    /// unbounded end is refused unless the limits name a bound on state.
    Unbounded,
}

/// The closed interval `[lo, hi]` of `right.ts - left.ts` in which two events match.
///
/// All arithmetic saturates: an end beyond `i64::MAX` means "for ever", it never wraps.
///
/// ```
/// use intervale::time::{Bound, Interval};
/// let within = Interval::new(Bound::Closed(-2), Bound::Open(3)).unwrap();
/// assert!(within.contains(10, 8) && within.contains(10, 12));
/// assert!(!within.contains(10, 7) && !within.contains(10, 13));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    lo: i64,
    hi: i64,
}

/// Why an [`Interval`] could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IntervalError {
    /// The lower end lies above the upper one, possibly only after opening an end.
    Empty {
        /// The first tick that would match, after opening.
        lo: i64,
        /// The last tick that would match, after opening.
        hi: i64,
    },
    /// An open end at the edge of `i64` leaves nothing.
    OpenAtEdge,
}

impl fmt::Display for IntervalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntervalError::Empty { lo, hi } => write!(
                f,
                "the interval is empty: its first tick would be {lo} and its last {hi}; \
                 give a lower end that is not above the upper end"
            ),
            IntervalError::OpenAtEdge => write!(
                f,
                "an open end lies at the edge of the 64-bit time range; use a closed or an unbounded end"
            ),
        }
    }
}

impl std::error::Error for IntervalError {}

impl Interval {
    /// Builds the interval; an open end moves one tick inwards.
    ///
    /// # Errors
    /// [`IntervalError::Empty`] when no tick is left, [`IntervalError::OpenAtEdge`] when opening
    /// an end would leave the range of `i64`.
    pub fn new(lo: Bound, hi: Bound) -> Result<Interval, IntervalError> {
        let lo = match lo {
            Bound::Closed(ticks) => ticks,
            Bound::Open(ticks) => ticks.checked_add(1).ok_or(IntervalError::OpenAtEdge)?,
            Bound::Unbounded => i64::MIN,
        };
        let hi = match hi {
            Bound::Closed(ticks) => ticks,
            Bound::Open(ticks) => ticks.checked_sub(1).ok_or(IntervalError::OpenAtEdge)?,
            Bound::Unbounded => i64::MAX,
        };
        if lo > hi { Err(IntervalError::Empty { lo, hi }) } else { Ok(Interval { lo, hi }) }
    }

    /// Builds `[lo, hi]`.
    ///
    /// # Errors
    /// [`IntervalError::Empty`] when `lo > hi`.
    pub fn closed(lo: i64, hi: i64) -> Result<Interval, IntervalError> {
        Interval::new(Bound::Closed(lo), Bound::Closed(hi))
    }

    /// The lower end; `i64::MIN` means unbounded.
    #[inline]
    pub const fn lo(self) -> i64 {
        self.lo
    }

    /// The upper end; `i64::MAX` means unbounded.
    #[inline]
    pub const fn hi(self) -> i64 {
        self.hi
    }

    /// Whether either end is unbounded.
    pub const fn is_unbounded(self) -> bool {
        self.lo == i64::MIN || self.hi == i64::MAX
    }

    /// The interval as the right side sees it: of `left.ts - right.ts`.
    #[inline]
    const fn mirrored(self) -> Interval {
        // `i64::MIN` is unbounded and must stay so; saturation turns it into `i64::MAX`.
        let lo = if self.hi == i64::MAX { i64::MIN } else { self.hi.saturating_neg() };
        let hi = if self.lo == i64::MIN { i64::MAX } else { self.lo.saturating_neg() };
        Interval { lo, hi }
    }

    /// The interval as events of `side` see their partners: of `partner.ts - own.ts`.
    #[inline]
    pub const fn seen_from(self, side: crate::event::Side) -> Interval {
        match side {
            crate::event::Side::Left => self,
            crate::event::Side::Right => self.mirrored(),
        }
    }

    /// First and last partner time of an event at `ts`, for an interval seen from its own side.
    #[inline]
    pub const fn range(self, ts: i64) -> (i64, i64) {
        let first = if self.lo == i64::MIN { i64::MIN } else { ts.saturating_add(self.lo) };
        let last = if self.hi == i64::MAX { i64::MAX } else { ts.saturating_add(self.hi) };
        (first, last)
    }

    /// Whether a left event at `left_ts` and a right event at `right_ts` match.
    #[inline]
    pub const fn contains(self, left_ts: i64, right_ts: i64) -> bool {
        let (first, last) = self.range(left_ts);
        first <= right_ts && right_ts <= last
    }
}
