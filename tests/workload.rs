//! Workloads are what their definition says: digests and outcomes that other programs found.

use intervale::event::Side;
use intervale::workload::random::mix;
use intervale::workload::{
    Arrivals, Events, SEED_MEASURED, SideEvents, Workload, sort_merge, truth,
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
