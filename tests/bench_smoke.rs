//! `intervale bench` and `intervale gen` at small sizes, through the binary.

#![cfg(feature = "cli")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn intervale(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_intervale")).args(args).output().unwrap()
}

/// The lines of a successful run.
fn lines(args: &[&str]) -> Vec<String> {
    let output = intervale(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn json_rows(args: &[&str]) -> Vec<Value> {
    lines(args).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sizes at which each workload has pairs. w4 needs a minute of events before its first one.
const SMALL: [(&str, &str, &str); 6] = [
    ("w1a", "40_000", "1000"),
    ("w1b", "40_000", "100000"),
    ("w2", "40_000", "2000"),
    ("w3a", "40_000", "25"),
    ("w3b", "8_000", "2000"),
    ("w4", "30_000", "200"),
];

/// One row for each configuration, all with the pairs of an offline join.
fn small_rows(extra: &[&str]) -> Vec<Value> {
    let mut all = Vec::new();
    for (workload, events, rate) in SMALL {
        let mut args = vec!["bench", "--workload", workload, "--events", events, "--rate", rate];
        args.extend(["--check", "--output-format", "json", "--repeat", "2"]);
        args.extend(extra);
        let rows = json_rows(&args);
        for row in &rows {
            assert_eq!(row["workload"], workload, "{row}");
            assert!(row["pairs"].as_u64().unwrap() > 0, "{row}");
            assert_eq!(row["checksum"].as_str().unwrap().len(), 16, "{row}");
            assert!(row["step_ns_p50"].as_u64() <= row["step_ns_max"].as_u64(), "{row}");
            assert!(row["bytes_per_buffered_row"].as_f64().unwrap() > 0.0, "{row}");
        }
        all.extend(rows);
    }
    all
}

#[test]
fn the_join_and_the_naive_peer_give_the_pairs_of_an_offline_join() {
    let rows = small_rows(&["--api", "join", "--peer", "naive", "--roofline"]);
    assert_eq!(rows.len(), 2 * SMALL.len());
    for (row, api) in rows.iter().zip(["join", "naive"].iter().cycle()) {
        assert_eq!(row["api"], *api);
        assert!(row["roofline_ns"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["ratio_to_roofline"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn the_engine_gives_the_pairs_of_an_offline_join_on_one_core_and_on_many() {
    let rows = small_rows(&["--cores", "1,2,5", "--runtime", "threads", "--roofline"]);
    assert_eq!(rows.len(), 3 * SMALL.len());
    for (row, cores) in rows.iter().zip([1, 2, 5].iter().cycle()) {
        assert_eq!(row["api"], "engine");
        assert_eq!(row["cores"], *cores);
        assert_eq!(row["runtime"], "threads");
        assert!(row["roofline_ns"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn scalar_instructions_and_odd_batches_change_nothing() {
    small_rows(&["--api", "join", "--simd", "scalar", "--batch", "7", "--step-clock", "cpu"]);
}

/// A left event of w2 without a partner: few, so both sums are known from the two kinds.
#[test]
fn kinds_other_than_inner_count_the_rows_that_come_out_alone() {
    let singles = |api: &str, kind: &str| {
        let rows = json_rows(&[
            "bench",
            "--workload",
            "w2",
            "--events",
            "40_000",
            "--api",
            api,
            "--cores",
            "2",
            "--type",
            kind,
            "--output-format",
            "json",
        ]);
        rows[0]["singles"].as_u64().unwrap()
    };
    for api in ["join", "engine"] {
        let (semi, anti, left) = (singles(api, "semi"), singles(api, "anti"), singles(api, "left"));
        assert_eq!(semi + anti, 20_000, "{api}");
        assert_eq!(left, anti, "{api}");
        assert!(anti > 0, "{api}");
    }
}

#[test]
fn known_outcomes_are_compared_with() {
    let args = [
        "bench",
        "--workload",
        "w2",
        "--events",
        "2e6",
        "--api",
        "none",
        "--peer",
        "naive",
        "--repeat",
        "1",
        "--output-format",
        "json",
    ];
    let rows = json_rows(&args);
    assert_eq!(rows[0]["pairs"], 3_998_145);
    assert_eq!(rows[0]["checksum"], "d0858e077c6df858");
}

#[test]
fn the_text_form_is_a_table() {
    let lines = lines(&[
        "bench",
        "--workload",
        "w2,w3a",
        "--events",
        "2e3",
        "--api",
        "none",
        "--peer",
        "naive",
    ]);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[0].starts_with("workload  api"), "{lines:#?}");
    assert!(lines[1].starts_with("w2") && lines[2].starts_with("w3a"), "{lines:#?}");
}

#[test]
fn wrong_use_is_told_with_what_to_do() {
    for (args, told) in [
        (vec!["bench", "--workload", "w9"], "w1a"),
        (vec!["bench", "--workload", "w2", "--events", "3"], "even"),
        (vec!["bench", "--workload", "w2", "--events", "many"], "a whole number from 2"),
        (vec!["bench", "--workload", "w2", "--api", "none"], "--peer"),
        (
            vec!["bench", "--workload", "w2", "--peer", "naive", "--type", "left", "--api", "none"],
            "inner",
        ),
        (vec!["bench", "--workload", "w2", "--cores", "0"], "cores"),
        (vec!["gen", "--workload", "w2"], "--left"),
        (vec!["gen", "--workload", "w2", "--left", "x.bin"], "--output-format"),
        (vec!["gen", "--workload", "w2", "--left", "x.csv", "--right", "x.csv"], "each its own"),
    ] {
        let output = intervale(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(told), "{args:?}: {stderr}");
    }
}

fn gen_w1a(folder: &Path, seed: &str, ending: &str) -> [String; 2] {
    let paths = ["left", "right"].map(|side| folder.join(format!("{side}-{seed}.{ending}")));
    let [left, right] = paths.each_ref().map(|path| path.to_str().unwrap());
    let args = ["gen", "--workload", "w1a", "--events", "20_000", "--seed", seed];
    assert!(lines(&[&args[..], &["--left", left, "--right", right]].concat()).is_empty());
    paths.map(|path| std::fs::read_to_string(path).unwrap())
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let first = gen_w1a(folder.path(), "1", "csv");
    assert_eq!(gen_w1a(folder.path(), "1", "csv"), first);
    assert_ne!(gen_w1a(folder.path(), "2", "csv"), first);
    for side in &first {
        assert_eq!(side.lines().count(), 10_001);
        assert_eq!(side.lines().next(), Some("key,ts,id"));
    }
    // The files alone: nothing unfinished stays.
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 4);
}

#[test]
fn all_formats_hold_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let [csv, _] = gen_w1a(folder.path(), "1", "csv");
    let [tsv, _] = gen_w1a(folder.path(), "1", "tsv");
    let [jsonl, _] = gen_w1a(folder.path(), "1", "jsonl");
    assert_eq!(tsv.replace('\t', ","), csv);
    let rows = jsonl.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        format!("{},{},{}", row["key"], row["ts"], row["id"])
    });
    assert!(rows.eq(csv.lines().skip(1)));
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let output = intervale(&["gen", "--workload", "w2", "--left", "no-such-folder/l.csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-folder/l.csv"));
    let full = Path::new("/dev/full");
    if full.exists() {
        let args = ["gen", "--workload", "w2", "--left", "/dev/full", "--output-format", "csv"];
        let output = intervale(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/full"));
    }
}
