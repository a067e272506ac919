//! Phases by hand, and what is found hot.

use super::detect::{Found, Sample, Surroundings, Window};
use super::seen::Routed;
use super::table::{Entry, Route, Table};
use super::{HotKeys, SplitPlan};
use crate::event::Side;
use crate::limits::HOT_WINDOW_SAMPLES;
use crate::time::Interval;

fn plan(spreads: [bool; 2], (lo, hi): (i64, i64), shard_count: usize) -> SplitPlan {
    let interval = Interval::closed(lo, hi).unwrap();
    SplitPlan { hot_keys: HotKeys::Auto, spreads, interval, allowed: 0, shard_count, seed: 1 }
}

fn routed(left: i64, right: i64, left_spread: i64) -> Routed {
    Routed { all: [left, right], spread: [left_spread, i64::MIN] }
}

fn route(table: &Table, side: Side, ts: i64) -> Route {
    let entry = table.entries().iter().find(|entry| entry.holds(7));
    entry.map_or(Route::Home, |entry: &Entry| entry.route(side, ts))
}

#[test]
fn phases_go_on_when_all_producers_have_seen_them() {
    let mut table = Table::new(&plan([true, false], (-10, 20), 2));
    let (one, other) = (table.join(), table.join());
    let newest = super::Version::new(table.version());
    let _ = (one.enter(table.version(), &newest), other.enter(table.version(), &newest));
    table.split(7, u64::MAX, Side::Left);
    table.advance(0);
    // Right rows are copied from now on; left ones may not be spread before all know.
    assert_eq!(route(&table, Side::Right, 5), Route::Everywhere);
    assert_eq!(route(&table, Side::Left, i64::MAX), Route::Home);
    one.saw(table.version(), routed(0, 100, i64::MIN));
    table.advance(0);
    assert_eq!(route(&table, Side::Left, i64::MAX), Route::Home, "the other has not seen it");
    other.leave(routed(500, 90, i64::MIN));
    table.advance(0);
    // T = 100, lo = -10: a left row at 110 meets the right one at 100, one at 111 does not.
    assert_eq!(route(&table, Side::Left, 110), Route::Home);
    assert_eq!(route(&table, Side::Left, 111), Route::Anywhere);
    assert_eq!(route(&table, Side::Right, i64::MIN + 1), Route::Everywhere);
    table.unsplit(7);
    table.advance(i64::MAX);
    assert_eq!(route(&table, Side::Left, 111), Route::Home);
    assert_eq!(route(&table, Side::Right, 999), Route::Everywhere, "one still spreads");
    one.leave(routed(300, 150, 200));
    table.advance(i64::MAX);
    // T2 = 200, hi = 20: right rows up to 220 may meet a spread row.
    assert_eq!(route(&table, Side::Right, 220), Route::Everywhere);
    assert_eq!(route(&table, Side::Right, 221), Route::HomeJudged);
    // Copies up to 220 wait for left rows up to 230.
    table.advance(0);
    table.advance(230);
    assert_eq!(route(&table, Side::Right, 220), Route::Everywhere);
    table.advance(231);
    assert!(table.entries().is_empty());
    assert_eq!((table.report().split, table.report().unsplit), (1, 1));
}

#[test]
fn the_last_copy_is_what_a_producer_made_before_it_knew_of_the_end() {
    let mut table = Table::new(&plan([true, true], (0, 20), 2));
    let member = table.join();
    table.split(7, u64::MAX, Side::Left);
    table.advance(0);
    let newest = super::Version::new(table.version());
    let _ = member.enter(table.version(), &newest);
    table.unsplit(7);
    member.saw(table.version(), routed(10, 10, 10));
    table.advance(0);
    // Draining: T2 + hi = 30. The producer does not know and copies a row at 400.
    table.advance(400);
    assert_eq!(route(&table, Side::Right, 31), Route::HomeJudged);
    member.leave(routed(10, 400, 10));
    table.advance(0);
    table.advance(400);
    assert_eq!(table.entries().len(), 1, "a left row that is copied would meet the copy at 400");
    table.advance(401);
    assert!(table.entries().is_empty());
}

#[test]
fn producers_that_have_gone_count_and_new_ones_know_the_newest() {
    let mut table = Table::new(&plan([true, false], (0, 5), 2));
    let gone = table.join();
    let newest = super::Version::new(table.version());
    let _ = gone.enter(table.version(), &newest);
    gone.leave(routed(0, 77, i64::MIN));
    table.part(&gone);
    table.split(7, u64::MAX, Side::Left);
    let _new = table.join();
    table.advance(0);
    assert_eq!(route(&table, Side::Left, 77), Route::Home);
    assert_eq!(route(&table, Side::Left, 78), Route::Anywhere);
}

#[test]
fn times_at_the_ends_of_the_range_do_not_wrap() {
    for (lo, hi) in [(-5, 5), (i64::MIN + 2, i64::MIN + 9), (i64::MAX - 9, i64::MAX - 1)] {
        let mut table = Table::new(&plan([true, false], (lo, hi), 2));
        let member = table.join();
        member.leave(routed(i64::MAX, i64::MAX, i64::MIN));
        table.split(7, u64::MAX, Side::Left);
        table.advance(0);
        let meets = Interval::closed(lo, hi).unwrap().contains(i64::MAX, i64::MAX);
        assert!(!meets || route(&table, Side::Left, i64::MAX) == Route::Home);
        table.unsplit(7);
        member.leave(routed(i64::MAX, i64::MAX, i64::MAX));
        table.advance(0);
        let is_copied = route(&table, Side::Right, i64::MAX) == Route::Everywhere;
        assert!(!meets || is_copied, "{lo}..{hi}");
        table.advance(0);
        table.advance(i64::MAX);
    }
}

/// A window with so many samples of these keys by side, and others once each.
fn window(keys: &[(u64, usize, usize)]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for &(key, left, right) in keys {
        samples.extend((0..left).map(|_| (key, Side::Left)));
        samples.extend((0..right).map(|_| (key, Side::Right)));
    }
    let rest = HOT_WINDOW_SAMPLES - samples.len();
    samples.extend((0..rest as u64).map(|key| (key << 32, Side::BOTH[key as usize % 2])));
    samples
}

fn find(
    window: &mut Window,
    plan: &SplitPlan,
    samples: &[Sample],
    (events, pairs): (u64, u64),
    split: &[u64],
) -> Found {
    assert!(window.take(&mut samples.to_vec()));
    let split: Vec<_> = split.iter().map(|&key| (key, true)).collect();
    let surroundings = Surroundings { events, pairs, ..Surroundings::default() };
    window.decide(plan, &surroundings, &split)
}

#[test]
fn keys_are_hot_by_their_events_and_by_their_pairs() {
    let both = plan([true, true], (-5, 5), 2);
    let find_once = |plan: &SplitPlan, keys: &[(u64, usize, usize)], pairs| {
        find(&mut Window::new(), plan, &window(keys), (1_000, pairs), &[]).hot
    };
    // Seven in a hundred events, and most of the pairs of a join that makes 80 an event.
    assert_eq!(
        find_once(&both, &[(1, 36, 36), (2, 18, 18)], 80_000),
        [(1, Side::Left), (2, Side::Left)]
    );
    assert_eq!(find_once(&both, &[(1, 36, 36)], 0), [], "events alone are no burden");
    // Half of all events, of one side only.
    assert_eq!(find_once(&both, &[(1, 500, 12)], 0), [(1, Side::Left)]);
    assert_eq!(find_once(&both, &[(1, 12, 500)], 0), [(1, Side::Right)]);
    let left_only = plan([true, false], (-5, 5), 2);
    assert_eq!(find_once(&left_only, &[(1, 12, 500)], 0), [], "copies would cost what is saved");
    // Chance: no key has more than a few samples.
    assert_eq!(find_once(&both, &[(1, 5, 5), (2, 4, 4)], 80_000), []);
    // More shards notice smaller keys.
    let many = plan([true, true], (-5, 5), 32);
    assert_eq!(find_once(&many, &[(1, 30, 10)], 0), [(1, Side::Left)]);
}

#[test]
fn a_key_cools_after_some_windows_and_not_by_one() {
    let plan = plan([true, true], (-5, 5), 2);
    let mut state = Window::new();
    let (hot, cold) = (window(&[(1, 300, 300)]), window(&[(1, 1, 1)]));
    let mut cooled = |samples: &[Sample]| {
        let found = find(&mut state, &plan, samples, (0, 0), &[1]);
        assert!(found.hot.is_empty(), "it is split");
        found.cold == [1]
    };
    assert!(!cooled(&hot) && !cooled(&cold) && !cooled(&cold));
    assert!(!cooled(&hot), "it starts again");
    assert!(!cooled(&cold) && !cooled(&cold) && cooled(&cold));
}

#[test]
fn copies_must_fit_the_bound_on_state() {
    let plan = plan([true, false], (-5, 5), 8);
    let samples = window(&[(1, 400, 200)]);
    let hot_with = |most| {
        let mut window = Window::new();
        let found = [0, 1].map(|bound| {
            let mut known = Surroundings::default();
            known.state[bound] = (1_000, most);
            assert!(window.take(&mut samples.clone()));
            !window.decide(&plan, &known, &[]).hot.is_empty()
        });
        assert_eq!(found[0], found[1], "of bytes and of rows");
        found[0]
    };
    // Seven copies of a fifth of all rows: 2,367 bytes.
    assert!(hot_with(None) && hot_with(Some(4_800)) && !hot_with(Some(4_700)));
}
