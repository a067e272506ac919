//! One instant of event time.

use std::fmt;

/// An instant of event time: `i64` ticks of the engine's one time unit.
///
/// Every value of `i64` is an ordinary time, before 1970 included, except `i64::MIN`, which
/// stands for "no time yet" in watermarks and is therefore refused here. A `Timestamp` is the
/// proof that the check was made.
///
/// ```
/// use intervale::time::Timestamp;
/// assert_eq!(Timestamp::new(-5).unwrap().ticks(), -5);
/// assert_eq!(Timestamp::new(i64::MIN), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest instant there is.
    pub const MIN: Timestamp = Timestamp(i64::MIN + 1);
    /// The latest instant there is; an event may carry it.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// The instant at `ticks`, or `None` for `i64::MIN`.
    #[inline]
    pub const fn new(ticks: i64) -> Option<Timestamp> {
        if ticks == i64::MIN { None } else { Some(Timestamp(ticks)) }
    }

    /// Ticks since the epoch, in the engine's unit.
    #[inline]
    pub const fn ticks(self) -> i64 {
        self.0
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
