//! `intervale load`: what it offers, what it measures, and what it says about it.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::support::{Dir, number};

/// A load that every machine that can run the tests keeps up with.
const SMALL: &str = "load --workload w2 --cores 1 --output-format json";

fn rows(dir: &Dir, args: &str) -> Vec<Value> {
    let duration = if args.contains("--duration") { "" } else { "--duration 300ms" };
    let out = dir.run(&format!("{SMALL} {duration} {args}")).ok().out;
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_rate_is_offered_and_its_latency_measured() {
    let rows = rows(&Dir::new(), "--rate 20_000 --warm-up 0 --producers 2");
    let [row] = &rows[..] else { panic!("one row: {rows:?}") };
    assert_eq!(row["workload"], "w2");
    assert_eq!(row["offered_rate"], 20_000.0);
    assert_eq!((number(row, "events"), number(row, "events_pushed")), (6_000, 6_000));
    assert_eq!((number(row, "producers"), number(row, "cores")), (2, 1));
    assert_eq!(number(row, "pairs_measured"), number(row, "pairs"));
    let percentiles = ["p50", "p90", "p99", "p999", "p9999", "max"];
    let latency = percentiles.map(|name| number(&row["latency_ns"], name));
    assert!(latency.is_sorted() && latency[0] > 0, "{row}");
    assert!(row["achieved_rate"].as_f64().unwrap() <= 20_000.0, "{row}");
    assert!(row["elapsed_s"].as_f64().unwrap() >= 0.3, "{row}");
    for name in ["kept_up", "producers_were_the_limit"] {
        assert!(row[name].is_boolean(), "{row}");
    }
    for name in ["p50", "p99", "max"] {
        assert!(row["producer_late_ns"][name].is_number(), "{row}");
    }
}

#[test]
fn the_pairs_are_those_of_the_join_alone() {
    let dir = Dir::new();
    let row = rows(&dir, "--rate 20_000 --producers 3").remove(0);
    assert_eq!(number(&row, "events_pushed"), 6_000);
    // Its own check compares with an offline join.
    let bench = "bench --workload w2 --api join --events 6000 --repeat 1 --check";
    let bench = dir.run(&format!("{bench} --output-format json")).ok().out;
    let bench: Value = serde_json::from_str(&bench).unwrap();
    assert_eq!((&row["pairs"], &row["checksum"]), (&bench["pairs"], &bench["checksum"]));
    assert!(number(&row, "pairs_measured") < number(&row, "pairs"), "the warm-up is left out");
}

#[test]
fn pairs_are_compared_with_an_offline_join_or_it_is_said_why_not() {
    let dir = Dir::new();
    // Whatever the engine does with keys, also where events are made as it goes.
    for args in ["--hot-keys force", "--hot-keys off --soak --check", "--scenario disorder"] {
        let load = format!("{SMALL} --rate 20_000 --duration 300ms {args}");
        let ran = dir.run(&load);
        let row: Value = serde_json::from_str(ran.out.lines().next().unwrap()).expect("JSON");
        assert_eq!(row["checked_against"], "an offline join", "{args}");
        let hot_keys = args.split_whitespace().nth(1).filter(|_| args.contains("--hot-keys"));
        assert_eq!(row["hot_keys"], hot_keys.unwrap_or("auto"), "{args}");
    }
    // Two cores, of which one would have everything.
    let forced = "load --workload w2 --hot-keys force --keys 2 --interval 0..50ms --cores 2";
    let forced = format!("{forced} --rate 60_000 --duration 600ms --output-format json");
    let forced: Value = serde_json::from_str(&dir.run(&forced).ok().out).expect("one row");
    assert!(number(&forced, "keys_split") > 0, "{forced}");
    assert_eq!(forced["checked_against"], "an offline join", "{forced}");
    let text = "load --workload w2 --cores 1 --duration 300ms";
    let text = |args: &str| dir.run(&format!("{text} {args}")).ok().out;
    let out = text("--rate 20000");
    assert!(out.contains("pairs and checksum of each load are those of an offline join"), "{out}");
    assert!(out.contains("pairs measured"), "{out}");
    let out = text("--rate 2e4 --event-rate 500 --disorder 100ms --late-share 10%");
    assert!(out.contains("were compared with nothing (20.00 k/s: events that are late"), "{out}");
}

#[test]
fn warnings_say_which_scenario_and_nothing_that_cannot_be_done() {
    let dir = Dir::new();
    let load = "load --workload w2 --cores 1 --rate 500 --duration 300ms";
    let ran = dir.run(&format!("{load} --scenario slow-sink")).ok();
    let told = "warning: at 500 events/s, scenario slow-sink: sinks stand still for 20ms each 1s";
    assert!(ran.err.contains(told) && ran.err.contains("--duration 3s90ms or more"), "{}", ran.err);
    assert!(!ran.err.contains("fewer --cores"), "{}", ran.err);
    let often = "--scenario slow-sink --sink-pause 1ms --sink-pause-every 20ms";
    let ran = dir.run(&format!("{load} {often}")).ok();
    assert!(!ran.err.contains("stand still"), "{}", ran.err);
    let ran = dir.run("load --workload w2 --cores 1 --rate 1e9 --duration 5ms").ok();
    assert!(!ran.err.contains("fewer --cores"), "{}", ran.err);
}

#[test]
fn latency_counts_what_the_engine_was_told_to_wait() {
    let rows = |linger: &str| {
        let args = format!("--rate 2000 --duration 600ms --batch 4096 --linger {linger}");
        number(&rows(&Dir::new(), &args)[0]["latency_ns"], "p50")
    };
    // A lingering event waits at least for half of it at the median.
    assert!(rows("40ms") >= 15_000_000, "the linger time is part of the latency");
}

#[test]
fn an_overload_is_said_so_and_its_latency_is_that_of_the_queue() {
    let dir = Dir::new();
    let args = "--rate 1e9 --duration 5ms --warm-up 0";
    let ran = dir.run(&format!("{SMALL} {args}")).ok();
    let row: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(row["kept_up"], false);
    assert!(number(&row, "events_pushed") < number(&row, "events"), "{row}");
    assert!(row["achieved_rate"].as_f64().unwrap() < 1e9, "{row}");
    assert!(ran.err.contains("were given up"), "{}", ran.err);
}

#[test]
fn rates_make_a_curve_and_a_plot() {
    let dir = Dir::new();
    let curve = rows(&dir, "--rates 20000,5000,1e4 --plot curve.svg");
    let rates: Vec<f64> = curve.iter().map(|row| row["offered_rate"].as_f64().unwrap()).collect();
    assert_eq!(rates, [20_000.0, 5_000.0, 10_000.0]);
    let svg = dir.read("curve.svg");
    assert!(svg.starts_with("<svg ") && svg.contains("p99.99"), "{svg}");
    // Three rates in each of six lines, those without a latency aside.
    assert!(svg.matches("<circle").count() <= 18 && svg.contains("<polyline"), "{svg}");
    let table = dir
        .run("load --workload w2 --rate 5e3 --duration 200ms --cores 1 --plot page.html")
        .ok()
        .out;
    assert!(table.contains("offered/s") && table.contains("5.00 k"), "{table}");
    let page = dir.read("page.html");
    assert!(page.contains("<svg ") && page.contains("offered/s"), "{page}");
    assert_eq!(dir.names(), ["curve.svg", "page.html"]);
}

#[test]
fn the_highest_rate_is_looked_for() {
    let dir = Dir::new();
    let args = "--duration 60ms --warm-up 0 --rate 2e4 --find-max --plot max.svg";
    // A bound that every rate breaks: the search ends soon, and not well.
    let told = "no rate meets the bound of 1 ns on p99: the lowest with pairs enough was ";
    let none = dir.run(&format!("{SMALL} {args} --slo 1ns")).fails(1, &["--find-max", told]);
    let none: Vec<Value> =
        none.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = none.last().unwrap();
    assert_eq!((&last["max_rate"], number(last, "slo_ns")), (&Value::Null, 1));
    // 20,000 events a second, a quarter of it, and those of which 100 are due in 60 ms, twice each.
    let tried: Vec<f64> =
        none[..6].iter().map(|row| row["offered_rate"].as_f64().unwrap()).collect();
    assert_eq!(tried, [2e4, 2e4, 5e3, 5e3, 1667.0, 1667.0]);
    assert_eq!(none.len(), 6 + 1);
    let enough = |row: &&Value| number(row, "pairs_measured") >= 100;
    let lowest = none[..6].iter().rfind(enough).expect("one that has pairs");
    assert_eq!(last["lowest_rate"], lowest["offered_rate"]);
    assert!(none[..6].iter().all(|row| row["meets_bound"] == false), "{none:?}");
    let tries: Vec<u64> = none[..6].iter().map(|row| number(row, "try")).collect();
    assert_eq!(tries, [1, 2].repeat(3));
    assert!(dir.read("max.svg").contains("bound on p99"), "the figures are drawn all the same");
    let args = args.replace("max.svg", "max.html");
    let found = rows(&dir, &format!("{args} --slo 10s"));
    let best = found.last().unwrap()["max_rate"].as_f64().expect("a rate");
    let tried = &found[..found.len() - 1];
    let of_rate = |rate: f64| tried.iter().filter(move |row| row["offered_rate"] == rate);
    assert!(of_rate(best).any(|row| row["kept_up"] == true), "{best}: {tried:?}");
    let worse = tried.iter().filter(|row| row["offered_rate"].as_f64().unwrap() > best);
    assert!(worse.clone().count() >= 2 || best >= 1e9, "{tried:?}");
    assert!(worse.clone().all(|row| row["kept_up"] == false), "{best}: {tried:?}");
    let page = dir.read("max.html");
    assert!(page.contains("bound on p99"), "{page}");
    // In the plot by percentile each rate is once, and the one that was found is among them.
    let (_, tails) = page.split_once("Latency by percentile").expect("the plot");
    let tails = tails.split_once("</svg>").expect("its end").0;
    let legend = |line: &&str| line.ends_with("/s</text>");
    let names = tails.lines().filter(legend).map(|line| line.split(['>', '<']).nth(2).unwrap());
    let mut names: Vec<&str> = names.collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == all && all > 2, "{names:?}");
    // On a busy machine it is "at least".
    let told = page.split_once("10.00 s").expect("what was found").1;
    let told = told.trim_start_matches([':', ' ']).trim_start_matches("at ");
    let best = told.split_once(" events/s").expect("a rate").0;
    let pairs = of_rate(found.last().unwrap()["max_rate"].as_f64().unwrap());
    if pairs.clone().any(|row| number(row, "pairs_measured") > 0) {
        assert!(names.contains(&format!("{best}/s").as_str()), "{best}: {names:?}");
    }
}

/// Runs something while every CPU has several other threads that never stop.
fn on_busy_cpus<T>(of: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let count = 4 * std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // Also when it panics.
        let _done = Raised(&done);
        of()
    })
}

struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn waiting_for_cpus_is_measured_and_told() {
    let dir = Dir::new();
    let load = "--rate 20_000 --duration 500ms --idle yield --plot page.html";
    let ran = on_busy_cpus(|| dir.run(&format!("{SMALL} {load}"))).ok();
    let row: Value = serde_json::from_str(&ran.out).expect("one row");
    let host = &row["host"];
    if !std::path::Path::new("/proc/thread-self/schedstat").exists() {
        assert!(host["workers"][0].is_null() && host["explains"].is_null(), "{row}");
        return;
    }
    let worker = &host["workers"][0];
    assert!(number(worker, "waited_ns") > 0 && number(worker, "longest_ns") > 0, "{row}");
    // What is measured is the time after the warm-up, and after the end nothing.
    assert!(number(worker, "over_ns") > 0, "{row}");
    let most = (row["elapsed_s"].as_f64().unwrap() - row["warm_up_s"].as_f64().unwrap()) * 1e9;
    assert!((number(worker, "over_ns") as f64) < most + 1e6, "{row}");
    assert!(number(&host["producers"][0], "over_ns") > 0, "{row}");
    assert!(["p99", "falling behind"].contains(&host["explains"].as_str().unwrap()), "{row}");
    assert!(ran.err.contains("without a CPU for"), "{}", ran.err);
    let page = dir.read("page.html");
    for word in ["waited for CPU", "worker 0", "producer 0", "without a CPU for", "preempted"] {
        assert!(page.contains(word), "{word}: {page}");
    }
}

#[test]
fn a_search_on_busy_cpus_says_that_the_host_was_the_limit() {
    if !std::path::Path::new("/proc/thread-self/schedstat").exists() {
        return;
    }
    let dir = Dir::new();
    // Above what a quiet machine takes, and below what waiting takes among so many; a worker that
    // yields instead of sleeping goes to the end of the queue.
    let search = "load --workload w2 --cores 1 --idle yield --find-max --rate 4e3 --slo 500us";
    let ran = on_busy_cpus(|| dir.run(&format!("{search} --duration 300ms --output-format json")));
    let rows: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = rows.last().expect("the last line");
    assert_eq!(last["limit"], "host", "{rows:?}");
    assert!(number(&last["spoiled"], "waited_ns") > 0, "{last}");
    let spoiled = |row: &&Value| row["offered_rate"] == last["spoiled"]["rate"];
    let tries: Vec<&Value> = rows[..rows.len() - 1].iter().filter(spoiled).collect();
    assert!(tries.len() > 2, "it is tried more often than twice: {rows:?}");
    assert!(tries.iter().any(|row| row["disturbed"] == true), "{rows:?}");
}

#[test]
fn wrong_use_is_refused_before_anything_runs() {
    let dir = Dir::new();
    let load = "load --workload w2";
    for (args, word) in [
        ("", "--rate"),
        ("--rate 0", "--rate"),
        ("--rate 1e3 --rates 1e3,2e3", "--rates"),
        ("--rates 1e3 --find-max", "--find-max"),
        ("--rate 1e3 --slo 1ms", "--find-max"),
        ("--rate 1e3 --duration 0", "--duration"),
        ("--rate 1e3 --duration 1s --warm-up 1s", "--warm-up"),
        ("--rate 1e3 --producers 0", "--producers"),
        ("--rate 1e3 --cores none", "--cores"),
        ("--rate 1e3 --linger=-1s", "--linger"),
        ("--rate 1e9 --duration 1h", "--duration"),
        ("--rate 1e3 --plot a.png", ".svg or .html"),
        ("--rate -1", "events a second from 1"),
        ("--rate 1e3 --event-rate -1", "events a second from 1"),
        ("--rate 1e3 --seed x", "whole number"),
        ("--find-max --slo 0", "--slo"),
        ("--rate 1e3 --scenario storm", "storm"),
        ("--rate 1e3 --burst-factor 3", "--scenario burst"),
        ("--rate 1e3 --scenario burst --skew-share 0.1", "--scenario skew"),
        ("--rate 1e3 --scenario burst --burst-factor 1", "--burst-factor"),
        ("--rate 1e3 --scenario skew --skew-share 2", "--skew-share"),
        ("--rate 1e3 --scenario slow-sink --sink-pause 0", "--sink-pause"),
        ("--rate 1e3 --duration 1s --scenario stalled-source --stall-for 1s", "--stall-for"),
        ("--find-max --scenario burst,skew", "--find-max"),
        ("--rates 1e3,2e3 --soak", "--soak"),
        ("--rate 1e3 --sample-every 1s", "--soak"),
        ("--rate 1e3 --soak --sample-every 1us", "--sample-every"),
        ("--rate 1e3 --soak --growth-max much", "--growth-max"),
    ] {
        dir.run(&format!("{load} {args}")).fails(2, &[word]);
    }
    dir.run(&format!("{load} --rate 1e3 --plot no/where.svg")).fails(1, &["--plot", "no/where"]);
    dir.run("load --workload w9 --rate 1e3").fails(2, &["w1a"]);
}

#[test]
fn scenarios_run_in_turn_on_the_same_load() {
    let dir = Dir::new();
    let all = rows(&dir, "--rate 20000 --producers 2 --scenario all --disorder-by 2s");
    let names: Vec<&str> = all.iter().map(|row| row["scenario"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "burst", "skew", "disorder", "stalled-source", "slow-sink"]);
    for row in &all {
        assert_eq!(number(row, "events_pushed"), 6_000, "{row}");
        assert_eq!(number(row, "late_rows"), 0, "{row}");
        assert!(row["busiest_core_share"].as_f64().is_some_and(|share| share == 1.0), "{row}");
    }
    // Only skew makes other pairs.
    let checksum =
        |name: &str| &all.iter().find(|row| row["scenario"] == name).unwrap()["checksum"];
    for name in ["burst", "disorder", "stalled-source", "slow-sink"] {
        assert_eq!(checksum(name), checksum("none"), "{name}");
    }
    assert_ne!(checksum("skew"), checksum("none"));
    let table = "load --workload w2 --cores 1 --rate 5e3 --duration 200ms --scenario burst";
    let table = dir.run(&format!("{table} --burst-every 100ms")).ok().out;
    assert!(table.contains("burst: all events of each 100ms due 10 times as fast"), "{table}");
}

#[test]
fn a_soak_says_what_grows_and_ends_accordingly() {
    let dir = Dir::new();
    // Rows of w2 are kept for 6 s of event time; state has its size after eight times as long: 0.5 s
    // at this rate.
    let soak = format!("{SMALL} --rate 400_000 --soak --sample-every 20ms --plot soak.html");
    let ran = dir.run(&format!("{soak} --duration 1200ms --growth-max 1000"));
    let row: Value = serde_json::from_str(&ran.out).expect("one row");
    let soak_of = &row["soak"];
    if soak_of["verdict"] != "too_few" {
        // A machine that is so busy that there are few samples says nothing.
        assert!(["steady", "unclear"].contains(&soak_of["verdict"].as_str().unwrap()), "{row}");
    }
    let too_few = soak_of["verdict"] == "too_few";
    assert_eq!(ran.code, Some(i32::from(too_few)), "{}", ran.err);
    assert!(number(soak_of, "samples") as usize <= row["samples"].as_array().unwrap().len());
    assert!(soak_of["fill_s"].as_f64().is_some_and(|fill| (0.4..0.6).contains(&fill)), "{row}");
    for name in ["rss", "state", "latency_p99"] {
        assert!(soak_of[name]["growth"].is_number() && soak_of[name]["noise"].is_number(), "{row}");
    }
    assert!(row["samples"].as_array().unwrap().iter().any(|sample| number(sample, "pairs") > 0));
    let page = dir.read("soak.html");
    for word in ["Over time", "memory (RSS)", "limit", "--growth-max 1000", "Soak: "] {
        assert!(page.contains(word), "{word}: {page}");
    }
    // Rows of w1a are kept for 365 s of event time, which this load never gets to.
    let short = "load --workload w1a --cores 1 --rate 1000 --soak --duration 400ms";
    let short = format!("{short} --sample-every 10ms");
    let ran = dir.run(&short).fails(1, &["the soak has no verdict: too short to say"]);
    assert!(ran.out.contains("too short to say") && !ran.out.contains("steady"), "{}", ran.out);
    let ran = dir.run(&format!("{short} --output-format json")).fails(1, &[]);
    let row: Value = serde_json::from_str(&ran.out).expect("one row");
    for series in ["rss", "state", "latency_p99"] {
        assert_eq!(row["soak"][series]["verdict"], "too_short", "{row}");
    }
}

#[test]
fn a_page_can_be_sent_to_others() {
    let dir = Dir::new();
    let args = "--rates 5000,10000 --scenario none,burst --duration 300ms --plot page.html";
    rows(&dir, args);
    let page = dir.read("page.html");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
    // Nothing to fetch and nothing to run.
    assert!(
        !page.contains("<script") && !page.contains("src=") && !page.contains("href"),
        "{page}"
    );
    assert!(!page.contains("NaN"), "{page}");
    // The curve, the percentiles, and three plots over time for each of four loads.
    assert!((2..=14).contains(&page.matches("<svg ").count()), "{page}");
    for word in ["p99 latency over load", "Latency by percentile", "burst at 10.00 k/s", "--rates"]
    {
        assert!(page.contains(word), "{word}: {page}");
    }
    // What the terminal is warned of, the page is.
    let few = "load --workload w2 --rate 500 --duration 200ms --cores 1 --scenario skew";
    let ran = dir.run(&format!("{few} --skew-share 1% --linger 1h --plot page.html")).ok();
    let page = dir.read("page.html");
    let warnings: Vec<&str> =
        ran.err.lines().filter_map(|line| line.strip_prefix("warning: ")).collect();
    assert!(warnings.iter().any(|warning| warning.contains("too few")), "{}", ran.err);
    for warning in warnings {
        // As HTML has it.
        let text = warning.replace('\'', "&#39;");
        assert!(page.contains(warning) || page.contains(&text), "{warning}: {page}");
    }
    assert!(ran.out.contains("linger 1h,"), "{}", ran.out);
    assert!(ran.out.contains("1 % of both sides"), "{}", ran.out);
    // A chart that stands alone has it below.
    dir.run(&format!("{few} --skew-share 1% --linger 1h --plot few.svg")).ok();
    let svg = dir.read("few.svg");
    assert!(svg.contains("too few"), "{svg}");
}

#[test]
fn events_may_be_shaped_as_those_of_gen_and_bench() {
    let dir = Dir::new();
    let shape = "--keys 50 --skew 1.2 --event-rate 500 --delay 100ms --disorder 2s --payload 200";
    let row = rows(&dir, &format!("--rate 20_000 {shape} --interval -200ms..1s")).remove(0);
    for (name, value) in [
        ("keys", "50"),
        ("skew", "1.2"),
        ("event_rate", "500"),
        ("delay_ms", "100"),
        ("disorder_ms", "2000"),
        ("payload", "200"),
        ("interval", "\"-200ms..1000ms\""),
        ("late_share", "0.0"),
    ] {
        assert_eq!(row[name].to_string(), value, "{name}");
    }
    assert_eq!((number(&row, "events_pushed"), number(&row, "late_rows")), (6_000, 0));
    // The same events, joined by another program.
    let bench = "bench --workload w2 --keys 50 --skew 1.2 --rate 500 --disorder 2s --interval 0..0";
    let load = "--rate 20_000 --keys 50 --skew 1.2 --event-rate 500 --disorder 2s --interval 0..0";
    let row = rows(&dir, &format!("{load} --payload 30")).remove(0);
    let bench = dir.run(&format!("{bench} --events 6000 --api join --output-format json")).ok().out;
    let bench: Value = serde_json::from_str(bench.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&row["checksum"], number(&row, "pairs")),
        (&bench["checksum"], number(&bench, "pairs"))
    );
    let ran = dir.run("load --workload free --keys 9 --cores 1 --rate 2e4 --duration 300ms").ok();
    assert!(ran.out.contains("free, keys 9, seed 42"), "{}", ran.out);
    let late = "--rate 20_000 --event-rate 500 --disorder 100ms --late-share 10%";
    let row = rows(&dir, late).remove(0);
    assert!((300..900).contains(&number(&row, "late_rows")), "{row}");
}

#[test]
fn bursts_are_given_in_one_word_as_well() {
    let dir = Dir::new();
    let row = rows(&dir, "--rate 20_000 --burst 50ms,5").remove(0);
    assert_eq!((row["scenario"].as_str(), number(&row, "events")), (Some("burst"), 6_000));
    let both = rows(&dir, "--rate 20_000 --burst 50ms,5 --scenario none,burst");
    assert_eq!(both.len(), 2);
    for (args, word) in [
        ("--burst 1s,5 --burst-factor 3", "--burst-factor"),
        ("--burst 1s,5 --scenario skew", "--scenario burst"),
        ("--burst 1s", "--burst"),
        ("--skew 1 --keys unique", "--keys"),
        ("--disorder 3d", "--disorder"),
        ("--event-rate 0", "--event-rate"),
        ("--event-rate 1e9", "--event-rate 1000000000: "),
        ("--interval 5s..1s", "--interval"),
        ("--interval 0..inf", "--interval"),
        ("--bucket-width 0", "--bucket-width"),
        ("--chunk 1", "1KiB"),
    ] {
        dir.run(&format!("load --workload w2 --rate 10 --duration 1s {args}")).fails(2, &[word]);
    }
}

#[test]
fn the_layout_of_state_is_part_of_a_load() {
    let row = rows(&Dir::new(), "--rate 20_000 --bucket-width 500us --chunk 64k").remove(0);
    assert_eq!((number(&row, "bucket_width_ns"), number(&row, "chunk_bytes")), (500_000, 65_536));
    assert_eq!(number(&row, "events_pushed"), 6_000);
}

/// Starts a load, stops it after its first `threads` have come up, and for as long as `until` says.
#[cfg(unix)]
fn stopped(dir: &Dir, args: &str, signal: &str) -> (Option<i32>, String, String) {
    let child = dir.spawn(args);
    let pid = child.id();
    // The signal is caught before the engine starts; until then it ends the process anyhow.
    wait_for_threads(pid);
    wait_for_cpu(pid);
    std::process::Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    let ran = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
}

#[test]
#[cfg(unix)]
fn a_load_that_is_stopped_reports_what_ran_until_then() {
    let dir = Dir::new();
    let load = "load --workload w2 --rate 200_000 --duration 60s --cores 1 --warm-up 0";
    let json = format!("{load} --soak --plot page.html --output-format json");
    let (code, out, err) = stopped(&dir, &json, "-INT");
    assert_eq!(code, Some(130), "{err}");
    assert!(err.contains("stopped by Ctrl-C after") && err.contains("until then"), "{err}");
    let row: Value = serde_json::from_str(&out).expect("one row");
    assert_eq!(row["stopped"], true);
    assert!(row["due_s"].as_f64().is_some_and(|due| due > 0.0 && due < 55.0), "{row}");
    assert!(number(&row, "events") < 11_000_000 && number(&row, "pairs") > 0, "{row}");
    assert!(row["soak"]["verdict"].is_string(), "{row}");
    let page = dir.read("page.html");
    assert!(page.contains("stopped after"), "{page}");

    let two = format!("{load} --soak --scenario burst,none");
    let (code, out, err) = stopped(&dir, &two, "-TERM");
    assert_eq!(code, Some(143), "{err}");
    let note = " of 1m: burst at 200.00 k/s was cut short";
    assert!(out.contains("stopped after ") && out.contains(note), "{out}");
    assert!(!out.contains("give --duration"), "it had a minute: {out}");
    let is_other = |line: &str| line.trim_start().starts_with("none ");
    assert!(!out.lines().any(is_other), "the other load did not run: {out}");

    let search = "load --workload w2 --rate 1000 --find-max --duration 60s --cores 1";
    let (code, out, err) = stopped(&dir, search, "-INT");
    assert_eq!(code, Some(130), "{err}");
    assert!(out.contains("the search was stopped before"), "{out}");
    assert_eq!(dir.names(), ["page.html"]);
}

/// Waits until the process has worked for a moment (`getconf CLK_TCK` is 100 a second).
#[cfg(unix)]
fn wait_for_cpu(pid: u32) {
    let used = || -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    while used().is_some_and(|ticks| ticks < 10) {
        std::thread::yield_now();
    }
}

/// Waits until the process has a producer and a worker beside its main thread.
#[cfg(unix)]
fn wait_for_threads(pid: u32) {
    let tasks = format!("/proc/{pid}/task");
    while std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() < 3) {
        std::thread::yield_now();
    }
}
