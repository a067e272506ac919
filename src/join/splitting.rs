//! Which rows of a hot key may be spread over shards.

use crate::event::Side;
use crate::join::{JoinKind, JoinSpec, MatchChoice};
use crate::time::LatePolicy;

impl JoinSpec {
    /// Which sides of a hot key may be spread over all shards, by [`Side::index`], while the other
    /// side's rows are copied to each of them: a spread row then meets all its partners on the one
    /// shard that it is on, so pairs, padding, semi and anti joins, and the choice among a row's
    /// matches come out as without. A copied row is in several places, each of which knows only
    /// some of its matches, so nothing may hang on whether it has any.
    ///
    /// # Errors
    /// Why keys of this join cannot be split.
    pub fn spread_sides(&self) -> Result<[bool; 2], &'static str> {
        if self.windows().is_some() {
            return Err("a window join pairs off windows, which must be whole on one core");
        }
        if self.interval().is_unbounded() {
            return Err("rows that match however far apart they are must all be on one core");
        }
        if self.lateness().policy == LatePolicy::Join {
            return Err("late rows that are joined must find all that is buffered on one core");
        }
        if self.ttl().is_some() {
            return Err("copies of a row would not all live as long as it does");
        }
        match (self.choice(), self.kind()) {
            (MatchChoice::OneToOne, _) => {
                Err("one-to-one matching uses rows of both sides up, so both must be on one core")
            }
            (_, JoinKind::Full) => {
                Err("a full join pads rows of both sides, so both must be on one core")
            }
            // Chosen is a match of the left row.
            (MatchChoice::All, JoinKind::Inner) => Ok([true, true]),
            (_, kind) => {
                Ok([!kind.emits_unmatched(Side::Right), kind.emits_unmatched(Side::Right)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::Window;
    use crate::limits::Limits;
    use crate::time::{Bound, Lateness};

    #[test]
    fn the_side_on_which_matches_matter_is_spread() {
        let bounds = (Bound::Closed(-5), Bound::Closed(5));
        let of = |kind, choice| {
            let spec = JoinSpec::between(bounds.0, bounds.1).kind(kind).choice(choice);
            spec.build(&Limits::UNBOUNDED).unwrap().spread_sides()
        };
        let all = MatchChoice::All;
        assert_eq!(of(JoinKind::Inner, all), Ok([true, true]));
        assert_eq!(of(JoinKind::Right, all), Ok([false, true]));
        for kind in [JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
            assert_eq!(of(kind, all), Ok([true, false]), "{kind:?}");
            assert_eq!(of(kind, MatchChoice::First), Ok([true, false]), "{kind:?}");
        }
        assert_eq!(of(JoinKind::Inner, MatchChoice::Nearest), Ok([true, false]));
        assert!(of(JoinKind::Full, all).unwrap_err().contains("full"));
        assert!(of(JoinKind::Inner, MatchChoice::OneToOne).unwrap_err().contains("one-to-one"));
    }

    #[test]
    fn what_cannot_be_split_says_why() {
        let limits = Limits { state_bytes_max: Some(1 << 30), ..Limits::UNBOUNDED };
        let endless = JoinSpec::between(Bound::Unbounded, Bound::Closed(0));
        let window = JoinSpec::window(Window::tumbling(10));
        let late = Lateness { policy: LatePolicy::Join, ..Lateness::default() };
        let joined = JoinSpec::between(Bound::Closed(0), Bound::Closed(9)).lateness(late);
        for (spec, word) in [(endless, "far apart"), (window, "window"), (joined, "late rows")] {
            let why = spec.build(&limits).unwrap().spread_sides().unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
