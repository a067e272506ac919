//! Rules that change while data flows: exact on all cores, whenever they come.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use intervale::engine::Engine;
use intervale::event::Side;
use intervale::join::{JoinKind, Rule, RuleError, Rules};
use intervale::limits::Limits;
use intervale::runtime::CoreChoice;
use intervale::time::{Bound, Interval, Timestamp};

use crate::support::{RUNTIMES, Row, SHARDS, collect, events, feed_from_thread, pairs_of, push};

/// A rule as the test keeps it: from when on, the interval, what the numbers' sum is divisible by.
#[derive(Clone, Copy, Debug)]
struct Kept {
    from: i64,
    lo: i64,
    hi: i64,
    divisor: u64,
}

impl Kept {
    fn numbered(from: i64, number: i64) -> Kept {
        let (lo, hi) = (-(number * 7 % 21), number * 5 % 31);
        Kept { from, lo, hi, divisor: number as u64 % 3 + 1 }
    }

    fn rule(self) -> Rule {
        let rule = Rule::between(Bound::Closed(self.lo), Bound::Closed(self.hi)).unwrap();
        rule.when(move |left, right| {
            let number = |row: &[u8]| u64::from_le_bytes(row.try_into().unwrap());
            self.holds(number(left.row), number(right.row))
        })
    }

    fn holds(self, left: u64, right: u64) -> bool {
        (left ^ right).is_multiple_of(self.divisor)
    }
}

fn is_pair(rules: &[Kept], left: Row, right: Row) -> bool {
    let apart = right.1 - left.1;
    if left.0 != right.0 || !(-20..=30).contains(&apart) {
        return false;
    }
    let rule = rules.iter().rfind(|rule| rule.from <= left.1.max(right.1)).unwrap();
    (rule.lo..=rule.hi).contains(&apart) && rule.holds(left.2, right.2)
}

fn nested_loop(rules: &[Kept], left: &[Row], right: &[Row]) -> Vec<(Row, Row)> {
    let mut pairs = Vec::new();
    for &l in left {
        pairs.extend(right.iter().filter(|&&r| is_pair(rules, l, r)).map(|&r| (l, r)));
    }
    pairs.sort_unstable();
    pairs
}

fn first() -> Kept {
    Kept::numbered(i64::MIN, 4)
}

fn rules() -> Rules {
    Rules::new(Interval::closed(-20, 30).unwrap(), first().rule()).unwrap()
}

#[test]
fn a_rule_that_is_taken_holds_of_every_pair_from_its_time_on_whichever_core_finds_it() {
    let (left, right) = (events(1, 8_000), events(2, 8_000));
    for (shards, runtime) in SHARDS.into_iter().flat_map(|s| RUNTIMES.map(|r| (s, r))) {
        let rules = rules();
        let engine = Engine::builder(rules.spec().build(&Limits::default()).unwrap())
            .cores(CoreChoice::count(shards).unwrap())
            .runtime(runtime)
            .sinks(collect)
            .start()
            .unwrap();
        let mut sources = Side::BOTH.map(|side| engine.source(side).unwrap());
        let (is_over, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
        let kept = std::thread::scope(|scope| {
            let changing = scope.spawn(|| {
                let mut kept = vec![first()];
                while !is_over.load(Ordering::Relaxed) {
                    // Right behind what the cores are at.
                    let from = rules.earliest().unwrap().max(i64::MIN + 1);
                    let rule = Kept::numbered(from, kept.len() as i64);
                    match rules.replace(Timestamp::new(from).unwrap(), rule.rule()) {
                        Ok(()) => kept.push(rule),
                        // The data has gone on, by one tick perhaps and for the last time.
                        Err(RuleError::TooLate { earliest }) => {
                            assert!(earliest > Some(from));
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    taken.store(kept.len(), Ordering::Relaxed);
                    // Until the data has gone on, there is nothing to add.
                    while rules.earliest() <= Some(from + 1) && !is_over.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                }
                kept
            });
            for (left, right) in left.chunks(100).zip(right.chunks(100)) {
                let before = taken.load(Ordering::Relaxed);
                for (left, right) in left.iter().zip(right) {
                    push(&mut sources[0], left).unwrap();
                    push(&mut sources[1], right).unwrap();
                }
                engine.flush().unwrap();
                while taken.load(Ordering::Relaxed) == before && !changing.is_finished() {
                    std::thread::yield_now();
                }
            }
            is_over.store(true, Ordering::Relaxed);
            changing.join().unwrap()
        });
        sources.into_iter().for_each(|source| source.finish().unwrap());
        let finished = engine.finish().unwrap();
        assert!(kept.len() > 40, "{} rules", kept.len());
        assert_eq!(
            pairs_of(&finished),
            nested_loop(&kept, &left, &right),
            "{shards} shards, {} rules",
            kept.len()
        );
    }
}

#[test]
fn what_is_unmatched_goes_by_the_rules_too() {
    let (left, right) = (events(3, 3_000), events(4, 3_000));
    let kept: Vec<Kept> = [first()]
        .into_iter()
        .chain((1..40).map(|number| Kept::numbered(number * 20, number)))
        .collect();
    for shards in SHARDS {
        let rules = rules();
        for rule in &kept[1..] {
            rules.replace(Timestamp::new(rule.from).unwrap(), rule.rule()).unwrap();
        }
        let spec = rules.spec().kind(JoinKind::Full).build(&Limits::default()).unwrap();
        let engine = Engine::builder(spec)
            .cores(CoreChoice::count(shards).unwrap())
            .sinks(collect)
            .start()
            .unwrap();
        let feeds = [(Side::Left, &left), (Side::Right, &right)]
            .map(|(side, rows)| feed_from_thread(engine.source(side).unwrap(), rows.clone()));
        feeds.into_iter().for_each(|feed| feed.join().unwrap());
        let finished = engine.finish().unwrap();
        let pairs = nested_loop(&kept, &left, &right);
        assert_eq!(pairs_of(&finished), pairs, "{shards} shards");
        let alone = |side: Side, row: Row| {
            !pairs.iter().any(|&(l, r)| row == if side == Side::Left { l } else { r })
        };
        let mut singles: Vec<(bool, Row)> = [(Side::Left, &left), (Side::Right, &right)]
            .into_iter()
            .flat_map(|(side, rows)| rows.iter().map(move |&row| (side, row)))
            .filter(|&(side, row)| alone(side, row))
            .map(|(side, row)| (side == Side::Right, row))
            .collect();
        singles.sort_unstable();
        let out = finished.sinks.iter().flat_map(|sink| &sink.singles);
        let mut out: Vec<(bool, Row)> =
            out.map(|&(side, row)| (side == Side::Right, row)).collect();
        out.sort_unstable();
        assert_eq!(out, singles, "{shards} shards");
    }
}
