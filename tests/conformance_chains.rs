//! The conformance corpus of chains: joins of three to five streams, as brute force has them.
//! `tests/conformance/README.md` has the format.

use std::sync::{Arc, Mutex};

use intervale::engine::{ChainFinished, Engine, JoinedRow, Stream, Then};
use intervale::event::{Key, KeyKind};
use intervale::exchange::Promise;
use intervale::join::oracle::{ChainStage, chain};
use intervale::join::{Asof, JoinKind, JoinSpec, JoinSpecBuilder, MatchChoice, Window};
use intervale::limits::Limits;
use intervale::runtime::{CoreChoice, RuntimeChoice};
use intervale::state::Simd;
use intervale::time::{Bound, LatePolicy, Lateness};
use serde_json::Value;

/// Rows lie at most so far behind the largest time before them.
const DISORDER: i64 = 6;

/// `chains.jsonl` and `stages.jsonl`.
fn scenarios() -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/chains");
    let mut all = Vec::new();
    for name in ["chains", "stages"] {
        let text = std::fs::read_to_string(format!("{folder}/{name}.jsonl")).expect("the corpus");
        all.extend(text.lines().map(|line| serde_json::from_str(line).expect("a scenario")));
    }
    all
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn integer(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

fn key(row: &Value, name: &Value) -> Option<Vec<u8>> {
    row[name.as_str().expect("a name")].as_str().map(|key| key.as_bytes().to_vec())
}

fn spec(stage: &Value) -> JoinSpec {
    let kind = match stage["join"].as_str() {
        Some("inner") => JoinKind::Inner,
        Some("left") => JoinKind::Left,
        Some("right") => JoinKind::Right,
        Some("full") => JoinKind::Full,
        other => panic!("no kind of a stage: {other:?}"),
    };
    form(stage)
        .kind(kind)
        .keys(KeyKind::Bytes)
        .lateness(Lateness { policy: LatePolicy::Fail, ..Lateness::default() })
        .build(&Limits::default())
        .expect("a join")
}

fn form(stage: &Value) -> JoinSpecBuilder {
    let bound = |name: &str| Bound::Closed(integer(&stage[name]));
    let ticks = |name: &str| integer(&stage[name]);
    if let Some(direction) = stage["asof"].as_str() {
        let asof = match direction {
            "backward" => Asof::backward(),
            "forward" => Asof::forward(),
            _ => Asof::nearest(),
        };
        let asof = asof.within(ticks("tolerance"));
        return JoinSpec::asof(if stage["strict"] == true { asof.strict() } else { asof });
    }
    if let Some(window) = stage["window"].as_str() {
        return JoinSpec::window(match window {
            "tumble" => Window::tumbling(ticks("size")).starting_at(ticks("offset")),
            "hop" => Window::hopping(ticks("size"), ticks("slide")).starting_at(ticks("offset")),
            _ => Window::session(ticks("gap")),
        });
    }
    JoinSpec::between(bound("lower"), bound("upper")).choice(match stage["match"].as_str() {
        Some("first") => MatchChoice::First,
        Some("last") => MatchChoice::Last,
        Some("nearest") => MatchChoice::Nearest,
        _ => MatchChoice::All,
    })
}

/// The expected rows as text, sorted.
fn expected(scenario: &Value) -> Vec<String> {
    let mut rows: Vec<String> = list(&scenario["expected"]).iter().map(Value::to_string).collect();
    rows.sort();
    rows
}

fn shown(rows: Vec<Vec<Option<&str>>>) -> Vec<String> {
    let mut rows: Vec<String> =
        rows.iter().map(|row| serde_json::to_string(row).expect("text")).collect();
    rows.sort();
    rows
}

#[test]
fn the_oracle_conforms() {
    for scenario in scenarios() {
        let streams = list(&scenario["streams"]);
        let times: Vec<Vec<i64>> = streams
            .iter()
            .map(|rows| list(rows).iter().map(|row| integer(&row["ts"])).collect())
            .collect();
        let stages = list(&scenario["stages"]).iter().enumerate();
        let stages: Vec<ChainStage<'_>> = stages
            .map(|(number, stage)| ChainStage {
                spec: spec(stage),
                anchor: integer(&stage["anchor"]) as usize,
                left_key: Box::new(move |row| {
                    let of = integer(&stage["left_key"][0]) as usize;
                    key(&streams[of][row[of]?], &stage["left_key"][1])
                }),
                right_key: Box::new(move |row| key(&streams[number + 1][row], &stage["right_key"])),
                condition: None,
            })
            .collect();
        let rows = chain(&times, &stages);
        let ids = |row: &Vec<Option<usize>>| {
            let id = |(stream, place): (usize, &Option<usize>)| {
                place.map(|place| streams[stream][place]["id"].as_str().expect("an id"))
            };
            row.iter().enumerate().map(id).collect::<Vec<_>>()
        };
        let rows = shown(rows.iter().map(ids).collect());
        assert_eq!(rows, expected(&scenario), "{}", scenario["name"]);
    }
}

#[test]
fn the_engine_conforms() {
    let scenarios = scenarios();
    assert_eq!(scenarios.len(), 330);
    let best = Simd::detect();
    let mut settings = vec![
        (1, RuntimeChoice::Threads, best),
        (2, RuntimeChoice::Threads, best),
        (8, RuntimeChoice::Threads, best),
        (2, RuntimeChoice::Auto, best),
    ];
    let levels = Simd::ALL.into_iter().filter(|simd| simd.is_available() && *simd != best);
    settings.extend(
        levels.flat_map(|simd| [1, 2, 8].map(|shards| (shards, RuntimeChoice::Threads, simd))),
    );
    for setting in settings {
        for scenario in &scenarios {
            let name = &scenario["name"];
            assert_eq!(run(scenario, setting), expected(scenario), "{name}, {setting:?}");
        }
    }
}

fn run(scenario: &Value, (shards, runtime, simd): (usize, RuntimeChoice, Simd)) -> Vec<String> {
    let stages = list(&scenario["stages"]);
    let found = Arc::new(Mutex::new(Vec::new()));
    let engine = Engine::builder(spec(&stages[0]))
        .cores(CoreChoice::count(shards).expect("some cores"))
        .runtime(runtime)
        .simd(simd);
    let mut then = stages[1..].iter().map(|stage| {
        let anchor = Stream::of_index(integer(&stage["anchor"]) as usize);
        let of = Stream::of_index(integer(&stage["left_key"][0]) as usize);
        let name = stage["left_key"][1].clone();
        // Rows are JSON.
        Then::new(spec(stage), anchor, move |row, bytes| {
            let row = row.part(of).map(|part| serde_json::from_slice(part.row).expect("a row"));
            match row.and_then(|row: Value| key(&row, &name)) {
                Some(key) => {
                    bytes.extend_from_slice(&key);
                    Key::Bytes(bytes)
                }
                None => Key::Null,
            }
        })
    });
    let first = engine.then(then.next().expect("two stages"));
    let chain = then
        .fold(first, |builder, then| builder.then(then))
        .sinks(|_| {
            let found = Arc::clone(&found);
            move |row: JoinedRow<'_>| {
                let id = |row: &[u8]| {
                    let row: Value = serde_json::from_slice(row).expect("a row");
                    row["id"].as_str().expect("an id").to_owned()
                };
                let ids: Vec<_> = row.parts().map(|part| part.map(|part| id(part.row))).collect();
                found.lock().expect("no panic").push(ids);
            }
        })
        .start()
        .expect("a chain");
    let mut sources = Vec::new();
    for stream in 0..=stages.len() {
        let promise = Promise::Disorder(DISORDER);
        sources.push(chain.source_with(Stream::of_index(stream), promise).expect("a source"));
    }
    for (stream, mut source) in sources.into_iter().enumerate() {
        for row in list(&scenario["streams"][stream]) {
            let stage = &stages[stream.saturating_sub(1)];
            let name = if stream == 0 { &stage["left_key"][1] } else { &stage["right_key"] };
            let key = key(row, name);
            let key = key.as_deref().map_or(Key::Null, Key::Bytes);
            source.push(key, integer(&row["ts"]), row.to_string().as_bytes()).expect("room");
        }
        source.finish().expect("it runs");
    }
    let finished: ChainFinished<_> = chain.finish().expect("the counts add up");
    drop(finished);
    let found = found.lock().expect("no panic");
    shown(found.iter().map(|row| row.iter().map(Option::as_deref).collect()).collect())
}
