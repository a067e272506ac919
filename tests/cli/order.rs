//! `--deterministic`: the same bytes whatever the cores.

use std::fmt::Write as _;

use crate::support::{Dir, number};

/// A small generator, so that the data is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// Rows with few keys and times that go back by up to 3 s.
fn disordered(seed: u64, count: i64) -> String {
    let mut random = Random(seed);
    let mut text = "id,ts,n\n".to_owned();
    for i in 0..count {
        let ts = 1_700_000_000_000 + i * 10 - random.below(3_000) as i64;
        writeln!(text, "k{},{ts},{i}", random.below(50)).unwrap();
    }
    text
}

fn dir() -> Dir {
    let dir = Dir::new();
    dir.write("l1.csv", disordered(1, 4_000)).write("l2.csv", disordered(2, 3_000));
    dir.write("r.csv", disordered(3, 5_000));
    dir
}

const JOIN: &str = "--left l1.csv --left l2.csv --right r.csv --on id --left-time ts \
     --right-time ts --between -200ms..300ms --out-of-orderness 2s --deterministic";

#[test]
fn the_output_is_the_same_bytes_on_1_2_and_8_cores() {
    let dir = dir();
    for kind in ["inner", "full", "semi", "anti"] {
        let run = |machine: &str| dir.join(&format!("{JOIN} --type {kind} {machine}"));
        let (one, report) = run("--cores 1 --runtime threads");
        assert!(number(&report, "left_late") > 0, "{report}");
        assert!(one.lines().count() > 1_000, "{kind}: {}", one.lines().count());
        for machine in ["--cores 2", "--cores 8", "--cores 8 --runtime threads --idle park"] {
            let (other, other_report) = run(machine);
            assert!(one == other, "{kind} {machine}: the outputs differ");
            for name in ["pairs", "left_late", "right_late", "left_matched", "right_unmatched"] {
                assert_eq!(report[name], other_report[name], "{kind} {machine} {name}");
            }
        }
    }
}

#[test]
fn rows_are_in_order_of_time_key_and_position() {
    let (out, _) = dir().join(&format!("{JOIN} --cores 2"));
    let order = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let ts = |cell: usize| cells[cell].parse::<i64>().unwrap();
        (ts(1).max(ts(4)), cells[0].to_owned())
    };
    let orders: Vec<_> = out.lines().skip(1).map(order).collect();
    assert!(orders.len() > 1_000);
    assert!(orders.is_sorted(), "times and keys are in order");
}

#[test]
fn without_it_the_rows_are_the_same_when_nothing_is_late() {
    let dir = dir();
    let join = JOIN.replace(" --deterministic", "").replace("2s", "3s");
    let one = dir.rows(&format!("{join} --cores 1"));
    assert_eq!(one, dir.rows(&format!("{join} --cores 3")));
    assert_eq!(one, dir.rows(&format!("{join} --cores 2 --deterministic")));
}

#[test]
fn late_rows_are_the_same_bytes_in_order_of_time_key_side_and_position() {
    let dir = dir();
    let late = |options: &str| {
        dir.join(&format!("{JOIN} --late-output late.csv {options}"));
        dir.read("late.csv")
    };
    let one = late("--cores 1");
    for machine in ["--cores 2", "--cores 8", "--cores 8 --runtime threads"] {
        assert!(one == late(machine), "{machine}: the late rows differ");
    }
    assert!(one.starts_with("side,lag_ms,id,ts,n,id_right,ts_right,n_right\n"), "{one}");
    let order = |line: &str| {
        let cells: Vec<String> = line.split(',').map(str::to_owned).collect();
        let row = if cells[0] == "left" { &cells[2..5] } else { &cells[5..8] };
        (row[1].parse::<i64>().unwrap(), row[0].clone(), cells[0].clone())
    };
    let orders: Vec<_> = one.lines().skip(1).map(order).collect();
    assert!(orders.len() > 200, "{}", orders.len());
    assert!(orders.iter().any(|row| row.2 == "left") && orders.iter().any(|row| row.2 == "right"));
    assert!(orders.is_sorted(), "by time, key and side");
}

#[test]
fn rows_without_a_key_stand_where_the_time_was_when_they_came() {
    let dir = Dir::new();
    let (mut random, mut text) = (Random(4), "id,ts,n\n".to_owned());
    let (mut latest, mut without_key) = (i64::MIN, Vec::new());
    for i in 0..20_000 {
        let now = 1_700_000_000_000 + i * 10;
        let (key, ts) = match random.below(20) {
            // Up to a minute behind, of which 2 s are in time.
            0 => (String::new(), now - random.below(60_000) as i64),
            _ => (format!("k{}", random.below(50)), now - random.below(2_000) as i64),
        };
        if key.is_empty() {
            without_key.push((ts.max(latest.saturating_sub(2_000)), i));
        }
        latest = latest.max(ts);
        writeln!(text, "{key},{ts},{i}").unwrap();
    }
    dir.write("l1.csv", text).write("l2.csv", "id,ts,n\n").write("r.csv", disordered(3, 20_000));
    without_key.sort_unstable();
    let expected: Vec<String> = without_key.iter().map(|(_, i)| i.to_string()).collect();
    for kind in ["left", "anti", "left --window tumble:5s"] {
        let between = if kind.contains("window") { "" } else { "--between -200ms..300ms" };
        let run = |machine: &str| {
            let join = JOIN.replace("--between -200ms..300ms", between);
            dir.join(&format!("{join} --type {kind} {machine}")).0
        };
        let one = run("--cores 1 --runtime threads");
        let numbers = one.lines().filter(|line| line.starts_with(','));
        let numbers: Vec<&str> = numbers.map(|line| line.split(',').nth(2).unwrap()).collect();
        assert_eq!(numbers, expected, "{kind}");
        for machine in ["--cores 2", "--cores 8", "--cores 8 --runtime threads --idle park"] {
            assert!(one == run(machine), "{kind} {machine}: the outputs differ");
        }
    }
}
