//! The sample of orders and payments.

use crate::support::{Dir, number};

/// The first command of the README, less the files.
pub const JOIN: &str = "--left orders.csv --right payments.csv --on order_id --left-time ts \
     --right-time ts --out-of-orderness 5s";

const HEADER: &str = "order_id,amount,ts,order_id_right,pay_amount,status,ts_right";
const O001: &str = "o001,100.0,1704103200000,o001,100.0,SUCCESS,1704103180000";
const O002: &str = "o002,200.0,1704103205000,o002,200.0,SUCCESS,1704103208000";
const O003: &str = "o003,150.0,1704103210000,o003,150.0,PENDING,1704103260000";

#[test]
fn three_payments_come_within_five_minutes() {
    let (out, report) = Dir::with_sample().join(&format!("{JOIN} --between -5m..5m"));
    assert_eq!(out.lines().next(), Some(HEADER));
    assert_eq!(crate::support::sorted_rows(&out), [O001, O002, O003]);
    assert_eq!(number(&report, "pairs"), 3);
    assert_eq!(number(&report, "rows_out"), 3);
    assert_eq!(number(&report, "left_rows"), 4);
    assert_eq!(number(&report, "left_unmatched"), 1);
    assert_eq!(number(&report, "right_unmatched"), 1);
    assert_eq!(report["match_rate"], 0.75);
    assert_eq!(report["late_rate"], 0.0);
}

#[test]
fn outer_joins_pad_what_has_no_match() {
    let dir = Dir::with_sample();
    let o004 = "o004,80.0,1704103215000,,,,";
    let p004 = ",,,o004,80.0,SUCCESS,1704103635000";
    for (kind, padded) in [("left", vec![o004]), ("right", vec![p004]), ("full", vec![p004, o004])]
    {
        let mut expected = vec![O001, O002, O003];
        expected.extend(padded);
        expected.sort_unstable();
        let rows = dir.rows(&format!("{JOIN} --between -5m..5m --type {kind}"));
        assert_eq!(rows, expected, "{kind}");
    }
}

#[test]
fn semi_and_anti_have_left_columns_only() {
    let dir = Dir::with_sample();
    let (out, report) = dir.join(&format!("{JOIN} --between -5m..5m --type anti"));
    assert_eq!(out, "order_id,amount,ts\no004,80.0,1704103215000\n");
    assert_eq!(number(&report, "rows_out"), 1);
    let rows = dir.rows(&format!("{JOIN} --between -5m..5m --type semi"));
    assert_eq!(rows, [O001, O002, O003].map(|row| row.split(",o").next().unwrap()));
}

#[test]
fn an_end_belongs_to_the_interval_unless_it_is_open() {
    let dir = Dir::with_sample();
    let payments = dir.read("payments.csv").replace("1704103635000", "1704103515000");
    dir.write("payments.csv", payments);
    let pairs = |between: &str| dir.rows(&format!("{JOIN} --between {between}")).len();
    assert_eq!(pairs("-5m..5m"), 4);
    assert_eq!(pairs("[-5m,5m]"), 4);
    assert_eq!(pairs("[-5m,5m)"), 3);
    assert_eq!(pairs("(-20s,5m]"), 3, "o001 was paid exactly 20 s before");
    assert_eq!(pairs("-20s..5m"), 4);
    assert_eq!(pairs("0..0"), 0);
}

#[test]
fn every_driver_and_any_number_of_cores_finds_the_same() {
    let dir = Dir::with_sample();
    for machine in ["--cores 1", "--cores 2", "--cores 8", "--cores all", "--runtime threads"] {
        for idle in ["spin", "yield", "park", "auto"] {
            let rows = dir.rows(&format!("{JOIN} --between -5m..5m {machine} --idle {idle}"));
            assert_eq!(rows, [O001, O002, O003], "{machine} --idle {idle}");
        }
    }
    for simd in ["scalar", "auto"] {
        let rows = dir.rows(&format!("{JOIN} --between -5m..5m --simd {simd}"));
        assert_eq!(rows, [O001, O002, O003], "{simd}");
    }
}

#[test]
fn the_report_has_every_field_of_the_contract() {
    let (_, report) = Dir::with_sample().join(&format!("{JOIN} --between -5m..5m --cores 2"));
    let numbers = "left_rows right_rows pairs left_matched left_unmatched right_matched \
        right_unmatched left_late right_late left_bad right_bad left_null_key right_null_key \
        match_rate late_rate state_rows_peak state_bytes_peak rss_bytes_peak watermark elapsed_s \
        rows_per_s cpu_s cores";
    for name in numbers.split_whitespace() {
        assert!(report[name].is_number(), "{name}: {report}");
    }
    for name in ["runtime", "simd"] {
        assert!(report[name].is_string(), "{name}: {report}");
    }
    for name in ["p50", "p90", "p99", "p999", "max"] {
        assert!(report["latency_ns"][name].is_number(), "{name}: {report}");
    }
    assert_eq!(number(&report, "cores"), 2);
    // The last rows of the sides less the disorder; which side ends last is not said.
    let watermark = number(&report, "watermark");
    assert!([1_704_103_210_000, 1_704_103_630_000].contains(&watermark), "{watermark}");
    assert!(number(&report, "state_rows_peak") >= 1);
    assert!(number(&report, "state_bytes_peak") >= 1);
    assert!(number(&report, "rss_bytes_peak") > 1 << 20);
}

#[test]
fn the_text_report_goes_to_standard_error_or_where_it_is_sent() {
    let dir = Dir::with_sample();
    let ran = dir.run(&format!("join {JOIN} --between -5m..5m")).ok();
    assert!(ran.err.contains("pairs           3\n"), "{}", ran.err);
    assert!(!ran.out.contains("pairs  "), "{}", ran.out);
    let ran = dir.run(&format!("join {JOIN} --between -5m..5m --stats none")).ok();
    assert!(!ran.err.contains("pairs"), "{}", ran.err);
    let to_file = format!("join {JOIN} --between -5m..5m --stats-output report.txt");
    let ran = dir.run(&to_file).ok();
    assert!(!ran.err.contains("pairs"), "{}", ran.err);
    assert!(dir.read("report.txt").contains("pairs           3\n"));
}

#[test]
#[cfg(target_os = "linux")]
fn cores_may_be_named() {
    let dir = Dir::with_sample();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let cpu = allowed.trim().split([',', '-']).next().unwrap();
    let (_, report) = dir.join(&format!("{JOIN} --between -5m..5m --cores {cpu}-{cpu}"));
    assert_eq!(number(&report, "cores"), 1);
    assert_eq!(number(&report, "pairs"), 3);
    let strange = format!("join {JOIN} --between -5m..5m --cores 65535-65535");
    dir.run(&strange).fails(2, &["--cores", "65535"]);
}
