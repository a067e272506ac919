//! Bounds on buffered state beside blocking: `--ttl`, `--on-full spill`.

use std::io::Write as _;

use super::support::{Dir, Lines, number, sorted_rows};

const T: i64 = 1_704_103_200_000;

/// An order whose input falls silent gets its answer, and its payment comes too late.
#[test]
fn a_silent_input_gets_its_answer_after_the_time_to_live() {
    let dir = Dir::new();
    dir.write("right.csv", format!("k,ts,id\nother,{T},1\n"));
    for cores in [1, 2] {
        let mut child = dir.spawn(&format!(
            "join --left - --left-format csv --right right.csv --on k --left-time ts \
             --right-time ts --between 0..1h --type left --ttl 200ms --cores {cores} \
             --stats json --stats-output report.json"
        ));
        let mut stdin = child.stdin.take().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        write!(stdin, "k,ts,id\na,{T},1\nb,{T},2\n").unwrap();
        stdin.flush().unwrap();
        assert_eq!(lines.next().as_deref(), Some("k,ts,id,k_right,ts_right,id_right"));
        let mut rows = [lines.next().unwrap(), lines.next().unwrap()];
        rows.sort();
        assert_eq!(rows, [format!("a,{T},1,,,"), format!("b,{T},2,,,")]);
        drop(stdin);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let report = serde_json::from_str(&dir.read("report.json")).unwrap();
        assert_eq!(number(&report, "left_timed_out"), 2, "{report}");
        assert_eq!(number(&report, "left_unmatched"), 2, "{report}");
    }
}

/// What is the last payment nobody knows while one may still come, but the order is not kept for
/// ever.
#[test]
fn a_silent_input_gets_the_match_that_there_is_after_the_time_to_live() {
    let dir = Dir::new();
    dir.write("right.csv", format!("k,ts,id\na,{T},1\na,{},2\n", T + 5));
    for form in ["--between 0..1h --match last", "--asof forward --tolerance 1h"] {
        let mut child = dir.spawn(&format!(
            "join --left - --left-format csv --right right.csv --on k --left-time ts \
             --right-time ts {form} --type left --ttl 200ms --cores 2 --select id,id_right \
             --left-out-of-orderness 1h"
        ));
        let mut stdin = child.stdin.take().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        write!(stdin, "k,ts,id\na,{},1\nb,{T},2\n", T + 1).unwrap();
        stdin.flush().unwrap();
        assert_eq!(lines.next().as_deref(), Some("id,id_right"));
        let mut rows = [lines.next().unwrap(), lines.next().unwrap()];
        rows.sort();
        assert_eq!(rows, ["1,2", "2,"], "{form}");
        drop(stdin);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn what_a_time_to_live_does_not_go_with_is_told() {
    let dir = Dir::with_sample();
    let sample = "join --left orders.csv --right payments.csv --on order_id --left-time ts \
                  --right-time ts --between -5m..5m";
    for (options, words) in [
        ("--ttl 0", ["--ttl", "more than 0"]),
        ("--ttl soon", ["--ttl", "soon"]),
        ("--ttl 1h --deterministic", ["--ttl", "clock on the wall"]),
        ("--ttl 1h --match one-to-one", ["--ttl", "one to one wait"]),
        ("--on-full shed --match first", ["--on-full shed", "choose block, spill or fail"]),
    ] {
        dir.run(&format!("{sample} {options}")).fails(2, &words);
    }
    let window = sample.replace("--between -5m..5m", "--window tumble:5m");
    dir.run(&format!("{window} --ttl 1h")).fails(2, &["--ttl", "have their turn at its end"]);
    for choice in ["", "--match nearest", "--match first --type left"] {
        dir.run(&format!("{sample} --ttl 1h {choice}")).ok();
    }
}

/// Rows of many keys that all stay until the end of input, some of them long.
fn files() -> Dir {
    files_of(30_000)
}

fn files_of(rows: i64) -> Dir {
    let (count, dir) = (rows, Dir::new());
    for (name, step) in [("left", 7), ("right", 11)] {
        let mut rows = "key,ts,text\n".to_owned();
        for row in 0..count {
            let text = if row % 5 == 0 { "a text of forty bytes which is not short" } else { "x" };
            // A quarter of the keys are of the right side alone.
            let apart = if step == 11 && row % 4 == 0 { 50_000 } else { 0 };
            let key = row * step % 20_011 + apart;
            rows.push_str(&format!("k{key},{},{text}{row}\n", T + row * 10));
        }
        dir.write(&format!("{name}.csv"), rows);
    }
    dir
}

const JOIN: &str = "join --left left.csv --right right.csv --on key --left-time ts \
                    --right-time ts --between -10m..10m --stats json --stats-output report.json";

#[test]
fn rows_in_files_give_the_same_result() {
    let dir = files();
    for kind in ["inner", "semi", "full", "anti"] {
        let free = sorted_rows(&dir.run(&format!("{JOIN} --type {kind}")).ok().out);
        assert!(free.len() > 3_000, "{kind}: {}", free.len());
        dir.run(&format!("{JOIN} --type {kind} --max-state 1MiB")).fails(1, &["--max-state"]);
        for (cores, bound) in
            [(1, "--max-state 1MiB"), (2, "--max-state 1MiB"), (8, "--max-rows 9e3")]
        {
            let spills = format!("{JOIN} --type {kind} --cores {cores} {bound} --on-full spill");
            let rows = sorted_rows(&dir.run(&spills).ok().out);
            assert!(rows == free, "{kind}, {cores} cores: {} rows", rows.len());
            let report = serde_json::from_str(&dir.read("report.json")).unwrap();
            let count = |name| number(&report, name);
            assert!(count("left_spilled") > 5_000 && count("right_spilled") > 5_000, "{report}");
            assert!(bound.contains("rows") || count("state_bytes_peak") <= 1 << 20, "{report}");
        }
    }
}

/// Rows come out of files at their watermarks, where the order of all rows shows it.
#[test]
fn sorted_output_is_the_same_out_of_files() {
    let dir = files();
    let join = format!("{} --deterministic --type full", JOIN.replace("-10m..10m", "-20s..40s"));
    let free = dir.run(&join).ok().out;
    for cores in [1, 2] {
        let rows = dir.run(&format!("{join} --cores {cores} --max-rows 900 --on-full spill"));
        assert!(rows.ok().out == free, "{cores} cores");
        let report = serde_json::from_str(&dir.read("report.json")).unwrap();
        assert!(number(&report, "right_spilled") > 5_000, "{report}");
    }
}

#[test]
fn folders_of_files_are_looked_at_and_left_empty() {
    let dir = files();
    std::fs::create_dir(dir.path("cold")).unwrap();
    let spills = format!("{JOIN} --max-rows 5000 --on-full spill --spill-dir");
    dir.run(&format!("{spills} cold")).ok();
    assert_eq!(std::fs::read_dir(dir.path("cold")).unwrap().count(), 0, "nothing is left");
    dir.run(&format!("{spills} none")).fails(2, &["--spill-dir", "none", "no folder"]);
    dir.run(&format!("{JOIN} --spill-dir cold")).fails(2, &["--spill-dir", "--on-full spill"]);
}

/// Forms in which rows wait for their turn, of inner and outer joins.
const WAITING: [&str; 9] = [
    "--between -5s..30s --match first --type left",
    "--between -5s..30s --match last",
    "--between -5s..30s --match nearest --type left",
    "--between -5s..30s --match one-to-one --type full",
    "--asof backward --tolerance 1m --type left",
    "--asof nearest --tolerance 1m --strict",
    "--window tumble:1m --type full",
    "--window hop:1m,20s --type left",
    "--window session:4s --type full",
];

#[test]
fn rows_that_wait_their_turn_do_so_in_files() {
    let dir = files_of(8_000);
    // Sessions need rows of a key that follow each other.
    for side in ["left", "right"] {
        let rows = dir.read(&format!("{side}.csv"));
        let few = |line: &str| {
            let parts = line.strip_prefix('k').and_then(|rest| rest.split_once(','));
            match parts.and_then(|(key, rest)| Some((key.parse::<u64>().ok()?, rest))) {
                Some((key, rest)) => format!("k{},{rest}\n", key % 701),
                None => format!("{line}\n"),
            }
        };
        dir.write(&format!("{side}.csv"), rows.lines().map(few).collect::<String>());
    }
    for form in WAITING {
        let join = JOIN.replace("--between -10m..10m", form);
        let free = sorted_rows(&dir.run(&join).ok().out);
        assert!(free.len() > 500, "{form}: {} rows", free.len());
        let ordered = dir.run(&format!("{join} --deterministic")).ok().out;
        for (cores, bound) in [
            (1, "--max-rows 200"),
            (2, "--max-rows 300"),
            (8, "--max-rows 900"),
            (2, "--max-state 3MiB"),
        ] {
            if cores > 1 && form.contains("one-to-one") {
                // Which of a left and a right row came first depends on the cores.
                continue;
            }
            let spills = format!("{join} --cores {cores} {bound} --on-full spill");
            let rows = sorted_rows(&dir.run(&spills).ok().out);
            assert!(rows == free, "{form}, {cores} cores, {bound}: {} rows", rows.len());
            let report = serde_json::from_str(&dir.read("report.json")).unwrap();
            let count = |name: &str| number(&report, name);
            let is_spilled = count("left_spilled") + count("right_spilled") > 500;
            assert!(is_spilled || bound.contains("state"), "{form}: {report}");
            assert_eq!(count("left_matched") + count("left_unmatched"), 8_000, "{report}");
            assert!(count("left_spilled") <= count("left_rows"), "{report}");
            if cores == 2 {
                let rows = dir.run(&format!("{spills} --deterministic")).ok().out;
                assert!(rows == ordered, "{form}, {bound}");
            }
        }
    }
}

/// A time to live that nothing outlives changes nothing, and one that all rows do loses none of
/// them.
#[test]
fn rows_with_a_time_to_live_go_into_files() {
    let dir = files_of(8_000);
    let join = format!("{JOIN} --type left");
    let free = sorted_rows(&dir.run(&join).ok().out);
    for cores in [1, 2] {
        let spills = format!("{join} --cores {cores} --max-rows 900 --on-full spill --ttl");
        let rows = sorted_rows(&dir.run(&format!("{spills} 10h")).ok().out);
        assert!(rows == free, "{cores} cores: {} rows", rows.len());
        let few = sorted_rows(&dir.run(&format!("{spills} 1ms")).ok().out);
        let of_left = |rows: &[String]| {
            let left = rows.iter().filter_map(|row| row.split(',').nth(2)).map(str::to_owned);
            left.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(of_left(&few), of_left(&free), "each left row comes out");
        let report = serde_json::from_str(&dir.read("report.json")).unwrap();
        let count = |name: &str| number(&report, name);
        assert!(count("right_spilled") > 1_000 && count("right_timed_out") > 0, "{report}");
        assert_eq!(count("left_matched") + count("left_unmatched"), 8_000, "{report}");
    }
}

/// The same from a job file.
#[test]
fn a_job_says_that_windows_go_into_files() {
    let dir = files_of(2_000);
    let job = "left = \"left.csv\"\nright = \"right.csv\"\non = \"key\"\nleft-time = \"ts\"\n\
               right-time = \"ts\"\nwindow = \"tumble:5s\"\ntype = \"full\"\n";
    dir.write("free.toml", job);
    let spills = "max-rows = \"100\"\non-full = \"spill\"\nstats-output = \"report.json\"\n";
    dir.write("spills.toml", format!("{job}{spills}stats = \"json\"\n"));
    let free = sorted_rows(&dir.run("run free.toml").ok().out);
    assert_eq!(sorted_rows(&dir.run("run spills.toml").ok().out), free);
    let report = serde_json::from_str(&dir.read("report.json")).unwrap();
    assert!(number(&report, "left_spilled") > 1_000, "{report}");
}

/// Under bounds that are less than a batch for each core, cores make room together.
#[test]
fn no_bound_is_too_small_for_several_cores() {
    let dir = files_of(6_000);
    let join = JOIN.replace("10m", "5s");
    for kind in ["inner", "left", "right", "full", "semi", "anti"] {
        let join = format!("{join} --type {kind}");
        let free = sorted_rows(&dir.run(&join).ok().out);
        for (cores, bound) in
            [(1, "--max-rows 50"), (2, "--max-rows 100"), (8, "--max-rows 200"), (8, MIN_STATE)]
        {
            let rows = sorted_rows(
                &dir.run(&format!("{join} --cores {cores} {bound} --on-full spill")).ok().out,
            );
            assert!(rows == free, "{kind}, {cores} cores, {bound}: {} rows", rows.len());
            let report = serde_json::from_str(&dir.read("report.json")).unwrap();
            let count = |name: &str| number(&report, name);
            assert!(count("left_spilled") > 1_000, "{report}");
            assert!(count("left_spilled") <= count("left_rows"), "{report}");
            let shed = format!("{join} --cores {cores} {bound} --on-full shed");
            dir.run(&shed).ok();
            let report = serde_json::from_str(&dir.read("report.json")).unwrap();
            let count = |name: &str| number(&report, name);
            assert!(count("left_shed") > 1_000 && count("right_shed") > 0, "{report}");
            for side in ["left", "right"] {
                let sum = |parts: [&str; 2]| parts.map(|part| count(&format!("{side}_{part}")));
                assert_eq!(sum(["matched", "unmatched"]).iter().sum::<u64>(), 6_000, "{report}");
                let [shed, of_these] = sum(["shed", "shed_unmatched"]);
                assert!(of_these <= shed && shed <= 6_000, "{report}");
            }
        }
    }
}

/// Hardly more than eight cores take by themselves.
const MIN_STATE: &str = "--max-state 450KiB";

#[test]
fn stages_of_a_chain_make_room_together() {
    let dir = files_of(6_000);
    let join = format!(
        "{} --then right.csv --then-on left.key=key --then-between -20s..20s \
         --then-time ts --then-anchor left --type left --then-type left",
        JOIN.replace("10m", "5s")
    );
    let free = sorted_rows(&dir.run(&join).ok().out);
    for (cores, bound) in [(2, "--max-rows 1000"), (2, "--max-rows 30"), (8, "--max-state 900KiB")]
    {
        let spills = format!("{join} --cores {cores} {bound} --on-full spill");
        let rows = sorted_rows(&dir.run(&spills).ok().out);
        assert!(rows == free, "{cores} cores, {bound}: {} rows", rows.len());
    }
}

#[test]
fn a_run_that_nothing_can_save_says_what_takes_the_room() {
    let dir = files();
    for (policy, words) in [("spill", "all rows are in files"), ("shed", "all rows were given up")]
    {
        let run = format!("{JOIN} --cores 8 --max-state 150KiB --on-full {policy}");
        dir.run(&run).fails(1, &["--max-state allows 150.0 KiB", words, "fewer --cores"]);
    }
}

/// The program, with limits of the shell before it, and its messages.
#[cfg(target_os = "linux")]
fn under(dir: &Dir, limits: &str, args: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_intervale");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{limits}; exec {program} {args}")]).current_dir(dir.path(""));
    let ran = shell.stdout(std::process::Stdio::null()).output().unwrap();
    (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

/// 24 files a side on each core want more than a low limit on descriptors, which is raised where it
/// may be; where it may not, it is named, and what is needed.
#[test]
#[cfg(target_os = "linux")]
fn limits_of_the_shell_are_raised_or_named() {
    let dir = files_of(6_000);
    let join = JOIN.replace("10m", "1m");
    let spills = format!("{join} --cores 2 --runtime threads --max-rows 60 --on-full spill");
    let (code, told) = under(&dir, "ulimit -Sn 40", &spills);
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = under(&dir, "ulimit -n 40", &spills);
    assert_eq!(code, Some(1), "{told}");
    for words in ["Too many open files", "(ulimit -n)", "2 cores and 1 stages want ulimit -n 312"] {
        assert!(told.contains(words), "{told}");
    }
    // The shell counts in blocks of 512 bytes; the signal that comes with it would say nothing.
    let few = spills.replace("60", "3000").replace(STATS, "");
    let (code, told) = under(&dir, "ulimit -f 8", &few);
    assert_eq!(code, Some(1), "{told}");
    for words in [".spill", "cannot be written: File too large", "(ulimit -f)", "--spill-dir"] {
        assert!(told.contains(words), "{told}");
    }
    let (code, told) =
        under(&dir, "ulimit -f 8", &format!("{} --output o.csv", join.replace(STATS, "")));
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("o.csv") && told.contains("File too large"), "{told}");
}

const STATS: &str = "--stats json --stats-output report.json";

/// Memory that is taken before the first row is told, and is no more than the bound.
#[test]
fn what_is_reserved_is_in_the_report_and_within_the_bound() {
    let dir = files_of(500);
    for (cores, reserved) in [(1, 96), (2, 192)] {
        dir.run(&format!("{JOIN} --cores {cores} --reserve 1MiB")).ok();
        let report = serde_json::from_str(&dir.read("report.json")).unwrap();
        let told = number(&report, "state_bytes_reserved") >> 20;
        assert!((64 * cores..=reserved).contains(&told), "{report}");
        assert!(number(&report, "state_bytes_peak") < 16 << 20, "{report}");
    }
    let text = dir.run(&format!("{} --cores 1 --reserve 1MiB", JOIN.replace(STATS, ""))).ok().err;
    assert!(text.contains("state reserved  6"), "{text}");
    dir.run(&format!("{JOIN} --cores 1")).ok();
    let report = serde_json::from_str(&dir.read("report.json")).unwrap();
    assert_eq!(number(&report, "state_bytes_reserved"), 0);
    dir.run(&format!("{JOIN} --cores 2 --reserve 1MiB --max-state 100MiB"))
        .fails(2, &["--reserve takes", "on 2 cores", "--max-state allows 100.0 MiB"]);
}
