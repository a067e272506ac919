//! Rows that are late, bad or without a key: counted, written where asked, never lost.

use std::io::Write;
use std::sync::mpsc::RecvTimeoutError::Disconnected;
use std::time::Duration;

use crate::support::{Dir, number};

const T: i64 = 1_700_000_000_000;

const JOIN: &str = "--left l.csv --right r.csv --on id --left-time ts --right-time ts \
                    --between -1s..1s";

/// A left file whose third row is late by 4 s at no disorder, and a right file to match all.
fn late_dir() -> Dir {
    let dir = Dir::new();
    let rows = |ids: &[(&str, i64)]| {
        let lines = ids.iter().map(|(id, after)| format!("{id},{}\n", T + after));
        format!("id,ts\n{}", lines.collect::<String>())
    };
    dir.write("l.csv", rows(&[("a", 0), ("b", 5_000), ("c", 1_000), ("d", 6_000)]));
    dir.write("r.csv", rows(&[("a", 0), ("c", 1_000), ("b", 5_000), ("d", 6_000)]));
    dir
}

#[test]
fn late_rows_are_dropped_and_counted() {
    let dir = late_dir();
    let (_, report) = dir.join(&format!("{JOIN} --deterministic"));
    assert_eq!(number(&report, "left_late"), 1);
    assert_eq!(number(&report, "pairs"), 3);
    assert_eq!(report["late_rate"], 0.125);
    let (_, report) = dir.join(&format!("{JOIN} --deterministic --out-of-orderness 4s"));
    assert_eq!(number(&report, "left_late"), 0);
    assert_eq!(number(&report, "pairs"), 4);
}

#[test]
fn allowed_lateness_is_to_the_tick() {
    let dir = late_dir();
    for (allowed, late) in [("3999ms", 1), ("4s", 0)] {
        let (_, report) = dir.join(&format!("{JOIN} --deterministic --allowed-lateness {allowed}"));
        assert_eq!(number(&report, "left_late"), late, "{allowed}");
        assert_eq!(number(&report, "pairs"), 4 - late, "{allowed}");
    }
    let (_, report) = dir.join(&format!("{JOIN} --deterministic --left-out-of-orderness 4s"));
    assert_eq!(number(&report, "left_late"), 0);
}

#[test]
fn late_rows_end_the_run_when_asked() {
    let dir = late_dir();
    let ran = dir.run(&format!("join {JOIN} --deterministic --late fail --output out.csv"));
    ran.fails(1, &["late", "--out-of-orderness"]);
    assert!(!dir.names().contains(&"out.csv".to_owned()), "{:?}", dir.names());
}

#[test]
fn late_rows_are_written_with_their_side() {
    let dir = late_dir();
    let (_, report) = dir.join(&format!("{JOIN} --deterministic --late-output late.csv"));
    assert_eq!(number(&report, "left_late"), 1);
    let late = T + 1_000;
    assert_eq!(
        dir.read("late.csv"),
        format!("side,lag_ms,id,ts,id_right,ts_right\nleft,4000,c,{late},,\n")
    );
    dir.join(&format!("{JOIN} --deterministic --late-output late.jsonl --output-format jsonl"));
    let row: serde_json::Value = serde_json::from_str(&dir.read("late.jsonl")).unwrap();
    assert_eq!(row["side"], "left");
    assert_eq!(row["id"], "c");
    assert_eq!(row["lag_ms"], 4000);
    let both = format!("join {JOIN} --late fail --late-output late.csv");
    dir.run(&both).fails(2, &["--late fail", "--late-output"]);
}

#[test]
fn a_late_row_of_an_outer_join_is_not_padded() {
    let dir = late_dir();
    let (out, report) =
        dir.join(&format!("{JOIN} --deterministic --type left --late-output late.csv"));
    assert_eq!(number(&report, "rows_out"), 3, "{out}");
    assert!(!out.contains("\nc,"), "{out}");
}

#[test]
fn bad_rows_end_the_run_or_are_skipped_and_written() {
    let dir = Dir::new();
    dir.write("l.csv", format!("id,ts\na,{T}\nb,soon\nc\n,{T}\n\"d,{T}\n"));
    dir.write("r.csv", format!("id,ts\na,{T}\nb,{T}\n"));
    let fail = format!("join {JOIN} --output out.csv");
    dir.run(&fail).fails(1, &["l.csv", "line 3", "\"ts\"", "soon"]);
    assert_eq!(dir.names(), ["l.csv", "r.csv"], "no half output is left behind");
    let (_, report) = dir.join(&format!("{JOIN} --bad-rows skip"));
    assert_eq!(number(&report, "left_bad"), 3);
    assert_eq!(number(&report, "left_null_key"), 1);
    assert_eq!(number(&report, "left_rows"), 5);
    assert_eq!(number(&report, "pairs"), 1);
    let (_, report) = dir.join(&format!("{JOIN} --bad-rows-output bad.csv"));
    assert_eq!(number(&report, "left_bad"), 3);
    let bad = dir.read("bad.csv");
    assert!(bad.starts_with("side,file,line,column,reason,row\n"), "{bad}");
    assert!(bad.contains("left,l.csv,3,") && bad.contains("\"b,soon\""), "{bad}");
    assert!(bad.contains("left,l.csv,4,"), "{bad}");
}

#[test]
fn rows_without_a_key_match_nothing_and_are_padded_by_outer_joins() {
    let dir = Dir::new();
    dir.write("l.csv", format!("id,ts\n,{T}\na,{T}\n")).write("r.csv", format!("id,ts\n,{T}\n"));
    let (out, report) = dir.join(&format!("{JOIN} --type full"));
    let rows = crate::support::sorted_rows(&out);
    assert_eq!(rows, [format!(",,,{T}"), format!(",{T},,"), format!("a,{T},,")]);
    assert_eq!(number(&report, "left_null_key"), 1);
    assert_eq!(number(&report, "right_null_key"), 1);
    assert_eq!(number(&report, "pairs"), 0);
}

#[test]
fn case_36_one_wrong_time_far_ahead_does_not_make_the_rest_late() {
    let dir = Dir::new();
    let rows = |wrong: bool| {
        let mut text = "id,ts\n".to_owned();
        for i in 0..2_000_i64 {
            // A century ahead.
            let ahead = if wrong && i == 700 { 3_155_760_000_000 } else { 0 };
            text += &format!("k{i},{}\n", T + i * 10 + ahead);
        }
        text
    };
    dir.write("l.csv", rows(true)).write("r.csv", rows(false));
    for machine in ["", "--deterministic", "--cores 1"] {
        let (_, report) = dir.join(&format!("{JOIN} --out-of-orderness 1s {machine}"));
        assert!(number(&report, "left_late") > 0 || machine != "--deterministic", "{report}");
        let (_, report) =
            dir.join(&format!("{JOIN} --out-of-orderness 1s {machine} --max-jump 1s"));
        assert_eq!(number(&report, "pairs"), 1_999, "{report}");
        assert_eq!(number(&report, "left_jumped"), 1);
        assert_eq!(number(&report, "right_jumped") + number(&report, "left_late"), 0);
    }
    dir.run(&format!("join {JOIN} --max-jump 0")).fails(2, &["--max-jump", "more than 0"]);
    dir.run(&format!("join {JOIN} --max-jump 5x")).fails(2, &["--max-jump", "5x"]);
}

#[test]
fn a_state_that_is_full_fails_when_asked_and_says_so() {
    let dir = Dir::new();
    let rows: String = (0..20_000).map(|i| format!("k{i},{}\n", T + i)).collect();
    dir.write("l.csv", format!("id,ts\n{rows}")).write("r.csv", format!("id,ts\n{rows}"));
    let join = "join --left l.csv --right r.csv --on id --left-time ts --right-time ts \
                --between -1h..1h --max-state 64KiB";
    // Nothing is freed within the hour, so waiting would be for ever: that is said, too.
    for policy in ["fail", "block"] {
        dir.run(&format!("{join} --on-full {policy}")).fails(1, &["--max-state", "64.0 KiB"]);
    }
}

#[test]
fn case_22_a_missing_time_is_a_bad_row() {
    let dir = Dir::new();
    let rows = format!("{{\"id\":1,\"ts\":null}}\n{{\"id\":1}}\n{{\"id\":1,\"ts\":{T}}}\n");
    dir.write("l.jsonl", rows).write("r.csv", format!("id,ts\n1,{T}\n"));
    let join = JOIN.replace("l.csv", "l.jsonl");
    dir.run(&format!("join {join}")).fails(1, &["l.jsonl, line 1", "it has no time"]);
    dir.write("r.csv", format!("id,ts\n1,{T}\n1,\n"));
    let (_, report) = dir.join(&format!("{join} --bad-rows skip"));
    assert_eq!(number(&report, "left_bad"), 2);
    assert_eq!(number(&report, "right_bad"), 1);
    assert_eq!(number(&report, "pairs"), 1, "the number 1 is the text 1");
}

#[test]
fn rows_of_several_files_that_are_bad_are_found_in_their_file() {
    let dir = Dir::new();
    dir.write("l1.csv", format!("id,ts\na,{T}\n")).write("l2.csv", format!("id,ts\na,{T}\nb\n"));
    dir.write("r.csv", format!("id,ts\na,{T}\n"));
    let join = JOIN.replace("--left l.csv", "--left l1.csv --left l2.csv");
    let (_, report) = dir.join(&format!("{join} --bad-rows-output bad.jsonl"));
    assert_eq!(number(&report, "left_bad"), 1);
    let row: serde_json::Value = serde_json::from_str(&dir.read("bad.jsonl")).unwrap();
    assert_eq!(
        (&row["file"], &row["line"], &row["row"]),
        (&"l2.csv".into(), &3.into(), &"b".into())
    );
}

#[test]
#[cfg(unix)]
fn a_silent_source_stops_holding_the_watermark_back() {
    for row in ["", "y,1704103200000\n"] {
        silent_after(row);
    }
}

/// Of two right inputs one has its header, that row, and then nothing.
#[cfg(unix)]
fn silent_after(row: &str) {
    let dir = Dir::new();
    dir.write("l.csv", format!("id,ts\na,{T}\n"));
    let made = std::process::Command::new("mkfifo").arg(dir.path("r.csv")).status().unwrap();
    assert!(made.success());
    let mut child = dir.spawn(
        "join --left l.csv --right r.csv --right - --on id --left-time ts --right-time ts \
         --between 0..5m --type left --idle-timeout 100ms --stats none",
    );
    let mut busy = std::fs::OpenOptions::new().write(true).open(dir.path("r.csv")).unwrap();
    let mut silent = child.stdin.take().unwrap();
    silent.write_all(format!("id,ts\n{row}").as_bytes()).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    // A row every few milliseconds, an hour further on: were it silent, too, nobody could say that
    // time goes on.
    let writer = std::thread::spawn(move || {
        busy.write_all(b"id,ts\n").unwrap();
        for hour in 0.. {
            busy.write_all(format!("x,{}\n", T + hour * 3_600_000).as_bytes()).unwrap();
            if stopped.recv_timeout(Duration::from_millis(10)) == Err(Disconnected) {
                return;
            }
        }
    });
    let lines = crate::support::Lines::of(child.stdout.take().unwrap());
    assert_eq!(lines.next().as_deref(), Some("id,ts,id_right,ts_right"));
    assert_eq!(lines.next(), Some(format!("a,{T},,")), "both right inputs are still open");
    drop((silent, stop));
    writer.join().unwrap();
    assert_eq!(lines.next(), None);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// What a join that found nothing says at its end; its result and status are what they were.
fn hint(dir: &Dir, args: &str) -> Option<String> {
    let ran = dir.run(&format!("join {JOIN} {args}")).ok();
    assert_eq!(ran.out.lines().count(), 1 + ran.out.lines().skip(1).count(), "{}", ran.out);
    let hint = ran.err.lines().find_map(|line| line.strip_prefix("warning: nothing matched"));
    hint.map(str::to_owned)
}

#[test]
fn a_join_that_finds_nothing_says_what_to_look_at() {
    let dir = Dir::new();
    let file = |name: &str, ids: &str, time: &dyn Fn(i64) -> i64| {
        let lines = ids.chars().zip(0..).map(|(id, row)| format!("{id},{}\n", T + time(row)));
        dir.write(name, format!("id,ts\n{}", lines.collect::<String>()));
    };
    let up = |row: i64| row * 100;
    file("l.csv", "abcdefgh", &up);
    file("r.csv", "abcdefgh", &up);
    assert_eq!(hint(&dir, ""), None, "there are pairs");
    // Times that only go down, as those of a wrong column may: the rest is late.
    file("r.csv", "stuvwxyz", &|row| 1_000_000 - row * 10_000);
    let told = hint(&dir, "--deterministic").expect("a hint");
    assert!(told.contains("look at --on") || told.contains("Look at --on"), "{told}");
    file("l.csv", "abcdefgh", &|row| 1_000_000 - row * 10_000);
    let told = hint(&dir, "--deterministic").expect("a hint");
    for word in ["most rows were late: 7 of 8 left rows (time ts)", "--time-format", "calibrate"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    // Keys that never occur on the other side.
    file("l.csv", "abcdefgh", &up);
    file("r.csv", "stuvwxyz", &up);
    let told = hint(&dir, "").expect("a hint");
    for word in ["of 8 left and 8 right rows", "no two have the same key (left id, right id)"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    // What has no match is what is asked for; and of nothing there is nothing to find.
    assert_eq!(hint(&dir, "--type anti"), None);
    assert!(hint(&dir, "--type left").is_some());
    file("r.csv", "", &up);
    assert_eq!(hint(&dir, ""), None);
    file("r.csv", "abcdefgh", &up);
    let told = hint(&dir, "--where id>id_right").expect("a hint");
    assert!(told.contains("--where refused every pair"), "{told}");
}
