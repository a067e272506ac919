//! Watermarks: promises of sources, merged into the clock of a side.

/// The watermark before any promise was made.
pub const WATERMARK_START: i64 = i64::MIN;
/// The watermark of a source that has ended.
pub const WATERMARK_END: i64 = i64::MAX;

/// What one source last said about its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// The source promises no more events with a smaller time.
    Active(i64),
    /// The source is silent and holds nobody back.
    Idle,
    /// The source has ended.
    Finished,
}

/// The clock of one side: the minimum over its sources that are not idle. It never goes back.
///
/// ```
/// use intervale::time::SideClock;
/// let mut clock = SideClock::new(2);
/// clock.advance(0, 100);
/// assert_eq!(clock.watermark(), i64::MIN, "the other source has promised nothing");
/// clock.advance(1, 50);
/// assert_eq!(clock.watermark(), 50);
/// clock.idle(1);
/// assert_eq!(clock.watermark(), 100);
/// clock.advance(1, 60);
/// assert_eq!(clock.watermark(), 100, "a source that wakes up cannot pull the side back");
/// ```
#[derive(Clone, Debug)]
pub struct SideClock {
    sources: Vec<SourceClock>,
    merged: i64,
    regressed: u64,
}

#[derive(Clone, Copy, Debug)]
struct SourceClock {
    state: SourceState,
    /// The largest promise so far; kept while idle, so that a regression is recognised.
    watermark: i64,
}

impl SideClock {
    /// A clock over `source_count` sources, none of which has promised anything.
    pub fn new(source_count: usize) -> SideClock {
        let fresh =
            SourceClock { state: SourceState::Active(WATERMARK_START), watermark: WATERMARK_START };
        SideClock { sources: vec![fresh; source_count], merged: WATERMARK_START, regressed: 0 }
    }

    /// Adds a source and returns its index. It cannot pull the side back.
    pub fn add_source(&mut self) -> usize {
        self.sources.push(SourceClock {
            state: SourceState::Active(WATERMARK_START),
            watermark: WATERMARK_START,
        });
        self.sources.len() - 1
    }

    /// How many sources there are.
    pub fn source_count(&self) -> usize {
        self.sources.len()
    }

    /// The side's watermark.
    #[inline]
    pub fn watermark(&self) -> i64 {
        self.merged
    }

    /// The largest promise of one source so far.
    pub fn source_watermark(&self, source: usize) -> i64 {
        self.sources[source].watermark
    }

    /// How many promises were smaller than an earlier one of the same source, and ignored.
    pub fn regressed(&self) -> u64 {
        self.regressed
    }

    /// Whether every source has ended.
    pub fn is_finished(&self) -> bool {
        self.sources.iter().all(|source| source.state == SourceState::Finished)
    }

    /// A source promises `watermark`; it is active again. Returns the side's watermark.
    pub fn advance(&mut self, source: usize, watermark: i64) -> i64 {
        let clock = &mut self.sources[source];
        if watermark < clock.watermark {
            self.regressed += 1;
        } else {
            clock.watermark = watermark;
        }
        clock.state = SourceState::Active(clock.watermark);
        self.merge()
    }

    /// A source is idle until it promises again. Returns the side's watermark.
    pub fn idle(&mut self, source: usize) -> i64 {
        self.sources[source].state = SourceState::Idle;
        self.merge()
    }

    /// A source has ended. Returns the side's watermark.
    pub fn finish(&mut self, source: usize) -> i64 {
        self.sources[source].state = SourceState::Finished;
        self.sources[source].watermark = WATERMARK_END;
        self.merge()
    }

    fn merge(&mut self) -> i64 {
        if let Some(merged) = merge_sources(self.sources.iter().map(|source| source.state)) {
            self.merged = self.merged.max(merged);
        }
        self.merged
    }
}

/// The minimum over sources that are not idle; `None` when the side's watermark stays where it is:
/// all sources are idle, or those that are not have ended (an idle one may still come back).
pub fn merge_sources(states: impl Iterator<Item = SourceState>) -> Option<i64> {
    let (mut any_idle, mut minimum) = (false, None);
    for state in states {
        let watermark = match state {
            SourceState::Active(watermark) => watermark,
            SourceState::Finished => WATERMARK_END,
            SourceState::Idle => {
                any_idle = true;
                continue;
            }
        };
        minimum = Some(minimum.map_or(watermark, |least: i64| least.min(watermark)));
    }
    minimum.filter(|&least| !(any_idle && least == WATERMARK_END))
}

/// Makes a source's watermark out of the times it has seen: the largest less `disorder` ticks.
///
/// Flink subtracts one tick more, and so accepts one tick that its own definition calls late.
/// One event whose time lies far ahead (a clock that was wrong, a year mistyped) would make all
/// that follow late; a [limit](Self::limit_jumps) on how far one event moves the watermark keeps
/// it.
#[derive(Clone, Copy, Debug)]
pub struct BoundedDisorder {
    disorder: i64,
    max_ts: i64,
    max_jump: i64,
    jumps: u64,
}

impl BoundedDisorder {
    /// A generator that trails the largest time by `disorder` ticks (at least 0).
    pub fn new(disorder: i64) -> BoundedDisorder {
        BoundedDisorder {
            disorder: disorder.max(0),
            max_ts: i64::MIN,
            max_jump: i64::MAX,
            jumps: 0,
        }
    }

    /// From here on an event moves the watermark by `ticks` at the most (at least 0), except the
    /// first of all. So it takes many events to cross a gap in time, or one that lies far ahead.
    pub fn limit_jumps(mut self, ticks: i64) -> BoundedDisorder {
        self.max_jump = ticks.max(0);
        self
    }

    /// Whether jumps are limited, so that the order of events counts.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.max_jump != i64::MAX
    }

    /// Events so far that were further ahead than the limit.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Takes an event's time into account.
    #[inline]
    pub fn observe(&mut self, ts: i64) {
        if self.is_limited() && self.max_ts != i64::MIN {
            let reach = self.max_ts.saturating_add(self.max_jump);
            self.jumps += u64::from(ts > reach);
            self.max_ts = self.max_ts.max(ts.min(reach));
        } else {
            self.max_ts = self.max_ts.max(ts);
        }
    }

    /// The largest time seen, as far as the limit lets it go; `i64::MIN` before the first.
    #[inline]
    pub fn max_ts(&self) -> i64 {
        self.max_ts
    }

    /// The watermark after the events observed so far.
    #[inline]
    pub fn watermark(&self) -> i64 {
        self.max_ts.saturating_sub(self.disorder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_beside_idle_does_not_end_the_side() {
        let mut clock = SideClock::new(2);
        clock.advance(0, 10);
        clock.advance(1, 20);
        clock.idle(1);
        assert_eq!(clock.finish(0), 10);
        assert_eq!(clock.advance(1, 30), 30);
        assert_eq!(clock.finish(1), i64::MAX);
        assert!(clock.is_finished());
    }

    #[test]
    fn all_idle_stays_and_regression_is_counted() {
        let mut clock = SideClock::new(1);
        clock.advance(0, 100);
        assert_eq!(clock.idle(0), 100);
        assert_eq!(clock.advance(0, 90), 100);
        assert_eq!(clock.regressed(), 1);
    }

    #[test]
    fn disorder_trails_the_maximum_and_saturates() {
        let mut generator = BoundedDisorder::new(5);
        assert_eq!(generator.watermark(), i64::MIN);
        generator.observe(100);
        generator.observe(90);
        assert_eq!(generator.watermark(), 95);
        let mut limited = BoundedDisorder::new(5).limit_jumps(10);
        for (ts, watermark, jumps) in
            [(100, 95, 0), (110, 105, 0), (121, 115, 1), (i64::MAX, 125, 2), (90, 125, 2)]
        {
            limited.observe(ts);
            assert_eq!((limited.watermark(), limited.jumps()), (watermark, jumps), "{ts}");
        }
        let mut early = BoundedDisorder::new(i64::MAX);
        early.observe(i64::MIN + 1);
        assert_eq!(early.watermark(), i64::MIN);
    }
}
