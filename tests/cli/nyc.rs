//! Real data: ten days of flights and of hourly weather at three airports, not sorted by time.

use serde_json::Value;

use crate::support::{Dir, data, number, sorted_rows};

fn join(dir: &Dir, rest: &str) -> (String, Value) {
    let (left, right) = (data("nyc/flights.csv"), data("nyc/weather.csv"));
    dir.join(&format!(
        "--left {} --right {} --on origin --left-time time_hour --right-time time_hour \
         --between -2h..0 {rest}",
        left.display(),
        right.display()
    ))
}

#[test]
fn every_flight_meets_its_weather() {
    let disorder = "--left-out-of-orderness 18h --right-out-of-orderness 262h";
    for cores in [1, 2, 5] {
        let (out, report) = join(&Dir::new(), &format!("{disorder} --cores {cores}"));
        assert_eq!(number(&report, "pairs"), 26_345);
        assert_eq!(sorted_rows(&out).len(), 26_345);
        assert_eq!(number(&report, "left_rows"), 8_832);
        assert_eq!(number(&report, "left_unmatched"), 0);
        assert_eq!(number(&report, "right_unmatched"), 197);
        assert_eq!(number(&report, "left_late") + number(&report, "right_late"), 0);
    }
}

#[test]
fn rows_lost_to_a_small_disorder_bound_are_in_the_late_output() {
    let dir = Dir::new();
    for deterministic in ["", "--deterministic"] {
        let rest = format!("--out-of-orderness 6h --late-output late.csv {deterministic}");
        let (_, report) = join(&dir, &rest);
        let late = dir.read("late.csv");
        let of = |side: &str| late.lines().filter(|line| line.starts_with(side)).count() as u64;
        assert!(late.starts_with("side,"), "{}", late.lines().next().unwrap_or_default());
        if !deterministic.is_empty() {
            // By the row; the merged watermark moves by the block, and these files are small.
            assert!(number(&report, "right_late") > 0, "{report}");
        }
        assert_eq!(of("left,"), number(&report, "left_late"), "{report}");
        assert_eq!(of("right,"), number(&report, "right_late"), "{report}");
    }
}

#[test]
fn airports_that_meet_no_weather_are_padded_and_counted() {
    let dir = Dir::new();
    let disorder = "--left-out-of-orderness 18h --right-out-of-orderness 262h";
    let (out, report) = join(&dir, &format!("{disorder} --type full"));
    assert_eq!(number(&report, "rows_out"), 26_345 + 197);
    let padded = out.lines().filter(|line| line.starts_with(",,,,,,,,,")).count();
    assert_eq!(padded, 197);
    let (_, report) = join(&dir, &format!("{disorder} --type semi"));
    assert_eq!(number(&report, "rows_out"), 8_832);
    let (_, report) = join(&dir, &format!("{disorder} --type anti"));
    assert_eq!(number(&report, "rows_out"), 0);
}
