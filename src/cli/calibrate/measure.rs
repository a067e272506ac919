//! What two whole files say about their times.

use crate::cli::join::{Table, Tables};
use crate::event::Side;
use crate::time::Interval;

/// A left row and the right row of its key that is nearest in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nearest {
    /// `right.time - left.time`.
    pub(super) delta: i64,
    /// How far each row lies behind the largest time before it in its file, by side.
    pub(super) behind: [i64; 2],
}

/// What was measured, in ticks.
pub(super) struct Measured {
    /// Rows that can match at all, by side.
    pub(super) rows_with_key: [u64; 2],
    /// A pair for each left row whose key the right side has, by ascending delta.
    pub(super) nearest: Vec<Nearest>,
    /// How far each row lies behind, ascending, by side.
    pub(super) behind: [Vec<i64>; 2],
    /// Rows a tick, by side, from the first to the last time.
    pub(super) rows_per_tick: [f64; 2],
    /// Bytes of a row and its key, by side.
    pub(super) bytes_per_row: [f64; 2],
}

impl Measured {
    pub(super) fn new(tables: &Tables) -> Measured {
        let mut nearest = nearest(tables);
        nearest.sort_unstable_by_key(|pair| pair.delta);
        let of_side = |side: Side| &tables.streams[side.index()];
        Measured {
            rows_with_key: Side::BOTH
                .map(|side| of_side(side).rows.iter().filter(|row| row.has_key).count() as u64),
            nearest,
            behind: Side::BOTH.map(|side| {
                let mut behind: Vec<i64> = of_side(side).rows.iter().map(|r| r.behind).collect();
                behind.sort_unstable();
                behind
            }),
            rows_per_tick: Side::BOTH.map(|side| rows_per_tick(of_side(side))),
            bytes_per_row: Side::BOTH.map(|side| bytes_per_row(of_side(side))),
        }
    }

    /// The share of the left rows (with a key) that a join with these settings would match, by
    /// their nearest partner.
    pub(super) fn match_rate(&self, interval: Interval, disorder: [i64; 2]) -> f64 {
        let is_found = |pair: &&Nearest| {
            let on_time = Side::BOTH.map(|side| side.index()).into_iter();
            interval.contains(0, pair.delta)
                && on_time.into_iter().all(|side| pair.behind[side] <= disorder[side])
        };
        let found = self.nearest.iter().filter(is_found).count();
        found as f64 / self.rows_with_key[0].max(1) as f64
    }

    /// Rows that such a join holds at the rates seen.
    pub(super) fn state_rows(&self, interval: Interval, disorder: [i64; 2]) -> [f64; 2] {
        // The merged watermark trails by the larger of both.
        let trail = disorder[0].max(disorder[1]);
        Side::BOTH.map(|side| {
            let reach = interval.seen_from(side).hi().max(0);
            self.rows_per_tick[side.index()] * reach.saturating_add(trail) as f64
        })
    }
}

/// A value that a share of ascending values does not exceed; 0 without values.
pub(super) fn quantile(ascending: &[i64], share: f64) -> i64 {
    let rank = (ascending.len() as f64 * share).ceil() as usize;
    ascending.get(rank.clamp(1, ascending.len().max(1)) - 1).copied().unwrap_or(0)
}

/// The shortest range that has a share of the pairs in it; `None` without pairs.
pub(super) fn shortest(nearest: &[Nearest], share: f64) -> Option<(i64, i64)> {
    let count = ((nearest.len() as f64 * share).ceil() as usize).max(1);
    let ranges = nearest.windows(count).map(|pairs| (pairs[0].delta, pairs[count - 1].delta));
    ranges.min_by_key(|&(lo, hi)| i128::from(hi) - i128::from(lo))
}

fn nearest(tables: &Tables) -> Vec<Nearest> {
    let [left, right] = tables.sides();
    let rights = right.by_key_and_time();
    let mut found = Vec::new();
    let mut first = 0;
    for l in left.by_key_and_time() {
        let row = &left.rows[l];
        let key = left.key(row);
        // Left rows ascend, so the first right row at or after one only moves forward.
        while let Some(&r) = rights.get(first)
            && (right.key(&right.rows[r]), right.rows[r].ts) < (key, row.ts)
        {
            first += 1;
        }
        let around = [first.checked_sub(1), Some(first)];
        let partners = around.into_iter().filter_map(|at| rights.get(at?));
        let partners = partners.map(|&r| &right.rows[r]).filter(|r| right.key(r) == key);
        // The earlier one wins a tie.
        let pair = partners.min_by_key(|partner| partner.ts.abs_diff(row.ts));
        found.extend(pair.map(|partner| Nearest {
            delta: partner.ts.saturating_sub(row.ts),
            behind: [row.behind, partner.behind],
        }));
    }
    found
}

fn rows_per_tick(table: &Table) -> f64 {
    let times = || table.rows.iter().map(|row| row.ts);
    let span = times().max().unwrap_or(0).saturating_sub(times().min().unwrap_or(0));
    table.rows.len() as f64 / span.max(1) as f64
}

fn bytes_per_row(table: &Table) -> f64 {
    let bytes: usize =
        table.rows.iter().map(|row| table.key(row).len() + table.text(row).len()).sum();
    bytes as f64 / table.rows.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(deltas: &[i64]) -> Vec<Nearest> {
        deltas.iter().map(|&delta| Nearest { delta, behind: [0, 0] }).collect()
    }

    #[test]
    fn the_shortest_range_leaves_the_strays_out() {
        let deltas = pairs(&[-900, 1, 2, 3, 4, 5, 6, 7, 8, 700]);
        assert_eq!(shortest(&deltas, 0.8), Some((1, 8)));
        assert_eq!(shortest(&deltas, 0.9), Some((1, 700)));
        assert_eq!(shortest(&deltas, 1.0), Some((-900, 700)));
        assert_eq!(shortest(&[], 0.5), None);
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values = [0, 0, 0, 0, 0, 0, 0, 0, 3, 9];
        assert_eq!([0.5, 0.9, 0.91, 1.0].map(|share| quantile(&values, share)), [0, 3, 9, 9]);
        assert_eq!(quantile(&[], 0.99), 0);
    }
}
