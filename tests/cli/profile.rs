//! `--profile`: what it sets, that options given win, and what is said of a wrong one.

use serde_json::Value;

use crate::support::{Dir, number};

const LOAD: &str =
    "load --workload w2 --rate 5000 --duration 100ms --cores 1 --output-format json --warm-up 0";

fn load(dir: &Dir, args: &str) -> Value {
    let out = dir.run(&format!("{LOAD} {args}")).ok().out;
    serde_json::from_str(&out).expect("one row")
}

#[test]
fn a_file_changes_defaults_and_options_win() {
    let dir = Dir::new();
    dir.write(
        "p.toml",
        "# mine\nidle = \"park\"\nbatch = 32\nlinger = \"2ms\"\nsimd = \"scalar\"\n",
    );
    let row = load(&dir, "--profile p.toml");
    assert_eq!((&row["idle"], &row["simd"]), (&Value::from("park"), &Value::from("scalar")));
    assert_eq!((number(&row, "batch"), number(&row, "linger_ns")), (32, 2_000_000));
    let row = load(&dir, "--profile p.toml --batch 16 --idle yield");
    assert_eq!((&row["idle"], &row["simd"]), (&Value::from("yield"), &Value::from("scalar")));
    assert_eq!((number(&row, "batch"), number(&row, "linger_ns")), (16, 2_000_000));
    // The order of options means nothing.
    let row = load(&dir, "--batch 16 --profile ./p.toml");
    assert_eq!(number(&row, "batch"), 16);
}

#[test]
fn every_command_that_has_profiles_takes_them() {
    let dir = Dir::with_sample();
    dir.write("p.toml", "simd = \"scalar\"\ncores = 1\nmax-state = \"64MiB\"\nlane-batches = 8\n");
    let (_, report) =
        dir.join(&format!("{} --between -5m..5m --profile p.toml", crate::sample::JOIN));
    assert_eq!((&report["simd"], number(&report, "cores")), (&Value::from("scalar"), 1));
    let bench = "bench --workload w2 --events 2000 --repeat 1 --output-format json";
    let row = dir.run(&format!("{bench} --profile p.toml")).ok().out;
    let row: Value = serde_json::from_str(&row).unwrap();
    assert_eq!((&row["simd"], number(&row, "cores")), (&Value::from("scalar"), 1));
    for name in ["latency", "throughput", "shared-vm"] {
        dir.join(&format!("{} --between -5m..5m --profile {name}", crate::sample::JOIN));
    }
}

#[test]
fn a_wrong_profile_is_refused_with_its_file_and_line() {
    let dir = Dir::new();
    dir.write("p.toml", "idle = \"park\"\n\nspeed = \"high\"\n");
    dir.run(&format!("{LOAD} --profile p.toml")).fails(2, &["p.toml, line 3", "speed", "linger"]);
    dir.write("p.toml", "linger = \"1 fortnight\"\n");
    dir.run(&format!("{LOAD} --profile p.toml")).fails(2, &["p.toml, line 1", "linger"]);
    dir.run(&format!("{LOAD} --profile fastest")).fails(2, &["fastest", "latency, throughput"]);
    dir.run(&format!("{LOAD} --profile no/p.toml")).fails(
        1,
        &["no/p.toml", "cannot read", "intervale tune ... --output no/p.toml", "shared-vm"],
    );
    // Values that this host or command cannot have say where they are from.
    dir.write("p.toml", "# other host\ncores = \"900-903\"\n");
    let load = LOAD.replace("--cores 1 ", "");
    dir.run(&format!("{load} --profile p.toml")).fails(2, &["--cores", "p.toml, line 2"]);
    let ran = dir.run(&format!("{load} --cores none --profile p.toml")).fails(2, &["--cores"]);
    assert!(!ran.err.contains("p.toml"), "{}", ran.err);
    let bench = "bench --workload w2 --events 2000 --profile p.toml";
    dir.run(bench).fails(2, &["--cores", "p.toml"]);
}
