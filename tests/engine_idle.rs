//! An idle engine leaves the CPU alone. Alone in its process, whose CPU time it measures.

#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use intervale::engine::Engine;
use intervale::event::{Key, Side};
use intervale::join::JoinSpec;
use intervale::limits::Limits;
use intervale::runtime::{CoreChoice, RuntimeChoice};
use intervale::time::Bound;

/// CPU time of this process, in seconds.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Fields 14 and 15, counted from behind the name; in ticks of 10 ms.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

#[test]
fn an_idle_engine_uses_under_two_percent_of_a_core() {
    for runtime in [RuntimeChoice::Threads, RuntimeChoice::Auto] {
        let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(5));
        let engine = Engine::builder(spec.build(&Limits::default()).unwrap())
            .cores(CoreChoice::count(2).unwrap())
            .runtime(runtime)
            .sinks(|_| intervale::engine::NoSinks)
            .start()
            .unwrap();
        let mut sources = Side::BOTH.map(|side| engine.source(side).unwrap());
        for source in &mut sources {
            source.push(Key::Int(1), 1, b"row").unwrap();
        }
        // Everything is done; from here on there is nothing to do.
        engine.flush().unwrap();
        let (start, start_cpu_s) = (Instant::now(), cpu_s());
        // Time has to pass: that nothing happens meanwhile is what is tested.
        std::thread::sleep(Duration::from_secs(3));
        let share = (cpu_s() - start_cpu_s) / start.elapsed().as_secs_f64();
        assert!(share < 0.02, "{runtime:?}: {:.1} % of a core", share * 100.0);
        drop(sources);
        assert_eq!(engine.finish().unwrap().report.counters.pairs, 1);
    }
}
