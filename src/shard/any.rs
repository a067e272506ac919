//! Shards that run whichever operator a spec calls for, or a caller's own.

use super::Operator;
use crate::error::JoinError;
use crate::event::EventBatch;
use crate::join::{AnyJoin, Counters, Emit, Process, ProcessJoin};

impl Operator for AnyJoin {
    #[inline]
    fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        AnyJoin::on_batch(self, batch, out)
    }

    fn advance(&mut self, left: i64, right: i64) {
        AnyJoin::advance(self, left, right);
    }

    fn finish(&mut self) {
        AnyJoin::finish(self);
    }

    fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        AnyJoin::work(self, budget, out)
    }

    fn output_watermark(&self) -> i64 {
        AnyJoin::output_watermark(self)
    }

    #[inline]
    fn counters(&self) -> &Counters {
        AnyJoin::counters(self)
    }

    fn state_bytes(&self) -> u64 {
        AnyJoin::state_bytes(self)
    }

    fn splits_keys(&self) -> bool {
        match self {
            AnyJoin::Interval(join) => join.spec().spread_sides().is_ok(),
            AnyJoin::Window(_) => false,
        }
    }

    fn pooled_bytes(&self) -> u64 {
        AnyJoin::pooled_bytes(self)
    }

    fn trim(&mut self, keep_bytes: u64) {
        AnyJoin::trim(self, keep_bytes);
    }

    fn shed(&mut self, bytes_max: u64, rows_max: u64) {
        AnyJoin::shed(self, bytes_max, rows_max);
    }
}

impl<P: Process> Operator for ProcessJoin<P> {
    fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        ProcessJoin::on_batch(self, batch, out)
    }

    fn advance(&mut self, left: i64, right: i64) {
        ProcessJoin::advance(self, left, right);
    }

    fn finish(&mut self) {
        ProcessJoin::finish(self);
    }

    fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        ProcessJoin::work(self, budget, out)
    }

    fn failure(&self) -> Option<JoinError> {
        ProcessJoin::failure(self)
    }

    fn output_watermark(&self) -> i64 {
        ProcessJoin::output_watermark(self)
    }

    fn counters(&self) -> &Counters {
        ProcessJoin::counters(self)
    }

    fn state_bytes(&self) -> u64 {
        ProcessJoin::state_bytes(self)
    }
}
