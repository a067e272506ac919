//! Which keys are too much for one core: by samples of all producers, a window at a time.

use crate::event::Side;
use crate::exchange::hot::{SplitPlan, side_to_spread};
use crate::limits::HOT_WINDOW_SAMPLES;

/// The key of an event that was sampled.
pub(in crate::exchange) type Sample = (u64, Side);

/// What is known beside the samples.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::exchange) struct Surroundings {
    /// Events that all shards have joined so far, and pairs that they found.
    pub(in crate::exchange) events: u64,
    pub(in crate::exchange) pairs: u64,
    /// Bytes and rows of state, each with its bound.
    pub(in crate::exchange) state: [(u64, Option<u64>); 2],
}

/// Keys to split, each with the side to spread, and keys to put together again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) hot: Vec<(u64, Side)>,
    pub(super) cold: Vec<u64>,
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.hot.is_empty() && self.cold.is_empty()
    }
}

/// The samples since the last decision.
#[derive(Debug)]
pub(super) struct Window {
    samples: Vec<Sample>,
    /// Work space.
    groups: Vec<Group>,
    /// Keys that are split and were found cold, with the number of windows in a row.
    cooling: Vec<(u64, u8)>,
    /// Events and pairs of all shards at the last decision.
    before: (u64, u64),
}

/// What a pair costs of what an event does.
const PAIR_WORK: f64 = 1.0 / 16.0;

/// Work of one key that is too much: this part of what a core has on the average, over what it
/// would have without the key. So small that what is left is even enough; splitting costs little.
const IMBALANCE: f64 = 0.1;

/// A key cools when its work is under this part of what makes it hot, in so many windows in a row.
const COOL: f64 = 0.5;
const COOL_WINDOWS: u8 = 3;

/// A key of fewer samples in a window is not judged: that could be chance.
const SAMPLES_MIN: usize = 12;

/// Work saved by splitting must be so much of the work that copies make.
const GAIN_MIN: f64 = 0.75;

/// One key's samples in a window, by [`Side::index`].
#[derive(Clone, Copy, Debug)]
struct Group {
    key: u64,
    rows: [usize; 2],
}

impl Window {
    pub(super) fn new() -> Window {
        let samples = Vec::with_capacity(2 * HOT_WINDOW_SAMPLES);
        let groups = Vec::with_capacity(2 * HOT_WINDOW_SAMPLES);
        Window { samples, groups, cooling: Vec::new(), before: (0, 0) }
    }

    /// Takes samples in; returns whether the window is full.
    pub(super) fn take(&mut self, samples: &mut Vec<Sample>) -> bool {
        self.samples.append(samples);
        self.samples.len() >= HOT_WINDOW_SAMPLES
    }

    /// Looks the window through and empties it. `split` are the keys that are split, and whether
    /// they are to stay so.
    pub(super) fn decide(
        &mut self,
        plan: &SplitPlan,
        surroundings: &Surroundings,
        split: &[(u64, bool)],
    ) -> Found {
        let groups = self.take_groups();
        let work = Work::new(&groups, self.pairs_per_event(surroundings));
        self.samples.clear();
        let hot_from = IMBALANCE / (plan.shard_count - 1) as f64;
        let mut found = Found::default();
        for group in work.groups {
            let is_split = split.iter().any(|&(key, _)| key == group.key);
            let spread = side_to_spread(plan.spreads, group.rows);
            let is_hot = group.rows[0] + group.rows[1] >= SAMPLES_MIN
                && work.share(group) >= hot_from
                && work.gain(group, spread, plan.shard_count) >= GAIN_MIN;
            if is_hot && !is_split && work.fits(group, spread, plan.shard_count, surroundings) {
                found.hot.push((group.key, spread));
            }
        }
        found.hot.sort_by_key(|&(key, _)| std::cmp::Reverse(work.rows_of(key)));
        for &(key, _) in split.iter().filter(|&&(_, stays)| stays) {
            let group = work.groups.iter().find(|group| group.key == key);
            let share = group.map_or(0.0, |group| work.share(group));
            if self.is_cold(key, share < COOL * hot_from) {
                found.cold.push(key);
            }
        }
        self.cooling.retain(|&(key, _)| split.iter().any(|&(split, _)| split == key));
        self.groups = groups;
        found
    }

    /// The samples by key.
    fn take_groups(&mut self) -> Vec<Group> {
        self.samples.sort_unstable();
        let same_key = |a: &Sample, b: &Sample| a.0 == b.0;
        let mut groups = std::mem::take(&mut self.groups);
        groups.clear();
        groups.extend(self.samples.chunk_by(same_key).map(|samples| {
            let left = samples.iter().filter(|(_, side)| *side == Side::Left).count();
            Group { key: samples[0].0, rows: [left, samples.len() - left] }
        }));
        groups
    }

    fn pairs_per_event(&mut self, surroundings: &Surroundings) -> f64 {
        let Surroundings { events, pairs, .. } = *surroundings;
        let before = std::mem::replace(&mut self.before, (events, pairs));
        let events = events.saturating_sub(before.0).max(1);
        pairs.saturating_sub(before.1) as f64 / events as f64
    }

    /// Whether a key has been cold for long enough.
    fn is_cold(&mut self, key: u64, is_cold_now: bool) -> bool {
        let at = self.cooling.iter().position(|&(cooling, _)| cooling == key);
        match (is_cold_now, at) {
            (true, Some(at)) => {
                self.cooling[at].1 += 1;
                self.cooling[at].1 >= COOL_WINDOWS
            }
            (true, None) => {
                self.cooling.push((key, 1));
                COOL_WINDOWS <= 1
            }
            (false, Some(at)) => {
                self.cooling.swap_remove(at);
                false
            }
            (false, None) => false,
        }
    }
}

/// What the keys of a window cost.
struct Work<'a> {
    groups: &'a [Group],
    events: f64,
    /// Of all pairs, in units of an event's.
    pairs: f64,
    /// Products of the rows of both sides, over all keys: pairs are shared out by them.
    products: f64,
}

impl Work<'_> {
    fn new(groups: &[Group], pairs_per_event: f64) -> Work<'_> {
        let events: usize = groups.iter().map(|group| group.rows[0] + group.rows[1]).sum();
        let products = groups.iter().map(product).sum::<f64>().max(1.0);
        let pairs = pairs_per_event * events as f64 * PAIR_WORK;
        Work { groups, events: events as f64, pairs, products }
    }

    fn pairs_of(&self, group: &Group) -> f64 {
        self.pairs * product(group) / self.products
    }

    fn rows_of(&self, key: u64) -> usize {
        let group = self.groups.iter().find(|group| group.key == key);
        group.map_or(0, |group| group.rows[0] + group.rows[1])
    }

    /// The part of all work that is this key's.
    fn share(&self, group: &Group) -> f64 {
        let events = (group.rows[0] + group.rows[1]) as f64;
        (events + self.pairs_of(group)) / (self.events + self.pairs).max(1.0)
    }

    /// What its home has less to do for each row that another shard gets a copy of.
    fn gain(&self, group: &Group, spread: Side, shard_count: usize) -> f64 {
        let (spread, copied) = (group.rows[spread.index()], group.rows[spread.other().index()]);
        let saved = (spread as f64 + self.pairs_of(group)) * (1.0 - 1.0 / shard_count as f64);
        saved / (copied as f64).max(1.0)
    }

    /// Whether the copies will leave state well within its bound.
    fn fits(&self, group: &Group, spread: Side, shard_count: usize, known: &Surroundings) -> bool {
        let copies = (group.rows[spread.other().index()] * (shard_count - 1)) as f64;
        let growth = 1.0 + copies / self.events.max(1.0);
        known
            .state
            .iter()
            .all(|&(now, most)| most.is_none_or(|most| now as f64 * growth < most as f64 / 2.0))
    }
}

fn product(group: &Group) -> f64 {
    (group.rows[0] * group.rows[1]) as f64
}
