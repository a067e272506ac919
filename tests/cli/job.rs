//! `intervale run`: jobs in files.

use crate::support::{Dir, sorted_rows};

const JOB: &str = "\
left = \"orders.csv\"
right = [\"payments.csv\"]
on = \"order_id\"
left-time = \"ts\"
right-time = \"ts\"
between = \"-5m..5m\"
out-of-orderness = \"5s\"
cores = 1
stats = \"none\"

[[then]]
file = \"parcels.csv\"
on = \"right.order_id=order_id\"
between = \"0..1d\"
time = \"ts\"
anchor = \"right\"
";

const JOIN: &str = "join --left orders.csv --right payments.csv --on order_id --left-time ts \
     --right-time ts --between -5m..5m --out-of-orderness 5s --stats none";
const THEN: &str = "--then parcels.csv --then-on right.order_id=order_id --then-between 0..1d \
     --then-time ts --then-anchor right";

fn dir() -> Dir {
    let dir = Dir::with_sample();
    std::fs::copy(crate::support::data("parcels.csv"), dir.path("parcels.csv")).unwrap();
    dir.write("job.toml", JOB);
    dir
}

#[test]
fn a_job_does_what_the_command_line_does() {
    let dir = dir();
    let typed = dir.run(&format!("{JOIN} {THEN}")).ok();
    let run = dir.run("run job.toml").ok();
    assert_eq!(sorted_rows(&run.out), sorted_rows(&typed.out));
    assert_eq!(sorted_rows(&run.out).len(), 3, "{}", run.out);
    assert_eq!(run.out.lines().next(), typed.out.lines().next());
    dir.write("two.toml", JOB.split("[[then]]").next().unwrap());
    let two = dir.run("run two.toml").ok();
    assert_eq!(sorted_rows(&two.out), sorted_rows(&dir.run(JOIN).ok().out));
}

#[test]
fn options_behind_the_job_take_the_place_of_its_own() {
    let dir = dir();
    dir.run("run job.toml --output out.csv --cores 2 --between 0..0").ok();
    assert_eq!(dir.read("out.csv").lines().count(), 1);
    dir.run("run job.toml --help").ok();
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let dir = dir();
    for (from, to, words) in [
        ("left =", "lift =", &["job.toml, line 1: ", "did you mean `left`"][..]),
        ("-5m..5m", "5m..-5m", &["job.toml, line 6: ", "--between"]),
        ("cores = 1", "cores = \"none\"", &["job.toml, line 8: ", "--cores"]),
        ("cores = 1", "runtime = \"tokio\"", &["job.toml, line 8: ", "--runtime"]),
        ("left-time = \"ts\"", "", &["job.toml: ", "--left-time"]),
        ("0..1d", "soon", &["job.toml, line 14: ", "--then-between"]),
        (
            "anchor = \"right\"",
            "anchor = \"wrong\"",
            &["line 16: ", "--then-anchor", "left, right"],
        ),
        ("time = \"ts\"\na", "a", &["job.toml, line 12: ", "--then-time"]),
        ("file", "fiel", &["job.toml, line 12: ", "--then-fiel"]),
        ("cores = 1", "cores = ", &["job.toml, line 8: "]),
    ] {
        dir.write("job.toml", JOB.replacen(from, to, 1));
        dir.run("run job.toml").fails(2, words);
    }
    // What was typed is not blamed on the job.
    dir.write("job.toml", JOB);
    for (option, word) in
        [("--cores none", "--cores"), ("--between soon", "--between"), ("--bogus", "--bogus")]
    {
        let ran = dir.run(&format!("run job.toml {option}")).fails(2, &[word]);
        assert!(!ran.err.contains("job.toml, line"), "{}", ran.err);
    }
    dir.run("run none.toml").fails(1, &["none.toml", "cannot read"]);
}
