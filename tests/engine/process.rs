//! A caller's own operator: timers and state against a model that does one thing after the other.

use std::collections::BTreeMap;

use intervale::engine::{Engine, EngineError, Finished};
use intervale::error::JoinError;
use intervale::event::{Event, Key, Side};
use intervale::join::{Emit, JoinSpec, Keyed, Process, ProcessJoin, Sink, Timer};
use intervale::limits::Limits;
use intervale::runtime::{CoreChoice, RuntimeChoice};
use intervale::time::Bound;

use crate::support::{RUNTIMES, SHARDS};

/// What a left row says is to be done; right rows only add to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Set(i64),
    Delete(i64),
    Forget,
    Fail,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    key: u64,
    ts: i64,
    order: Order,
}

impl Order {
    fn row(self) -> [u8; 9] {
        let (tag, by) = match self {
            Order::Set(by) => (0, by),
            Order::Delete(by) => (1, by),
            Order::Forget => (2, 0),
            Order::Fail => (3, 0),
        };
        let mut row = [tag; 9];
        row[1..].copy_from_slice(&by.to_le_bytes());
        row
    }

    fn of(row: &[u8]) -> Order {
        let by = i64::from_le_bytes(row[1..9].try_into().unwrap());
        match row[0] {
            0 => Order::Set(by),
            1 => Order::Delete(by),
            2 => Order::Forget,
            _ => Order::Fail,
        }
    }
}

/// Every third sum has its timer set again, a little later.
fn again(ts: i64, sum: u64) -> Option<i64> {
    sum.is_multiple_of(3).then_some(ts + 5)
}

const TOO_MUCH: u64 = 1 << 40;

/// Adds up what comes, and puts the sum out when a timer fires.
struct Sums;

impl Process for Sums {
    type State = u64;

    fn on_left(&mut self, event: Event<'_>, key: &mut Keyed<'_, u64>, _: &mut dyn Emit) {
        match Order::of(event.row) {
            Order::Set(by) => key.set_timer(event.ts + by),
            Order::Delete(by) => key.delete_timer(event.ts + by),
            Order::Forget => *key.state() = None,
            Order::Fail => key.fail("as planned"),
        }
    }

    fn on_right(&mut self, event: Event<'_>, key: &mut Keyed<'_, u64>, _: &mut dyn Emit) {
        let more = event.row[0];
        *key.state().get_or_insert_default() +=
            if more == u8::MAX { TOO_MUCH } else { u64::from(more) };
    }

    fn on_timer(&mut self, timer: Timer<'_>, key: &mut Keyed<'_, u64>, out: &mut dyn Emit) {
        let sum = key.state().unwrap_or_default();
        if sum >= TOO_MUCH {
            key.fail("too much");
        }
        out.output(1, Event { key: timer.key, ts: timer.ts, row: &sum.to_le_bytes() });
        *key.state() = Some(sum + 1);
        if let Some(ts) = again(timer.ts, sum) {
            key.set_timer(ts);
        }
    }
}

/// Key, time, sum.
type Out = (u64, i64, u64);

#[derive(Debug, Default)]
struct Fired(Vec<Out>);

impl Emit for Fired {
    fn pair(&mut self, _: Event<'_>, _: Event<'_>) {}

    fn output(&mut self, output: usize, event: Event<'_>) {
        assert_eq!(output, 1);
        let Key::Int(key) = event.key else { panic!("another kind of key") };
        self.0.push((key, event.ts, u64::from_le_bytes(event.row.try_into().unwrap())));
    }
}

impl Sink for Fired {}

fn engine(shards: usize, runtime: RuntimeChoice) -> Engine<Fired, ProcessJoin<Sums>> {
    let between = JoinSpec::between(Bound::Closed(0), Bound::Closed(0));
    let spec = between.build(&Limits::default()).unwrap();
    Engine::builder(spec.clone())
        .cores(CoreChoice::count(shards).unwrap())
        .runtime(runtime)
        .sinks(|_| Fired::default())
        .start_with(move |_, hasher, limits| {
            Ok(ProcessJoin::new(Sums, spec.clone(), hasher.clone(), limits))
        })
        .unwrap()
}

/// A round: orders, then additions, then what the watermark rises to.
struct Round {
    orders: Vec<Step>,
    additions: Vec<(u64, i64, u8)>,
    watermark: i64,
}

fn rounds(seed: u64) -> Vec<Round> {
    let mut state = seed;
    let mut next = move |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    (0..40)
        .map(|round| {
            let mut ts = || round * 10 + next(20) as i64;
            let times: Vec<i64> = (0..60).map(|_| ts()).collect();
            let orders = times[..40].iter().map(|&ts| {
                let (key, by) = (next(13), next(30) as i64);
                let order = match next(8) {
                    0 => Order::Forget,
                    1 | 2 => Order::Delete(by),
                    _ => Order::Set(by),
                };
                Step { key, ts, order }
            });
            let orders = orders.collect();
            let additions = times[40..].iter().map(|&ts| (next(13), ts, next(7) as u8)).collect();
            Round { orders, additions, watermark: round * 10 }
        })
        .collect()
}

/// What must come out of one key after the other: no queue, no table.
fn model(rounds: &[Round]) -> BTreeMap<u64, Vec<Out>> {
    let mut timers: Vec<(u64, i64)> = Vec::new();
    let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
    let mut fired: BTreeMap<u64, Vec<Out>> = BTreeMap::new();
    let mut fire = |timers: &mut Vec<(u64, i64)>, sums: &mut BTreeMap<u64, u64>, watermark| {
        while let Some(&(key, ts)) =
            timers.iter().filter(|timer| timer.1 <= watermark).min_by_key(|timer| timer.1)
        {
            timers.retain(|&timer| timer != (key, ts));
            let sum = sums.get(&key).copied().unwrap_or_default();
            fired.entry(key).or_default().push((key, ts, sum));
            sums.insert(key, sum + 1);
            let next = again(ts, sum).map(|ts| (key, ts));
            timers.extend(next.filter(|next| !timers.contains(next)));
        }
    };
    for round in rounds {
        for &Step { key, ts, order } in &round.orders {
            match order {
                Order::Set(by) if !timers.contains(&(key, ts + by)) => timers.push((key, ts + by)),
                Order::Delete(by) => timers.retain(|&timer| timer != (key, ts + by)),
                Order::Forget => drop(sums.remove(&key)),
                Order::Set(_) | Order::Fail => {}
            }
        }
        for &(key, _, more) in &round.additions {
            *sums.entry(key).or_default() += u64::from(more);
        }
        fire(&mut timers, &mut sums, round.watermark);
    }
    fire(&mut timers, &mut sums, i64::MAX);
    fired
}

fn run(rounds: &[Round], shards: usize, runtime: RuntimeChoice) -> Finished<Fired> {
    let engine = engine(shards, runtime);
    let mut left = engine.source(Side::Left).unwrap();
    let mut right = engine.source(Side::Right).unwrap();
    for round in rounds {
        for step in &round.orders {
            left.push(Key::Int(step.key), step.ts, &step.order.row()).unwrap();
        }
        // All orders are in before the first addition: which comes first would be chance.
        left.flush().unwrap();
        engine.flush().unwrap();
        for &(key, ts, more) in &round.additions {
            right.push(Key::Int(key), ts, &[more]).unwrap();
        }
        left.watermark(round.watermark).unwrap();
        right.watermark(round.watermark).unwrap();
        engine.flush().unwrap();
    }
    left.finish().unwrap();
    right.finish().unwrap();
    engine.finish().unwrap()
}

#[test]
fn timers_fire_once_and_in_order_whatever_the_shards() {
    for (seed, runtime) in (1..).zip(RUNTIMES) {
        let rounds = rounds(seed);
        let expected = model(&rounds);
        assert!(expected.values().flatten().count() > 500, "the model has nothing to say");
        for shards in SHARDS {
            let finished = run(&rounds, shards, runtime);
            let mut fired: BTreeMap<u64, Vec<Out>> = BTreeMap::new();
            for out in finished.sinks.iter().flat_map(|sink| &sink.0) {
                fired.entry(out.0).or_default().push(*out);
            }
            assert_eq!(fired, expected, "{shards} shards, seed {seed}");
            let sides = finished.report.counters.sides;
            assert_eq!(sides.map(|side| side.on_time), [40 * 40, 20 * 40]);
            assert_eq!(sides.map(|side| side.late), [0, 0]);
            for sink in &finished.sinks {
                assert!(sink.0.is_sorted_by_key(|out| out.1), "a shard's timers fire in order");
            }
        }
    }
}

#[test]
fn a_process_that_fails_ends_the_engine_with_its_reason() {
    let fail_at_once = |engine: &Engine<Fired, ProcessJoin<Sums>>| {
        let mut left = engine.source(Side::Left).unwrap();
        left.push(Key::Int(1), 1, &Order::Fail.row()).unwrap();
        let _ = left.finish();
    };
    let fail_in_a_timer = |engine: &Engine<Fired, ProcessJoin<Sums>>| {
        let mut right = engine.source(Side::Right).unwrap();
        right.push(Key::Int(1), 1, &[u8::MAX]).unwrap();
        right.finish().unwrap();
        let mut left = engine.source(Side::Left).unwrap();
        left.push(Key::Int(1), 1, &Order::Set(3).row()).unwrap();
        let _ = left.finish();
    };
    type Fails<'a> = (&'a dyn Fn(&Engine<Fired, ProcessJoin<Sums>>), &'a str);
    let cases: [Fails<'_>; 2] = [(&fail_at_once, "as planned"), (&fail_in_a_timer, "too much")];
    for (fails, reason) in cases {
        let engine = engine(2, RuntimeChoice::Threads);
        fails(&engine);
        match engine.finish() {
            Err(EngineError::Join { error: JoinError::Process(why), .. }) => {
                assert_eq!(why, reason);
            }
            other => panic!("{reason}: {other:?}"),
        }
    }
}
