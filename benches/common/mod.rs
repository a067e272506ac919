//! What benches with criterion share.

mod size;

use std::time::Duration;

use criterion::Criterion;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
pub use size::sized;

use intervale::workload::{CpuClock, Events, SEED_MEASURED, Workload};

/// The thread's CPU time, in nanoseconds: machines that measure are seldom alone.
pub struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = u64;
    type Value = Duration;

    fn start(&self) -> u64 {
        CpuClock::Thread.now_ns()
    }

    fn end(&self, start_ns: u64) -> Duration {
        Duration::from_nanos(CpuClock::Thread.now_ns() - start_ns)
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// What all groups run with.
pub fn by_cpu_time() -> Criterion<CpuTime> {
    Criterion::default().with_measurement(CpuTime)
}

/// Events of a workload, made beforehand.
pub fn events(name: &str, events_per_side: u32) -> Events {
    let workload = Workload::by_name(name).expect("benches name workloads that there are");
    Events::new(workload, SEED_MEASURED, events_per_side)
}
