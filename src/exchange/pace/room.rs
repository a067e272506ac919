//! Whether state has room for what callers push.

use std::sync::PoisonError;

use crate::exchange::pace::{EVENT_BYTES, PRESSED_EIGHTHS, Pacer};
use crate::exchange::sync::Ordering;
use crate::exchange::{Doorbell, WatermarkSlot};
use crate::time::SourceState;

/// What becomes of an event that a caller pushes when state nears its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused with [`PushError::StateFull`](crate::error::PushError::StateFull), and the
    /// engine goes on. A push waits at most until the shards have freed what the watermarks of the
    /// moment allow, never for another source: one thread may feed all of them.
    #[default]
    Refuse,
    /// The push waits until the other sources' watermarks have freed enough, and while its source
    /// runs ahead of them by more than the engine's drift. A source that is behind all others never
    /// waits for them; it is refused once no waiting could free anything. For threads that feed one
    /// source each: one that feeds two would wait for itself.
    Wait,
    /// It is taken, and the engine stops with an error when the bound is passed.
    Fail,
}

/// What a source may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room.
    Free,
    /// Not now; what would make room is under way.
    Soon,
    /// There is none, and waiting makes none.
    None {
        /// Bytes of state.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// There is none for more rows, and waiting makes none.
    NoRows {
        /// Rows in state.
        rows: u64,
        /// The bound.
        rows_max: u64,
    },
}

/// From so many eighths of its bound on, state takes no more from callers: an index that grows
/// needs half as much again for a while, and what is under way is only estimated.
const FULL_EIGHTHS: i64 = 5;

/// The same of a bound on rows, of which nothing grows but by what is under way.
const ROWS_FULL_EIGHTHS: i64 = 7;

/// Of a bound on state, a source may push one part in so many between two looks at the room.
const GRANT_SHARE: u64 = 1024;

/// It is at most so many bytes.
const GRANT_BYTES_MAX: u64 = 16 << 10;

impl Pacer {
    /// Whether a caller may push more to a source. Costs what [`admits`](Self::admits) does.
    pub fn room(&self, slot: &WatermarkSlot, when_full: WhenFull) -> Room {
        let room = match when_full {
            // Shards make room.
            WhenFull::Refuse | WhenFull::Wait if self.makes_room() => {
                let waits = when_full == WhenFull::Wait && !self.admits(slot, None);
                if waits { Room::Soon } else { Room::Free }
            }
            WhenFull::Refuse => self.room_now(),
            WhenFull::Wait => self.room_later(slot),
            WhenFull::Fail => Room::Free,
        };
        if room == Room::Soon {
            self.note_refusal();
        }
        room
    }

    /// Bytes that may be pushed to a source before it must ask for room again.
    pub fn grant_bytes(&self) -> u64 {
        let rows_max = self.state_rows_max();
        let by_rows = rows_max.map(|rows| (rows / GRANT_SHARE).saturating_mul(EVENT_BYTES as u64));
        let by_bytes = self.state_bytes_max().map(|bytes| bytes / GRANT_SHARE);
        match (by_bytes.into_iter().chain(by_rows).min(), self.0.pace.max_drift) {
            (None, None) => u64::MAX,
            (bound, _) => bound.map_or(GRANT_BYTES_MAX, |bytes| bytes.min(GRANT_BYTES_MAX)),
        }
    }

    /// Adds whoever waits for [`Room::Soon`] to those who are called when things have changed.
    pub fn call(&self, bell: Doorbell) {
        self.0.callers.lock().unwrap_or_else(PoisonError::into_inner).push(bell);
    }

    fn room_now(&self) -> Room {
        // Relaxed: see the module's text.
        if !self.is_full(self.0.in_flight.load(Ordering::Relaxed)) {
            Room::Free
        } else if self.is_full(0) && self.is_settled() {
            self.none()
        } else {
            Room::Soon
        }
    }

    fn room_later(&self, slot: &WatermarkSlot) -> Room {
        let is_behind = match slot.current() {
            SourceState::Active(own) => self.slowest().of_all.is_none_or(|all| own <= all),
            _ => true,
        };
        let is_pressed =
            || self.nears(PRESSED_EIGHTHS, 0) || self.nears_in_rows(PRESSED_EIGHTHS, 0);
        if is_behind && is_pressed() && self.is_settled() {
            self.none()
        } else if self.admits(slot, None) {
            Room::Free
        } else {
            Room::Soon
        }
    }

    fn is_full(&self, in_flight: i64) -> bool {
        self.nears(FULL_EIGHTHS, in_flight) || self.nears_in_rows(ROWS_FULL_EIGHTHS, in_flight)
    }

    /// By the bound that is nearer.
    fn none(&self) -> Room {
        let bytes_max = self.state_bytes_max().unwrap_or(u64::MAX);
        let (bytes, rows) = (self.state_bytes(), self.state_rows());
        let part = |now: u64, most: u64| now as f64 / most as f64;
        match self.state_rows_max() {
            Some(rows_max) if part(rows, rows_max) >= part(bytes, bytes_max) => {
                Room::NoRows { rows, rows_max }
            }
            _ => Room::None { bytes, bytes_max },
        }
    }
}
