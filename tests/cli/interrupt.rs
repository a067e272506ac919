//! Ctrl-C in the middle of a run.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command};

use crate::support::Dir;

const JOIN: &str = "join --left - --right payments.csv --on order_id --left-time ts \
     --right-time ts --between -5m..5m";

fn interrupt(child: &Child) {
    signal(child, "-INT");
}

fn signal(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

/// A run whose left input stays open, after it has read one order and said so.
fn start(dir: &Dir, rest: &str) -> (Child, std::process::ChildStdin) {
    let mut child = dir.spawn(&format!("{JOIN} {rest}"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"order_id,amount,ts\no001,1,1704103200000\n").unwrap();
    (child, stdin)
}

/// Interrupts a run, started with `--progress always`, that has found a pair; returns what it said.
fn stop_after_the_first_pair(mut child: Child) -> String {
    let mut err = child.stderr.take().unwrap();
    let mut seen = Vec::new();
    let mut chunk = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("pairs 1,") {
        let count = err.read(&mut chunk).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&chunk[..count]);
    }
    interrupt(&child);
    err.read_to_end(&mut seen).unwrap();
    let err = String::from_utf8_lossy(&seen).into_owned();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{err}");
    err
}

/// As `timeout` does, which tells the program and then the program's group.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let dir = Dir::with_sample();
    let (mut child, stdin) = start(&dir, "--stats json");
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid, &pid, &pid]).status().unwrap().success());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143), "{err}");
    assert!(err.contains("\"interrupted\":true"), "{err}");
    drop(stdin);
}

#[test]
fn it_stops_with_complete_rows_a_report_and_status_130() {
    let dir = Dir::with_sample();
    let (mut child, stdin) = start(&dir, "--stats json");
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut rows = String::new();
    out.read_line(&mut rows).unwrap();
    out.read_line(&mut rows).unwrap();
    interrupt(&child);
    out.read_to_string(&mut rows).unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{err}");
    drop(stdin);
    assert_eq!(rows.lines().count(), 2, "{rows}");
    assert!(rows.ends_with('\n'), "{rows}");
    assert!(err.contains("Ctrl-C"), "{err}");
    let report = err.lines().find(|line| line.starts_with('{')).expect("a report");
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    assert_eq!(report["interrupted"], true);
    assert_eq!(report["pairs"], 1);
}

#[test]
fn a_run_that_still_waits_for_its_first_rows_leaves_a_report() {
    let dir = Dir::with_sample();
    let args = format!("{JOIN} --stats json --stats-output report.json --output out.csv");
    let mut child = dir.spawn(&args);
    let stdin = child.stdin.take().unwrap();
    // It says so when it waits, and by then it catches signals.
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut err = String::new();
    said.read_line(&mut err).unwrap();
    assert!(err.contains("waiting for the first rows of standard input"), "{err}");
    interrupt(&child);
    said.read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{err}");
    drop(stdin);
    assert!(err.contains("stopped by Ctrl-C before each input had its first row"), "{err}");
    let report: serde_json::Value = serde_json::from_str(&dir.read("report.json")).unwrap();
    assert_eq!((&report["interrupted"], &report["left_rows"]), (&true.into(), &0.into()));
    assert!(!dir.path("out.csv").exists());
}

#[test]
fn a_termination_is_reported_as_one() {
    let dir = Dir::with_sample();
    let (mut child, stdin) = start(&dir, "--stats text");
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut rows = String::new();
    out.read_line(&mut rows).unwrap();
    out.read_line(&mut rows).unwrap();
    signal(&child, "-TERM");
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143), "{err}");
    drop(stdin);
    assert!(err.contains("stopped by SIGTERM") && !err.contains("Ctrl-C"), "{err}");
}

/// What was measured before Ctrl-C is printed and drawn.
#[test]
#[cfg(target_os = "linux")]
fn a_stopped_bench_shows_what_it_has_measured() {
    let dir = Dir::new();
    let batches: Vec<String> = (1..=100).map(|batch| (20 + batch).to_string()).collect();
    let bench = format!(
        "bench --workload w2 --events 20000 --api join --batch {} --plot plot.svg",
        batches.join(",")
    );
    let stopped = |child: Child, what: &str| {
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{err}");
        assert!(err.contains("stopped by Ctrl-C: ") && err.contains(" of 100 config"), "{err}");
        let plot = dir.read("plot.svg");
        assert!(plot.contains("<rect") && plot.ends_with("</svg>\n"), "{what}: {plot}");
        assert!(plot.contains(">stopped by Ctrl-C: "), "the picture says so, too: {plot}");
        std::fs::remove_file(dir.path("plot.svg")).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let mut child = dir.spawn(&format!("{bench} --output-format json"));
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    assert!(first.contains("\"stopped\":false"), "{first}");
    interrupt(&child);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    stopped(child, "json");
    // The last row may have fewer repeats, and says so.
    assert!(rest.lines().count() < 90 && rest.matches("\"stopped\":true").count() <= 1, "{rest}");
    // A table comes in the end only: after a second of CPU time some rows of it are there.
    let mut child = dir.spawn(&bench);
    let cpu_ticks = |child: &Child| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let fields = stat.rsplit(')').next().unwrap().split_whitespace();
        fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
    };
    while cpu_ticks(&child) < 100 {
        assert!(child.try_wait().unwrap().is_none(), "it has ended by itself");
        std::thread::yield_now();
    }
    let table = stopped(child, "table");
    assert!(table.starts_with("workload ") && table.lines().count() > 1, "{table}");
}

/// A chain may multiply its rows beyond all bounds: it says so before, and does not run to its end.
#[test]
fn a_chain_under_way_is_given_up() {
    let dir = Dir::new();
    let bench = "bench --workload w3b --events 20000 --chain 0,2 --repeat 1 --cores 1 --check \
                 --output-format json";
    let mut child = dir.spawn(bench);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let (mut row, mut err) = (String::new(), String::new());
    out.read_line(&mut row).unwrap();
    assert!(row.contains("\"chain\":0,"), "{row}");
    said.read_line(&mut err).unwrap();
    assert!(err.starts_with("warning: w3b: --chain 2: a left event with m matches"), "{err}");
    assert!(err.contains(" times as many"), "{err}");
    interrupt(&child);
    said.read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{err}");
    assert!(err.contains("stopped by Ctrl-C: 1 of 2 configurations were measured whole"), "{err}");
    row.clear();
    out.read_to_string(&mut row).unwrap();
    assert_eq!(row, "");
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_is_to_be_ignored_is() {
    let dir = Dir::with_sample();
    let bin = env!("CARGO_BIN_EXE_intervale");
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("trap '' INT; exec {bin} {JOIN} --stats none")]);
    let pipe = std::process::Stdio::piped;
    shell.current_dir(dir.path("")).stdin(pipe()).stdout(pipe()).stderr(pipe());
    let mut child = shell.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"order_id,amount,ts\no001,1,1704103200000\n").unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut rows = String::new();
    out.read_line(&mut rows).unwrap();
    out.read_line(&mut rows).unwrap();
    // The run is at work, so whatever it catches it catches by now.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    assert_eq!(ignored & 0b10, 0b10, "SIGINT is ignored: {ignored:x}");
    interrupt(&child);
    stdin.write_all(b"o002,1,1704103205000\n").unwrap();
    drop(stdin);
    out.read_to_string(&mut rows).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(rows.lines().count(), 3, "{rows}");
}

#[test]
fn a_file_that_is_not_complete_keeps_its_rows_under_another_name() {
    let dir = Dir::with_sample();
    dir.write("out.csv", "old\n");
    // Rows that are late tell that the order has been read and joined.
    let (child, stdin) = start(&dir, "--output out.csv --progress always");
    let err = stop_after_the_first_pair(child);
    drop(stdin);
    assert!(err.contains("out.csv.partial"), "{err}");
    assert_eq!(dir.read("out.csv"), "old\n");
    let partial = dir.read("out.csv.partial");
    assert_eq!(partial.lines().count(), 2, "{partial}");
    assert!(partial.ends_with('\n'));
}

/// Late rows need no place among others: those that were found are written.
#[test]
fn late_rows_of_a_stopped_run_are_written() {
    let dir = Dir::with_sample();
    let late = format!("{}o9,1.0,SUCCESS,1704000000000\n", dir.read("payments.csv"));
    dir.write("payments.csv", late);
    let (child, stdin) =
        start(&dir, "--deterministic --late-output late.csv --stats json --progress always");
    stop_after_the_first_pair(child);
    drop(stdin);
    let kept = dir.read("late.csv.partial");
    assert_eq!(kept.lines().filter(|line| line.starts_with("right,")).count(), 1, "{kept}");
}

/// Rows that might still be preceded by others are not written, and the report adds up.
#[test]
fn rows_that_were_sorted_in_vain_are_counted() {
    let dir = Dir::with_sample();
    let (child, stdin) = start(&dir, "--deterministic --stats json --progress always");
    let err = stop_after_the_first_pair(child);
    drop(stdin);
    assert!(err.contains("the 0 rows written are complete; 1 more that were found"), "{err}");
    let report = err.lines().find(|line| line.starts_with('{')).expect("a report");
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("pairs"), count("rows_out") + count("rows_not_written"), "{report}");
    assert_eq!(count("rows_not_written"), 1, "{report}");
}

#[test]
fn a_join_of_more_streams_stops_with_complete_rows_and_a_report_of_all_stages() {
    let dir = Dir::with_sample();
    dir.write("parcels.csv", "order_id,parcel,ts\no001,p1,1704103210000\n");
    let then = "--then parcels.csv --then-on order_id --then-between 0..1h --then-time ts \
                --then-anchor left --progress always --stats json --stats-output report.json \
                --output rows.csv";
    let (child, stdin) = start(&dir, then);
    let err = stop_after_the_first_pair(child);
    drop(stdin);
    assert!(err.contains("the 1 rows written are complete"), "{err}");
    assert_eq!(dir.read("rows.csv.partial").lines().count(), 2);
    let report: serde_json::Value = serde_json::from_str(&dir.read("report.json")).unwrap();
    assert_eq!(
        (&report["interrupted"], report["stages"].as_array().unwrap().len()),
        (&true.into(), 2)
    );
}
