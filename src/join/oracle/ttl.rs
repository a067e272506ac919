//! The reference's time to live.

use std::mem;

use super::{Oracle, Output};
use crate::event::Side;

impl Oracle {
    /// Tells the time on the wall, in nanoseconds; returns what comes out of rows that have
    /// outlived the spec's time to live.
    pub fn tick(&mut self, now_ns: u64) -> Vec<Output> {
        let Some(ttl) = self.spec.ttl() else { return Vec::new() };
        let ttl_ns = ttl.as_nanos() as u64;
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) >= (ttl_ns / 8).max(1) {
            self.since_ns = Some(now_ns);
            for row in self.rows.iter_mut().flatten() {
                row.stored_ns.get_or_insert(now_ns);
            }
        }
        for side in Side::BOTH {
            let is_over = |stored_ns: Option<u64>| {
                stored_ns.is_some_and(|stored| stored.saturating_add(ttl_ns) <= now_ns)
            };
            let rows = mem::take(&mut self.rows[side.index()]);
            let (mut over, kept): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(|row| is_over(row.stored_ns));
            self.rows[side.index()] = kept;
            self.counters.sides[side.index()].timed_out += over.len() as u64;
            over.sort_by_key(|row| (row.ts, row.arrival));
            over.iter_mut().for_each(|row| self.emit_fate(side, row));
        }
        mem::take(&mut self.out)
    }
}
