//! `--then`: joins of more than two streams, held to nested loops over the files' rows.

use serde_json::Value;

use crate::support::{Dir, number, sorted_rows};

/// A row: a column for each key, then time and id.
pub type Row = (Vec<String>, i64, String);

/// Streams of some rows: times ascend with a disorder below 50 ms, keys repeat, some are empty.
pub fn streams(count: usize, rows: u64) -> Vec<Vec<Row>> {
    let mut state = 17_u64;
    let mut next = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    };
    let mut row = |stream: usize, number: u64| {
        let key = |pick: u64| if pick == 0 { String::new() } else { format!("k{pick}") };
        let keys = vec![key(next(9)), key(next(7))];
        (keys, (1_000 + number * 10 + next(50)) as i64, format!("s{stream}r{number}"))
    };
    (0..count).map(|stream| (0..rows).map(|number| row(stream, number)).collect()).collect()
}

pub fn write(dir: &Dir, streams: &[Vec<Row>]) {
    for (number, rows) in streams.iter().enumerate() {
        let mut text = "a,b,t,id\n".to_owned();
        for (keys, ts, id) in rows {
            text.push_str(&format!("{},{},{ts},{id}\n", keys[0], keys[1]));
        }
        dir.write(&format!("s{number}.csv"), text);
    }
}

/// How a further stream is joined: anchor, interval, the stream and column of the left key, the
/// column of its own, whether it pads.
type Stage = (usize, std::ops::RangeInclusive<i64>, (usize, usize), usize, bool);

/// The ids of the rows that nested loops find, with `-` for a stream without one, sorted.
fn expected(streams: &[Vec<Row>], stages: &[Stage]) -> Vec<String> {
    let mut joined: Vec<Vec<Option<&Row>>> = streams[0].iter().map(|row| vec![Some(row)]).collect();
    for ((anchor, between, (of, column), own, pads), rows) in stages.iter().zip(&streams[1..]) {
        let mut out = Vec::new();
        for left in joined {
            let fits = |right: &&Row| {
                let (Some(anchor), Some(keyed)) = (left[*anchor], left[*of]) else { return false };
                let key = &keyed.0[*column];
                !key.is_empty() && *key == right.0[*own] && between.contains(&(right.1 - anchor.1))
            };
            let found: Vec<&Row> = rows.iter().filter(fits).collect();
            if found.is_empty() && *pads {
                out.push([&left[..], &[None]].concat());
            }
            out.extend(found.into_iter().map(|right| [&left[..], &[Some(right)]].concat()));
        }
        joined = out;
    }
    let ids = |row: &Vec<Option<&Row>>| {
        let ids: Vec<&str> = row.iter().map(|row| row.map_or("-", |row| row.2.as_str())).collect();
        ids.join("+")
    };
    let mut ids: Vec<String> = joined.iter().map(ids).collect();
    ids.sort();
    ids
}

/// The ids of output rows of so many streams.
fn ids(rows: &[String], streams: usize) -> Vec<String> {
    let ids = |row: &String| {
        let cells: Vec<&str> = row.split(',').collect();
        assert_eq!(cells.len(), 4 * streams, "{row}");
        let id = |stream: usize| Some(cells[4 * stream + 3]).filter(|id| !id.is_empty());
        (0..streams).map(|stream| id(stream).unwrap_or("-")).collect::<Vec<_>>().join("+")
    };
    let mut ids: Vec<String> = rows.iter().map(ids).collect();
    ids.sort();
    ids
}

const FIRST: &str = "--left s0.csv --right s1.csv --on a --left-time t --right-time t \
                     --between -40ms..60ms --out-of-orderness 60ms --time-format ms";
const SECOND: &str = "--then s2.csv --then-on b_right=a --then-between 0..80ms --then-time t \
                      --then-anchor right";

fn three() -> [Stage; 2] {
    [(0, -40..=60, (0, 0), 0, false), (1, 0..=80, (1, 1), 0, false)]
}

/// The sums that must hold between the stages of a report.
fn check_stages(report: &Value, rows_out: u64) {
    let stages = report["stages"].as_array().expect("stages");
    for (stage, next) in stages.iter().zip(&stages[1..]) {
        assert_eq!(number(stage, "rows_out"), number(next, "left_rows"), "{report}");
    }
    for stage in stages {
        for side in ["left", "right"] {
            let count = |what: &str| number(stage, &format!("{side}_{what}"));
            let parts = ["matched", "unmatched", "late", "bad", "null_key"].map(count);
            assert_eq!(count("rows"), parts.iter().sum::<u64>(), "{side}: {report}");
        }
    }
    assert_eq!(number(&stages[stages.len() - 1], "rows_out"), rows_out, "{report}");
    assert_eq!(number(report, "rows_out"), rows_out, "{report}");
}

/// Each stage takes its share before the first row: together what was asked for.
#[test]
#[cfg(target_os = "linux")]
fn stages_share_what_is_reserved() {
    let dir = Dir::new();
    write(&dir, &streams(3, 5));
    let join = "--left s0.csv --right s1.csv --on a --left-time t --right-time t --time-format ms \
                --cores 1 --then s2.csv --then-on b_right=a --then-time t --then-anchor right";
    let peak = |options: &str| {
        let (_, report) = dir.join(&format!("{join} {options}"));
        number(&report, "rss_bytes_peak") >> 20
    };
    let [two, window] = ["--then-between 0..1s", "--then-window tumble:1s"].map(|stage| {
        let form = format!("--between 0..1s {stage}");
        peak(&format!("{form} --reserve 300MiB")) - peak(&form)
    });
    // Shares are rounded up, index and rows of a side by themselves.
    assert!((250..500).contains(&two), "two stages took {two} MiB");
    assert!((250..450).contains(&window), "one stage took {window} MiB");
}

#[test]
fn three_streams_on_any_cores_and_runtime() {
    let (dir, streams) = (Dir::new(), streams(3, 300));
    write(&dir, &streams);
    let expected = expected(&streams, &three());
    assert!(expected.len() > 100, "{}", expected.len());
    for machine in
        ["--cores 1", "--cores 2", "--runtime threads", "--deterministic", "--max-state 64MiB"]
    {
        let (out, report) = dir.join(&format!("{FIRST} {SECOND} {machine}"));
        let header = "a,b,t,id,a_right,b_right,t_right,id_right,a_then1,b_then1,t_then1,id_then1";
        assert_eq!(out.lines().next(), Some(header));
        assert_eq!(ids(&sorted_rows(&out), 3), expected, "{machine}");
        check_stages(&report, expected.len() as u64);
    }
}

#[test]
fn five_streams_with_padding_keys_of_several_columns_and_anchors_of_their_own() {
    let (dir, streams) = (Dir::new(), streams(5, 200));
    write(&dir, &streams);
    let stages = [
        (0, -40..=60, (0, 0), 0, true),
        (1, 0..=80, (1, 1), 0, true),
        (0, -100..=10, (2, 0), 1, false),
        (2, -50..=50, (0, 1), 1, true),
    ];
    let expected = expected(&streams, &stages);
    assert!(expected.len() > 100 && expected.iter().any(|ids| ids.contains('-')));
    let options = format!(
        "{FIRST} --type left {SECOND} --then-type left \
         --then s3.csv --then-on a_then1=b --then-between -100ms..10ms --then-time t \
         --then-anchor s0 \
         --then s4.csv --then-on left.b=b --then-between [-50ms,50ms] --then-time t \
         --then-anchor then1 --then-type left"
    );
    let mut sorted = Vec::new();
    for machine in
        ["--cores 1", "--cores 2", "--cores 2 --deterministic", "--cores 1 --deterministic"]
    {
        let (out, report) = dir.join(&format!("{options} {machine}"));
        assert_eq!(ids(&sorted_rows(&out), 5), expected, "{machine}");
        check_stages(&report, expected.len() as u64);
        if machine.contains("deterministic") {
            sorted.push(out);
        }
    }
    assert_eq!(sorted[0], sorted[1], "the same bytes on any number of cores");
}

#[test]
fn deterministic_rows_are_sorted_by_time_and_then_by_their_places() {
    let (dir, streams) = (Dir::new(), streams(3, 200));
    write(&dir, &streams);
    let (out, _) = dir.join(&format!("{FIRST} {SECOND} --deterministic"));
    let place = |id: &str| {
        let (stream, row) = id[1..].split_once('r').unwrap();
        (stream.parse::<u64>().unwrap(), row.parse::<u64>().unwrap())
    };
    let orders: Vec<_> = out
        .lines()
        .skip(1)
        .map(|row| {
            let cells: Vec<&str> = row.split(',').collect();
            let time = [2, 6, 10].map(|at| cells[at].parse::<i64>().unwrap()).into_iter().max();
            (time, [3, 7, 11].map(|at| place(cells[at])))
        })
        .collect();
    assert!(orders.len() > 50 && orders.is_sorted(), "{out}");
}

#[test]
fn a_condition_and_a_choice_are_of_the_first_two() {
    let dir = Dir::new();
    dir.write("s0.csv", "a,b,t,id\nk,1,1000,l1\nk,2,1000,l2\n");
    dir.write("s1.csv", "a,b,t,id\nk,1,1000,r1\nk,2,1001,r2\n");
    dir.write("s2.csv", "a,b,t,id\nk,9,1000,t1\nk,9,1005,t2\n");
    let then = "--then s2.csv --then-on a --then-between 0..1s --then-time t --then-anchor left";
    for (options, own, expected) in [
        ("--where b=b_right", "", &["l1+r1+t1", "l1+r1+t2", "l2+r2+t1", "l2+r2+t2"][..]),
        ("--match first", "--then-match last", &["l1+r1+t2", "l2+r1+t2"]),
        ("--where b=b_right --type left", "--then-match first", &["l1+r1+t1", "l2+r2+t1"]),
    ] {
        for machine in ["--cores 1", "--cores 2 --deterministic"] {
            let (out, _) = dir.join(&format!("{FIRST} {options} {then} {own} {machine}"));
            assert_eq!(ids(&sorted_rows(&out), 3), expected, "{options}");
        }
    }
}

#[test]
fn columns_are_chosen_and_conditions_asked_over_all_streams() {
    let dir = Dir::new();
    dir.write("s0.csv", "a,b,t,id\nk,1,1000,l1\nk,5,1000,l2\n");
    dir.write("s1.csv", "a,b,t,id\nk,1,1050,r1\n");
    dir.write("s2.csv", "a,b,t,id\nk,7,1500,t1\nk,x,1600,t3\nk,3,4000,t2\n");
    let then =
        ["--then", "s2.csv", "--then-on", "a", "--then-between", "0..9s", "--then-time", "t"];
    let join = |more: &[&str]| {
        let mut command = dir.command(&format!("join {FIRST} --deterministic --stats none"));
        command.args(then).args(["--then-anchor", "left"]).args(more);
        crate::support::Ran::from(command.output().unwrap())
    };
    let select = "id, then1.id AS then, t_then1 - right.t AS later, left.b + b_then1 AS sum";
    let condition = "b_then1 > left.b AND t_then1 - t_right < '1s'";
    let types = ["--then-types", "b:int"];
    let ran = join(&[&["--select", select, "--then-where", condition], &types[..]].concat()).ok();
    assert_eq!(ran.out, "id,then,later,sum\nl1,t1,450ms,8\nl2,t1,450ms,12\n");
    assert!(ran.err.contains("then1.b was"), "{}", ran.err);
    let padded = ["--select", select, "--then-where", condition, "--then-type", "left"];
    let padded =
        join(&[&padded[..], &types, &["--type", "left", "--where", "b = right.b"]].concat());
    assert_eq!(padded.ok().out, "id,then,later,sum\nl2,,,\nl1,t1,450ms,8\n");
    let all = join(&["--select", "then1.*, id", "--then-where", "false"]).ok();
    assert_eq!(all.out, "a_then1,b_then1,t_then1,id_then1,id\n");
    join(&["--where", "b_then1 = 1"]).fails(2, &["--where", "no column \"b_then1\""]);
    join(&["--then-where", "then2.b = 1"]).fails(2, &["--then-where", "left, right and then1"]);
    join(&["--then-types", "c:int", "--select", "a"]).fails(2, &["--then-types", "\"c\""]);
    join(&["--then-types", "b:int"]).fails(2, &["--then-types says"]);
}

#[test]
fn an_anchor_is_named_and_never_guessed() {
    let dir = Dir::new();
    write(&dir, &streams(3, 5));
    let join = |then: &str| {
        let line = format!("join {FIRST} --then s2.csv --then-between 0..1s --then-time t {then}");
        dir.run(&line)
    };
    let said = join("--then-on b_right=a").ok().err;
    assert!(said.contains("compared with that of right"), "{said}");
    let said = join("--then-on right.b=a --then-anchor left").ok().err;
    assert!(!said.contains("compared with"), "{said}");
    let both = join("--then-on b_right=a --then-on b=b");
    both.fails(2, &["of several streams", "--then-anchor left or right"]);
    join("--then-on a --then-anchor then1").fails(2, &["there are left, right"]);
    join("--then-on c=a").fails(2, &["--then-on", "no column \"c\"", "a_right"]);
    join("--then-on a=c").fails(2, &["--then-on", "s2.csv", "no column \"c\""]);
    join("").fails(2, &["--then s2.csv", "--then-on"]);
    join("--then-on a --then-between 1..2").fails(2, &["--then-between: it is there twice"]);
    let then = "--then s2.csv --then-on a --then-between 0..1s --then-time t";
    dir.run(&format!("join {FIRST} --type semi {then}")).fails(2, &["--type inner, left, right"]);
    for (stage, words) in [
        ("--then-window tumble:1s", &["one of --then-between, --then-asof and --then-window"][..]),
        ("--then-strict", &["--then-strict goes with --then-asof"]),
        ("--then-type right --then-match last", &["--then-match: first, last", "--then-type"]),
    ] {
        dir.run(&format!("join {FIRST} {then} {stage}")).fails(2, words);
    }
    for (stage, words) in [
        ("--then-asof backward", &["--then-asof: give --then-tolerance"][..]),
        ("--then-window soon", &["--then-window: \"soon\" is no window"]),
        ("--then-window tumble:1s --then-match last", &["--then-match only with"]),
    ] {
        let line = then.replace("--then-between 0..1s", stage);
        dir.run(&format!("join {FIRST} {line}")).fails(2, words);
    }
    // What clap has to say is about the join.
    dir.run("join --then-on a --then a.csv").fails(2, &["Usage: intervale join"]);
    let empty = then.replace("0..1s", "5..4");
    dir.run(&format!("join {FIRST} {empty}")).fails(2, &["--then-between"]);
}

/// The watermark of a later stage is what the one before promises, whoever was stepped when.
#[test]
fn the_last_watermark_is_the_same_in_every_run() {
    let (dir, streams) = (Dir::new(), streams(3, 300));
    write(&dir, &streams);
    let watermarks = |cores: usize| {
        let options = format!("{FIRST} {SECOND} --deterministic --cores {cores}");
        let (_, report) = dir.join(&options);
        let stages = report["stages"].as_array().unwrap();
        let of_stages: Vec<_> = stages.iter().map(|stage| stage["watermark"].clone()).collect();
        (report["watermark"].clone(), of_stages)
    };
    let first = watermarks(1);
    assert!(first.0.as_i64() < first.1[0].as_i64(), "the second stage trails the first: {first:?}");
    for run in 0..24 {
        assert_eq!(watermarks(1 + run % 3), first, "run {run}");
    }
}

#[test]
fn late_and_bad_rows_are_named_by_their_stream() {
    let dir = Dir::new();
    dir.write("s0.csv", "a,b,t,id\nk,x,1000,l1\n");
    dir.write("s1.csv", "a,b,t,id\nk,x,1000,r1\n");
    dir.write("s2.csv", "a,b,t,id\nk,x,9000,t1\nk,x,1000,t2\nk,x,soon,t3\nk,x,1010,t4\n");
    let options = "--left s0.csv --right s1.csv --on a --left-time t --right-time t --between 0..0 \
                   --time-format ms --then s2.csv --then-on a --then-between 0..9s --then-time t \
                   --deterministic --late-output late.csv --bad-rows-output bad.csv";
    let (out, report) = dir.join(options);
    assert_eq!(ids(&sorted_rows(&out), 3), ["l1+r1+t1"]);
    let late = "side,lag_ms,a,b,t,id,a_right,b_right,t_right,id_right,a_then1,b_then1,t_then1,\
                id_then1\nthen1,8000,,,,,,,,,k,x,1000,t2\nthen1,7990,,,,,,,,,k,x,1010,t4\n";
    assert_eq!(dir.read("late.csv"), late);
    assert!(dir.read("bad.csv").contains("then1,s2.csv,4,t,"), "{}", dir.read("bad.csv"));
    let stage = &report["stages"][1];
    assert_eq!((number(stage, "right_late"), number(stage, "right_bad")), (2, 1));
    assert_eq!(stage["stream"], "then1");
    let fails = options.replace("--late-output late.csv", "--late fail");
    dir.run(&format!("join {fails}"))
        .fails(1, &["s2.csv, line 3: a then1 row at", "is late by 8s: k,x,1000,t2; raise"]);
}

#[test]
fn other_formats_files_of_one_stream_and_streams_from_a_pipe() {
    let dir = Dir::new();
    dir.write("l.jsonl", "{\"id\":1,\"t\":1000,\"to\":\"x\"}\n{\"id\":2,\"t\":2000,\"to\":null}\n");
    dir.write("r.tsv", "id\tt\n1\t1001\n2\t2001\n");
    dir.write("c1.csv", "to,t\nx,1002\n").write("c2.csv", "to,t\nx,1500\ny,1500\n");
    let options = "--left l.jsonl --right - --right-format tsv --on id --left-time t --right-time t \
                   --between 0..1s --then c1.csv --then-also c2.csv --then-on to --then-time t \
                   --then-between 0..1s --then-anchor left --then-type left --output-format jsonl \
                   --time-format ms";
    let ran = dir.run_with_input(&format!("join {options}"), dir.read("r.tsv").as_bytes()).ok();
    let mut rows: Vec<&str> = ran.out.lines().collect();
    rows.sort_unstable();
    let padded = "{\"id\":2,\"t\":2000,\"to\":null,\"id_right\":\"2\",\"t_right\":\"2001\",\
                  \"to_then1\":null,\"t_then1\":null}";
    let joined = |t: u32| {
        format!(
            "{{\"id\":1,\"t\":1000,\"to\":\"x\",\"id_right\":\"1\",\"t_right\":\"1001\",\
             \"to_then1\":\"x\",\"t_then1\":\"{t}\"}}"
        )
    };
    assert_eq!(rows, [&joined(1002)[..], &joined(1500), padded]);
}

#[test]
fn a_bound_on_state_that_is_too_small_ends_the_run_and_one_that_is_not_holds() {
    let (dir, streams) = (Dir::new(), streams(3, 10_000));
    write(&dir, &streams);
    let (_, report) = dir.join(&format!("{FIRST} {SECOND} --max-state 3MiB --cores 2"));
    assert!(number(&report, "state_bytes_peak") <= 3 << 20, "{report}");
    // No pairs, but all rows are kept.
    let wide = SECOND.replace("0..80ms", "-1h..1h").replace("b_right=a", "id=id");
    let ran = dir.run(&format!("join {FIRST} {wide} --max-state 1MiB --cores 2 --output o.csv"));
    ran.fails(1, &["--max-state", "raise it"]);
    assert!(!dir.names().contains(&"o.csv".to_owned()));
}

/// How state is laid out, which shows in what it takes, is said of every stage.
#[test]
fn state_of_every_stage_is_laid_out_as_asked_for() {
    let (dir, streams) = (Dir::new(), streams(3, 400));
    write(&dir, &streams);
    let of = |layout: &str| {
        let (rows, report) = dir.join(&format!("{FIRST} {SECOND} --cores 1 {layout}"));
        let stages = report["stages"].as_array().expect("stages");
        let bytes = stages.iter().map(|stage| stage["state_bytes_peak"].as_u64().unwrap());
        (sorted_rows(&rows), bytes.collect::<Vec<_>>())
    };
    let (rows, plain) = of("");
    let (chunked_rows, chunked) = of("--chunk 1MiB");
    // A bucket takes a chunk at least; narrower ones are more.
    let (narrow_rows, narrow) = of("--chunk 64KiB --bucket-width 1ms");
    let (_, wide) = of("--chunk 64KiB --bucket-width 1h");
    assert!(rows == chunked_rows && rows == narrow_rows);
    for stage in 0..2 {
        let [plain, chunked, narrow, wide] =
            [&plain, &chunked, &narrow, &wide].map(|bytes| bytes[stage]);
        assert!(plain < 1 << 20 && chunked >= 1 << 20, "{stage}: {plain} {chunked}");
        assert!(narrow >= wide + (64 << 10), "{stage}: {narrow} {wide}");
    }
    let small = format!("join {FIRST} {SECOND} --chunk 1MiB --max-state 64MiB");
    dir.run(&small).fails(2, &["--chunk", "at the most"]);
}
