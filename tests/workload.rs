//! Workloads are what their definition says: digests and outcomes that other programs found.

use intervale::event::Side;
use intervale::workload::random::mix;
use intervale::workload::{
    Arrivals, Burst, Events, FINE_TICKS, KeyRule, LateEvents, SEED_MEASURED, START_MS, SideEvents,
    Workload, sort_merge, truth,
};

fn workload(name: &str) -> Workload {
    Workload::by_name(name).unwrap()
}

#[test]
fn digests_are_those_of_the_other_generators() {
    let cases = [
        ("w1a", 0x2468_1364_2bb2_9996, 0x843f_bdee_29b5_fbb7),
        ("w2", 0xfd09_6a14_ca60_3663, 0x3236_8999_ec75_333a),
        ("w3a", 0xad88_0e62_6109_31e1, 0x58a5_1a8d_30ea_74cf),
        ("w1b", 0xbb4e_d2dc_55cc_6146, 0x37c4_75fc_49e6_c0f4),
    ];
    for (name, left, right) in cases {
        for (side, expected) in [(Side::Left, left), (Side::Right, right)] {
            let events = SideEvents::new(workload(name), side, SEED_MEASURED, 200_000);
            assert_eq!(events.digest(), expected, "{name} {}", side.name());
        }
    }
}

/// The definition, word for word: all events, sorted by arrival and then by number.
#[test]
fn arrival_order_is_that_of_a_plain_sort() {
    for workload in Workload::ALL {
        for (side, rate) in [(Side::Left, 3), (Side::Right, 3), (Side::Right, workload.rate)] {
            let workload = workload.with_rate(rate);
            let seed = Workload::side_seed(9, side);
            let streamed: Vec<_> = Arrivals::new(workload, side, 9, 3_000).collect();
            let mut sorted = streamed.clone();
            sorted.sort_by_key(|event| {
                let random = mix(seed.wrapping_add((4 * event.id + 2).wrapping_mul(GOLDEN)));
                let late_by = (u128::from(random) * 5_000) >> 64;
                (event.ts as u128 + late_by, event.id)
            });
            assert_eq!(streamed, sorted, "{} {}", workload.name, side.name());
            sorted.sort_by_key(|event| event.id);
            assert!(sorted.iter().map(|event| event.id).eq(0..3_000));
        }
    }
}

/// At every size, as long as there is room: the first events that can be late, and all of them.
#[test]
fn the_share_of_late_events_is_right_however_few_there_are() {
    let workload =
        Workload { late_ppm: 50_000, disorder_ms: 10, right_delay_ms: 301, ..Workload::FREE };
    for side in Side::BOTH {
        for count in [10, 40, 60, 101, 350, 1_000, 9_999] {
            let LateEvents { wanted, possible } = LateEvents::of(&workload, side, 5, count);
            assert_eq!(wanted, (count * 50_000 + 500_000) / 1_000_000);
            assert_eq!(late_count(workload, side, count), wanted.min(possible), "{count}");
            // As many as there is room for.
            let all = Workload { late_ppm: 1_000_000, ..workload };
            assert_eq!(late_count(all, side, count), possible, "{count} {}", side.name());
            let all: Vec<_> = Arrivals::new(all, side, 5, count).map(|event| event.id).collect();
            assert_eq!(all.len() as u64, count, "none is lost");
        }
        assert_eq!(LateEvents::of(&workload, Side::Left, 5, 1_000).possible, 988);
    }
}

/// How many events of a side come behind the watermark that trails by the disorder.
fn late_count(workload: Workload, side: Side, count: u64) -> u64 {
    let disorder = workload.disorder_ticks();
    let mut max = i64::MIN;
    let mut late = 0;
    for event in Arrivals::new(workload, side, 5, count) {
        late += u64::from(event.ts < max.saturating_sub(disorder));
        max = max.max(event.ts);
    }
    late
}

#[test]
fn only_the_share_that_was_asked_for_is_late() {
    let burst = Some(Burst { period_ms: 1_000, factor: 10 });
    for side in Side::BOTH {
        for (rate, disorder_ms) in [(3, 0), (25, 5_000), (2_000, 1), (2_000, 700)] {
            for (ticks_per_ms, burst) in [(1, None), (FINE_TICKS, None), (1, burst)] {
                let workload = Workload {
                    rate,
                    disorder_ms,
                    ticks_per_ms,
                    burst,
                    right_delay_ms: 3_001,
                    ..Workload::FREE
                };
                let about = format!("{workload:?} {}", side.name());
                assert_eq!(late_count(workload, side, 20_000), 0, "{about}");
                for (count, late_ppm, expected) in [
                    (20_000, 100_000, 2_000),
                    (50_000, 20_010, 1_001),
                    (20_000, 300_000, 6_000),
                    (30_001, 33, 1),
                ] {
                    let workload = Workload { late_ppm, ..workload };
                    assert_eq!(late_count(workload, side, count), expected, "{about} {count}");
                }
            }
        }
    }
}

#[test]
fn bursts_are_as_fast_as_asked_for_and_as_many_in_the_long_run() {
    let burst = Some(Burst { period_ms: 10_000, factor: 5 });
    let workload = Workload { burst, disorder_ms: 0, ..Workload::FREE };
    let times: Vec<i64> =
        Arrivals::new(workload, Side::Left, 1, 30_000).map(|event| event.ts - START_MS).collect();
    for period in 0..3 {
        let from = period * 10_000;
        let within = times.iter().filter(|&&ts| (from..from + 10_000).contains(&ts));
        assert_eq!(within.clone().count(), 10_000, "period {period}");
        assert!(within.clone().all(|&ts| ts < from + 2_000), "period {period}");
    }
}

#[test]
fn fine_ticks_tell_apart_what_shares_a_millisecond() {
    let workload = Workload { keys: KeyRule::Uniform(10), rate: 5_000, ..Workload::FREE };
    let times = |workload: Workload| {
        let mut times = std::collections::HashSet::new();
        for side in Side::BOTH {
            times.extend(Arrivals::new(workload, side, 1, 20_000).map(|event| event.ts));
        }
        times.len()
    };
    assert!(times(workload) < 5_000);
    assert_eq!(times(workload.fine()), 40_000);
    let [plain, fine] = [workload, workload.fine()]
        .map(|workload| Arrivals::new(workload, Side::Right, 1, 2_000).collect::<Vec<_>>());
    let coarse = fine.iter().map(|event| event.ts / FINE_TICKS);
    assert!(coarse.eq(plain.iter().map(|event| event.ts)), "the same events in the same order");
}

#[test]
fn keys_and_delays_are_drawn_apart() {
    let workload = Workload { right_delay_ms: 1_000, disorder_ms: 0, ..Workload::FREE };
    let mut delays = [(0, 0); 2];
    for event in Arrivals::new(workload, Side::Right, 1, 20_000) {
        let half = &mut delays[usize::from(event.key >= 500)];
        // At 1,000 a second event i has its turn at millisecond i.
        *half = (half.0 + event.ts - START_MS - event.id as i64, half.1 + 1);
    }
    for (sum, count) in delays {
        assert!((450..550).contains(&(sum / count)), "{sum} / {count}");
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[test]
fn outcomes_are_those_of_the_other_programs() {
    for name in ["w1a", "w1b", "w2", "w3a"] {
        let workload = workload(name);
        let events = Events::new(workload, SEED_MEASURED, 1_000_000);
        let expected = truth(&workload, SEED_MEASURED, 1_000_000).unwrap();
        assert_eq!(sort_merge(&events), expected, "{name}");
    }
}

/// The large sizes take seconds when optimised and minutes when not.
#[cfg(not(debug_assertions))]
#[test]
fn large_outcomes_are_those_of_the_other_programs() {
    for (name, count) in [("w3b", 2_000_000), ("w4", 5_000_000)] {
        let workload = workload(name);
        let events = Events::new(workload, SEED_MEASURED, count);
        let expected = truth(&workload, SEED_MEASURED, count).unwrap();
        assert_eq!(sort_merge(&events), expected, "{name}");
    }
}

#[test]
fn truth_is_known_for_its_own_seed_size_and_rate_only() {
    let w2 = workload("w2");
    assert!(truth(&w2, 42, 1_000_000).is_some());
    assert!(truth(&w2, 43, 1_000_000).is_none());
    assert!(truth(&w2, 42, 1_000_001).is_none());
    assert!(truth(&w2.with_rate(4_000), 42, 1_000_000).is_none());
}
