//! A chain of joins by nested loops: streams read whole, nothing late.

use std::collections::{BTreeMap, BTreeSet};

use super::choice::rank;
use crate::event::Side;
use crate::join::window::{Span, Window};
use crate::join::{JoinKind, JoinSpec};

/// One stage of a [`chain`]: what came out so far is joined with one more stream.
///
/// Rows are named by their places in their streams; a joined row has a place for each stream of it,
/// or none where an outer join found no partner.
pub struct ChainStage<'a> {
    /// What it is; its keys and lateness are not looked at.
    pub spec: JoinSpec,
    /// The stream that the interval is relative to.
    pub anchor: usize,
    /// The key of what came out so far.
    pub left_key: Box<LeftKey<'a>>,
    /// The key of a row of the stream.
    pub right_key: Box<RightKey<'a>>,
    /// What must hold of what came out so far and a row of the stream, beside key and time.
    pub condition: Option<Box<PairHolds<'a>>>,
}

/// The key of a joined row; `None` if it has none.
pub type LeftKey<'a> = dyn Fn(&[Option<usize>]) -> Option<Vec<u8>> + 'a;

/// Whether a condition holds of a joined row and of a stream's row, by its place.
pub type PairHolds<'a> = dyn Fn(&[Option<usize>], usize) -> bool + 'a;

/// The key of a stream's row, by its place.
pub type RightKey<'a> = dyn Fn(usize) -> Option<Vec<u8>> + 'a;

/// Joins the streams, given by the times of their rows, stage by stage: the first stage joins the
/// first stream with the second, and so on. A row without its anchor or a key matches nothing. What
/// comes out of a stage is what its kind, its choice or its windows say, by the definitions of
/// [`Oracle`](crate::join::oracle::Oracle); of rows that are equal in time the one that comes first
/// in its stream came first. A choice of one to one is not looked at, nor is the condition of a
/// spec.
///
/// ```
/// use intervale::join::JoinSpec;
/// use intervale::join::oracle::{ChainStage, chain};
/// use intervale::limits::Limits;
/// use intervale::time::Bound;
///
/// let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(5)).build(&Limits::default())?;
/// let stage = |anchor| ChainStage {
///     spec: spec.clone(),
///     anchor,
///     left_key: Box::new(|_| Some(vec![])),
///     right_key: Box::new(|_| Some(vec![])),
///     condition: None,
/// };
/// let times = [vec![0], vec![4, 6], vec![9]];
/// assert!(chain(&times, &[stage(0), stage(0)]).is_empty());
/// assert_eq!(chain(&times, &[stage(0), stage(1)]), [[Some(0), Some(0), Some(0)]]);
/// # Ok::<(), intervale::error::SpecError>(())
/// ```
pub fn chain(times: &[Vec<i64>], stages: &[ChainStage<'_>]) -> Vec<Vec<Option<usize>>> {
    let mut rows: Vec<Vec<Option<usize>>> = Vec::new();
    for place in 0..times[0].len() {
        rows.push(vec![Some(place)]);
    }
    for (number, stage) in stages.iter().enumerate() {
        rows = join(number, stage, &rows, times);
    }
    rows
}

/// A row of either side in a stage, if it has a time and a key there.
struct Keyed {
    /// Its place among the rows of its side.
    place: usize,
    ts: i64,
    key: Vec<u8>,
}

fn join(
    number: usize,
    stage: &ChainStage<'_>,
    rows: &[Vec<Option<usize>>],
    times: &[Vec<i64>],
) -> Vec<Vec<Option<usize>>> {
    let mut left = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let Some(anchor) = row[stage.anchor] else { continue };
        let Some(key) = (stage.left_key)(row) else { continue };
        left.push(Keyed { place, ts: times[stage.anchor][anchor], key });
    }
    let mut right = Vec::new();
    for (place, &ts) in times[number + 1].iter().enumerate() {
        let Some(key) = (stage.right_key)(place) else { continue };
        right.push(Keyed { place, ts, key });
    }
    let groups = match stage.spec.windows() {
        None => vec![(left.iter().collect(), right.iter().collect())],
        Some(window) => groups(window, &left, &right),
    };
    let kind = stage.spec.kind();
    let mut out = Vec::new();
    let padded = |place: usize| [&rows[place][..], &[None]].concat();
    let alone = |place: usize| [&vec![None; number + 1][..], &[Some(place)]].concat();
    for (left, right) in &groups {
        let holds = |of: &Keyed, with: &Keyed| {
            stage.condition.as_ref().is_none_or(|holds| holds(&rows[of.place], with.place))
        };
        let pairs = pairs(&stage.spec, (left, right), holds);
        let matched_left: BTreeSet<usize> = pairs.iter().map(|(of, _)| *of).collect();
        let matched_right: BTreeSet<usize> = pairs.iter().map(|(_, with)| *with).collect();
        for &(of, with) in &pairs {
            if kind.emits_pairs() {
                out.push([&rows[of][..], &[Some(with)]].concat());
            }
        }
        for row in left {
            let is_matched = matched_left.contains(&row.place);
            let comes_out =
                if is_matched { kind == JoinKind::Semi } else { kind.emits_unmatched(Side::Left) };
            if comes_out {
                out.push(padded(row.place));
            }
        }
        for row in right {
            if !matched_right.contains(&row.place) && kind.emits_unmatched(Side::Right) {
                out.push(alone(row.place));
            }
        }
    }
    // Rows without a key are in no group.
    let keyed = |rows: &[Keyed]| rows.iter().map(|row| row.place).collect::<BTreeSet<usize>>();
    let (keyed_left, keyed_right) = (keyed(&left), keyed(&right));
    for place in (0..rows.len()).filter(|place| !keyed_left.contains(place)) {
        if kind.emits_unmatched(Side::Left) {
            out.push(padded(place));
        }
    }
    for place in (0..times[number + 1].len()).filter(|place| !keyed_right.contains(place)) {
        if kind.emits_unmatched(Side::Right) {
            out.push(alone(place));
        }
    }
    out
}

/// The pairs of rows that may meet, by their places.
fn pairs(
    spec: &JoinSpec,
    (left, right): (&[&Keyed], &[&Keyed]),
    holds: impl Fn(&Keyed, &Keyed) -> bool,
) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for of in left {
        let meets = |with: &&&Keyed| {
            of.key == with.key
                && (spec.windows().is_some() || spec.matches(of.ts, with.ts))
                && holds(of, with)
        };
        let matches = right.iter().filter(meets);
        if spec.chooses() {
            // The first of the smallest: it came first.
            let best = matches.min_by_key(|with| rank(spec.choice(), of.ts, with.ts));
            pairs.extend(best.map(|with| (of.place, with.place)));
        } else {
            pairs.extend(matches.map(|with| (of.place, with.place)));
        }
    }
    pairs
}

/// The left and the right rows of a window.
type Group<'a> = (Vec<&'a Keyed>, Vec<&'a Keyed>);

/// The rows of each window, whatever their keys: of sessions, those of one key.
fn groups<'a>(window: Window, left: &'a [Keyed], right: &'a [Keyed]) -> Vec<Group<'a>> {
    let mut spans: BTreeMap<(Vec<u8>, Span), Group<'a>> = BTreeMap::new();
    for (side, row) in
        left.iter().map(|row| (Side::Left, row)).chain(right.iter().map(|row| (Side::Right, row)))
    {
        for span in window.spans(row.ts) {
            let group = spans.entry((row.key.clone(), span)).or_default();
            if side == Side::Left { group.0.push(row) } else { group.1.push(row) }
        }
    }
    if !matches!(window, Window::Session { .. }) {
        return spans.into_values().collect();
    }
    // Those of a key that overlap are one.
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut last: Option<(Vec<u8>, i128)> = None;
    for ((key, span), (more_left, more_right)) in spans {
        let goes_on = last.as_ref().is_some_and(|(of, end)| *of == key && span.start < *end);
        match groups.last_mut().filter(|_| goes_on) {
            Some(group) => {
                group.0.extend(more_left);
                group.1.extend(more_right);
            }
            None => groups.push((more_left, more_right)),
        }
        last = Some((key, span.end));
    }
    groups
}
