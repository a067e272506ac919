//! JSON Lines: which fields there are, and rows that are none.

use crate::support::{Dir, number, sorted_rows};

const T: i64 = 1_700_000_000_000;

const JOIN: &str = "--left l.jsonl --right r.csv --on id --left-time ts --right-time ts \
                    --between -10ms..10ms";

/// A right file with keys `a` and `b`.
fn dir(left: &str) -> Dir {
    let dir = Dir::new();
    dir.write("l.jsonl", left.replace("TS", &T.to_string()));
    dir.write("r.csv", format!("id,ts\na,{T}\nb,{T}\n"));
    dir
}

#[test]
fn a_first_line_that_is_no_object_is_a_bad_row_like_any_other() {
    for first in ["oops", "[1]", "{\"id\":", "null"] {
        let dir = dir(&format!("{first}\n{{\"id\":\"a\",\"ts\":TS}}\n{first}\n"));
        dir.run(&format!("join {JOIN}")).fails(1, &["l.jsonl, line 1", "no JSON object"]);
        let (out, report) = dir.join(&format!("{JOIN} --bad-rows skip"));
        assert_eq!(out, format!("id,ts,id_right,ts_right\na,{T},a,{T}\n"), "{first}");
        assert_eq!((number(&report, "left_rows"), number(&report, "left_bad")), (3, 2), "{first}");
    }
    let dir = dir("oops\n");
    let (_, report) = dir.join(&format!("{JOIN} --bad-rows skip"));
    assert_eq!(number(&report, "left_bad"), 1, "a file of bad rows only");
}

#[test]
fn a_name_that_no_row_has_is_refused_with_the_fields_there_are() {
    let dir = dir("{\"id\":\"a\",\"n\":1}\n{\"id\":\"b\",\"ts\":TS,\"amount\":1}\n");
    let join = |from: &str, to: &str| format!("join {}", JOIN.replace(from, to));
    dir.run(&join("--on id", "--on idd=id")).fails(
        2,
        &[
            "--on: l.jsonl: no field \"idd\" in its first 2 rows",
            "id, n, ts, amount",
            "--left-columns",
        ],
    );
    dir.run(&join("--on id", "--on amuont=id")).fails(2, &["did you mean \"amount\"?"]);
    dir.run(&join("--left-time ts", "--left-time time"))
        .fails(2, &["--left-time: l.jsonl", "\"time\""]);
    dir.write("r.jsonl", "{}\n");
    dir.run(&join("r.csv", "r.jsonl")).fails(2, &["--on: r.jsonl", "\"id\"", "first row"]);
    // A file without rows lacks nothing, and one file of a side with the field is enough.
    dir.write("empty.jsonl", "\n").write("none.jsonl", format!("{{\"ts\":{T}}}\n"));
    dir.run(&join("l.jsonl", "empty.jsonl")).ok();
    dir.run(&join("l.jsonl", "none.jsonl")).fails(2, &["--on"]);
    dir.run(&join("--left l.jsonl", "--left none.jsonl --left l.jsonl --bad-rows skip")).ok();
}

#[test]
fn a_stream_may_bring_the_field_later_and_one_that_never_does_is_told() {
    let dir = dir("");
    let join = format!("join {} --left-format jsonl --stats none", JOIN.replace("l.jsonl", "-"));
    let rows = format!("{{\"x\":1,\"ts\":{T}}}\n").repeat(2);
    let ran = dir.run_with_input(&join, rows.as_bytes()).ok();
    assert!(ran.err.contains("warning: --on: standard input: no field \"id\""), "{}", ran.err);
    assert!(ran.err.contains("no left row has a key"), "{}", ran.err);
    dir.write("l.csv", format!("id,ts\n,{T}\n,{T}\n"));
    let ran = dir.run(&format!("join {}", JOIN.replace("l.jsonl", "l.csv"))).ok();
    assert!(ran.err.contains("no left row has a key"), "{}", ran.err);
}

#[test]
fn columns_are_the_fields_of_the_first_rows_in_their_order() {
    let dir = dir("{\"id\":\"a\",\"ts\":TS}\n{\"n\":1,\"id\":\"b\",\"ts\":TS,\"m\":null}\n");
    let (out, _) = dir.join(JOIN);
    assert_eq!(out.lines().next(), Some("id,ts,n,m,id_right,ts_right"));
    assert_eq!(sorted_rows(&out), [format!("a,{T},,,a,{T}"), format!("b,{T},1,,b,{T}")]);
}

#[test]
fn fields_that_come_too_late_for_a_column_are_named() {
    let mut left: String = (0..1500).map(|i| format!("{{\"id\":\"n{i}\",\"ts\":TS}}\n")).collect();
    left.push_str("{\"id\":\"a\",\"ts\":TS,\"extra\":7}\n{\"id\":\"b\",\"ts\":TS,\"extra\":8}\n");
    let dir = dir(&left);
    let ran = dir.run(&format!("join {JOIN}")).ok();
    assert!(!ran.out.contains("extra"), "{}", ran.out);
    assert!(
        ran.err.contains("left \"extra\" (2 times, first in l.jsonl, line 1501)"),
        "{}",
        ran.err
    );
    let ran = dir.run(&format!("join {JOIN} --output-format jsonl")).ok();
    assert!(ran.out.contains("\"extra\":7") && ran.out.contains("\"extra\":8"), "{}", ran.out);
    assert!(!ran.err.contains("extra"), "{}", ran.err);
    let ran = dir.run(&format!("join {JOIN} --left-columns id,ts,extra")).ok();
    assert!(ran.out.contains(&format!("a,{T},7,a,{T}")), "{}", ran.out);
}

#[test]
fn a_key_that_is_half_of_a_surrogate_pair_is_a_bad_row() {
    let dir = dir("{\"id\":\"a\",\"ts\":TS}\n{\"id\":\"\\ud800\",\"ts\":TS}\n");
    dir.run(&format!("join {JOIN}"))
        .fails(1, &["line 2, column \"id\"", "half of a surrogate pair", r#"{"id":"\ud800""#]);
    let (_, report) = dir.join(&format!("{JOIN} --bad-rows skip"));
    assert_eq!((number(&report, "left_bad"), number(&report, "pairs")), (1, 1));
}

#[test]
fn of_a_name_that_comes_twice_the_last_counts() {
    let dir = dir("{\"id\":\"x\",\"ts\":1,\"n\":1,\"id\":\"a\",\"ts\":TS,\"n\":2}\n");
    let (out, _) = dir.join(JOIN);
    assert_eq!(out, format!("id,ts,n,id_right,ts_right\na,{T},2,a,{T}\n"));
}

#[test]
fn a_bad_row_is_shown_as_it_stands_in_the_file() {
    let dir = dir("{\"id\":\"a\",\"ts\":\"\\\"soon\\\"\"}\n");
    dir.run(&format!("join {JOIN}")).fails(1, &[r#"the row is: {"id":"a","ts":"\"soon\""};"#]);
    dir.write("l.jsonl", format!("\t{{\"id\":[\"{}\"]}}\n", "x".repeat(300)));
    let ran = dir
        .run(&format!("join {} --left-columns id,ts", JOIN))
        .fails(1, &[r#"the row is: \t{"id":["xxx"#]);
    assert!(ran.err.contains("xxx...;"), "{}", ran.err);
}
