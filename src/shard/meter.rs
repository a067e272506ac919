//! What a shard measures: plain numbers on its own core, copied out on request.

use hdrhistogram::Histogram;

use crate::join::Counters;
use crate::shard::Operator;
use crate::time::{WATERMARK_END, WATERMARK_START};

/// What a shard did so far.
#[derive(Clone, Debug)]
pub struct ShardReport {
    /// The operator's counts.
    pub counters: Counters,
    /// From the arrival of a pair's second row to its hand-over to the sink, in nanoseconds, one
    /// value a pair (of batches whose arrival was noted). Values are good to 1 %.
    pub latency_ns: Histogram<u64>,
    /// Length of the steps that did something, in nanoseconds, good to 1 %.
    pub step_ns: Histogram<u64>,
    /// Most rows that were in the memory of state at the end of a step.
    pub state_rows_peak: u64,
    /// Bytes of state now, as allocated.
    pub state_bytes: u64,
    /// Of these, what waits to be used again.
    pub state_bytes_pooled: u64,
    /// Bytes that were taken before the first row; part of `state_bytes` only while rows use them.
    pub state_bytes_reserved: u64,
    /// Most bytes of state at the end of a step, as allocated.
    pub state_bytes_peak: u64,
    /// Batches in all lanes at the start of the last round.
    pub lane_depth: usize,
    /// The most there were at the start of a round.
    pub lane_depth_peak: usize,
    /// Events taken from lanes.
    pub events: u64,
    /// Rounds begun, those that found nothing included.
    pub rounds: u64,
    /// Time in steps that did something. The busy share is this over the time between two reports.
    pub busy_ns: u64,
    /// The watermarks that were applied last, by [`Side::index`](crate::event::Side::index).
    pub watermarks: [i64; 2],
    /// The last watermark of each side that was neither the start nor the end.
    pub watermarks_finite: [Option<i64>; 2],
    /// The last output watermark.
    pub output_watermark: i64,
}

/// Longest value that the histograms tell apart: an hour. Longer ones count as that.
const NS_MAX: u64 = 3_600_000_000_000;

pub(super) struct Meter {
    pub(super) report: ShardReport,
}

impl Meter {
    pub(super) fn new() -> Meter {
        // All buckets are allocated here, so recording never allocates. Two significant figures
        // keep them at some 40 KiB.
        let histogram: Histogram<u64> = Histogram::new_with_bounds(1, NS_MAX, 2)
            .expect("1 is positive, less than half of an hour, and 2 figures are fewer than 6");
        Meter {
            report: ShardReport {
                counters: Counters::default(),
                latency_ns: histogram.clone(),
                step_ns: histogram,
                state_rows_peak: 0,
                state_bytes: 0,
                state_bytes_pooled: 0,
                state_bytes_reserved: 0,
                state_bytes_peak: 0,
                lane_depth: 0,
                lane_depth_peak: 0,
                events: 0,
                rounds: 0,
                busy_ns: 0,
                watermarks: [WATERMARK_START; 2],
                watermarks_finite: [None; 2],
                output_watermark: WATERMARK_START,
            },
        }
    }

    pub(super) fn round(&mut self, lane_depth: usize) {
        self.report.rounds += 1;
        self.report.lane_depth = lane_depth;
        self.report.lane_depth_peak = self.report.lane_depth_peak.max(lane_depth);
    }

    #[inline]
    pub(super) fn pairs(&mut self, latency_ns: u64, count: u64) {
        self.report.latency_ns.saturating_record_n(latency_ns, count);
    }

    pub(super) fn applied(&mut self, sides: [i64; 2]) {
        for (finite, watermark) in self.report.watermarks_finite.iter_mut().zip(sides) {
            if watermark != WATERMARK_START && watermark != WATERMARK_END {
                *finite = Some(watermark);
            }
        }
    }

    pub(super) fn step<J: Operator>(&mut self, start_ns: u64, now_ns: u64, join: &J) {
        let step_ns = now_ns.saturating_sub(start_ns);
        self.report.step_ns.saturating_record(step_ns);
        self.report.busy_ns += step_ns;
        self.report.state_rows_peak = self.report.state_rows_peak.max(join.rows_in_memory());
        self.report.state_bytes_peak = self.report.state_bytes_peak.max(join.state_bytes());
    }
}
