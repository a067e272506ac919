//! Times and durations as users write them.

use crate::support::{Dir, number};

/// Whether two times, written as given, match at exactly 0 distance.
fn equal(left: &str, right: &str, options: &str) -> bool {
    within("0..0", left, right, options)
}

/// Whether two times, written as given, lie within an interval of each other.
fn within(interval: &str, left: &str, right: &str, options: &str) -> bool {
    let dir = Dir::new();
    dir.write("l.csv", format!("id,ts\na,\"{left}\"\n"));
    dir.write("r.csv", format!("id,ts\na,\"{right}\"\n"));
    let join = "--left l.csv --right r.csv --on id --left-time ts --right-time ts --between";
    !dir.rows(&format!("{join} {interval} {options}")).is_empty()
}

#[test]
fn the_same_instant_in_every_form() {
    let ms = "1704103200000";
    for (left, options) in [
        ("2024-01-01T10:00:00Z", ""),
        ("2024-01-01T11:00:00+01:00", ""),
        ("2024-01-01 10:00:00", ""),
        ("2024-01-01 10:00:00.000", ""),
        ("2024-01-01T10:00:00.000000000Z", ""),
        ("1704103200", "--left-time-format s"),
        ("1704103200000000", "--left-time-format us"),
        ("1704103200000000000", "--left-time-format ns"),
        ("2024-01-01 11:00:00", "--timezone Europe/Berlin"),
        ("2024-01-01T10:00:00Z", "--left-time-format rfc3339"),
        ("2024-01-01T10:00:00Z", "--timezone Asia/Tokyo"),
    ] {
        assert!(equal(left, ms, options), "{left} {options}");
        assert!(!equal(left, "1704103200001", options), "{left} {options}");
    }
    let dir = Dir::new();
    dir.write("l.csv", "id,ts\na,01/01/2024 10.00\n").write("r.csv", format!("id,ts\na,{ms}\n"));
    let join = "join --left l.csv --right r.csv --on id --left-time ts --right-time ts \
                --between 0..0 --stats none";
    let mut command = dir.command(join);
    command.args(["--left-time-format", "%d/%m/%Y %H.%M"]);
    let ran = crate::support::Ran::from(command.output().unwrap()).ok();
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
}

#[test]
fn case_32_what_is_finer_than_a_millisecond_counts() {
    assert!(!equal("2024-01-01T10:00:00.000001Z", "1704103200000", ""));
    assert!(equal("2024-01-01T10:00:00.000001Z", "1704103200000001", "--right-time-format us"));
}

#[test]
fn the_time_unit_is_what_is_needed_or_what_is_given() {
    let dir = Dir::new();
    // The time that calls for nanoseconds stands behind the rows that are looked at first.
    let rows: String = (0..2_000).map(|i| format!("k{i},1704103200{:03}\n", i % 1_000)).collect();
    dir.write("l.csv", format!("id,ts\n{rows}a,2024-01-01T10:00:00.123456789Z\n"));
    dir.write("r.csv", "id,ts\na,2024-01-01T10:00:00Z\n");
    let join = "--left l.csv --right r.csv --on id --left-time ts --right-time ts --between 0..1s";
    dir.run(&format!("join {join}")).fails(1, &["finer than the time unit", "--time-unit ns"]);
    let unit = |options: &str| dir.join(&format!("{join} {options}")).1["time_unit"].clone();
    assert_eq!(unit("--time-unit ns"), "ns");
    assert_eq!(unit("--bad-rows skip"), "us", "as text times to the second are taken");
    assert_eq!(unit("--bad-rows skip --time-unit ms"), "ms");
    dir.run(&format!("join {join} --time-unit ms --allowed-lateness 5us"))
        .fails(2, &["--allowed-lateness", "5us is finer", "--time-unit"]);
    dir.run(&format!("join {join} --time-unit s")).fails(2, &["--time-unit", "ms, us, ns"]);
}

#[test]
fn a_time_that_does_not_parse_names_file_line_column_and_text() {
    let dir = Dir::with_sample();
    let orders = dir.read("orders.csv").replace("1704103210000", "yesterday");
    dir.write("orders.csv", orders);
    let join = format!("join {} --between -5m..5m", crate::sample::JOIN);
    dir.run(&join).fails(1, &["orders.csv", "line 4", "\"ts\"", "yesterday"]);
}

#[test]
fn case_34_seconds_taken_for_milliseconds_are_recognised() {
    let dir = Dir::with_sample();
    let orders = dir.read("orders.csv").replace("000\n", "\n");
    dir.write("orders.csv", orders);
    let join = format!("join {} --between -5m..5m", crate::sample::JOIN);
    dir.run(&join).fails(1, &["orders.csv", "seconds", "--time-format s"]);
    let (_, report) = dir.join(&format!(
        "{} --between -5m..5m --left-time-format s --right-time-format ms",
        crate::sample::JOIN
    ));
    assert_eq!(number(&report, "pairs"), 3);
}

#[test]
fn durations_intervals_and_zones_that_make_no_sense_are_wrong_use() {
    let dir = Dir::with_sample();
    let base = "join --left orders.csv --right payments.csv --on order_id --left-time ts \
                --right-time ts";
    for (rest, word) in [
        ("--between 5m", "--between"),
        ("--between 5m..-5m", "[5m..-5m] is empty"),
        ("--between (0,0]", "(0..0] is empty: no time in ms"),
        ("--between -5x..5m", "-5x"),
        ("--between 0..1s --out-of-orderness 5", "--out-of-orderness"),
        ("--between 0..1s --out-of-orderness -5s", "--out-of-orderness"),
        ("--between 0..1s --allowed-lateness -1s", "--allowed-lateness"),
        ("--between 0..1s --idle-timeout never", "--idle-timeout"),
        ("--between 0..1s --timezone Mars/Olympus", "Mars/Olympus"),
        ("--between 0..1s --time-format %", "--time-format"),
    ] {
        dir.run(&format!("{base} {rest}")).fails(2, &[word]);
    }
}

#[test]
fn case_33_a_day_is_24_hours_where_clocks_change() {
    // Clocks went forward in New York on 2024-03-10: noon to noon was 23 hours.
    let zone = "--timezone America/New_York";
    assert!(within("0..1d", "2024-03-09 12:00:00", "2024-03-10 13:00:00", zone));
    assert!(!within("0..1d", "2024-03-09 12:00:00", "2024-03-10 13:00:01", zone));
}
