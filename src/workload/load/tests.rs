//! Loads that are small enough for any machine.

use super::*;
use crate::runtime::{CoreChoice, IdleStrategy, RuntimeChoice};
use crate::state::Simd;
use crate::workload::sort_merge;

fn plan(rate: f64, duration: Duration, producers: usize) -> LoadPlan {
    let cores = CoreChoice::count(2).unwrap();
    LoadPlan {
        workload: Workload::by_name("w2").unwrap(),
        rate,
        duration,
        warm_up: Duration::ZERO,
        producers,
        pace: Pace::Sleep,
        setup: EngineSetup {
            cores,
            runtime: RuntimeChoice::Threads,
            idle: IdleStrategy::Park,
            simd: Simd::detect(),
        },
        linger: Duration::from_micros(100),
        batch: 64,
        lane_batches: 64,
    }
}

fn never() -> bool {
    false
}

#[test]
fn a_load_finds_all_pairs_whoever_pushes_them() {
    for producers in [1, 3] {
        let plan = plan(100_000.0, Duration::from_millis(200), producers);
        let events = Events::new(plan.workload, 42, plan.events_per_side() as u32);
        let run = run(&plan, &events, &never).unwrap();
        assert_eq!(run.events, 20_000);
        if run.pushed < run.events {
            // A machine so busy that even this was given up says nothing about pairs.
            continue;
        }
        assert_eq!(run.outcome, sort_merge(&events), "{producers} producers");
        assert_eq!(run.latency_ns.len(), run.outcome.pairs);
        assert_eq!(run.producer_late_ns.len(), run.pushed);
        assert!(run.elapsed >= plan.duration.mul_f64(0.99), "{:?}", run.elapsed);
        assert!(run.achieved_rate() <= plan.rate, "{}", run.achieved_rate());
    }
}

#[test]
fn latency_runs_from_the_due_time_and_an_overload_shows() {
    // No engine does this: the events are all due within a microsecond or so each thousand.
    let plan = plan(1e9, Duration::from_millis(1), 1);
    let events = Events::new(plan.workload, 42, plan.events_per_side() as u32);
    let run = run(&plan, &events, &never).unwrap();
    assert!(!run.kept_up());
    assert!(run.pushed < run.events, "the rest was given up");
    assert!(run.achieved_rate() < 1e9);
    // What is behind is behind by the time that has passed since, not by that of its own push.
    assert!(run.latency_ns.is_empty() || run.latency_ns.max() > 100_000);
}

#[test]
fn the_warm_up_is_joined_and_not_measured() {
    let mut plan = plan(50_000.0, Duration::from_millis(200), 1);
    plan.warm_up = Duration::from_millis(100);
    let events = Events::new(plan.workload, 42, plan.events_per_side() as u32);
    let run = run(&plan, &events, &never).unwrap();
    let measured = run.latency_ns.len();
    assert!(measured > 0 && measured < run.outcome.pairs, "{measured}");
}

#[test]
fn it_stops_when_asked_and_refuses_what_it_cannot_do() {
    let plan = plan(10.0, Duration::from_secs(1_000), 2);
    let events = Events::new(plan.workload, 42, plan.events_per_side() as u32);
    assert!(matches!(run(&plan, &events, &|| true), Err(LoadError::Interrupted)));
    let few = Events::new(plan.workload, 42, 10);
    let error = run(&plan, &few, &never).unwrap_err();
    assert!(error.to_string().contains("5000 events of each side"), "{error}");
}
