//! A join driven by short calls, for tests that read like a story.

use intervale::error::JoinError;
use intervale::event::{KeyKind, Side};
use intervale::join::oracle::Output;
use intervale::join::{JoinKind, JoinSpec, JoinSpecBuilder};
use intervale::time::{Bound, LatePolicy, Lateness, LatenessClock};

use super::limits;
use super::subject::{Arrival, Subject};

/// Makes the subject that a case runs on.
pub type Make = fn(&JoinSpec, [usize; 2]) -> Box<dyn Subject>;

/// A subject, and the sources that the short calls mean.
pub struct Run {
    pub subject: Box<dyn Subject>,
}

impl Run {
    /// One source a side.
    pub fn new(make: Make, spec: &JoinSpec) -> Run {
        Run::with_sources(make, spec, [1, 1])
    }

    pub fn with_sources(make: Make, spec: &JoinSpec, sources: [usize; 2]) -> Run {
        Run { subject: make(spec, sources) }
    }

    /// An event of key `k` and source 0.
    pub fn left(&mut self, id: u64, ts: i64) -> Vec<Output> {
        self.event(Side::Left, 0, Some("k"), id, ts).expect("no policy of failing")
    }

    /// An event of key `k` and source 0.
    pub fn right(&mut self, id: u64, ts: i64) -> Vec<Output> {
        self.event(Side::Right, 0, Some("k"), id, ts).expect("no policy of failing")
    }

    pub fn event(
        &mut self,
        side: Side,
        source: usize,
        key: Option<&str>,
        id: u64,
        ts: i64,
    ) -> Result<Vec<Output>, JoinError> {
        let key = key.map(|key| key.as_bytes().to_vec());
        self.subject.event(&Arrival { side, source, key, ts, id })
    }

    /// Source 0 of the left side promises.
    pub fn left_watermark(&mut self, ts: i64) -> Vec<Output> {
        self.subject.watermark(Side::Left, 0, ts)
    }

    /// Source 0 of the right side promises.
    pub fn right_watermark(&mut self, ts: i64) -> Vec<Output> {
        self.subject.watermark(Side::Right, 0, ts)
    }

    /// Both sides promise, the left one first.
    pub fn watermark(&mut self, ts: i64) -> Vec<Output> {
        let mut out = self.left_watermark(ts);
        out.extend(self.right_watermark(ts));
        out
    }

    pub fn end(&mut self) -> Vec<Output> {
        self.subject.end()
    }
}

/// A closed interval of `right.ts - left.ts`, inner, for the builder's further calls.
pub fn between(lo: i64, hi: i64) -> JoinSpecBuilder {
    JoinSpec::between(Bound::Closed(lo), Bound::Closed(hi)).keys(KeyKind::Bytes)
}

/// Builds a spec of an inner join.
pub fn inner(lo: i64, hi: i64) -> JoinSpec {
    build(between(lo, hi))
}

/// Builds a spec of a kind.
pub fn of_kind(kind: JoinKind, lo: i64, hi: i64) -> JoinSpec {
    build(between(lo, hi).kind(kind))
}

pub fn build(builder: JoinSpecBuilder) -> JoinSpec {
    builder.build(&limits()).expect("a valid spec")
}

pub fn lateness(policy: LatePolicy, clock: LatenessClock, allowed: i64) -> Lateness {
    Lateness { policy, clock, allowed }
}

pub fn pair(left: u64, right: u64, ts: i64) -> Output {
    Output::Pair { left, right, ts }
}

/// A left row by itself: padded, semi or anti.
pub fn left_alone(id: u64) -> Output {
    Output::Single { side: Side::Left, id }
}

/// A right row by itself: padded.
pub fn right_alone(id: u64) -> Output {
    Output::Single { side: Side::Right, id }
}

pub fn late(side: Side, id: u64, lag: i64) -> Output {
    Output::Late { side, id, lag }
}
