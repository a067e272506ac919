//! `--rules`: another interval or condition from a stated time on.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

use crate::support::{Dir, Lines, Ran, sorted_rows};

const JOIN: &str = "join --left l.csv --right r.csv --on k --left-time t --right-time t \
                    --time-format ms --between -50ms..50ms --out-of-orderness 1s --stats none";

/// (time, value), of one key.
fn events(seed: u64) -> Vec<(i64, u64)> {
    let mut state = seed;
    let mut next = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    (0..300).map(|number| (100_000 + 3 * number + next(20) as i64, next(10))).collect()
}

fn write(dir: &Dir, name: &str, events: &[(i64, u64)]) {
    let rows = events.iter().map(|(ts, value)| format!("a,{ts},{value}\n"));
    dir.write(name, format!("k,t,v\n{}", rows.collect::<String>()));
}

#[test]
fn every_pair_is_judged_by_the_rule_of_its_time() {
    let dir = Dir::new();
    let (left, right) = (events(1), events(2));
    write(&dir, "l.csv", &left);
    write(&dir, "r.csv", &right);
    dir.write(
        "rules.csv",
        "where,from,between\n\
         ,100200,0..10ms\n\
         v_right > v,100400,\n\
         \n\
         \"v IN (1, 2)\",100600,\"[-20ms,0)\"\n",
    );
    let is_pair = |(left, v): (i64, u64), (right, v_right): (i64, u64)| {
        let apart = right - left;
        match left.max(right) {
            ..100_200 => (-50..=50).contains(&apart) && v < 9,
            100_200..100_400 => (0..=10).contains(&apart) && v < 9,
            100_400..100_600 => (-50..=50).contains(&apart) && v_right > v,
            _ => (-20..0).contains(&apart) && (v == 1 || v == 2),
        }
    };
    let mut expected = Vec::new();
    for &l in &left {
        let partners = right.iter().filter(|&&r| is_pair(l, r));
        expected.extend(partners.map(|r| format!("a,{},{},a,{},{}", l.0, l.1, r.0, r.1)));
    }
    expected.sort();
    assert!(expected.len() > 1_000);
    for machine in ["--cores 1", "--cores 2 --runtime threads", "--deterministic --cores 8"] {
        let args = format!("{JOIN} {machine} --rules rules.csv");
        let ran = dir.command(&args).args(["--where", "v < 9"]).output().expect("the binary runs");
        assert_eq!(sorted_rows(&Ran::from(ran).ok().out), expected, "{machine}");
    }
}

#[test]
fn a_result_under_rules_is_verified() {
    let dir = Dir::new();
    write(&dir, "l.csv", &events(1));
    write(&dir, "r.csv", &events(2));
    dir.write("rules.csv", "from,between,where\n100200,0..10ms,\n100400,,\"v_right >\nv\"\n");
    dir.run(&format!("{JOIN} --rules rules.csv --output out.csv")).ok();
    let verify = JOIN.replace("join ", "verify ").replace("--stats none", "--result out.csv");
    dir.run(&format!("{verify} --rules rules.csv --strict --min-match-rate 1")).ok();
    dir.run(&format!("{verify} --strict")).fails(1, &["pairs are missing"]);
    // From standard input, as a file and as a pipe.
    let rules = std::fs::File::open(dir.path("rules.csv")).expect("the rules");
    let mut join = dir.command(&format!("{JOIN} --rules -"));
    let ran = Ran::from(join.stdin(rules).output().expect("the binary runs")).ok();
    assert_eq!(sorted_rows(&ran.out), sorted_rows(&dir.read("out.csv")));
    let rules = dir.read("rules.csv");
    let ran = dir.run_with_input(&format!("{JOIN} --rules -"), rules.as_bytes()).ok();
    assert_eq!(sorted_rows(&ran.out), sorted_rows(&dir.read("out.csv")));
    let both = JOIN.replace("l.csv", "-");
    dir.run(&format!("{both} --rules -")).fails(2, &["standard input", "the rules"]);
}

#[test]
fn one_process_may_write_the_rules_before_the_rows() {
    let dir = Dir::new();
    for pipe in ["rules", "l", "r"] {
        assert!(Command::new("mkfifo").arg(dir.path(pipe)).status().expect("mkfifo").success());
    }
    let args =
        JOIN.replace("l.csv", "l --left-format csv").replace("r.csv", "r --right-format csv");
    let join = dir.spawn(&format!("{args} --rules rules"));
    // Each pipe is written and closed before the next is opened.
    for (pipe, text) in [
        ("rules", "from,between\n100000,0..1ms\n"),
        ("l", "k,t,v\na,100000,1\n"),
        ("r", "k,t,v\na,100001,1\na,100002,2\n"),
    ] {
        std::fs::write(dir.path(pipe), text).expect("it is read");
    }
    let ended = Ran::from(join.wait_with_output().expect("it ends")).ok();
    assert_eq!(sorted_rows(&ended.out), ["a,100000,1,a,100001,1"]);
}

#[test]
fn what_is_wrong_with_a_rule_is_said_with_its_line() {
    let dir = Dir::new();
    write(&dir, "l.csv", &events(1));
    write(&dir, "r.csv", &events(2));
    for (rules, said) in [
        ("", "line 1: it is empty"),
        ("from\n", "line 1: give the column from, and between or where"),
        ("form,between\n", "line 1: there is no column \"form\"; the columns are from, between"),
        ("from,between,from\n", "line 1: there are two columns \"from\""),
        ("from,between\n\nsoon,0..1s\n", "line 3: "),
        ("from,between\n100,0..1s,more\n", "line 2: 3 cells where the header names 2"),
        ("from,between\n100,0..1s\n", "line 2: its interval is not within --between, -50ms..50ms"),
        ("from,between\n100,5ms..1ms\n", "line 2: between: "),
        ("from,where\n100,v <\n", "line 2: where: "),
        ("from,where\n\n100,\"v =\n1\"\n200,\"v\n", "line 5: a quote is open to the end"),
        ("from,where\n100,w = 1\n", "line 2: where: "),
        (
            "from,where\n200,v = 1\n100,v = 2\n",
            "line 3: its time is not later than that of the rule before it",
        ),
    ] {
        dir.write("rules.csv", rules);
        let ran = dir.run(&format!("{JOIN} --rules rules.csv"));
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{rules}: {}", ran.err);
        assert!(ran.err.contains(&format!("--rules rules.csv, {said}")), "{rules}: {}", ran.err);
    }
    let none = dir.run(&format!("{JOIN} --rules none.csv"));
    assert!(none.code == Some(1) && none.err.contains("--rules none.csv: "), "{}", none.err);
    let windows = JOIN.replace("--between -50ms..50ms", "--window tumble:1s");
    let ran = dir.run(&format!("{windows} --rules rules.csv"));
    assert!(ran.code == Some(2) && ran.err.contains("--rules goes with --between"), "{}", ran.err);
}

#[test]
fn a_rule_that_comes_too_late_to_be_exact_ends_the_run() {
    let dir = Dir::new();
    for pipe in ["rules", "l", "r"] {
        assert!(Command::new("mkfifo").arg(dir.path(pipe)).status().expect("mkfifo").success());
    }
    let args =
        JOIN.replace("l.csv", "l --left-format csv").replace("r.csv", "r --right-format csv");
    let mut join = dir.spawn(&format!("{args} --rules rules --linger 0s"));
    let open = |pipe: &str| OpenOptions::new().write(true).open(dir.path(pipe)).expect("a pipe");
    let (mut left, mut right) = (open("l"), open("r"));
    left.write_all(b"k,t,v\na,100000,1\n").expect("it is read");
    right.write_all(b"k,t,v\na,100001,1\n").expect("it is read");
    let mut rules = open("rules");
    // Together with the header: it holds of what comes next.
    rules.write_all(b"from,between\n100100,0..1ms\n").expect("it is read");
    left.write_all(b"a,100200,2\n").expect("it is read");
    right.write_all(b"a,100202,2\na,100201,3\n").expect("it is read");
    let rows = Lines::of(join.stdout.take().expect("piped"));
    let expected =
        ["k,t,v,k_right,t_right,v_right", "a,100000,1,a,100001,1", "a,100200,2,a,100201,3"];
    for row in expected {
        assert_eq!(rows.next().as_deref(), Some(row));
    }
    rules.write_all(b"100201,0..2ms\n").expect("it is read");
    let ended = Ran::from(join.wait_with_output().expect("it ends"));
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let said = "--rules rules, line 3: pairs at the rule's time may be out already; a rule can \
                start at 1970-01-01T00:01:40.203Z or later";
    assert!(ended.err.contains(said), "{}", ended.err);
}
