//! Push sources: handles by which a caller's threads feed an engine.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::engine::{EngineError, Shared};
use crate::error::PushError;
use crate::event::{EventBatch, Key, KeyHasher, Side};
use crate::exchange::{Doorbell, Flow, PortId, Producer, Room, WhenFull};
use crate::time::{Clock, MonotonicClock, Timestamp};

/// One source of one side, fed by a caller's thread.
///
/// Events are collected into batches and leave when a batch is full, when they have lingered
/// (`linger` of the builder; a core of the engine sees to that), or at a [`flush`](Self::flush).
/// Dropping the handle ends the source like [`finish`](Self::finish); if the thread panics
/// meanwhile, the engine stops with [`EngineError::SourcePanicked`].
///
/// A call costs an uncontended lock and a look at the clock beside the push itself.
#[derive(Debug)]
pub struct Source {
    cell: Arc<SourceCell>,
    shared: Arc<Shared>,
    hasher: KeyHasher,
    clock: MonotonicClock,
    /// Bytes that it may still push before it asks for room in state again.
    granted_bytes: u64,
    finished: bool,
}

/// What a handle shares with the core that serves it.
#[derive(Debug)]
pub(super) struct SourceCell {
    stage: usize,
    side: Side,
    intake: Mutex<Intake>,
    /// When the oldest of what has not been flushed came, or [`NOTHING_PENDING`].
    pending_since_ns: AtomicU64,
    gate: Arc<Gate>,
    /// The bell that links ring when a spent batch has come back.
    room: Doorbell,
    /// The core that flushes what lingers.
    servant: Doorbell,
}

#[derive(Debug)]
pub(super) struct Intake {
    pub(super) producer: Producer,
    port: PortId,
}

impl Intake {
    fn room(&self, when_full: WhenFull) -> Room {
        self.producer.room(self.port, when_full)
    }
}

/// What an event takes beside its key and row.
const EVENT_BYTES: usize = 24;

fn event_bytes(key: Key<'_>, row: &[u8]) -> u64 {
    let key_bytes = if let Key::Bytes(key) = key { key.len() } else { 0 };
    (EVENT_BYTES + key_bytes + row.len()) as u64
}

const NOTHING_PENDING: u64 = u64::MAX;

/// Longest wait for room in one go: the gate is rung when there is some, so this only bounds what
/// a handle that waits on a stopped engine costs.
const ROOM_WAIT: Duration = Duration::from_millis(50);

impl Source {
    pub(super) fn new(cell: Arc<SourceCell>, shared: Arc<Shared>, hasher: KeyHasher) -> Source {
        Source { cell, shared, hasher, clock: MonotonicClock, granted_bytes: 0, finished: false }
    }

    /// The side that it feeds.
    pub fn side(&self) -> Side {
        self.cell.side
    }

    /// The hasher that fills an [`EventBatch`] for [`push_batch`](Self::push_batch).
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// Pushes an event with its time in ticks; waits while the lanes are full, and for room in
    /// state as [`EngineBuilder::when_full`](crate::engine::EngineBuilder::when_full) says.
    ///
    /// # Errors
    /// [`PushError`] when the event is refused or the engine has stopped. After
    /// [`PushError::StateFull`] and [`PushError::RowsFull`] the event may be pushed again.
    pub fn push(&mut self, key: Key<'_>, ts: i64, row: &[u8]) -> Result<(), PushError> {
        let ts = Timestamp::new(ts).ok_or(PushError::NoTimestamp)?;
        self.with_room(event_bytes(key, row), |intake| {
            intake.producer.push(intake.port, key, ts, row).map(drop)
        })
    }

    /// Pushes an event if there is room for it.
    ///
    /// # Errors
    /// [`PushError::Backpressure`] when a lane is full, or state until the shards have freed some
    /// of it: try again later; others as [`push`](Self::push).
    pub fn try_push(&mut self, key: Key<'_>, ts: i64, row: &[u8]) -> Result<(), PushError> {
        let ts = Timestamp::new(ts).ok_or(PushError::NoTimestamp)?;
        self.find_room(event_bytes(key, row))?;
        self.attempt(|intake| intake.producer.push(intake.port, key, ts, row).map(drop))
    }

    /// Pushes all events of a batch, whose keys were made by [`hasher`](Self::hasher); waits while
    /// the lanes are full. Cheaper an event than [`push`](Self::push).
    ///
    /// # Errors
    /// As [`push`](Self::push); nothing of the batch was taken then, unless the engine has stopped.
    pub fn push_batch(&mut self, batch: &EventBatch) -> Result<(), PushError> {
        let bytes = batch.row_bytes() + EVENT_BYTES * batch.len();
        self.with_room(bytes as u64, |intake| {
            intake.producer.push_batch(intake.port, batch).map(drop)
        })
    }

    /// Promises that no event with a smaller time (in ticks) will follow. It takes effect behind
    /// the events that were pushed before; a smaller promise than before is counted and ignored.
    ///
    /// # Errors
    /// [`PushError::Stopped`] when the engine has stopped.
    pub fn watermark(&mut self, watermark: i64) -> Result<(), PushError> {
        self.tell(|intake| intake.producer.promise(intake.port, watermark))
    }

    /// Says that the source is silent: it holds its side's watermark back no more, until the next
    /// [`watermark`](Self::watermark) (or the next event, if the watermark follows events).
    ///
    /// # Errors
    /// [`PushError::Stopped`] when the engine has stopped.
    pub fn idle(&mut self) -> Result<(), PushError> {
        self.tell(|intake| intake.producer.idle(intake.port))
    }

    /// Sends everything, watermark included; waits while the lanes are full. It does not wait until
    /// the events are joined: [`Engine::flush`](crate::engine::Engine::flush) does.
    ///
    /// # Errors
    /// [`PushError::Stopped`] when the engine has stopped.
    pub fn flush(&mut self) -> Result<(), PushError> {
        let shared = Arc::clone(&self.shared);
        self.cell.flush(&shared)
    }

    /// Ends the source; does not wait. Its side's watermark reaches the end when all sources of the
    /// side have ended and all they pushed was sent.
    ///
    /// # Errors
    /// [`PushError::Stopped`] when the engine has stopped.
    pub fn finish(mut self) -> Result<(), PushError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), PushError> {
        self.finished = true;
        let mut intake = self.cell.lock();
        let port = intake.port;
        intake.producer.finish(port);
        // What does not go out now is sent by the core that serves this source.
        let flushed = intake.producer.flush().map(drop);
        self.cell.note_pending(&intake, 0);
        flushed
    }

    /// Changes what the next flush publishes.
    fn tell(&mut self, change: impl FnOnce(&mut Intake)) -> Result<(), PushError> {
        if self.shared.control.is_stopped() {
            return Err(PushError::Stopped);
        }
        self.attempt(|intake| {
            change(intake);
            Ok(())
        })
    }

    fn attempt<R>(
        &mut self,
        attempt: impl FnOnce(&mut Intake) -> Result<R, PushError>,
    ) -> Result<R, PushError> {
        let now_ns = self.clock.now_ns();
        let mut intake = self.cell.lock();
        intake.producer.set_now(now_ns);
        let mut result = attempt(&mut intake);
        if self.shared.linger_ns == 0 && result.is_ok() {
            // Full lanes keep it pending; the servant goes on with it.
            if let Err(error) = intake.producer.flush() {
                result = Err(error);
            }
        }
        self.cell.note_pending(&intake, now_ns);
        result
    }

    fn with_room<R>(
        &mut self,
        bytes: u64,
        mut attempt: impl FnMut(&mut Intake) -> Result<R, PushError>,
    ) -> Result<R, PushError> {
        loop {
            match self.find_room(bytes).and_then(|()| self.attempt(&mut attempt)) {
                Err(PushError::Backpressure) => {}
                other => return other,
            }
            let shared = Arc::clone(&self.shared);
            self.cell.wait_for_room(&shared, Some(shared.when_full))?;
        }
    }

    /// Makes sure that state has room for so many bytes more.
    #[inline]
    fn find_room(&mut self, bytes: u64) -> Result<(), PushError> {
        if self.granted_bytes < bytes {
            self.granted_bytes = self.ask_for_room()?.max(bytes);
        }
        self.granted_bytes -= bytes;
        Ok(())
    }

    #[cold]
    fn ask_for_room(&mut self) -> Result<u64, PushError> {
        let when_full = self.shared.when_full;
        if self.shared.control.is_stopped() {
            return Err(PushError::Stopped);
        }
        let mut intake = self.cell.lock();
        let mut room = intake.room(when_full);
        if room != Room::Free {
            // What was pushed and promised is to be joined and to free what it can.
            intake.producer.set_now(self.clock.now_ns());
            let flushed = intake.producer.flush();
            self.cell.note_pending(&intake, 0);
            if flushed? == Flow::Blocked {
                return Err(PushError::Backpressure);
            }
            room = intake.room(when_full);
        }
        match room {
            Room::Free => Ok(intake.producer.grant_bytes()),
            Room::Soon => Err(PushError::Backpressure),
            Room::None { bytes, bytes_max } => Err(PushError::StateFull { bytes, bytes_max }),
            Room::NoRows { rows, rows_max } => Err(PushError::RowsFull { rows, rows_max }),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if std::thread::panicking() {
            // Ending the source would pass what was pushed so far off as all there is.
            self.shared.fail(EngineError::SourcePanicked);
        } else {
            // An engine that has stopped says so in its report.
            let _ = self.end();
        }
    }
}

/// What a look at a source by its servant came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Nothing is pending.
    Nothing,
    /// Something was sent.
    Flushed,
    /// Something is pending and due in so many nanoseconds.
    DueIn(u64),
}

impl SourceCell {
    pub(super) fn new(
        (stage, side): (usize, Side),
        producer: Producer,
        port: PortId,
        gate: Arc<Gate>,
        room: Doorbell,
        servant: Doorbell,
    ) -> SourceCell {
        SourceCell {
            stage,
            side,
            intake: Mutex::new(Intake { producer, port }),
            pending_since_ns: AtomicU64::new(NOTHING_PENDING),
            gate,
            room,
            servant,
        }
    }

    /// The stage of a chain whose source it is.
    pub(super) fn stage(&self) -> usize {
        self.stage
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Intake> {
        // A panic inside a push is a fault of the engine; what it holds stays consistent enough to
        // be counted, and the engine stops.
        self.intake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits for room looks again, e.g. because the engine has stopped.
    pub(super) fn ring(&self) {
        self.gate.ring();
    }

    /// Sends everything and publishes; waits while the lanes are full.
    pub(super) fn flush(&self, shared: &Shared) -> Result<(), PushError> {
        loop {
            {
                let mut intake = self.lock();
                let flow = intake.producer.flush();
                self.note_pending(&intake, 0);
                if flow? == Flow::Open {
                    return Ok(());
                }
            }
            self.wait_for_room(shared, None)?;
        }
    }

    /// Sends what has lingered, if the handle is not being used at this moment.
    pub(super) fn serve(&self, now_ns: u64, linger_ns: u64) -> Served {
        // Relaxed: the handle rings its servant after it stored this, and the bell orders it.
        let since_ns = self.pending_since_ns.load(Ordering::Relaxed);
        if since_ns == NOTHING_PENDING {
            return Served::Nothing;
        }
        let due_ns = since_ns.saturating_add(linger_ns);
        if now_ns < due_ns {
            return Served::DueIn(due_ns - now_ns);
        }
        let mut intake = match self.intake.try_lock() {
            Ok(intake) => intake,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Served::DueIn(linger_ns),
        };
        let flow = intake.producer.flush();
        self.note_pending(&intake, since_ns);
        match flow {
            Ok(Flow::Open) => Served::Flushed,
            Ok(Flow::Blocked) => Served::DueIn(linger_ns),
            // The engine is stopping.
            Err(_) => Served::Nothing,
        }
    }

    /// Keeps `pending_since_ns` in step with the producer; call it before the lock is released.
    fn note_pending(&self, intake: &Intake, now_ns: u64) {
        // Relaxed: only written under the lock; see `serve` for the reader without it.
        let since_ns = self.pending_since_ns.load(Ordering::Relaxed);
        if !intake.producer.needs_flush() {
            if since_ns != NOTHING_PENDING {
                self.pending_since_ns.store(NOTHING_PENDING, Ordering::Relaxed);
            }
        } else if now_ns < since_ns {
            // Relaxed: the bell orders it for the servant.
            self.pending_since_ns.store(now_ns, Ordering::Relaxed);
            self.servant.ring();
        }
    }

    /// For room in the lanes; in state, too, where it is said what is to be done without.
    fn wait_for_room(&self, shared: &Shared, state: Option<WhenFull>) -> Result<(), PushError> {
        let rings = self.gate.rings();
        // Never disarmed: more than one thread may wait (a handle and `Engine::flush`), and a ring
        // too many only makes them look once more.
        self.room.prepare();
        let mut intake = self.lock();
        let flow = intake.producer.flush();
        self.note_pending(&intake, 0);
        if flow? == Flow::Open && state.is_none_or(|when_full| intake.room(when_full) != Room::Soon)
        {
            return Ok(());
        }
        drop(intake);
        if shared.control.is_stopped() {
            return Err(PushError::Stopped);
        }
        self.gate.wait(rings, ROOM_WAIT);
        Ok(())
    }
}

/// Where threads wait for room in the lanes of a source.
#[derive(Debug, Default)]
pub(super) struct Gate {
    rings: Mutex<u64>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn ring(&self) {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    fn rings(&self) -> u64 {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when it has rung since there were `seen` rings, or after `timeout`.
    fn wait(&self, seen: u64, timeout: Duration) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        // Whether it rang or the time was up, the caller looks again.
        let _ = self.changed.wait_timeout_while(rings, timeout, |rings| *rings == seen);
    }
}

/// All push sources of an engine, ended ones included: their counts belong to the report.
#[derive(Debug, Default)]
pub(super) struct Registry {
    cells: Mutex<Vec<Arc<SourceCell>>>,
    count: AtomicUsize,
}

impl Registry {
    /// Adds the source that `make` makes, given its number.
    pub(super) fn add(&self, make: impl FnOnce(usize) -> SourceCell) -> Arc<SourceCell> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = Arc::new(make(cells.len()));
        cells.push(Arc::clone(&cell));
        // Release pairs with the Acquire in `serve_from`: whoever sees the count sees the cell.
        self.count.store(cells.len(), Ordering::Release);
        cell
    }

    pub(super) fn all(&self) -> Vec<Arc<SourceCell>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Appends those of the sources from number `seen` on that `servant` of `servants` serves;
    /// returns the next number to ask from. Costs a load while there are none.
    pub(super) fn serve_from(
        &self,
        seen: usize,
        (servant, servants): (usize, usize),
        served: &mut Vec<Arc<SourceCell>>,
    ) -> usize {
        // Acquire: see `add`.
        if self.count.load(Ordering::Acquire) == seen {
            return seen;
        }
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let new = cells.iter().enumerate().skip(seen);
        served.extend(
            new.filter(|(number, _)| number % servants == servant)
                .map(|(_, cell)| Arc::clone(cell)),
        );
        cells.len()
    }
}
