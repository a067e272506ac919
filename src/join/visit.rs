//! What becomes of the partners that state finds: pairs, semi rows, rows that are over at once.

use crate::event::{Event, EventBatch, Key, KeyHasher, KeyKind, Side, split_keyed_row};
use crate::join::{Condition, Emit, JoinKind};
use crate::state::{Partner, Visit};

/// Turns partners of one batch into results of a join of some kind.
pub(super) struct PairVisit<'a, E> {
    kind: JoinKind,
    emits_pairs: bool,
    side: Side,
    hasher: &'a KeyHasher,
    batch: &'a EventBatch,
    out: &'a mut E,
    /// The event of the batch that a semi join has handed out last.
    last_out: Option<usize>,
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
            last_out: None,
            singles: [0; 2],
        }
    }

    /// Whether every partner makes a pair, without a look at the key: [`IntPairs`] will do.
    pub(super) fn is_short(&self) -> bool {
        self.emits_pairs && self.hasher.kind() == KeyKind::Int
    }

    /// Rows that came out by themselves, by side.
    pub(super) fn singles(&self) -> [u64; 2] {
        self.singles
    }

    /// The two match: hands on what the join's kind makes of it.
    #[inline(always)]
    fn matched(&mut self, index: usize, own: Event<'_>, partner: Event<'_>, was_matched: bool) {
        if self.emits_pairs {
            match self.side {
                Side::Left => self.out.pair(own, partner),
                Side::Right => self.out.pair(partner, own),
            }
        } else if self.kind == JoinKind::Semi {
            self.semi(index, own, partner, was_matched);
        }
    }

    /// A left row comes out at its first match, whichever of the two events came second.
    fn semi(&mut self, index: usize, own: Event<'_>, partner: Event<'_>, was_matched: bool) {
        let event = match self.side {
            Side::Left if self.last_out == Some(index) => return,
            Side::Left => own,
            Side::Right if was_matched => return,
            Side::Right => partner,
        };
        self.last_out = Some(index);
        self.singles[Side::Left.index()] += 1;
        self.out.single(Side::Left, event);
    }
}

impl<'a, E: Emit> Visit for PairVisit<'a, E> {
    type Own = (usize, Event<'a>);

    #[inline]
    fn own(&self, index: usize) -> (usize, Event<'a>) {
        (index, self.batch.event(index, self.hasher))
    }

    #[inline]
    fn partner(&mut self, (index, own): (usize, Event<'a>), partner: Partner<'_>) -> bool {
        let Some(event) = event_of_partner(own, partner) else { return false };
        self.matched(index, own, event, partner.matched);
        true
    }

    fn over(&mut self, index: usize) {
        if self.kind.emits_unmatched(self.side) {
            self.singles[self.side.index()] += 1;
            self.out.single(self.side, self.batch.event(index, self.hasher));
        }
    }
}

/// A partner as a sink sees it, if its key is the same one: keys of bytes are only known by their
/// hash so far.
#[inline(always)]
fn event_of_partner<'p>(own: Event<'p>, partner: Partner<'p>) -> Option<Event<'p>> {
    let mut row = partner.row;
    if let Key::Bytes(own_key) = own.key {
        let (key, rest) = split_keyed_row(row);
        if key != own_key {
            return None;
        }
        row = rest;
    }
    Some(Event { key: own.key, ts: partner.ts, row })
}

/// The same of a join with a condition. It is a visitor of its own so that a join without one does
/// not even ask.
pub(super) struct ConditionVisit<'a, E> {
    general: PairVisit<'a, E>,
    condition: &'a Condition,
}

impl<'a, E: Emit> ConditionVisit<'a, E> {
    pub(super) fn new(general: PairVisit<'a, E>, condition: &'a Condition) -> Self {
        ConditionVisit { general, condition }
    }

    pub(super) fn singles(&self) -> [u64; 2] {
        self.general.singles()
    }
}

impl<'a, E: Emit> Visit for ConditionVisit<'a, E> {
    type Own = (usize, Event<'a>);

    fn own(&self, index: usize) -> Self::Own {
        self.general.own(index)
    }

    fn partner(&mut self, (index, own): Self::Own, partner: Partner<'_>) -> bool {
        let Some(event) = event_of_partner(own, partner) else { return false };
        let holds = match self.general.side {
            Side::Left => self.condition.holds(&own, &event),
            Side::Right => self.condition.holds(&event, &own),
        };
        if holds {
            self.general.matched(index, own, event, partner.matched);
        }
        holds
    }

    fn over(&mut self, index: usize) {
        self.general.over(index);
    }
}

/// Pairs of a join over integer keys, where nothing is left to check: the short way. Compiled for
/// each side, so that what is done with the event of the batch is done once for all its partners.
pub(super) struct IntPairs<'a, E, const IS_LEFT: bool> {
    general: PairVisit<'a, E>,
    /// The rows of the batch, if each is eight bytes.
    words: Option<&'a [[u8; 8]]>,
}

impl<'a, E: Emit, const IS_LEFT: bool> IntPairs<'a, E, IS_LEFT> {
    /// For a batch of the side, if [`PairVisit::is_short`].
    pub(super) fn new(general: PairVisit<'a, E>) -> Self {
        let words = general.batch.words(0..general.batch.len());
        IntPairs { general, words }
    }

    pub(super) fn singles(&self) -> [u64; 2] {
        self.general.singles()
    }
}

impl<'a, E: Emit, const IS_LEFT: bool> Visit for IntPairs<'a, E, IS_LEFT> {
    type Own = Event<'a>;

    const ALL_MATCH: bool = true;

    #[inline(always)]
    fn own(&self, index: usize) -> Event<'a> {
        let PairVisit { batch, hasher, .. } = &self.general;
        // Whoever does not look at the key does not pay for getting it back.
        let key = Key::Int(hasher.unmix_int(batch.keys()[index]));
        let row = match self.words {
            Some(words) => &words[index],
            None => batch.stored_row(index),
        };
        Event { key, ts: batch.timestamps()[index], row }
    }

    #[inline(always)]
    fn partner(&mut self, own: Event<'a>, partner: Partner<'_>) -> bool {
        let event = Event { key: own.key, ts: partner.ts, row: partner.row };
        if IS_LEFT {
            self.general.out.pair(own, event);
        } else {
            self.general.out.pair(event, own);
        }
        true
    }

    #[inline(always)]
    fn all<'b>(&mut self, own: Event<'a>, partners: impl Iterator<Item = Partner<'b>>) {
        let side = if IS_LEFT { Side::Left } else { Side::Right };
        let event = |partner: Partner<'b>| Event { key: own.key, ts: partner.ts, row: partner.row };
        self.general.out.pairs(side, own, partners.map(event));
    }

    fn over(&mut self, index: usize) {
        self.general.over(index);
    }
}
