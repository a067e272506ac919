//! `intervale gen`: workloads of one's own. Those of the documents are in `tests/bench_smoke.rs`.

use std::collections::HashMap;

use expect_test::expect_file;

use crate::support::{Dir, number};

#[test]
fn the_help_text_and_its_examples() {
    crate::bench::check_help("gen", expect_file!["../data/help/gen.txt"], 3);
}

/// Key, time and id of each row.
fn rows(text: &str) -> Vec<[u64; 3]> {
    let number = |cell: &str| cell.parse().expect("a number");
    let row = |line: &str| {
        let mut cells = line.split(',').map(number);
        [(); 3].map(|()| cells.next().expect("three numbers"))
    };
    text.lines().skip(1).map(row).collect()
}

#[test]
fn every_option_changes_what_it_says() {
    let dir = Dir::new();
    let right =
        |options: &str| rows(&dir.run(&format!("gen --right - --events 8000 {options}")).ok().out);
    let keys = |rows: &[[u64; 3]]| {
        let mut counts = HashMap::new();
        rows.iter().for_each(|row| *counts.entry(row[0]).or_insert(0) += 1);
        counts
    };
    let plain = right("");
    assert_eq!(plain.len(), 4_000);
    assert!((900..=1_000).contains(&keys(&plain).len()), "1,000 keys, nearly all of them drawn");
    assert_eq!(keys(&right("--keys 7")).len(), 7);
    assert_eq!(keys(&right("--keys unique")).len(), 4_000);
    let skewed = keys(&right("--keys 100 --skew 1.5"));
    assert!(skewed[&1] > 1_400 && skewed[&1] < 1_800, "1 / (sum of k^-1.5) is 41 %");
    let span = |rows: &[[u64; 3]]| {
        let times = rows.iter().map(|row| row[1]);
        times.clone().max().unwrap() - times.min().unwrap()
    };
    assert_eq!(span(&plain), 3_999, "1,000 a second");
    assert_eq!(span(&right("--rate 100")), 39_990);
    assert!((4_000..5_000).contains(&span(&right("--delay 1s"))));
    assert_eq!(span(&right("--burst 2s,10")), 2_199, "two bursts of 200 ms");
    let in_order = |rows: &[[u64; 3]]| rows.is_sorted_by_key(|row| row[1]);
    assert!(!in_order(&plain));
    assert!(in_order(&right("--disorder 0s")));
}

#[test]
fn payload_is_a_column_of_that_length_in_every_format() {
    let dir = Dir::new();
    let run = |options: &str| dir.run(&format!("gen --left - --events 200 {options}")).ok().out;
    let csv = run("--payload 23");
    assert_eq!(csv.lines().next(), Some("key,ts,id,payload"));
    let payloads: Vec<&str> =
        csv.lines().skip(1).map(|line| line.rsplit(',').next().expect("a cell")).collect();
    assert!(payloads.len() == 100 && payloads.iter().all(|payload| payload.len() == 23), "{csv}");
    assert_ne!(payloads[0], payloads[1]);
    let tsv = run("--payload 23 --output-format tsv");
    assert_eq!(tsv.replace('\t', ","), csv);
    let jsonl = run("--payload 23 --output-format jsonl");
    for (line, payload) in jsonl.lines().zip(&payloads) {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(row["payload"], *payload);
    }
    let right = dir.run("gen --right - --events 200 --payload 23").ok().out;
    assert_ne!(right.lines().nth(1).unwrap().rsplit(',').next(), Some(payloads[0]));
    // Without it, the same rows.
    let without: Vec<&str> = csv.lines().map(|line| line.rsplit_once(',').unwrap().0).collect();
    assert!(run("").lines().eq(without));
}

/// The join itself says how many are late.
#[test]
fn the_share_that_was_asked_for_is_late_in_a_join() {
    let dir = Dir::new();
    let late = |events: u32, share: &str| {
        let options = format!("--keys 50 --disorder 200ms --delay 100ms --late-share {share}");
        dir.run(&format!("gen --events {events} --left l.csv --right r.csv {options}")).ok();
        let (_, report) = dir.join(
            "--left l.csv --right r.csv --on key --left-time ts --right-time ts --between 0..1s \
             --out-of-orderness 200ms --deterministic --output out.csv",
        );
        [number(&report, "left_late"), number(&report, "right_late")]
    };
    assert_eq!(late(40_000, "0"), [0, 0]);
    assert_eq!(late(40_000, "2%"), [400, 400]);
    assert_eq!(late(1_000, "2%"), [10, 10]);
    assert_eq!(late(500, "0.004"), [1, 1]);
    // The watermark trails by 200 events, so nobody can come behind it.
    let told = "2 of 100 left events are to be late, and 0 can be";
    let options = "--disorder 200ms --late-share 2% --left s.csv";
    dir.run(&format!("gen --events 200 {options}"))
        .fails(2, &["--late-share", told, "more events"]);
    let options = "--workload free --rate 1e4 --duration 10ms --late-share 50%";
    dir.run(&format!("load {options}")).fails(2, &["--late-share", "give a smaller share"]);
    assert!(!dir.names().contains(&"s.csv".to_owned()), "{:?}", dir.names());
}

#[test]
fn the_same_seed_and_options_give_the_same_bytes() {
    let dir = Dir::new();
    let all = "--keys 300 --skew 0.8 --rate 500 --delay 2s --disorder 100ms --late-share 0.05 \
               --payload 9 --burst 3s,4";
    let run =
        |seed: u64| dir.run(&format!("gen --left - --events 2000 --seed {seed} {all}")).ok().out;
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// To see how long it takes to make rows; a device has no name that could say a format.
#[test]
fn rows_may_go_nowhere_and_one_file_cannot_hold_both_sides() {
    let dir = Dir::new();
    dir.run("gen --events 2000 --left /dev/null --right /dev/null").ok();
    for same in ["--left a.csv --right a.csv", "--left a.csv --right ./a.csv"] {
        dir.run(&format!("gen --events 2000 {same}")).fails(2, &["--right", "the same file"]);
    }
    dir.run("gen --events 2000 --left - --right -").fails(2, &["both standard output"]);
    dir.run("gen --events 2000 --left rows").fails(2, &["--output-format"]);
    assert!(dir.names().is_empty(), "{:?}", dir.names());
}

#[test]
fn wrong_use_is_told_with_what_to_do() {
    let dir = Dir::new();
    for (options, told) in [
        ("--keys 0", "unique"),
        ("--skew 11", "0 to 10"),
        ("--workload w1a --skew 1", "--keys"),
        ("--keys 2e7 --skew 1", "10000000"),
        ("--late-share 1.5", "0 to 1"),
        ("--burst 5", "10s,5"),
        ("--disorder 3h", "2h"),
        ("--delay -1s", "negative"),
        ("--disorder 1us", "--disorder"),
        ("--payload 100000", "65536"),
        ("--rate 1e10", "--rate"),
    ] {
        dir.run(&format!("gen --left l.csv {options}")).fails(2, &[told]);
    }
    assert!(dir.names().is_empty(), "{:?}", dir.names());
}
