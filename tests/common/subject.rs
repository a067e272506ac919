//! One interface for everything that joins: the oracle, the operator, several shards.

use std::fmt;

use intervale::error::JoinError;
use intervale::event::Side;
use intervale::join::JoinSpec;
use intervale::join::oracle::{Oracle, Output};

/// An event as the tests see it.
#[derive(Clone, PartialEq, Eq)]
pub struct Arrival {
    pub side: Side,
    pub source: usize,
    pub key: Option<Vec<u8>>,
    pub ts: i64,
    pub id: u64,
}

/// One thing that happens to a join.
#[derive(Clone, PartialEq, Eq)]
pub enum Step {
    Event(Arrival),
    Watermark {
        side: Side,
        source: usize,
        ts: i64,
    },
    Idle {
        side: Side,
        source: usize,
    },
    Finish {
        side: Side,
        source: usize,
    },
    /// The time on the wall.
    Tick {
        ns: u64,
    },
    End,
}

/// Short, because failures list many: `left/0 k1@10 #3` is event 3 of source 0.
impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_deref().map(String::from_utf8_lossy);
        let (side, key) = (self.side.name(), key.as_deref().unwrap_or("null"));
        write!(f, "{side}/{} {key}@{} #{}", self.source, self.ts, self.id)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Event(event) => event.fmt(f),
            Step::Watermark { side, source, ts } => write!(f, "{}/{source} W={ts}", side.name()),
            Step::Idle { side, source } => write!(f, "{}/{source} idle", side.name()),
            Step::Finish { side, source } => write!(f, "{}/{source} finish", side.name()),
            Step::Tick { ns } => write!(f, "tick {ns}"),
            Step::End => write!(f, "end"),
        }
    }
}

/// A join that is driven step by step; each call returns all that came out because of it.
pub trait Subject {
    fn event(&mut self, event: &Arrival) -> Result<Vec<Output>, JoinError>;
    fn watermark(&mut self, side: Side, source: usize, ts: i64) -> Vec<Output>;
    fn idle(&mut self, side: Side, source: usize) -> Vec<Output>;
    fn finish(&mut self, side: Side, source: usize) -> Vec<Output>;
    fn end(&mut self) -> Vec<Output>;

    /// The time on the wall is `ns`; a subject that goes by a clock of its own is not told.
    fn tick(&mut self, ns: u64) -> Vec<Output> {
        panic!("the subject has a clock of its own, so it is not {ns} ns")
    }

    /// Events with nothing between them; a subject may take those of one source together.
    fn events(&mut self, events: &[Arrival]) -> Result<Vec<Output>, JoinError> {
        let mut out = Vec::new();
        for event in events {
            out.extend(self.event(event)?);
        }
        Ok(out)
    }
}

/// Hands one step to a subject.
pub fn apply(subject: &mut dyn Subject, step: &Step) -> Result<Vec<Output>, JoinError> {
    Ok(match *step {
        Step::Event(ref event) => return subject.event(event),
        Step::Watermark { side, source, ts } => subject.watermark(side, source, ts),
        Step::Idle { side, source } => subject.idle(side, source),
        Step::Finish { side, source } => subject.finish(side, source),
        Step::Tick { ns } => subject.tick(ns),
        Step::End => subject.end(),
    })
}

/// The reference.
pub struct OracleSubject(pub Oracle);

impl OracleSubject {
    pub fn new(spec: &JoinSpec, sources: [usize; 2]) -> OracleSubject {
        OracleSubject(Oracle::new(spec, sources[0], sources[1]))
    }
}

impl Subject for OracleSubject {
    fn event(&mut self, event: &Arrival) -> Result<Vec<Output>, JoinError> {
        let Arrival { side, source, ref key, ts, id } = *event;
        self.0.event(side, source, key.as_deref(), ts, id)
    }

    fn watermark(&mut self, side: Side, source: usize, ts: i64) -> Vec<Output> {
        self.0.watermark(side, source, ts)
    }

    fn idle(&mut self, side: Side, source: usize) -> Vec<Output> {
        self.0.idle(side, source)
    }

    fn finish(&mut self, side: Side, source: usize) -> Vec<Output> {
        self.0.finish(side, source)
    }

    fn end(&mut self) -> Vec<Output> {
        self.0.end()
    }

    fn tick(&mut self, ns: u64) -> Vec<Output> {
        self.0.tick(ns)
    }
}
