//! What an engine did: on request while it runs, and at its end.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::error::JoinError;
use crate::event::Side;
use crate::exchange::{SplitReport, Watermarks};
use crate::join::Counters;
use crate::runtime::RuntimeKind;
use crate::shard::ShardReport;

/// A look at a running engine.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The counts of all shards together.
    pub counters: Counters,
    /// Each side's watermark now, by [`Side::index`].
    pub watermarks: [i64; 2],
    /// Promises that were smaller than an earlier one and ignored, by side.
    pub regressed: [u64; 2],
    /// Events further ahead than a limit on jumps lets a watermark go, by side.
    pub jumped: [u64; 2],
    /// What was split of the hot keys.
    pub hot_keys: SplitReport,
    /// Bytes of state now, as allocated, over all shards.
    pub state_bytes: u64,
    /// Of these, what holds no row and waits to be used again.
    pub state_bytes_pooled: u64,
    /// Bytes that were taken before the first row, over all shards; part of `state_bytes` only
    /// while rows use them.
    pub state_bytes_reserved: u64,
    /// Each shard's own report.
    pub shards: Vec<ShardReport>,
}

impl Metrics {
    pub(super) fn new(
        shards: Vec<ShardReport>,
        table: &Watermarks,
        hot_keys: SplitReport,
    ) -> Metrics {
        Metrics {
            counters: sum_counters(&shards),
            watermarks: Side::BOTH.map(|side| table.side(side)),
            regressed: Side::BOTH.map(|side| table.regressed(side)),
            jumped: Side::BOTH.map(|side| table.jumped(side)),
            hot_keys,
            state_bytes: shards.iter().map(|shard| shard.state_bytes).sum(),
            state_bytes_pooled: shards.iter().map(|shard| shard.state_bytes_pooled).sum(),
            state_bytes_reserved: reserved(&shards),
            shards,
        }
    }
}

/// How an engine ended, when no fault ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All sources ended and everything was handed on.
    Complete,
    /// [`Engine::shutdown`](crate::engine::Engine::shutdown) stopped it in the middle.
    Stopped,
    /// Nobody reads the results any more (a closed pipe).
    SinkClosed,
}

/// The closing report.
#[derive(Clone, Debug)]
pub struct Report {
    /// How it ended.
    pub ending: Ending,
    /// The counts of all shards together; they were checked.
    pub counters: Counters,
    /// Events that sources pushed; those of a complete run are all counted in `counters`.
    pub events_pushed: u64,
    /// In a later stage of a chain: left rows that count as without a key because they came out of
    /// the stage before behind their time. They had no key there, so they were never late, and whom
    /// they would meet here may have been freed.
    pub left_behind: u64,
    /// Promises that were smaller than an earlier one and ignored, by [`Side::index`].
    pub regressed: [u64; 2],
    /// Events further ahead than a limit on jumps lets a watermark go, by [`Side::index`].
    pub jumped: [u64; 2],
    /// From the arrival of a pair's second row to its hand-over, in nanoseconds, one value a pair.
    pub latency_ns: Histogram<u64>,
    /// Length of the steps that did something, in nanoseconds.
    pub step_ns: Histogram<u64>,
    /// Most rows in state at the same time.
    pub state_rows_peak: u64,
    /// Most bytes of state at the same time, as allocated.
    pub state_bytes_peak: u64,
    /// Bytes that were taken before the first row, over all shards, as the spec asks for
    /// ([`JoinSpecBuilder::reserve_bytes`](crate::join::JoinSpecBuilder::reserve_bytes)), rounded
    /// up. They count as state, and against its bound, only while rows use them.
    pub state_bytes_reserved: u64,
    /// The last watermark of each side before its end, by [`Side::index`]; `None` when its sources
    /// never promised anything.
    pub watermarks: [Option<i64>; 2],
    /// The smaller of them.
    pub watermark: Option<i64>,
    /// What was split of the hot keys; the copies that it took are in `counters`.
    pub hot_keys: SplitReport,
    /// From start to end.
    pub elapsed: Duration,
    /// What drove the shards.
    pub runtime: RuntimeKind,
    /// The CPU of each shard; `None` where the system chose.
    pub cores: Vec<Option<usize>>,
    /// What the user should know about where and how it ran, a line each.
    pub notes: Vec<String>,
    /// Each shard's own report.
    pub shards: Vec<ShardReport>,
}

/// What is known of a run beside its shards.
pub(super) struct Run {
    pub(super) ending: Ending,
    pub(super) events_pushed: u64,
    pub(super) left_behind: u64,
    pub(super) state_rows_peak: u64,
    pub(super) state_bytes_peak: u64,
    pub(super) regressed: [u64; 2],
    pub(super) jumped: [u64; 2],
    pub(super) watermarks: [Option<i64>; 2],
    pub(super) hot_keys: SplitReport,
    pub(super) elapsed: Duration,
    pub(super) runtime: RuntimeKind,
    pub(super) cores: Vec<Option<usize>>,
    pub(super) notes: Vec<String>,
}

impl Report {
    pub(super) fn new(run: Run, shards: Vec<ShardReport>) -> Report {
        Report {
            ending: run.ending,
            counters: sum_counters(&shards),
            events_pushed: run.events_pushed,
            left_behind: run.left_behind,
            regressed: run.regressed,
            jumped: run.jumped,
            latency_ns: merge(&shards, |shard| &shard.latency_ns),
            step_ns: merge(&shards, |shard| &shard.step_ns),
            state_rows_peak: run.state_rows_peak,
            state_bytes_peak: run.state_bytes_peak,
            state_bytes_reserved: reserved(&shards),
            watermarks: run.watermarks,
            watermark: run.watermarks.iter().flatten().min().copied(),
            hot_keys: run.hot_keys,
            elapsed: run.elapsed,
            runtime: run.runtime,
            cores: run.cores,
            notes: run.notes,
            shards,
        }
    }

    /// Checks every sum that must hold: in each shard, over all of them, and from what was pushed
    /// to what was counted. In a run that was stopped, events in flight are missing.
    pub(super) fn check(&self) -> Result<(), JoinError> {
        for shard in &self.shards {
            shard.counters.check()?;
        }
        self.counters.check()?;
        let rows: u64 = Side::BOTH.iter().map(|&side| self.counters.side(side).rows).sum();
        let is_complete = self.ending == Ending::Complete;
        if rows > self.events_pushed || (is_complete && rows != self.events_pushed) {
            return Err(JoinError::Unbalanced(format!(
                "{} events were pushed and {rows} rows were counted",
                self.events_pushed
            )));
        }
        let buffered: u64 =
            Side::BOTH.iter().map(|&side| self.counters.side(side).buffered()).sum();
        if is_complete && buffered > 0 {
            return Err(JoinError::Unbalanced(format!("{buffered} rows are in state at the end")));
        }
        Ok(())
    }
}

impl Report {
    /// Checks that no row which an earlier stage gave out was late in this one: it would be lost.
    pub(super) fn check_derived(&self) -> Result<(), JoinError> {
        match self.counters.side(Side::Left).late {
            0 => Ok(()),
            late => Err(JoinError::Unbalanced(format!(
                "{late} rows that one stage gave out were late in the next"
            ))),
        }
    }

    /// Checks that the next stage of a chain was handed all that came out of this one, whose pairs
    /// come out or not.
    pub(super) fn check_handed(
        &self,
        handed_over: Option<u64>,
        emits_pairs: bool,
    ) -> Result<(), JoinError> {
        let Some(handed_over) = handed_over.filter(|_| self.ending == Ending::Complete) else {
            return Ok(());
        };
        let singles: u64 = Side::BOTH.iter().map(|&side| self.counters.side(side).singles).sum();
        let pairs = if emits_pairs { self.counters.pairs } else { 0 };
        if handed_over == singles + pairs {
            return Ok(());
        }
        Err(JoinError::Unbalanced(format!(
            "{pairs} pairs and {singles} single rows came out of a stage, and {handed_over} rows \
             were handed to the next"
        )))
    }
}

fn reserved(shards: &[ShardReport]) -> u64 {
    shards.iter().map(|shard| shard.state_bytes_reserved).sum()
}

fn sum_counters(shards: &[ShardReport]) -> Counters {
    let mut sum = Counters::default();
    shards.iter().for_each(|shard| sum.add(&shard.counters));
    sum
}

fn merge(shards: &[ShardReport], of: fn(&ShardReport) -> &Histogram<u64>) -> Histogram<u64> {
    let mut merged: Histogram<u64> = match shards.first() {
        Some(shard) => Histogram::new_from(of(shard)),
        None => Histogram::new(2).expect("two significant figures are within what it allows"),
    };
    for shard in shards {
        // All shards use the same bounds, so nothing is out of range.
        let _ = merged.add(of(shard));
    }
    merged
}
