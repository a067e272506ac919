//! Rules that change while a join runs: from a stated event time on, another interval or condition.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::event::Event;
use crate::join::{Condition, JoinSpec, JoinSpecBuilder};
use crate::time::{Bound, Interval, IntervalError, Timestamp};

/// What makes two events of one key a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    interval: Interval,
    condition: Option<Condition>,
}

impl Rule {
    /// Pairs with `left.ts + lo <= right.ts <= left.ts + hi`, ends as given.
    ///
    /// # Errors
    /// [`IntervalError`] when no two times can be that far apart.
    pub fn between(lo: Bound, hi: Bound) -> Result<Rule, IntervalError> {
        Ok(Rule::within(Interval::new(lo, hi)?))
    }

    /// Pairs whose times are within an interval of each other.
    pub fn within(interval: Interval) -> Rule {
        Rule { interval, condition: None }
    }

    /// Those of them that `holds` of, the left event first: see [`Condition`].
    pub fn when(
        self,
        holds: impl Fn(&Event<'_>, &Event<'_>) -> bool + Send + Sync + 'static,
    ) -> Rule {
        self.with_condition(Condition::new(holds))
    }

    /// Those of them that a condition holds of.
    pub fn with_condition(mut self, condition: Condition) -> Rule {
        self.condition = Some(condition);
        self
    }

    fn holds(&self, left: &Event<'_>, right: &Event<'_>) -> bool {
        self.interval.contains(left.ts, right.ts)
            && self.condition.as_ref().is_none_or(|condition| condition.holds(left, right))
    }
}

/// Why a rule was not taken; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// Pairs at its time may have been judged by the rule before it.
    TooLate {
        /// The first time that a rule can still start at, in ticks; `None`: there is none.
        earliest: Option<i64>,
    },
    /// Its interval is not within that of the join.
    BeyondReach {
        /// The join's, of `right.ts - left.ts`.
        reach: Interval,
    },
    /// There are as many rules as can be numbered.
    TooMany,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::TooLate { earliest: Some(earliest) } => write!(
                f,
                "pairs at the rule's time may be out already; a rule can start at {earliest} or \
                 later"
            ),
            RuleError::TooLate { earliest: None } => {
                f.write_str("pairs at the last time there is may be out already")
            }
            RuleError::BeyondReach { reach } => write!(
                f,
                "the join finds pairs from {} to {} ticks apart; a rule's interval must be within \
                 that",
                reach.lo(),
                reach.hi()
            ),
            RuleError::TooMany => f.write_str("there are as many rules as can be numbered"),
        }
    }
}

impl std::error::Error for RuleError {}

/// The rules of a join, which its user can replace while it runs, on all cores at the same event
/// time: a pair is judged by the rule that its own time falls under, the later of its two events'.
/// Clones are the same rules.
///
/// This is what a broadcast control stream gives, but exact. A rule that comes when some core may
/// have judged pairs at its time is refused, and says from when on one could start; a rule that is
/// taken holds for every pair from its time on, whichever core finds it and however late. So
/// whoever sends rules sends them ahead of the data, by the disorder and a little more:
/// [`earliest`](Self::earliest) goes ahead of the data by 1/256 of the join's reach.
///
/// A pair costs two atomic loads and a look at the newest rule; older rules are only looked at for
/// pairs from before it. Rules are kept until the last clone is dropped: some 100 bytes each.
///
/// ```
/// use intervale::event::{Event, Key, Side};
/// use intervale::join::{Join, Rule, RuleError, Rules};
/// use intervale::limits::Limits;
/// use intervale::time::{Bound, Interval, Timestamp};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A payment up to a minute after its order; never more than an hour.
/// let minute = Rule::between(Bound::Closed(0), Bound::Closed(60))?;
/// let rules = Rules::new(Interval::closed(0, 3_600)?, minute)?;
/// let limits = Limits::default();
/// let mut join = Join::new(rules.spec().build(&limits)?, limits)?;
/// // From 10,000 on: up to five, and only over the amount.
/// let five = Rule::between(Bound::Closed(0), Bound::Closed(300))?;
/// let five = five.when(|_, paid| paid.row > &b"5"[..]);
/// rules.replace(Timestamp::new(10_000).ok_or("no time")?, five)?;
///
/// let mut pairs = Vec::new();
/// let mut out = |order: Event<'_>, paid: Event<'_>| pairs.push((order.ts, paid.ts));
/// join.push(Side::Left, Key::Int(1), 9_900, b"", &mut out)?;
/// join.push(Side::Right, Key::Int(1), 9_950, b"1", &mut out)?;
/// join.push(Side::Right, Key::Int(1), 9_999, b"1", &mut out)?;
/// join.push(Side::Right, Key::Int(1), 10_000, b"7", &mut out)?;
/// join.push(Side::Right, Key::Int(1), 10_001, b"1", &mut out)?;
/// assert_eq!(pairs, [(9_900, 9_950), (9_900, 10_000)]);
///
/// let late = rules.replace(Timestamp::new(10_001).ok_or("no time")?, Rule::between(
///     Bound::Closed(0),
///     Bound::Closed(10),
/// )?);
/// assert!(matches!(late, Err(RuleError::TooLate { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Rules(Arc<Book>);

/// Entries by number: segment `n` holds `1 << n` of them, so that none ever moves.
type Segment = Box<[OnceLock<Entry>]>;

struct Book {
    reach: Interval,
    segments: [OnceLock<Segment>; SEGMENTS],
    /// Rules there are; those before it can be read.
    count: AtomicUsize,
    /// Pairs up to this time may have been judged.
    judged: AtomicI64,
    /// How much further that goes at once, so that it seldom has to.
    ahead: i64,
    /// Held by whoever changes the two.
    changing: Mutex<()>,
}

const SEGMENTS: usize = 24;

/// A rule, and the time of the first pairs that it judges.
struct Entry {
    from: i64,
    rule: Rule,
}

impl Rules {
    /// Rules of a join that finds pairs within `reach` (it decides how long rows are kept), the
    /// first of which holds until another takes its place.
    ///
    /// # Errors
    /// [`RuleError::BeyondReach`].
    pub fn new(reach: Interval, first: Rule) -> Result<Rules, RuleError> {
        let width = i128::from(reach.hi()) - i128::from(reach.lo());
        let book = Book {
            reach,
            segments: [const { OnceLock::new() }; SEGMENTS],
            count: AtomicUsize::new(0),
            judged: AtomicI64::new(i64::MIN),
            ahead: i64::try_from(width / 256).unwrap_or(i64::MAX),
            changing: Mutex::new(()),
        };
        book.add(i64::MIN, first)?;
        Ok(Rules(Arc::new(book)))
    }

    /// Starts the spec of a join by these rules. A [`condition`](JoinSpecBuilder::condition) set
    /// on it would take their place. Window joins go by windows, and take no rules.
    pub fn spec(&self) -> JoinSpecBuilder {
        let bound = |ticks: i64, end: i64| match ticks == end {
            true => Bound::Unbounded,
            false => Bound::Closed(ticks),
        };
        let reach = self.0.reach;
        JoinSpec::between(bound(reach.lo(), i64::MIN), bound(reach.hi(), i64::MAX))
            .condition(self.holds())
    }

    /// The rules as the condition of a spec whose interval is their reach:
    /// [`JoinSpec::with_condition`].
    pub fn condition(&self) -> Condition {
        Condition::new(self.holds())
    }

    fn holds(&self) -> impl Fn(&Event<'_>, &Event<'_>) -> bool + Send + Sync + 'static + use<> {
        let book = Arc::clone(&self.0);
        move |left, right| book.holds(left, right)
    }

    /// Judges pairs by another rule from `from` on: those whose later event has that time or a
    /// later one.
    ///
    /// # Errors
    /// [`RuleError::TooLate`] when a pair at `from` may have been judged, or another rule starts
    /// there or later; [`RuleError::BeyondReach`].
    pub fn replace(&self, from: Timestamp, rule: Rule) -> Result<(), RuleError> {
        self.0.add(from.ticks(), rule)
    }

    /// The first time that a rule can still start at, in ticks, unless a core goes on meanwhile.
    pub fn earliest(&self) -> Option<i64> {
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.earliest()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Acquire: pairs with the store in `add`.
        let count = self.0.count.load(Ordering::Acquire);
        f.debug_struct("Rules").field("reach", &self.0.reach).field("count", &count).finish()
    }
}

impl Book {
    fn add(&self, from: i64, rule: Rule) -> Result<(), RuleError> {
        let (reach, interval) = (self.reach, rule.interval);
        if interval.lo() < reach.lo() || interval.hi() > reach.hi() {
            return Err(RuleError::BeyondReach { reach });
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: only ever stored by whoever holds the lock.
        let number = self.count.load(Ordering::Relaxed);
        if number > 0 {
            let earliest = self.earliest();
            if earliest.is_none_or(|earliest| from < earliest) {
                return Err(RuleError::TooLate { earliest });
            }
        }
        let (segment, place) = place_of(number);
        let segment = self
            .segments
            .get(segment)
            .ok_or(RuleError::TooMany)?
            .get_or_init(|| (0..1usize << segment).map(|_| OnceLock::new()).collect());
        let _ = segment[place].set(Entry { from, rule });
        // Release: pairs with the load in `rule_at`, which reads entries before the count.
        self.count.store(number + 1, Ordering::Release);
        Ok(())
    }

    /// See [`Rules::earliest`]; under the lock.
    fn earliest(&self) -> Option<i64> {
        // Relaxed: only ever stored by whoever holds the lock.
        let judged = self.judged.load(Ordering::Relaxed);
        let last = self.count.load(Ordering::Relaxed).checked_sub(1);
        let last = last.and_then(|last| self.entry(last)).map_or(i64::MIN, |entry| entry.from);
        judged.max(last).checked_add(1)
    }

    /// Whether the rule of the pair's time holds of it.
    fn holds(&self, left: &Event<'_>, right: &Event<'_>) -> bool {
        let ts = left.ts.max(right.ts);
        // Acquire: pairs with the store in `judge_up_to`. Whoever stored this had the lock, so all
        // rules up to this time were added before, and any further one starts after it: the count
        // that is loaded next covers all that can ever concern this pair.
        if ts > self.judged.load(Ordering::Acquire) {
            self.judge_up_to(ts);
        }
        self.rule_at(ts).is_some_and(|rule| rule.holds(left, right))
    }

    #[cold]
    fn judge_up_to(&self, ts: i64) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: only ever stored by whoever holds the lock.
        let judged = self.judged.load(Ordering::Relaxed);
        // Release: pairs with the load in `holds`.
        self.judged.store(judged.max(ts.saturating_add(self.ahead)), Ordering::Release);
    }

    fn rule_at(&self, ts: i64) -> Option<&Rule> {
        // Acquire: pairs with the store in `add`.
        let count = self.count.load(Ordering::Acquire);
        let entries = (0..count).rev().filter_map(|number| self.entry(number));
        entries.filter(|entry| entry.from <= ts).map(|entry| &entry.rule).next()
    }

    #[inline]
    fn entry(&self, number: usize) -> Option<&Entry> {
        let (segment, place) = place_of(number);
        self.segments[segment].get()?[place].get()
    }
}

/// The segment of an entry, and its place there.
#[inline]
fn place_of(number: usize) -> (usize, usize) {
    let segment = (number + 1).ilog2();
    (segment as usize, number + 1 - (1 << segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Key;

    fn rule(lo: i64, hi: i64) -> Rule {
        Rule::between(Bound::Closed(lo), Bound::Closed(hi)).expect("not empty")
    }

    fn rules() -> Rules {
        let reach = Interval::closed(-100, 100).expect("not empty");
        Rules::new(reach, rule(0, 0)).expect("within reach")
    }

    fn at(ts: i64) -> Timestamp {
        Timestamp::new(ts).expect("a time")
    }

    fn holds(rules: &Rules, left: i64, right: i64) -> bool {
        let event = |ts| Event { key: Key::Int(1), ts, row: b"" };
        rules.0.holds(&event(left), &event(right))
    }

    #[test]
    fn every_pair_is_judged_by_the_rule_of_its_time() {
        let rules = rules();
        for number in 0..1_000 {
            rules.replace(at(10 * number), rule(-number % 7, number % 5)).expect("in time");
        }
        // The newest first, so that each looks back.
        for number in (0..1_000).rev() {
            let (lo, hi) = (-number % 7, number % 5);
            for ts in [10 * number, 10 * number + 9] {
                for apart in 0..10 {
                    assert_eq!(holds(&rules, ts - apart, ts), apart <= hi, "{ts}: {apart}");
                    assert_eq!(holds(&rules, ts, ts - apart), -apart >= lo, "{ts}: -{apart}");
                }
            }
        }
        assert!(holds(&rules, -1, -1) && !holds(&rules, -2, -1));
    }

    #[test]
    fn rules_that_come_too_late_or_reach_too_far_change_nothing() {
        let rules = rules();
        let reach = Interval::closed(-100, 100).expect("not empty");
        assert_eq!(rules.replace(at(5), rule(-101, 0)), Err(RuleError::BeyondReach { reach }));
        assert_eq!(rules.replace(at(5), rule(0, 101)), Err(RuleError::BeyondReach { reach }));
        rules.replace(at(50), rule(0, 1)).expect("in time");
        let late = Err(RuleError::TooLate { earliest: Some(51) });
        assert_eq!(rules.replace(at(50), rule(0, 2)), late);
        assert!(holds(&rules, 70, 71) && !holds(&rules, 70, 72));
        // 200 ticks of reach are not enough to go ahead by one.
        assert_eq!(rules.earliest(), Some(73));
        let late = Err(RuleError::TooLate { earliest: Some(73) });
        assert_eq!(rules.replace(at(72), rule(0, 2)), late);
        rules.replace(at(73), rule(0, 3)).expect("in time");
        assert!(!holds(&rules, 70, 72) && holds(&rules, 70, 73));
        assert!(holds(&rules, i64::MAX, i64::MAX));
        assert_eq!(
            rules.replace(at(i64::MAX), rule(0, 2)),
            Err(RuleError::TooLate { earliest: None })
        );
    }
}
