//! What the program says about itself.

use expect_test::{ExpectFile, expect, expect_file};

use crate::support::Dir;

fn help(args: &str, expected: ExpectFile) {
    let ran = Dir::new().run(args).ok();
    assert_eq!(ran.err, "");
    expected.assert_eq(&ran.out);
}

#[test]
fn help_texts() {
    help("--help", expect_file!["../data/help/intervale.txt"]);
    help("join --help", expect_file!["../data/help/join.txt"]);
    help("run --help", expect_file!["../data/help/run.txt"]);
    help("load --help", expect_file!["../data/help/load.txt"]);
    help("tune --help", expect_file!["../data/help/tune.txt"]);
    help("verify --help", expect_file!["../data/help/verify.txt"]);
    help("calibrate --help", expect_file!["../data/help/calibrate.txt"]);
    help("doctor --help", expect_file!["../data/help/doctor.txt"]);
    help("completions --help", expect_file!["../data/help/completions.txt"]);
}

#[test]
fn the_example_of_every_help_text_runs_as_it_stands() {
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_intervale")).parent().unwrap();
    let old = std::env::var("PATH").unwrap_or_default();
    let scratch = tempfile::tempdir().unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    let mut count = 0;
    for command in ["join", "run", "load", "tune", "verify", "calibrate", "doctor", "completions"] {
        let text = Dir::new().run(&format!("{command} --help")).ok().out;
        let examples = text.split("Example").nth(1).expect("an example");
        for example in examples.replace("\\\n", " ").lines() {
            let Some(line) = example.strip_prefix("  intervale ") else { continue };
            // Files are written where nobody minds; inputs are found from the clone.
            std::os::unix::fs::symlink(format!("{root}/tests"), scratch.path().join("tests")).ok();
            let output = std::process::Command::new("bash")
                .args(["-c", &format!("intervale {line}")])
                .current_dir(scratch.path())
                .env("PATH", format!("{}:{old}", bin.display()))
                .output()
                .unwrap();
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {err}");
            count += 1;
        }
    }
    assert_eq!(
        count, 21,
        "five of join, four of load, three of tune, one of verify and calibrate, two of run and \
         doctor, three more"
    );
}

#[test]
fn the_version_is_the_package_s() {
    let out = Dir::new().run("--version").ok().out;
    assert_eq!(out, format!("intervale {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_use_is_exit_status_2() {
    let dir = Dir::with_sample();
    let join = format!("join {} --between 0..1s", crate::sample::JOIN);
    dir.run("").fails(2, &["Usage: intervale <COMMAND>"]);
    dir.run("jion").fails(2, &["jion"]);
    dir.run("join").fails(2, &["--left", "--right", "--on", "--between"]);
    for option in ["--where x", "--select a", "--asof back", "--no-such-option"] {
        let name = option.split(' ').next().unwrap();
        dir.run(&format!("{join} {option}")).fails(2, &[name]);
    }
    for (option, word) in [
        ("--on-full wait", "wait"),
        ("--output-format parquet", "parquet"),
        ("--cores 0", "--cores"),
        ("--cores 9999", "--cores"),
        ("--cores x", "--cores"),
        ("--max-state lots", "--max-state"),
        ("--type outer", "outer"),
        ("--idle snore", "snore"),
        ("--runtime tokio", "tokio"),
        ("--simd mmx", "mmx"),
        ("--left-columns a,b", "--no-header"),
    ] {
        dir.run(&format!("{join} {option}")).fails(2, &[word]);
    }
    if cfg!(not(target_arch = "aarch64")) {
        dir.run(&format!("{join} --simd neon")).fails(2, &["neon"]);
    }
}

#[test]
fn an_unknown_option_is_said_so_and_the_nearest_is_offered() {
    let ran = Dir::with_sample().run("join --lefft orders.csv").fails(2, &[]);
    expect![[r#"
        error: unexpected argument '--lefft' found

          tip: a similar argument exists: '--left'

        Usage: intervale join --left <PATH> --right <PATH> --on <COL|LCOL=RCOL> --left-time <COL> --right-time <COL>

        For more information, try '--help'.
    "#]].assert_eq(&ran.err);
}
