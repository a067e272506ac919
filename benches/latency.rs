//! Latency over load, in an open loop: `intervale load` at rising rates, on 1 to N cores.
//!
//! Events are due at their times whether or not the engine keeps up, and latency runs from there.

#[path = "common/size.rs"]
mod size;

use std::process::Command;

use intervale::runtime::Topology;
use serde_json::Value;

use size::{is_smoke, sized};

fn main() {
    let most = Topology::read().cpus_usable();
    let rates = if is_smoke() { "20_000" } else { "1e5,5e5,1e6,2e6,4e6" };
    let duration = format!("{}ms", sized(3_000, 300));
    println!("workload  cores     rate/s  kept up   p50 us   p99 us  p99.9 us  p99.99 us   max us");
    for workload in ["w2", "w3a"] {
        let core_counts = if is_smoke() { 1..=1 } else { 1..=most };
        for cores in core_counts {
            let rows = load(workload, rates, &duration, cores);
            assert_eq!(rows.len(), rates.split(',').count(), "a row a rate");
            rows.iter().for_each(|row| print_row(workload, row));
        }
    }
}

fn load(workload: &str, rates: &str, duration: &str, cores: usize) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_intervale"))
        .args(["load", "--workload", workload, "--rates", rates, "--duration", duration])
        .args(["--cores", &cores.to_string(), "--output-format", "json"])
        .output()
        .expect("the binary runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8_lossy(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn print_row(workload: &str, row: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let latency: Vec<f64> = ["p50", "p99", "p999", "p9999", "max"]
        .map(|name| number(&row["latency_ns"][name]) / 1e3)
        .to_vec();
    assert!(latency.is_sorted() && latency[0] > 0.0, "{row}");
    println!(
        "{workload:8}  {:5}  {:9.0}  {:>7}  {:7.1}  {:7.1}  {:8.1}  {:9.1}  {:7.1}",
        number(&row["cores"]),
        number(&row["offered_rate"]),
        if row["kept_up"] == true { "yes" } else { "no" },
        latency[0],
        latency[1],
        latency[2],
        latency[3],
        latency[4],
    );
}
