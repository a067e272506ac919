//! What becomes of the partners that state finds: pairs, semi rows, rows that are over at once.

use crate::event::{Event, EventBatch, Key, KeyHasher, Side, split_keyed_row};
use crate::join::{Emit, JoinKind};
use crate::state::{Partner, Visit};

/// Turns partners of one batch into results of a join of some kind.
pub(super) struct PairVisit<'a, E> {
    kind: JoinKind,
    emits_pairs: bool,
    side: Side,
    hasher: &'a KeyHasher,
    batch: &'a EventBatch,
    out: &'a mut E,
    /// The event whose partners are coming.
    event: Event<'a>,
    /// Whether a semi join has handed it out already.
    is_out: bool,
    singles: [u64; 2],
}

impl<'a, E: Emit> PairVisit<'a, E> {
    pub(super) fn new(
        kind: JoinKind,
        hasher: &'a KeyHasher,
        batch: &'a EventBatch,
        out: &'a mut E,
    ) -> Self {
        PairVisit {
            kind,
            emits_pairs: kind.emits_pairs(),
            side: batch.side(),
            hasher,
            batch,
            out,
            event: Event { key: Key::Null, ts: 0, row: &[] },
            is_out: false,
            singles: [0; 2],
        }
    }

    /// Rows that came out by themselves, by side.
    pub(super) fn singles(&self) -> [u64; 2] {
        self.singles
    }

    /// A left row comes out at its first match, whichever of the two events came second.
    fn semi(&mut self, partner: Event<'_>, was_matched: bool) {
        let event = match self.side {
            Side::Left if self.is_out => return,
            Side::Left => self.event,
            Side::Right if was_matched => return,
            Side::Right => partner,
        };
        self.is_out = true;
        self.singles[Side::Left.index()] += 1;
        self.out.single(Side::Left, event);
    }
}

impl<E: Emit> Visit for PairVisit<'_, E> {
    #[inline]
    fn begin(&mut self, index: usize) {
        self.event = self.batch.event(index, self.hasher);
        self.is_out = false;
    }

    #[inline]
    fn partner(&mut self, partner: Partner<'_>) -> bool {
        let own = self.event;
        let mut row = partner.row;
        if let Key::Bytes(own_key) = own.key {
            // Keys of bytes are only known by their hash so far.
            let (key, rest) = split_keyed_row(row);
            if key != own_key {
                return false;
            }
            row = rest;
        }
        let event = Event { key: own.key, ts: partner.ts, row };
        if self.emits_pairs {
            match self.side {
                Side::Left => self.out.pair(own, event),
                Side::Right => self.out.pair(event, own),
            }
        } else if self.kind == JoinKind::Semi {
            self.semi(event, partner.matched);
        }
        true
    }

    fn over(&mut self, index: usize) {
        if self.kind.emits_unmatched(self.side) {
            self.singles[self.side.index()] += 1;
            self.out.single(self.side, self.batch.event(index, self.hasher));
        }
    }
}
