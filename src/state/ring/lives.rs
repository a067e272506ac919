//! What is known of a bucket's rows beyond their bytes: how many there are, and which are dead.

use super::{Bucket, Ring};
use crate::state::arena::Arena;
use crate::state::run::{Run, run_bytes};

/// How many of a bucket's rows have outlived their time, where they have one.
#[derive(Default)]
pub(super) struct Lives {
    /// Live rows of each epoch, by its number.
    epochs: Vec<(u64, u64)>,
    /// Rows in `epochs`, and dead ones.
    noted: u64,
    dead: u64,
    /// Dead rows that were counted as such.
    pub(super) counted: u64,
}

impl Lives {
    pub(super) fn absorb(&mut self, other: Lives) {
        for (number, rows) in other.epochs {
            match self.epochs.binary_search_by_key(&number, |epoch| epoch.0) {
                Ok(place) => self.epochs[place].1 += rows,
                Err(place) => self.epochs.insert(place, (number, rows)),
            }
        }
        self.noted += other.noted;
        self.dead += other.dead;
        self.counted += other.counted;
    }
}

impl Ring {
    /// Notes that the rows which came since the last epoch are of epoch `number`.
    pub(crate) fn note_epoch(&mut self, number: u64, arena: &Arena) {
        for bucket in &mut self.buckets {
            let rows = bucket.rows(arena);
            let lives = &mut bucket.lives;
            if rows > lives.noted {
                lives.epochs.push((number, rows - lives.noted));
                lives.noted = rows;
            }
        }
    }

    /// The rows of all epochs up to `number` are dead, of which `died` tells those (by their tags)
    /// that were not dead before. Returns how many they are, without rows with times under `floor`.
    pub(crate) fn age_out(&mut self, number: u64, floor: i64, died: impl Fn(u32) -> bool) -> u64 {
        // Rows under the floor may stand in buckets that have others, too.
        let mixed = (self.number_of(floor), self.number_of(floor.saturating_add(self.displaced)));
        let mut sum = 0;
        for bucket in &mut self.buckets {
            let lives = &mut bucket.lives;
            let of_dead = lives.epochs.iter().take_while(|epoch| epoch.0 <= number);
            let (epochs, rows) = of_dead.fold((0, 0), |sum, epoch| (sum.0 + 1, sum.1 + epoch.1));
            if epochs == 0 {
                continue;
            }
            lives.epochs.drain(..epochs);
            lives.dead += rows;
            let counted = if bucket.number > mixed.1 {
                rows
            } else {
                bucket.count_rows(|ts, tag| ts >= floor && died(tag))
            };
            bucket.lives.counted += counted;
            sum += counted;
        }
        sum
    }

    /// Retires the oldest buckets, as long as they hold dead rows only.
    pub(crate) fn retire_dead(&mut self, arena: &mut Arena) -> u64 {
        let is_dead = |bucket: &Bucket| bucket.rows(arena) == bucket.lives.dead;
        let count = self.buckets.iter().take_while(|bucket| is_dead(bucket)).count();
        if count == 0 { 0 } else { self.retire_first(count, arena) }
    }
}

impl Bucket {
    /// Calls `each` with every run that has not moved.
    pub(super) fn each_run(&self, mut each: impl FnMut(Run)) {
        for (number, chunk) in self.chunks.iter().enumerate() {
            let (mut offset, used) = (0, self.used_of(number));
            while offset < used {
                // SAFETY: runs lie side by side from the start of a chunk to the end of what is
                // used, and `offset` only moves from one to the next.
                let run = unsafe { Run::at(chunk.start().add(offset)) };
                offset += run_bytes(run.capacity_log2());
                if !run.is_moved() {
                    each(run);
                }
            }
        }
    }

    pub(super) fn rows(&self, arena: &Arena) -> u64 {
        self.chunks.iter().map(|chunk| arena.rows_of(chunk)).sum()
    }

    /// How many rows are as `is_wanted` says of their times and tags.
    fn count_rows(&self, is_wanted: impl Fn(i64, u32) -> bool) -> u64 {
        let mut count = 0;
        self.each_run(|run| {
            let rows = (0..run.len()).map(|row| run.stored(row));
            count += rows.filter(|row| is_wanted(row.ts(), row.tag())).count() as u64;
        });
        count
    }
}
