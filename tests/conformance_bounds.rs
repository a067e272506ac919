//! The bundles of joins whose state is bounded, worked out by hand: what shedding loses, and that
//! files lose nothing. `tests/conformance/README.md` has the format.

mod common;

use std::path::Path;

use common::{OperatorSubject, OracleSubject, Scenario, bundles_in, check};
use intervale::event::{KeyKind, Side};
use intervale::limits::Overflow;
use intervale::state::Simd;

fn scenarios(keys: KeyKind, overflow: Overflow) -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/bounds");
    let mut scenarios = bundles_in(&folder, keys, (None, None));
    assert_eq!(scenarios.len(), 13);
    scenarios.retain(|scenario| scenario.limits.overflow == overflow);
    assert_eq!(scenarios.len(), if overflow == Overflow::Shed { 3 } else { 10 });
    scenarios
}

fn run(scenario: &Scenario, shard_count: usize, simd: Simd) -> OperatorSubject {
    let Scenario { limits, spec, sources, .. } = scenario;
    let mut subject = OperatorSubject::under(*limits, spec, *sources, shard_count, simd);
    let is_ordered = shard_count == 1;
    check(scenario, &mut subject, is_ordered).unwrap_or_else(|error| panic!("{error}"));
    subject
}

/// Shards bound their rows each by itself, so it is one that the bundle is about.
#[test]
fn shedding_loses_what_the_bundle_says_and_counts_it() {
    for keys in [KeyKind::Bytes, KeyKind::Int] {
        for simd in Simd::ALL.into_iter().filter(|simd| simd.is_available()) {
            for scenario in scenarios(keys, Overflow::Shed) {
                let counters = run(&scenario, 1, simd).counters();
                let shed = Side::BOTH.map(|side| {
                    let side = counters.side(side);
                    [side.shed, side.shed_unmatched]
                });
                assert_eq!(Some(shed), scenario.shed, "{}", scenario.name);
            }
        }
    }
}

#[test]
fn files_lose_nothing() {
    for scenario in scenarios(KeyKind::Bytes, Overflow::Spill) {
        let mut oracle = OracleSubject::new(&scenario.spec, scenario.sources);
        check(&scenario, &mut oracle, true).unwrap_or_else(|error| panic!("oracle: {error}"));
        for shard_count in [1, 2, 8] {
            let counters = run(&scenario, shard_count, Simd::detect()).counters();
            let spilled: u64 = counters.sides.iter().map(|side| side.spilled).sum();
            assert!(shard_count > 1 || spilled > 0, "{}: no row was in a file", scenario.name);
        }
    }
}
