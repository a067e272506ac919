//! Where results go, and what happens when they cannot.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::sample::JOIN;
use crate::support::{Dir, Lines, Ran, sorted_rows};

fn join(rest: &str) -> String {
    format!("join {JOIN} --between -5m..5m --stats none {rest}")
}

#[test]
fn a_file_is_written_whole_and_nothing_else_is_left() {
    let dir = Dir::with_sample();
    dir.write("out.csv", "old\n");
    let ran = dir.run(&join("--output out.csv")).ok();
    assert_eq!(ran.out, "");
    assert_eq!(sorted_rows(&dir.read("out.csv")).len(), 3);
    assert_eq!(dir.names(), ["orders.csv", "out.csv", "payments.csv"]);
    dir.run(&join("--output out.jsonl")).ok();
    assert!(dir.read("out.jsonl").starts_with("{\"order_id\":\"o00"), "the ending says the format");
}

#[test]
fn appending_keeps_what_is_there_and_writes_one_header() {
    let dir = Dir::with_sample();
    for _ in 0..2 {
        dir.run(&join("--output out.csv --append")).ok();
    }
    let text = dir.read("out.csv");
    assert_eq!(text.lines().count(), 7, "{text}");
    assert_eq!(text.matches("order_id,").count(), 1, "{text}");
}

#[test]
fn rows_are_appended_to_the_same_columns_and_begin_a_line() {
    let dir = Dir::with_sample();
    dir.write("out.csv", "order_id,amount,ts\no9,1,2\n");
    let words = ["--append", "out.csv", "`order_id,amount,ts`", "pay_amount"];
    dir.run(&join("--output out.csv --append")).fails(2, &words);
    assert_eq!(dir.read("out.csv"), "order_id,amount,ts\no9,1,2\n");
    dir.write("out.csv", "order_id,amount,ts\no9,1,2");
    dir.run(&join("--output out.csv --append --type anti")).ok();
    let text = dir.read("out.csv");
    assert_eq!(text, "order_id,amount,ts\no9,1,2\no004,80.0,1704103215000\n");
    dir.write("mark.csv", "\u{feff}order_id,amount,ts\r\no9,1,2\r\n");
    dir.run(&join("--output mark.csv --append --type anti")).ok();
    assert!(dir.read("mark.csv").ends_with("o9,1,2\r\no004,80.0,1704103215000\n"));
}

#[test]
fn blank_lines_are_no_header_and_blanks_in_one_count() {
    let dir = Dir::with_sample();
    let header = "order_id,amount,ts\n";
    for (before, header_after) in [("\n", header), ("\r\n\n", header), ("\u{feff}\n", header)] {
        dir.write("out.csv", before);
        dir.run(&join("--output out.csv --append --type anti")).ok();
        let text = format!("{before}{header_after}o004,80.0,1704103215000\n");
        assert_eq!(dir.read("out.csv"), text);
    }
    dir.write("out.csv", "\nfoo,bar\n1,2\n");
    dir.run(&join("--output out.csv --append --type anti")).fails(2, &["--append", "`foo,bar`"]);
    for names in [" order_id,amount,ts", "\"order_id\",\"a\nb\",ts"] {
        let rows = dir.read("orders.csv").replacen("order_id,amount,ts", names, 1);
        dir.write("odd.csv", rows);
        let on = if names.starts_with(' ') { " order_id=order_id" } else { "order_id" };
        for _ in 0..2 {
            let mut command =
                dir.command("join --left odd.csv --right payments.csv --left-time ts");
            let more = "--right-time ts --between -5m..5m --stats none --type anti --append";
            command.args(more.split(' ')).args(["--output", "odd_out.csv", "--on", on]);
            Ran::from(command.output().unwrap()).ok();
        }
        let text = dir.read("odd_out.csv");
        assert_eq!(text.matches("o004,").count(), 2, "{text}");
        assert_eq!(text.matches("order_id").count(), 1, "{text}");
        std::fs::remove_file(dir.path("odd_out.csv")).unwrap();
    }
}

#[test]
fn json_lines_are_appended_to_json_lines_only() {
    let dir = Dir::with_sample();
    let appended = join("--output out.csv --append --output-format jsonl --type anti");
    dir.write("out.csv", "order_id,amount,ts\n");
    dir.run(&appended).fails(2, &["--append", "out.csv", "`order_id,amount,ts`", "JSON Lines"]);
    assert_eq!(dir.read("out.csv"), "order_id,amount,ts\n");
    dir.write("out.csv", "{\"order_id\":\"o1\"}");
    dir.run(&appended).ok();
    let text = dir.read("out.csv");
    assert!(text.starts_with("{\"order_id\":\"o1\"}\n{\"order_id\":\"o004\""), "{text}");
}

#[test]
fn a_file_is_as_it_was_when_another_output_is_refused() {
    let dir = Dir::with_sample();
    dir.write("out.csv", "order_id,amount,ts\no9,1,2");
    let refused = "--output out.csv --append --type anti --late-output no/late.csv";
    dir.run(&join(refused)).fails(1, &["no/late.csv"]);
    assert_eq!(dir.read("out.csv"), "order_id,amount,ts\no9,1,2");
}

#[test]
#[cfg(target_os = "linux")]
fn standard_output_by_its_path_keeps_what_is_there() {
    let dir = Dir::with_sample();
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        dir.write("app.txt", "old\n");
        let app = std::fs::OpenOptions::new().append(true).open(dir.path("app.txt")).unwrap();
        let ran = dir.command(&join(&format!("--output {name}"))).stdout(app).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let text = dir.read("app.txt");
        assert!(text.starts_with("old\norder_id,"), "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_said_before_any_work() {
    let dir = Dir::with_sample();
    dir.run(&join("--output no/such/out.csv")).fails(1, &["no/such/out.csv", "directory"]);
    #[cfg(target_os = "linux")]
    dir.run(&join("--output /proc/x.csv"))
        .fails(1, &["/proc/x.csv", "no file can be made in it: choose another"]);
    dir.run(&join("--output .")).fails(1, &["name a file in it"]);
    dir.run(&join("--output new/")).fails(1, &["new/: cannot open it", "name a file in it"]);
    dir.run(&join("--late-output no/late.csv")).fails(1, &["no/late.csv"]);
    let ran = dir.run(&join("--bad-rows-output no/bad.csv")).fails(1, &["no/bad.csv"]);
    assert_eq!(ran.out, "", "not even a header");
    assert_eq!(dir.names(), ["orders.csv", "payments.csv"]);
}

#[test]
fn what_is_wrong_use_is_said_before_anything_is_written() {
    let dir = Dir::with_sample();
    dir.write("out.csv", "old,columns\n");
    for rest in [
        "--time-unit ms --out-of-orderness 1us",
        "--time-unit ms --right-out-of-orderness 1us",
        "--time-unit ms --max-jump 1us",
        "--out-of-orderness 9999999999999d",
        "--idle-timeout 1s --deterministic",
        "--append --output new.csv --late-output out.csv",
    ] {
        let ran = dir.run(&join(rest)).fails(2, &["--"]);
        assert_eq!(ran.out, "", "{rest}");
    }
    assert_eq!(dir.names(), ["orders.csv", "out.csv", "payments.csv"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_reader_of_bad_rows_that_goes_away_is_no_end() {
    let dir = Dir::with_sample();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let rest = "--output pairs.csv --bad-rows skip --bad-rows-output /dev/stderr";
    let status = dir.command(&join(rest)).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1), "the result would be lost in silence");
}

#[test]
fn outputs_may_not_meet_each_other_or_an_input() {
    let dir = Dir::with_sample();
    dir.run(&join("--output out.csv --late-output ./out.csv"))
        .fails(2, &["--output", "--late-output"]);
    dir.run(&join("--output ./orders.csv")).fails(2, &["orders.csv", "--left"]);
    dir.run(&join("--late-output -")).fails(2, &["standard output"]);
    dir.run(&join("--stats-output /dev/stdout").replace("--stats none", ""))
        .fails(2, &["both standard output"]);
    dir.write("out.csv.partial", dir.read("orders.csv"));
    let from_partial = join("--output out.csv").replace("orders.csv", "out.csv.partial");
    dir.run(&format!("{from_partial} --left-format csv"))
        .fails(2, &["--left out.csv.partial", "when the run is stopped"]);
}

#[test]
#[cfg(unix)]
fn an_output_that_is_an_input_by_another_name_is_refused() {
    let dir = Dir::with_sample();
    std::fs::hard_link(dir.path("orders.csv"), dir.path("hard.csv")).unwrap();
    std::os::unix::fs::symlink("payments.csv", dir.path("soft.csv")).unwrap();
    let before = (dir.read("orders.csv"), dir.read("payments.csv"));
    for rest in ["--output hard.csv", "--output hard.csv --append", "--late-output hard.csv"] {
        dir.run(&join(rest)).fails(2, &["hard.csv", "same file", "--left orders.csv"]);
    }
    for rest in ["--output soft.csv", "--output soft.csv --append"] {
        dir.run(&join(rest)).fails(2, &["soft.csv", "same file", "--right payments.csv"]);
    }
    // By redirection, too: rows that are added to what is being read have no end.
    let add = std::fs::OpenOptions::new().append(true).open(dir.path("orders.csv")).unwrap();
    let ran: Ran = dir.command(&join("")).stdout(add).output().unwrap().into();
    ran.fails(2, &["--output -", "--left orders.csv"]);
    let input = std::fs::File::open(dir.path("orders.csv")).unwrap();
    let from = join("--output hard.csv --append").replace("--left orders.csv", "--left -");
    let ran: Ran = dir.command(&from).stdin(input).output().unwrap().into();
    ran.fails(2, &["--left -", "hard.csv"]);
    assert_eq!((dir.read("orders.csv"), dir.read("payments.csv")), before);
}

#[test]
#[cfg(unix)]
fn what_a_killed_run_left_is_removed_by_the_next_and_what_a_live_one_writes_is_not() {
    let dir = Dir::with_sample();
    let open = join("--output out.csv").replace("--left orders.csv", "--left -");
    let started = || {
        let mut child = dir.spawn(&open);
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"order_id,amount,ts\no001,1,1704103200000\n")
            .unwrap();
        let hidden = format!(".out.csv.{}-0.tmp", child.id());
        while !dir.names().contains(&hidden) {
            assert!(child.try_wait().unwrap().is_none(), "it waits for its input");
            std::thread::yield_now();
        }
        (child, stdin, hidden)
    };
    let (mut killed, _stdin, left) = started();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(dir.names().contains(&left));
    let (mut live, _stdin, writing) = started();
    assert!(!dir.names().contains(&left), "{:?}", dir.names());
    dir.run(&join("--output out.csv")).ok();
    assert!(dir.names().contains(&writing), "{:?}", dir.names());
    live.kill().unwrap();
    live.wait().unwrap();
    dir.run(&join("--output out.csv")).ok();
    assert_eq!(dir.names(), ["orders.csv", "out.csv", "payments.csv"]);
}

/// The system refuses to make files larger than 8 KiB, as a full disk would.
#[test]
#[cfg(target_os = "linux")]
fn standard_output_that_fills_up_ends_with_a_complete_row() {
    let dir = Dir::new();
    let rows: String =
        (0..5_000).map(|i| format!("key{i},{}\n", 1_700_000_000_000_i64 + i)).collect();
    dir.write("l.csv", format!("id,ts\n{rows}")).write("r.csv", format!("id,ts\n{rows}"));
    for (redirection, before) in [(">", ""), (">>", "old\n")] {
        dir.write("out.csv", before);
        let bin = env!("CARGO_BIN_EXE_intervale");
        let script = format!(
            "trap '' XFSZ; ulimit -f 8; exec {bin} join --left l.csv --right r.csv --on id \
             --left-time ts --right-time ts --between 0..0 {redirection} out.csv"
        );
        let mut shell = Command::new("bash");
        let ran: Ran =
            shell.args(["-c", &script]).current_dir(dir.path("")).output().unwrap().into();
        ran.fails(1, &["standard output", "File too large"]);
        let written = dir.read("out.csv");
        assert!(written.starts_with(&format!("{before}id,ts,")), "{redirection}");
        assert!(written.ends_with('\n'), "{redirection} {:?}", written.lines().last());
        let whole = |line: &str| line.matches(',').count() == 3 && line.ends_with(char::is_numeric);
        assert!(written.lines().skip(2).all(whole), "{redirection}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_closed_standard_output_is_an_error_where_it_is_needed() {
    let dir = Dir::with_sample();
    let bin = env!("CARGO_BIN_EXE_intervale");
    let run = |args: &str| -> Ran {
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("exec {bin} {args} >&-")]).current_dir(dir.path(""));
        shell.output().unwrap().into()
    };
    run(&join("")).fails(1, &["standard output is closed", "--output"]);
    run("gen --workload w1a --events 10 --left -")
        .fails(1, &["standard output is closed", "--left or --right"]);
    for other in ["bench --workload w2 --events 10", "load --workload w2 --rate 9", "doctor"] {
        let ran = run(other).fails(1, &["standard output is closed", "redirect it to a file\n"]);
        assert!(!ran.err.contains("--output"), "{}", ran.err);
    }
    run("--version").fails(1, &["standard output is closed"]);
    let report = join("--output out.csv --stats-output -").replace("--stats none", "--stats json");
    run(&report).fails(1, &["standard output is closed"]);
    run(&join("--output out.csv")).ok();
    assert_eq!(sorted_rows(&dir.read("out.csv")).len(), 3);
    // A device that swallows everything was asked for.
    let mut command = dir.command(&join(""));
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    Ran::from(command.stdout(null).output().unwrap()).ok();
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_any_work() {
    let dir = Dir::with_sample();
    let report =
        |to: &str, rest: &str| format!("join {JOIN} --between -5m..5m --stats-output {to} {rest}");
    dir.run(&report("no/report.txt", "--output out.csv"))
        .fails(1, &["--stats-output no/report.txt", "create its directory"]);
    assert_eq!(dir.names(), ["orders.csv", "payments.csv"]);
    dir.run(&report("report.txt", "--stats none")).fails(2, &["--stats none", "--stats-output"]);
    dir.write("report.txt", "old");
    dir.run(&report("report.txt", "--output out.csv")).ok();
    assert!(dir.read("report.txt").contains("pairs"));
    assert_eq!(dir.names(), ["orders.csv", "out.csv", "payments.csv", "report.txt"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_report_that_fails_says_that_the_result_is_complete() {
    let dir = Dir::with_sample();
    let ran = dir
        .run(&format!("join {JOIN} --between -5m..5m --stats-output /dev/full --output out.csv"));
    ran.fails(1, &["--stats-output /dev/full", "No space left", "the result is complete"]);
    assert_eq!(sorted_rows(&dir.read("out.csv")).len(), 3);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_device_ends_the_run_with_its_name() {
    let dir = Dir::with_sample();
    dir.run(&join("--output /dev/full")).fails(1, &["/dev/full", "No space left", "free some"]);
    let mut command = dir.command(&join(""));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran: Ran = command.stdout(full).output().unwrap().into();
    ran.fails(1, &["standard output", "No space left"]);
}

/// A file system of 64 KiB that goes away with the value.
#[cfg(target_os = "linux")]
struct SmallDisk(std::path::PathBuf);

#[cfg(target_os = "linux")]
impl SmallDisk {
    /// At `path`, where the system lets us have one.
    fn mount(path: std::path::PathBuf) -> Option<SmallDisk> {
        std::fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(SmallDisk(path))
    }

    fn file_count(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays", self.0.display());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_fills_up_ends_the_run_and_keeps_the_old_file() {
    let dir = Dir::new();
    let Some(disk) = SmallDisk::mount(dir.path("disk")) else {
        // Mounting needs rights that this user has not; `/dev/full` covers the rest.
        return;
    };
    let rows: String =
        (0..5_000).map(|i| format!("k{i},{}\n", 1_700_000_000_000_i64 + i)).collect();
    dir.write("l.csv", format!("id,ts\n{rows}")).write("r.csv", format!("id,ts\n{rows}"));
    let old = "id,ts,id_right,ts_right\n";
    dir.write("disk/out.csv", old);
    let base = "join --left l.csv --right r.csv --on id --left-time ts --right-time ts \
                --between 0..0";
    dir.run(&format!("{base} --output disk/out.csv"))
        .fails(1, &["disk/out.csv", "No space left on device"]);
    assert_eq!(disk.file_count(), 1, "the temporary is gone");
    assert_eq!(dir.read("disk/out.csv"), old);
    dir.run(&format!("{base} --output disk/out.csv --append"))
        .fails(1, &["disk/out.csv", "No space left on device"]);
    let grown = dir.read("disk/out.csv");
    assert!(grown.starts_with(old) && grown.ends_with('\n'), "rows are complete");
    assert!(grown.lines().skip(1).all(|line| line.matches(',').count() == 3), "{grown}");
}

#[test]
fn files_that_options_are_from_are_no_outputs() {
    let dir = Dir::with_sample();
    let join = "--left orders.csv --right payments.csv --on order_id --left-time ts --right-time \
                ts --between -5m..5m";
    dir.write("p.toml", "cores = 1\n").write("rules.csv", "from,between\n2024-01-01,0..1s\n");
    dir.write(
        "job.toml",
        "left = 'orders.csv'\nright = 'payments.csv'\non = 'order_id'\n\
                           left-time = 'ts'\nright-time = 'ts'\nbetween = '-5m..5m'\n",
    );
    std::fs::hard_link(dir.path("orders.csv"), dir.path("hard.csv")).unwrap();
    let before = ["p.toml", "rules.csv", "job.toml", "orders.csv"].map(|name| dir.read(name));
    for output in ["--output", "--late-output", "--bad-rows-output", "--stats-output"] {
        let word = |path: &str, of: &str| format!("{output} {path} is the same file as {of}");
        dir.run(&format!("join {join} --profile p.toml {output} p.toml"))
            .fails(2, &[&word("p.toml", "--profile p.toml")]);
        dir.run(&format!("run job.toml {output} ./job.toml"))
            .fails(2, &[&word("./job.toml", "the job job.toml")]);
        dir.run(&format!("run job.toml --profile p.toml {output} p.toml"))
            .fails(2, &[&word("p.toml", "--profile p.toml")]);
        dir.run(&format!("join {join} --rules rules.csv {output} rules.csv"))
            .fails(2, &[&word("rules.csv", "--rules rules.csv")]);
        dir.run(&format!("join {join} {output} hard.csv --append"))
            .fails(2, &[&word("hard.csv", "--left orders.csv")]);
    }
    let after = ["p.toml", "rules.csv", "job.toml", "orders.csv"].map(|name| dir.read(name));
    assert_eq!(before, after);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let dir = Dir::new();
    let rows: String =
        (0..50_000).map(|i| format!("k{i},{}\n", 1_700_000_000_000_i64 + i)).collect();
    dir.write("l.csv", format!("id,ts\n{rows}")).write("r.csv", format!("id,ts\n{rows}"));
    let late = format!("{}k0,1600000000000\n", dir.read("r.csv"));
    dir.write("r.csv", late);
    let mut child = dir.spawn(
        "join --left l.csv --right r.csv --on id --left-time ts --right-time ts --between 0..0 \
         --late-output late.csv --stats json --stats-output report.json",
    );
    let mut first = String::new();
    let mut reader = BufReader::with_capacity(64, child.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    drop(reader);
    assert_eq!(first, "id,ts,id_right,ts_right\n");
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{err}");
    assert!(!err.contains("error") && !err.contains("panicked"), "{err}");
    // What was found until then is told, and late rows are in their place.
    let report: serde_json::Value = serde_json::from_str(&dir.read("report.json")).unwrap();
    assert!(report["left_rows"].as_u64() > Some(0), "{report}");
    assert_eq!(report["interrupted"], false);
    assert!(dir.read("late.csv").starts_with("side,lag_ms,"));
}

#[test]
#[cfg(unix)]
fn a_named_pipe_is_written_as_it_is() {
    let dir = Dir::with_sample();
    assert!(Command::new("mkfifo").arg(dir.path("pipe")).status().unwrap().success());
    let reader = {
        let path = dir.path("pipe");
        std::thread::spawn(move || std::fs::read_to_string(path).unwrap())
    };
    dir.run(&join("--output pipe --output-format csv")).ok();
    assert_eq!(sorted_rows(&reader.join().unwrap()).len(), 3);
    assert!(dir.names().contains(&"pipe".to_owned()));
}

#[test]
fn results_reach_a_pipe_while_the_input_is_still_open() {
    let dir = Dir::with_sample();
    let mut child = dir.spawn(
        "join --left - --right payments.csv --on order_id --left-time ts --right-time ts \
         --between -5m..5m --stats none",
    );
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"order_id,amount,ts\no001,1,1704103200000\n").unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    assert!(lines.next().is_some_and(|line| line.starts_with("order_id,")));
    assert!(lines.next().is_some_and(|line| line.starts_with("o001,1,")));
    drop(stdin);
    assert_eq!(lines.next(), None);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn nothing_is_drawn_where_nobody_looks() {
    let dir = Dir::with_sample();
    let quiet = dir.run(&join("")).ok();
    assert!(!quiet.err.contains("buffered") && !quiet.err.contains('\x1b'), "{}", quiet.err);
}

/// What ran in the process before it became the program, as under `cargo run`, is not its own.
#[test]
#[cfg(target_os = "linux")]
fn the_report_counts_from_the_start_of_the_program() {
    let dir = Dir::with_sample();
    let line = format!(
        "x=; i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; \
         x=$(head -c 60000000 /dev/zero | tr '\\0' a); exec \"$0\" join {JOIN} \
         --between -5m..5m --stats json --stats-output report.json"
    );
    let mut shell = std::process::Command::new("sh");
    shell.current_dir(dir.path("")).args(["-c", &line, env!("CARGO_BIN_EXE_intervale")]);
    Ran::from(shell.output().unwrap()).ok();
    let report: serde_json::Value = serde_json::from_str(&dir.read("report.json")).unwrap();
    let (cpu_s, elapsed_s) = (report["cpu_s"].as_f64().unwrap(), report["elapsed_s"].as_f64());
    assert!(cpu_s < 0.15, "{cpu_s} of {elapsed_s:?}");
    assert!(report["rss_bytes_peak"].as_u64().unwrap() < 50_000_000, "{report}");
}
