//! Buffered state: its bound, who waits for whom, and when rows count as late.

use std::fmt::Write as _;

use super::support::{Dir, number, sorted_rows};

/// Eight files of the left side that follow each other in time, 2000 rows of 20 ms each, and one
/// file of the right side over all of that time. Each left row has its partner 10 ms later.
fn files_one_after_the_other() -> Dir {
    let dir = Dir::new();
    let mut right = "key,ts\n".to_owned();
    for file in 0..8 {
        let mut left = "key,ts\n".to_owned();
        for row in 0..2_000 {
            let number = file * 2_000 + row;
            let ts = 1_704_103_200_000_i64 + number * 20;
            writeln!(left, "k{number},{ts}").unwrap();
            writeln!(right, "k{number},{}", ts + 10).unwrap();
        }
        dir.write(&format!("left{file}.csv"), left);
    }
    dir.write("right.csv", right);
    dir
}

fn join_of_eight(options: &str) -> String {
    let left: String = (0..8).map(|file| format!("--left left{file}.csv ")).collect();
    format!(
        "join {left} --right right.csv --on key --left-time ts --right-time ts --between 0..1s \
         --out-of-orderness 1s --runtime threads {options}"
    )
}

/// Files that are ahead wait when state nears its bound, so what the join needs fits.
#[test]
fn inputs_that_are_ahead_wait_where_fail_would_fail() {
    let dir = files_one_after_the_other();
    let free = sorted_rows(&dir.run(&join_of_eight("--cores 1")).ok().out);
    assert_eq!(free.len(), 16_000, "every row has one partner");
    for cores in [1, 2, 8] {
        let bound = |policy| {
            join_of_eight(&format!("--cores {cores} --max-state 1000KiB --on-full {policy}"))
        };
        let words = ["--max-state allows 1000.0 KiB", "--on-full block"];
        dir.run(&bound("fail")).fails(1, &words);
        let waited = dir.run(&bound("block")).ok();
        assert_eq!(sorted_rows(&waited.out), free, "{cores} cores");
    }
}

/// A bound on rows does what one on bytes does.
#[test]
fn rows_are_bounded_by_their_number_as_well() {
    let dir = files_one_after_the_other();
    let free = sorted_rows(&dir.run(&join_of_eight("--cores 1")).ok().out);
    for cores in [1, 2] {
        let bound = |more| {
            let report = "--stats json --stats-output report.json";
            join_of_eight(&format!("--cores {cores} --max-rows 5_000 {report} {more}"))
        };
        let words = ["--max-rows allows 5,000", "--on-full block"];
        dir.run(&bound("--on-full fail")).fails(1, &words);
        assert_eq!(sorted_rows(&dir.run(&bound("")).ok().out), free, "{cores} cores");
        let report = serde_json::from_str(&dir.read("report.json")).unwrap();
        let peak = number(&report, "state_rows_peak");
        assert!((400..=5_000).contains(&peak), "{peak}");
        let words = ["need at least ", "--max-rows allows 5,000", "a lower bound"];
        dir.run(&bound("--right-out-of-orderness 1h")).fails(1, &words);
    }
    for (wrong, why) in [("0", "leaves no room"), ("few", "a whole number")] {
        dir.run(&join_of_eight(&format!("--max-rows {wrong}"))).fails(2, &["--max-rows", why]);
    }
}

/// What is given up is counted, missed and warned of; what is left is joined as ever.
#[test]
fn the_oldest_rows_are_given_up_where_that_was_asked_for() {
    let dir = files_one_after_the_other();
    let all = sorted_rows(&dir.run(&join_of_eight("--cores 1")).ok().out);
    for (cores, bound) in [(1, "--max-rows 3000"), (2, "--max-state 600KiB")] {
        // The join would need all rows.
        let needs_all = join_of_eight(&format!(
            "--cores {cores} {bound} --on-full shed --right-out-of-orderness 1h --stats json \
             --stats-output report.json"
        ));
        let ran = dir.run(&needs_all).ok();
        assert!(ran.err.contains("the result is incomplete"), "{}", ran.err);
        let report = serde_json::from_str(&dir.read("report.json")).unwrap();
        let count = |name: &str| number(&report, name);
        assert!(count("left_shed") + count("right_shed") > 10_000, "{report}");
        assert!(count("left_shed_unmatched") <= count("left_shed"), "{report}");
        assert_eq!(count("left_rows"), count("left_matched") + count("left_unmatched"));
        let rows = sorted_rows(&ran.out);
        assert!(rows.iter().all(|row| all.contains(row)), "{} rows", rows.len());
        assert_eq!(rows.len() as u64, count("pairs"));
    }
    for other in ["--match first", "--type left --match nearest"] {
        let words = ["--on-full shed", "all matches"];
        dir.run(&join_of_eight(&format!("{other} --on-full shed"))).fails(2, &words);
    }
}

/// What does not fit is said, and nothing hangs.
#[test]
fn a_bound_below_what_the_join_needs_ends_the_run() {
    let dir = files_one_after_the_other();
    for cores in [1, 2, 8] {
        let needs_all = join_of_eight(&format!(
            "--cores {cores} --max-state 1000KiB --on-full block --right-out-of-orderness 1h"
        ));
        let ran = dir.run(&needs_all);
        let told = [
            "need at least ",
            "--max-state allows 1000.0 KiB",
            "a lower bound",
            "--out-of-orderness",
        ];
        ran.fails(1, &told);
    }
}

/// The report's peak of a join of 200,000 dense rows with 100 that are spread over their time.
#[test]
fn a_dense_file_does_not_pile_up_beside_a_sparse_one() {
    let dir = Dir::new();
    let (mut dense, mut sparse) = ("key,ts\n".to_owned(), "key,ts\n".to_owned());
    for row in 0..200_000 {
        writeln!(dense, "k{},{}", row % 500, 1_704_103_200_000_i64 + row * 10).unwrap();
        if row % 2_000 == 0 {
            writeln!(sparse, "k{},{}", row % 500, 1_704_103_200_000_i64 + row * 10).unwrap();
        }
    }
    dir.write("dense.csv", dense).write("sparse.csv", sparse);
    for (left, right) in [("dense", "sparse"), ("sparse", "dense")] {
        for cores in [1, 2, 8] {
            let (_, report) = dir.join(&format!(
                "--left {left}.csv --right {right}.csv --on key --left-time ts --right-time ts \
                 --between -1s..1s --out-of-orderness 1s --runtime threads --cores {cores}"
            ));
            // 3 s of rows are needed, and some thousand may be on their way.
            let peak = number(&report, "state_rows_peak");
            assert!((300..20_000).contains(&peak), "{left}, {cores} cores: {peak}");
        }
    }
}

/// Most rows in state are about the same however many cores there are.
#[test]
fn cores_do_not_add_to_state() {
    let dir = Dir::new();
    for (name, lag) in [("left", 0), ("right", 40)] {
        let mut rows = "key,ts\n".to_owned();
        for row in 0..60_000 {
            writeln!(rows, "k{row},{}", 1_704_103_200_000_i64 + row * 5 + lag).unwrap();
        }
        dir.write(&format!("{name}.csv"), rows);
    }
    for cores in [1, 2, 8] {
        let (_, report) = dir.join(&format!(
            "--left left.csv --right right.csv --on key --left-time ts --right-time ts \
             --between 0..5s --out-of-orderness 5s --runtime threads --cores {cores}"
        ));
        assert_eq!(report["pairs"], 60_000);
        assert_eq!((&report["left_late"], &report["right_late"]), (&0.into(), &0.into()));
        // 10 s and 5 s of rows at 200 a second and side are needed.
        let peak = number(&report, "state_rows_peak");
        assert!((3_000..14_000).contains(&peak), "{cores} cores: {peak}");
    }
}

/// Watermarks move with every few hundred rows, and of small files more often.
#[test]
fn a_small_file_sees_its_late_rows() {
    let dir = Dir::new();
    let mut rows = "key,ts\n".to_owned();
    for row in 0..100 {
        writeln!(rows, "k,{}", 1_704_103_200_000_i64 + row * 1_000).unwrap();
    }
    rows.push_str("k,1704103200000\n");
    dir.write("left.csv", &rows).write("right.csv", &rows);
    // On one core, so that it is known how far the sides are when the row comes.
    let (_, report) = dir.join(
        "--left left.csv --right right.csv --on key --left-time ts --right-time ts \
         --between 0..1s --out-of-orderness 5s --runtime threads --cores 1",
    );
    assert_eq!(["left_late", "right_late"].map(|name| number(&report, name)), [1, 1]);
}

/// Results are the same, however buckets and chunks are chosen, and what cannot be is told.
#[test]
fn the_layout_of_state_changes_no_row() {
    let dir = files_one_after_the_other();
    let full = "--type full --cores 2";
    let plain = sorted_rows(&dir.run(&join_of_eight(full)).ok().out);
    assert_eq!(plain.len(), 16_000);
    let peak = |options: &str| {
        let args = format!("{full} {options} --stats json --stats-output report.json");
        let rows = sorted_rows(&dir.run(&join_of_eight(&args)).ok().out);
        assert!(rows == plain, "{options}: {} rows", rows.len());
        number(&serde_json::from_str(&dir.read("report.json")).unwrap(), "state_bytes_peak")
    };
    let small = peak("--bucket-width auto --chunk auto");
    peak("--bucket-width 1us");
    peak("--bucket-width 52w");
    // At least two buckets a side on each of two cores.
    let large = peak("--bucket-width 2s --chunk 1MiB");
    assert!(large > 4 << 20 && small < large / 2, "{small} {large}");
    dir.write("p.toml", "bucket-width = \"2s\"\nchunk = \"1MiB\"\n");
    assert!(peak("--profile p.toml") > 4 << 20);
    let small_bound = "--max-state 32MiB --profile p.toml";
    dir.run(&join_of_eight(small_bound)).fails(2, &["--chunk", "32.0 KiB", "p.toml, line 2"]);
    dir.run(&join_of_eight("--chunk 48MiB")).fails(2, &["--chunk", "1KiB to 32MiB"]);
    dir.run(&join_of_eight("--bucket-width -1s")).fails(2, &["--bucket-width", "negative"]);
    // Windows have neither.
    let window = join_of_eight("--window tumble:1s").replace("--between 0..1s", "");
    let rows = sorted_rows(&dir.run(&window).ok().out);
    let given = dir.run(&format!("{window} --bucket-width 5s --chunk 64k")).ok().out;
    assert_eq!(sorted_rows(&given), rows);
}
