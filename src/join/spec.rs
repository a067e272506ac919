//! What to join and how: validated once, immutable afterwards.

pub(super) mod check;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::SpecError;
use crate::event::{Event, KeyKind, Side};
use crate::join::{Asof, Condition, Window};
use crate::limits::Limits;
use crate::time::{Bound, Interval, LatePolicy, Lateness, WATERMARK_START};

/// Which rows come out of a join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs.
    #[default]
    Inner,
    /// Pairs, and each left row that is freed unmatched, padded.
    Left,
    /// Pairs, and each right row that is freed unmatched, padded.
    Right,
    /// Pairs, and each row of either side that is freed unmatched, padded.
    Full,
    /// Each left row once, at its first match.
    Semi,
    /// Each left row that is freed unmatched.
    Anti,
}

impl JoinKind {
    /// Whether matches come out as pairs.
    #[inline]
    pub const fn emits_pairs(self) -> bool {
        matches!(self, JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full)
    }

    /// Whether rows of `side` come out when they are freed unmatched.
    #[inline]
    pub const fn emits_unmatched(self, side: Side) -> bool {
        match self {
            JoinKind::Inner | JoinKind::Semi => false,
            JoinKind::Left | JoinKind::Anti => matches!(side, Side::Left),
            JoinKind::Right => matches!(side, Side::Right),
            JoinKind::Full => true,
        }
    }
}

/// Which matches of a left row count.
///
/// ```
/// # use intervale::event::{Event, Key, Side};
/// # use intervale::join::{Join, JoinSpec, MatchChoice};
/// # use intervale::time::Bound;
/// # let limits = intervale::limits::Limits::default();
/// let spec = JoinSpec::between(Bound::Closed(-9), Bound::Closed(9)).choice(MatchChoice::Nearest);
/// let mut join = Join::new(spec.build(&limits)?, limits)?;
/// let mut pairs = Vec::new();
/// let mut out = |left: Event<'_>, right: Event<'_>| pairs.push((left.ts, right.ts));
/// for (side, ts) in [(Side::Right, 5), (Side::Left, 10), (Side::Right, 12), (Side::Right, 18)] {
///     join.push(side, Key::Int(1), ts, b"row", &mut out)?;
/// }
/// join.finish(&mut out);
/// assert_eq!(pairs, [(10, 12)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchChoice {
    /// All of them, each as soon as its second event arrives.
    #[default]
    All,
    /// The one with the smallest right time, once it is final.
    First,
    /// The one with the largest right time, once it is final.
    Last,
    /// The one nearest in time, the earlier on a tie, once it is final.
    Nearest,
    /// The first, by the pair's time and then by arrival, whose two rows are in no other pair: a
    /// row of either side is in one pair at the most. Goes with every kind of join.
    OneToOne,
}

/// A validated, immutable description of an interval join. Build it with [`JoinSpec::between`].
///
/// ```
/// use intervale::join::{JoinKind, JoinSpec};
/// use intervale::limits::Limits;
/// use intervale::time::Bound;
///
/// let spec = JoinSpec::between(Bound::Closed(-300_000), Bound::Closed(300_000))
///     .kind(JoinKind::Left)
///     .build(&Limits::default())
///     .unwrap();
/// assert_eq!(spec.interval().hi(), 300_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinSpec {
    interval: Interval,
    kind: JoinKind,
    keys: KeyKind,
    lateness: Lateness,
    choice: MatchChoice,
    /// Rows at the same time do not match.
    apart: bool,
    windows: Option<Window>,
    condition: Option<Condition>,
    bucket_width: Option<i64>,
    chunk_bytes: Option<u64>,
    reserve_bytes: u64,
    ttl: Option<Duration>,
    spill_to: Option<PathBuf>,
}

/// Collects the parts of a [`JoinSpec`].
#[derive(Clone, Debug)]
pub struct JoinSpecBuilder {
    lo: Bound,
    hi: Bound,
    kind: JoinKind,
    keys: KeyKind,
    lateness: Lateness,
    choice: MatchChoice,
    asof: Option<Asof>,
    windows: Option<Window>,
    condition: Option<Condition>,
    bucket_width: Option<i64>,
    chunk_bytes: Option<u64>,
    reserve_bytes: u64,
    ttl: Option<Duration>,
    spill_to: Option<PathBuf>,
    allow_empty: bool,
}

impl JoinSpec {
    /// Starts a spec: pairs with `left.ts + lo <= right.ts <= left.ts + hi`, ends as given.
    pub fn between(lo: Bound, hi: Bound) -> JoinSpecBuilder {
        JoinSpecBuilder {
            lo,
            hi,
            kind: JoinKind::default(),
            keys: KeyKind::default(),
            lateness: Lateness::default(),
            choice: MatchChoice::default(),
            asof: None,
            windows: None,
            condition: None,
            bucket_width: None,
            chunk_bytes: None,
            reserve_bytes: 0,
            ttl: None,
            spill_to: None,
            allow_empty: false,
        }
    }

    /// Starts a spec of a window join: pairs are rows of one key in one window. It is a
    /// [`WindowJoin`](crate::join::WindowJoin)'s; its interval is only how far apart rows of a
    /// window of a single event can be.
    pub fn window(window: Window) -> JoinSpecBuilder {
        let reach = Bound::Closed(window.span().max(1) - 1);
        let back = Bound::Closed(1 - window.span().max(1));
        JoinSpecBuilder { windows: Some(window), ..JoinSpec::between(back, reach) }
    }

    /// Starts a spec of an as-of join: one right row for each left one. It is what an interval join
    /// with a choice is, so [`choice`](JoinSpecBuilder::choice) does not go with it.
    pub fn asof(asof: Asof) -> JoinSpecBuilder {
        let (lo, hi) = asof.bounds();
        let choice = asof.choice();
        JoinSpecBuilder { asof: Some(asof), choice, ..JoinSpec::between(lo, hi) }
    }

    /// The interval of `right.ts - left.ts`.
    #[inline]
    pub fn interval(&self) -> Interval {
        self.interval
    }

    /// Which rows come out.
    #[inline]
    pub fn kind(&self) -> JoinKind {
        self.kind
    }

    /// Which keys both sides carry.
    #[inline]
    pub fn keys(&self) -> KeyKind {
        self.keys
    }

    /// When events are late, and what happens to them.
    #[inline]
    pub fn lateness(&self) -> Lateness {
        self.lateness
    }

    /// The same join with another lateness; a negative allowance counts as none.
    #[must_use]
    pub fn with_lateness(mut self, lateness: Lateness) -> JoinSpec {
        self.lateness = Lateness { allowed: lateness.allowed.max(0), ..lateness };
        self
    }

    /// The same join with a condition on its pairs, in place of the one that it may have.
    #[must_use]
    pub fn with_condition(mut self, condition: Condition) -> JoinSpec {
        self.condition = Some(condition);
        self
    }

    /// Which matches of a left row count.
    #[inline]
    pub fn choice(&self) -> MatchChoice {
        self.choice
    }

    /// The windows of a window join.
    #[inline]
    pub fn windows(&self) -> Option<Window> {
        self.windows
    }

    /// What must hold of a pair beside key and time.
    #[inline]
    pub fn condition(&self) -> Option<&Condition> {
        self.condition.as_ref()
    }

    /// Whether the condition holds, if there is one.
    #[inline]
    pub(super) fn holds(&self, left: &Event<'_>, right: &Event<'_>) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.holds(left, right))
    }

    /// How wide state's time buckets are, in ticks, if that was chosen.
    #[inline]
    pub fn bucket_width(&self) -> Option<i64> {
        self.bucket_width
    }

    /// The bytes of the smallest chunk of state, if that was chosen.
    #[inline]
    pub fn chunk_bytes(&self) -> Option<u64> {
        self.chunk_bytes
    }

    /// Bytes of state that a join takes before its first row.
    #[inline]
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// How long rows live by the clock on the wall, if that is bounded.
    #[inline]
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// The folder of files under [`Overflow::Spill`](crate::limits::Overflow::Spill), if one was
    /// named.
    #[inline]
    pub fn spill_to(&self) -> Option<&Path> {
        self.spill_to.as_deref()
    }

    /// Whether a left and a right row of one key match by their times.
    #[inline]
    pub fn matches(&self, left_ts: i64, right_ts: i64) -> bool {
        self.interval.contains(left_ts, right_ts) && !(self.apart && left_ts == right_ts)
    }

    /// Whether rows at the very same time do not match: a strict [`Asof::nearest`].
    #[inline]
    pub fn is_apart(&self) -> bool {
        self.apart
    }

    /// Whether not all matches count. What comes out of a semi or anti join is the same whichever
    /// match of a left row does, so there is nothing to choose, unless right rows are used up.
    #[inline]
    pub fn chooses(&self) -> bool {
        match self.choice {
            MatchChoice::All => false,
            MatchChoice::OneToOne => true,
            _ => self.kind.emits_pairs(),
        }
    }

    /// The smallest time that a buffered row of `side` may have at `watermark`; every smaller one
    /// is freed. A row is kept while `watermark <= ts + end + allowed`; before the first promise
    /// every row is, and a row at `i64::MAX` always is.
    #[inline]
    pub fn retained_from(&self, side: Side, watermark: i64) -> i64 {
        let seen = self.interval.seen_from(side);
        if seen.has_no_last() || watermark == WATERMARK_START {
            return i64::MIN;
        }
        // In wide arithmetic, because the sums may leave i64.
        let reach = i128::from(seen.hi()) + i128::from(self.lateness.allowed);
        let from = i128::from(watermark) - reach;
        from.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// How far the output watermark trails the merged one, in ticks, so that padded rows are never
    /// late downstream: `max(hi, -lo, 0) + allowed`, saturating.
    pub fn output_hold_back(&self) -> i64 {
        let reach = self.interval.hi().max(self.interval.lo().saturating_neg()).max(0);
        reach.saturating_add(self.lateness.allowed)
    }

    /// The output watermark when both sides' watermarks are merged into `watermark`; where the
    /// interval has no end, rows of any age may come out at the end of input, so it never moves.
    pub fn output_watermark(&self, watermark: i64) -> i64 {
        if Side::BOTH.iter().any(|&side| self.interval.seen_from(side).has_no_last()) {
            return WATERMARK_START;
        }
        // In wide arithmetic: what is held back may be more than an i64 holds.
        let reach = self.interval.hi().max(self.interval.lo().saturating_neg()).max(0);
        let held_back = i128::from(reach) + i128::from(self.lateness.allowed);
        (i128::from(watermark) - held_back).max(i128::from(i64::MIN)) as i64
    }
}

impl JoinSpecBuilder {
    /// Which rows come out; [`JoinKind::Inner`] by default.
    pub fn kind(mut self, kind: JoinKind) -> Self {
        self.kind = kind;
        self
    }

    /// Which keys both sides carry; [`KeyKind::Int`] by default.
    pub fn keys(mut self, keys: KeyKind) -> Self {
        self.keys = keys;
        self
    }

    /// When events are late and what happens then; dropped at the merged watermark by default.
    pub fn lateness(mut self, lateness: Lateness) -> Self {
        self.lateness = lateness;
        self
    }

    /// Which matches of a left row count; all by default.
    pub fn choice(mut self, choice: MatchChoice) -> Self {
        self.choice = choice;
        self
    }

    /// What must hold of a pair beside key and time: see [`Condition`]. None by default; a second
    /// one takes the first one's place.
    pub fn condition(
        mut self,
        holds: impl Fn(&Event<'_>, &Event<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.condition = Some(Condition::new(holds));
        self
    }

    /// How wide state's time buckets are, in ticks from 1; the nearest power of two counts. By
    /// default state chooses it by the interval and by what it sees of the data. A row is freed
    /// with its bucket, up to a width later than it could be; a probe looks into every bucket that
    /// its interval touches. It never changes results. Where there would be too many buckets, or
    /// hardly a row in each, they are made wider all the same. Window joins have no such buckets.
    pub fn bucket_width(mut self, ticks: i64) -> Self {
        self.bucket_width = Some(ticks);
        self
    }

    /// The smallest piece of memory that a time bucket takes, in bytes from
    /// [`STATE_CHUNK_BYTES_MIN`](crate::limits::STATE_CHUNK_BYTES_MIN) (the default) to
    /// [`STATE_CHUNK_BYTES_MAX`](crate::limits::STATE_CHUNK_BYTES_MAX), rounded up to a power of
    /// two; with a bound on state at most one in
    /// [`STATE_CHUNKS_WITHIN_BOUND`](crate::limits::STATE_CHUNKS_WITHIN_BOUND) of it. Larger ones
    /// are fewer, and from 2 MiB on have huge pages; every bucket of either side has one at least,
    /// on each core. It never changes results. Window joins have no such chunks.
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Memory that each join (in an engine: each core's) takes and touches when it is made, in
    /// bytes; 0 by default. State that stays within it meets no page that the system has yet to
    /// find and clear, which takes 0.1 to 2 ms for 2 MiB. A third is for the index and one for the
    /// rows of each side, rounded up to 2 and 32 MiB; what is not in use does not count as state,
    /// and where the system gives less, the rest is taken when it is needed. Rows of over eight
    /// bytes are kept elsewhere. It never changes results. Costs about 0.1 ms a MiB, once. Window
    /// joins take none.
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.reserve_bytes = bytes;
        self
    }

    /// How long a row is kept at the most by the clock on the wall, for watermarks that stop: it is
    /// gone `ttl` after it was stored, or up to an eighth of that later, although no watermark has
    /// passed its end. It matches nothing from then on, and where rows of its side come out
    /// unmatched, one without a match does so then. So what comes out depends on when events come.
    /// Engines tell their operators the time; a [`Join`](crate::join::Join) goes by its
    /// [`tick`](crate::join::Join::tick). Its memory is freed with its time bucket, once older ones
    /// are gone, too. Without it rows live until their end.
    ///
    /// A left row that is over while its match is still to be chosen ([`choice`](Self::choice),
    /// [`JoinSpec::asof`]) comes out then, with the one that it would have if nothing followed.
    /// Right rows that are over are chosen by no left row that comes later. Not for
    /// [`MatchChoice::OneToOne`], nor for window joins, whose rows have their turn at the window's
    /// end: what becomes of one that is gone by then nobody could say.
    ///
    /// ```
    /// # use intervale::event::{Event, Key, Side};
    /// # use intervale::join::{Join, JoinSpec};
    /// # let limits = intervale::limits::Limits::default();
    /// # use {intervale::time::Bound::Closed, std::time::Duration};
    /// let spec = JoinSpec::between(Closed(0), Closed(60_000)).ttl(Duration::from_nanos(80));
    /// let mut join = Join::new(spec.build(&limits)?, limits)?;
    /// let mut out = |_: Event<'_>, _: Event<'_>| {};
    /// join.push(Side::Left, Key::Int(1), 1_000, b"row", &mut out)?;
    /// [0, 10, 90].map(|now_ns| join.tick(now_ns, &mut out));
    /// assert_eq!(join.counters().side(Side::Left).timed_out, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Where files go under [`Overflow::Spill`](crate::limits::Overflow::Spill): a folder on a disk
    /// with room. The system's folder for temporary files by default, which may be memory.
    pub fn spill_to(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spill_to = Some(folder.into());
        self
    }

    /// Accepts an interval that holds nothing instead of refusing it: no pair comes out, rows are
    /// padded at their own ends. For comparisons with systems that accept such intervals.
    #[doc(hidden)]
    pub fn allow_empty(mut self) -> Self {
        self.allow_empty = true;
        self
    }

    /// Validates.
    ///
    /// # Errors
    /// [`SpecError`] names the part that is wrong.
    pub fn build(self, limits: &Limits) -> Result<JoinSpec, SpecError> {
        if let Some(asof) = self.asof {
            self.check_asof(asof)?;
        }
        if let Some(window) = self.windows {
            window.check()?;
            if self.choice != MatchChoice::All {
                return Err(SpecError::Window("a window join gives all pairs; choose none"));
            }
            if self.lateness.policy == LatePolicy::Join {
                return Err(SpecError::Window(
                    "a row whose windows are all over has nothing to join with; choose another \
                     late policy",
                ));
            }
        }
        let interval = if self.allow_empty {
            Interval::new_or_empty(self.lo, self.hi)?
        } else {
            Interval::new(self.lo, self.hi)?
        };
        if interval.is_unbounded() && !limits.bound_state() {
            return Err(SpecError::UnboundedWithoutLimit);
        }
        if self.lateness.allowed < 0 {
            return Err(SpecError::NegativeLateness(self.lateness.allowed));
        }
        self.check_layout(limits)?;
        let is_plain = self.windows.is_none()
            && (self.choice == MatchChoice::All
                || (self.choice != MatchChoice::OneToOne && !self.kind.emits_pairs()));
        self.check_overflow(limits, is_plain)?;
        self.check_ttl()?;
        let is_for_left_rows = !matches!(self.choice, MatchChoice::All | MatchChoice::OneToOne);
        if is_for_left_rows && self.kind.emits_unmatched(Side::Right) {
            return Err(SpecError::MatchKind);
        }
        Ok(JoinSpec {
            interval,
            kind: self.kind,
            keys: self.keys,
            lateness: self.lateness,
            choice: self.choice,
            apart: self.asof.is_some_and(Asof::is_apart),
            windows: self.windows,
            condition: self.condition,
            bucket_width: self.bucket_width,
            chunk_bytes: self.chunk_bytes,
            reserve_bytes: self.reserve_bytes,
            ttl: self.ttl,
            spill_to: self.spill_to,
        })
    }
}
