//! What all benches share.

use intervale::workload::{Events, SEED_MEASURED, Workload};

/// Whether this is the test command's smoke run: everything once, at small sizes, so that benches
/// cannot rot.
pub fn is_smoke() -> bool {
    !std::env::args().any(|argument| argument == "--bench")
}

/// `full` when measuring, `smoke` in the test command.
pub fn sized(full: u32, smoke: u32) -> u32 {
    if is_smoke() { smoke } else { full }
}

/// Events of a workload, made beforehand.
pub fn events(name: &str, events_per_side: u32) -> Events {
    let workload = Workload::by_name(name).expect("benches name workloads that there are");
    Events::new(workload, SEED_MEASURED, events_per_side)
}
