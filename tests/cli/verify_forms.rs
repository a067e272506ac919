//! `intervale verify` of every form of join: what the join writes is what the reference finds.

use serde_json::Value;

use crate::support::{Dir, number};
use crate::then::{streams, write};

const SIDES: &str = "--left s0.csv --right s1.csv --on a --left-time t --right-time t \
                     --out-of-orderness 60ms --time-format ms";

/// Joins, and has the result verified to the row; then with a row less and a row too many.
fn check(dir: &Dir, form: &str) {
    for machine in ["--cores 2", "--deterministic"] {
        dir.run(&format!("join {SIDES} {form} {machine} --output out.csv --stats none")).ok();
        // In `verify` --strict is about the result.
        let form = form.replace("ms --strict", "ms --asof-strict");
        let verify = format!("verify {SIDES} {form} --json --result");
        let ran = dir.run(&format!("{verify} out.csv --strict --min-match-rate 1")).ok();
        let report: Value = serde_json::from_str(&ran.out).expect("a JSON object");
        let found = number(&report, "found");
        assert!(found > 10, "{form}: {report}");
        let out = dir.read("out.csv");
        let (rest, last) = out.trim_end().rsplit_once('\n').expect("rows");
        dir.write("less.csv", rest).write("more.csv", format!("{rest}\n{last}\n{last}\n"));
        for (file, missing, extra) in [("less.csv", 1, 0), ("more.csv", 0, 1)] {
            let ran = dir.run(&format!("{verify} {file}")).ok();
            let report: Value = serde_json::from_str(&ran.out).expect("a JSON object");
            let counts = (number(&report, "missing"), number(&report, "extra"));
            assert_eq!(counts, (missing, extra), "{form}, {file}: {report}");
            dir.run(&format!("{verify} {file} --strict")).fails(1, &["are too many"]);
        }
    }
}

#[test]
fn two_streams_in_every_form() {
    let dir = Dir::new();
    write(&dir, &streams(2, 150));
    for form in [
        "--between -40ms..60ms",
        "--between -40ms..60ms --type full",
        "--between -40ms..60ms --type semi",
        "--between -40ms..60ms --type anti",
        "--between -40ms..60ms --match last --type left",
        "--between -40ms..60ms --match nearest",
        "--asof backward --tolerance 60ms --type left",
        "--asof forward --tolerance 60ms",
        "--asof nearest --tolerance 40ms --strict",
        "--window tumble:80ms --type full",
        "--window hop:100ms,40ms --type right",
        "--window session:15ms --type left",
    ] {
        check(&dir, form);
    }
    let one = format!("verify {SIDES} --between 0..1s --match one-to-one --result out.csv");
    dir.run(&one).fails(2, &["--match one-to-one", "arrival"]);
}

#[test]
fn more_streams_with_stages_in_every_form() {
    let dir = Dir::new();
    write(&dir, &streams(4, 100));
    let then = "--then s2.csv --then-on b_right=a --then-time t --then-anchor right";
    for (first, stage) in [
        ("--between -40ms..60ms --where id<>'s0r7'", "--then-between 0..80ms"),
        ("--between -40ms..60ms", "--then-between 0..80ms --then-type full"),
        ("--between -40ms..60ms --type full", "--then-between -50ms..80ms --then-type right"),
        ("--window tumble:80ms --type left", "--then-between -20ms..40ms --then-match nearest"),
        ("--asof backward --tolerance 60ms --type left", "--then-window tumble:60ms"),
        ("--between -40ms..60ms", "--then-window hop:60ms,20ms --then-type left"),
        ("--between -40ms..60ms", "--then-asof backward --then-tolerance 50ms --then-type left"),
        ("--between 0..60ms", "--then-asof nearest --then-tolerance 30ms --then-strict"),
        ("--between -40ms..60ms", "--then-between 0..1s --then-where id_then1>id"),
    ] {
        check(&dir, &format!("{first} {then} {stage}"));
    }
    // A session window is the last stage, or all behind it stay on one side of it.
    let third = "--then s3.csv --then-on a=a --then-between 0..90ms --then-time t --then-anchor";
    let session = "--between -40ms..60ms";
    let stage = "--then-window session:10ms";
    check(&dir, &format!("{session} {then} {stage}"));
    check(&dir, &format!("{session} {then} {stage} {third} left"));
    let then1 = format!("join {SIDES} --window session:10ms {then} --then-between 0..1s");
    dir.run(&then1).ok();
    let both = format!("{then1} {third} left").replace("--then-anchor right", "--then-anchor left");
    dir.run(&both).ok();
    dir.run(&format!("{then1} {third} left")).fails(2, &["--then-anchor", "session window"]);
}
