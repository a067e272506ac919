//! The bundle of operators of one's own on one shard and on several.

mod common;

use std::path::Path;

use intervale::event::{BatchKind, Event, EventBatch, Key, KeyHasher, KeyKind, Side};
use intervale::join::{Emit, JoinSpec, Keyed, Process, ProcessJoin, Timer};
use intervale::limits::Limits;
use intervale::time::{Bound, LatePolicy, Lateness, LatenessClock, SideClock, Timestamp};
use serde_json::Value;

const ALARMS: usize = 0;
const CORRECTIONS: usize = 1;

struct Unpaid {
    within: i64,
}

#[derive(Default)]
struct State {
    order: Option<Vec<u8>>,
    is_paid: bool,
    is_alarmed: bool,
}

impl Process for Unpaid {
    type State = State;

    fn on_left(&mut self, order: Event<'_>, key: &mut Keyed<'_, State>, _: &mut dyn Emit) {
        key.set_timer(order.ts + self.within);
        key.state().get_or_insert_default().order = Some(order.row.to_vec());
    }

    fn on_right(&mut self, payment: Event<'_>, key: &mut Keyed<'_, State>, out: &mut dyn Emit) {
        let state = key.state().get_or_insert_default();
        state.is_paid = true;
        if state.is_alarmed {
            out.output(CORRECTIONS, payment);
            key.state().take();
        }
    }

    fn on_timer(&mut self, timer: Timer<'_>, key: &mut Keyed<'_, State>, out: &mut dyn Emit) {
        let Some(state) = key.state() else { return };
        if state.is_paid {
            key.state().take();
            return;
        }
        state.is_alarmed = true;
        let row = state.order.as_deref().unwrap_or_default();
        out.output(ALARMS, Event { key: timer.key, ts: timer.ts, row });
    }
}

/// What came out: its name in the bundle, the row's id, and its time where it has one.
type Out = (&'static str, String, Option<i64>);

#[derive(Default)]
struct Outs(Vec<Out>);

fn id(event: &Event<'_>) -> String {
    String::from_utf8(event.row.to_vec()).unwrap()
}

impl Emit for Outs {
    fn pair(&mut self, _: Event<'_>, _: Event<'_>) {
        panic!("the process makes no pairs");
    }

    fn late(&mut self, side: Side, event: Event<'_>, _: i64) {
        let name = if side == Side::Left { "late_left" } else { "late_right" };
        self.0.push((name, id(&event), None));
    }

    fn output(&mut self, output: usize, event: Event<'_>) {
        let name = ["alarm", "correction"][output];
        self.0.push((name, id(&event), Some(event.ts)));
    }
}

/// Shards behind the clocks of one source a side.
struct Shards {
    spec: JoinSpec,
    hasher: KeyHasher,
    clocks: [SideClock; 2],
    shards: Vec<ProcessJoin<Unpaid>>,
}

impl Shards {
    fn new(config: &Value, count: usize) -> Shards {
        let clock = match config["lateness"].as_str() {
            Some("own") => LatenessClock::Own,
            _ => LatenessClock::Merged,
        };
        let allowed = config["allowed_lateness"].as_i64().unwrap();
        let lateness = Lateness { policy: LatePolicy::Output, clock, allowed };
        let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(0))
            .keys(KeyKind::Bytes)
            .lateness(lateness)
            .build(&Limits::UNBOUNDED)
            .unwrap();
        let hasher = KeyHasher::new(KeyKind::Bytes, 42);
        let within = config["within"].as_i64().unwrap();
        let shard = || {
            let process = Unpaid { within };
            ProcessJoin::new(process, spec.clone(), hasher.clone(), Limits::UNBOUNDED)
        };
        let shards = (0..count).map(|_| shard()).collect();
        Shards { spec, hasher, clocks: [SideClock::new(1), SideClock::new(1)], shards }
    }

    fn event(&mut self, side: Side, step: &Value, out: &mut Outs) {
        let ts = step["ts"].as_i64().unwrap();
        let row = step["id"].as_str().unwrap().as_bytes();
        let lateness = self.spec.lateness();
        let own = lateness.threshold(self.clocks[side.index()].source_watermark(0));
        let (key, kind) = match step["key"].as_str() {
            None => (Key::Null, BatchKind::NullKey),
            Some(key) if lateness.clock == LatenessClock::Own && ts < own => {
                (Key::Bytes(key.as_bytes()), BatchKind::Late)
            }
            Some(key) => (Key::Bytes(key.as_bytes()), BatchKind::Keyed),
        };
        let mut single = EventBatch::with_capacity(side, 1, row.len());
        if kind != BatchKind::Late {
            single.reset(side, 0, kind);
        }
        single.push(&self.hasher, key, Timestamp::new(ts).unwrap(), row).unwrap();
        if kind == BatchKind::Late {
            let mut late = EventBatch::default();
            late.reset(side, 0, kind);
            late.push_late_from(&single, 0, own - ts);
            single = late;
        }
        let value = if key == Key::Null { 0 } else { single.keys()[0] };
        let shard = (value % self.shards.len() as u64) as usize;
        self.shards[shard].on_batch(&single, out).unwrap();
    }

    fn step(&mut self, step: &Value) -> Vec<Out> {
        let mut out = Outs::default();
        match step["op"].as_str().unwrap() {
            "L" => self.event(Side::Left, step, &mut out),
            "R" => self.event(Side::Right, step, &mut out),
            "end" => self.shards.iter_mut().for_each(ProcessJoin::finish),
            op => {
                let ts = step["ts"].as_i64().unwrap();
                self.clocks[usize::from(op == "WR")].advance(0, ts);
            }
        }
        let [left, right] = [self.clocks[0].watermark(), self.clocks[1].watermark()];
        for shard in &mut self.shards {
            shard.advance(left, right);
            while shard.work(2, &mut out) {}
        }
        out.0.sort();
        out.0
    }
}

fn expected(scenario: &Value, step: usize) -> Vec<Out> {
    let outputs = scenario["expected"].as_array().unwrap().iter();
    let mut outputs: Vec<Out> = outputs
        .filter(|output| output["step"].as_u64() == Some(step as u64))
        .map(|output| {
            let names = ["alarm", "correction", "late_left", "late_right"];
            let name = names.into_iter().find(|&name| output["out"] == name).unwrap();
            let id = ["l", "r", "id"].into_iter().find_map(|field| output[field].as_str());
            (name, id.unwrap().to_owned(), output["ts"].as_i64())
        })
        .collect();
    outputs.sort();
    outputs
}

#[test]
fn processes_conform_on_any_number_of_shards() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/process/unpaid.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let scenarios: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(scenarios.len(), 80);
    for count in [1, 2, 8] {
        for scenario in &scenarios {
            let steps = scenario["steps"].as_array().unwrap();
            let mut shards = Shards::new(&steps[0], count);
            for (number, step) in steps.iter().enumerate().skip(1) {
                let got = shards.step(step);
                let name = &scenario["name"];
                assert_eq!(got, expected(scenario, number), "{name} step {number} {step}, {count}");
            }
        }
    }
}
