//! `--match`: one match of a left row.

use crate::support::{Dir, ids_of_pairs, number};

const JOIN: &str =
    "--left l.csv --right r.csv --on k --left-time t --right-time t --time-format ms";

/// Two left rows with matches, one without.
fn dir() -> Dir {
    let dir = Dir::new();
    dir.write("l.csv", "k,t,id\na,100,l1\nb,100,l2\na,130,l3\nb,900,l4\n");
    dir.write(
        "r.csv",
        "k,t,id\na,95,r1\na,98,r2\nb,104,r3\nb,96,r4\na,104,r5\na,125,r6\na,134,r7\n",
    );
    dir
}

/// `left+right` of each row.
fn pairs(dir: &Dir, options: &str) -> Vec<String> {
    let join = format!("{JOIN} --between -10ms..10ms --out-of-orderness 1s {options}");
    ids_of_pairs(&dir.rows(&join))
}

#[test]
fn one_match_a_left_row() {
    let dir = dir();
    for (choice, expected) in [
        ("first", ["l1+r1", "l2+r4", "l3+r6"]),
        ("last", ["l1+r5", "l2+r3", "l3+r7"]),
        // r3 and r4 are as near as each other: the earlier wins.
        ("nearest", ["l1+r2", "l2+r4", "l3+r7"]),
    ] {
        for machine in ["--cores 1", "--cores 2", "--deterministic", "--runtime threads"] {
            let found = pairs(&dir, &format!("--match {choice} {machine}"));
            assert_eq!(found, expected, "{choice} {machine}");
        }
        let padded = pairs(&dir, &format!("--match {choice} --type left"));
        let mut all = expected.map(str::to_owned).to_vec();
        all.push("l4+".to_owned());
        assert_eq!(padded, all, "{choice}, padded");
    }
    assert_eq!(pairs(&dir, "--match all").len(), 7);
    assert_eq!(pairs(&dir, "--match last --type semi"), ["l1+", "l2+", "l3+"]);
    assert_eq!(pairs(&dir, "--match last --type anti"), ["l4+"]);
}

#[test]
fn each_row_in_one_pair() {
    let dir = dir();
    dir.write("l.csv", "k,t,id\na,100,l1\na,101,l2\na,140,l3\nb,1,l4\n");
    dir.write("r.csv", "k,t,id\na,104,r1\na,99,r2\na,103,r3\nb,90,r4\n");
    // By time of the pair: l1+r2 at 100, l2+r3 at 103; nothing is left for r1.
    let expected = ["l1+r2", "l2+r3"];
    for machine in ["--cores 1", "--cores 2", "--deterministic"] {
        assert_eq!(pairs(&dir, &format!("--match one-to-one {machine}")), expected, "{machine}");
    }
    assert_eq!(pairs(&dir, "--match one-to-one --type semi"), ["l1+", "l2+"]);
    assert_eq!(pairs(&dir, "--match one-to-one --type anti"), ["l3+", "l4+"]);
    let all = pairs(&dir, "--match one-to-one --type full");
    assert_eq!(all, ["+r1", "+r4", "l1+r2", "l2+r3", "l3+", "l4+"]);
}

#[test]
fn the_report_counts_the_pairs_that_came_out() {
    let options = format!("{JOIN} --between -10ms..10ms --match first --out-of-orderness 1s");
    let (_, report) = dir().join(&options);
    assert_eq!(number(&report, "pairs"), 3);
    assert_eq!(number(&report, "rows_out"), 3);
    assert_eq!(number(&report, "left_matched"), 3);
    assert_eq!(number(&report, "left_unmatched"), 1);
}

#[test]
fn a_choice_is_for_left_rows() {
    let dir = dir();
    for kind in ["right", "full"] {
        let args = format!("join {JOIN} --between 0..1s --match first --type {kind}");
        dir.run(&args).fails(2, &["--match", "--type inner, left", "swap the sides"]);
    }
    dir.run(&format!("join {JOIN} --between 0..1s --match best")).fails(2, &["best", "nearest"]);
}

/// Right rows count as matched whether they were chosen or not, but for one-to-one, where a row
/// that is not in a pair has none.
#[test]
fn the_counts_of_right_rows_are_of_all_that_could_be_chosen() {
    let dir = Dir::new();
    dir.write("l.csv", "k,ts,id\na,1704103200000,1\nb,1704103200000,2\n");
    let rights =
        "k,ts,id\na,1704103200000,1\na,1704103201000,2\na,1704103202000,3\nc,1704103202000,4\n";
    dir.write("r.csv", rights);
    for (choice, pairs, matched) in
        [("all", 3, 3), ("first", 1, 3), ("last", 1, 3), ("nearest", 1, 3), ("one-to-one", 1, 1)]
    {
        for cores in [1, 2] {
            let (_, report) = dir.join(&format!(
                "--left l.csv --right r.csv --on k --left-time ts --right-time ts --between 0..5s \
                 --match {choice} --cores {cores}"
            ));
            let count = |name| number(&report, name);
            assert_eq!((count("pairs"), count("left_matched")), (pairs, 1), "{choice}: {report}");
            let right = (count("right_matched"), count("right_unmatched"));
            assert_eq!(right, (matched, 4 - matched), "{choice}: {report}");
        }
    }
}
