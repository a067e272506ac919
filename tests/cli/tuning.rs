//! The scripts of `tuning/` on a copy of a host, and `intervale tune`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Dir, Ran};

/// A host of four CPUs on which there is everything to do.
const HOST: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-3\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
    ("sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "schedutil\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("proc/sys/kernel/numa_balancing", "1\n"),
    ("proc/sys/kernel/io_uring_disabled", "2\n"),
    ("proc/sys/kernel/nmi_watchdog", "1\n"),
    ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
    ("sys/devices/system/cpu/smt/control", "on\n"),
    ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n"),
    ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2-3\n"),
    ("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", "2-3\n"),
    ("sys/devices/system/cpu/cpu2/cpuidle/state0/latency", "0\n"),
    ("sys/devices/system/cpu/cpu2/cpuidle/state0/disable", "0\n"),
    ("sys/devices/system/cpu/cpu2/cpuidle/state3/name", "C6\n"),
    ("sys/devices/system/cpu/cpu2/cpuidle/state3/latency", "133\n"),
    ("sys/devices/system/cpu/cpu2/cpuidle/state3/disable", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state3/latency", "133\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state3/disable", "0\n"),
    ("proc/irq/24/smp_affinity_list", "0-3\n"),
    ("proc/irq/25/smp_affinity_list", "3\n"),
];

const CORES: &str = "--cores 2-3 --boot --unit";

fn host() -> Dir {
    let dir = Dir::new();
    for (path, text) in HOST {
        std::fs::create_dir_all(dir.path(path).parent().unwrap()).unwrap();
        dir.write(path, text);
    }
    dir
}

fn script(dir: &Dir, name: &str, args: &str) -> Ran {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning").join(name);
    let mut command = Command::new("sh");
    command.arg(script).args(args.split_whitespace());
    command.env("INTERVALE_HOST_ROOT", dir.path(""));
    Ran::from(command.output().expect("a shell"))
}

/// Every file below the host and what is in it, but for the records.
fn files(dir: &Dir) -> Vec<(String, String)> {
    let root = dir.path("");
    let (mut open, mut files) = (vec![root.clone()], Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        } else if !path.starts_with(dir.path("var")) {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            files.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn without_apply_nothing_is_changed() {
    let dir = host();
    let before = files(&dir);
    let out = script(&dir, "prepare-host.sh", CORES).ok().out;
    for word in [
        "scaling_governor: powersave -> performance",
        "scaling_governor: schedutil -> performance",
        "enabled: madvise -> always",
        "numa_balancing: 1 -> 0",
        "io_uring_disabled: 2 -> 0",
        "irq/24/smp_affinity_list: 0-3 -> 0,1",
        "90-intervale.conf",
        "90-intervale.cfg",
        "intervale@.service",
        "nmi_watchdog: 1 -> 0",
        "cpu2/cpuidle/state3/disable: 0 -> 1 (133 us to wake from C6)",
        "12 changes; nothing was changed",
    ] {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert_eq!(files(&dir), before);
    let out = script(&dir, "undo-host.sh", "").ok().out;
    assert_eq!(out, "nothing to undo\n");
}

#[test]
fn what_is_prepared_twice_is_undone_to_what_stood_first() {
    let dir = host();
    let before = files(&dir);
    script(&dir, "prepare-host.sh", &format!("{CORES} --apply")).ok();
    assert_eq!(dir.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"), "performance\n");
    assert_eq!(dir.read("proc/irq/25/smp_affinity_list"), "0,1\n");
    let grub = dir.read("etc/default/grub.d/90-intervale.cfg");
    assert!(grub.contains("isolcpus=managed_irq,domain,2-3 nohz_full=2-3"), "{grub}");
    let unit = dir.read("etc/systemd/system/intervale@.service");
    assert!(unit.contains("--cores 2-3") && unit.contains("User=intervale\n"), "{unit}");
    assert!(!unit.contains('@') || !unit.contains("@CORES@"), "{unit}");
    // A second time there is only what something else has changed meanwhile. (The kernel would
    // show the choice in brackets; the copy shows what was written.)
    let prepared = files(&dir);
    let again = script(&dir, "prepare-host.sh", &format!("{CORES} --apply")).ok().out;
    assert!(again.contains("nothing to change"), "{again}");
    dir.write("proc/sys/kernel/numa_balancing", "1\n");
    let again = script(&dir, "prepare-host.sh", &format!("{CORES} --apply")).ok().out;
    assert!(again.contains("numa_balancing: 1 -> 0"), "{again}");
    assert_eq!(files(&dir), prepared);
    // Other CPUs: what is recorded stays what stood first.
    script(&dir, "prepare-host.sh", "--cores 1-3 --apply").ok();
    assert_eq!(dir.read("proc/irq/24/smp_affinity_list"), "0\n");

    let dry = script(&dir, "undo-host.sh", "").ok().out;
    assert!(dry.contains("would set /proc/irq/24/smp_affinity_list back to 0-3"), "{dry}");
    script(&dir, "undo-host.sh", "--apply").ok();
    let mut expected = before;
    // The kernel takes the word alone.
    let pages = expected.iter_mut().find(|(path, _)| path.ends_with("hugepage/enabled"));
    pages.unwrap().1 = "madvise\n".to_owned();
    assert_eq!(files(&dir), expected);
    assert_eq!(script(&dir, "undo-host.sh", "--apply").ok().out, "nothing to undo\n");
}

#[test]
fn power_and_threads_of_a_core_are_given_back_as_they_were() {
    let dir = host();
    let before = files(&dir);
    let args = "--cores 2 --steady --no-smt --boot --apply";
    script(&dir, "prepare-host.sh", args).ok();
    let cpus = "sys/devices/system/cpu";
    let read = |path: &str| dir.read(&format!("{cpus}/{path}"));
    assert_eq!(read("smt/control"), "off\n");
    assert_eq!(read("intel_pstate/no_turbo"), "1\n");
    let [shallow, deep, other] =
        ["cpu2/cpuidle/state0", "cpu2/cpuidle/state3", "cpu0/cpuidle/state3"];
    let disable = |state: &str| read(&format!("{state}/disable"));
    assert_eq!([shallow, deep, other].map(disable), ["0\n", "1\n", "0\n"]);
    let grub = dir.read("etc/default/grub.d/90-intervale.cfg");
    assert!(grub.contains("rcu_nocbs=2 nosmt\""), "{grub}");
    // The threads come back before anything of theirs is set.
    let undone = script(&dir, "undo-host.sh", "--apply").ok().out;
    let at = |word: &str| undone.lines().position(|line| line.contains(word)).expect(word);
    assert!(at("smt/control") < at("scaling_governor"), "{undone}");
    let mut expected = before;
    let pages = expected.iter_mut().find(|(path, _)| path.ends_with("hugepage/enabled"));
    pages.unwrap().1 = "madvise\n".to_owned();
    assert_eq!(files(&dir), expected);
    // Without being asked for, neither is touched.
    let out = script(&dir, "prepare-host.sh", "--cores 2").ok().out;
    assert!(!out.contains("smt/control") && !out.contains("no_turbo"), "{out}");
    let told = "CPU 3 is the second thread of CPU 2's core";
    script(&dir, "prepare-host.sh", "--cores 2-3 --no-smt --apply").fails(2, &[told]);
    dir.write("sys/devices/system/cpu/smt/control", "notsupported\n");
    let out = script(&dir, "prepare-host.sh", "--no-smt").ok().out;
    assert!(out.contains("left /sys/devices/system/cpu/smt/control"), "{out}");
}

#[test]
fn a_host_without_these_files_is_no_trouble() {
    let dir = Dir::new();
    let out = script(&dir, "prepare-host.sh", "--apply").ok().out;
    assert!(out.starts_with("wrote /etc/security/limits.d/90-intervale.conf"), "{out}");
    script(&dir, "undo-host.sh", "--apply").ok();
    assert_eq!(files(&dir), []);
}

#[test]
fn what_is_somebody_else_s_is_left_alone_and_wrong_use_refused() {
    let dir = host();
    std::fs::create_dir_all(dir.path("etc/security/limits.d")).unwrap();
    dir.write("etc/security/limits.d/90-intervale.conf", "mine\n");
    let ran = script(&dir, "prepare-host.sh", "--apply").fails(1, &[]);
    assert!(ran.out.contains("not ours"), "{}", ran.out);
    script(&dir, "undo-host.sh", "--apply").ok();
    assert_eq!(dir.read("etc/security/limits.d/90-intervale.conf"), "mine\n");
    for (args, word) in [
        ("--speed", "--speed"),
        ("--cores", "--cores"),
        ("--cores 2;3", "2;3"),
        ("--cores 2-", "2-"),
        ("--boot", "--cores"),
        ("--cores 0-3", "leave one CPU"),
        ("--cores 99 --apply", "no CPU 99 at work; there are 0-3"),
        ("--cores 2,3-9000000 --apply", "no CPU 9000000"),
        ("--cores 1-2,2 --apply", "CPU 2 stands there twice"),
        ("--cores 0-3 --apply", "leave one CPU"),
        ("--user a/b", "a/b"),
    ] {
        script(&dir, "prepare-host.sh", args).fails(2, &[word]);
    }
    // What cannot be done as a whole is not begun.
    let untouched = host();
    let before = files(&untouched);
    script(&untouched, "prepare-host.sh", "--cores 1,99 --apply").fails(2, &["no CPU 99"]);
    script(&untouched, "prepare-host.sh", "--cores 0-3 --apply").fails(2, &["leave one CPU"]);
    assert_eq!(files(&untouched), before);
    script(&dir, "undo-host.sh", "--all").fails(2, &["--all"]);
    assert!(script(&dir, "prepare-host.sh", "--help").ok().out.contains("--apply"));
}

/// Three rounds of five and of five runs, and those of the comparison at the end, if there was one:
/// the record has them all, and what was said is what follows from them.
fn recorded(record: &str, said: &str) {
    let lines: Vec<Value> =
        record.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for name in ["command", "machine", "machine_cpus", "kernel", "version", "commit"] {
        assert!(lines[0].get(name).is_some(), "{name}: {record}");
    }
    let runs: Vec<&Value> = lines.iter().filter(|line| line.get("ns").is_some()).collect();
    assert!([30, 39].contains(&runs.len()), "{record}");
    let of = |value: Option<&str>, from: usize| {
        let setting = |run: &Value| match run["again"] == true {
            true => Some("itself".to_owned()),
            false => run["settings"]["batch"].as_str().map(str::to_owned),
        };
        let runs = runs[..15].iter().filter(move |run| setting(run).as_deref() == value);
        runs.map(|run| run["ns"].as_f64().unwrap()).nth(from).unwrap()
    };
    let changes = lines.iter().filter(|line| line["setting"] == "batch");
    assert_eq!(changes.clone().count(), 4, "{record}");
    // What stood against itself is the least that counts.
    let of_itself = (0..3).map(|round| of(Some("itself"), round) / of(None, round) - 1.0);
    let floor = of_itself.map(f64::abs).fold(0.0, f64::max) * 100.0;
    for change in changes {
        let value = change["value"].as_str().unwrap();
        let mut ratios: Vec<f64> =
            (0..3).map(|round| of(Some(value), round) / of(None, round) - 1.0).collect();
        ratios.sort_by(f64::total_cmp);
        let percent = change["change_percent"].as_f64().unwrap();
        assert!((ratios[1] * 100.0 - percent).abs() < 0.06, "{change}: {ratios:?}");
        let noise = change["noise_percent"].as_f64().unwrap();
        if value == "itself" {
            assert!((floor - noise).abs() < 0.06, "{change}: {ratios:?}");
            continue;
        }
        let apart = ((ratios[2] - ratios[0]) * 50.0).max(floor);
        assert!((apart - noise).abs() < 0.06, "{change}: {ratios:?}");
        let is_better = -percent > noise + 0.06;
        assert!(change["verdict"] != "better" || is_better, "{change}");
        assert!(said.contains(&format!("batch {value}: {percent:+.1} %")), "{change}: {said}");
    }
}

#[test]
fn tune_writes_a_profile_that_other_commands_take() {
    let dir = Dir::with_sample();
    let args = "--workload w2 --events 20000 --settings batch,idle --repeat 3";
    let ran = dir.run(&format!("tune {args} --output t.toml --record runs.jsonl")).ok();
    assert_eq!(ran.out, "");
    recorded(&dir.read("runs.jsonl"), &ran.err);
    std::fs::remove_file(dir.path("runs.jsonl")).unwrap();
    for word in ["batch 32: ", "batch 64: ", "batch 128: ", "idle spin: ", "noise", "t.toml"] {
        assert!(ran.err.contains(word), "{word}: {}", ran.err);
    }
    let profile = dir.read("t.toml");
    assert!(profile.contains("# For: time an event of workload w2, 20000 events."), "{profile}");
    assert_eq!(profile.matches("# 3 rounds in turn:").count(), 2, "{profile}");
    assert_eq!(profile.matches("default against itself: ").count(), 2, "{profile}");
    dir.run("bench --workload w2 --events 2000 --repeat 1 --profile t.toml").ok();
    // It may stand at the start of the next search, and of one over files.
    let files = format!("{} --between -5m..5m", crate::sample::JOIN);
    let args = "--settings lane-batches --repeat 3 --profile t.toml";
    let ran = dir.run(&format!("tune {args} -- {files}")).ok();
    assert!(ran.out.contains("# For: time a row of intervale join --left"), "{}", ran.out);
    assert!(ran.out.contains("lane-batches"), "{}", ran.out);
    assert_eq!(dir.names(), ["orders.csv", "payments.csv", "t.toml"]);
    // Widths of buckets are multiples of what the interval asks for.
    let args = "--settings bucket-width,chunk --repeat 3 --output laid-out.toml";
    let ran = dir.run(&format!("tune {args} -- {files} --max-state 4GiB")).ok();
    assert_eq!(ran.err.matches("bucket-width ").count(), 5, "{}", ran.err);
    assert!(ran.err.contains("chunk 2MiB: "), "{}", ran.err);
    dir.run(&format!("join {files} --profile ./laid-out.toml")).ok();
    std::fs::remove_file(dir.path("laid-out.toml")).unwrap();
    // Latency at a rate.
    let args = "--goal latency --rate 2000 --duration 300ms --settings linger --repeat 3";
    let ran = dir.run(&format!("tune --workload w2 {args}")).ok();
    assert!(ran.out.contains("p99 latency of workload w2 at 2000 events/s"), "{}", ran.out);
    assert!(ran.err.contains("linger 5ms: "), "{}", ran.err);
}

/// What the table of tuning/README.md is made with.
#[test]
fn the_script_that_measures_writes_a_record_and_the_rows_of_a_table() {
    let dir = Dir::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning/measure.sh");
    let run = |args: &[&str]| {
        let mut command = Command::new("sh");
        command.arg(&script).args(args).current_dir(dir.path(""));
        command.env("INTERVALE", env!("CARGO_BIN_EXE_intervale"));
        command.envs([("EVENTS", "2000"), ("ROUNDS", "3"), ("DURATION", "150ms")]);
        Ran::from(command.output().expect("a shell"))
    };
    let table = run(&["record.jsonl"]).ok().out;
    let record = dir.read("record.jsonl");
    let head: Value = serde_json::from_str(record.lines().next().unwrap()).expect("JSON");
    for name in ["machine", "kernel", "rustc", "load", "commit", "command"] {
        assert!(head[name].is_string(), "{name}: {head}");
    }
    for begin in [
        "| time a row of a join of w1a as CSV | `idle` | default | itself ",
        "| time an event of workload w2, 2000 events | `batch` | default | itself ",
        "| p99 latency of workload w2 at 20000 events/s for 150ms | `idle` | default | itself ",
    ] {
        assert!(table.lines().any(|line| line.starts_with(begin)), "{begin}: {table}");
    }
    // Each value that was tried is in the table once.
    let changes = record.lines().filter(|line| line.contains("\"rounds\":3")).count();
    assert!(changes > 30, "{record}");
    assert_eq!(table.matches(" %)").count(), changes, "{table}");
    assert_eq!(run(&["--table", "record.jsonl"]).ok().out, table);
    run(&[]).fails(2, &["name the file for the record"]);
    assert_eq!(dir.names(), ["record.jsonl"]);
}

/// The table says what its record says.
#[test]
fn the_table_of_what_was_measured_is_that_of_its_record() {
    let tuning = Path::new(env!("CARGO_MANIFEST_DIR")).join("tuning");
    let readme = std::fs::read_to_string(tuning.join("README.md")).unwrap();
    let (_, record) = readme.split_once("[the raw record](").expect("a link to the record");
    let record = tuning.join(record.split(')').next().unwrap());
    let mut command = Command::new("sh");
    command.arg(tuning.join("measure.sh")).arg("--table").arg(record);
    let table = Ran::from(command.output().expect("a shell")).ok().out;
    let rows = table.lines().filter(|line| line.starts_with("| "));
    assert!(rows.clone().count() > 10, "{table}");
    for row in rows {
        assert!(readme.lines().any(|line| line == row), "{row}");
    }
}

#[test]
fn tune_refuses_wrong_use_and_says_what_failed() {
    let dir = Dir::with_sample();
    for (args, word) in [
        ("", "--workload"),
        ("--workload w2 -- --left a", "exclude each other"),
        ("--goal latency -- --left a", "--goal latency"),
        ("--workload w2 --goal latency", "--rate"),
        ("--workload w2 --settings linger", "cores, idle"),
        ("--workload w2 --settings speed", "speed"),
        ("--settings bucket-width -- --left a --window tumble:5s", "nothing to try"),
        ("--workload w2 --repeat 2", "--repeat"),
        ("--workload w2 --profile fastest", "fastest"),
        ("--workload w2 --budget 0s", "no run can begin"),
        ("-- --left a.csv --output b.csv", "--output"),
        ("-- --left orders.csv", "--right"),
        ("--workload w2 --events 3", "--events 3"),
        ("--workload w2 --goal latency --rate -1", "--rate"),
    ] {
        dir.run(&format!("tune {args}")).fails(2, &[word]);
    }
    let join = "--left no.csv --right no.csv --on k --left-time t --right-time t --between 0..1s";
    let ran = dir.run(&format!("tune --settings idle --output t.toml -- {join}"));
    ran.fails(1, &["a run failed", "no.csv"]);
    dir.run("tune --workload w2 --output no/t.toml").fails(1, &["--output"]);
    dir.run("tune --workload w2 --record no/r.jsonl").fails(1, &["--record no/r.jsonl"]);
    let no_time = "tune --workload w2 --events 2000 --settings idle --budget 1ms";
    let ran = dir.run(no_time).ok();
    assert!(ran.out.contains("# Not tried, as the time was up (--budget): idle."), "{}", ran.out);
    assert_eq!(dir.names(), ["orders.csv", "payments.csv"]);
}

/// However it ends, what was measured is there.
#[test]
fn a_search_that_is_killed_leaves_its_record() {
    let dir = Dir::new();
    let args = "tune --workload w2 --events 20000 --settings batch,idle,simd --repeat 100";
    let mut child = Command::new(env!("CARGO_BIN_EXE_intervale"))
        .args(args.split_whitespace())
        .args(["--record", "runs.jsonl"])
        .current_dir(dir.path(""))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the program starts");
    let path = dir.path("runs.jsonl");
    let lines = || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    // Its head and some runs; a search that has ended by itself is no test of this.
    while lines().len() < 4 {
        assert!(child.try_wait().expect("it is a child").is_none(), "it runs on: {:?}", lines());
        std::thread::yield_now();
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    let lines = lines();
    let parsed = |line: &String| serde_json::from_str::<Value>(line).expect("whole lines of JSON");
    let lines: Vec<Value> = lines.iter().map(parsed).collect();
    assert!(lines[0]["command"].as_str().is_some_and(|command| command.contains("tune")));
    assert!(lines[1..].iter().all(|line| line["ns"].as_f64().is_some_and(|ns| ns > 0.0)));
}
