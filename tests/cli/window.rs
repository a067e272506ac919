//! `--window`: rows of one window of time.

use crate::support::{Dir, ids_of_pairs, number};

const JOIN: &str = "--left l.csv --right r.csv --on k --left-time t --right-time t \
     --time-format ms --out-of-orderness 1s";

fn dir() -> Dir {
    let dir = Dir::new();
    dir.write("l.csv", "k,t,id\na,1,l1\na,9,l2\na,12,l3\nb,5,l4\na,-3,l5\n");
    dir.write("r.csv", "k,t,id\na,2,r1\na,11,r2\na,25,r3\na,-1,r4\nb,16,r5\n");
    dir
}

/// `left+right` of each row.
fn pairs(dir: &Dir, options: &str) -> Vec<String> {
    ids_of_pairs(&dir.rows(&format!("{JOIN} {options}")))
}

#[test]
fn rows_of_one_window_are_pairs() {
    let dir = dir();
    for (options, expected) in [
        // [-10, 0): l5 r4; [0, 10): l1 l2 r1, b: l4; [10, 20): l3 r2, b: r5; [20, 30): r3.
        ("tumble:10ms", vec!["l1+r1", "l2+r1", "l3+r2", "l5+r4"]),
        // [-5, 5): l1 l5 r1 r4; [5, 15): l2 l3 r2.
        ("tumble:10ms,5ms", vec!["l1+r1", "l1+r4", "l2+r2", "l3+r2", "l5+r1", "l5+r4"]),
        // The windows of both lines above.
        (
            "hop:10ms,5ms",
            vec![
                "l1+r1", "l1+r1", "l1+r4", "l2+r1", "l2+r2", "l3+r2", "l3+r2", "l5+r1", "l5+r4",
                "l5+r4",
            ],
        ),
        // a: -3 -1 1 2, then 9 11 12, then 25.
        ("session:4ms", vec!["l1+r1", "l1+r4", "l2+r2", "l3+r2", "l5+r1", "l5+r4"]),
        ("tumble:10ms --type semi", vec!["l1+", "l2+", "l3+", "l5+"]),
        ("tumble:10ms --type anti", vec!["l4+"]),
        ("tumble:10ms --type full", vec!["+r3", "+r5", "l1+r1", "l2+r1", "l3+r2", "l4+", "l5+r4"]),
    ] {
        for machine in ["--cores 1", "--cores 2", "--deterministic", "--runtime threads"] {
            let found = pairs(&dir, &format!("--window {options} {machine}"));
            assert_eq!(found, expected, "{options} {machine}");
        }
    }
}

#[test]
fn the_report_adds_up_and_sorted_output_is_by_window() {
    let dir = dir();
    let (out, report) = dir.join(&format!("{JOIN} --window tumble:10ms --deterministic"));
    let ids: Vec<&str> = out.lines().skip(1).filter_map(|row| row.split(',').nth(2)).collect();
    assert_eq!(ids, ["l5", "l1", "l2", "l3"]);
    assert_eq!(number(&report, "pairs"), 4);
    assert_eq!(number(&report, "left_matched"), 4);
    assert_eq!(number(&report, "left_unmatched"), 1);
    assert_eq!(number(&report, "right_unmatched"), 2);
}

#[test]
fn a_row_is_late_when_all_its_windows_are_over() {
    let dir = Dir::new();
    dir.write("l.csv", "k,t,id\na,100,l1\na,12,l2\na,95,l3\n");
    dir.write("r.csv", "k,t,id\na,100,r1\na,96,r2\n");
    let join = JOIN.replace("--out-of-orderness 1s", "--deterministic");
    let (out, report) =
        dir.join(&format!("{join} --window tumble:20ms,10ms --late-output late.csv"));
    assert_eq!(out.lines().count(), 1 + 4, "[90, 110) has two rows of each side: {out}");
    assert_eq!(number(&report, "left_late"), 1);
    let late = dir.read("late.csv");
    assert!(late.lines().count() == 2 && late.contains("l2"), "{late}");
}

/// Half of the rows are behind their watermark, and how far the other side has come differs from
/// run to run.
#[test]
fn rows_behind_their_watermark_are_the_same_in_every_run() {
    let dir = Dir::new();
    let mut seed = 5u64;
    let mut below = |count: u64| {
        // A linear congruential generator; its upper bits are good enough.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % count
    };
    for side in ["l", "r"] {
        let row = |n: u64| format!("{},{},{side}{n}\n", below(40), 1_000 + n * 3 + below(121));
        let rows: String = (0..3_000).map(row).collect();
        dir.write(&format!("{side}.csv"), format!("k,t,id\n{rows}"));
    }
    let join = JOIN.replace("--out-of-orderness 1s", "--out-of-orderness 20ms --deterministic");
    for window in ["hop:100ms,20ms", "session:25ms", "tumble:70ms"] {
        for lateness in ["", "--allowed-lateness 30ms"] {
            let mut runs = std::collections::BTreeSet::new();
            for run in 0..6 {
                let cores = 1 + run % 2;
                let form = format!("--window {window} {lateness} --type full --cores {cores}");
                runs.insert(dir.join(&format!("{join} {form}")).0);
            }
            assert_eq!(runs.len(), 1, "{window} {lateness}");
        }
    }
}

#[test]
fn wrong_use_names_the_option() {
    let dir = dir();
    for (options, words) in [
        ("--window 5m", vec!["--window", "tumble:5m"]),
        ("--window hop:5m", vec!["--window", "hop:10m,1m"]),
        ("--window tumble:x", vec!["--window", "duration"]),
        ("--window tumble:0", vec!["--window", "at least one tick"]),
        ("--window hop:1m,2m", vec!["--window", "at most the size"]),
        ("--window hop:1d,1ms", vec!["--window", "4096"]),
        ("--window session:-1s", vec!["--window", "negative"]),
        ("--window tumble:1s --between 0..1s", vec!["--window", "--between"]),
        ("--window tumble:1s --match first", vec!["--window", "--match"]),
        ("--window tumble:1s --asof backward", vec!["--window", "--asof"]),
        ("--window tumble:1s --tolerance 1s", vec!["--tolerance", "--asof"]),
    ] {
        dir.run(&format!("join {JOIN} {options}")).fails(2, &words);
    }
}
