//! What the engine's pacer says of this producer's sources.

use super::{PortId, Producer};
use crate::exchange::{Pacer, Room, RowsAhead, WhenFull};
use crate::limits::CHUNK_EVENTS_MAX;

impl Producer {
    /// Has what is sent counted by the engine's pacer, which [`admits`](Self::admits) asks.
    pub fn paced_by(mut self, pacer: Pacer) -> Producer {
        self.pacer = Some(pacer);
        self
    }

    /// Whether a source may push its next rows, for sources that are kept together in event time
    /// and wait when state nears its bound; see [`Pacer::admits`]. Nothing is refused here.
    pub fn admits(&self, port: PortId, ahead: Option<&mut RowsAhead>) -> bool {
        let slot = &self.ports[port.0 as usize].slot;
        self.pacer.as_ref().is_none_or(|pacer| pacer.admits(slot, ahead))
    }

    /// Whether a caller may push more to a port; see [`Pacer::room`].
    pub fn room(&self, port: PortId, when_full: WhenFull) -> Room {
        let slot = &self.ports[port.0 as usize].slot;
        self.pacer.as_ref().map_or(Room::Free, |pacer| pacer.room(slot, when_full))
    }

    /// Bytes that may be pushed before [`room`](Self::room) must be asked for again.
    pub fn grant_bytes(&self) -> u64 {
        self.pacer.as_ref().map_or(u64::MAX, Pacer::grant_bytes)
    }

    /// How many events a source should push between two flushes; see [`Pacer::chunk_events_max`].
    pub fn chunk_events_max(&self) -> usize {
        self.pacer.as_ref().map_or(CHUNK_EVENTS_MAX, Pacer::chunk_events_max)
    }
}
