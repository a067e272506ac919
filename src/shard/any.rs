//! Shards that run interval joins, whichever operator a spec calls for, or a caller's own.

use super::Operator;
use crate::error::JoinError;
use crate::event::EventBatch;
use crate::join::{AnyJoin, Counters, Emit, IntervalJoin, Process, ProcessJoin};

impl Operator for IntervalJoin {
    #[inline]
    fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        IntervalJoin::on_batch(self, batch, out)
    }

    fn advance(&mut self, left: i64, right: i64) {
        IntervalJoin::advance(self, left, right);
    }

    fn finish(&mut self) {
        IntervalJoin::finish(self);
    }

    fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        IntervalJoin::work(self, budget, out)
    }

    fn failure(&self) -> Option<JoinError> {
        IntervalJoin::failure(self)
    }

    fn output_watermark(&self) -> i64 {
        IntervalJoin::output_watermark(self)
    }

    #[inline]
    fn counters(&self) -> &Counters {
        IntervalJoin::counters(self)
    }

    fn state_bytes(&self) -> u64 {
        IntervalJoin::state_bytes(self)
    }

    fn splits_keys(&self) -> bool {
        self.spec().spread_sides().is_ok()
    }

    fn pooled_bytes(&self) -> u64 {
        IntervalJoin::pooled_bytes(self)
    }

    fn reserved_bytes(&self) -> u64 {
        IntervalJoin::reserved_bytes(self)
    }

    fn trim(&mut self, keep_bytes: u64) {
        IntervalJoin::trim(self, keep_bytes);
    }

    #[inline]
    fn tick(&mut self, now_ns: u64) -> bool {
        IntervalJoin::tick(self, now_ns)
    }

    fn next_tick_ns(&self) -> Option<u64> {
        IntervalJoin::next_tick_ns(self)
    }

    fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        IntervalJoin::make_room(self, bytes_max, rows_max)
    }

    fn rows_in_memory(&self) -> u64 {
        IntervalJoin::rows_in_memory(self)
    }
}

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

    fn failure(&self) -> Option<JoinError> {
        AnyJoin::failure(self)
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

    fn reserved_bytes(&self) -> u64 {
        AnyJoin::reserved_bytes(self)
    }

    fn trim(&mut self, keep_bytes: u64) {
        AnyJoin::trim(self, keep_bytes);
    }

    #[inline]
    fn tick(&mut self, now_ns: u64) -> bool {
        AnyJoin::tick(self, now_ns)
    }

    fn next_tick_ns(&self) -> Option<u64> {
        AnyJoin::next_tick_ns(self)
    }

    fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        AnyJoin::make_room(self, bytes_max, rows_max)
    }

    fn rows_in_memory(&self) -> u64 {
        AnyJoin::rows_in_memory(self)
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
