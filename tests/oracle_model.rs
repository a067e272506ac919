//! The operator against the oracle: all small cases first, then random ones.
//!
//! `PROPTEST_CASES=100000 cargo test --release --test oracle_model` looks longer.

mod common;

use std::collections::BTreeMap;
use std::fmt;

use common::{
    Arrival, KINDS, OperatorSubject, OracleSubject, SplitSubject, Step, Subject, apply, id_of,
    limits,
};
use intervale::event::{KeyKind, Side};
use intervale::join::oracle::Output;
use intervale::join::{
    Asof, Condition, Counters, JoinKind, JoinSpec, JoinSpecBuilder, MatchChoice, SideCounters,
    Window,
};
use intervale::time::{Bound, LatePolicy, Lateness, LatenessClock};
use proptest::prelude::*;

const CHOICES: [MatchChoice; 3] = [MatchChoice::First, MatchChoice::Last, MatchChoice::Nearest];
/// The kinds that go with a choice.
const CHOOSING_KINDS: [JoinKind; 4] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti];
const CLOCKS: [LatenessClock; 2] = [LatenessClock::Merged, LatenessClock::Own];

/// Everything that is needed to run a case again.
#[derive(Clone)]
struct Case {
    spec: JoinSpec,
    sources: [usize; 2],
    steps: Vec<Step>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, sources {:?}, {:?}", self.spec, self.sources, self.steps)
    }
}

/// How the operator is fed.
#[derive(Clone, Copy, Debug)]
struct Feed {
    batch_events_max: usize,
    shard_count: usize,
}

/// Runs both and compares after every step (after every batch, where events go together).
fn compare(case: &Case, feed: Feed) -> Result<(), String> {
    let mut oracle = OracleSubject::new(&case.spec, case.sources);
    let mut operator = OperatorSubject::new(&case.spec, case.sources, feed.shard_count);
    let mut at = 0;
    while at < case.steps.len() {
        let together = batch_at(&case.steps[at..], feed.batch_events_max);
        // What comes after the end of input is under no promise.
        let held = if operator.has_ended() { i64::MIN } else { operator.output_watermark() };
        let (expected, got) = if together.is_empty() {
            let step = &case.steps[at];
            at += 1;
            (apply(&mut oracle, step), apply(&mut operator, step))
        } else {
            at += together.len();
            (oracle.events(&together), operator.events(&together))
        };
        let fail = |what: &str, expected: &dyn std::fmt::Debug, got: &dyn std::fmt::Debug| {
            let steps = &case.steps[at.saturating_sub(12)..at];
            let spec = &case.spec;
            format!(
                "{what}\nexpected {expected:?}\ngot      {got:?}\n{feed:?} {spec:?}\nsteps to {at}: {steps:?}"
            )
        };
        let (expected, got) = match (expected, got) {
            (Ok(expected), Ok(got)) => (expected, got),
            (expected, got) if expected.is_err() && expected == got => return Ok(()),
            (expected, got) => return Err(fail("one of them failed", &expected, &got)),
        };
        if sorted(&expected) != sorted(&got) {
            return Err(fail("different rows", &expected, &got));
        }
        if !same_order(&together, &expected, &got, feed.shard_count) {
            return Err(fail("another order", &expected, &got));
        }
        if let Some(early) = below_output_watermark(case, &got, held) {
            return Err(fail("below the output watermark", &held, &early));
        }
    }
    let (expected, got) = (oracle.0.counters(), operator.counters());
    if comparable(expected) != comparable(&got) {
        return Err(format!("counts\nexpected {expected:?}\ngot      {got:?}\n{case:?}"));
    }
    Ok(())
}

/// Runs the oracle and shards whose keys are split and put together again all the time.
fn compare_split(case: &Case, feed: Feed, seed: u64) -> Result<(u64, u64), String> {
    let mut oracle = OracleSubject::new(&case.spec, case.sources);
    let mut subject = SplitSubject::new(&case.spec, case.sources, feed.shard_count, seed);
    let mut at = 0;
    while at < case.steps.len() {
        let together = batch_at(&case.steps[at..], feed.batch_events_max);
        let (expected, got) = if together.is_empty() {
            at += 1;
            let step = &case.steps[at - 1];
            (apply(&mut oracle, step), apply(&mut subject, step))
        } else {
            at += together.len();
            (oracle.events(&together), subject.events(&together))
        };
        let (expected, got) = (sorted(&expected.unwrap()), sorted(&got.unwrap()));
        if expected != got {
            let steps = &case.steps[..at];
            let spec = &case.spec;
            return Err(format!("expected {expected:?}\ngot {got:?}\n{spec:?}\n{steps:?}"));
        }
    }
    let (expected, got) = (oracle.0.counters(), subject.counters());
    for side in Side::BOTH {
        let (own, reference) = (got.side(side), expected.side(side));
        let sums = |counts: &SideCounters| {
            let matched = own.matched_rows().map(|_| counts.matched);
            (counts.rows, counts.on_time, counts.late, counts.null_key, counts.singles, matched)
        };
        if sums(own) != sums(reference) {
            return Err(format!("{side:?} {expected:?}\ngot {got:?}\n{case:?}"));
        }
    }
    if (expected.pairs, 0) != (got.pairs, got.side(Side::Left).overtaken) {
        return Err(format!("{expected:?}\ngot {got:?}\n{case:?}"));
    }
    Ok(subject.split())
}

/// A case as an engine's sources can have it, of a join whose keys can be split: a source that has
/// ended says nothing more, and late rows stop nothing.
fn for_splitting(mut case: Case) -> Option<Case> {
    let lateness = case.spec.lateness();
    if lateness.policy == LatePolicy::Fail {
        case.spec = case.spec.with_lateness(Lateness { policy: LatePolicy::Drop, ..lateness });
    }
    for step in &mut case.steps {
        if let Step::Watermark { ts, .. } = step {
            // The tick before is what a table of watermarks keeps for silence.
            *ts = (*ts).max(i64::MIN + 2);
        }
    }
    let mut ended = [[false; 3]; 2];
    let mut has_ended = false;
    case.steps.retain(|step| {
        let (side, source) = match *step {
            Step::Event(ref event) => (event.side, event.source),
            Step::Watermark { side, source, .. } | Step::Idle { side, source } => (side, source),
            Step::Finish { side, source } => {
                let before = std::mem::replace(&mut ended[side.index()][source], true);
                return !before && !has_ended;
            }
            Step::Tick { .. } => return true,
            Step::End => return !std::mem::replace(&mut has_ended, true),
        };
        !ended[side.index()][source] && !has_ended
    });
    case.spec.spread_sides().is_ok().then_some(case)
}

/// The events of one side and source that come next with nothing between them, up to `most`.
fn batch_at(steps: &[Step], most: usize) -> Vec<Arrival> {
    let mut batch: Vec<Arrival> = Vec::new();
    for step in steps.iter().take(most) {
        match (step, batch.first()) {
            (Step::Event(event), Some(first))
                if (event.side, event.source) != (first.side, first.source) =>
            {
                break;
            }
            (Step::Event(event), _) => batch.push(event.clone()),
            _ => break,
        }
    }
    batch
}

fn sorted(outputs: &[Output]) -> Vec<Output> {
    let mut outputs = outputs.to_vec();
    outputs.sort_unstable();
    outputs
}

/// The pairs of each arriving event in the order of its partners; on one shard, padded rows of one
/// watermark in the order of (end, arrival).
fn same_order(together: &[Arrival], expected: &[Output], got: &[Output], shards: usize) -> bool {
    if together.is_empty() {
        return shards > 1 || expected == got;
    }
    together.iter().all(|event| {
        let pairs_of = |outputs: &[Output]| -> Vec<Output> {
            let its = |output: &&Output| match (**output, event.side) {
                (Output::Pair { left, .. }, Side::Left) => left == event.id,
                (Output::Pair { right, .. }, Side::Right) => right == event.id,
                _ => false,
            };
            outputs.iter().filter(its).copied().collect()
        };
        pairs_of(expected) == pairs_of(got)
    })
}

/// A result older than what the operator promised before this step. Rows that are never late for
/// want of a key, and late rows that join, make no promise; nor do clocks of single sources.
fn below_output_watermark(case: &Case, outputs: &[Output], held: i64) -> Option<Output> {
    let lateness = case.spec.lateness();
    if lateness.policy == LatePolicy::Join || lateness.clock == LatenessClock::Own {
        return None;
    }
    let event = |wanted: u64| {
        case.steps.iter().find_map(|step| match step {
            Step::Event(event) if event.id == wanted => Some(event),
            _ => None,
        })
    };
    let early = |output: &Output| match *output {
        Output::Pair { ts, .. } => ts < held,
        Output::Single { id, .. } => {
            event(id).is_some_and(|event| event.key.is_some() && event.ts < held)
        }
        Output::Late { .. } => false,
    };
    outputs.iter().copied().find(early)
}

/// The counts that are the same at the same moment; memory may be freed a little later.
fn comparable(counters: &Counters) -> Counters {
    let mut counters = *counters;
    for side in &mut counters.sides {
        side.freed = 0;
    }
    counters
}

fn spec(lo: i64, hi: i64, kind: JoinKind, lateness: Lateness) -> JoinSpec {
    let bounds = JoinSpec::between(Bound::Closed(lo), Bound::Closed(hi));
    bounds.kind(kind).lateness(lateness).build(&limits()).expect("a valid spec")
}

fn event(side: Side, key: &str, ts: i64) -> Step {
    Step::Event(Arrival { side, source: 0, key: Some(key.into()), ts, id: 0 })
}

fn watermark(side: Side, ts: i64) -> Step {
    Step::Watermark { side, source: 0, ts }
}

/// How far apart in time sequences lie that one operator sees, and where each is over.
const SEQUENCE_TICKS: i64 = 100;
/// Making an operator costs more than running a sequence, so many follow each other on one.
const SEQUENCES_TOGETHER: usize = 256;

/// All sequences of `length` steps over an alphabet, each followed by a watermark past its end.
fn all_sequences(alphabet: &[Step], length: u32) -> Vec<Vec<Step>> {
    let sequence = |number: usize| -> Vec<Step> {
        let shift = (number % SEQUENCES_TOGETHER) as i64 * SEQUENCE_TICKS;
        let letters = (0..length)
            .map(|place| alphabet[number / alphabet.len().pow(place) % alphabet.len()].clone());
        let over = Side::BOTH.map(|side| watermark(side, SEQUENCE_TICKS / 2));
        letters.chain(over).map(|step| shifted(step, shift)).collect()
    };
    (0..alphabet.len().pow(length)).map(sequence).collect()
}

fn shifted(mut step: Step, by: i64) -> Step {
    match &mut step {
        Step::Event(event) => event.ts += by,
        Step::Watermark { ts, .. } => *ts += by,
        Step::Idle { .. } | Step::Finish { .. } | Step::Tick { .. } | Step::End => {}
    }
    step
}

fn check_all(alphabet: &[Step], length: u32, specs: &[JoinSpec]) {
    let sequences = all_sequences(alphabet, length);
    for spec in specs {
        for together in sequences.chunks(SEQUENCES_TOGETHER) {
            let mut steps = together.concat();
            steps.push(Step::End);
            for (id, step) in steps.iter_mut().enumerate() {
                if let Step::Event(event) = step {
                    event.id = id as u64;
                }
            }
            let case = Case { spec: spec.clone(), sources: [1, 1], steps };
            for batch_events_max in [1, 8] {
                let feed = Feed { batch_events_max, shard_count: 1 };
                compare(&case, feed).unwrap_or_else(|report| panic!("{report}"));
            }
        }
    }
    println!("{} sequences in {} settings", sequences.len(), specs.len());
}

fn lateness_settings() -> Vec<Lateness> {
    let mut settings = Vec::new();
    for clock in CLOCKS {
        for (policy, allowed) in
            [(LatePolicy::Output, 0), (LatePolicy::Join, 0), (LatePolicy::Output, 1)]
        {
            settings.push(Lateness { policy, clock, allowed });
        }
    }
    settings
}

#[test]
fn all_short_sequences_of_two_keys() {
    let mut alphabet = Vec::new();
    for side in Side::BOTH {
        for key in ["a", "b"] {
            alphabet.extend([10, 12].map(|ts| event(side, key, ts)));
        }
        alphabet.extend([11, 13].map(|ts| watermark(side, ts)));
    }
    let mut specs = Vec::new();
    for (lo, hi) in [(0, 0), (-2, 2), (1, 3), (-3, -1)] {
        for kind in KINDS {
            specs.extend(lateness_settings().into_iter().map(|late| spec(lo, hi, kind, late)));
        }
    }
    check_all(&alphabet, 3, &specs);
}

#[test]
fn all_longer_sequences_of_one_key() {
    let alphabet = [
        event(Side::Left, "a", 10),
        event(Side::Right, "a", 10),
        event(Side::Right, "a", 12),
        watermark(Side::Left, 12),
        watermark(Side::Right, 11),
        watermark(Side::Right, 13),
    ];
    let mut specs = Vec::new();
    for (lo, hi, kind) in [
        (0, 2, JoinKind::Full),
        (-2, 0, JoinKind::Left),
        (0, 1, JoinKind::Anti),
        (-1, 2, JoinKind::Semi),
    ] {
        for clock in CLOCKS {
            let late = Lateness { policy: LatePolicy::Join, clock, allowed: 0 };
            specs.push(spec(lo, hi, kind, late));
            specs.push(spec(lo, hi, kind, Lateness { policy: LatePolicy::Output, ..late }));
        }
    }
    check_all(&alphabet, 5, &specs);
}

#[test]
fn all_short_sequences_with_a_choice() {
    let mut alphabet = vec![event(Side::Left, "a", 10)];
    alphabet.extend([9, 10, 11].map(|ts| event(Side::Right, "a", ts)));
    alphabet.extend([10, 11, 13].map(|ts| watermark(Side::Right, ts)));
    alphabet.push(watermark(Side::Left, 12));
    let mut specs = Vec::new();
    for choice in CHOICES.into_iter().chain([MatchChoice::OneToOne]) {
        let kinds = match choice {
            MatchChoice::OneToOne => [JoinKind::Full, JoinKind::Semi],
            _ => [JoinKind::Inner, JoinKind::Left],
        };
        for (lo, hi) in [(-2, 2), (0, 1), (-2, -1)] {
            for kind in kinds {
                for lateness in lateness_settings() {
                    let bounds = JoinSpec::between(Bound::Closed(lo), Bound::Closed(hi));
                    let spec = bounds.kind(kind).lateness(lateness).choice(choice);
                    specs.push(spec.build(&limits()).expect("a valid spec"));
                }
            }
        }
    }
    check_all(&alphabet, 4, &specs);
}

/// Windows that fire, get rows after that, and, if they are sessions, grow and fire again.
/// A late row is paired as it comes, before the next one of its batch, though that one is earlier.
#[test]
fn late_rows_of_a_batch_are_paired_one_after_the_other() {
    let lateness = Lateness { policy: LatePolicy::Join, clock: LatenessClock::Merged, allowed: 0 };
    let spec = JoinSpec::between(Bound::Closed(-1), Bound::Closed(50))
        .choice(MatchChoice::OneToOne)
        .keys(KeyKind::Bytes)
        .lateness(lateness)
        .build(&limits())
        .unwrap();
    let event =
        |side, ts, id| Step::Event(Arrival { side, source: 0, key: Some(b"k".to_vec()), ts, id });
    let watermark = |side| Step::Watermark { side, source: 0, ts: 100 };
    let steps = vec![
        event(Side::Left, 90, 1),
        watermark(Side::Left),
        watermark(Side::Right),
        event(Side::Right, 95, 2),
        event(Side::Right, 92, 3),
        Step::End,
    ];
    let case = Case { spec, sources: [1, 1], steps };
    for batch_events_max in [1, 64] {
        assert_eq!(compare(&case, Feed { batch_events_max, shard_count: 1 }), Ok(()));
    }
}

#[test]
fn all_short_sequences_of_windows() {
    let alphabet = [
        event(Side::Left, "a", 10),
        event(Side::Right, "a", 10),
        event(Side::Right, "a", 12),
        event(Side::Left, "a", 14),
        watermark(Side::Left, 14),
        watermark(Side::Right, 14),
    ];
    let mut specs = Vec::new();
    for (window, kind) in [
        (Window::session(3), JoinKind::Full),
        (Window::session(3), JoinKind::Semi),
        (Window::hopping(4, 2), JoinKind::Left),
    ] {
        for clock in CLOCKS {
            let lateness = Lateness { policy: LatePolicy::Output, clock, allowed: 5 };
            let builder = JoinSpec::window(window).kind(kind).lateness(lateness);
            specs.push(builder.build(&limits()).expect("a valid spec"));
        }
    }
    check_all(&alphabet, 5, &specs);
}

/// Specs with conditions, of every form.
#[test]
fn all_short_sequences_with_a_condition() {
    let alphabet = [
        event(Side::Left, "a", 10),
        event(Side::Right, "a", 10),
        event(Side::Right, "a", 11),
        watermark(Side::Left, 12),
        watermark(Side::Right, 11),
        watermark(Side::Right, 13),
    ];
    let interval = || JoinSpec::between(Bound::Closed(-1), Bound::Closed(2));
    let mut builders: Vec<_> = KINDS.map(|kind| interval().kind(kind)).into();
    builders.extend(CHOICES.map(|choice| interval().kind(JoinKind::Left).choice(choice)));
    builders.push(interval().kind(JoinKind::Full).choice(MatchChoice::OneToOne));
    builders.push(JoinSpec::asof(Asof::nearest().within(2).strict()).kind(JoinKind::Left));
    builders.push(JoinSpec::window(Window::hopping(4, 2)).kind(JoinKind::Full));
    let mut specs = Vec::new();
    for clock in CLOCKS {
        for builder in &builders {
            let lateness = Lateness { policy: LatePolicy::Output, clock, allowed: 1 };
            let spec = builder.clone().lateness(lateness).build(&limits()).expect("a valid spec");
            specs.push(spec.with_condition(condition(2)));
        }
    }
    check_all(&alphabet, 4, &specs);
}

/// Holds unless a number made of both ids is divisible.
fn passes(modulus: u64, left: u64, right: u64) -> bool {
    !(left * 3 + right * 5 + left / 4).is_multiple_of(modulus)
}

fn condition(modulus: u64) -> Condition {
    Condition::new(move |left, right| passes(modulus, id_of(left), id_of(right)))
}

/// One step before its times are scaled and shifted: what, which source and key, and a time that
/// strays by `jitter` from how far the case has come.
#[derive(Clone, Copy, Debug)]
struct Draft {
    what: u8,
    right: bool,
    source: usize,
    key: u8,
    jitter: i64,
}

fn draft() -> impl Strategy<Value = Draft> {
    (0..100u8, any::<bool>(), 0..3usize, 0..8u8, -30..30i64)
        .prop_map(|(what, right, source, key, jitter)| Draft { what, right, source, key, jitter })
}

/// Where the times lie, and how far apart.
#[derive(Clone, Copy, Debug)]
struct Frame {
    base: i64,
    scale: i64,
    advance: i64,
}

fn frame() -> impl Strategy<Value = Frame> {
    let near_the_edges_and_between =
        prop_oneof![Just(i64::MIN + 1), Just(i64::MAX - 120), Just(-50), Just(1_700_000_000_000)];
    let scale = prop_oneof![3 => Just(1), 1 => Just(1000), 1 => Just(1 << 33)];
    (near_the_edges_and_between, scale, 0..4i64).prop_map(|(base, scale, advance)| Frame {
        base,
        scale,
        advance,
    })
}

fn lateness() -> impl Strategy<Value = Lateness> {
    let policy = prop_oneof![
        Just(LatePolicy::Drop),
        Just(LatePolicy::Output),
        Just(LatePolicy::Output),
        Just(LatePolicy::Join),
        Just(LatePolicy::Join),
        Just(LatePolicy::Fail),
    ];
    let allowed = prop_oneof![4 => Just(0), 3 => 1..30i64, 1 => Just(i64::MAX)];
    (policy, prop::sample::select(&CLOCKS[..]), allowed)
        .prop_map(|(policy, clock, allowed)| Lateness { policy, clock, allowed })
}

fn interval(scale: i64) -> impl Strategy<Value = (Bound, Bound)> {
    let (a, b) = (-25..25i64, -25..25i64);
    let off = -1..=1i64;
    let usual =
        (a, b, off, any::<bool>(), any::<bool>()).prop_map(move |(a, b, off, open_lo, open_hi)| {
            let lo = a.min(b) * scale + off;
            let hi = a.max(b) * scale + off + 2;
            let lo = if open_lo { Bound::Open(lo) } else { Bound::Closed(lo) };
            let hi = if open_hi { Bound::Open(hi) } else { Bound::Closed(hi) };
            (lo, hi)
        });
    let far = prop_oneof![
        Just((Bound::Closed(i64::MIN), Bound::Closed(3))),
        Just((Bound::Closed(-3), Bound::Closed(i64::MAX))),
        Just((Bound::Unbounded, Bound::Closed(0))),
        Just((Bound::Closed(0), Bound::Unbounded)),
        Just((Bound::Unbounded, Bound::Unbounded)),
        Just((Bound::Closed(i64::MAX - 50), Bound::Closed(i64::MAX))),
    ];
    prop_oneof![8 => usual, 1 => far]
}

/// The width of buckets and the bytes of the smallest chunk, if they are given.
type Layout = (Option<i64>, Option<u64>);

/// How state is laid out, which is to change nothing: as it is by default, and otherwise.
fn layout(scale: i64) -> impl Strategy<Value = Layout> {
    let widths = vec![1, scale, 3 * scale, 40 * scale, 1_000 * scale, 1 << 40, i64::MAX];
    let chunks = vec![1 << 10, 5_000, 64 << 10, 1 << 20];
    let given = (
        prop::option::of(prop::sample::select(widths)),
        prop::option::of(prop::sample::select(chunks)),
    );
    prop_oneof![1 => Just((None, None)), 1 => given]
}

fn laid_out(builder: JoinSpecBuilder, (bucket_width, chunk_bytes): Layout) -> JoinSpecBuilder {
    let builder = match bucket_width {
        Some(ticks) => builder.bucket_width(ticks),
        None => builder,
    };
    match chunk_bytes {
        Some(bytes) => builder.chunk_bytes(bytes),
        None => builder,
    }
}

fn case(choice: MatchChoice) -> impl Strategy<Value = Case> {
    let kinds = match choice {
        MatchChoice::All | MatchChoice::OneToOne => &KINDS[..],
        _ => &CHOOSING_KINDS[..],
    };
    let sources = (1..4usize, 1..4usize);
    let keys = prop::sample::select(&[KeyKind::Int, KeyKind::Bytes][..]);
    let steps = prop_oneof![
        2 => prop::collection::vec(draft(), 1..40),
        1 => prop::collection::vec(draft(), 1..200),
    ];
    frame()
        .prop_flat_map(move |frame| {
            let (kinds, keys) = (prop::sample::select(kinds), keys.clone());
            let parts = (interval(frame.scale), kinds, lateness(), keys, layout(frame.scale));
            (Just(frame), parts, sources.clone(), steps.clone())
        })
        .prop_map(move |(frame, parts, (left, right), drafts)| {
            let ((lo, hi), kind, lateness, keys, layout) = parts;
            let builder = JoinSpec::between(lo, hi).kind(kind).keys(keys).lateness(lateness);
            let builder = laid_out(builder.choice(choice).allow_empty(), layout);
            let spec = builder.build(&limits()).expect("a valid spec");
            let sources = [left, right];
            let mut steps: Vec<Step> = drafts
                .iter()
                .enumerate()
                .map(|(index, draft)| step(index, draft, frame, sources))
                .collect();
            steps.push(Step::End);
            // The end of time itself is still on time afterwards.
            for (side, id) in [(Side::Left, 9_000), (Side::Right, 9_001), (Side::Left, 9_002)] {
                let arrival = Arrival { side, source: 0, key: Some("k1".into()), ts: i64::MAX, id };
                steps.push(Step::Event(arrival));
            }
            Case { spec, sources, steps }
        })
}

fn step(index: usize, draft: &Draft, frame: Frame, sources: [usize; 2]) -> Step {
    let side = if draft.right { Side::Right } else { Side::Left };
    let source = draft.source % sources[side.index()];
    let at = |ticks: i64| {
        let from_base = ticks.max(0).saturating_mul(frame.scale);
        frame.base.saturating_add(from_base).max(i64::MIN + 1)
    };
    let progress = index as i64 * frame.advance;
    match draft.what {
        0..75 => Step::Event(Arrival {
            side,
            source,
            key: (draft.key > 0).then(|| format!("k{}", draft.key / 2).into_bytes()),
            ts: at(progress + draft.jitter + 20).saturating_add(draft.jitter % 2),
            id: index as u64,
        })
        .valid(),
        75..95 => Step::Watermark { side, source, ts: at(progress + draft.jitter) },
        95..98 => Step::Idle { side, source },
        _ => Step::Finish { side, source },
    }
}

trait Valid {
    fn valid(self) -> Self;
}

impl Valid for Step {
    /// `i64::MIN` is no time.
    fn valid(mut self) -> Step {
        if let Step::Event(event) = &mut self {
            event.ts = event.ts.max(i64::MIN + 1);
        }
        self
    }
}

fn config(cases: u32) -> ProptestConfig {
    let cases = match std::env::var("PROPTEST_CASES") {
        Ok(wanted) => wanted.parse().expect("PROPTEST_CASES is a number"),
        Err(_) => cases,
    };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn random_cases_on_one_shard(
        case in case(MatchChoice::All),
        batch_events_max in prop::sample::select(vec![1usize, 2, 7, 64]),
    ) {
        let feed = Feed { batch_events_max, shard_count: 1 };
        prop_assert_eq!(compare(&case, feed), Ok(()));
    }

    #[test]
    fn random_cases_on_several_shards(
        case in case(MatchChoice::All),
        batch_events_max in prop::sample::select(vec![1usize, 16]),
        shard_count in 2..5usize,
    ) {
        prop_assert_eq!(compare(&case, Feed { batch_events_max, shard_count }), Ok(()));
    }

    #[test]
    fn random_cases_with_a_choice(
        case in prop::sample::select(&CHOICES[..]).prop_flat_map(case),
        batch_events_max in prop::sample::select(vec![1usize, 2, 7, 64]),
        shard_count in 1..4usize,
    ) {
        prop_assert_eq!(compare(&case, Feed { batch_events_max, shard_count }), Ok(()));
    }

    /// Keys are split at moments that a seed draws.
    #[test]
    fn random_cases_with_split_keys(
        case in prop_oneof![
            2 => case(MatchChoice::All),
            1 => prop::sample::select(&CHOICES[..]).prop_flat_map(case),
        ].prop_filter_map("keys can be split", for_splitting),
        batch_events_max in prop::sample::select(vec![1usize, 2, 7, 64]),
        shard_count in prop::sample::select(vec![2usize, 3, 8]),
        seed: u64,
    ) {
        let split = compare_split(&case, Feed { batch_events_max, shard_count }, seed);
        prop_assert!(split.is_ok(), "seed {}: {}", seed, split.unwrap_err());
    }

    #[test]
    fn random_cases_one_to_one(
        case in case(MatchChoice::OneToOne),
        batch_events_max in prop::sample::select(vec![1usize, 2, 7, 64]),
        shard_count in 1..4usize,
    ) {
        prop_assert_eq!(compare(&case, Feed { batch_events_max, shard_count }), Ok(()));
    }

    /// What comes out one to one is what a plain greedy choice from all pairs gives.
    #[test]
    fn one_to_one_is_greedy(case in case(MatchChoice::OneToOne)) {
        let lateness = case.spec.lateness();
        let lateness = Lateness { policy: LatePolicy::Drop, clock: LatenessClock::Merged, ..lateness };
        let all = outputs_with(&case, MatchChoice::All, lateness);
        let chosen = outputs_with(&case, MatchChoice::OneToOne, lateness);
        let is_pair = |output: &&Output| matches!(output, Output::Pair { .. });
        let pairs: Vec<Output> = chosen.iter().filter(is_pair).copied().collect();
        prop_assert_eq!(sorted(&greedy(&all)), sorted(&pairs));
    }

    #[test]
    fn random_cases_as_of(
        (case, asof) in asof_case(),
        batch_events_max in prop::sample::select(vec![1usize, 2, 7, 64]),
        shard_count in 1..4usize,
    ) {
        prop_assert_eq!(compare(&case, Feed { batch_events_max, shard_count }), Ok(()), "{:?}", asof);
    }

    /// An as-of join gives the best of all rows that are near enough.
    #[test]
    fn as_of_is_the_nearest_row((case, _) in asof_case()) {
        let lateness = case.spec.lateness();
        let lateness = Lateness { policy: LatePolicy::Drop, clock: LatenessClock::Merged, ..lateness };
        let all = outputs_with(&case, MatchChoice::All, lateness);
        let is_match = |output: &&Output| match **output {
            Output::Pair { left, right, .. } => {
                !case.spec.is_apart() || time_of(&case, left) != time_of(&case, right)
            }
            _ => false,
        };
        let pairs: Vec<Output> = all.iter().filter(is_match).copied().collect();
        let spec = asof_spec(&case.spec, lateness);
        let is_pair = |output: &&Output| matches!(output, Output::Pair { .. });
        let chosen = outputs_of(&case, &spec);
        let chosen: Vec<Output> = chosen.iter().filter(is_pair).copied().collect();
        prop_assert_eq!(sorted(&best_of(&case, spec.choice(), &pairs)), sorted(&chosen));
    }

    #[test]
    fn random_cases_of_windows(
        case in window_case(),
        batch_events_max in prop::sample::select(vec![1usize, 2, 7, 64]),
        shard_count in 1..4usize,
    ) {
        prop_assert_eq!(compare(&case, Feed { batch_events_max, shard_count }), Ok(()));
    }

    /// Without late rows a window join gives the product of each window's rows.
    #[test]
    fn windows_give_the_product_of_their_rows(case in window_case()) {
        let mut case = case;
        case.steps.retain(|step| matches!(step, Step::Event(_) | Step::End));
        let end = case.steps.iter().position(|step| *step == Step::End).unwrap_or(0);
        case.steps.truncate(end + 1);
        let mut oracle = OracleSubject::new(&case.spec, case.sources);
        let mut got = Vec::new();
        for step in &case.steps {
            got.extend(apply(&mut oracle, step).expect("nothing is late"));
        }
        got.retain(|output| matches!(output, Output::Pair { .. }));
        let expected = if case.spec.kind().emits_pairs() { product(&case) } else { Vec::new() };
        prop_assert_eq!(sorted(&expected), sorted(&got));
    }

    /// What a choice gives is the best of the pairs that come out without one.
    #[test]
    fn a_choice_is_the_best_of_all_pairs(
        choice in prop::sample::select(&CHOICES[..]),
        case in Just(()).prop_flat_map(|()| case(MatchChoice::First)),
    ) {
        let lateness = case.spec.lateness();
        // A late row that joins may come after the choice; so may one from a source that was idle
        // and is judged by its own clock.
        let lateness = Lateness { policy: LatePolicy::Drop, clock: LatenessClock::Merged, ..lateness };
        let all = outputs_with(&case, MatchChoice::All, lateness);
        let chosen = outputs_with(&case, choice, lateness);
        prop_assert_eq!(sorted(&best_of(&case, choice, &all)), sorted(&chosen));
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn random_cases_with_a_condition(
        case in prop_oneof![
            3 => case(MatchChoice::All),
            3 => prop::sample::select(&CHOICES[..]).prop_flat_map(case),
            2 => case(MatchChoice::OneToOne),
            1 => asof_case().prop_map(|(case, _)| case),
            2 => window_case(),
        ],
        modulus in 1..4u64,
        batch_events_max in prop::sample::select(vec![1usize, 2, 7, 64]),
        shard_count in 1..4usize,
    ) {
        let spec = case.spec.clone().with_condition(condition(modulus));
        let feed = Feed { batch_events_max, shard_count };
        prop_assert_eq!(compare(&Case { spec, ..case }, feed), Ok(()));
    }

    /// A condition leaves out of the pairs exactly those of which it does not hold, and what is
    /// chosen is the best of the others.
    #[test]
    fn a_condition_is_a_filter_before_the_choice(
        choice in prop::sample::select(&[CHOICES[0], CHOICES[1], CHOICES[2], MatchChoice::All][..]),
        case in Just(()).prop_flat_map(|()| case(MatchChoice::First)),
        modulus in 1..4u64,
    ) {
        let lateness = case.spec.lateness();
        let lateness = Lateness { policy: LatePolicy::Drop, clock: LatenessClock::Merged, ..lateness };
        let is_pair = |output: &&Output| matches!(output, Output::Pair { .. });
        let mut all = outputs_with(&case, MatchChoice::All, lateness);
        all.retain(|output| match *output {
            Output::Pair { left, right, .. } => passes(modulus, left, right),
            _ => false,
        });
        let spec = spec_with(&case, choice, lateness).with_condition(condition(modulus));
        let got: Vec<Output> = outputs_of(&case, &spec).iter().filter(is_pair).copied().collect();
        let expected = if choice == MatchChoice::All { all } else { best_of(&case, choice, &all) };
        prop_assert_eq!(sorted(&expected), sorted(&got));
    }
}

/// A case whose spec is that of a window join.
fn window_case() -> impl Strategy<Value = Case> {
    let window = prop_oneof![
        (1..40i64, -20..20i64).prop_map(|(size, at)| Window::tumbling(size).starting_at(at)),
        (1..40i64, 0..30i64, -9..9i64)
            .prop_map(|(slide, more, at)| { Window::hopping(slide + more, slide).starting_at(at) }),
        (1..30i64).prop_map(Window::session),
        Just(Window::tumbling(i64::MAX)),
        Just(Window::session(i64::MAX)),
    ];
    (case(MatchChoice::All), window).prop_map(|(mut case, window)| {
        let mut lateness = case.spec.lateness();
        if lateness.policy == LatePolicy::Join {
            lateness.policy = LatePolicy::Output;
        }
        let builder = JoinSpec::window(window).kind(case.spec.kind()).keys(case.spec.keys());
        case.spec = builder.lateness(lateness).build(&limits()).expect("a valid spec");
        case
    })
}

/// All pairs of a window join that nothing is late for, by comparing every row with every other.
fn product(case: &Case) -> Vec<Output> {
    let rows = |side: Side| -> Vec<&Arrival> {
        let events = case.steps.iter().filter_map(|step| match step {
            Step::Event(event) if event.side == side && event.key.is_some() => Some(event),
            _ => None,
        });
        events.collect()
    };
    let (lefts, rights) = (rows(Side::Left), rows(Side::Right));
    let mut out = Vec::new();
    for left in &lefts {
        for right in rights.iter().filter(|right| right.key == left.key) {
            for end in common_ends(case, left, right) {
                let ts = i64::try_from(end - 1).unwrap_or(i64::MAX);
                out.push(Output::Pair { left: left.id, right: right.id, ts });
            }
        }
    }
    out
}

/// The ends of the windows that two rows share.
fn common_ends(case: &Case, left: &Arrival, right: &Arrival) -> Vec<i128> {
    let (low, high) = (left.ts.min(right.ts), left.ts.max(right.ts));
    match case.spec.windows() {
        Some(Window::Hopping { size, slide, offset }) => {
            let (size, slide, offset) = (i128::from(size), i128::from(slide), i128::from(offset));
            let (low, high) = (i128::from(low), i128::from(high));
            // Down from the last window that starts at the earlier row or before.
            let mut start = (low - offset).div_euclid(slide) * slide + offset;
            let mut ends = Vec::new();
            while start + size > high {
                ends.push(start + size);
                start -= slide;
            }
            ends
        }
        Some(Window::Session { gap }) => {
            let mut times: Vec<i128> = case
                .steps
                .iter()
                .filter_map(|step| match step {
                    Step::Event(event) if event.key == left.key => Some(i128::from(event.ts)),
                    _ => None,
                })
                .collect();
            times.sort_unstable();
            // Along the key's times for as long as none is missing.
            let gap = i128::from(gap);
            let mut last = i128::from(low);
            for &time in times.iter().filter(|&&time| time > i128::from(low)) {
                if time - last >= gap {
                    break;
                }
                last = time;
            }
            if last >= i128::from(high) { vec![last + gap] } else { Vec::new() }
        }
        None => Vec::new(),
    }
}

/// A case whose spec is that of an as-of join.
fn asof_case() -> impl Strategy<Value = (Case, Asof)> {
    let direction = prop::sample::select(vec![Asof::backward(), Asof::forward(), Asof::nearest()]);
    let tolerance = prop_oneof![
        4 => (1..40i64).prop_map(Some),
        1 => Just(Some(i64::MAX)),
        1 => Just(None),
    ];
    (case(MatchChoice::First), direction, tolerance, any::<bool>()).prop_map(
        |(mut case, direction, tolerance, strict)| {
            let mut asof = tolerance.map_or(direction, |ticks| direction.within(ticks));
            if strict {
                asof = asof.strict();
            }
            // The kinds that emit pairs go with all of them.
            let kind = if case.spec.kind().emits_unmatched(Side::Left) {
                JoinKind::Left
            } else {
                JoinKind::Inner
            };
            let builder = JoinSpec::asof(asof).kind(kind).keys(case.spec.keys());
            let layout = (case.spec.bucket_width(), case.spec.chunk_bytes());
            let builder = laid_out(builder.lateness(case.spec.lateness()), layout);
            case.spec = builder.build(&limits()).expect("a valid spec");
            (case, asof)
        },
    )
}

/// The same as-of join with another lateness.
fn asof_spec(spec: &JoinSpec, lateness: Lateness) -> JoinSpec {
    let interval = spec.interval();
    let tolerance = interval.hi().max(interval.lo().saturating_neg());
    let asof = match spec.choice() {
        MatchChoice::Last => Asof::backward(),
        MatchChoice::First => Asof::forward(),
        _ => Asof::nearest(),
    };
    let is_strict = spec.is_apart() || !interval.contains(0, 0);
    let asof = if interval.is_unbounded() { asof } else { asof.within(tolerance) };
    let asof = if is_strict { asof.strict() } else { asof };
    let builder = JoinSpec::asof(asof).kind(spec.kind()).keys(spec.keys()).lateness(lateness);
    builder.build(&limits()).expect("a valid spec")
}

fn time_of(case: &Case, id: u64) -> Option<i64> {
    case.steps.iter().find_map(|step| match step {
        Step::Event(event) if event.id == id => Some(event.ts),
        _ => None,
    })
}

fn outputs_with(case: &Case, choice: MatchChoice, lateness: Lateness) -> Vec<Output> {
    outputs_of(case, &spec_with(case, choice, lateness))
}

fn spec_with(case: &Case, choice: MatchChoice, lateness: Lateness) -> JoinSpec {
    let (lo, hi) = (case.spec.interval().lo(), case.spec.interval().hi());
    JoinSpec::between(Bound::Closed(lo), Bound::Closed(hi))
        .kind(case.spec.kind())
        .lateness(lateness)
        .choice(choice)
        .allow_empty()
        .build(&limits())
        .expect("a valid spec")
}

fn outputs_of(case: &Case, spec: &JoinSpec) -> Vec<Output> {
    let mut oracle = OracleSubject::new(spec, case.sources);
    // Rows that come after the end of input are never freed, so their choice stays open.
    let until_end = case.steps.iter().take_while(|step| **step != Step::End);
    let mut out: Vec<Output> =
        until_end.flat_map(|step| apply(&mut oracle, step).expect("nothing fails")).collect();
    out.extend(oracle.end());
    out
}

/// By pair time, then by arrival, which ids are in the order of.
fn greedy(all: &[Output]) -> Vec<Output> {
    let mut pairs: Vec<(i64, u64, u64, Output)> = Vec::new();
    for &output in all {
        if let Output::Pair { left, right, ts } = output {
            pairs.push((ts, left.max(right), left.min(right), output));
        }
    }
    pairs.sort_unstable();
    let mut used = std::collections::BTreeSet::new();
    let mut out = Vec::new();
    for (.., output) in pairs {
        if let Output::Pair { left, right, .. } = output
            && !used.contains(&left)
            && !used.contains(&right)
        {
            used.extend([left, right]);
            out.push(output);
        }
    }
    out
}

/// One pair a left row, by the plain definition; the pairs come in the order of arrival.
fn best_of(case: &Case, choice: MatchChoice, all: &[Output]) -> Vec<Output> {
    let times: BTreeMap<u64, i64> = case
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Event(event) => Some((event.id, event.ts)),
            _ => None,
        })
        .collect();
    let mut best: BTreeMap<u64, Output> = BTreeMap::new();
    let mut out = Vec::new();
    for &output in all {
        let Output::Pair { left, right, .. } = output else {
            out.push(output);
            continue;
        };
        // Smaller is better; ids are arrivals, so the first arrived wins among equals.
        let rank = |right: u64| {
            let (at, left_at) = (i128::from(times[&right]), i128::from(times[&left]));
            match choice {
                MatchChoice::First | MatchChoice::All | MatchChoice::OneToOne => (at, 0, right),
                MatchChoice::Last => (-at, 0, right),
                MatchChoice::Nearest => ((at - left_at).abs(), at, right),
            }
        };
        let better = match best.get(&left) {
            Some(Output::Pair { right: before, .. }) => rank(right) < rank(*before),
            _ => true,
        };
        if better {
            best.insert(left, output);
        }
    }
    out.extend(best.into_values());
    out
}
