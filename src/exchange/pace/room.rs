//! Whether state has room for what callers push.

use std::sync::PoisonError;

use crate::exchange::pace::{PRESSED_EIGHTHS, Pacer};
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
}

/// From so many eighths of its bound on, state takes no more from callers: an index that grows
/// needs half as much again for a while, and what is under way is only estimated.
const FULL_EIGHTHS: i64 = 5;

/// Of a bound on state, a source may push one part in so many between two looks at the room.
const GRANT_SHARE: u64 = 1024;

/// It is at most so many bytes.
const GRANT_BYTES_MAX: u64 = 16 << 10;

impl Pacer {
    /// Whether a caller may push more to a source. Costs what [`admits`](Self::admits) does.
    pub fn room(&self, slot: &WatermarkSlot, when_full: WhenFull) -> Room {
        let room = match when_full {
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
        match (self.state_bytes_max(), self.0.pace.max_drift) {
            (None, None) => u64::MAX,
            (bound, _) => {
                bound.map_or(GRANT_BYTES_MAX, |bytes| bytes / GRANT_SHARE).min(GRANT_BYTES_MAX)
            }
        }
    }

    /// Adds whoever waits for [`Room::Soon`] to those who are called when things have changed.
    pub fn call(&self, bell: Doorbell) {
        self.0.callers.lock().unwrap_or_else(PoisonError::into_inner).push(bell);
    }

    fn room_now(&self) -> Room {
        // Relaxed: see the module's text.
        if !self.nears(FULL_EIGHTHS, self.0.in_flight.load(Ordering::Relaxed)) {
            Room::Free
        } else if self.nears(FULL_EIGHTHS, 0) && self.is_settled() {
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
        if is_behind && self.nears(PRESSED_EIGHTHS, 0) && self.is_settled() {
            self.none()
        } else if self.admits(slot, None) {
            Room::Free
        } else {
            Room::Soon
        }
    }

    fn none(&self) -> Room {
        let bytes_max = self.state_bytes_max().unwrap_or(u64::MAX);
        Room::None { bytes: self.state_bytes(), bytes_max }
    }
}
