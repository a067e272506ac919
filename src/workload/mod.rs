//! Workloads: reproducible events in memory and as files, the roofline kernel, and the drivers
//! that measure a join against it. Used by `intervale bench`, `intervale gen` and `benches/`.
//!
//! Events are made from integers only (module [`random`]), so any language can make the same ones
//! and compare pair counts and checksums: see [`truth`].

pub mod bench;
mod cpu_clock;
mod drive;
mod engine_run;
mod events;
mod generate;
pub mod load;
mod measure;
mod naive;
pub mod random;
mod reference;
mod roofline;
mod single;

pub use cpu_clock::CpuClock;
pub use drive::{Stepped, drive};
pub use engine_run::{EngineRun, EngineSetup, run_engine};
pub use events::{Events, SideEvents, Steps, Watermarks};
pub use generate::{Arrivals, WorkloadEvent};
pub use measure::{Measured, StateSize, StepClock, StepTimes};
pub use naive::NaiveJoin;
pub use reference::{Outcome, sort_merge, truth};
pub use roofline::Roofline;
pub use single::{OutcomeSink, SingleJoin};

use crate::error::SpecError;
use crate::event::Side;
use crate::join::{JoinKind, JoinSpec, JoinSpecBuilder};
use crate::limits::Limits;
use crate::time::{Bound, Lateness};

use random::{Zipf, below, mix, rand};

/// The time of the first event, in milliseconds since the epoch.
pub const START_MS: i64 = 1_700_000_000_000;

/// Events arrive less than this many milliseconds after their turn; watermarks trail by as much.
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
    /// By [`Zipf`]: few hot keys, many rare ones.
    Zipf,
}

/// A stream of events a side and the interval to join them in. Times are milliseconds.
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
}

impl Workload {
    /// Every workload, in the order of the documents.
    pub const ALL: [Workload; 6] = [
        Workload {
            name: "w1a",
            about: "orders and payments: unique keys, 300 k live a side",
            keys: KeyRule::Unique,
            rate: 1_000,
            right_delay_ms: 60_001,
            between: (0, 300_000),
        },
        Workload {
            name: "w1b",
            about: "orders and payments, up to 30 M live a side",
            keys: KeyRule::Unique,
            rate: 100_000,
            right_delay_ms: 60_001,
            between: (0, 300_000),
        },
        Workload {
            name: "w2",
            about: "1,000 hot keys, 4 pairs a left event",
            keys: KeyRule::Uniform(1_000),
            rate: 2_000,
            right_delay_ms: 1,
            between: (-1_000, 1_000),
        },
        Workload {
            name: "w3a",
            about: "skewed keys, sparse",
            keys: KeyRule::Zipf,
            rate: 25,
            right_delay_ms: 1,
            between: (-5_000, 5_000),
        },
        Workload {
            name: "w3b",
            about: "skewed keys, dense: one key has runs of thousands",
            keys: KeyRule::Zipf,
            rate: 2_000,
            right_delay_ms: 1,
            between: (-5_000, 5_000),
        },
        Workload {
            name: "w4",
            about: "trades against a quote a minute ago: long runs, 2 matches",
            keys: KeyRule::Uniform(100),
            rate: 20_000,
            right_delay_ms: 1,
            between: (-60_000, -59_990),
        },
    ];

    /// The workload of that name.
    pub fn by_name(name: &str) -> Option<Workload> {
        Self::ALL.into_iter().find(|workload| workload.name == name)
    }

    /// The same workload at another rate (events a second and side, at least 1): the longer runs
    /// or the larger state that come with it. [`truth`] knows the rates of [`ALL`](Self::ALL) only.
    pub fn with_rate(self, rate: u64) -> Workload {
        Workload { rate: rate.max(1), ..self }
    }

    /// The join to run over it: integer keys, nothing late.
    pub fn spec(&self, kind: JoinKind) -> JoinSpecBuilder {
        let (lo, hi) = self.between;
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
        match i.checked_mul(1_000) {
            Some(scaled) => scaled / self.rate,
            None => (u128::from(i) * 1_000 / u128::from(self.rate)) as u64,
        }
    }

    /// Event `i` of a side, and when it arrives: milliseconds from [`START_MS`].
    #[inline]
    fn event(&self, side: Side, side_seed: u64, i: u64) -> (WorkloadEvent, u64) {
        let drawn = rand(side_seed, i.wrapping_mul(4));
        let key = match self.keys {
            KeyRule::Unique => i,
            KeyRule::Uniform(count) => below(drawn, count),
            KeyRule::Zipf => Zipf::shared().key(drawn),
        };
        let delay_ms = match side {
            Side::Left => 0,
            Side::Right => below(drawn, self.right_delay_ms),
        };
        let offset_ms = self.turn_ms(i) + delay_ms;
        let late_by = below(rand(side_seed, i.wrapping_mul(4).wrapping_add(1)), DISORDER_MS as u64);
        // Offsets stay far below 2^62: event counts are bounded by memory and by ids in columns.
        let ts = START_MS.saturating_add_unsigned(offset_ms);
        (WorkloadEvent { key, ts, id: i }, offset_ms + late_by)
    }
}
