//! The edge cases that other engines get wrong, each on the oracle and on the operator.

mod common;

use common::run::{
    Make, Run, between, build, inner, late, lateness, left_alone, of_kind, pair, right_alone,
};
use common::{OperatorSubject, OracleSubject, limits};
use intervale::error::{JoinError, PushError, SpecError};
use intervale::event::{EventBatch, Key, KeyHasher, KeyKind, Side};
use intervale::join::oracle::{Oracle, Output};
use intervale::join::{IntervalJoin, JoinKind, JoinSpec, MatchChoice};
use intervale::limits::Limits;
use intervale::time::{
    Bound, BoundedDisorder, IntervalError, LatePolicy, LatenessClock, SideClock, Timestamp,
};

const NOTHING: [Output; 0] = [];

/// Runs each case on the oracle and on the operator, under one name each.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod on_the_oracle {
            use super::*;
            const MAKE: Make = |spec, sources| Box::new(OracleSubject::new(spec, sources));
            $(#[test] fn $case() { super::$case(MAKE); })*
        }
        mod on_the_operator {
            use super::*;
            const MAKE: Make = |spec, sources| Box::new(OperatorSubject::new(spec, sources, 1));
            $(#[test] fn $case() { super::$case(MAKE); })*
        }
    };
}

on_both! {
    case_01_inclusive_ends,
    case_02_one_exclusive_end,
    case_06_zero_width,
    case_07_saturating_upper_bound,
    case_07_lower_bound_past_the_end_of_time,
    case_08_the_earliest_time,
    case_09_negative_times,
    case_10_late_exactly_at_the_watermark,
    case_11_partners_end_is_the_watermark,
    case_13_late_with_a_live_partner,
    case_13_late_fails,
    case_14_freed_at_the_first_watermark_past_the_end,
    case_14_freed_by_the_other_side_under_own_clocks,
    case_15_negative_upper_bound,
    case_16_interval_over_on_arrival,
    case_17_null_without_wall_clock,
    case_18_input_stops,
    case_19_matched_row_is_not_padded,
    case_21_null_key,
    case_21_null_key_is_never_late,
    case_23_ties_and_duplicates,
    case_24_self_join,
    case_25_watermark_regresses,
    case_26_idle_source_resumes_with_old_data,
    case_27_all_inputs_idle,
    case_28_finished_is_not_idle,
    case_29_minimum_of_both_sides,
    case_30_pair_time_and_order_of_padded_rows,
    case_39_late_by_exactly_the_allowed_lateness,
    case_40_keys_do_not_mix,
    an_interval_without_end_keeps_rows,
    semi_once_at_the_first_match,
    anti_when_freed_unmatched,
    full_join_pads_both_sides,
    end_of_time_after_the_end_of_input,
    late_rows_that_join_are_kept_while_open,
    own_clock_judges_by_the_source_alone,
}

fn case_01_inclusive_ends(make: Make) {
    for right_first in [false, true] {
        for ts in 6..=15 {
            let mut run = Run::new(make, &inner(-2, 3));
            let out = if right_first {
                [run.right(2, ts), run.left(1, 10)].concat()
            } else {
                [run.left(1, 10), run.right(2, ts)].concat()
            };
            let expected =
                if (8..=13).contains(&ts) { vec![pair(1, 2, ts.max(10))] } else { vec![] };
            assert_eq!(out, expected, "right at {ts}, right first: {right_first}");
        }
    }
}

fn case_02_one_exclusive_end(make: Make) {
    let spec = |lo, hi| build(JoinSpec::between(lo, hi).keys(KeyKind::Bytes));
    let mut run = Run::new(make, &spec(Bound::Closed(-2), Bound::Open(3)));
    run.left(1, 10);
    assert_eq!(run.right(2, 13), NOTHING);
    assert_eq!(run.right(3, 12), [pair(1, 3, 12)]);
    assert_eq!(run.right(4, 8), [pair(1, 4, 10)]);
    let mut run = Run::new(make, &spec(Bound::Open(-2), Bound::Closed(3)));
    run.left(1, 10);
    assert_eq!(run.right(2, 8), NOTHING);
    assert_eq!(run.right(3, 9), [pair(1, 3, 10)]);
    assert_eq!(run.right(4, 13), [pair(1, 4, 13)]);
}

fn refused(lo: Bound, hi: Bound) -> SpecError {
    JoinSpec::between(lo, hi).build(&limits()).expect_err("the interval is refused")
}

#[test]
fn case_03_both_exclusive_is_refused() {
    let empty = |lo, hi| SpecError::Interval(IntervalError::Empty { lo, hi });
    assert_eq!(refused(Bound::Open(0), Bound::Open(1)), empty(1, 0));
    assert_eq!(refused(Bound::Open(0), Bound::Open(0)), empty(1, -1));
    assert_eq!(refused(Bound::Open(0), Bound::Closed(0)), empty(1, 0));
    let one_tick = JoinSpec::between(Bound::Open(0), Bound::Open(2)).build(&limits()).unwrap();
    assert_eq!((one_tick.interval().lo(), one_tick.interval().hi()), (1, 1));
}

#[test]
fn case_04_exclusive_at_the_edge() {
    let at_edge = SpecError::Interval(IntervalError::OpenAtEdge);
    assert_eq!(refused(Bound::Closed(0), Bound::Open(i64::MIN)), at_edge);
    assert_eq!(refused(Bound::Open(i64::MAX), Bound::Closed(0)), at_edge);
}

#[test]
fn case_05_lower_above_upper() {
    let error = refused(Bound::Closed(5), Bound::Closed(4));
    assert_eq!(error, SpecError::Interval(IntervalError::Empty { lo: 5, hi: 4 }));
    assert!(error.to_string().contains("lower end"), "{error}");
    let unbounded = JoinSpec::between(Bound::Closed(0), Bound::Unbounded);
    assert_eq!(unbounded.clone().build(&Limits::UNBOUNDED), Err(SpecError::UnboundedWithoutLimit));
    assert!(unbounded.build(&limits()).is_ok());
    let negative = between(0, 1).lateness(lateness(LatePolicy::Drop, LatenessClock::Merged, -1));
    assert_eq!(negative.build(&limits()), Err(SpecError::NegativeLateness(-1)));
}

fn case_06_zero_width(make: Make) {
    let mut run = Run::new(make, &inner(0, 0));
    run.left(1, 10);
    assert_eq!(run.right(2, 9), NOTHING);
    assert_eq!(run.right(3, 11), NOTHING);
    assert_eq!(run.right(4, 10), [pair(1, 4, 10)]);
    assert_eq!(run.left(5, 11), [pair(5, 3, 11)]);
}

fn case_07_saturating_upper_bound(make: Make) {
    let mut run = Run::new(make, &of_kind(JoinKind::Left, 0, 10));
    run.left(1, i64::MAX - 1);
    run.left(2, i64::MAX - 12);
    // The second row's end is passed, the first one's never is, not even by the last watermark.
    assert_eq!(run.watermark(i64::MAX - 1), [left_alone(2)]);
    assert_eq!(run.right(3, i64::MAX), [pair(1, 3, i64::MAX)]);
    run.left(4, i64::MAX - 1);
    assert_eq!(run.watermark(i64::MAX), NOTHING);
    assert_eq!(run.right(5, i64::MAX), [pair(1, 5, i64::MAX), pair(4, 5, i64::MAX)]);
    run.left(6, i64::MAX);
    assert_eq!(run.end(), NOTHING);
}

fn case_07_lower_bound_past_the_end_of_time(make: Make) {
    // 1 is not in [10, 20], and who comes first does not decide.
    let mut run = Run::new(make, &of_kind(JoinKind::Full, 10, 20));
    assert_eq!(run.left(1, i64::MAX - 1), NOTHING);
    assert_eq!(run.right(2, i64::MAX), NOTHING);
    assert_eq!(run.left(3, i64::MAX - 1), NOTHING);
    assert_eq!(run.right(4, i64::MAX - 1), NOTHING);
    // Ends: of the left rows past the end of time, of the last one MAX - 11. A row at the end of
    // time itself stays until the end of input, whatever its interval.
    assert_eq!(run.watermark(i64::MAX - 11), NOTHING);
    assert_eq!(run.watermark(i64::MAX - 10), [right_alone(4)]);
    assert_eq!(run.watermark(i64::MAX), NOTHING);
    assert_eq!(run.end(), [right_alone(2), left_alone(1), left_alone(3)]);
    let mut run = Run::new(make, &inner(-20, -10));
    assert_eq!(run.right(1, i64::MIN + 2), NOTHING);
    assert_eq!(run.left(2, i64::MIN + 1), NOTHING);
    assert_eq!(run.left(3, i64::MIN + 12), [pair(3, 1, i64::MIN + 12)]);
}

fn case_08_the_earliest_time(make: Make) {
    assert_eq!(Timestamp::new(i64::MIN), None, "no time at all");
    let earliest = Timestamp::MIN.ticks();
    let mut run = Run::new(make, &of_kind(JoinKind::Left, -5, 5));
    assert_eq!(run.left(1, earliest), NOTHING);
    assert_eq!(run.right(2, earliest), [pair(1, 2, earliest)]);
    assert_eq!(run.left(3, earliest), [pair(3, 2, earliest)]);
    // Its end does not wrap, whichever way the interval lies.
    let mut run = Run::new(make, &of_kind(JoinKind::Left, -20, -10));
    assert_eq!(run.left(1, earliest), NOTHING);
    assert_eq!(run.watermark(earliest), [left_alone(1)]);
}

fn case_09_negative_times(make: Make) {
    let mut run = Run::new(make, &of_kind(JoinKind::Left, -5, 5));
    run.left(1, -1000);
    assert_eq!(run.right(2, -999), [pair(1, 2, -999)]);
    run.left(3, -3);
    assert_eq!(run.right(4, 2), [pair(3, 4, 2)]);
    run.left(5, -2000);
    assert_eq!(run.watermark(-1995), NOTHING);
    assert_eq!(run.watermark(-1994), [left_alone(5)]);
}

fn output_late(clock: LatenessClock, allowed: i64) -> JoinSpec {
    build(between(-5, 5).lateness(lateness(LatePolicy::Output, clock, allowed)))
}

fn case_10_late_exactly_at_the_watermark(make: Make) {
    for clock in [LatenessClock::Merged, LatenessClock::Own] {
        let mut run = Run::new(make, &output_late(clock, 0));
        run.watermark(100);
        assert_eq!(run.left(1, 100), NOTHING);
        assert_eq!(run.left(2, 99), [late(Side::Left, 2, 1)]);
        assert_eq!(run.right(3, 100), [pair(1, 3, 100)]);
        assert_eq!(run.right(4, 90), [late(Side::Right, 4, 10)]);
    }
}

fn case_11_partners_end_is_the_watermark(make: Make) {
    let mut run = Run::new(make, &inner(0, 5));
    run.left(1, 95);
    run.watermark(100);
    assert_eq!(run.right(2, 100), [pair(1, 2, 100)]);
    run.watermark(101);
    assert_eq!(run.right(3, 101), NOTHING);
    // And the other way round: the right row's end is its own time here.
    let mut run = Run::new(make, &inner(0, 5));
    run.right(1, 100);
    run.watermark(100);
    assert_eq!(run.left(2, 100), [pair(2, 1, 100)]);
}

#[test]
fn case_12_bounded_disorder() {
    let mut generator = BoundedDisorder::new(10);
    generator.observe(100);
    assert_eq!(generator.watermark(), 90, "90 is on time and 89 is late");
    generator.observe(50);
    assert_eq!(generator.watermark(), 90);
}

fn case_13_late_with_a_live_partner(make: Make) {
    for policy in [LatePolicy::Drop, LatePolicy::Output, LatePolicy::Join] {
        let spec = between(0, 100).kind(JoinKind::Right);
        let spec = build(spec.lateness(lateness(policy, LatenessClock::Merged, 0)));
        let mut run = Run::new(make, &spec);
        run.left(1, 10);
        run.watermark(50);
        let expected = match policy {
            LatePolicy::Join => vec![pair(1, 2, 40)],
            LatePolicy::Output => vec![late(Side::Right, 2, 10)],
            _ => vec![],
        };
        assert_eq!(run.right(2, 40), expected, "{policy:?}");
        assert_eq!(run.end(), NOTHING, "{policy:?}: a late row is not padded");
    }
}

fn case_13_late_fails(make: Make) {
    for clock in [LatenessClock::Merged, LatenessClock::Own] {
        let spec = build(between(0, 100).lateness(lateness(LatePolicy::Fail, clock, 3)));
        let mut run = Run::new(make, &spec);
        run.watermark(50);
        assert_eq!(run.right(1, 47), NOTHING);
        let error = run.event(Side::Right, 0, Some("k"), 2, 40).expect_err("it is late");
        let row = 2_u64.to_le_bytes().into();
        assert_eq!(error, JoinError::Late { side: Side::Right, ts: 40, lag: 7, row });
    }
}

fn case_14_freed_at_the_first_watermark_past_the_end(make: Make) {
    let mut run = Run::new(make, &of_kind(JoinKind::Full, -3, 7));
    run.left(1, 10);
    run.right(2, 100);
    assert_eq!(run.watermark(17), NOTHING);
    assert_eq!(run.left_watermark(18), NOTHING, "the right side has not passed");
    assert_eq!(run.right_watermark(18), [left_alone(1)]);
    assert_eq!(run.watermark(103), NOTHING);
    assert_eq!(run.watermark(104), [right_alone(2)]);
}

fn case_14_freed_by_the_other_side_under_own_clocks(make: Make) {
    let own = lateness(LatePolicy::Drop, LatenessClock::Own, 0);
    let mut run = Run::new(make, &build(between(-3, 7).kind(JoinKind::Full).lateness(own)));
    run.left(1, 10);
    run.right(2, 100);
    assert_eq!(run.left_watermark(103), NOTHING);
    assert_eq!(run.left_watermark(104), [right_alone(2)]);
    assert_eq!(run.right_watermark(17), NOTHING);
    assert_eq!(run.right(3, 17), [pair(1, 3, 17)]);
    assert_eq!(run.right_watermark(18), NOTHING);
    // The right row at 17 was over on arrival (17 + 3 < 104): matched with what was there, not kept.
    assert_eq!(run.event(Side::Left, 0, Some("k"), 5, 14), Ok(vec![]), "late, dropped");
    assert_eq!(run.left(4, 104), NOTHING);
    assert_eq!(run.end(), [left_alone(4)]);
}

fn case_15_negative_upper_bound(make: Make) {
    let mut run = Run::new(make, &of_kind(JoinKind::Left, -10, -5));
    run.left(1, 10);
    assert_eq!(run.watermark(5), NOTHING);
    assert_eq!(run.watermark(6), [left_alone(1)]);
    assert_eq!(run.left(2, 11), NOTHING, "its end is 6 and still open");
    assert_eq!(run.right(3, 6), [pair(2, 3, 11)]);
    assert_eq!(run.left(4, 10), [left_alone(4)], "never stored");
    assert_eq!(run.left(5, 16), [pair(5, 3, 16)]);
    assert_eq!(run.end(), NOTHING);
}

fn case_16_interval_over_on_arrival(make: Make) {
    let spec = |policy| {
        let lateness = lateness(policy, LatenessClock::Merged, 0);
        build(between(0, 5).kind(JoinKind::Left).lateness(lateness))
    };
    let mut run = Run::new(make, &spec(LatePolicy::Output));
    run.watermark(100);
    assert_eq!(run.left(1, 50), [late(Side::Left, 1, 50)], "the policy decides first");
    assert_eq!(run.end(), NOTHING);
    let mut run = Run::new(make, &spec(LatePolicy::Join));
    run.watermark(100);
    assert_eq!(run.left(1, 50), [left_alone(1)], "admitted, it is padded at once");
    assert_eq!(run.end(), NOTHING);
}

fn case_17_null_without_wall_clock(make: Make) {
    // l in [r - 5, r + 9] is r in [l - 9, l + 5].
    let mut run = Run::new(make, &of_kind(JoinKind::Left, -9, 5));
    run.left(1, 1);
    assert_eq!(run.watermark(6), NOTHING);
    assert_eq!(run.watermark(7), [left_alone(1)]);
}

fn case_18_input_stops(make: Make) {
    let spec = of_kind(JoinKind::Left, -5, 5);
    let mut run = Run::new(make, &spec);
    run.left(1, 10);
    assert_eq!(run.end(), [left_alone(1)]);
    let mut run = Run::new(make, &spec);
    run.left(1, 10);
    assert_eq!(run.subject.finish(Side::Left, 0), NOTHING);
    assert_eq!(run.subject.finish(Side::Right, 0), [left_alone(1)]);
    // A row that no watermark frees comes out, too, and no sooner than with the last source.
    let mut run = Run::with_sources(make, &spec, [2, 1]);
    run.left(1, i64::MAX - 1);
    run.watermark(i64::MAX);
    assert_eq!(run.subject.finish(Side::Left, 0), NOTHING);
    assert_eq!(run.subject.finish(Side::Right, 0), NOTHING);
    assert_eq!(run.subject.finish(Side::Left, 1), [left_alone(1)]);
}

fn case_19_matched_row_is_not_padded(make: Make) {
    for clock in [LatenessClock::Merged, LatenessClock::Own] {
        let spec = between(-5, 5).kind(JoinKind::Full);
        let spec = build(spec.lateness(lateness(LatePolicy::Drop, clock, 0)));
        let mut run = Run::new(make, &spec);
        run.left(1, 10);
        assert_eq!(run.right(2, 10), [pair(1, 2, 10)]);
        assert_eq!(run.left_watermark(100), NOTHING);
        assert_eq!(run.right_watermark(16), NOTHING);
        assert_eq!(run.end(), NOTHING);
    }
}

#[test]
fn case_20_residual_decides_matched() {
    for kind in [JoinKind::Left, JoinKind::Full, JoinKind::Semi, JoinKind::Anti] {
        let mut oracle =
            Oracle::new(&of_kind(kind, -5, 5), 1, 1).with_residual(|_, right| right > 10);
        oracle.event(Side::Left, 0, Some(b"k"), 10, 1).unwrap();
        assert_eq!(oracle.event(Side::Right, 0, Some(b"k"), 10, 2).unwrap(), NOTHING);
        let at_end = match kind {
            JoinKind::Full => vec![left_alone(1), right_alone(2)],
            JoinKind::Semi => vec![],
            _ => vec![left_alone(1)],
        };
        assert_eq!(oracle.end(), at_end, "{kind:?}");
        let mut oracle =
            Oracle::new(&of_kind(kind, -5, 5), 1, 1).with_residual(|_, right| right > 10);
        oracle.event(Side::Left, 0, Some(b"k"), 10, 1).unwrap();
        let matched = match kind {
            JoinKind::Anti => vec![],
            JoinKind::Semi => vec![left_alone(1)],
            _ => vec![pair(1, 11, 10)],
        };
        assert_eq!(oracle.event(Side::Right, 0, Some(b"k"), 10, 11).unwrap(), matched);
        assert_eq!(oracle.end(), NOTHING, "{kind:?}");
    }
}

/// An oracle that chooses; the left side has promised all but everything already, so that the
/// right side's watermark is the merged one.
fn choosing(choice: MatchChoice, policy: LatePolicy) -> Oracle {
    let spec = between(-10, 10).kind(JoinKind::Left).choice(choice);
    let spec = build(spec.lateness(lateness(policy, LatenessClock::Merged, 0)));
    let mut oracle = Oracle::new(&spec, 1, 1);
    oracle.watermark(Side::Left, 0, i64::MAX - 1);
    oracle
}

#[test]
fn a_choice_comes_out_when_it_is_final() {
    use MatchChoice::{First, Last, Nearest};
    // Right times that come before the left row at 100, and the first watermark at which no event
    // on time would be chosen instead; the ids are the places.
    let cases: [(MatchChoice, &[i64], u64, i64); 8] = [
        (First, &[97, 95, 95, 99], 1, 95),
        (First, &[110], 0, 110),
        (Last, &[97, 105, 105], 1, 111),
        (Nearest, &[97, 103], 0, 103),
        (Nearest, &[103, 97], 1, 103),
        (Nearest, &[103, 96], 0, 103),
        (Nearest, &[109, 91], 1, 109),
        (Nearest, &[90], 0, 110),
    ];
    for (choice, times, chosen, final_at) in cases {
        let mut oracle = choosing(choice, LatePolicy::Drop);
        for (id, &ts) in times.iter().enumerate() {
            oracle.event(Side::Right, 0, Some(b"k"), ts, id as u64).unwrap();
        }
        let out = oracle.event(Side::Left, 0, Some(b"k"), 100, 50).unwrap();
        assert_eq!(out, NOTHING, "{choice:?} {times:?}");
        assert_eq!(oracle.watermark(Side::Right, 0, final_at - 1), NOTHING, "{choice:?} {times:?}");
        let out = oracle.watermark(Side::Right, 0, final_at);
        let ts = times[chosen as usize].max(100);
        assert_eq!(out, [pair(50, chosen, ts)], "{choice:?} {times:?}");
        assert_eq!(oracle.end(), NOTHING);
    }
}

#[test]
fn a_choice_that_nothing_can_better_comes_out_at_once() {
    for (choice, ts) in
        [(MatchChoice::First, 90), (MatchChoice::Last, 110), (MatchChoice::Nearest, 100)]
    {
        let mut oracle = choosing(choice, LatePolicy::Drop);
        oracle.event(Side::Left, 0, Some(b"k"), 100, 1).unwrap();
        let out = oracle.event(Side::Right, 0, Some(b"k"), ts, 2).unwrap();
        assert_eq!(out, [pair(1, 2, ts.max(100))], "{choice:?}");
        assert_eq!(oracle.event(Side::Right, 0, Some(b"k"), ts, 3).unwrap(), NOTHING);
        assert_eq!(oracle.end(), NOTHING);
    }
}

#[test]
fn a_late_row_that_joins_can_be_chosen_until_the_choice_is_out() {
    let mut oracle = choosing(MatchChoice::Last, LatePolicy::Join);
    oracle.event(Side::Left, 0, Some(b"k"), 100, 1).unwrap();
    oracle.watermark(Side::Right, 0, 105);
    assert_eq!(oracle.event(Side::Right, 0, Some(b"k"), 101, 2).unwrap(), NOTHING);
    assert_eq!(oracle.event(Side::Right, 0, Some(b"k"), 104, 3).unwrap(), NOTHING);
    assert_eq!(oracle.watermark(Side::Right, 0, 111), [pair(1, 3, 104)]);
}

fn case_21_null_key(make: Make) {
    use JoinKind::{Anti, Full, Inner, Left, Right, Semi};
    for kind in [Inner, Left, Right, Full, Semi, Anti] {
        let mut run = Run::new(make, &of_kind(kind, -5, 5));
        let left = run.event(Side::Left, 0, None, 1, 10).unwrap();
        let right = run.event(Side::Right, 0, None, 2, 10).unwrap();
        let pads_left = matches!(kind, Left | Full | Anti);
        let pads_right = matches!(kind, Right | Full);
        assert_eq!(left, if pads_left { vec![left_alone(1)] } else { vec![] }, "{kind:?}");
        assert_eq!(right, if pads_right { vec![right_alone(2)] } else { vec![] }, "{kind:?}");
        assert_eq!(run.end(), NOTHING, "{kind:?}: never stored");
    }
}

fn case_21_null_key_is_never_late(make: Make) {
    for clock in [LatenessClock::Merged, LatenessClock::Own] {
        for policy in [LatePolicy::Output, LatePolicy::Join, LatePolicy::Fail] {
            let spec = between(-5, 5).kind(JoinKind::Full).lateness(lateness(policy, clock, 0));
            let mut run = Run::new(make, &build(spec));
            run.watermark(1000);
            assert_eq!(run.event(Side::Left, 0, None, 1, 10), Ok(vec![left_alone(1)]));
            assert_eq!(run.event(Side::Right, 0, None, 2, 10), Ok(vec![right_alone(2)]));
        }
    }
}

fn case_23_ties_and_duplicates(make: Make) {
    let mut run = Run::new(make, &inner(0, 0));
    run.left(1, 10);
    run.left(2, 10);
    for id in [11, 12, 13] {
        assert_eq!(run.right(id, 10), [pair(1, id, 10), pair(2, id, 10)]);
    }
    let all = [pair(3, 11, 10), pair(3, 12, 10), pair(3, 13, 10)];
    assert_eq!(run.left(3, 10), all, "in the order in which they came");
}

fn case_24_self_join(make: Make) {
    let mut run = Run::new(make, &inner(0, 0));
    let mut pairs = 0;
    for (id, ts) in [(1, 10), (2, 10), (3, 11)] {
        pairs += run.left(id, ts).len() + run.right(id, ts).len();
    }
    assert_eq!(pairs, 2 * 2 + 1, "every event meets itself, too");
}

fn case_25_watermark_regresses(make: Make) {
    let mut clock = SideClock::new(1);
    clock.advance(0, 100);
    assert_eq!((clock.advance(0, 90), clock.regressed()), (100, 1));
    let mut run = Run::new(make, &output_late(LatenessClock::Merged, 0));
    run.watermark(100);
    run.watermark(90);
    assert_eq!(run.left(1, 95), [late(Side::Left, 1, 5)]);
}

fn case_26_idle_source_resumes_with_old_data(make: Make) {
    let spec = output_late(LatenessClock::Merged, 0);
    let mut run = Run::with_sources(make, &spec, [2, 1]);
    run.right_watermark(1000);
    run.left_watermark(100);
    run.subject.watermark(Side::Left, 1, 10);
    run.subject.idle(Side::Left, 1);
    let old = run.event(Side::Left, 1, Some("k"), 1, 50).unwrap();
    assert_eq!(old, [late(Side::Left, 1, 50)], "the side went on without it");
    run.subject.watermark(Side::Left, 1, 60);
    let old = run.event(Side::Left, 1, Some("k"), 2, 99).unwrap();
    assert_eq!(old, [late(Side::Left, 2, 1)], "it cannot pull the side back");
    run.left_watermark(200);
    assert_eq!(run.left(3, 100), NOTHING, "but it holds the side where it is");
}

fn case_27_all_inputs_idle(make: Make) {
    let mut run = Run::with_sources(make, &of_kind(JoinKind::Left, 0, 5), [1, 2]);
    run.left(1, 10);
    run.left_watermark(1000);
    run.right_watermark(12);
    run.subject.watermark(Side::Right, 1, 14);
    assert_eq!(run.subject.idle(Side::Right, 0), NOTHING);
    assert_eq!(run.subject.idle(Side::Right, 1), NOTHING);
    let right = run.event(Side::Right, 0, Some("k"), 2, 14).unwrap();
    assert_eq!(right, [pair(1, 2, 14)], "the side stays at 14");
    run.event(Side::Left, 0, Some("other"), 3, 14).unwrap();
    assert_eq!(run.end(), [left_alone(3)]);
}

fn case_28_finished_is_not_idle(make: Make) {
    let mut run = Run::with_sources(make, &of_kind(JoinKind::Left, 0, 5), [1, 2]);
    run.left(1, 10);
    run.left_watermark(1000);
    run.subject.watermark(Side::Right, 1, 5);
    assert_eq!(run.subject.idle(Side::Right, 1), NOTHING);
    assert_eq!(run.subject.finish(Side::Right, 0), NOTHING, "the idle one may come back");
    let right = run.event(Side::Right, 1, Some("k"), 2, 12).unwrap();
    assert_eq!(right, [pair(1, 2, 12)]);
    run.left(3, 100);
    assert_eq!(run.subject.watermark(Side::Right, 1, 105), NOTHING);
    assert_eq!(run.subject.finish(Side::Right, 1), [left_alone(3)], "the left side is at 1000");
    assert_eq!(run.left(4, 999), NOTHING, "late");
}

fn case_29_minimum_of_both_sides(make: Make) {
    let mut run = Run::new(make, &output_late(LatenessClock::Merged, 0));
    run.left_watermark(50);
    run.right_watermark(200);
    assert_eq!(run.right(1, 50), NOTHING, "Flink's minimum");
    assert_eq!(run.right(2, 49), [late(Side::Right, 2, 1)]);
    let mut run = Run::new(make, &output_late(LatenessClock::Own, 0));
    run.left_watermark(50);
    run.right_watermark(200);
    assert_eq!(run.right(1, 199), [late(Side::Right, 1, 1)]);
    assert_eq!(run.left(2, 50), NOTHING);
}

fn case_30_pair_time_and_order_of_padded_rows(make: Make) {
    let spec = build(between(-7, 3).kind(JoinKind::Full));
    assert_eq!(spec.output_hold_back(), 7);
    let mut run = Run::new(make, &spec);
    run.right(1, 14);
    assert_eq!(run.left(2, 20), [pair(2, 1, 20)], "the larger of both times");
    // Ends: 43, 37, 37, 33: by end, then as they came, both sides together.
    run.left(3, 40);
    run.event(Side::Right, 0, Some("other"), 4, 30).unwrap();
    run.event(Side::Left, 0, Some("third"), 5, 34).unwrap();
    run.event(Side::Left, 0, Some("fourth"), 6, 30).unwrap();
    let expected = [left_alone(6), right_alone(4), left_alone(5), left_alone(3)];
    assert_eq!(run.watermark(44), expected);
}

#[test]
fn case_35_key_of_another_kind() {
    let hasher = KeyHasher::new(KeyKind::Int, 1);
    let mut batch = EventBatch::with_capacity(Side::Left, 1, 8);
    let ts = Timestamp::new(1).unwrap();
    let refused = batch.push(&hasher, Key::Bytes(b"5"), ts, b"");
    assert_eq!(refused, Err(PushError::KeyKind { expected: KeyKind::Int }));
    assert!(batch.is_empty());
}

fn case_39_late_by_exactly_the_allowed_lateness(make: Make) {
    for clock in [LatenessClock::Merged, LatenessClock::Own] {
        let mut run = Run::new(make, &output_late(clock, 10));
        run.left(1, 85);
        run.watermark(100);
        assert_eq!(run.right(2, 90), [pair(1, 2, 90)], "the state was kept, 85 + 5 + 10 = 100");
        assert_eq!(run.right(3, 89), [late(Side::Right, 3, 1)]);
        run.watermark(101);
        assert_eq!(run.right(4, 90), [late(Side::Right, 4, 1)]);
        assert_eq!(run.left(5, 91), [pair(5, 2, 91)]);
    }
}

fn case_40_keys_do_not_mix(make: Make) {
    let mut run = Run::new(make, &of_kind(JoinKind::Left, -5, 5));
    for id in 0..200 {
        assert_eq!(run.event(Side::Left, 0, Some(&format!("k{id}")), id, 10).unwrap(), NOTHING);
    }
    let right = run.event(Side::Right, 0, Some("k7"), 1000, 12).unwrap();
    assert_eq!(right, [pair(7, 1000, 12)]);
    let padded: Vec<_> = (0..200).filter(|&id| id != 7).map(left_alone).collect();
    assert_eq!(run.watermark(16), padded);
}

#[test]
fn case_40_keys_that_one_side_never_has_take_bounded_memory() {
    for side in Side::BOTH {
        keys_of_one_side_take_bounded_memory(side);
    }
}

fn keys_of_one_side_take_bounded_memory(side: Side) {
    let spec = build(JoinSpec::between(Bound::Closed(-100), Bound::Closed(100)));
    let hasher = KeyHasher::new(KeyKind::Int, 1);
    let mut join = IntervalJoin::new(spec, hasher.clone(), limits()).unwrap();
    let mut batch = EventBatch::with_capacity(side, 1000, 8000);
    let mut ignore = |_: intervale::event::Event<'_>, _: intervale::event::Event<'_>| ();
    let mut bytes_after = Vec::new();
    for round in 0..200 {
        batch.reset(side, 0, Default::default());
        for n in 0..1000 {
            let ts = Timestamp::new(round * 100 + n / 10).unwrap();
            let key = (round * 1000 + n) as u64;
            batch.push(&hasher, Key::Int(key), ts, &[7; 8]).unwrap();
        }
        join.on_batch(&batch, &mut ignore).unwrap();
        join.advance(round * 100, round * 100);
        while join.work(100, &mut ignore) {}
        bytes_after.push(join.state_bytes());
    }
    let (warm, last) = (bytes_after[50], bytes_after[199]);
    assert!(last <= warm + warm / 2, "{warm} bytes grew to {last}");
    let buffered = join.counters().side(side).buffered();
    assert!(buffered < 5_000, "{buffered} rows of dead keys are kept");
}

fn an_interval_without_end_keeps_rows(make: Make) {
    let spec = JoinSpec::between(Bound::Closed(0), Bound::Unbounded).keys(KeyKind::Bytes);
    let mut run = Run::new(make, &build(spec.kind(JoinKind::Full)));
    run.left(1, -1000);
    run.event(Side::Left, 0, Some("other"), 2, -1000).unwrap();
    run.right(3, -2000);
    assert_eq!(run.watermark(-1999), [right_alone(3)], "that side has an end");
    assert_eq!(run.watermark(i64::MAX), NOTHING);
    assert_eq!(run.right(4, i64::MAX), [pair(1, 4, i64::MAX)]);
    assert_eq!(run.end(), [left_alone(2)]);
}

fn semi_once_at_the_first_match(make: Make) {
    let mut run = Run::new(make, &of_kind(JoinKind::Semi, -5, 5));
    run.left(1, 10);
    run.left(2, 12);
    assert_eq!(run.right(3, 7), [left_alone(1), left_alone(2)]);
    assert_eq!(run.right(4, 10), NOTHING);
    assert_eq!(run.left(5, 9), [left_alone(5)], "once, though two match");
    run.left(6, 100);
    assert_eq!(run.end(), NOTHING);
}

fn anti_when_freed_unmatched(make: Make) {
    let mut run = Run::new(make, &of_kind(JoinKind::Anti, 0, 5));
    run.left(1, 10);
    run.left(2, 20);
    assert_eq!(run.right(3, 15), NOTHING);
    assert_eq!(run.watermark(25), NOTHING);
    assert_eq!(run.watermark(26), [left_alone(2)]);
    assert_eq!(run.end(), NOTHING);
}

fn full_join_pads_both_sides(make: Make) {
    let mut run = Run::new(make, &of_kind(JoinKind::Full, -5, 5));
    run.left(1, 10);
    run.right(2, 16);
    run.right(3, 15);
    assert_eq!(run.end(), [right_alone(2)]);
}

fn end_of_time_after_the_end_of_input(make: Make) {
    let spec = lateness(LatePolicy::Output, LatenessClock::Merged, 0);
    let mut run = Run::new(make, &build(between(-5, 5).kind(JoinKind::Left).lateness(spec)));
    run.left(1, i64::MAX);
    assert_eq!(run.end(), [left_alone(1)]);
    assert_eq!(run.left(2, i64::MAX), NOTHING, "on time, and kept");
    assert_eq!(run.right(3, i64::MAX - 1), [late(Side::Right, 3, 1)]);
    assert_eq!(run.right(4, i64::MAX), [pair(2, 4, i64::MAX)], "the first was freed");
}

fn late_rows_that_join_are_kept_while_open(make: Make) {
    let joined = lateness(LatePolicy::Join, LatenessClock::Merged, 0);
    let mut run = Run::new(make, &build(between(0, 20).kind(JoinKind::Left).lateness(joined)));
    run.watermark(100);
    assert_eq!(run.left(1, 80), NOTHING, "late, its end is 100");
    assert_eq!(run.right(2, 100), [pair(1, 2, 100)]);
    assert_eq!(run.left(3, 79), [left_alone(3)], "late, and over");
    assert_eq!(run.left(4, 81), [pair(4, 2, 100)]);
    assert_eq!(run.left(5, 99), [pair(5, 2, 100)]);
    assert_eq!(run.end(), NOTHING);
}

fn own_clock_judges_by_the_source_alone(make: Make) {
    let spec = output_late(LatenessClock::Own, 0);
    let mut run = Run::with_sources(make, &spec, [2, 1]);
    run.left_watermark(500);
    assert_eq!(run.event(Side::Left, 1, Some("k"), 1, 10), Ok(vec![]));
    assert_eq!(run.left(2, 499), [late(Side::Left, 2, 1)]);
    // An idle source is judged by what it promised, not by where its side is now.
    run.subject.watermark(Side::Left, 1, 20);
    run.subject.idle(Side::Left, 1);
    assert_eq!(run.event(Side::Left, 1, Some("k"), 3, 20), Ok(vec![]));
    let late_one = run.event(Side::Left, 1, Some("k"), 4, 19);
    assert_eq!(late_one, Ok(vec![late(Side::Left, 4, 1)]));
    // A finished one has promised everything.
    run.subject.finish(Side::Left, 0);
    let after = run.left(5, i64::MAX - 2);
    assert_eq!(after, [late(Side::Left, 5, 2)]);
}
