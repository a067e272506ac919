//! One file, read by several cores at once.
//!
//! Whoever is free takes the next block (reading is sequential, under a lock that is only tried),
//! parses it and sends its events without waiting for the blocks before it. The watermark follows
//! the *front*: the first block that was not completely sent. It is published under the lock that
//! moves the front, after everything before the front was pushed to its lanes, so it never
//! overtakes data, and events that are sent ahead of it are early, never late.
//!
//! Under [`LatenessClock::Own`] an event is judged by the watermark of all events before it in the
//! file. A block's events are then held until the largest time of all blocks before it is known,
//! which takes parsing, not sending: the same input gives the same late events on any number of
//! cores.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::bad::{OnBadRow, SourceInfo};
use super::blocks::{Block, ReadError};
use super::input::{AnyReader, Input, Taken};
use super::late::Judge;
use super::order::{Order, Outcome, SourceCounts};
use super::parse::{BlockParser, Chunk, Cursor};
use crate::error::{PushError, SourceError};
use crate::event::EventBatch;
use crate::exchange::{Feed, FeedProgress, Flow, PortId, Producer, Promise, WatermarkSlot};
use crate::limits::BLOCKS_AHEAD_MAX;
use crate::time::{Clock, Lateness, LatenessClock, WATERMARK_START};

/// How a file becomes a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileOptions {
    /// How far the watermark trails the largest time, in ticks.
    pub disorder: i64,
    /// The join's lateness.
    pub lateness: Lateness,
    /// After so much silence the source holds nobody back, until it speaks again. For streams that
    /// a thread reads; others are never silent.
    pub idle_timeout: Option<Duration>,
    /// Read on a thread of its own, so that no core waits in a read: for pipes.
    pub threaded: bool,
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
}

struct State {
    order: Order,
    feed_count: usize,
    /// When the last block was taken; none yet.
    heard_ns: Option<u64>,
    idle: bool,
}

/// One core's hands on a [`FileSource`]: give each core one.
pub struct FileFeed {
    shared: Arc<Shared>,
    parser: BlockParser,
    port: Option<PortId>,
    block: Block,
    stage: Stage,
    cursor: Cursor,
    outcome: Outcome,
    /// Chunks of the block at hand: being pushed or, under `LatenessClock::Own`, held.
    chunks: Vec<Chunk>,
    chunk_count: usize,
    judge: Judge,
    arrived_ns: u64,
}

/// Where a feed stands with its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has none.
    Free,
    /// Chunks are parsed, and sent at once unless lateness is judged here.
    Parsing,
    /// Waits for the largest time of the blocks before; then judges.
    Holding,
    /// Chunk `chunk` is being sent, its batches from `part` on. `more`: parsing goes on after it.
    Sending { chunk: usize, part: usize, more: bool },
    /// Everything is pushed; lanes may still be full.
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
        Ok(FileSource(Arc::new(Shared {
            info,
            parser,
            slot,
            options,
            bad_rows,
            input: Mutex::new(input),
            state: Mutex::new(State {
                order: Order::new(options.disorder),
                feed_count: 0,
                heard_ns: None,
                idle: false,
            }),
        })))
    }

    /// A feed for one core. Give every core one, whether it gets to do anything or not.
    pub fn feed(&self) -> FileFeed {
        let shared = Arc::clone(&self.0);
        shared.state().feed_count += 1;
        let judge = Judge::new(shared.slot.side(), shared.options.lateness);
        FileFeed {
            parser: shared.parser.clone(),
            shared,
            port: None,
            block: Block::default(),
            stage: Stage::Free,
            cursor: Cursor::new(&Block::default()),
            outcome: Outcome::default(),
            chunks: Vec::new(),
            chunk_count: 0,
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
            Stage::Parsing => Ok(self.parse()),
            Stage::Holding => Ok(self.hold()),
            Stage::Sending { chunk, part, more } => self.send(producer, port, chunk, part, more),
            Stage::Flushing => self.complete(producer, port),
            Stage::Ending => self.end(producer, port),
        }
    }

    fn slot(&self) -> Option<&WatermarkSlot> {
        Some(&self.shared.slot)
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
        let state = self.shared.state();
        if state.order.open_count() >= (2 * state.feed_count).min(BLOCKS_AHEAD_MAX) {
            // Somebody holds the front, and what was sent ahead of it piles up in state.
            return Ok(FeedProgress::Waiting);
        }
        drop(state);
        let taken = input.take(&mut self.block).map_err(|error| self.shared.read_error(&error))?;
        let mut state = self.shared.state();
        match taken {
            Taken::Block => {
                state.order.taken(self.block.index);
                state.heard_ns = Some(now_ns);
                if std::mem::take(&mut state.idle) {
                    // Awake again, before its events arrive.
                    self.shared.slot.advance(state.order.watermark());
                }
                drop((state, input));
                self.arrived_ns = now_ns;
                self.cursor = Cursor::new(&self.block);
                self.outcome = Outcome::default();
                self.outcome.counts.bytes = self.block.bytes().len() as u64;
                self.chunk_count = 0;
                self.stage = Stage::Parsing;
                Ok(FeedProgress::Busy)
            }
            Taken::Nothing => {
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

    /// Parses one chunk.
    fn parse(&mut self) -> FeedProgress {
        let at = self.chunk_count;
        if at == self.chunks.len() {
            self.chunks.push(Chunk::new(self.shared.slot.side()));
        }
        let chunk = &mut self.chunks[at];
        self.parser.parse(&self.block, &mut self.cursor, chunk);
        chunk.events.arrived_ns = self.arrived_ns;
        chunk.nulls.arrived_ns = self.arrived_ns;
        let counts = &mut self.outcome.counts;
        counts.rows += chunk.row_count() as u64;
        counts.bad += chunk.bad.len() as u64;
        counts.null_key += chunk.nulls.len() as u64;
        self.outcome.bad.append(&mut chunk.bad);
        let before = self.outcome.max_ts.unwrap_or(i64::MIN);
        self.outcome.max_ts = Some(before.max(chunk.max_ts)).filter(|&max| max != i64::MIN);
        let more = !self.cursor.is_done(&self.block);
        if !self.shared.judges() {
            self.stage = Stage::Sending { chunk: at, part: 0, more };
            return FeedProgress::Busy;
        }
        self.chunk_count += 1;
        if !more {
            let max_ts = self.outcome.max_ts.unwrap_or(i64::MIN);
            self.shared.state().order.announce(self.block.index, max_ts);
            self.stage = Stage::Holding;
        }
        FeedProgress::Busy
    }

    /// Waits for the largest time of the blocks before.
    fn hold(&mut self) -> FeedProgress {
        let Some(max_before) = self.shared.state().order.max_before(self.block.index) else {
            return FeedProgress::Waiting;
        };
        self.judge.start(max_before, self.shared.options.disorder);
        self.outcome.counts.late += self.judge.split(&mut self.chunks[0]);
        self.stage = Stage::Sending { chunk: 0, part: 0, more: false };
        FeedProgress::Busy
    }

    /// Pushes the batches of one chunk until they are gone or a lane is full.
    fn send(
        &mut self,
        producer: &mut Producer,
        port: PortId,
        chunk: usize,
        mut part: usize,
        more: bool,
    ) -> Result<FeedProgress, SourceError> {
        let (events, nulls) = (&self.chunks[chunk].events, &self.chunks[chunk].nulls);
        let parts: [&EventBatch; 3] = [events, nulls, self.judge.late()];
        let mut flow = producer.flow();
        while part < parts.len() && flow == Flow::Open {
            if !parts[part].is_empty() {
                let pushed = producer.push_batch(port, parts[part]);
                flow = pushed.map_err(|error| self.shared.push_error(&error))?;
            }
            part += 1;
        }
        self.stage = if part < parts.len() {
            Stage::Sending { chunk, part, more }
        } else if more {
            Stage::Parsing
        } else if chunk + 1 < self.chunk_count {
            self.outcome.counts.late += self.judge.split(&mut self.chunks[chunk + 1]);
            Stage::Sending { chunk: chunk + 1, part: 0, more }
        } else {
            Stage::Flushing
        };
        Ok(if flow == Flow::Open { FeedProgress::Busy } else { FeedProgress::Blocked })
    }

    /// Sends what is left of the block, and moves the front if it stood here.
    fn complete(
        &mut self,
        producer: &mut Producer,
        port: PortId,
    ) -> Result<FeedProgress, SourceError> {
        if flush(producer, &self.shared)? == Flow::Blocked {
            return Ok(FeedProgress::Blocked);
        }
        let mut state = self.shared.state();
        let passed = state.order.done(self.block.index, std::mem::take(&mut self.outcome));
        for row in passed.iter().flat_map(|outcome| &outcome.bad) {
            // Under the lock, so that rows come in the order of the file.
            self.shared.bad_rows.bad_row(&self.shared.info, row)?;
        }
        let watermark = state.order.watermark();
        if !passed.is_empty() && watermark != WATERMARK_START {
            // Everything before the front is in its lanes: whoever sent it has passed through this
            // lock since. Under the lock, so that watermarks are published in order.
            self.shared.slot.advance(watermark);
        }
        drop(state);
        ring(producer, port);
        self.stage = Stage::Free;
        // Nothing was pushed since the last one, so it is open; it only rings.
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
