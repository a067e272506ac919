//! What the memory system charges for the least that any join must do.
//!
//! For each event: one random cache line of a table as large as the join's index, read and
//! written, and 32 bytes written in sequence. No probing, no matching, no eviction. The table is
//! prefetched a batch ahead and lies in huge pages where the system grants them, so this is what
//! a join could reach, not what a naive one would.

use std::hint::black_box;

use crate::event::{KeyHasher, KeyKind};
use crate::workload::{CpuClock, Events};

/// One cache line of the table.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Bytes of one cache line.
const LINE_BYTES: usize = size_of::<Line>();

/// The output is this large and written over and over: a share of the second-level cache.
const OUTPUT_BYTES: usize = 2 << 20;

/// What is written for each event.
type Record = [u64; 4];

/// The size of a huge page; a table starts at a multiple of it.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The kernel with its table; see the module's text.
pub struct Roofline {
    /// Longer than the table, so that an aligned part of it can be taken.
    memory: Vec<Line>,
    /// The table's first line in `memory`.
    first: usize,
    line_count: usize,
    output: Vec<Record>,
    hasher: KeyHasher,
}

impl Roofline {
    /// A kernel whose table has the size nearest to `index_bytes` that is a power of two. All its
    /// memory is touched.
    pub fn new(index_bytes: u64) -> Roofline {
        let line_count = nearest_power_of_two(index_bytes as usize / LINE_BYTES);
        let spare = HUGE_PAGE_BYTES / LINE_BYTES;
        let mut memory: Vec<Line> = Vec::with_capacity(line_count + spare);
        let first = memory.as_ptr().align_offset(HUGE_PAGE_BYTES).min(spare);
        advise_huge_pages(memory.as_ptr().wrapping_add(first), line_count);
        memory.resize(line_count + spare, Line([0; 8]));
        let output = vec![[0; 4]; OUTPUT_BYTES / size_of::<Record>()];
        Roofline { memory, first, line_count, output, hasher: KeyHasher::new(KeyKind::Int, 0) }
    }

    /// Bytes of the table.
    pub fn table_bytes(&self) -> u64 {
        (self.line_count * LINE_BYTES) as u64
    }

    /// Runs over all events, in the batches that a join would get them in. Returns CPU
    /// nanoseconds an event.
    pub fn run(&mut self, events: &Events, batch: usize) -> f64 {
        let mut values = vec![0; batch.max(1)];
        let mut written = 0;
        let start_ns = CpuClock::Thread.now_ns();
        for (side, range) in events.steps(batch) {
            let columns = events.side(side);
            let keys = &columns.keys[range.clone()];
            let times = &columns.ts[range.clone()];
            let ids = &columns.ids[range];
            written = self.step(&mut values, keys, times, ids, written);
        }
        let cpu_ns = CpuClock::Thread.now_ns() - start_ns;
        black_box((&self.memory, &self.output));
        cpu_ns as f64 / events.len().max(1) as f64
    }

    /// One batch; returns where the next one's output starts.
    #[inline(never)]
    fn step(
        &mut self,
        values: &mut [u64],
        keys: &[u64],
        times: &[i64],
        ids: &[u32],
        mut written: usize,
    ) -> usize {
        let table = &mut self.memory[self.first..self.first + self.line_count];
        let mask = table.len() - 1;
        for (value, &key) in values.iter_mut().zip(keys) {
            *value = self.hasher.int(key);
            prefetch(&table[*value as usize & mask]);
        }
        let output_mask = self.output.len() - 1;
        for ((&value, &ts), &id) in values.iter().zip(times).zip(ids) {
            let Line(line) = &mut table[value as usize & mask];
            let before = line[0];
            line[0] = before ^ value;
            line[1] = line[1].wrapping_add(ts as u64);
            line[2] = line[2].wrapping_add(1);
            self.output[written & output_mask] = [value, ts as u64, u64::from(id), before];
            written += 1;
        }
        written
    }
}

/// At least 1.
fn nearest_power_of_two(n: usize) -> usize {
    let above = n.max(1).next_power_of_two();
    let below = above / 2;
    if n > 0 && n - below < above - n { below } else { above }
}

/// Asks for huge pages. A refusal costs time and nothing else, so it is not looked at.
#[cfg(target_os = "linux")]
fn advise_huge_pages(start: *const Line, line_count: usize) {
    let bytes = line_count * LINE_BYTES;
    if bytes < HUGE_PAGE_BYTES {
        return;
    }
    // SAFETY: the range lies inside one live allocation of the caller's (its capacity), and this
    // advice changes how pages are backed, never what they hold.
    unsafe { libc::madvise(start.cast_mut().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_start: *const Line, _line_count: usize) {}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(line: &Line) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 has the instruction, and it reads nothing that a program could see.
    unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *line).cast()) };
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn prefetch(line: &Line) {
    // SAFETY: a hint to the cache; it reads nothing that a program could see and cannot fault.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{line}]",
            line = in(reg) line,
            options(nostack, preserves_flags, readonly)
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn prefetch(_line: &Line) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn tables_have_the_nearest_power_of_two() {
        let cases = [(0, 1), (1, 1), (5, 4), (6, 8), (7, 8), (16, 16), (23, 16), (24, 32)];
        for (lines, expected) in cases {
            assert_eq!(nearest_power_of_two(lines), expected, "{lines} lines");
        }
        assert_eq!(Roofline::new(4 << 20).table_bytes(), 4 << 20);
    }

    #[test]
    fn each_event_is_counted_in_its_line_and_written_once() {
        let workload = Workload::by_name("w2").unwrap();
        let events = Events::new(workload, 1, 1_000);
        let mut kernel = Roofline::new(1 << 16);
        assert!(kernel.run(&events, 256) > 0.0);
        assert_eq!(kernel.memory.iter().map(|line| line.0[2]).sum::<u64>(), 2_000);
        assert_eq!(kernel.output.iter().filter(|record| record[1] != 0).count(), 2_000);
    }
}
