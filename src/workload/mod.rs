//! Workloads: reproducible events in memory and as files, the roofline kernel, and the drivers
//! that measure a join against it. Used by `intervale bench`, `intervale gen` and `benches/`.
//!
//! Events are made from integers only (module [`random`]), so any language can make the same ones
//! and compare pair counts and checksums: see [`truth`].

pub mod bench;
mod bounds;
mod chain_run;
mod cpu_clock;
mod drive;
mod engine_run;
mod events;
mod form;
mod generate;
mod late;
mod layout;
pub mod load;
mod measure;
mod naive;
mod naive_threads;
mod offline;
pub mod random;
mod reference;
mod roofline;
mod single;
mod yardstick;

pub use bounds::{Bounds, Moved, bounded};
pub use chain_run::{CHAIN_MAX, fold, run_chain};
pub use cpu_clock::CpuClock;
pub use drive::{Stepped, drive};
pub use engine_run::{EngineRun, EngineSetup, run_engine};
pub use events::{Events, SideEvents, Steps, Watermarks};
pub use form::{Direction, Form, half_of_pairs};
pub use generate::{Arrivals, WorkloadEvent};
pub use late::LateEvents;
pub use layout::LayoutHints;
pub use measure::{MAD_TO_SIGMA, Measured, StateSize, StepClock, StepTimes, median};
pub use naive::NaiveJoin;
pub use naive_threads::run_naive;
pub use offline::{OfflineJoin, chain_rows, offline, offline_chain, sort_merge};
pub use reference::{Outcome, truth};
pub use roofline::Roofline;
pub use single::{OutcomeSink, SingleJoin};
pub use yardstick::{Look, Yardstick};

use crate::error::SpecError;
use crate::event::Side;
use crate::join::{JoinKind, JoinSpec, JoinSpecBuilder};
use crate::limits::Limits;
use crate::time::{Bound, Lateness};

use random::{ZipfShape, below, mix, rand};

/// The time of the first event, in milliseconds since the epoch.
pub const START_MS: i64 = 1_700_000_000_000;

/// Events of the named workloads arrive less than this many milliseconds after their turn;
/// watermarks trail by as much.
pub const DISORDER_MS: i64 = 5_000;

/// The seed of measured runs.
pub const SEED_MEASURED: u64 = 42;

/// The seed of warm-up runs.
pub const SEED_WARM_UP: u64 = 7;

/// How the key of event `i` is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// `i` itself: each key once a side.
    Unique,
    /// Evenly among this many keys.
    Uniform(u64),
    /// By Zipf's law: few hot keys, many rare ones.
    Zipf(ZipfShape),
}

/// Events that come in bursts instead of evenly; as many in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// From one burst to the next, in milliseconds of event time; at least 1.
    pub period_ms: u64,
    /// How many times as fast events come in a burst: it takes the `factor`-th part of the period,
    /// and silence the rest. At least 1.
    pub factor: u64,
}

/// A stream of events a side and the interval to join them in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The name that `--workload` takes.
    pub name: &'static str,
    /// What it stands for, in a few words.
    pub about: &'static str,
    /// How keys are drawn.
    pub keys: KeyRule,
    /// Events a second and side, in event time.
    pub rate: u64,
    /// Right events happen a random time under this many milliseconds after their turn.
    pub right_delay_ms: u64,
    /// The closed interval of `right.ts - left.ts`, in milliseconds.
    pub between: (i64, i64),
    /// Events arrive less than this many milliseconds after their time (at their time, if 0), and
    /// watermarks trail by as much.
    pub disorder_ms: u64,
    /// So many in a million events of a side arrive later than that, behind the side's watermark;
    /// exactly so many, of however few, where so many can: see [`LateEvents`].
    pub late_ppm: u32,
    /// Bursts, if events do not come evenly.
    pub burst: Option<Burst>,
    /// Bytes of payload of each event beside its number.
    pub payload_bytes: u32,
    /// Ticks of event times a millisecond: 1, or [`FINE_TICKS`].
    pub ticks_per_ms: i64,
}

/// Of the four random numbers of event `i`: which draws its key.
const DRAW_KEY: u64 = 0;
/// Which draws by how much it happens after its turn.
const DRAW_DELAY: u64 = 3;

/// Ticks a millisecond of a workload whose events of one key all have times of their own; see
/// [`Workload::fine`].
pub const FINE_TICKS: i64 = 1 << 21;

/// What most workloads have: 1,000 evenly drawn keys, 1,000 events a second and side.
const PLAIN: Workload = Workload {
    name: "free",
    about: "1,000 keys, 1,000 events a second; every option changes one thing",
    keys: KeyRule::Uniform(1_000),
    rate: 1_000,
    right_delay_ms: 1,
    between: (-1_000, 1_000),
    disorder_ms: DISORDER_MS as u64,
    late_ppm: 0,
    burst: None,
    payload_bytes: 0,
    ticks_per_ms: 1,
};

impl Workload {
    /// Every workload, in the order of the documents.
    pub const ALL: [Workload; 6] = [
        Workload {
            name: "w1a",
            about: "orders and payments: unique keys, 300 k live a side",
            keys: KeyRule::Unique,
            right_delay_ms: 60_001,
            between: (0, 300_000),
            ..PLAIN
        },
        Workload {
            name: "w1b",
            about: "orders and payments, up to 30 M live a side",
            keys: KeyRule::Unique,
            rate: 100_000,
            right_delay_ms: 60_001,
            between: (0, 300_000),
            ..PLAIN
        },
        Workload {
            name: "w2",
            about: "1,000 hot keys, 4 pairs a left event",
            rate: 2_000,
            ..PLAIN
        },
        Workload {
            name: "w3a",
            about: "skewed keys, sparse",
            keys: KeyRule::Zipf(ZipfShape::CLASSIC),
            rate: 25,
            between: (-5_000, 5_000),
            ..PLAIN
        },
        Workload {
            name: "w3b",
            about: "skewed keys, dense: one key has runs of thousands",
            keys: KeyRule::Zipf(ZipfShape::CLASSIC),
            rate: 2_000,
            between: (-5_000, 5_000),
            ..PLAIN
        },
        Workload {
            name: "w4",
            about: "trades against a quote a minute ago: long runs, 2 matches",
            keys: KeyRule::Uniform(100),
            rate: 20_000,
            between: (-60_000, -59_990),
            ..PLAIN
        },
    ];

    /// The one to make others from.
    pub const FREE: Workload = PLAIN;

    /// The workload of that name: one of [`ALL`](Self::ALL), or [`FREE`](Self::FREE).
    pub fn by_name(name: &str) -> Option<Workload> {
        Self::ALL.into_iter().chain([Self::FREE]).find(|workload| workload.name == name)
    }

    /// The same workload at another rate (events a second and side, at least 1): the longer runs
    /// or the larger state that come with it. [`truth`] knows the rates of [`ALL`](Self::ALL) only.
    pub fn with_rate(self, rate: u64) -> Workload {
        Workload { rate: rate.max(1), ..self }
    }

    /// The same workload, in so fine ticks that no two events of one key share a time (up to 2^20
    /// events a side at a time). Which of several matches is the first, the last or the nearest
    /// does then not depend on the order in which they arrived.
    pub fn fine(self) -> Workload {
        Workload { ticks_per_ms: FINE_TICKS, ..self }
    }

    /// How far watermarks trail the largest time seen, in ticks.
    pub fn disorder_ticks(&self) -> i64 {
        let disorder_ms = i64::try_from(self.disorder_ms).unwrap_or(i64::MAX);
        disorder_ms.saturating_mul(self.ticks_per_ms).saturating_add(self.ticks_per_ms - 1)
    }

    /// The closed interval of `right.ts - left.ts`, in ticks.
    pub fn between_ticks(&self) -> (i64, i64) {
        let (lo, hi) = self.between;
        (lo.saturating_mul(self.ticks_per_ms), hi.saturating_mul(self.ticks_per_ms))
    }

    /// The join to run over it: integer keys, all matches, late events dropped.
    pub fn spec(&self, kind: JoinKind) -> JoinSpecBuilder {
        let (lo, hi) = self.between_ticks();
        JoinSpec::between(Bound::Closed(lo), Bound::Closed(hi))
            .kind(kind)
            .lateness(Lateness::default())
    }

    /// [`spec`](Self::spec), built without a bound on state.
    ///
    /// # Errors
    /// [`SpecError`] for a workload that a caller made up with an empty interval.
    pub fn built_spec(&self, kind: JoinKind) -> Result<JoinSpec, SpecError> {
        self.spec(kind).build(&Limits::UNBOUNDED)
    }

    /// The seed of one side's random numbers.
    #[inline]
    pub const fn side_seed(seed: u64, side: Side) -> u64 {
        mix(seed.wrapping_add(side.index() as u64))
    }

    /// Milliseconds from [`START_MS`] to the turn of event `i`.
    #[inline]
    fn turn_ms(&self, i: u64) -> u64 {
        let even = match i.checked_mul(1_000) {
            Some(scaled) => scaled / self.rate,
            None => (u128::from(i) * 1_000 / u128::from(self.rate)) as u64,
        };
        match self.burst {
            Some(Burst { period_ms, factor }) => {
                let into = even % period_ms.max(1);
                even - into + into / factor.max(1)
            }
            None => even,
        }
    }

    /// Events of a side happen less than so many milliseconds after their turn; at least 1.
    fn delay_span_ms(&self, side: Side) -> u64 {
        match side {
            Side::Left => 1,
            Side::Right => self.right_delay_ms.max(1),
        }
    }

    /// Milliseconds from [`START_MS`] to the time of event `i`.
    #[inline]
    fn offset_ms(&self, side: Side, side_seed: u64, i: u64) -> u64 {
        let draw = |which| rand(side_seed, i.wrapping_mul(4).wrapping_add(which));
        let delay_ms = match (side, self.keys) {
            (Side::Left, _) => 0,
            // The number that unique keys do not need, as workloads define it.
            (Side::Right, KeyRule::Unique) => below(draw(DRAW_KEY), self.right_delay_ms),
            (Side::Right, _) => below(draw(DRAW_DELAY), self.right_delay_ms),
        };
        self.turn_ms(i) + delay_ms
    }

    /// A time that is long enough for events to have followed, in milliseconds.
    fn gap_ms(&self) -> u64 {
        1_000 + 2_000 / self.rate + self.burst.map_or(0, |burst| burst.period_ms)
    }

    /// Events of a side arrive less than this many milliseconds after their turn: those that come
    /// at that rate in that time are what [`Arrivals`] holds.
    pub fn arrival_span_ms(&self, side: Side) -> u64 {
        let delay_ms = self.delay_span_ms(side);
        let late_ms = match self.late_ppm {
            0 => self.disorder_ms.max(1),
            _ => 2 * self.late_by_min_ms(),
        };
        delay_ms + late_ms
    }

    /// Late events arrive at least so many milliseconds after their time: by then the watermark has
    /// passed them, or they wait until it has.
    fn late_by_min_ms(&self) -> u64 {
        2 * self.disorder_ms + self.gap_ms()
    }
}
