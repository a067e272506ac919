//! What the report looks like, to the character.

use super::*;
use expect_test::expect;

fn sample() -> Report {
    let left = SideRows {
        rows: 2_000_004,
        on_time: 2_000_000,
        matched: Some(1_900_000),
        bad: 1,
        late: 2,
        null_key: 1,
        ..SideRows::default()
    };
    let right = SideRows { rows: 7, on_time: 7, matched: Some(3), ..SideRows::default() };
    Report {
        sides: [left, right],
        pairs: 1_900_003,
        rows_out: 1_900_003,
        state_rows_peak: 600_000,
        state_bytes_peak: 52 << 20,
        rss_bytes_peak: 1 << 30,
        watermark: Some(1_704_103_210_000),
        elapsed_s: 0.5,
        cpu_s: 0.75,
        cores: 2,
        runtime: "threads".to_owned(),
        simd: "avx2".to_owned(),
        latency: Some(Latency {
            p50: 900,
            p90: 1_500,
            p99: 20_000,
            p999: 3_000_000,
            max: 2_000_000_000,
        }),
        ..Report::default()
    }
}

#[test]
fn text_is_aligned() {
    expect![[r#"
                               left  right
          rows in         2,000,004      7
          matched         1,900,000      3
          unmatched         100,000      4
          late                    2      0
          bad                     1      0
          without key             1      0
          pairs           1,900,003
          rows out        1,900,003
          match rate      95.0000 % of the left rows on time
          late rate       0.0001 % of all rows
          watermark       2024-01-01T10:00:10Z
          state peak      600,000 rows, 52.0 MiB
          memory peak     1.0 GiB
          latency         p50 900 ns, p90 1.5 us, p99 20.0 us, p99.9 3.0 ms, max 2.00 s
          time            0.500 s, CPU 0.750 s, 4.00 M rows/s
          ran on          2 cores, threads, simd avx2
    "#]]
    .assert_eq(&sample().text());
}

#[test]
fn json_has_every_field() {
    let value: Value = serde_json::from_str(&sample().json()).unwrap();
    expect![[r#"
        {
          "left_rows": 2000004,
          "right_rows": 7,
          "pairs": 1900003,
          "rows_out": 1900003,
          "rows_not_written": 0,
          "left_matched": 1900000,
          "left_unmatched": 100000,
          "left_late": 2,
          "left_bad": 1,
          "left_null_key": 1,
          "left_jumped": 0,
          "left_timed_out": 0,
          "left_shed": 0,
          "left_shed_unmatched": 0,
          "left_spilled": 0,
          "right_matched": 3,
          "right_unmatched": 4,
          "right_late": 0,
          "right_bad": 0,
          "right_null_key": 0,
          "right_jumped": 0,
          "right_timed_out": 0,
          "right_shed": 0,
          "right_shed_unmatched": 0,
          "right_spilled": 0,
          "hot_keys_split": 0,
          "rows_copied": 0,
          "match_rate": 0.95,
          "late_rate": 9.999945000302498e-7,
          "state_rows_peak": 600000,
          "state_bytes_peak": 54525952,
          "state_bytes_reserved": 0,
          "rss_bytes_peak": 1073741824,
          "watermark": 1704103210000,
          "time_unit": "ms",
          "elapsed_s": 0.5,
          "rows_per_s": 4000022.0,
          "cpu_s": 0.75,
          "cores": 2,
          "runtime": "threads",
          "simd": "avx2",
          "latency_ns": {
            "p50": 900,
            "p90": 1500,
            "p99": 20000,
            "p999": 3000000,
            "max": 2000000000
          },
          "interrupted": false
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&value).unwrap());
}

#[test]
fn what_copies_hide_is_not_made_up() {
    let mut report = Report { hot_keys_split: 2, rows_copied: 1_234, ..sample() };
    report.sides[Side::Right.index()].matched = None;
    let json: Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!((&json["right_matched"], &json["right_unmatched"]), (&Value::Null, &Value::Null));
    assert_eq!(json["left_matched"], 1_900_000);
    let text = report.text();
    assert!(text.contains("matched         1,900,000      -\n"), "{text}");
    assert!(text.contains("hot keys        split 2 times; 1,234 rows copied"), "{text}");
}

#[test]
fn nothing_in_is_no_rate_and_no_fault() {
    let report = Report { interrupted: true, ..Report::default() };
    let json: Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json["match_rate"], Value::Null);
    assert_eq!(json["rows_per_s"], 0.0);
    assert!(report.text().contains("stopped early"), "{}", report.text());
}
