//! The reference's way to choose among matches.

use std::cmp::Reverse;

use super::{Oracle, Row};
use crate::event::Side;
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

    /// The last watermark at which a row that may come out stays: what rows that one step makes
    /// come out are put in order by.
    pub(super) fn due(&self, side: Side, row: &Row) -> i128 {
        if let Some((best, _)) = row.choice {
            let (_, better_to) = self.better_times(row.ts, best);
            return better_to + i128::from(self.spec.lateness().allowed);
        }
        let is_endless = self.spec.interval().seen_from(side).has_no_last() || row.ts == i64::MAX;
        // Where there are choices, rows that nothing but the end of input frees come last.
        let never = if self.spec.chooses() && is_endless { 1 << 100 } else { 0 };
        self.end_of(side, row.ts) + never
    }

    /// Emits the pair of a left row whose choice is made and final.
    pub(super) fn emit_choice(&mut self, row: &mut Row, freed: bool) {
        let Some((ts, id)) = row.choice else { return };
        if !row.chosen && (freed || self.is_final(row.ts, ts)) {
            row.chosen = true;
            self.emit_pair(row, ts, id);
        }
    }

    /// Whether no right event that is still on time would be chosen instead of one at `best_ts`.
    fn is_final(&self, left_ts: i64, best_ts: i64) -> bool {
        let watermark = self.freeing_watermark(Side::Left);
        let on_time_from = i128::from(self.spec.lateness().threshold(watermark));
        let (better_from, better_to) = self.better_times(left_ts, best_ts);
        better_from.max(on_time_from) > better_to
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
