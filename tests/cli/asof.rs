//! `--asof`: each left row with the right row that stood then.

use crate::support::{Dir, ids_of_pairs, number};

const JOIN: &str = "--left trades.csv --right quotes.csv --on sym --left-time t --right-time t \
     --time-format ms --out-of-orderness 1s";

fn dir() -> Dir {
    let dir = Dir::new();
    dir.write("trades.csv", "sym,t,id\nx,100,t1\nx,110,t2\ny,100,t3\nx,50,t4\n");
    dir.write("quotes.csv", "sym,t,id\nx,90,q1\nx,110,q2\nx,113,q3\ny,70,q4\nx,99,q5\n");
    dir
}

/// `trade+quote` of each row.
fn pairs(dir: &Dir, options: &str) -> Vec<String> {
    ids_of_pairs(&dir.rows(&format!("{JOIN} {options}")))
}

#[test]
fn one_right_row_a_left_row() {
    let dir = dir();
    for (options, expected) in [
        ("--asof backward --tolerance 20ms", vec!["t1+q5", "t2+q2"]),
        ("--asof backward --tolerance 20ms --strict", vec!["t1+q5", "t2+q5"]),
        ("--asof backward --tolerance 1s", vec!["t1+q5", "t2+q2", "t3+q4"]),
        ("--asof backward --tolerance 0", vec!["t2+q2"]),
        ("--asof forward --tolerance 20ms", vec!["t1+q2", "t2+q2"]),
        ("--asof forward --tolerance 20ms --strict", vec!["t1+q2", "t2+q3"]),
        ("--asof forward --tolerance 1h", vec!["t1+q2", "t2+q2", "t4+q1"]),
        ("--asof nearest --tolerance 5ms", vec!["t1+q5", "t2+q2"]),
        ("--asof nearest --tolerance 20ms --strict", vec!["t1+q5", "t2+q3"]),
        ("--asof backward --tolerance 20ms --type left", vec!["t1+q5", "t2+q2", "t3+", "t4+"]),
        ("--asof backward --tolerance 20ms --type anti", vec!["t3+", "t4+"]),
        ("--asof backward --tolerance 20ms --type semi", vec!["t1+", "t2+"]),
    ] {
        for machine in ["--cores 1", "--cores 2", "--deterministic"] {
            assert_eq!(pairs(&dir, &format!("{options} {machine}")), expected, "{options}");
        }
    }
}

#[test]
fn the_report_adds_up() {
    let (_, report) = dir().join(&format!("{JOIN} --asof backward --tolerance 20ms"));
    assert_eq!(number(&report, "pairs"), 2);
    assert_eq!(number(&report, "left_unmatched"), 2);
}

#[test]
fn wrong_use_names_the_option() {
    let dir = dir();
    for (options, words) in [
        ("--asof backward", vec!["--tolerance", "like 5m"]),
        ("--asof back --tolerance 1s", vec!["back", "backward"]),
        ("--asof backward --tolerance -1s", vec!["--tolerance", "negative"]),
        ("--asof backward --tolerance 1s --between 0..1s", vec!["--asof", "--between"]),
        ("--asof backward --tolerance 1s --match last", vec!["--asof", "--match"]),
        ("--between 0..1s --tolerance 1s", vec!["--tolerance", "--asof"]),
        ("--between 0..1s --strict", vec!["--strict", "--asof"]),
        ("--asof forward --tolerance 1s --type full", vec!["--asof", "--type inner"]),
        ("--asof nearest --tolerance 1s --strict --type anti", vec!["--strict", "inner and left"]),
        ("--asof nearest --tolerance 0 --strict", vec!["--tolerance", "more than 0"]),
        ("--asof backward --tolerance 0 --strict", vec!["--tolerance", "more than 0"]),
        ("", vec!["--between"]),
    ] {
        dir.run(&format!("join {JOIN} {options}")).fails(2, &words);
    }
}
