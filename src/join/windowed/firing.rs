//! What comes out of the rows of a window that meet.

use super::Member;
use super::rows::Rows;
use crate::event::{KeyHasher, Side};
use crate::join::window::Span;
use crate::join::{Counters, Emit, JoinKind, JoinSpec};

/// The last tick of a window.
pub(super) fn pair_time(span: Span) -> i64 {
    i64::try_from(span.end - 1).unwrap_or(i64::MAX)
}

/// What rows of a window that meet need.
pub(super) struct Firing<'a> {
    pub(super) spec: &'a JoinSpec,
    pub(super) rows: &'a Rows,
    pub(super) hasher: &'a KeyHasher,
    pub(super) ts: i64,
}

impl Firing<'_> {
    /// Each left row meets each right one, unless they have met.
    pub(super) fn meet<E: Emit>(
        self,
        left: &mut [Member],
        right: &mut [Member],
        counters: &mut Counters,
        out: &mut E,
    ) {
        let (kind, condition) = (self.spec.kind(), self.spec.condition());
        for own in left {
            let event = self.rows.event(own.row, self.hasher);
            for partner in right.iter_mut() {
                let have_met = own.group != 0 && own.group == partner.group;
                let right = || self.rows.event(partner.row, self.hasher);
                if have_met || !condition.is_none_or(|condition| condition.holds(&event, &right()))
                {
                    continue;
                }
                counters.pairs += 1;
                for (side, member) in counters.sides.iter_mut().zip([&*own, &*partner]) {
                    side.matched += u64::from(self.rows.set_matched(member.row));
                }
                if kind.emits_pairs() {
                    out.pair_at(event, right(), self.ts);
                } else if kind == JoinKind::Semi && !own.is_paired {
                    counters.sides[Side::Left.index()].singles += 1;
                    out.single(Side::Left, event);
                }
                (own.is_paired, partner.is_paired) = (true, true);
            }
        }
    }
}
