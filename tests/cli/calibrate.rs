//! `intervale calibrate`: what it sees in files, and that its settings do what it says.

use serde_json::Value;

use crate::sample::JOIN;
use crate::support::{Dir, number};

const FILES: &str = "--left l.csv --right r.csv --on k --left-time t --right-time t";

fn report(dir: &Dir, args: &str) -> Value {
    let out = dir.run(&format!("calibrate --json {args}")).ok().out;
    serde_json::from_str(&out).expect("a JSON object")
}

#[track_caller]
fn suggestion(report: &Value, share: f64) -> &Value {
    let all = report["suggestions"].as_array().unwrap();
    all.iter().find(|suggestion| suggestion["share"] == share).expect("the share")
}

/// A thousand orders a second apart. Payments come 10 to 19 s later, every hundredth 10 minutes;
/// every tenth order stands 3 s late in its file. One order in eight has no payment.
fn orders_and_payments() -> Dir {
    const START: u64 = 1_700_000_000_000;
    let (mut left, mut right) = ("k,t\n".to_owned(), "k,t\n".to_owned());
    let mut payments = Vec::new();
    for i in 0..1_000 {
        let late = if i % 10 == 9 { 3_000 } else { 0 };
        left.push_str(&format!("{i},{}\n", START + i * 1_000 - late));
        let delay = if i % 100 == 50 { 600_000 } else { 10_000 + i % 10 * 1_000 };
        if i % 8 != 0 {
            payments.push((START + i * 1_000 - late + delay, i));
        }
    }
    payments.sort_unstable();
    payments.iter().for_each(|(t, i)| right.push_str(&format!("{i},{t}\n")));
    let dir = Dir::new();
    dir.write("l.csv", left).write("r.csv", right);
    dir
}

#[test]
fn settings_follow_from_delays_and_disorder() {
    let dir = orders_and_payments();
    let report = report(&dir, FILES);
    assert_eq!((number(&report, "left_rows"), number(&report, "right_rows")), (1_000, 875));
    assert_eq!(number(&report, "left_with_partner"), 875);
    assert_eq!(number(&report["delta"], "min"), 10_000);
    assert_eq!(number(&report["delta"], "max"), 600_000);
    assert_eq!(number(&report["left_behind"], "p99"), 2_000);
    assert_eq!(number(&report["right_behind"], "max"), 0);
    let most = suggestion(&report, 0.95);
    assert_eq!(most["between"], "10s..19s");
    assert_eq!(most["left_out_of_orderness"], "2s");
    assert_eq!(most["right_out_of_orderness"], "0");
    let all = suggestion(&report, 0.9999);
    assert_eq!(all["between"], "10s..10m");
    assert_eq!(all["match_rate"], 0.875);
    // A row a second for 10 minutes and the disorder, and the payments for the disorder alone.
    let rows = all["state_rows"].as_f64().unwrap();
    assert!((600.0..610.0).contains(&rows), "{rows}");
    assert!(all["state_bytes"].as_f64().unwrap() > 100.0 * rows, "{report}");
}

#[test]
fn a_join_with_its_settings_matches_as_often_as_it_says() {
    let dir = orders_and_payments();
    let report = report(&dir, FILES);
    for share in [0.5, 0.9, 0.99, 0.9999] {
        let found = suggestion(&report, share);
        let text = |name: &str| found[name].as_str().unwrap().to_owned();
        let (_, run) = dir.join(&format!(
            "{FILES} --between {} --left-out-of-orderness {} --right-out-of-orderness {} \
             --deterministic",
            text("between"),
            text("left_out_of_orderness"),
            text("right_out_of_orderness")
        ));
        let matched = number(&run, "left_matched") as f64 / 1_000.0;
        assert_eq!(found["match_rate"].as_f64().unwrap(), matched, "{share}: {found}");
    }
}

#[test]
fn the_text_has_a_histogram_a_table_and_the_options() {
    let dir = orders_and_payments();
    let text = dir.run(&format!("calibrate {FILES} --plot deltas.svg")).ok().out;
    assert!(text.contains("875 of 1,000 left rows with a key have a partner"), "{text}");
    assert!(text.contains("100 out of order, by 2s at most"), "{text}");
    assert!(text.contains("####"), "{text}");
    for share in ["P50", "P99 ", "P99.99"] {
        assert!(text.contains(share), "no {share} in {text}");
    }
    let options = text.lines().last().unwrap();
    assert!(options.starts_with("  --between 10s.."), "{text}");
    let svg = dir.read("deltas.svg");
    assert!(svg.starts_with("<svg ") && svg.contains("P99: 10s"), "{svg}");
    dir.run(&format!("calibrate {FILES} --plot page.html")).ok();
    assert!(dir.read("page.html").contains("--left-out-of-orderness"));
}

#[test]
fn small_files_and_several_on_a_side() {
    let dir = Dir::with_sample();
    let report = report(&dir, JOIN);
    assert_eq!(number(&report, "left_with_partner"), 4);
    assert_eq!(report["delta"]["min"], -20_000);
    assert_eq!(suggestion(&report, 0.9999)["between"], "-20s..7m");
    assert_eq!(suggestion(&report, 0.5)["between"], "-20s..3s");
    dir.write("l.csv", "k,t\n,1700000000000\n").write("r.csv", "k,t\na,1700000000000\n");
    dir.run(&format!("calibrate {FILES}")).fails(1, &["no key of the 1 left rows", "--on"]);
    dir.write("l.csv", "k,t\na,1700000000500\n");
    let one = self::report(&dir, FILES);
    assert_eq!(suggestion(&one, 0.99)["between"], "-500ms..-500ms");
    dir.run(&format!("calibrate {FILES}")).ok();
}

#[test]
fn bad_rows_and_wrong_use() {
    let dir = orders_and_payments();
    dir.run("calibrate").fails(2, &["--left", "--on", "--left-time"]);
    dir.run(&format!("calibrate {FILES} --plot a.gif")).fails(2, &[".svg or .html"]);
    dir.run(&format!("calibrate {FILES} --plot no/a.svg")).fails(1, &["--plot", "no/a.svg"]);
    let left = format!("{}x,never\n", dir.read("l.csv"));
    dir.write("l.csv", left);
    dir.run(&format!("calibrate {FILES}")).fails(1, &["l.csv, line 1002"]);
    let ran = dir.run(&format!("calibrate {FILES} --bad-rows skip")).ok();
    assert!(ran.err.contains("1 left and 0 right rows do not parse"), "{}", ran.err);
}
