//! The bundle of `--select`, whose rows were worked out by hand: projection with functions, nulls,
//! and three-valued logic. `tests/conformance/README.md` has the format.

use serde_json::Value;

use crate::support::{Dir, Ran, sorted_rows};

const BUNDLE: &str = include_str!("../conformance/select/select.jsonl");

#[test]
fn the_bundle_of_select_conforms() {
    let dir = Dir::new();
    let mut lines = BUNDLE.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let files = lines.next().expect("the rows");
    for name in ["left", "right"] {
        dir.write(&format!("{name}.csv"), files[name].as_str().expect("CSV"));
    }
    let text = |case: &Value, field: &str| case[field].as_str().map(str::to_owned);
    let mut count = 0;
    for case in lines {
        let (name, kind) = (text(&case, "name").unwrap(), text(&case, "type").unwrap());
        let mut expected: Vec<&str> =
            case["expected"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        expected.sort_unstable();
        for machine in ["--cores 1", "--cores 2", "--cores 8 --runtime threads", "--deterministic"]
        {
            let mut command = dir.command(&format!(
                "join --left left.csv --right right.csv --on k --left-time t --right-time t \
                 --time-format ms --between 0..1s --type {kind} {machine}"
            ));
            command.args(["--select", &text(&case, "select").unwrap()]);
            if let Some(condition) = text(&case, "where") {
                command.args(["--where", &condition]);
            }
            let ran = Ran::from(command.output().expect("the binary runs")).ok();
            assert_eq!(sorted_rows(&ran.out), expected, "{name}, {machine}");
        }
        count += 1;
    }
    assert_eq!(count, 19);
}
