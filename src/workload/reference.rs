//! What a workload's join must give: the table that independent programs agree on.

use std::fmt;

use crate::event::Side;
use crate::workload::random::pair_checksum;
use crate::workload::{SEED_MEASURED, Workload};

/// What is compared between runs, engines and languages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many pairs there are.
    pub pairs: u64,
    /// The wrapping sum of [`pair_checksum`] over them.
    pub checksum: u64,
}

impl Outcome {
    /// Counts a pair in.
    #[inline]
    pub fn add(&mut self, left_id: u64, right_id: u64) {
        self.pairs += 1;
        self.checksum = self.checksum.wrapping_add(pair_checksum(left_id, right_id));
    }

    /// Counts the pairs of one event of `side` with several partners in.
    #[inline]
    pub fn add_all(&mut self, side: Side, id: u64, partner_ids: impl Iterator<Item = u64>) {
        let mut sum = *self;
        match side {
            Side::Left => partner_ids.for_each(|partner| sum.add(id, partner)),
            Side::Right => partner_ids.for_each(|partner| sum.add(partner, id)),
        }
        *self = sum;
    }
}

impl std::ops::AddAssign for Outcome {
    /// The pairs of another shard.
    fn add_assign(&mut self, other: Outcome) {
        self.pairs += other.pairs;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pairs with checksum {:016x}", self.pairs, self.checksum)
    }
}

/// Name, events a side, pairs, checksum; seed 42.
const TRUTH: [(&str, u32, u64, u64); 10] = [
    ("w1a", 1_000_000, 1_000_000, 0xe5ad_9cd8_5dee_ae92),
    ("w1b", 1_000_000, 1_000_000, 0xe5ad_9cd8_5dee_ae92),
    ("w1a", 10_000_000, 10_000_000, 0xe600_7e92_db34_bd2b),
    ("w1b", 10_000_000, 10_000_000, 0xe600_7e92_db34_bd2b),
    ("w2", 1_000_000, 3_998_145, 0xd085_8e07_7c6d_f858),
    ("w2", 10_000_000, 40_004_036, 0xb195_a27b_d083_13c9),
    ("w3a", 1_000_000, 1_990_779, 0x15ff_6743_4d33_5a9f),
    ("w3a", 5_000_000, 9_947_830, 0xedd2_f735_946b_6703),
    ("w3b", 2_000_000, 315_784_411, 0x7c79_6d43_1c69_2382),
    ("w4", 5_000_000, 8_353_960, 0x68c8_8e01_1c3e_06b8),
];

/// The outcome that Flink and independent programs found for a workload, where they were run: its
/// own rate, seed 42, one of a few sizes.
pub fn truth(workload: &Workload, seed: u64, events_per_side: u32) -> Option<Outcome> {
    if seed != SEED_MEASURED || Workload::by_name(workload.name) != Some(*workload) {
        return None;
    }
    let known = TRUTH.iter().find(|&&(name, n, ..)| name == workload.name && n == events_per_side);
    known.map(|&(_, _, pairs, checksum)| Outcome { pairs, checksum })
}
