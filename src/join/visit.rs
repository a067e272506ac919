//! What becomes of the partners that state finds: pairs, semi rows, rows that are over at once.

use crate::event::{Event, EventBatch, Key, KeyHasher, KeyKind, Side, split_keyed_row};
use crate::join::interval::event_of;
use crate::join::{Emit, JoinKind};
use crate::state::{Partner, Visit};

/// Turns partners of one batch into results of a join of some kind.
pub(super) struct PairVisit<'a, E> {
    kind: JoinKind,
    hasher: &'a KeyHasher,
    batch: &'a EventBatch,
    out: &'a mut E,
    /// The left event of the batch that a semi join has handed out last.
    handed_out: Option<usize>,
    singles: [u64; 2],
}

impl<'a, E: Emit> PairVisit<'a, E> {
    pub(super) fn new(
        kind: JoinKind,
        hasher: &'a KeyHasher,
        batch: &'a EventBatch,
        out: &'a mut E,
    ) -> Self {
        PairVisit { kind, hasher, batch, out, handed_out: None, singles: [0; 2] }
    }

    /// Rows that came out by themselves, by side.
    pub(super) fn singles(&self) -> [u64; 2] {
        self.singles
    }

    /// Keys of bytes are only known by their hash so far.
    #[inline]
    fn is_same_key(&self, index: usize, partner: &Partner<'_>) -> bool {
        self.hasher.kind() == KeyKind::Int
            || split_keyed_row(self.batch.stored_row(index)).0 == split_keyed_row(partner.row).0
    }

    #[inline]
    fn pair(&mut self, index: usize, partner: Partner<'_>) {
        let own = self.batch.event(index, self.hasher);
        let row = match own.key {
            Key::Bytes(_) => split_keyed_row(partner.row).1,
            _ => partner.row,
        };
        let partner = Event { key: own.key, ts: partner.ts, row };
        match self.batch.side() {
            Side::Left => self.out.pair(own, partner),
            Side::Right => self.out.pair(partner, own),
        }
    }

    /// A left row comes out at its first match, whichever of the two events came second.
    fn semi(&mut self, index: usize, partner: Partner<'_>) {
        let event = match self.batch.side() {
            Side::Left if self.handed_out == Some(index) => return,
            Side::Left => {
                self.handed_out = Some(index);
                self.batch.event(index, self.hasher)
            }
            Side::Right if partner.matched => return,
            Side::Right => event_of(self.hasher, self.batch.keys()[index], partner.ts, partner.row),
        };
        self.singles[Side::Left.index()] += 1;
        self.out.single(Side::Left, event);
    }
}

impl<E: Emit> Visit for PairVisit<'_, E> {
    #[inline]
    fn partner(&mut self, index: usize, partner: Partner<'_>) -> bool {
        if !self.is_same_key(index, &partner) {
            return false;
        }
        if self.kind.emits_pairs() {
            self.pair(index, partner);
        } else if self.kind == JoinKind::Semi {
            self.semi(index, partner);
        }
        true
    }

    fn over(&mut self, index: usize) {
        let side = self.batch.side();
        if self.kind.emits_unmatched(side) {
            self.singles[side.index()] += 1;
            self.out.single(side, self.batch.event(index, self.hasher));
        }
    }
}
