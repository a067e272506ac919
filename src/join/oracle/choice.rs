//! The reference's way to choose among matches.

use std::cmp::Reverse;

use super::Oracle;
use crate::join::MatchChoice;

impl Oracle {
    /// The first and last right time that would be chosen instead of one at `best_ts`, if there is
    /// any between them; equal times would not, the first to arrive stays.
    pub(super) fn better_times(&self, left_ts: i64, best_ts: i64) -> (i128, i128) {
        let (first, last) = self.spec.interval().range(left_ts);
        let (first, last) = (i128::from(first), i128::from(last));
        let (left, best) = (i128::from(left_ts), i128::from(best_ts));
        match self.spec.choice() {
            // Nothing is chosen, so nothing is open.
            MatchChoice::All | MatchChoice::OneToOne => (0, -1),
            MatchChoice::First => (first, best - 1),
            MatchChoice::Last => (best + 1, last),
            MatchChoice::Nearest => {
                let distance = (best - left).abs();
                // At the same distance the earlier is better.
                let earliest = if best > left { left - distance } else { left - distance + 1 };
                let latest = (left + distance - 1).min(last);
                let is_own_time = self.spec.is_apart() && latest == left;
                (earliest.max(first), if is_own_time { latest - 1 } else { latest })
            }
        }
    }
}

/// The partner with the smallest rank is chosen.
pub(super) fn rank(choice: MatchChoice, left_ts: i64, right_ts: i64) -> (u64, Reverse<i64>, i64) {
    match choice {
        MatchChoice::First => (0, Reverse(0), right_ts),
        MatchChoice::Last => (0, Reverse(right_ts), 0),
        MatchChoice::Nearest => (left_ts.abs_diff(right_ts), Reverse(0), right_ts),
        MatchChoice::All | MatchChoice::OneToOne => (0, Reverse(0), 0),
    }
}
