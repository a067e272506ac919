//! One file, read by several cores at once.
//!
//! Whoever is free takes the next block (reading is sequential, under a lock that is only tried)
//! and parses it, chunk by chunk. Events are sent in the order of the file: the core whose block is
//! the *front*, the oldest that was not completely sent, sends each chunk as it is parsed and
//! publishes the watermark after it; a core that is ahead holds its chunks until its turn. So state
//! holds no rows from beyond the front, watermarks move every few hundred rows whatever the cores,
//! and an event is early or in its place, never late. Sending costs a small part of what parsing
//! costs.
//!
//! A watermark is published under the lock that everybody who sent before has passed through, so
//! it never overtakes data.
//!
//! Under [`LatenessClock::Own`] an event is judged, when it is sent, by the watermark of all events
//! before it in the file: the same input gives the same late events on any number of cores.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::bad::{OnBadRow, SourceInfo};
use super::blocks::{Block, ReadError};
use super::input::{AnyReader, Input, Taken};
use super::late::Judge;
use super::order::{Order, SourceCounts};
use super::parse::{BlockParser, Chunk, Cursor};
use crate::error::{PushError, SourceError};
use crate::event::EventBatch;
use crate::exchange::{
    Feed, FeedProgress, Flow, PortId, Producer, Promise, RowsAhead, WatermarkSlot,
};
use crate::limits::{BLOCKS_AHEAD_MAX, CHUNK_EVENTS_FIRST, CHUNK_EVENTS_MAX};
use crate::time::{BoundedDisorder, Clock, Lateness, LatenessClock};

/// How a file becomes a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileOptions {
    /// How far the watermark trails the largest time, in ticks.
    pub disorder: i64,
    /// How far one row may move the watermark, in ticks; `None`: as far as it likes.
    pub max_jump: Option<i64>,
    /// The join's lateness.
    pub lateness: Lateness,
    /// After so much silence the source holds nobody back, until it speaks again. For streams that
    /// a thread reads; others are never silent.
    pub idle_timeout: Option<Duration>,
    /// Read on a thread of its own, so that no core waits in a read: for pipes.
    pub threaded: bool,
}

impl FileOptions {
    fn seen(&self) -> BoundedDisorder {
        let seen = BoundedDisorder::new(self.disorder);
        self.max_jump.map_or(seen, |ticks| seen.limit_jumps(ticks))
    }
}

/// One file or other stream as a source of a join. Clones are handles to the same source.
#[derive(Clone)]
pub struct FileSource(Arc<Shared>);

struct Shared {
    info: SourceInfo,
    parser: BlockParser,
    slot: WatermarkSlot,
    options: FileOptions,
    bad_rows: Arc<dyn OnBadRow>,
    /// Held while a block is read. Whoever finds it taken does something else.
    input: Mutex<Input>,
    /// Held for moments. Taken after `input`, never before it.
    state: Mutex<State>,
    /// The block whose turn it is to be sent; changed under the lock of `state`.
    front: AtomicU64,
}

struct State {
    order: Order,
    ahead: RowsAhead,
    /// When the last block was taken; none yet.
    heard_ns: Option<u64>,
    /// Since when all that was taken is sent and nothing more has come.
    quiet_ns: Option<u64>,
    idle: bool,
}

/// A stream that has had nothing for so long is silent, and other streams do not wait for it. Much
/// longer than one that is merely slower than others takes from block to block.
const SILENT_AFTER_NS: u64 = 10_000_000;

/// One core's hands on a [`FileSource`]: give each core one.
pub struct FileFeed {
    shared: Arc<Shared>,
    parser: BlockParser,
    port: Option<PortId>,
    block: Block,
    stage: Stage,
    cursor: Cursor,
    /// The first `parsed` are of the block at hand; those from `sent` on are still to be sent.
    chunks: Vec<Chunk>,
    parsed: usize,
    sent: usize,
    /// Chunks of the block so far.
    chunk_number: u32,
    /// Of the chunk that is being sent.
    counts: SourceCounts,
    judge: Judge,
    arrived_ns: u64,
}

/// Where a feed stands with its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has none.
    Free,
    /// It has one and decides what to do with it: parse or send a chunk, wait, hand the turn on.
    AtHand,
    /// Chunk `sent` is being sent, its batches from `part` on.
    Sending { part: usize },
    /// The chunk is pushed; lanes may still be full.
    Flushing,
    /// There are no more blocks.
    Ending,
}

impl FileSource {
    /// The source of `reader`'s remaining blocks. `slot` is its place in the table of watermarks;
    /// `parser` must have been made for that side and source.
    ///
    /// # Errors
    /// [`SourceError`] when the reading thread cannot be started.
    pub fn new(
        name: &str,
        reader: AnyReader,
        parser: BlockParser,
        slot: WatermarkSlot,
        bad_rows: Arc<dyn OnBadRow>,
        options: FileOptions,
    ) -> Result<FileSource, SourceError> {
        let info = SourceInfo {
            name: name.to_owned(),
            side: slot.side(),
            columns: parser.schema().columns().to_vec(),
        };
        let input = match options.threaded {
            true => Input::threaded(reader).map_err(|error| SourceError {
                message: format!("{name}: no thread to read it could be started: {error}"),
            })?,
            false => Input::Direct(Box::new(reader)),
        };
        if options.threaded {
            slot.set_live();
        }
        Ok(FileSource(Arc::new(Shared {
            info,
            parser,
            slot,
            options,
            bad_rows,
            input: Mutex::new(input),
            state: Mutex::new(State {
                order: Order::new(options.seen()),
                ahead: RowsAhead::default(),
                heard_ns: None,
                quiet_ns: None,
                idle: false,
            }),
            front: AtomicU64::new(0),
        })))
    }

    /// A feed for one core. Give every core one, whether it gets to do anything or not.
    pub fn feed(&self) -> FileFeed {
        let shared = Arc::clone(&self.0);
        let judge = Judge::new(shared.slot.side(), shared.options.lateness);
        FileFeed {
            parser: shared.parser.clone(),
            shared,
            port: None,
            block: Block::default(),
            stage: Stage::Free,
            cursor: Cursor::new(&Block::default()),
            chunks: Vec::new(),
            parsed: 0,
            sent: 0,
            chunk_number: 0,
            counts: SourceCounts::default(),
            judge,
            arrived_ns: 0,
        }
    }

    /// What was counted up to the front; complete when the source has finished.
    pub fn counts(&self) -> SourceCounts {
        self.0.state().order.counts()
    }

    /// Name, side and columns.
    pub fn info(&self) -> &SourceInfo {
        &self.0.info
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSource").field("info", &self.0.info).finish_non_exhaustive()
    }
}

impl fmt::Debug for FileFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileFeed")
            .field("source", &self.shared.info.name)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics half-way; a panic elsewhere stops the engine anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_error(&self, error: &ReadError) -> SourceError {
        SourceError { message: format!("{}: {error}", self.info.name) }
    }

    fn push_error(&self, error: &PushError) -> SourceError {
        SourceError { message: format!("{}: {error}", self.info.name) }
    }

    fn judges(&self) -> bool {
        self.options.lateness.clock == LatenessClock::Own
    }

    /// Whether it is this block's turn to be sent.
    fn is_front(&self, block: u64) -> bool {
        // Acquire pairs with the Release in `FileFeed::hand_on`: what was sent before is visible
        // to whoever sees what is sent and promised from now on.
        self.front.load(Ordering::Acquire) == block
    }
}

impl Feed for FileFeed {
    fn poll(
        &mut self,
        producer: &mut Producer,
        clock: &dyn Clock,
    ) -> Result<FeedProgress, SourceError> {
        let slot = &self.shared.slot;
        let port =
            *self.port.get_or_insert_with(|| producer.add_port(slot.clone(), Promise::Explicit));
        match self.stage {
            Stage::Free => self.take(producer, port, clock.now_ns()),
            Stage::AtHand => self.go_on(producer, port),
            Stage::Sending { part } => self.send(producer, port, part),
            Stage::Flushing => self.complete(producer, port),
            Stage::Ending => self.end(producer, port),
        }
    }
}

impl FileFeed {
    /// Takes the next block, if this is a moment for it.
    fn take(
        &mut self,
        producer: &mut Producer,
        port: PortId,
        now_ns: u64,
    ) -> Result<FeedProgress, SourceError> {
        let mut input = match self.shared.input.try_lock() {
            Ok(input) => input,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(FeedProgress::Waiting),
        };
        if self.shared.state().order.open_count() >= BLOCKS_AHEAD_MAX {
            return Ok(FeedProgress::Waiting);
        }
        let taken = input.take(&mut self.block).map_err(|error| self.shared.read_error(&error))?;
        let mut state = self.shared.state();
        match taken {
            Taken::Block => {
                state.order.taken(self.block.index);
                state.heard_ns = Some(now_ns);
                if state.quiet_ns.take().is_some() {
                    self.shared.slot.set_silent(false);
                }
                if std::mem::take(&mut state.idle) {
                    // Awake again, before its events arrive.
                    self.shared.slot.advance(state.order.watermark());
                }
                drop((state, input));
                self.arrived_ns = now_ns;
                self.cursor = Cursor::new(&self.block);
                (self.parsed, self.sent, self.chunk_number) = (0, 0, 0);
                self.stage = Stage::AtHand;
                Ok(FeedProgress::Busy)
            }
            Taken::Nothing => {
                if state.order.open_count() == 0 {
                    let since_ns = *state.quiet_ns.get_or_insert(now_ns);
                    if now_ns.saturating_sub(since_ns) >= SILENT_AFTER_NS {
                        self.shared.slot.set_silent(true);
                    }
                }
                let heard_ns = *state.heard_ns.get_or_insert(now_ns);
                let silent = Duration::from_nanos(now_ns.saturating_sub(heard_ns));
                let timed_out = self.shared.options.idle_timeout.is_some_and(|t| silent >= t);
                if timed_out && !state.idle && state.order.open_count() == 0 {
                    state.idle = true;
                    self.shared.slot.idle();
                    ring(producer, port);
                }
                Ok(FeedProgress::Waiting)
            }
            Taken::End => {
                state.order.end();
                self.stage = Stage::Ending;
                Ok(FeedProgress::Busy)
            }
        }
    }

    /// Sends a chunk if it may, parses one if there is one, hands the turn on if there is none.
    fn go_on(
        &mut self,
        producer: &mut Producer,
        port: PortId,
    ) -> Result<FeedProgress, SourceError> {
        let is_front = self.shared.is_front(self.block.index);
        let is_parsed = self.cursor.is_done(&self.block);
        if is_front && is_parsed && self.sent == self.parsed {
            return self.hand_on(producer, port);
        }
        let may_send = is_front && producer.admits(port, Some(&mut self.shared.state().ahead));
        if self.sent == self.parsed || (!may_send && !is_parsed) {
            self.parse(producer.chunk_events_max());
        } else if !may_send {
            return Ok(FeedProgress::Waiting);
        }
        if !may_send {
            return Ok(FeedProgress::Busy);
        }
        self.begin_to_send();
        self.send(producer, port, 0)
    }

    /// Parses one chunk.
    fn parse(&mut self, events_max: usize) {
        if self.sent == self.parsed {
            (self.sent, self.parsed) = (0, 0);
        }
        if self.parsed == self.chunks.len() {
            self.chunks.push(Chunk::new(self.shared.slot.side()));
        }
        let chunk = &mut self.chunks[self.parsed];
        chunk.events_max = match self.block.index {
            0 if self.chunk_number < CHUNK_EVENTS_MAX.ilog2() => {
                (CHUNK_EVENTS_FIRST << self.chunk_number).min(events_max)
            }
            _ => events_max,
        };
        self.parser.parse(&self.block, &mut self.cursor, chunk);
        chunk.events.arrived_ns = self.arrived_ns;
        chunk.nulls.arrived_ns = self.arrived_ns;
        self.parsed += 1;
        self.chunk_number += 1;
    }

    /// Counts what is in the chunk that is sent next, and judges it if that is done here.
    fn begin_to_send(&mut self) {
        let chunk = &mut self.chunks[self.sent];
        self.counts = SourceCounts {
            rows: chunk.row_count() as u64,
            bad: chunk.bad.len() as u64,
            null_key: chunk.nulls.len() as u64,
            ..SourceCounts::default()
        };
        self.judge.start(self.shared.state().order.seen());
        if self.shared.judges() {
            self.counts.late = self.judge.split(chunk);
        } else if self.shared.options.max_jump.is_some() {
            self.judge.pass(chunk);
        } else {
            self.judge.observe(chunk.max_ts);
        }
    }

    /// Pushes the batches of a chunk until they are gone or a lane is full.
    fn send(
        &mut self,
        producer: &mut Producer,
        port: PortId,
        mut part: usize,
    ) -> Result<FeedProgress, SourceError> {
        let Chunk { events, nulls, .. } = &self.chunks[self.sent];
        let parts: [&EventBatch; 3] = [events, nulls, self.judge.late()];
        let mut flow = producer.flow();
        while part < parts.len() && flow == Flow::Open {
            if !parts[part].is_empty() {
                let pushed = producer.push_batch(port, parts[part]);
                flow = pushed.map_err(|error| self.shared.push_error(&error))?;
            }
            part += 1;
        }
        if part < parts.len() {
            self.stage = Stage::Sending { part };
            return Ok(FeedProgress::Blocked);
        }
        self.stage = Stage::Flushing;
        self.complete(producer, port)
    }

    /// Sends what is left of the chunk, and publishes the watermark after it.
    fn complete(
        &mut self,
        producer: &mut Producer,
        port: PortId,
    ) -> Result<FeedProgress, SourceError> {
        if flush(producer, &self.shared)? == Flow::Blocked {
            return Ok(FeedProgress::Blocked);
        }
        let chunk = &mut self.chunks[self.sent];
        let mut state = self.shared.state();
        for row in chunk.bad.drain(..) {
            // Under the lock, so that rows come in the order of the file.
            self.shared.bad_rows.bad_row(&self.shared.info, &row)?;
        }
        let before = state.order.watermark();
        let seen = self.judge.seen();
        self.shared.slot.count_jumped(seen.jumps() - state.order.seen().jumps());
        state.order.sent(seen, &self.counts);
        state.ahead.push(before, self.counts.rows);
        let watermark = state.order.watermark();
        if watermark > before {
            // Everything up to here is in its lanes: whoever sent it has passed through this lock
            // since. Under the lock, so that watermarks are published in order.
            self.shared.slot.advance(watermark);
            ring(producer, port);
        }
        drop(state);
        self.sent += 1;
        self.stage = Stage::AtHand;
        let is_done = self.sent == self.parsed && self.cursor.is_done(&self.block);
        if is_done { self.hand_on(producer, port) } else { self.wake(producer) }
    }

    /// All of the block is sent: it is the next one's turn.
    fn hand_on(
        &mut self,
        producer: &mut Producer,
        port: PortId,
    ) -> Result<FeedProgress, SourceError> {
        let mut state = self.shared.state();
        state.order.done(self.block.bytes().len() as u64);
        // Release pairs with the Acquire in `Shared::is_front`.
        self.shared.front.store(self.block.index + 1, Ordering::Release);
        drop(state);
        self.stage = Stage::Free;
        ring(producer, port);
        self.wake(producer)
    }

    /// Wakes shards, and those who wait for their turn.
    fn wake(&self, producer: &mut Producer) -> Result<FeedProgress, SourceError> {
        // Nothing was pushed since the last flush, so it is open; it only rings.
        let _open = flush(producer, &self.shared)?;
        Ok(FeedProgress::Busy)
    }

    /// Waits until all blocks were sent, and then ends the source.
    fn end(&mut self, producer: &mut Producer, port: PortId) -> Result<FeedProgress, SourceError> {
        if !self.shared.state().order.is_finished() {
            return Ok(FeedProgress::Waiting);
        }
        // Every feed of the source says so; the first one counts.
        producer.finish(port);
        Ok(match flush(producer, &self.shared)? {
            Flow::Open => FeedProgress::Finished,
            Flow::Blocked => FeedProgress::Blocked,
        })
    }
}

/// Makes the next flush wake the shards, after a watermark was published past the producer.
fn ring(producer: &mut Producer, port: PortId) {
    // The port's own watermark is explicit, so a time that it sees moves nothing.
    producer.observe(port, i64::MIN);
}

fn flush(producer: &mut Producer, shared: &Shared) -> Result<Flow, SourceError> {
    producer.flush().map_err(|error| shared.push_error(&error))
}

#[cfg(test)]
mod tests;
