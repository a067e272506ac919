//! Scenarios of the conformance corpus: read, run, compared step by step.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use intervale::event::{KeyKind, Side};
use intervale::join::oracle::Output;
use intervale::join::{Asof, Condition, JoinKind, JoinSpec, MatchChoice, Rule, Rules, Window};
use intervale::limits::{Limits, Overflow};
use intervale::time::{Bound, Interval, LatePolicy, Lateness, LatenessClock, Timestamp};
use serde_json::Value;

use super::limits;
use super::operator::id_of;
use super::subject::{Arrival, Step, Subject, apply};

/// One scenario, with what must come out of each step.
pub struct Scenario {
    pub name: String,
    pub spec: JoinSpec,
    pub sources: [usize; 2],
    /// The tests' own, if the scenario has none.
    pub limits: Limits,
    /// By side, how many rows are given up, and how many of them unmatched, where it says so.
    pub shed: Option<[[u64; 2]; 2]>,
    pub steps: Vec<Step>,
    /// As long as `steps`.
    pub expected: Vec<Vec<Output>>,
    /// The scenario's own names of the rows, by our ids.
    names: Vec<String>,
}

/// All scenarios of every `.jsonl` file in the corpus' folder, or in the one that the environment
/// names.
pub fn bundles(keys: KeyKind) -> Vec<Scenario> {
    bundles_laid_out(keys, None, None)
}

/// The same with state laid out as given, which changes nothing of what comes out.
pub fn bundles_laid_out(
    keys: KeyKind,
    bucket_width: Option<i64>,
    chunk_bytes: Option<u64>,
) -> Vec<Scenario> {
    let folder = std::env::var_os("INTERVALE_CONFORMANCE_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance"),
        PathBuf::from,
    );
    bundles_in(&folder, keys, (bucket_width, chunk_bytes))
}

/// Those of the files in one folder.
pub fn bundles_in(folder: &Path, keys: KeyKind, layout: Layout) -> Vec<Scenario> {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot read the corpus {}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a folder entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    let mut scenarios = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{} line {}: {error}", path.display(), index + 1));
            scenarios.push(Scenario::read(&value, keys, layout));
        }
    }
    scenarios
}

/// Runs a scenario and compares every step.
///
/// With `ordered`, the pairs of one arriving event must come in the listed order.
pub fn check(scenario: &Scenario, subject: &mut dyn Subject, ordered: bool) -> Result<(), String> {
    for (index, step) in scenario.steps.iter().enumerate() {
        let got = apply(subject, step).map_err(|error| format!("{}: {error}", scenario.name))?;
        let got: Vec<Output> = got.into_iter().map(without_lag).collect();
        let expected = &scenario.expected[index];
        let in_order =
            !ordered || !matches!(step, Step::Event(_)) || pairs(&got) == pairs(expected);
        if !in_order || sorted(&got) != sorted(expected) {
            return Err(format!(
                "{} step {}: {step:?}\n  expected {}\n  got      {}\n  {:?}",
                scenario.name,
                index + 1,
                scenario.describe(expected),
                scenario.describe(&got),
                scenario.spec,
            ));
        }
    }
    Ok(())
}

fn pairs(outputs: &[Output]) -> Vec<Output> {
    outputs.iter().copied().filter(|output| matches!(output, Output::Pair { .. })).collect()
}

fn sorted(outputs: &[Output]) -> Vec<Output> {
    let mut outputs = outputs.to_vec();
    outputs.sort_unstable();
    outputs
}

/// The corpus does not say by how much a row was late.
fn without_lag(output: Output) -> Output {
    match output {
        Output::Late { side, id, .. } => Output::Late { side, id, lag: 0 },
        other => other,
    }
}

impl Scenario {
    fn read(value: &Value, keys: KeyKind, layout: Layout) -> Scenario {
        let name = text(value, "name").to_owned();
        let steps = value["steps"].as_array().unwrap_or_else(|| panic!("{name}: no steps"));
        let (config, rest) = steps.split_first().unwrap_or_else(|| panic!("{name}: no config"));
        let mut reader = Reader::default();
        let steps: Vec<Step> = rest.iter().map(|step| reader.step(step)).collect();
        let mut expected = vec![Vec::new(); steps.len()];
        let listed = value["expected"].as_array().unwrap_or_else(|| panic!("{name}: no expected"));
        for output in listed {
            let step = output["step"].as_u64().unwrap_or_else(|| panic!("{name}: no step"));
            expected[step as usize - 1].push(reader.output(output));
        }
        let sources = ["left_sources", "right_sources"]
            .map(|field| config[field].as_u64().map_or(1, |count| count as usize));
        let mut spec = match config["condition"].as_str() {
            None => spec(config, keys, layout),
            Some(condition) => {
                let values = rest.iter().filter(|step| step["v"].is_i64());
                let value = |step: &Value| (reader.ids[text(step, "id")], step["v"].as_i64());
                let values = values.map(value).collect();
                spec(config, keys, layout).with_condition(condition_of(condition, values))
            }
        };
        if let Some(rules) = config["rules"].as_array() {
            spec = under_rules(spec, rules);
        }
        let counts = |side: &str| [0, 1].map(|at| value["shed"][side][at].as_u64().unwrap_or(0));
        let shed = value["shed"].is_object().then(|| ["left", "right"].map(counts));
        let limits = limits_of(config);
        let names = reader.names;
        Scenario { name, spec, sources, limits, shed, steps, expected, names }
    }

    /// The same scenario with late rows only counted: the late output stays empty.
    pub fn dropping(&self) -> Scenario {
        let lateness = Lateness { policy: LatePolicy::Drop, ..self.spec.lateness() };
        let on_time = |outputs: &Vec<Output>| {
            let late = |output: &&Output| matches!(output, Output::Late { .. });
            outputs.iter().filter(|output| !late(output)).copied().collect()
        };
        Scenario {
            name: format!("{} (dropping)", self.name),
            spec: self.spec.clone().with_lateness(lateness),
            sources: self.sources,
            limits: self.limits,
            shed: self.shed,
            steps: self.steps.clone(),
            expected: self.expected.iter().map(on_time).collect(),
            names: self.names.clone(),
        }
    }

    /// Whether sources are silent once they have ended, as handles of an engine must be, and nobody
    /// tells the time, which engines look up themselves.
    pub fn ends_for_good(&self) -> bool {
        let end = self.steps.iter().position(|step| *step == Step::End);
        let is_told = self.steps.iter().any(|step| matches!(step, Step::Tick { .. }));
        !is_told && end.is_none_or(|end| end + 1 == self.steps.len())
    }

    /// How many late rows of each side the scenario expects.
    pub fn late_counts(&self) -> [u64; 2] {
        Side::BOTH.map(|wanted| {
            let late =
                |output: &&Output| matches!(output, Output::Late { side, .. } if *side == wanted);
            self.expected.iter().flatten().filter(late).count() as u64
        })
    }

    fn describe(&self, outputs: &[Output]) -> String {
        let name = |id: u64| &self.names[id as usize];
        let words = outputs.iter().map(|output| match *output {
            Output::Pair { left, right, ts } => format!("{}+{}@{ts}", name(left), name(right)),
            Output::Single { side, id } => format!("{} {}", side.name(), name(id)),
            Output::Late { side, id, .. } => format!("late {} {}", side.name(), name(id)),
        });
        format!("[{}]", words.collect::<Vec<_>>().join(", "))
    }
}

/// The bound on rows and what happens at it, if there is one.
fn limits_of(config: &Value) -> Limits {
    let overflow = match config["on_full"].as_str() {
        None => return limits(),
        Some("shed") => Overflow::Shed,
        Some("spill") => Overflow::Spill,
        Some(other) => panic!("unknown policy {other}"),
    };
    let rows_max = config["max_rows"].as_u64().unwrap_or_else(|| panic!("no bound in {config}"));
    Limits { state_rows_max: Some(rows_max), overflow, ..limits() }
}

/// The width of buckets and the bytes of the smallest chunk, if they are given.
pub type Layout = (Option<i64>, Option<u64>);

fn spec(config: &Value, keys: KeyKind, (bucket_width, chunk_bytes): Layout) -> JoinSpec {
    let bound = |end: &str, inclusive: &str| {
        let ticks = config[end].as_i64().unwrap_or_else(|| panic!("no {end} in {config}"));
        match config[inclusive].as_bool() {
            Some(false) => Bound::Open(ticks),
            _ => Bound::Closed(ticks),
        }
    };
    let kind = match text(config, "join") {
        "inner" => JoinKind::Inner,
        "left" => JoinKind::Left,
        "right" => JoinKind::Right,
        "full" => JoinKind::Full,
        "semi" => JoinKind::Semi,
        "anti" => JoinKind::Anti,
        other => panic!("unknown join {other}"),
    };
    // Rows that the corpus drops are listed there, so they go to the late output here.
    let policy = match text(config, "late") {
        "drop" | "output" => LatePolicy::Output,
        "join" => LatePolicy::Join,
        other => panic!("unknown late policy {other}"),
    };
    let clock = match config["lateness"].as_str() {
        None | Some("merged") => LatenessClock::Merged,
        Some("own") => LatenessClock::Own,
        Some(other) => panic!("unknown lateness {other}"),
    };
    let choice = match config["match"].as_str() {
        None | Some("all") => MatchChoice::All,
        Some("first") => MatchChoice::First,
        Some("last") => MatchChoice::Last,
        Some("nearest") => MatchChoice::Nearest,
        Some("one-to-one") => MatchChoice::OneToOne,
        Some(other) => panic!("unknown match {other}"),
    };
    let allowed = config["allowed_lateness"].as_i64().unwrap_or(0);
    let start = match (config["asof"].as_str(), config["window"].as_str()) {
        (Some(direction), _) => JoinSpec::asof(asof(direction, config)),
        (None, Some(kind)) => JoinSpec::window(window(kind, config)),
        (None, None) => {
            let lower = bound("lower", "lower_inclusive");
            JoinSpec::between(lower, bound("upper", "upper_inclusive")).choice(choice)
        }
    };
    let start = match bucket_width.or(config["bucket_width"].as_i64()) {
        Some(ticks) => start.bucket_width(ticks),
        None => start,
    };
    let start = match chunk_bytes {
        Some(bytes) => start.chunk_bytes(bytes),
        None => start,
    };
    let start = match config["ttl"].as_u64() {
        Some(ns) => start.ttl(Duration::from_nanos(ns)),
        None => start,
    };
    start
        .kind(kind)
        .keys(keys)
        .lateness(Lateness { policy, clock, allowed })
        .allow_empty()
        .build(&limits_of(config))
        .unwrap_or_else(|error| panic!("{config}: {error}"))
}

/// The same join under rules, each with the condition that it may have.
fn under_rules(spec: JoinSpec, listed: &[Value]) -> JoinSpec {
    let rule = |interval: Interval| match spec.condition() {
        Some(condition) => Rule::within(interval).with_condition(condition.clone()),
        None => Rule::within(interval),
    };
    let rules = Rules::new(spec.interval(), rule(spec.interval())).expect("within itself");
    for from in listed {
        let ticks = |field: &str| from[field].as_i64().expect("ticks");
        let interval = Interval::closed(ticks("lower"), ticks("upper")).expect("not empty");
        let from = Timestamp::new(ticks("from")).expect("a time");
        rules.replace(from, rule(interval)).expect("ahead of all events");
    }
    let condition = rules.condition();
    spec.with_condition(condition)
}

/// A condition on the values of a pair's events, by their ids.
fn condition_of(name: &str, values: HashMap<u64, Option<i64>>) -> Condition {
    let holds: fn(i64, i64) -> bool = match name {
        "less" => |left, right| left < right,
        "differ" => |left, right| left != right,
        other => panic!("unknown condition {other}"),
    };
    Condition::new(move |left, right| {
        let value = |event| values[&id_of(event)].expect("every event has a value");
        holds(value(left), value(right))
    })
}

fn window(kind: &str, config: &Value) -> Window {
    let ticks = |field: &str| config[field].as_i64().unwrap_or(0);
    let window = match kind {
        "tumble" => Window::tumbling(ticks("size")),
        "hop" => Window::hopping(ticks("size"), ticks("slide")),
        "session" => Window::session(ticks("gap")),
        other => panic!("unknown window {other}"),
    };
    window.starting_at(ticks("offset"))
}

fn asof(direction: &str, config: &Value) -> Asof {
    let asof = match direction {
        "backward" => Asof::backward(),
        "forward" => Asof::forward(),
        "nearest" => Asof::nearest(),
        other => panic!("unknown as-of {other}"),
    };
    let tolerance = config["tolerance"].as_i64();
    let asof = tolerance.map_or(asof, |ticks| asof.within(ticks));
    if config["strict"].as_bool() == Some(true) { asof.strict() } else { asof }
}

/// Turns the corpus' row names into ids.
#[derive(Default)]
struct Reader {
    names: Vec<String>,
    ids: HashMap<String, u64>,
}

impl Reader {
    fn id(&mut self, name: &str) -> u64 {
        let next = self.names.len() as u64;
        let id = *self.ids.entry(name.to_owned()).or_insert(next);
        if id == next {
            self.names.push(name.to_owned());
        }
        id
    }

    fn step(&mut self, step: &Value) -> Step {
        let source = step["src"].as_u64().unwrap_or(0) as usize;
        let ts = || step["ts"].as_i64().unwrap_or_else(|| panic!("no time in {step}"));
        match text(step, "op") {
            op @ ("L" | "R") => Step::Event(Arrival {
                side: side(op),
                source,
                key: step["key"].as_str().map(|key| key.as_bytes().to_vec()),
                ts: ts(),
                id: self.id(text(step, "id")),
            }),
            "WL" => Step::Watermark { side: Side::Left, source, ts: ts() },
            "WR" => Step::Watermark { side: Side::Right, source, ts: ts() },
            "idle" => Step::Idle { side: side(text(step, "side")), source },
            "finish" => Step::Finish { side: side(text(step, "side")), source },
            "tick" => Step::Tick { ns: step["ns"].as_u64().expect("a time on the wall") },
            "end" => Step::End,
            other => panic!("unknown step {other}"),
        }
    }

    fn output(&mut self, output: &Value) -> Output {
        let mut id = |field: &str| self.id(text(output, field));
        match text(output, "out") {
            "pair" => Output::Pair {
                left: id("l"),
                right: id("r"),
                ts: output["ts"].as_i64().unwrap_or_else(|| panic!("no time in {output}")),
            },
            "left_null" | "left_semi" | "left_anti" => {
                Output::Single { side: Side::Left, id: id("l") }
            }
            "right_null" => Output::Single { side: Side::Right, id: id("r") },
            "late_left" => Output::Late { side: Side::Left, id: id("id"), lag: 0 },
            "late_right" => Output::Late { side: Side::Right, id: id("id"), lag: 0 },
            other => panic!("unknown output {other}"),
        }
    }
}

fn side(name: &str) -> Side {
    match name {
        "L" => Side::Left,
        "R" => Side::Right,
        other => panic!("unknown side {other}"),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}
