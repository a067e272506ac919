//! The keys that are split, and in which phase each of them is.

use crate::event::Side;
use crate::exchange::hot::seen::{Member, Routed};
use crate::exchange::hot::{HotKeys, SplitPlan, SplitReport};
use crate::exchange::sync::Arc;
use crate::limits::HOT_KEYS_MAX;
use crate::time::Interval;

/// How far the splitting of a key has come; see the text of the folder's `mod.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) enum Phase {
    /// The other side is replicated.
    Replicating,
    /// Rows of the spread side that are later than this go anywhere.
    Spread {
        /// `T - lo`.
        beyond: i128,
    },
    /// The spread side goes home again.
    Gathering,
    /// Rows of the other side up to this time are still replicated.
    Draining {
        /// `T2 + hi`.
        until: i128,
    },
}

/// Where an event of a split key goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) enum Route {
    /// To the shard that owns its key.
    Home,
    /// To any shard.
    Anywhere,
    /// Home; it is of the side that is replicated, but this row need not be. It is judged like
    /// those that are, so that rows of one key and source stay in one lane's order.
    HomeJudged,
    /// Home, and a copy to every other shard.
    Everywhere,
}

/// A split key, or several: those whose value has these bits under the mask. A key is in one entry
/// at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) struct Entry {
    key: u64,
    mask: u64,
    spread: Side,
    phase: Phase,
    /// The version that began the phase.
    since: u64,
    /// At a larger watermark nothing is in state, or can come to it, that could meet a spread row,
    /// and no copy is: the other side may be spread next time. Unknown while it is the largest.
    over: i128,
}

impl Entry {
    #[inline]
    pub(in crate::exchange) fn holds(&self, value: u64) -> bool {
        value & self.mask == self.key
    }

    /// The bits by which [`bloom_bit`] finds its keys.
    pub(in crate::exchange) fn bloom(&self) -> u64 {
        if self.mask == u64::MAX { bloom_bit(self.key) } else { u64::MAX }
    }

    #[inline]
    pub(in crate::exchange) fn route(&self, side: Side, ts: i64) -> Route {
        match (side == self.spread, self.phase) {
            (true, Phase::Spread { beyond }) if i128::from(ts) > beyond => Route::Anywhere,
            (true, _) => Route::Home,
            (false, Phase::Draining { until }) if i128::from(ts) > until => Route::HomeJudged,
            (false, _) => Route::Everywhere,
        }
    }
}

/// The bit of a word that stands for a key. Neither the bits that choose its shard nor those that
/// choose its place in an index.
#[inline]
pub(in crate::exchange) fn bloom_bit(value: u64) -> u64 {
    1 << (value >> 26 & 63)
}

/// The table, its version, and all who read it.
#[derive(Debug)]
pub(super) struct Table {
    version: u64,
    entries: Vec<Entry>,
    members: Vec<Arc<Member>>,
    /// What producers routed that have gone.
    gone: Routed,
    spreads: [bool; 2],
    interval: Interval,
    allowed: i64,
    split: u64,
    unsplit: u64,
    /// The state of the lot that forced turns are drawn by.
    lot: u64,
}

/// The bits of a key that tell the groups apart which are split by force.
const FORCED_MASK: u64 = 0b11;

impl Table {
    pub(super) fn new(plan: &SplitPlan) -> Table {
        let mut table = Table {
            version: 1,
            entries: Vec::new(),
            members: Vec::new(),
            gone: Routed::NONE,
            spreads: plan.spreads,
            interval: plan.interval,
            allowed: plan.allowed,
            split: 0,
            unsplit: 0,
            lot: plan.seed,
        };
        if plan.hot_keys == HotKeys::Forced {
            // Two groups of keys from the first event on: nothing was routed before. The others
            // begin as they are.
            for key in 0..2 {
                let side = table.forced_side();
                table.split(key, FORCED_MASK, side);
                table.advance(i64::MIN);
            }
        }
        table
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The keys that are to stay split.
    pub(super) fn split_keys(&self) -> Vec<(u64, bool)> {
        let is_wanted =
            |entry: &Entry| matches!(entry.phase, Phase::Replicating | Phase::Spread { .. });
        self.entries.iter().map(|entry| (entry.key, is_wanted(entry))).collect()
    }

    pub(super) fn report(&self) -> SplitReport {
        let now = self.entries.iter().map(|entry| entry.key).collect();
        SplitReport { split: self.split, unsplit: self.unsplit, now }
    }

    pub(super) fn join(&mut self) -> Arc<Member> {
        let member = Arc::new(Member::new());
        self.members.push(Arc::clone(&member));
        member
    }

    pub(super) fn part(&mut self, member: &Arc<Member>) {
        self.gone = self.gone.max(member.routed());
        self.members.retain(|other| !Arc::ptr_eq(other, member));
    }

    /// Whether some key is between two phases that only have to be known.
    pub(super) fn is_moving(&self) -> bool {
        self.entries.iter().any(|entry| !matches!(entry.phase, Phase::Spread { .. }))
    }

    /// Begins to split a key, unless it is in the table or that is full.
    pub(super) fn split(&mut self, key: u64, mask: u64, spread: Side) {
        if self.entries.len() < HOT_KEYS_MAX && !self.entries.iter().any(|entry| entry.holds(key)) {
            self.version += 1;
            let (phase, since) = (Phase::Replicating, self.version);
            self.entries.push(Entry { key, mask, spread, phase, since, over: i128::MAX });
        }
    }

    /// Begins to put a key together again, if it is spread.
    pub(super) fn unsplit(&mut self, key: u64) {
        let spread = |entry: &&mut Entry| matches!(entry.phase, Phase::Spread { .. });
        if let Some(entry) = self.entries.iter_mut().filter(spread).find(|entry| entry.holds(key)) {
            self.version += 1;
            (entry.phase, entry.since) = (Phase::Gathering, self.version);
        }
    }

    /// Moves on what all members have seen, and forgets what is over when all shards have freed
    /// their rows up to `freed_to`.
    pub(super) fn advance(&mut self, freed_to: i64) {
        let version = self.version + 1;
        let mut has_changed = false;
        for at in 0..self.entries.len() {
            let mut entry = self.entries[at];
            let seen = self.members.iter().all(|member| member.has_seen(entry.since));
            let next = match entry.phase {
                Phase::Replicating if seen => {
                    self.split += 1;
                    Phase::Spread { beyond: self.beyond(entry.spread) }
                }
                Phase::Gathering if seen => {
                    self.unsplit += 1;
                    Phase::Draining { until: self.until(entry.spread) }
                }
                Phase::Draining { until } if seen && entry.over == i128::MAX => {
                    self.entries[at].over = self.over(entry.spread, until);
                    continue;
                }
                _ => continue,
            };
            (entry.phase, entry.since, has_changed) = (next, version, true);
            self.entries[at] = entry;
        }
        let count = self.entries.len();
        self.entries.retain(|entry| {
            !matches!(entry.phase, Phase::Draining { .. }) || i128::from(freed_to) <= entry.over
        });
        if has_changed || self.entries.len() < count {
            self.version = version;
        }
    }

    /// What all members together have routed, as far as it must be known.
    fn routed(&self) -> Routed {
        self.members.iter().fold(self.gone, |all, member| all.max(member.routed()))
    }

    /// `T - lo`: of the spread side, what is later meets only rows after `T`.
    fn beyond(&self, spread: Side) -> i128 {
        match self.routed().all[spread.other().index()] {
            i64::MIN => i128::MIN,
            routed => i128::from(routed) - i128::from(self.interval.seen_from(spread).lo()),
        }
    }

    /// `T2 + hi`: what is later meets no row that was spread.
    fn until(&self, spread: Side) -> i128 {
        match self.routed().spread[spread.index()] {
            i64::MIN => i128::MIN,
            last => i128::from(last) + i128::from(self.interval.seen_from(spread).hi()),
        }
    }

    /// The watermark up to which copies, spread rows or what meets them may be in state, once no
    /// more is copied than what may meet a row that was spread.
    fn over(&self, spread: Side, until: i128) -> i128 {
        let routed = self.routed();
        let last_copied = until.max(i128::from(routed.all[spread.other().index()]));
        // Rows of the other side wait for the spread side as far as `-lo`.
        let ahead = i128::from(self.interval.seen_from(spread).lo()).min(0);
        let last = (last_copied - ahead).max(i128::from(routed.spread[spread.index()]));
        last + i128::from(self.allowed)
    }

    /// Splits groups of keys and puts them together again, by lot.
    pub(super) fn shuffle(&mut self) {
        let drawn = self.draw();
        let key = drawn & FORCED_MASK;
        match self.entries.iter().any(|entry| entry.holds(key)) {
            false if drawn >> 8 & 3 == 0 => {
                let side = self.forced_side();
                self.split(key, FORCED_MASK, side);
            }
            true if drawn >> 8 & 15 == 0 => self.unsplit(key),
            _ => {}
        }
    }

    fn forced_side(&mut self) -> Side {
        let drawn = self.draw();
        Side::BOTH.into_iter().rev().fold(Side::Left, |chosen, side| {
            let is_wanted = drawn >> side.index() & 1 == 0 || !self.spreads[chosen.index()];
            if self.spreads[side.index()] && is_wanted { side } else { chosen }
        })
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.lot = self.lot.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.lot;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
