//! What all shards do together when state is over its bound and they are to make room.
//!
//! Near a bound each shard makes room of its own rows, as much as is its part. That is not enough
//! where the bound is small against what a batch and an empty shard take. Then the shard that finds
//! state over its bound calls. From then on no shard takes a batch; each makes its part of the room
//! in its next step and answers. If state is over its bound even then, all that can go is asked
//! for, and if that is not enough either, the join ends. So it ends only when nothing is left to go
//! on any shard, and what state has beyond its bound meanwhile is a batch a shard at the most.
//!
//! Nobody waits in a step, and a shard that waits answers, whatever else keeps it from being
//! stepped: so all answer. A shard that has ended has answered for ever.
//!
//! All but the look whether there is a call is as seldom as state is over its bound, so all
//! orderings here are SeqCst: of two shards that answer last, at least one sees both answers.

use crossbeam::utils::CachePadded;

use super::Pacer;
use crate::error::JoinError;
use crate::exchange::Doorbell;
use crate::exchange::sync::{AtomicI64, AtomicU64, Ordering, fence};

/// What a call asks of every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Its part of what is too much.
    Part,
    /// All that can go.
    All,
}

/// Why what waits between stages makes a join end.
pub(crate) enum KeptTooMuch {
    /// With it, state is over its bound.
    State(JoinError),
    /// By itself, it is; nothing can be done about it, as the text says.
    Rows(String),
}

/// The call under way, and who has answered it.
pub(super) struct Call {
    /// Four numbers for each call, in order: none, a part, all; the last one is not used.
    number: CachePadded<AtomicU64>,
    /// By shard: the last number that it has answered.
    answered: Box<[CachePadded<AtomicU64>]>,
    /// Bytes between stages, which are counted as state and which no shard can make room of: they
    /// go as soon as shards take batches again.
    kept: CachePadded<AtomicI64>,
}

const NUMBERS_PER_CALL: u64 = 4;

impl Call {
    pub(super) fn new(shard_count: usize) -> Call {
        Call {
            number: CachePadded::new(AtomicU64::new(0)),
            answered: (0..shard_count).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            kept: CachePadded::new(AtomicI64::new(0)),
        }
    }

    fn has_all_answers(&self, number: u64) -> bool {
        // SeqCst: see the module.
        self.answered.iter().all(|answered| answered.load(Ordering::SeqCst) >= number)
    }
}

fn ask_of(number: u64) -> Option<Ask> {
    match number % NUMBERS_PER_CALL {
        0 => None,
        1 => Some(Ask::Part),
        _ => Some(Ask::All),
    }
}

impl Pacer {
    /// Whether shards are called to make room. Costs a read of a line that is seldom written.
    #[inline]
    pub(crate) fn is_calling(&self) -> bool {
        // SeqCst, which is a plain load on most machines: see the module.
        ask_of(self.0.call.number.load(Ordering::SeqCst)).is_some()
    }

    /// The call under way, by a number that goes up with each and with what it asks for.
    pub(crate) fn called(&self) -> Option<(u64, Ask)> {
        let number = self.0.call.number.load(Ordering::SeqCst);
        ask_of(number).map(|ask| (number, ask))
    }

    /// Calls all shards to make room, unless they are called already.
    pub(crate) fn call_shards(&self) {
        let number = self.0.call.number.load(Ordering::SeqCst);
        if ask_of(number).is_none() {
            self.go_on(number, number + 1);
        }
    }

    /// A shard has done what a call asks for.
    pub(crate) fn answer(&self, shard: usize, number: u64) {
        self.0.call.answered[shard].store(number, Ordering::SeqCst);
    }

    /// A shard has ended and makes no room any more; it had so many bytes and rows.
    pub(crate) fn leave(&self, shard: usize, (bytes, rows): (i64, i64)) {
        self.change_bytes(shard, -bytes);
        self.change_rows(shard, -rows);
        self.answer(shard, u64::MAX);
        if self.is_calling() {
            self.wake_shards();
        }
    }

    /// Judges a call once all shards have answered it; returns whether it goes on no more as it
    /// was: it is over, or asks for more.
    ///
    /// # Errors
    /// [`JoinError::StateFull`] and [`JoinError::RowsFull`] when all was asked for and was not
    /// enough.
    pub(crate) fn conclude(&self, number: u64) -> Result<bool, JoinError> {
        let call = &self.0.call;
        if call.number.load(Ordering::SeqCst) != number {
            return Ok(true);
        }
        if !call.has_all_answers(number) {
            return Ok(false);
        }
        let excess = self.excess();
        // What was seen counts if the call was not over by then: shards go on as soon as it is.
        // SeqCst: the sizes were read before the number is.
        fence(Ordering::SeqCst);
        if call.number.load(Ordering::SeqCst) != number {
            return Ok(true);
        }
        let next = match (excess, ask_of(number)) {
            (None, _) => number - number % NUMBERS_PER_CALL + NUMBERS_PER_CALL,
            (Some(_), Some(Ask::Part)) => number + 1,
            (Some(error), _) => return Err(error),
        };
        self.go_on(number, next);
        Ok(true)
    }

    /// What state has over its bound; where shards make room, without what is on its way between
    /// stages.
    pub(crate) fn excess(&self) -> Option<JoinError> {
        let kept = self.0.call.kept.load(Ordering::SeqCst).max(0) as u64;
        let kept = if self.makes_room() { kept } else { 0 };
        let (bytes, rows) = (self.state_bytes().saturating_sub(kept), self.state_rows());
        match (self.state_bytes_max(), self.state_rows_max()) {
            (Some(bytes_max), _) if bytes > bytes_max => {
                Some(JoinError::StateFull { bytes, bytes_max })
            }
            (_, Some(rows_max)) if rows > rows_max => Some(JoinError::RowsFull { rows, rows_max }),
            _ => None,
        }
    }

    /// What waits between a shard and the next stage has changed by so many bytes. Returns why the
    /// join ends, if it does: because of all of state where nobody makes room, else of what is
    /// between stages alone.
    pub(crate) fn change_kept(&self, shard: usize, change: i64) -> Option<KeptTooMuch> {
        let kept = self.0.call.kept.fetch_add(change, Ordering::SeqCst) + change;
        let all = self.change_bytes(shard, change);
        let (makes_room, bytes_max) = (self.makes_room(), self.state_bytes_max()?);
        let bytes = if makes_room { kept.max(0) as u64 } else { all };
        (bytes > bytes_max && change > 0).then(|| match makes_room {
            true => KeptTooMuch::Rows(format!(
                "a stage has found {bytes} bytes of rows that the next one has not taken yet, and \
                 state may have {bytes_max}; raise that bound, or narrow the stage's interval"
            )),
            false => KeptTooMuch::State(JoinError::StateFull { bytes, bytes_max }),
        })
    }

    fn go_on(&self, number: u64, next: u64) {
        let call = &self.0.call.number;
        // If it fails, somebody else has done it.
        if call.compare_exchange(number, next, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.wake_shards();
        }
    }

    fn wake_shards(&self) {
        self.0.bells.iter().for_each(Doorbell::ring);
    }
}
