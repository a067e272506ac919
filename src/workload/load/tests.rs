//! Loads that are small enough for any machine.

use super::*;
use crate::exchange::HotKeys;
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
            hot_keys: HotKeys::default(),
        },
        linger: Duration::from_micros(100),
        batch: 64,
        lane_batches: 64,
        layout: LayoutHints::default(),
        scenario: Scenario::None,
        sample_every: None,
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
        let run = run(&plan, Supply::Memory(&events), &never).unwrap();
        assert_eq!(run.events, 20_000);
        if run.pushed < run.events {
            // A machine so busy that even this was given up says nothing about pairs.
            continue;
        }
        assert!(run.has_all_pairs());
        assert_eq!(run.outcome, sort_merge(&events), "{producers} producers");
        for supply in [Supply::Memory(&events), Supply::Made { seed: 42 }] {
            assert_eq!(joined_offline(&plan, supply), run.outcome, "{supply:?}");
        }
        // Of a lower rate there are fewer of the same, one more on the left if they are odd.
        let fewer = LoadPlan { rate: 50_005.0, ..plan.clone() };
        let first = events.first([5_001, 5_000]);
        assert_eq!(joined_offline(&fewer, Supply::Memory(&events)), sort_merge(&first));
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
    let run = run(&plan, Supply::Memory(&events), &never).unwrap();
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
    let run = run(&plan, Supply::Memory(&events), &never).unwrap();
    let measured = run.latency_ns.len();
    assert!(measured > 0 && measured < run.outcome.pairs, "{measured}");
}

#[test]
fn a_load_that_is_stopped_is_of_what_ran_until_then() {
    let plan = plan(40_000.0, Duration::from_secs(1_000), 2);
    let begun = std::time::Instant::now();
    let stop = || begun.elapsed() > Duration::from_millis(300);
    let run = run(&plan, Supply::Made { seed: 42 }, &stop).unwrap();
    assert!(!run.has_all_pairs());
    assert!(run.stopped && run.due < Duration::from_secs(500), "{:?}", run.due);
    assert!(run.elapsed >= run.due && run.pushed > 0 && run.pushed <= run.events);
    // What is due by then, to the events that one wake-up of a producer brings.
    let due = plan.rate * run.due.as_secs_f64();
    assert!((run.events as f64 - due).abs() < 0.1 * due + 2.0, "{} of {due}", run.events);
    assert!(run.outcome.pairs > 0 && run.latency_ns.len() == run.outcome.pairs);
    let events = Events::new(plan.workload, 42, run.pushed as u32);
    assert!(run.outcome.pairs <= sort_merge(&events).pairs);
}

#[test]
fn it_stops_before_it_has_begun_and_refuses_what_it_cannot_do() {
    let plan = plan(10.0, Duration::from_secs(1_000), 2);
    let events = Events::new(plan.workload, 42, plan.events_per_side() as u32);
    let run = |events| super::run(&plan, Supply::Memory(events), &|| true);
    let at_once = run(&events).unwrap();
    assert!(at_once.stopped && at_once.pushed == 0 && at_once.due < Duration::from_secs(10));
    assert_eq!(at_once.achieved_rate(), 0.0);
    let few = Events::new(plan.workload, 42, 10);
    let error = run(&few).unwrap_err();
    assert!(error.to_string().contains("5000 events of each side"), "{error}");
}

#[test]
fn every_scenario_finds_the_pairs_of_its_events_and_none_is_late() {
    let ms = Duration::from_millis;
    for (scenario, producers) in [
        (Scenario::Burst { every: ms(50), factor: 5.0 }, 1),
        (Scenario::Skew { share: 0.05 }, 2),
        (Scenario::Disorder { by_ms: 2_000, share: 0.2 }, 2),
        (Scenario::StalledSource { at: ms(50), lasts: ms(100) }, 2),
        (Scenario::SlowSink { pause: ms(5), every: ms(50) }, 1),
    ] {
        let plan = LoadPlan { scenario, ..plan(50_000.0, Duration::from_millis(200), producers) };
        let count = plan.events_per_side() as u32;
        let events = scenario_events(plan.workload, scenario, 42, count);
        let expected = sort_merge(&events);
        for supply in [Supply::Memory(&events), Supply::Made { seed: 42 }] {
            let run = run(&plan, supply, &never).unwrap();
            assert_eq!(run.late_rows, 0, "{scenario:?}");
            if run.pushed == run.events {
                assert_eq!(run.outcome, expected, "{scenario:?} {supply:?}");
                assert_eq!(joined_offline(&plan, supply), expected, "{scenario:?}");
            }
        }
    }
}

#[test]
fn a_slow_sink_and_a_stalled_source_show() {
    let (pause, every) = (Duration::from_millis(30), Duration::from_millis(100));
    let scenario = Scenario::SlowSink { pause, every };
    let slow = LoadPlan { scenario, ..plan(20_000.0, Duration::from_millis(250), 1) };
    let slow = run(&slow, Supply::Made { seed: 42 }, &never).unwrap();
    assert!(slow.latency_ns.max() >= 30_000_000, "{}", slow.latency_ns.max());
    // At this rate 200 ms are 200 s of event time, and rows are kept for some 6 s of it; those of
    // the right side for as long as the left one is silent, besides.
    let (at, lasts) = (Duration::from_millis(40), Duration::from_millis(150));
    let stalled = |scenario| {
        let plan = plan(200_000.0, Duration::from_millis(200), 1);
        let workload = plan.workload.with_rate(100);
        let plan = LoadPlan { scenario, workload, ..plan };
        run(&plan, Supply::Made { seed: 42 }, &never).unwrap()
    };
    let smooth = stalled(Scenario::None);
    let stalled = stalled(Scenario::StalledSource { at, lasts });
    if smooth.pushed == smooth.events && stalled.pushed == stalled.events {
        assert!(
            stalled.state_rows_peak > smooth.state_rows_peak + 2_000,
            "{} beside {}",
            stalled.state_rows_peak,
            smooth.state_rows_peak
        );
    }
}

#[test]
fn samples_have_state_and_latency_over_time() {
    let every = Duration::from_millis(20);
    let plan =
        LoadPlan { sample_every: Some(every), ..plan(50_000.0, Duration::from_millis(400), 2) };
    let run = run(&plan, Supply::Made { seed: 42 }, &never).unwrap();
    assert!(!run.samples.is_empty());
    assert!(run.samples.is_sorted_by(|a, b| a.at < b.at), "{:?}", run.samples);
    let pairs: u64 = run.samples.iter().map(|sample| sample.pairs).sum();
    assert!(pairs > 0 && pairs <= run.outcome.pairs, "{pairs}");
    for sample in &run.samples {
        assert_eq!(sample.latency_ns.is_some(), sample.pairs > 0);
        assert!(sample.latency_ns.is_none_or(|latency| latency.is_sorted()), "{sample:?}");
    }
    assert!(run.samples.iter().any(|sample| sample.state_rows > 0 && sample.state_bytes > 0));
    #[cfg(target_os = "linux")]
    assert!(run.samples.iter().all(|sample| sample.rss_bytes.is_some_and(|bytes| bytes > 1 << 20)));
}
