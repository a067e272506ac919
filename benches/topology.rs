//! The whole engine on 1 to N cores, with each driver: what a core more brings.
//!
//! One line a configuration: wall and CPU time an event, how many times as fast as one core, and
//! what part of the cores that is. Pairs and checksum are compared with what is known.

#[path = "common/size.rs"]
mod size;

use intervale::exchange::HotKeys;
use intervale::join::JoinKind;
use intervale::runtime::{CoreChoice, IdleStrategy, RuntimeChoice, Topology};
use intervale::state::Simd;
use intervale::workload::bench::{BenchPlan, BenchRow, Subject, Watch};
use intervale::workload::{
    Bounds, EngineSetup, Form, LayoutHints, SEED_MEASURED, StepClock, Workload,
};

use size::{is_smoke, sized};

fn main() {
    let most = Topology::read().cpus_usable().max(sized(1, 2) as usize);
    println!("workload  runtime  cores  wall ns  cpu ns  spread %  times as fast  of the cores");
    for name in ["w1a", "w2", "w3a"] {
        for runtime in [RuntimeChoice::Threads, RuntimeChoice::Auto] {
            let rows = measure(name, runtime, most);
            let one_core_ns = rows[0].ns_per_event.best;
            for row in &rows {
                print_row(name, row, one_core_ns);
            }
            if rows.iter().all(|row| row.runtime.is_some_and(|kind| kind.name() == "threads"))
                && runtime == RuntimeChoice::Auto
            {
                println!("  (io_uring is not to be had here, so these are threads again)");
            }
        }
    }
}

/// 1, 2, 4 and so on up to `most`, and `most` itself.
fn core_counts(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1), |count| Some(count * 2));
    let mut counts: Vec<usize> = powers.take_while(|&count| count < most).collect();
    counts.push(most);
    counts
}

fn measure(name: &str, runtime: RuntimeChoice, most: usize) -> Vec<BenchRow> {
    let engine = |count| {
        let cores = CoreChoice::count(count).expect("at least one core");
        let (idle, simd) = (IdleStrategy::Auto, Simd::detect());
        Subject::Engine(EngineSetup { cores, runtime, idle, simd, hot_keys: HotKeys::Auto })
    };
    let plan = BenchPlan {
        workload: Workload::by_name(name).expect("benches name workloads that there are"),
        form: Form::default(),
        with_condition: false,
        // A size whose pairs are known.
        events_per_side: sized(1_000_000, 4_000),
        seed: SEED_MEASURED,
        subjects: core_counts(most).into_iter().map(engine).collect(),
        kind: JoinKind::Inner,
        batch: 256,
        chain: 0,
        layout: LayoutHints::default(),
        bounds: Bounds::default(),
        repeat: sized(5, 1),
        roofline: false,
        check: is_smoke(),
        step_clock: StepClock::Wall,
    };
    let mut watch = Watch { note: &mut |_| {}, warn: &mut |_| {}, stop: || false, yardstick: None };
    let rows = plan.run(&mut watch).expect("the pairs that are known");
    assert!(rows.iter().all(|row| row.outcome == rows[0].outcome && row.outcome.pairs > 0));
    rows
}

fn print_row(name: &str, row: &BenchRow, one_core_ns: f64) {
    let runtime = row.runtime.map_or("-", |runtime| runtime.name());
    let (wall, cpu) = (row.ns_per_event, row.cpu_ns_per_event);
    let faster = one_core_ns / wall.best;
    println!(
        "{name:8}  {runtime:7}  {:5}  {:7.1}  {:6.1}  {:8.1}  {faster:13.2}  {:10.0} %",
        row.cores,
        wall.best,
        cpu.best,
        wall.share() * 100.0,
        faster / row.cores as f64 * 100.0,
    );
}
