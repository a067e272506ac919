//! `intervale verify`: results that are right, and results with planted faults.

use serde_json::Value;

use crate::sample::JOIN;
use crate::support::{Dir, number};

const VERIFY: &str = "--between -5m..5m --result pairs.csv";

/// The sample and its right result.
fn joined() -> Dir {
    let dir = Dir::with_sample();
    dir.join(&format!("{JOIN} --between -5m..5m --output pairs.csv"));
    dir
}

fn report(dir: &Dir, args: &str) -> Value {
    let out = dir.run(&format!("verify --json {args}")).ok().out;
    serde_json::from_str(&out).expect("a JSON object")
}

fn counts(report: &Value) -> [u64; 4] {
    ["pairs_offline", "found", "missing", "extra"].map(|name| number(report, name))
}

#[test]
fn what_the_join_writes_is_right_in_every_format() {
    let dir = joined();
    let strict = format!("{JOIN} {VERIFY} --strict --min-match-rate 1");
    assert_eq!(counts(&report(&dir, &strict)), [3, 3, 0, 0]);
    for format in ["tsv", "jsonl"] {
        dir.join(&format!("{JOIN} --between -5m..5m --output pairs.{format}"));
        let args = format!("{JOIN} --between -5m..5m --strict --result pairs.{format}");
        assert_eq!(counts(&report(&dir, &args)), [3, 3, 0, 0], "{format}");
    }
}

#[test]
fn the_lines_for_scripts_come_last_with_the_figures_of_the_run() {
    let dir = joined();
    let out = dir.run(&format!("verify {JOIN} {VERIFY}")).ok().out;
    let end = "match_rate,late_sideoutput_rate,state_mb,p99_ms\n1.000000,0.000000,,\n";
    assert!(out.ends_with(end), "{out}");
    let out = dir.run(&format!("verify {JOIN} {VERIFY} --report report.json")).ok().out;
    let figures: Vec<f64> =
        out.lines().last().unwrap().split(',').map(|text| text.parse().unwrap()).collect();
    assert!(figures.len() == 4 && figures[2] > 0.0 && figures[3] > 0.0, "{out}");
    dir.write("other.json", "{}");
    for wrong in ["other.json", "nowhere.json", "pairs.csv"] {
        dir.run(&format!("verify {JOIN} {VERIFY} --report {wrong}")).fails(1, &["--report", wrong]);
    }
}

#[test]
fn missing_pairs_are_counted_and_shown() {
    let dir = joined();
    let result = dir.read("pairs.csv");
    let less: String = result
        .lines()
        .filter(|line| !line.starts_with("o002"))
        .map(|line| format!("{line}\n"))
        .collect();
    dir.write("pairs.csv", less);
    let ran = dir.run(&format!("verify {JOIN} {VERIFY}")).ok();
    assert!(ran.out.contains("missing  1: 0 late, 1 for other reasons"), "{}", ran.out);
    assert!(ran.out.contains("orders.csv: o002,200.0,"), "{}", ran.out);
    assert!(ran.out.ends_with("\n0.666667,0.000000,,\n"), "{}", ran.out);
    dir.run(&format!("verify {JOIN} {VERIFY} --min-match-rate 0.66")).ok();
    let short = dir.run(&format!("verify {JOIN} {VERIFY} --min-match-rate 0.67"));
    short.fails(1, &["2 of 3 pairs", "0.67 is the least"]);
    dir.run(&format!("verify {JOIN} {VERIFY} --strict")).fails(1, &["1 pairs are missing"]);
}

#[test]
fn pairs_that_the_join_lost_to_lateness_are_said_to_be_late() {
    let dir = Dir::new();
    dir.write("l.csv", "k,t\na,1000\nz,100000\nb,2000\n").write("r.csv", "k,t\na,1000\nb,2000\n");
    let join = "--left l.csv --right r.csv --on k --left-time t --right-time t --between 0..0 \
        --time-format ms";
    // Each source is judged by its own watermark then, whoever is read first.
    dir.join(&format!("{join} --deterministic --output pairs.csv"));
    let report = report(&dir, &format!("{join} --result pairs.csv"));
    assert_eq!(counts(&report), [2, 1, 1, 0]);
    assert_eq!((number(&report, "missing_late"), number(&report, "left_late")), (1, 1));
    let shown = report["missing_first"][0].as_str().unwrap();
    assert!(shown.contains("late: the left row is 1m38s behind"), "{shown}");
    let grace = dir.run(&format!("verify {join} --result pairs.csv --allowed-lateness 2m")).ok();
    assert!(grace.out.contains("0 late, 1 for other reasons"), "{}", grace.out);
}

#[test]
fn extra_pairs_have_their_reasons() {
    let dir = joined();
    let orders = format!("{},7.0,1704103200000\n", dir.read("orders.csv"));
    dir.write(
        "orders.csv",
        orders.replace("\n,7.0", ",7.0").replace("3215000,7.0", "3215000\n,7.0"),
    );
    let mut result = dir.read("pairs.csv");
    let payment = |id: &str| {
        let payments = dir.read("payments.csv");
        payments.lines().find(|line| line.starts_with(id)).unwrap().to_owned()
    };
    for (order, id) in [
        ("o004,80.0,1704103215000", "o004"),
        ("o001,100.0,1704103200000", "o002"),
        (",7.0,1704103200000", "o001"),
        ("o009,1,1", "o001"),
        ("o001,100.0,1704103200000", "o001"),
    ] {
        result.push_str(&format!("{order},{}\n", payment(id)));
    }
    dir.write("pairs.csv", result);
    let report = report(&dir, &format!("{JOIN} {VERIFY}"));
    assert_eq!(counts(&report), [3, 3, 0, 5], "{report}");
    assert_eq!(report["match_rate"], 1.0);
    let reasons = [
        "outside the interval: right.time is left.time +7m",
        "the keys differ",
        "null key",
        "no such left row",
        "more often",
    ];
    for (shown, reason) in report["extra_first"].as_array().unwrap().iter().zip(reasons) {
        assert!(shown.as_str().unwrap().contains(reason), "no `{reason}` in {shown}");
    }
    dir.run(&format!("verify {JOIN} {VERIFY} --strict")).fails(1, &["5 are too many"]);
}

#[test]
fn equal_rows_count_as_often_as_they_come() {
    let dir = Dir::new();
    dir.write("l.csv", "k,t\na,1\na,1\n").write("r.csv", "k,t\na,1\na,1\na,1\n");
    let join = "--left l.csv --right r.csv --on k --left-time t --right-time t --between 0..0 \
        --time-format ms";
    let (out, _) = dir.join(join);
    dir.write("pairs.csv", out.as_str());
    assert_eq!(counts(&report(&dir, &format!("{join} --result pairs.csv"))), [6, 6, 0, 0]);
    dir.write("pairs.csv", &out[..out.len() - "a,1,a,1\n".len()]);
    assert_eq!(counts(&report(&dir, &format!("{join} --result pairs.csv"))), [6, 5, 1, 0]);
}

#[test]
fn quoted_fields_and_results_of_other_programs() {
    let dir = Dir::new();
    dir.write("l.csv", "k,t,note\na,1,\"x, \"\"y\"\"\nz\"\n").write("r.csv", "k,t\na,1\n");
    let join = "--left l.csv --right r.csv --on k --left-time t --right-time t --between 0..0 \
        --time-format ms";
    dir.join(&format!("{join} --output pairs.csv"));
    assert_eq!(counts(&report(&dir, &format!("{join} --result pairs.csv --strict"))), [1, 1, 0, 0]);
    // Fewer columns in another order are enough; which are lacking is said.
    dir.write("few.jsonl", "{\"t_right\":1,\"note\":\"x, \\\"y\\\"\\nz\",\"k\":\"a\"}\n");
    let ran = dir.run(&format!("verify {join} --result few.jsonl --strict")).ok();
    assert!(ran.err.contains("lacks t, k_right"), "{}", ran.err);
    dir.write("none.csv", "a,b\n1,2\n");
    dir.run(&format!("verify {join} --result none.csv")).fails(2, &["left rows", "it has a, b"]);
    dir.write("torn.csv", "k,t,note,k_right,t_right\na,1\n");
    dir.run(&format!("verify {join} --result torn.csv")).fails(1, &["line 2", "2 fields"]);
    dir.write("empty.csv", "").write("empty.jsonl", "");
    dir.run(&format!("verify {join} --result empty.csv")).fails(1, &["it is empty"]);
    assert_eq!(counts(&report(&dir, &format!("{join} --result empty.jsonl"))), [1, 0, 1, 0]);
}

#[test]
fn wrong_use_and_unreadable_inputs() {
    let dir = joined();
    dir.run("verify").fails(2, &["--result", "--between"]);
    dir.run(&format!("verify {JOIN} {VERIFY} --min-match-rate 2")).fails(2, &["--min-match-rate"]);
    let empty = format!("verify {JOIN} --between (0..0) --result pairs.csv");
    dir.run(&empty).fails(2, &["--between"]);
    let gone = format!("verify {JOIN} --between 0..0 --result gone.csv");
    dir.run(&gone).fails(1, &["gone.csv", "cannot open"]);
    dir.write("orders.csv", "order_id,amount,ts\no001,1,never\no001,100.0,1704103200000\n");
    dir.run(&format!("verify {JOIN} {VERIFY}")).fails(1, &["orders.csv, line 2"]);
    let report = report(&dir, &format!("{JOIN} {VERIFY} --bad-rows skip"));
    assert_eq!((number(&report, "left_bad"), number(&report, "found")), (1, 1));
}
