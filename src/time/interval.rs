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
/// All arithmetic is exact: an end beyond the range of `i64` lies beyond every time, it never
/// wraps. So which of two events arrives first never decides whether they match.
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
    /// No lower end at all; `lo` is `i64::MIN` then.
    lo_unbounded: bool,
    /// No upper end at all; `hi` is `i64::MAX` then.
    hi_unbounded: bool,
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
                "an open end lies at the edge of the 64-bit time range; use a closed or an \
                 unbounded end"
            ),
        }
    }
}

impl std::error::Error for IntervalError {}

impl Interval {
    /// Builds the interval; an open end moves one tick inwards.
    ///
    /// `Closed(i64::MIN)` and `Closed(i64::MAX)` are numbers like all others, only
    /// [`Bound::Unbounded`] has no end. (An end at `i64::MIN` counts as `i64::MIN + 1`, whose
    /// negative exists.)
    ///
    /// # Errors
    /// [`IntervalError::Empty`] when no tick is left, [`IntervalError::OpenAtEdge`] when opening
    /// an end would leave the range of `i64`.
    pub fn new(lo: Bound, hi: Bound) -> Result<Interval, IntervalError> {
        let interval = Interval::new_or_empty(lo, hi)?;
        let Interval { lo, hi, .. } = interval;
        if lo > hi { Err(IntervalError::Empty { lo, hi }) } else { Ok(interval) }
    }

    /// Builds the interval even if it holds nothing: [`range`](Self::range) is then empty, too.
    ///
    /// # Errors
    /// [`IntervalError::OpenAtEdge`] as for [`new`](Self::new).
    pub(crate) fn new_or_empty(lo: Bound, hi: Bound) -> Result<Interval, IntervalError> {
        let (lo_unbounded, hi_unbounded) = (lo == Bound::Unbounded, hi == Bound::Unbounded);
        let lo = match lo {
            // Every number must have its negative, which is the bound that the right side sees.
            Bound::Closed(ticks) => ticks.max(-i64::MAX),
            Bound::Open(ticks) => ticks.checked_add(1).ok_or(IntervalError::OpenAtEdge)?,
            Bound::Unbounded => i64::MIN,
        };
        let hi = match hi {
            Bound::Closed(ticks) => ticks.max(-i64::MAX),
            Bound::Open(ticks) => {
                ticks.checked_sub(1).ok_or(IntervalError::OpenAtEdge)?.max(-i64::MAX)
            }
            Bound::Unbounded => i64::MAX,
        };
        Ok(Interval { lo, hi, lo_unbounded, hi_unbounded })
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

    /// Whether either end is missing, or so far out that nothing would be freed in practice.
    pub const fn is_unbounded(self) -> bool {
        self.lo <= -i64::MAX || self.hi == i64::MAX
    }

    /// Whether there is no upper end: partners never stop matching.
    #[inline]
    pub const fn has_no_last(self) -> bool {
        self.hi_unbounded
    }

    /// The interval as the right side sees it: of `left.ts - right.ts`.
    #[inline]
    const fn mirrored(self) -> Interval {
        Interval {
            // Saturates only where there is no end and the flag says so.
            lo: if self.hi_unbounded { i64::MIN } else { -self.hi },
            hi: if self.lo_unbounded { i64::MAX } else { -self.lo },
            lo_unbounded: self.hi_unbounded,
            hi_unbounded: self.lo_unbounded,
        }
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
    ///
    /// The first lies above the last when nothing can match.
    #[inline]
    pub const fn range(self, ts: i64) -> (i64, i64) {
        let first = match (self.lo_unbounded, ts.checked_add(self.lo)) {
            (true, _) => i64::MIN,
            (false, Some(first)) => first,
            // Above every time: not even an event at `i64::MAX` matches.
            (false, None) if self.lo > 0 => return (i64::MAX, i64::MAX - 1),
            (false, None) => i64::MIN,
        };
        // A last time below every time saturates to `i64::MIN`, which no event carries.
        let last = if self.hi_unbounded { i64::MAX } else { ts.saturating_add(self.hi) };
        (first, last)
    }

    /// Whether a left event at `left_ts` and a right event at `right_ts` match.
    #[inline]
    pub const fn contains(self, left_ts: i64, right_ts: i64) -> bool {
        let (first, last) = self.range(left_ts);
        first <= right_ts && right_ts <= last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Side;
    use proptest::prelude::*;

    fn edge() -> impl Strategy<Value = i64> {
        prop_oneof![
            (0..40i64).prop_map(|n| i64::MIN + 1 + n),
            (0..40i64).prop_map(|n| i64::MAX - n),
            -40..40i64,
        ]
    }

    proptest! {
        #[test]
        fn both_sides_see_the_same_pairs(
            (lo, hi) in (edge(), edge()),
            (left, right) in (edge(), edge()),
        ) {
            let interval = Interval::new_or_empty(Bound::Closed(lo), Bound::Closed(hi)).unwrap();
            let difference = i128::from(right) - i128::from(left);
            let expected = i128::from(lo) <= difference && difference <= i128::from(hi);
            prop_assert_eq!(interval.contains(left, right), expected);
            let (first, last) = interval.seen_from(Side::Right).range(right);
            prop_assert_eq!(first <= left && left <= last, expected);
        }
    }

    #[test]
    fn no_end_is_further_than_the_furthest_number() {
        let number = Interval::closed(i64::MIN, 0).unwrap();
        let endless = Interval::new(Bound::Unbounded, Bound::Closed(0)).unwrap();
        assert!(!number.contains(100, i64::MIN + 1));
        assert!(endless.contains(100, i64::MIN + 1));
        assert!(number.is_unbounded() && endless.is_unbounded());
        assert!(endless.seen_from(Side::Right).has_no_last() && !endless.has_no_last());
    }
}
