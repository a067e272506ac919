//! Joins whole sides offline: both sorted by key and time, then key by key. Knows no watermark,
//! streams nothing and shares nothing with the engine: what engines are compared with.

use std::ops::Range;

use crate::event::{Event, Key, Side};
use crate::join::{Condition, JoinKind, JoinSpec, MatchChoice, Window};
use crate::workload::{Events, Outcome, fold};

/// A row of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    ts: i64,
    /// Its place in its side's order of arrival.
    place: u32,
    id: u32,
}

/// What a join gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfflineJoin {
    /// Pairs, where the kind of join has them come out.
    pub outcome: Outcome,
    /// Rows that come out alone; of window joins unknown, unless it is an inner one.
    pub singles: Option<u64>,
}

/// The pairs that are within a workload's interval; about 200 ns an event and 2 ns a pair.
pub fn sort_merge(events: &Events) -> Outcome {
    let spec = events.workload.built_spec(JoinKind::Inner);
    spec.map_or(Outcome::default(), |spec| offline(events, &spec).outcome)
}

/// The result of any join without lateness. Memory: 24 bytes an event; of one-to-one joins besides
/// 32 bytes a match of the key that has the most.
pub fn offline(events: &Events, spec: &JoinSpec) -> OfflineJoin {
    let [left, right] = Side::BOTH.map(|side| sorted(events, side));
    let mut found = Found { condition: spec.condition().cloned(), ..Found::default() };
    let mut next_right = 0;
    for left in left.chunk_by(|a, b| a.0 == b.0) {
        let key = left[0].0;
        while right.get(next_right).is_some_and(|row| row.0 < key) {
            next_right += 1;
        }
        let count = right[next_right..].partition_point(|row| row.0 == key);
        let right = &right[next_right..next_right + count];
        let rows = |rows: &[(u64, Row)]| rows.iter().map(|row| row.1).collect::<Vec<Row>>();
        one_key(&rows(left), &rows(right), spec, &mut found);
    }
    let kind = spec.kind();
    let counts = Side::BOTH.map(|side| events.side(side).len() as u64);
    let unmatched = |side: Side| counts[side.index()] - found.matched[side.index()];
    let singles = match kind {
        JoinKind::Semi => found.matched[Side::Left.index()],
        _ => {
            let alone = Side::BOTH.into_iter().filter(|&side| kind.emits_unmatched(side));
            alone.map(unmatched).sum()
        }
    };
    let are_known = spec.windows().is_none() || kind == JoinKind::Inner;
    OfflineJoin {
        outcome: if kind.emits_pairs() { found.outcome } else { Outcome::default() },
        singles: are_known.then_some(singles),
    }
}

/// What comes out of a chain of inner joins, as [`run_chain`](crate::workload::run_chain) has it;
/// `None` where `stop`, which is asked again and again, has said so.
pub fn offline_chain(
    events: &Events,
    spec: &JoinSpec,
    more: usize,
    stop: fn() -> bool,
) -> Option<Outcome> {
    let mut outcome = Outcome::default();
    let is_whole = each_left(events, spec, &mut |left, partners| {
        let ids: Vec<u64> = partners.iter().map(|row| u64::from(row.id)).collect();
        let mut chosen = vec![0; more + 1];
        let mut found =
            |chosen: &[u64]| outcome.add(u64::from(left.id), fold(chosen.iter().copied()));
        each_choice(&ids, 0, &mut chosen, &mut found, stop)
    });
    is_whole.then_some(outcome)
}

/// How many rows come out of that chain, in the time of one join: a left row that has m matches
/// comes out m to the power of all stages times.
pub fn chain_rows(events: &Events, spec: &JoinSpec, more: usize) -> f64 {
    let mut rows = 0.0;
    each_left(events, spec, &mut |_, partners| {
        rows += (partners.len() as f64).powf(more as f64 + 1.0);
        true
    });
    rows
}

/// Calls `each` with every left row that has matches, and these, until it says no. Returns whether
/// it never did.
fn each_left(events: &Events, spec: &JoinSpec, each: &mut dyn FnMut(&Row, &[Row]) -> bool) -> bool {
    let [left, right] = Side::BOTH.map(|side| sorted(events, side));
    for left in left.chunk_by(|a, b| a.0 == b.0) {
        let first = right.partition_point(|row| row.0 < left[0].0);
        let count = right[first..].partition_point(|row| row.0 == left[0].0);
        let rows = |rows: &[(u64, Row)]| rows.iter().map(|row| row.1).collect::<Vec<Row>>();
        let (left, right) = (rows(left), rows(&right[first..first + count]));
        let mut found = matches(&left, &right, spec).filter(|(_, range)| !range.is_empty());
        if !found.all(|(index, range)| each(&left[index], &right[range])) {
            return false;
        }
    }
    true
}

/// Every way to choose one of the ids for each place from `place` on. Returns whether it came to
/// the end.
fn each_choice(
    ids: &[u64],
    place: usize,
    chosen: &mut [u64],
    found: &mut dyn FnMut(&[u64]),
    stop: fn() -> bool,
) -> bool {
    if place == chosen.len() {
        found(chosen);
        return true;
    }
    if stop() {
        return false;
    }
    ids.iter().all(|&id| {
        chosen[place] = id;
        each_choice(ids, place + 1, chosen, found, stop)
    })
}

fn sorted(events: &Events, side: Side) -> Vec<(u64, Row)> {
    let events = events.side(side);
    let columns = events.keys.iter().zip(&events.ts).zip(&events.ids).zip(0..);
    let row = |(((&key, &ts), &id), place)| (key, Row { ts, place, id });
    let mut rows: Vec<_> = columns.map(row).collect();
    rows.sort_unstable();
    rows
}

#[derive(Default)]
struct Found {
    /// Sees rows that are their ids.
    condition: Option<Condition>,
    outcome: Outcome,
    /// Rows with a match; by [`Side::index`].
    matched: [u64; 2],
}

impl Found {
    fn pair(&mut self, left: &Row, right: &Row) {
        self.outcome.add(u64::from(left.id), u64::from(right.id));
    }

    fn pair_if(&mut self, left: &Row, right: &Row) {
        if self.holds(left, right) {
            self.pair(left, right);
        }
    }

    fn holds(&self, left: &Row, right: &Row) -> bool {
        self.condition.as_ref().is_none_or(|condition| {
            let (left_row, right_row) = (left.bytes(), right.bytes());
            condition.holds(
                &Event { key: Key::Null, ts: left.ts, row: &left_row },
                &Event { key: Key::Null, ts: right.ts, row: &right_row },
            )
        })
    }
}

impl Row {
    /// The row as joins see it.
    fn bytes(&self) -> [u8; 8] {
        u64::from(self.id).to_le_bytes()
    }
}

/// Both sides' rows of one key, by time.
fn one_key(left: &[Row], right: &[Row], spec: &JoinSpec, found: &mut Found) {
    match (spec.windows(), spec.choice()) {
        (Some(Window::Session { gap }), _) => sessions(left, right, gap, found),
        (Some(Window::Hopping { size, slide, offset }), _) => {
            hopping(left, right, (size, slide, offset), found);
        }
        (None, MatchChoice::OneToOne) => one_to_one(left, right, spec, found),
        (None, _) => within(left, right, spec, found),
    }
}

/// Each left row and the range of right ones that match it: from all the first to the last.
fn matches<'a>(
    left: &'a [Row],
    right: &'a [Row],
    spec: &JoinSpec,
) -> impl Iterator<Item = (usize, Range<usize>)> + use<'a> {
    let (lo, hi) = (spec.interval().lo(), spec.interval().hi());
    // Left rows ascend by time, so both ends only move forward.
    let (mut first, mut end) = (0, 0);
    left.iter().enumerate().map(move |(index, row)| {
        let (from, to) = (row.ts.saturating_add(lo), row.ts.saturating_add(hi));
        first += right[first..].iter().take_while(|r| r.ts < from).count();
        end = first.max(end);
        end += right[end..].iter().take_while(|r| r.ts <= to).count();
        (index, first..end)
    })
}

/// All matches, or one for each left row.
fn within(left: &[Row], right: &[Row], spec: &JoinSpec, found: &mut Found) {
    if found.condition.is_some() {
        return within_if(left, right, spec, found);
    }
    // Right rows before this have been counted if they match.
    let mut counted_to = 0;
    for (index, range) in matches(left, right, spec) {
        let (row, partners) = (&left[index], &right[range.clone()]);
        found.matched[Side::Left.index()] += u64::from(!partners.is_empty());
        found.matched[Side::Right.index()] +=
            range.end.saturating_sub(range.start.max(counted_to)) as u64;
        counted_to = counted_to.max(range.end);
        choose(row, partners, spec.choice(), found);
    }
}

/// The same where a condition says which of them match.
fn within_if(left: &[Row], right: &[Row], spec: &JoinSpec, found: &mut Found) {
    let mut has_match = vec![false; right.len()];
    for (index, range) in matches(left, right, spec) {
        let row = &left[index];
        let places: Vec<usize> = range.filter(|&r| found.holds(row, &right[r])).collect();
        let partners: Vec<Row> = places.iter().map(|&r| right[r]).collect();
        places.into_iter().for_each(|r| has_match[r] = true);
        found.matched[Side::Left.index()] += u64::from(!partners.is_empty());
        choose(row, &partners, spec.choice(), found);
    }
    let matched = has_match.into_iter().filter(|&matched| matched).count();
    found.matched[Side::Right.index()] += matched as u64;
}

/// The pairs of a left row with the partners that count.
fn choose(row: &Row, partners: &[Row], choice: MatchChoice, found: &mut Found) {
    let chosen = match choice {
        MatchChoice::First => partners.first(),
        MatchChoice::Last => partners.last(),
        MatchChoice::Nearest => partners.iter().min_by_key(|r| (r.ts.abs_diff(row.ts), r.ts)),
        MatchChoice::All | MatchChoice::OneToOne => {
            partners.iter().for_each(|partner| found.pair(row, partner));
            None
        }
    };
    chosen.into_iter().for_each(|partner| found.pair(row, partner));
}

/// Matches in the order of the later row's time, then of the other one's arrival, each taken if
/// both rows are still free. No two rows share a time, so that is an order.
fn one_to_one(left: &[Row], right: &[Row], spec: &JoinSpec, found: &mut Found) {
    let mut candidates = Vec::new();
    for (l, range) in matches(left, right, spec) {
        candidates.extend(range.map(|r| {
            let (left, right) = (&left[l], &right[r]);
            let place = if left.ts < right.ts { left.place } else { right.place };
            (left.ts.max(right.ts), place, l, r)
        }));
    }
    candidates.sort_unstable();
    let mut taken = [vec![false; left.len()], vec![false; right.len()]];
    for (_, _, l, r) in candidates {
        if !taken[0][l] && !taken[1][r] && found.holds(&left[l], &right[r]) {
            (taken[0][l], taken[1][r]) = (true, true);
            found.matched = found.matched.map(|count| count + 1);
            found.pair(&left[l], &right[r]);
        }
    }
}

/// A pair comes out once for each window that has both rows.
fn hopping(left: &[Row], right: &[Row], grid: (i64, i64, i64), found: &mut Found) {
    let (size, slide, offset) = grid;
    let mut first = 0;
    for l in left {
        first += right[first..].iter().take_while(|r| r.ts <= l.ts - size).count();
        for r in right[first..].iter().take_while(|r| r.ts < l.ts + size) {
            // Windows that start after the later row's time less the size, up to the earlier's.
            let starts_to = |ts: i64| (ts - offset).div_euclid(slide);
            let windows = starts_to(l.ts.min(r.ts)) - starts_to(l.ts.max(r.ts) - size);
            (0..windows).for_each(|_| found.pair_if(l, r));
        }
    }
}

/// Rows of either side that follow each other by less than the gap are of one session.
fn sessions(left: &[Row], right: &[Row], gap: i64, found: &mut Found) {
    let (mut left, mut right) = (left, right);
    loop {
        let firsts = [left.first(), right.first()];
        let Some(start) = firsts.into_iter().flatten().map(|row| row.ts).min() else { return };
        let (mut l, mut r, mut last) = (0, 0, start);
        loop {
            let next = [left.get(l), right.get(r)].map(|row| row.map_or(i64::MAX, |row| row.ts));
            match next {
                [ts, other] if ts <= other && ts - last < gap => (l, last) = (l + 1, ts),
                [other, ts] if ts < other && ts - last < gap => (r, last) = (r + 1, ts),
                _ => break,
            }
        }
        for a in &left[..l] {
            right[..r].iter().for_each(|b| found.pair_if(a, b));
        }
        (left, right) = (&left[l..], &right[r..]);
    }
}
