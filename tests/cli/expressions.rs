//! `--where`, `--select`, and the types of columns.

use std::process::Stdio;

use crate::support::{Dir, Ran, sorted_rows};

const JOIN: &str = "join --left orders.csv --right payments.csv --on order_id --left-time ts \
                    --right-time ts --between -5m..5m --out-of-orderness 5s";

/// Runs with arguments split at blanks, and some that are not.
fn run(dir: &Dir, args: &str, more: &[&str]) -> Ran {
    Ran::from(dir.command(args).args(more).output().expect("the binary runs"))
}

/// The rows of a join, sorted, without the header.
fn rows(dir: &Dir, args: &str, more: &[&str]) -> Vec<String> {
    sorted_rows(&run(dir, args, more).ok().out)
}

#[test]
fn a_condition_leaves_pairs_out() {
    let dir = Dir::with_sample();
    for machine in ["--cores 1", "--cores 2", "--deterministic", "--runtime threads"] {
        let join = format!("{JOIN} {machine}");
        let paid = rows(&dir, &join, &["--where", "pay_amount >= amount AND status = 'SUCCESS'"]);
        let expected = [
            "o001,100.0,1704103200000,o001,100.0,SUCCESS,1704103180000",
            "o002,200.0,1704103205000,o002,200.0,SUCCESS,1704103208000",
        ];
        assert_eq!(paid, expected, "{machine}");
        let after = rows(&dir, &join, &["--where", "ts_right > ts AND ts_right - ts < '10s'"]);
        assert_eq!(after, [expected[1]], "{machine}");
    }
}

#[test]
fn a_condition_decides_what_is_matched() {
    let dir = Dir::with_sample();
    let success = ["--where", "right.status = 'SUCCESS'", "--select", "order_id, status"];
    for (kind, expected) in [
        ("inner", &["o001,SUCCESS", "o002,SUCCESS"][..]),
        ("left", &["o001,SUCCESS", "o002,SUCCESS", "o003,", "o004,"]),
        ("right", &[",PENDING", ",SUCCESS", "o001,SUCCESS", "o002,SUCCESS"]),
    ] {
        assert_eq!(rows(&dir, &format!("{JOIN} --type {kind}"), &success), expected, "{kind}");
    }
    let only_left = ["--where", "status = 'SUCCESS'", "--select", "order_id"];
    assert_eq!(rows(&dir, &format!("{JOIN} --type semi"), &only_left), ["o001", "o002"]);
    assert_eq!(rows(&dir, &format!("{JOIN} --type anti"), &only_left), ["o003", "o004"]);
    let report = run(&dir, &format!("{JOIN} --stats json"), &success).ok().err;
    for counted in ["\"pairs\":2", "\"left_matched\":2", "\"right_unmatched\":2"] {
        assert!(report.replace(": ", ":").contains(counted), "{report}");
    }
}

#[test]
fn choices_asof_and_windows_know_the_condition() {
    let dir = Dir::new();
    dir.write("l.csv", "k,t,v\na,100,5\n");
    dir.write("r.csv", "k,t,v\na,98,1\na,99,9\na,101,2\na,104,7\n");
    let join = "join --left l.csv --right r.csv --on k --left-time t --right-time t \
                --time-format ms --out-of-orderness 1s --select t_right --where v<v_right";
    for (form, expected) in [
        ("--between -10ms..10ms", &["104", "99"][..]),
        ("--between -10ms..10ms --match first", &["99"]),
        ("--between -10ms..10ms --match last", &["104"]),
        ("--between 0ms..10ms --match nearest", &["104"]),
        ("--between -10ms..10ms --match one-to-one", &["99"]),
        ("--asof backward --tolerance 10ms", &["99"]),
        ("--asof forward --tolerance 10ms", &["104"]),
        ("--window tumble:100ms", &["104"]),
        ("--window session:3ms", &["99"]),
    ] {
        assert_eq!(rows(&dir, &format!("{join} {form}"), &[]), expected, "{form}");
    }
}

#[test]
fn columns_are_chosen_made_and_renamed_in_every_format() {
    let dir = Dir::with_sample();
    let chosen = "order_id, amount - pay_amount AS rest, left.ts AS \"ordered at\", \
                  ts_right - ts AS took, status = 'SUCCESS' AS ok, lower(status) AS status";
    let options = format!("{JOIN} --type left --deterministic");
    let csv = run(&dir, &options, &["--select", chosen]).ok().out;
    assert_eq!(
        csv,
        "order_id,rest,ordered at,took,ok,status\n\
         o001,0,1704103200000,-20s,true,success\n\
         o002,0,1704103205000,3s,true,success\n\
         o004,,1704103215000,,,\n\
         o003,0,1704103210000,50s,false,pending\n"
    );
    let json = run(&dir, &format!("{options} --output-format jsonl"), &["--select", chosen]);
    assert_eq!(
        json.ok().out.lines().nth(2).expect("a third row"),
        "{\"order_id\":\"o004\",\"rest\":null,\"ordered at\":\"1704103215000\",\"took\":null,\
         \"ok\":null,\"status\":null}"
    );
    let tsv =
        run(&dir, &format!("{options} --output-format tsv"), &["--select", "right.*, amount"]);
    assert!(tsv.ok().out.starts_with("order_id_right\tpay_amount\tstatus\tts_right\tamount\n"));
    // What is chosen is the header that rows are appended below.
    let append = format!("{JOIN} --output out.csv --append");
    run(&dir, &append, &["--select", "order_id, amount"]).ok();
    run(&dir, &append, &["--select", "order_id, amount"]).ok();
    assert_eq!(dir.read("out.csv").lines().count(), 7);
    run(&dir, &append, &["--select", "amount"]).fails(2, &["--append", "`amount`"]);
}

#[test]
fn types_are_inferred_or_given_and_misfits_are_null_and_said() {
    let dir = Dir::new();
    dir.write("l.csv", "k,t,code,amount,paid\na,100,007,5,\nb,100,08,x,2024-01-01T00:00:00Z\n");
    dir.write("r.csv", "k,t\na,100\nb,100\n");
    let join = "join --left l.csv --right r.csv --on k --left-time t --right-time t \
                --time-format ms --between 0..0 --select k,code";
    let of = |more: &[&str]| rows(&dir, join, more);
    assert_eq!(of(&["--where", "code = '007'"]), ["a,007"]);
    assert_eq!(of(&["--where", "code < 9", "--left-types", "code:int"]), ["a,007", "b,08"]);
    assert_eq!(of(&["--where", "paid > '2023-01-01'"]), ["b,08"]);
    assert_eq!(of(&["--where", "epoch_ms(t) = 100"]), ["a,007", "b,08"]);
    assert_eq!(of(&["--where", "t = 100", "--left-types", "t:int"]), ["a,007", "b,08"]);
    let ran = run(&dir, join, &["--where", "amount > 1", "--left-types", "amount:float"]).ok();
    assert_eq!(sorted_rows(&ran.out), ["a,007"]);
    let said = "left.amount was once not a number, first \"x\", and counted as null there";
    assert!(ran.err.contains(said), "{}", ran.err);
    for (more, words) in [
        (&["--where", "amount > 1"][..], &["this is text (by its first rows"][..]),
        (&["--where", "true", "--left-types", "amount"], &["--left-types", "amount:float"]),
        (
            &["--where", "true", "--left-types", "amont:int"],
            &["--left-types", "did you mean \"amount\""],
        ),
    ] {
        run(&dir, join, more).fails(2, words);
    }
    let alone = "join --left l.csv --right r.csv --on k --left-time t --right-time t \
                 --between 0..0 --left-types t:int";
    run(&dir, alone, &[]).fails(2, &["--left-types", "--where", "--select"]);
}

#[test]
fn json_values_keep_their_types() {
    let dir = Dir::new();
    dir.write(
        "l.jsonl",
        "{\"k\":1,\"t\":100,\"v\":5,\"w\":\"5\",\"o\":{\"a\":1}}\n{\"k\":2,\"t\":100,\"v\":null}\n",
    );
    dir.write("r.jsonl", "{\"k\":1,\"t\":100,\"v\":5.0}\n{\"k\":2,\"t\":100,\"v\":1}\n");
    let join = "join --left l.jsonl --right r.jsonl --on k --left-time t --right-time t \
                --time-format ms --between 0..0 --output-format jsonl";
    let of = |text: &str| run(&dir, join, &["--where", text, "--select", "k, o, v + 1 AS n"]).ok();
    let first = "{\"k\":1,\"o\":{\"a\":1},\"n\":6}\n";
    assert_eq!(of("v = v_right").out, first);
    assert_eq!(of("w = '5' AND v IS NOT NULL").out, first);
    assert_eq!(of("v IS NULL").out, "{\"k\":2,\"o\":null,\"n\":null}\n");
    let mixed = of("w = 5");
    assert_eq!(mixed.out, "");
    assert!(mixed.err.contains("values of different types met once"), "{}", mixed.err);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let dir = Dir::with_sample();
    for (option, text, words) in [
        (
            "--where",
            "amout > 5",
            &["--where: at character 1", "did you mean \"amount\"", "^^^^^"][..],
        ),
        ("--where", "amount > ", &["a value is wanted, and the text ends"]),
        ("--where", "amount", &["a condition is wanted"]),
        ("--select", "order_id, nope", &["--select: at character 11", "\"nope\""]),
        ("--select", "order_id, order_id", &["two columns", "AS"]),
    ] {
        let ran = run(&dir, JOIN, &[option, text]).fails(2, words);
        assert_eq!(ran.out, "", "nothing is written");
    }
    let semi = format!("{JOIN} --type semi");
    run(&dir, &semi, &["--select", "status"]).fails(2, &["left rows"]);
}

#[test]
fn streams_and_files_of_a_side_are_all_looked_at_for_types() {
    let dir = Dir::new();
    dir.write("a.csv", "k,t,v\na,100,1\n").write("b.csv", "k,t,v\nb,100,x\n");
    dir.write("r.csv", "k,t\na,100\nb,100\n");
    let join = "join --left a.csv --left b.csv --right - --on k --left-time t --right-time t \
                --time-format ms --between 0..0 --select v --where";
    let mut command = dir.command(join);
    let mut child = command
        .arg("v = '1'")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut { stdin }, dir.read("r.csv").as_bytes()).expect("it reads");
    let ran = Ran::from(child.wait_with_output().expect("the binary ends")).ok();
    assert_eq!(ran.out, "v\n1\n");
}

#[test]
fn verify_knows_the_condition() {
    let dir = Dir::with_sample();
    let condition = ["--where", "status = 'SUCCESS'"];
    run(&dir, &format!("{JOIN} --output pairs.csv"), &condition).ok();
    run(&dir, &format!("{JOIN} --output all.csv"), &[]).ok();
    let verify = JOIN.replace("join ", "verify ");
    let good = run(&dir, &format!("{verify} --result pairs.csv --strict"), &condition).ok();
    assert!(good.out.contains("offline  2 pairs"), "{}", good.out);
    let bad = run(&dir, &format!("{verify} --result all.csv --strict"), &condition);
    assert_eq!(bad.code, Some(1));
    assert!(
        bad.out.contains("--where, or the rule of its time, does not hold of the two"),
        "{}",
        bad.out
    );
    run(&dir, &format!("{verify} --result pairs.csv --strict"), &[])
        .fails(1, &["1 pairs are missing"]);
}

/// The example in the README gives what stands below it.
#[test]
fn the_example_of_the_readme_runs() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README");
    let (_, section) = readme.split_once("### Conditions and columns").expect("its section");
    let mut blocks = section.split("```").skip(1).step_by(2);
    let mut block = |kind: &str| {
        let text = blocks.next().and_then(|text| text.strip_prefix(kind));
        text.expect("a block of this kind").trim_start().to_owned()
    };
    let (command, expected) = (block("sh"), block("text"));
    let command = command.replace("intervale join", "\"$INTERVALE\" join --stats none");
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(command).current_dir(root);
    let ran = shell.env("INTERVALE", env!("CARGO_BIN_EXE_intervale")).output();
    assert_eq!(Ran::from(ran.expect("a shell")).ok().out, expected);
}
