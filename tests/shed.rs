//! Rows that are given up at a bound: just those that a model of a few lines gives up, no row more
//! or less, and no other.

use intervale::event::{Event, Key, Side};
use intervale::join::{Emit, Join, JoinKind, JoinSpec};
use intervale::limits::{Limits, Overflow};
use intervale::time::Bound;
use proptest::prelude::*;

/// A row in state: side, key, time, number.
type Row = (usize, u64, i64, u64);

#[derive(Default)]
struct Pairs(Vec<(u64, u64)>);

fn number(event: &Event<'_>) -> u64 {
    u64::from_le_bytes(event.row.try_into().unwrap())
}

impl Emit for Pairs {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self.0.push((number(&left), number(&right)));
    }

    fn single(&mut self, _: Side, _: Event<'_>) {}
}

/// State with a list of rows, in time buckets of one tick.
struct Model {
    bounds: (i64, i64),
    rows_max: usize,
    rows: Vec<Row>,
    matched: Vec<u64>,
    shed: [u64; 2],
    shed_unmatched: [u64; 2],
}

impl Model {
    /// When a row of a side is over, by its time.
    fn end(&self, (side, _, ts, _): Row) -> i64 {
        if side == 0 { ts + self.bounds.1 } else { ts - self.bounds.0 }
    }

    fn push(&mut self, row: Row) -> Vec<(u64, u64)> {
        // Room for this one; if there is none, for an eighth more.
        let room = self.rows_max - 1;
        if self.rows.len() > room {
            while self.rows.len() > room - room / 8 {
                self.give_the_oldest_up();
            }
        }
        let (lo, hi) = self.bounds;
        let mut pairs = Vec::new();
        for other in self.rows.iter().filter(|other| other.0 != row.0 && other.1 == row.1) {
            let (left, right) = if row.0 == 0 { (row, *other) } else { (*other, row) };
            if (lo..=hi).contains(&(right.2 - left.2)) {
                pairs.push((left.3, right.3));
                self.matched.extend([left.3, right.3]);
            }
        }
        self.rows.push(row);
        pairs.sort_unstable();
        pairs
    }

    fn give_the_oldest_up(&mut self) {
        let oldest = self.rows.iter().map(|&row| (self.end(row), row.0)).min();
        let (end, side) = oldest.expect("there are rows");
        let gone: Vec<Row> = self
            .rows
            .iter()
            .copied()
            .filter(|&row| row.0 == side && self.end(row) == end)
            .collect();
        self.rows.retain(|row| !gone.contains(row));
        self.shed[side] += gone.len() as u64;
        let is_open = |row: &&Row| !self.matched.contains(&row.3);
        self.shed_unmatched[side] += gone.iter().filter(is_open).count() as u64;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_oldest_are_given_up_and_no_others(
        rows in prop::collection::vec((0usize..2, 0u64..6, 0i64..80), 1..200),
        (lo, width) in (-30i64..20, 0i64..60),
        rows_max in 2u64..60,
        kind in prop::sample::select(&[JoinKind::Inner, JoinKind::Full][..]),
    ) {
        let overflow = Overflow::Shed;
        let limits = Limits { state_rows_max: Some(rows_max), overflow, ..Limits::UNBOUNDED };
        let bounds = (lo, lo + width);
        let spec = JoinSpec::between(Bound::Closed(bounds.0), Bound::Closed(bounds.1));
        let spec = spec.kind(kind).bucket_width(1).build(&limits).unwrap();
        let mut join = Join::new(spec, limits).unwrap();
        let mut model = Model {
            bounds,
            rows_max: rows_max as usize,
            rows: Vec::new(),
            matched: Vec::new(),
            shed: [0; 2],
            shed_unmatched: [0; 2],
        };
        for (id, (side, key, ts)) in (0u64..).zip(rows) {
            let expected = model.push((side, key, ts, id));
            let mut got = Pairs::default();
            join.push(Side::BOTH[side], Key::Int(key), ts, &id.to_le_bytes(), &mut got).unwrap();
            got.0.sort_unstable();
            prop_assert_eq!(got.0, expected, "row {}", id);
            let counters = Side::BOTH.map(|side| join.counters().side(side));
            prop_assert_eq!(counters.map(|side| side.shed), model.shed, "row {}", id);
            prop_assert_eq!(counters.map(|side| side.shed_unmatched), model.shed_unmatched);
        }
    }
}
