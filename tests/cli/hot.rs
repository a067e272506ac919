//! `--hot-keys`: keys that are split change nothing but where rows come out.

use serde_json::Value;

use crate::support::{Dir, number};

const FILES: &str = "--left l.csv --right r.csv --on key --left-time ts --right-time ts \
     --between -5s..5s --out-of-orderness 5s --cores 3";

fn dir(options: &str) -> Dir {
    let dir = Dir::new();
    dir.run(&format!("gen --left l.csv --right r.csv {options}")).ok();
    dir
}

#[test]
fn keys_that_are_split_by_force_give_the_same_bytes() {
    let dir = dir("--keys 30 --skew 1 --rate 20 --events 6000 --disorder 5s --late-share 2%");
    for rest in ["", "--type left", "--type right", "--type anti", "--match nearest"] {
        let run = |hot| dir.join(&format!("{FILES} --deterministic {rest} --hot-keys {hot}"));
        let ((whole, off), (split, force)) = (run("off"), run("force"));
        assert!(whole.lines().count() > 10, "{rest}");
        assert!(whole == split, "{rest}: the outputs differ");
        for name in ["left_rows", "right_rows", "pairs", "left_late", "right_late", "rows_out"] {
            assert_eq!(off[name], force[name], "{rest} {name}");
        }
        assert_eq!((number(&off, "hot_keys_split"), number(&off, "rows_copied")), (0, 0));
        assert!(number(&force, "hot_keys_split") > 2, "{force}");
        assert!(number(&force, "rows_copied") > 100, "{force}");
        // What is not known is not made up.
        let copied = if rest == "--type right" { "left" } else { "right" };
        assert!(number(&off, &format!("{copied}_matched")) > 0);
        if !rest.is_empty() {
            let matched = ["matched", "unmatched"].map(|name| &force[format!("{copied}_{name}")]);
            assert_eq!(matched, [&Value::Null; 2]);
        }
    }
}

#[test]
fn a_key_that_is_too_much_for_one_core_is_found_and_split() {
    let dir = dir("--workload w3b --events 300000");
    let run = |hot| {
        let (out, report) = dir.join(&format!("{FILES} --type semi --hot-keys {hot}"));
        let mut rows: Vec<String> = out.lines().map(str::to_owned).collect();
        rows.sort_unstable();
        (rows, report)
    };
    let ((whole, off), (split, auto)) = (run("off"), run("auto"));
    assert!(whole == split, "the outputs differ");
    assert_eq!(off["left_matched"], auto["left_matched"]);
    assert!((1..20).contains(&number(&auto, "hot_keys_split")), "{auto}");
    let copied = number(&auto, "rows_copied");
    assert!(copied > 5_000 && copied < 200_000, "{copied} copies");
    assert_eq!(number(&off, "rows_copied"), 0);
}

#[test]
fn what_cannot_be_split_by_force_says_why() {
    let dir = dir("--keys 30 --rate 20 --events 100");
    let cases = [
        ("--type full", "full join"),
        ("--match one-to-one", "one-to-one"),
        ("--on-full shed", "given up"),
    ];
    for (rest, word) in cases {
        let ran = dir.run(&format!("join {FILES} {rest} --hot-keys force"));
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains("--hot-keys force") && ran.err.contains(word), "{}", ran.err);
        dir.run(&format!("join {FILES} {rest} --hot-keys auto")).ok();
    }
}
