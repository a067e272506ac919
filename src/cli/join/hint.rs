//! What to look at when a join that ran to its end has found nothing.

use crate::cli::join::plan::Plan;
use crate::cli::join::report::{Report, SideRows};
use crate::cli::text::show_count;
use crate::event::Side;
use crate::join::JoinKind;

/// The hint, if no row of either side has found another. One side without rows is no surprise, and
/// what has no match is what an anti join is for.
pub(super) fn nothing_matched(plan: &Plan, report: &Report) -> Option<String> {
    // Of a chain any stage may be where they were lost.
    if report.interrupted || plan.kind == JoinKind::Anti || !plan.then.is_empty() {
        return None;
    }
    let [left, right] = &report.sides;
    let matched = report.pairs > 0 || report.sides.iter().any(|side| side.matched > Some(0));
    // Without a key at all nothing matches, which is said by itself.
    let keyless = |side: &SideRows| side.null_key + side.bad == side.rows;
    if matched || keyless(left) || keyless(right) {
        return None;
    }
    let late: u64 = report.sides.iter().map(|side| side.late).sum();
    let rows = left.rows + right.rows;
    if late > rows / 2 {
        let of = |side: Side| {
            let (stream, rows) = (&plan.sides[side.index()], &report.sides[side.index()]);
            let (late, all) = (show_count(rows.late), show_count(rows.rows));
            format!("{late} of {all} {} rows (time {})", stream.name, stream.time_column)
        };
        return Some(format!(
            "nothing matched, and most rows were late: {}, {}. A wrong time column or unit looks \
             like that: look at --left-time, --right-time and --time-format. If times are right \
             and rows only come out of order, raise --out-of-orderness (intervale calibrate, with \
             the same options, says to what)",
            of(Side::Left),
            of(Side::Right)
        ));
    }
    let keys = |side: Side| plan.sides[side.index()].key_columns.join(", ");
    let condition =
        if plan.expressions.has_condition() { "; or --where refused every pair" } else { "" };
    Some(format!(
        "nothing matched: of {} left and {} right rows that were on time, no two have the same \
         key (left {}, right {}) and times that match. Look at --on (keys compare as text: 1 and \
         01 differ) and at --left-time, --right-time and --time-format{condition}. intervale \
         calibrate, with the same options, says how far apart times of equal keys are",
        show_count(left.on_time),
        show_count(right.on_time),
        keys(Side::Left),
        keys(Side::Right)
    ))
}
