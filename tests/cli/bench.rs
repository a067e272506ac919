//! `intervale bench`: sweeps, forms, comparisons, plots. Plain runs are in `tests/bench_smoke.rs`.

use expect_test::{ExpectFile, expect_file};
use serde_json::Value;

use crate::support::Dir;

/// Compares a help text with its file, and runs its examples as they stand.
pub fn check_help(command: &str, expected: ExpectFile, example_count: usize) {
    let dir = Dir::new();
    let text = dir.run(&format!("{command} --help")).ok().out;
    expected.assert_eq(&text);
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_intervale")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let joined = text.replace("\\\n", " ");
    let examples = joined.lines().filter_map(|line| line.strip_prefix("  intervale "));
    let mut count = 0;
    for example in examples {
        let output = std::process::Command::new("bash")
            .args(["-c", &format!("intervale {example}")])
            .current_dir(dir.path(""))
            .env("PATH", &path)
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{example}: {err}");
        count += 1;
    }
    assert_eq!(count, example_count);
}

#[test]
fn the_help_text_and_its_examples() {
    check_help("bench", expect_file!["../data/help/bench.txt"], 6);
}

/// The rows of a run over few events of w2, which must succeed.
fn rows(dir: &Dir, options: &str) -> Vec<Value> {
    let args =
        format!("bench --workload w2 --events 8000 --repeat 1 --output-format json {options}");
    let out = dir.run(&args).ok().out;
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What was said, but for how far figures of so few events can be trusted.
fn without_trust(err: &str) -> String {
    err.lines().filter(|line| !line.contains("(trust: ")).collect()
}

fn column(rows: &[Value], name: &str) -> Vec<String> {
    rows.iter().map(|row| row[name].to_string().trim_matches('"').to_owned()).collect()
}

#[test]
fn each_combination_of_what_is_swept_is_a_row() {
    let dir = Dir::new();
    let all = rows(&dir, "--check --api join --keys 10,unique --batch 7,64 --type inner,left");
    assert_eq!(all.len(), 8);
    for name in ["keys", "batch", "type"] {
        let mut values = column(&all, name);
        values.sort();
        values.dedup();
        assert_eq!(values.len(), 2, "{name}");
    }
    let mut pairs = column(&all, "pairs");
    pairs.dedup();
    assert_eq!(pairs.len(), 2, "pairs depend on the keys, not on batch and type: {pairs:?}");
    for (name, options, expected) in [
        ("interval", "--interval -5ms..5ms,0..1s", vec!["-5ms..5ms", "0ms..1000ms"]),
        ("interval", "--interval [-1s,1s),0..0", vec!["-1000ms..999ms", "0ms..0ms"]),
        ("seed", "--seed 1e3", vec!["1000"]),
        ("disorder_ms", "--disorder 0s,3s", vec!["0", "3000"]),
        ("payload", "--payload 0,100", vec!["0", "100"]),
        ("skew", "--skew 0,1.25", vec!["0.0", "1.25"]),
        ("rate", "--rate 10,2000", vec!["10", "2000"]),
        ("simd", "--simd scalar", vec!["scalar"]),
    ] {
        let swept = rows(&dir, &format!("--check --api join {options}"));
        assert_eq!(column(&swept, name), expected, "{options}");
    }
}

#[test]
fn chains_find_what_their_stages_do_one_after_the_other() {
    let dir = Dir::new();
    // Compared with an offline join, on any number of cores.
    let all = rows(&dir, "--check --chain 0,1,3 --interval 0..300ms --cores 1,2 --runtime threads");
    assert_eq!(column(&all, "chain"), ["0", "0", "1", "1", "3", "3"]);
    let pairs: Vec<u64> = all.iter().map(|row| row["pairs"].as_u64().unwrap()).collect();
    assert!(pairs[0] > 0 && pairs[0] < pairs[2] && pairs[2] < pairs[4], "{pairs:?}");
    assert_eq!(column(&all, "events"), ["8000", "8000", "12000", "12000", "20000", "20000"]);
    // Each key comes once: whatever has a partner has it again, in every stage.
    let unique = rows(&dir, "--check --chain 0,2 --keys unique");
    assert_eq!(unique[0]["pairs"], unique[1]["pairs"]);
    assert!(unique[0]["pairs"].as_u64() > Some(0));
    // Nothing is said of a chain that gives out about what it takes.
    let bench = "bench --workload w1a --events 8000 --repeat 2 --chain 1 --check";
    assert_eq!(without_trust(&dir.run(bench).ok().err), "");
}

#[test]
fn however_state_is_laid_out_the_pairs_are_the_same() {
    let dir = Dir::new();
    let layouts = "--bucket-width auto,1ms,100ms,1h --chunk auto,64KiB --type inner,full";
    for api in ["--api join", "--cores 2 --runtime threads"] {
        let all = rows(&dir, &format!("--check {api} {layouts}"));
        let widths = ["auto", "auto", "1ms", "1ms", "100ms", "100ms", "1h", "1h"];
        assert_eq!(column(&all, "bucket_width"), [widths, widths].concat());
        assert_eq!(column(&all, "chunk")[..2], ["auto", "65536"]);
        let mut found = column(&all, "checksum");
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 1, "{found:?}");
        // Chunks of that size are there to be seen, and buckets that are never full as well.
        let bytes = |index: usize| all[index]["state_bytes_peak"].as_u64().unwrap();
        assert!(bytes(1) > bytes(0), "{} {}", bytes(1), bytes(0));
    }
    let table = "bench --workload w2 --events 8000 --repeat 1 --api join --bucket-width 1s,2s";
    let table = dir.run(table).ok().out;
    assert!(table.contains("bucket width") && table.contains("  2s  "), "{table}");
}

#[test]
fn bounds_are_measured_beside_the_join_without_them() {
    let dir = Dir::new();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    for api in ["--api join", "--cores 2 --runtime threads"] {
        let bounds = "--keys 10 --disorder 100ms --max-rows none,8500 --on-full spill,shed,fail";
        let all = rows(&dir, &format!("--check {api} {bounds} --interval=-100ms..100ms"));
        assert_eq!(column(&all, "max_rows"), ["none", "8500", "8500", "8500"], "{api}");
        assert_eq!(column(&all, "on_full"), ["none", "spill", "shed", "fail"], "{api}");
        assert_eq!(column(&all, "gives_up"), ["false", "false", "true", "false"], "{api}");
        let tight = "--keys 10 --max-rows 1500,2e4 --on-full spill,shed --type left";
        let all = rows(&dir, &format!("--check {api} {tight}"));
        let (checksums, missing) = (column(&all, "checksum"), column(&all, "pairs_missing"));
        // Rows in files are found, those that were given up are not, and it says how many.
        assert_eq!(checksums[0], checksums[2], "{api}");
        assert!(number(&all[0], "spilled") > 1_000, "{api}: {}", all[0]);
        assert!(number(&all[1], "shed") > 1_000, "{api}: {}", all[1]);
        assert!(number(&all[1], "pairs_missing") > 1_000, "{api}: {}", all[1]);
        let found = number(&all[1], "pairs") + number(&all[1], "pairs_missing");
        assert_eq!(found, number(&all[0], "pairs"), "{api}");
        assert_eq!([&missing[0], &missing[3]], ["null", "0"], "{api}");
        // A batch a core may come on top.
        assert!(number(&all[0], "state_rows_peak") <= 1_500 + 2 * 256, "{api}: {}", all[0]);
    }
    // Nothing lives so short that a row would be missed here, and no row is there for long.
    let lives = rows(&dir, "--check --api join --ttl none,1h,1us --interval 0..300s");
    assert_eq!(column(&lives, "ttl"), ["none", "1h", "1us"]);
    assert_eq!(lives[0]["checksum"], lives[1]["checksum"]);
    assert!(number(&lives[2], "timed_out") > 7_000, "{}", lives[2]);
    assert!(lives[2]["pairs"].as_u64() < lives[0]["pairs"].as_u64());
    let table = "bench --workload w2 --events 8000 --repeat 1 --api join --max-rows 1500";
    let ran = dir.run(&format!("{table} --on-full shed,spill")).ok();
    assert!(ran.out.contains("on full") && ran.out.contains("  spilled"), "{}", ran.out);
    assert!(ran.err.contains("pairs may be fewer"), "{}", ran.err);
    let full = format!("{table} --on-full fail");
    dir.run(&full).fails(1, &["1500 are allowed"]);
    // What was measured before is shown, as a table and on the page.
    let some = "bench --workload w2 --events 8000 --repeat 1 --api join --max-rows none,1500";
    let some = format!("{some} --on-full fail");
    let ran = dir.run(&format!("{some} --plot some.html")).fails(1, &["1500 are allowed"]);
    assert!(ran.out.lines().count() == 2 && ran.out.contains("8,000"), "{}", ran.out);
    let page = dir.read("some.html");
    assert!(page.contains("1500 are allowed") && page.contains("8,000"), "{page}");
    // A profile's bound is for joins: a bench has none unprompted.
    dir.write("p.toml", "max-state = \"1KiB\"\n");
    assert_eq!(column(&rows(&dir, "--profile p.toml"), "max_state"), ["none"]);
}

#[test]
fn cores_runtimes_and_instructions_change_no_pair() {
    let dir = Dir::new();
    let options =
        "--cores 1,3 --runtime threads --simd scalar,auto --peer naive --payload 40 --check";
    let all = rows(&dir, options);
    assert_eq!(column(&all, "api"), ["engine", "engine", "engine", "engine", "naive", "naive"]);
    assert_eq!(column(&all, "cores"), ["1", "1", "3", "3", "1", "3"]);
    let mut checksums = column(&all, "checksum");
    checksums.dedup();
    assert_eq!(checksums.len(), 1, "{checksums:?}");
    assert!(all[0]["pairs"].as_u64() > Some(0));
    assert!(all.iter().all(|row| row["cpu_ns_per_event"].as_f64() > Some(0.0)));
}

#[test]
fn a_list_of_cpus_is_one_configuration_also_in_a_profile() {
    let dir = Dir::new();
    assert_eq!(column(&rows(&dir, "--cores 0-0"), "cores"), ["1"]);
    assert_eq!(column(&rows(&dir, "--cores 1,2 --cores 0-0"), "cores"), ["1", "2", "1"]);
    dir.write("p.toml", "cores = \"0-0\"\n");
    assert_eq!(column(&rows(&dir, "--profile p.toml"), "cores"), ["1"]);
}

#[test]
fn what_does_nothing_is_said_and_what_comes_out_alone_is_shown() {
    let dir = Dir::new();
    let bench = "bench --workload w2 --events 8000 --api join";
    let ran = dir.run(&format!("{bench} --repeat 1 --cores 2 --runtime threads --type semi")).ok();
    assert!(ran.err.contains("so --cores and --runtime (or"), "{}", ran.err);
    let mut lines = ran.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (head, row) = (lines.next().unwrap(), lines.next().unwrap());
    let at = head.iter().position(|&name| name == "singles").expect("a column");
    assert!(row[at].replace(',', "").parse::<u64>().unwrap() > 0, "{row:?}");
    let ran = dir.run(&format!("{bench} --peer naive --cores 1")).ok();
    assert!(!ran.err.contains("--cores") && !ran.out.contains("singles"), "{}{}", ran.err, ran.out);
    assert!(ran.err.contains("--check compares them with an offline join"), "{}", ran.err);
    let ran = dir.run(&format!("{bench} --check --repeat 2")).ok();
    assert_eq!(without_trust(&ran.err), "");
}

#[test]
fn forms_are_those_of_join_and_checked_offline() {
    let dir = Dir::new();
    let forms = "--match all,first,last,nearest,one-to-one --asof backward,forward,nearest \
                 --window tumble:2s --window hop:2s,500ms --window session:300ms";
    let names = [
        "all",
        "first",
        "last",
        "nearest",
        "one-to-one",
        "asof-backward",
        "asof-forward",
        "asof-nearest",
        "tumble:2s",
        "hop:2s,500ms",
        "session:300ms",
    ];
    let join = rows(&dir, &format!("--check --api join {forms}"));
    assert_eq!(column(&join, "match"), names);
    let engine = rows(&dir, &format!("--cores 3 --runtime threads {forms}"));
    assert_eq!(column(&engine, "checksum"), column(&join, "checksum"));
    let pairs = |name: &str| {
        let at = names.iter().position(|n| *n == name).unwrap();
        join[at]["pairs"].as_u64().unwrap()
    };
    assert!(pairs("one-to-one") < pairs("nearest") && pairs("nearest") < pairs("all"));
    assert_eq!(pairs("first"), pairs("last"), "one for each left row that has any");
    assert_eq!(pairs("nearest"), pairs("asof-nearest"), "w2's interval reaches as far both ways");
    assert!(join.iter().all(|row| row["pairs"].as_u64() > Some(0)));
}

#[test]
fn csv_has_the_fields_of_json() {
    let dir = Dir::new();
    let json = rows(&dir, "--api join --window tumble:1s,1ms --roofline");
    let run = "bench --workload w2 --events 8000 --repeat 1 --api join --roofline";
    let csv = dir.run(&format!("{run} --window tumble:1s,1ms --output-format csv")).ok().out;
    let lines: Vec<&str> = csv.lines().collect();
    let names: Vec<&String> = json[0].as_object().unwrap().keys().collect();
    assert!(lines[0].split(',').eq(names), "{csv}");
    assert_eq!(lines.len(), 2, "{csv}");
    assert!(lines[1].contains("\"tumble:1s,1ms\""), "{csv}");
}

/// A saved run with CPU times as given, of 3 repeats.
fn save(dir: &Dir, times: [f64; 3]) {
    save_on(dir, times, 1.0);
}

/// A saved run of a machine that took so many times as long as this one.
fn save_on(dir: &Dir, times: [f64; 3], slower: f64) {
    let mut row = rows(dir, "--api join").remove(0);
    let [best, median, worst] = times;
    for name in ["yardstick_near_ns", "yardstick_far_ns"] {
        let ns = row[name].as_f64().unwrap();
        assert!(ns > 0.0, "{row}");
        row[name] = (ns * slower).into();
    }
    row["repeat"] = 3.into();
    row["cpu_ns_per_event"] = best.into();
    row["cpu_ns_per_event_median"] = median.into();
    row["cpu_ns_per_event_max"] = worst.into();
    dir.write("saved.jsonl", format!("{{\"machine\": \"a head\"}}\n{row}\n"));
}

#[test]
fn a_saved_run_is_compared_with_and_the_noise_is_said() {
    let dir = Dir::new();
    let compare = "--api join --repeat 3 --baseline saved.jsonl";
    let run = |options: &str| {
        let args = "bench --workload w2 --events 8000 --output-format json";
        let ran = dir.run(&format!("{args} {options}")).ok();
        serde_json::from_str::<Value>(ran.out.lines().next().unwrap()).expect("JSON")
    };
    for (times, verdict) in
        [([1e8, 1e8, 1e8], "faster"), ([1e-3, 2e-3, 3e-3], "slower"), ([1e-3, 1e3, 1e8], "same")]
    {
        save(&dir, times);
        let row = run(compare);
        assert_eq!(row["verdict"], verdict, "{row}");
        assert!(
            row["noise_percent"].as_f64().unwrap()
                >= row["cpu_spread_percent"].as_f64().unwrap() - 0.02
        );
        assert!(row["change_percent"].is_number(), "{row}");
    }
    // All of it may be the machine's doing.
    for (times, slower, verdict) in
        [([1e8, 1e8, 1e8], 1e12, "quieter"), ([1e-3, 2e-3, 3e-3], 1e-12, "busier")]
    {
        save_on(&dir, times, slower);
        let row = run(compare);
        assert_eq!(row["verdict"], verdict, "{row}");
        assert!(row["machine_change_percent"].as_f64().unwrap().abs() > 50.0, "{row}");
        let text = "bench --workload w2 --events 8000 --api join --baseline saved.jsonl";
        let text = dir.run(text).ok().out;
        assert!(text.contains(&format!("machine {verdict}: no verdict (")), "{text}");
    }
    save(&dir, [1e-3, 1e3, 1e8]);
    assert_eq!(run("--api join --repeat 2 --baseline saved.jsonl")["verdict"], "unknown");
    assert_eq!(run("--api join --batch 9 --repeat 3 --baseline saved.jsonl")["verdict"], "new");
    let args = "bench --workload w2 --events 8000 --api join --baseline saved.jsonl";
    let text = dir.run(args).ok().out;
    assert!(text.contains("verdict") && text.contains("same ("), "{text}");
    let text = dir.run(&format!("{args} --batch 9")).ok().out;
    assert!(text.trim_end().ends_with("  new (batch 9, saved 256)"), "{text}");
    // For scripts: slower, or nothing to compare with.
    let gate = format!("{args} --fail-if-slower");
    dir.run(&gate).ok();
    dir.run(&format!("{gate} --batch 9")).fails(1, &["no row could be compared", "1 new"]);
    dir.run(&format!("{gate} --repeat 2")).fails(2, &["--fail-if-slower", "--repeat 3"]);
    dir.run("bench --workload w2 --fail-if-slower").fails(2, &["--baseline"]);
    save(&dir, [1e-3, 2e-3, 3e-3]);
    let ran = dir.run(&gate).fails(1, &["1 of 1 rows slower than in saved.jsonl (w2 by join)"]);
    assert!(ran.out.contains("slower ("), "the figures are there: {}", ran.out);
    dir.run(args).ok();
    let wrong = dir.read("saved.jsonl").replace("\"pairs\":", "\"pairs\":1");
    dir.write("saved.jsonl", wrong);
    dir.run(args).fails(1, &["pairs of w2", "saved.jsonl"]);
    dir.write("saved.jsonl", "no json\n");
    dir.run(args).fails(1, &["saved.jsonl", "line 1"]);
    dir.write("saved.jsonl", "{}\n");
    dir.run(args).fails(1, &["saved.jsonl", "no row"]);
}

#[test]
fn a_row_says_where_and_with_what_it_was_measured() {
    let dir = Dir::new();
    let row = rows(&dir, "--api join").remove(0);
    assert!(row["machine_cpus"].as_u64() > Some(0), "{row}");
    assert_eq!(row["version"], env!("CARGO_PKG_VERSION"));
    for name in ["machine", "kernel", "commit"] {
        assert!(row.get(name).is_some_and(|value| value.is_string() || value.is_null()), "{row}");
    }
    // That of another machine is compared with, and the verdict says so.
    save(&dir, [1e-3, 1e3, 1e8]);
    let other = dir.read("saved.jsonl").replace("\"machine_cpus\":", "\"machine_cpus\":10");
    dir.write("saved.jsonl", other.replace("\"version\":\"", "\"version\":\"0."));
    let args = "bench --workload w2 --events 8000 --api join --baseline saved.jsonl";
    let text = dir.run(args).ok().out;
    assert!(text.contains(" % noise; other machine; other version)"), "{text}");
    let row = dir.run(&format!("{args} --output-format json")).ok().out;
    assert!(row.contains("\"baseline_differs\":\"machine, version\""), "{row}");
}

#[test]
fn median_and_spread_stand_beside_the_best() {
    let dir = Dir::new();
    let row = rows(&dir, "--api join").remove(0);
    assert_eq!(row["cpu_ns_per_event"], row["cpu_ns_per_event_median"], "of one repeat");
    for name in ["spread_percent", "cpu_spread_percent"] {
        assert_eq!(row[name], Value::Null, "one repeat has none");
    }
    let text = dir.run("bench --workload w2 --events 8000 --repeat 1 --api join").ok();
    assert!(text.err.contains("one repeat: no spread"), "{}", text.err);
    let cells = |line: usize| text.out.lines().nth(line).unwrap().replace("spread %", "spread");
    let at = cells(0).split_whitespace().position(|name| name == "spread").unwrap();
    // Of the headings before it, three have two words.
    let before =
        cells(0).split_whitespace().take(at).filter(|n| ["wall", "cpu"].contains(n)).count();
    let cells = cells(1);
    assert_eq!(cells.split_whitespace().nth(at - before), Some("-"), "{}", text.out);
    let args = "bench --workload w2 --events 8000 --repeat 5 --api join --output-format json";
    let row: Value = serde_json::from_str(&dir.run(args).ok().out).expect("JSON");
    for name in ["ns_per_event", "cpu_ns_per_event"] {
        let figure = |suffix: &str| row[format!("{name}{suffix}")].as_f64().unwrap();
        assert!(figure("") <= figure("_median") && figure("_median") <= figure("_max"), "{row}");
    }
}

#[test]
fn figures_of_short_or_unsteady_repeats_are_not_trusted() {
    let dir = Dir::new();
    let row = rows(&dir, "--api join").remove(0);
    assert!(row["trust"].as_str().unwrap().starts_with("short"), "{row}");
    let seconds = row["ns_per_event"].as_f64().unwrap() * 8e3 / 1e9;
    assert!((row["repeat_s"].as_f64().unwrap() - seconds).abs() < 1e-5, "{row}");
    let ran = dir.run("bench --workload w2 --events 8000 --api join --plot p.html").ok();
    let told = "1 of 1 rows are of repeats shorter than 100 ms (trust: short)";
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].ends_with("trust") && lines[1].contains("short"), "{}", ran.out);
    assert!(ran.err.contains(told), "{}", ran.err);
    // The page has the notes of the table, and says how it is to be read.
    let page = dir.read("p.html");
    for word in [told, "between the runs only", "How to read it", "whisker", "8,000"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    assert!(page.contains("class=\"whisker\""), "three repeats lie apart: {page}");
    // Longer ones are, unless they lie apart.
    let long = "bench --workload w1a --api join --events 4e6 --repeat 1 --output-format json";
    let row: Value = serde_json::from_str(&dir.run(long).ok().out).expect("one row");
    assert!(row["repeat_s"].as_f64() >= Some(0.1), "nobody joins 40 million a second: {row}");
    assert_eq!(row["trust"], "ok");
}

#[test]
fn plots_show_what_was_swept() {
    let dir = Dir::new();
    rows(&dir, "--api join --batch 16,64,256 --keys 10,1000 --plot swept.svg");
    let svg = dir.read("swept.svg");
    assert_eq!(svg.matches("<circle").count(), 6, "{svg}");
    assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
    assert!(svg.contains("events a batch") && svg.contains(">keys 10<"), "{svg}");
    rows(&dir, "--api join --match all,first,last --plot bars.html");
    let page = dir.read("bars.html");
    // The background, and a bar and a legend for each row.
    assert_eq!(page.matches("<rect").count(), 1 + 2 * 3, "{page}");
    assert!(page.contains(">2: first<"), "{page}");
    // However many rows there are, their bars are as wide, and as far from each other.
    let forms = "--match all,first,last,nearest,one-to-one --type inner,semi";
    rows(&dir, &format!("--api join {forms} --chunk 1k,16k,64k --plot bars.svg"));
    let svg = dir.read("bars.svg");
    let is_bar = |line: &&str| line.starts_with("<rect x") && !line.contains("width=\"12\"");
    let left = |line: &str| -> f64 { line.split('"').nth(1).unwrap().parse().unwrap() };
    let lefts: Vec<f64> = svg.lines().filter(is_bar).map(left).collect();
    assert_eq!(lefts.len(), 30, "{svg}");
    let gaps: Vec<f64> = lefts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (gap - gaps[0]).abs() < 0.2 && *gap > 15.0), "{gaps:?}");
    // Cores are whole, and lengths begin at 0.
    rows(&dir, "--cores 1,2 --runtime threads --seed 7 --plot cores.svg");
    let svg = dir.read("cores.svg");
    let ticks = |anchor: &str| -> Vec<String> {
        let is_tick = |line: &&str| line.contains(anchor) && line.starts_with("<text");
        let text = |line: &str| line.split(['>', '<']).nth(2).unwrap().to_owned();
        svg.lines().filter(is_tick).map(text).collect()
    };
    assert_eq!(ticks("text-anchor=\"middle\""), ["1", "2", "cores"], "{svg}");
    assert!(ticks("text-anchor=\"end\"").contains(&"0".to_owned()), "{svg}");
    // More cores are to bring more events in the same time, not less CPU time.
    assert!(svg.contains("events a second, of all cores, in wall time"), "{svg}");
    // Who is sent a chart or a page can run it again.
    rows(&dir, "--cores 1,2 --runtime threads --seed 7 --plot cores.html");
    let page = dir.read("cores.html");
    for word in ["events a second, of all cores, in wall time", "CPU ns an event, of all threads"] {
        assert_eq!(page.matches(word).count(), 1, "{word}: {page}");
    }
    let title = "w2; engine; 8,000 events; median of 1";
    // As the title of the document, and once where it is read.
    assert_eq!(page.matches(title).count(), 2, "{page}");
    for text in [svg, dir.read("cores.html")] {
        assert!(text.contains("seed 7; runtime threads; simd "), "{text}");
        assert!(text.contains(&format!(">version {}, 2", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(text.contains(">intervale bench --workload w2 --events 8000 --repeat 1"), "{text}");
        assert!(text.contains(" CPUs to use, kernel "), "{text}");
    }
    let names = ["bars.html", "bars.svg", "cores.html", "cores.svg", "swept.svg"];
    assert_eq!(dir.names(), names);
    dir.run("bench --workload w2 --events 8000 --plot no/where.svg").fails(1, &["no/where.svg"]);
}

#[test]
fn wrong_use_is_told_with_what_to_do() {
    let dir = Dir::new();
    for (options, told) in [
        ("--peer naive --match first", "--peer"),
        ("--peer naive --window tumble:1s", "--peer"),
        ("--match first --type right", "--match and --type"),
        ("--asof backward --type full", "--asof and --type"),
        ("--tolerance 5s", "--asof"),
        ("--window slide:5s", "--window"),
        ("--window hop:1s,5s", "--window"),
        ("--interval 5s..1s", "--interval"),
        ("--interval 0..inf", "--interval"),
        ("--chain 1 --api join", "--chain"),
        ("--chain 0,1 --peer naive", "--chain"),
        ("--chain 1 --type left", "--chain"),
        ("--chain 9", "8"),
        ("--batch 0", "--batch"),
        ("--cores 257", "--cores"),
        ("--cores 0,1-2", "--cores"),
        ("--cores 1,0", "lone numbers are counts"),
        ("--cores 900-903", "--cores"),
        ("--rate -1", "events a second from 1"),
        ("--seed x", "whole number"),
        ("--interval [1s,2s", "--interval"),
        ("--bucket-width 1s,0", "--bucket-width"),
        ("--chunk 64MiB", "32MiB"),
        ("--payload x", "--payload"),
        ("--keys 10,0", "--keys"),
        ("--simd scalar,mmx", "mmx"),
        ("--plot x.png", ".svg"),
        ("--batch 1e9", "it is too large; give a whole number from 1 to 4096"),
        ("--payload 1e9", "it is too large; give a whole number from 0 to 65536"),
        ("--payload -1", "it is negative; "),
        ("--repeat 0", "it is too small; "),
        ("--reserve -1", "--reserve"),
        ("--max-rows 9 --peer naive", "--peer"),
        ("--max-rows 9 --on-full shed --window tumble:1s", "--on-full"),
        ("--max-rows 9 --api join", "nobody could wait"),
        ("--window tumble:1s --ttl 5s", "--ttl"),
        ("--on-full shed", "--max-rows"),
    ] {
        dir.run(&format!("bench --workload w2 --events 8000 {options}")).fails(2, &[told]);
    }
    let told = "--output-format json > gone.jsonl";
    dir.run("bench --workload w2 --baseline gone.jsonl").fails(1, &["gone.jsonl", told]);
    for command in ["bench --workload w2", "gen --left -", "tune --workload w2"] {
        for (events, told) in [("1e30", "too large"), ("-5", "negative"), ("2.5", "no whole")] {
            let told = format!("'--events <N>': it is {told}");
            dir.run(&format!("{command} --events {events}")).fails(2, &[&told, "give a whole"]);
        }
    }
    dir.write("p.toml", "reserve = -1\n");
    let told = ["p.toml, line 1", "reserve = -1 is negative"];
    dir.run("bench --workload w2 --profile p.toml").fails(2, &told);
}

#[test]
fn more_cores_than_can_run_at_once_are_said() {
    let dir = Dir::new();
    let bench = "bench --workload w2 --events 2000 --repeat 2 --cores 1,200 --runtime threads";
    let ran = dir.run(bench).ok();
    let told = "warning: --cores 200: ";
    assert_eq!(ran.err.matches(told).count(), 1, "{}", ran.err);
    assert!(!ran.err.contains("--cores 1: ") && ran.out.lines().count() == 3, "{}", ran.err);
}
