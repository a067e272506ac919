//! `intervale doctor` on made-up hosts, and on this one.

use serde_json::Value;

use crate::support::Dir;

/// A host that has everything as it should be.
const GOOD: &[(&str, &str)] = &[
    ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1\n"),
    ("proc/self/limits", "Max locked memory         unlimited  unlimited  bytes\n"),
    ("proc/self/cgroup", "0::/\n"),
    ("sys/fs/cgroup/cgroup.procs", "1\n"),
    ("proc/sys/kernel/osrelease", "6.12.3-generic\n"),
    ("proc/sys/kernel/io_uring_disabled", "0\n"),
    ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512vl popcnt\n"),
    ("proc/stat", "cpu  100 0 100 9800 0 0 0 0 0 0\n"),
    ("proc/loadavg", "0.10 0.10 0.10 1/100 1234\n"),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/isolated", "0-1\n"),
    ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0\n"),
    ("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "1\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
    ("sys/devices/system/node/node0/cpulist", "0-1\n"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
    ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C1\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
    ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
    ("proc/sys/kernel/nmi_watchdog", "0\n"),
];

/// Makes the good host with some files changed; a change to nothing leaves the file out.
fn host(changes: &[(&str, &str)]) -> Dir {
    let dir = Dir::new();
    let kept = GOOD.iter().filter(|(path, _)| changes.iter().all(|(changed, _)| changed != path));
    for (path, text) in kept.chain(changes.iter().filter(|(_, text)| !text.is_empty())) {
        let path = dir.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

fn report(dir: &Dir, args: &str) -> Value {
    let ran = dir.run(&format!("doctor --json {args}")).ok();
    assert_eq!(ran.err, "");
    serde_json::from_str(&ran.out).expect("a JSON object")
}

/// The finding of that name on a changed host.
#[track_caller]
fn finding(name: &str, changes: &[(&str, &str)]) -> Value {
    let report = report(&host(changes), "--root .");
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["name"] == name).expect("the finding").clone()
}

#[track_caller]
fn expect(name: &str, status: &str, changes: &[(&str, &str)], words: &[&str]) {
    let finding = finding(name, changes);
    assert_eq!(finding["status"], status, "{finding}");
    for word in words {
        assert!(finding.to_string().contains(word), "no `{word}` in {finding}");
    }
    let has_advice = finding["cost"].is_string() && finding["fix"].is_string();
    assert!(has_advice || !["warn", "bad"].contains(&status), "{finding}");
}

const NAMES: [&str; 17] = [
    "cores",
    "quota",
    "smt",
    "numa",
    "isolation",
    "governor",
    "steal",
    "load",
    "simd",
    "kernel",
    "io_uring",
    "memlock",
    "huge_pages",
    "clock",
    "idle_states",
    "turbo",
    "nmi_watchdog",
];

#[test]
fn a_host_that_is_as_it_should_be() {
    let report = report(&host(&[]), "--root .");
    for (finding, name) in report["findings"].as_array().unwrap().iter().zip(NAMES) {
        assert_eq!(finding["name"], name);
        // Whether io_uring is allowed cannot be seen in files.
        let fine = if name == "io_uring" && cfg!(feature = "glommio") { "unknown" } else { "ok" };
        assert!(finding["status"] == fine || name == "io_uring", "{finding}");
        assert!(finding["fix"].is_null() || finding["status"] != "ok", "{finding}");
    }
    assert_eq!(report["findings"].as_array().unwrap().len(), NAMES.len());
}

#[test]
fn a_host_that_says_nothing_is_unknown_and_no_trouble() {
    let dir = Dir::new();
    let report = report(&dir, "--root . --strict");
    for finding in report["findings"].as_array().unwrap() {
        let status = finding["status"].as_str().unwrap();
        // One CPU is worth a word, whatever else there is.
        let is_cores = finding["name"] == "cores" && status == "warn";
        assert!(status == "unknown" || is_cores, "{finding}");
        assert!(finding["cost"].is_string() && finding["fix"].is_string(), "{finding}");
    }
    let text = dir.run("doctor --root .").ok().out;
    assert!(text.contains("unknown  kernel"), "{text}");
    let unknown = text.lines().filter(|line| line.starts_with("unknown ")).count();
    assert!(text.trim_end().ends_with(&format!(" bad, {unknown} unknown")), "{text}");
    assert!(text.contains("/sys is not readable: the system does not say which CPUs"), "{text}");
}

/// What is hidden is not taken for what is not there.
#[test]
fn hidden_files_are_unknown() {
    let sys: Vec<(&str, &str)> =
        GOOD.iter().filter(|file| file.0.starts_with("sys/")).map(|file| (file.0, "")).collect();
    let of_sys = ["cores", "smt", "numa", "isolation", "governor", "huge_pages", "clock"];
    for name in of_sys.into_iter().chain(["idle_states", "turbo"]) {
        expect(name, "unknown", &sys, &["/sys is not readable"]);
    }
    expect("quota", "unknown", &sys, &["control groups are not readable", "/sys/fs/cgroup"]);
    let groups = [("sys/fs/cgroup/cgroup.procs", "")];
    expect("quota", "unknown", &groups, &["control groups are not readable"]);
    expect("cores", "ok", &groups, &["all of this host"]);
    // The first version, and a kernel without groups.
    let first = ("proc/self/cgroup", "3:cpuset:/\n1:cpu,cpuacct:/\n");
    expect("quota", "unknown", &[first], &["not readable"]);
    let mount = ("sys/fs/cgroup/cpu/cpu.stat", "nr_periods 0\n");
    expect("quota", "ok", &[first, mount], &["no CPU quota"]);
    expect("quota", "ok", &[("proc/self/cgroup", ""), groups[0]], &["no CPU quota"]);
}

#[test]
fn cores_that_are_not_all_or_not_whole() {
    let status = "proc/self/status";
    expect("cores", "warn", &[(status, "Cpus_allowed_list:\t1\n")], &["1 of 2", "taskset -c 0-1"]);
    let half = [("sys/fs/cgroup/cpu.max", "150000 100000\n")];
    expect("quota", "warn", &half, &["1.50 CPUs of 2", "docker update --cpus=2"]);
    let used_up = [half[0], ("sys/fs/cgroup/cpu.stat", "nr_periods 100\nnr_throttled 30\n")];
    expect("quota", "bad", &used_up, &["30 of 100 periods"]);
    expect("quota", "ok", &[("sys/fs/cgroup/cpu.max", "200000 100000\n")], &["2.00"]);
    let shared = [
        ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0-1\n"),
        ("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "0-1\n"),
    ];
    expect("smt", "warn", &shared, &["2 CPUs on 1 core\"", "--cores 0-0", "smt/control"]);
    let nodes = [
        ("sys/devices/system/node/node0/cpulist", "0\n"),
        ("sys/devices/system/node/node1/cpulist", "1\n"),
    ];
    expect("numa", "warn", &nodes, &["2 memory nodes", "numactl --membind=0", "--cores 0-0"]);
}

#[test]
fn cores_that_others_use_or_that_fall_asleep() {
    let isolated = "sys/devices/system/cpu/isolated";
    let script = "sudo tuning/prepare-host.sh --cores 1 --boot --apply";
    let told = [script, "isolcpus=1 nohz_full=1", "--cores 1-1"];
    expect("isolation", "warn", &[(isolated, "\n")], &told);
    // Where it cannot be done, that is what is said.
    for (path, text) in [("proc/cpuinfo", "flags : hypervisor\n"), (".dockerenv", "\n")] {
        let told = finding("isolation", &[(isolated, "\n"), (path, text)]).to_string();
        assert!(told.contains("nothing from inside") && !told.contains("sudo"), "{told}");
    }
    expect("isolation", "ok", &[(isolated, "1\n")], &["--cores 1-1"]);
    expect("isolation", "warn", &[(isolated, "6-7\n")], &["taskset -c 6-7", "--cores 6-7"]);
    let governor = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    expect("governor", "warn", &[(governor, "powersave\n")], &["performance, powersave", "tee"]);
    let virtual_machine = [
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", ""),
        (governor, ""),
        ("proc/cpuinfo", "flags : fpu hypervisor\n"),
    ];
    expect("governor", "unknown", &virtual_machine, &["its host"]);
    expect("simd", "warn", &virtual_machine, &["-cpu host"]);
    expect("steal", "bad", &[("proc/stat", "cpu  50 0 0 40 0 0 0 10\n")], &["10.00 %"]);
    expect("steal", "warn", &[("proc/stat", "cpu  50 0 0 940 0 0 0 10\n")], &["1.00 %"]);
    expect("load", "warn", &[("proc/loadavg", "1.50 1 1 1/1 1\n")], &["1.50 threads"]);
}

#[test]
fn kernels_that_lack_something() {
    expect("kernel", "warn", &[("proc/sys/kernel/osrelease", "5.4.0-42\n")], &["5.4.0", "5.8.0"]);
    let limits = [("proc/self/limits", "Max locked memory   65536   65536   bytes\n")];
    expect("memlock", "warn", &limits, &["64.0 KiB", "ulimit -l unlimited"]);
    if cfg!(all(feature = "glommio", target_os = "linux")) {
        expect("io_uring", "warn", &limits, &["only 64 KiB"]);
        let off = [("proc/sys/kernel/io_uring_disabled", "2\n")];
        expect("io_uring", "warn", &off, &["sysctl kernel.io_uring_disabled=0"]);
    }
    let pages = "sys/kernel/mm/transparent_hugepage/enabled";
    expect("huge_pages", "warn", &[(pages, "always [madvise] never\n")], &["madvise", "tee"]);
    let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    expect("clock", "bad", &[(clock, "hpet\n")], &["echo tsc | sudo tee"]);
    let lone = [
        (clock, "acpi_pm\n"),
        ("sys/devices/system/clocksource/clocksource0/available_clocksource", "acpi_pm\n"),
    ];
    expect("clock", "bad", &lone, &["clocksource=tsc"]);
}

#[test]
fn the_profile_that_fits_is_named() {
    let profile = |changes: &[(&str, &str)]| report(&host(changes), "--root .")["profile"].clone();
    let isolated = "sys/devices/system/cpu/isolated";
    assert_eq!(profile(&[]), "latency");
    assert_eq!(profile(&[(isolated, "\n")]), Value::Null);
    assert_eq!(profile(&[(isolated, "\n"), ("proc/loadavg", "1.5 1 1 1/1 1\n")]), "shared-vm");
    assert_eq!(profile(&[(isolated, "\n"), ("proc/cpuinfo", "flags : hypervisor\n")]), "shared-vm");
    assert_eq!(profile(&[("sys/fs/cgroup/cpu.max", "150000 100000\n")]), "shared-vm");
    assert_eq!(profile(&[("proc/stat", "cpu  50 0 0 40 0 0 0 10\n")]), "shared-vm");
    let text = host(&[]).run("doctor --root .").ok().out;
    assert!(text.contains("--profile latency fits this host"), "{text}");
}

#[test]
fn strange_files_are_unknown_not_a_panic() {
    let strange: Vec<(&str, &str)> =
        GOOD.iter().map(|(path, _)| (*path, "\u{1}?[ -1 :\n")).collect();
    let report = report(&host(&strange), "--root .");
    assert_eq!(report["findings"].as_array().unwrap().len(), NAMES.len());
    let empty: Vec<(&str, &str)> = GOOD.iter().map(|(path, _)| (*path, "\n")).collect();
    host(&empty).run("doctor --root .").ok();
}

#[test]
fn strict_fails_where_something_is_bad() {
    let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let dir = host(&[(clock, "hpet\n")]);
    let ran = dir.run("doctor --root . --strict").fails(1, &["clock"]);
    assert!(ran.out.contains("bad      clock"), "{}", ran.out);
    let counted = ran.out.lines().last().is_some_and(|line| line.contains(" 1 bad, "));
    assert!(counted, "{}", ran.out);
    dir.run("doctor --root .").ok();
    host(&[]).run("doctor --root . --strict").ok();
    dir.run("doctor --root nowhere").fails(2, &["--root nowhere"]);
}

#[test]
fn this_host_is_looked_at() {
    let dir = Dir::new();
    let report = report(&dir, "");
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), NAMES.len());
    let simd = findings.iter().find(|finding| finding["name"] == "simd").unwrap();
    assert_ne!(simd["status"], "unknown");
    let text = dir.run("doctor").ok().out;
    assert!(NAMES.iter().all(|name| text.contains(name)), "{text}");
}

#[test]
fn what_saves_power_or_watches_is_told_with_what_it_costs() {
    let state = |number: u32, file: &str| {
        format!("sys/devices/system/cpu/cpu1/cpuidle/state{number}/{file}")
    };
    let files = [state(3, "name"), state(3, "latency"), state(3, "disable")];
    let deep =
        |disable| [(&files[0][..], "C6\n"), (&files[1][..], "133\n"), (&files[2][..], disable)];
    let told = ["C6, 133 us", "waits up to 133 us", "cpupower idle-set -D 10", "--idle spin"];
    expect("idle_states", "warn", &deep("0\n"), &told);
    expect("idle_states", "ok", &deep("1\n"), &["C1, 2 us"]);
    let contained = [&deep("0\n")[..], &[(".dockerenv", "x")]].concat();
    expect("idle_states", "warn", &contained, &["not from inside a container"]);
    let no_turbo = "sys/devices/system/cpu/intel_pstate/no_turbo";
    expect("turbo", "ok", &[], &["on: fastest", "echo 1 | sudo tee /sys", "no_turbo"]);
    expect("turbo", "warn", &[(no_turbo, "1\n")], &["base", "echo 0 | sudo tee /sys", "no_turbo"]);
    let boost = |text| [(no_turbo, ""), ("sys/devices/system/cpu/cpufreq/boost", text)];
    expect("turbo", "ok", &boost("1\n"), &["echo 0 | sudo tee /sys", "cpufreq/boost"]);
    expect("turbo", "warn", &boost("0\n"), &["echo 1 | sudo tee /sys", "cpufreq/boost"]);
    let watchdog = "proc/sys/kernel/nmi_watchdog";
    let told = ["each few seconds", "sudo sysctl kernel.nmi_watchdog=0"];
    expect("nmi_watchdog", "warn", &[(watchdog, "1\n")], &told);
    expect("nmi_watchdog", "unknown", &[(watchdog, "")], &["/proc/sys/kernel/nmi_watchdog"]);
}
