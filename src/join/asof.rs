//! As-of joins: the state of the right side as of each left row's time.

use crate::time::Bound;

/// Which right row an as-of join takes for a left one: the nearest before it, after it, or on
/// either side, at most `tolerance` ticks away.
///
/// ```
/// use intervale::join::{Asof, JoinKind, JoinSpec};
/// use intervale::limits::Limits;
///
/// // Each trade with the quote that stood when it was made, at most a minute old.
/// let asof = Asof::backward().within(60_000);
/// let spec = JoinSpec::asof(asof).kind(JoinKind::Left).build(&Limits::default())?;
/// assert_eq!((spec.interval().lo(), spec.interval().hi()), (-60_000, 0));
///
/// // It runs as any other join does.
/// use intervale::event::{Event, Key, Side};
/// let mut join = intervale::join::Join::new(spec, Limits::default())?;
/// let mut quotes = Vec::new();
/// let mut out = |_trade: Event<'_>, quote: Event<'_>| quotes.push(quote.ts);
/// for quoted in [100, 200, 300] {
///     join.push(Side::Right, Key::Int(1), quoted, b"quote", &mut out)?;
/// }
/// join.push(Side::Left, Key::Int(1), 250, b"trade", &mut out)?;
/// join.finish(&mut out);
/// assert_eq!(quotes, [200]);
///
/// // With a time to live a trade waits no longer than that for quotes of a feed that fell silent.
/// let ttl = std::time::Duration::from_nanos(80);
/// let spec = JoinSpec::asof(asof).ttl(ttl).build(&Limits::default())?;
/// let mut join = intervale::join::Join::new(spec, Limits::default())?;
/// let mut quotes = Vec::new();
/// let mut out = |_trade: Event<'_>, quote: Event<'_>| quotes.push(quote.ts);
/// join.push(Side::Right, Key::Int(1), 200, b"quote", &mut out)?;
/// join.push(Side::Left, Key::Int(1), 250, b"trade", &mut out)?;
/// [0, 10, 90].map(|now_ns| join.tick(now_ns, &mut out));
/// assert_eq!(quotes, [200]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asof {
    direction: Direction,
    tolerance: Option<i64>,
    strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Backward,
    Forward,
    Nearest,
}

impl Asof {
    const fn new(direction: Direction) -> Asof {
        Asof { direction, tolerance: None, strict: false }
    }

    /// The last right row at or before the left one's time.
    pub const fn backward() -> Asof {
        Asof::new(Direction::Backward)
    }

    /// The first right row at or after the left one's time.
    pub const fn forward() -> Asof {
        Asof::new(Direction::Forward)
    }

    /// The right row nearest in time; of two as near as each other the earlier.
    pub const fn nearest() -> Asof {
        Asof::new(Direction::Nearest)
    }

    /// At most so many ticks away. Without it, right rows are kept for ever (`backward`) or left
    /// rows wait for ever (`forward`), so a spec is refused unless state has a bound.
    pub const fn within(mut self, tolerance: i64) -> Asof {
        self.tolerance = Some(tolerance);
        self
    }

    /// A right row at the very time of the left one does not count.
    pub const fn strict(mut self) -> Asof {
        self.strict = true;
        self
    }

    /// The bounds of `right.ts - left.ts`.
    pub(super) fn bounds(self) -> (Bound, Bound) {
        let far = |ticks: i64| self.tolerance.map_or(Bound::Unbounded, |_| Bound::Closed(ticks));
        let ticks = self.tolerance.unwrap_or(0);
        let near = if self.strict { Bound::Open(0) } else { Bound::Closed(0) };
        match self.direction {
            Direction::Backward => (far(ticks.saturating_neg()), near),
            Direction::Forward => (near, far(ticks)),
            Direction::Nearest => (far(ticks.saturating_neg()), far(ticks)),
        }
    }

    pub(super) fn choice(self) -> super::MatchChoice {
        match self.direction {
            Direction::Backward => super::MatchChoice::Last,
            Direction::Forward => super::MatchChoice::First,
            Direction::Nearest => super::MatchChoice::Nearest,
        }
    }

    /// Whether equal times, though within the bounds, do not match.
    pub(super) fn is_apart(self) -> bool {
        self.strict && self.direction == Direction::Nearest
    }

    pub(super) fn tolerance(self) -> Option<i64> {
        self.tolerance
    }
}
