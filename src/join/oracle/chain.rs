//! A chain of interval joins by nested loops: streams read whole, nothing late.

use crate::event::Side;
use crate::join::JoinSpec;

/// One stage of a [`chain`]: what came out so far is joined with one more stream.
///
/// Rows are named by their places in their streams; a joined row has a place for each stream of it,
/// or none where a left join found no partner.
pub struct ChainStage<'a> {
    /// The interval and the kind; its keys, choice and lateness are not looked at.
    pub spec: JoinSpec,
    /// The stream that the interval is relative to.
    pub anchor: usize,
    /// The key of what came out so far.
    pub left_key: Box<LeftKey<'a>>,
    /// The key of a row of the stream.
    pub right_key: Box<RightKey<'a>>,
}

/// The key of a joined row; `None` if it has none.
pub type LeftKey<'a> = dyn Fn(&[Option<usize>]) -> Option<Vec<u8>> + 'a;

/// The key of a stream's row, by its place.
pub type RightKey<'a> = dyn Fn(usize) -> Option<Vec<u8>> + 'a;

/// Joins the streams, given by the times of their rows, stage by stage: the first stage joins the
/// first stream with the second, and so on. A row without its anchor matches nothing. Pairs come
/// out of every stage, and unmatched left rows of those whose kind says so; right ones never do.
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
        let mut out = Vec::new();
        for row in &rows {
            let mut matched = false;
            for (right, &right_ts) in times[number + 1].iter().enumerate() {
                let Some(anchor) = row[stage.anchor] else { continue };
                let Some(key) = (stage.left_key)(row) else { continue };
                let same_key = (stage.right_key)(right) == Some(key);
                if same_key && stage.spec.matches(times[stage.anchor][anchor], right_ts) {
                    matched = true;
                    out.push([&row[..], &[Some(right)]].concat());
                }
            }
            if !matched && stage.spec.kind().emits_unmatched(Side::Left) {
                out.push([&row[..], &[None]].concat());
            }
        }
        rows = out;
    }
    rows
}
