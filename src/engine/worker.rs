//! What runs on one core: a shard, the feeds that were given to it, and the push sources it
//! serves.

mod earlier;

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Shared;
use crate::engine::error::Fault;
use crate::engine::source::{Served, SourceCell};
use crate::error::{JoinError, SourceError};
use crate::exchange::{Feed, FeedProgress, Flow, Pacer, Producer, Splitter};
use crate::join::Sink;
use crate::runtime::{StepOutcome, Worker};
use crate::shard::{Operator, Progress, Shard, ShardError, ShardReport};
use crate::time::{Clock, MonotonicClock};

pub(super) use earlier::{ClosedStage, EarlierStage};

/// Events of a step: some tens of microseconds of work, so that feeds, sleepers and other tasks of
/// the core get their turn.
const STEP_EVENTS: usize = 1024;

/// Feeds show how far they are after so many events at the latest: others wait by that. It sends
/// partial batches, so it is less often where there are more shards.
const SHOW_EVENTS_MAX: u64 = 4096;
const SHOW_EVENTS_PER_SHARD: u64 = 512;

/// How long feeds that wait for the world outside are left alone at the most. They are asked again
/// much sooner at first.
const FEED_WAIT: Duration = Duration::from_millis(5);

/// How long a core may sleep when everything that makes work for it rings its bell.
const REST: Duration = Duration::from_millis(100);

/// However short rows live, cores look after them no more often than this.
const TICK_NS_MIN: u64 = 100_000;

/// One core's worker.
pub(super) struct EngineWorker<S: Sink, J: Operator> {
    index: usize,
    worker_count: usize,
    /// The stages before the last, in a chain.
    earlier: Vec<EarlierStage<J>>,
    shard: Option<Shard<S, J>>,
    intake: Option<FeedIntake>,
    served: Vec<Arc<SourceCell>>,
    sources_seen: usize,
    wait_max: Duration,
    clock: MonotonicClock,
    closed: Option<Closed<S>>,
    /// Last, so that a panic drops the shard and its lanes before anybody is told.
    shared: EndGuard,
}

/// The feeds of one core, and the producer they push to.
pub(super) struct FeedIntake {
    producer: Producer,
    feeds: Vec<Box<dyn Feed>>,
    pacer: Pacer,
    /// Events that were pushed when the producer was last flushed.
    events_flushed: u64,
    /// It is flushed after so many more.
    show_events: u64,
}

/// What is left of a worker that has ended.
pub(super) struct Closed<S> {
    pub(super) sink: S,
    pub(super) report: ShardReport,
    /// Events that its feeds pushed.
    pub(super) events_pushed: u64,
    /// Of the stages before the last.
    pub(super) earlier: Vec<ClosedStage>,
}

/// Tells everybody who waits that this worker has ended, however it did.
struct EndGuard {
    shared: Arc<Shared>,
    armed: bool,
}

impl EndGuard {
    fn ring(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.shared.worker_ended();
        }
    }
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.ring();
    }
}

impl FeedIntake {
    pub(super) fn new(producer: Producer, feeds: Vec<Box<dyn Feed>>, pacer: Pacer) -> FeedIntake {
        let show_events = match producer.shard_count() as u64 {
            // Nobody else waits.
            1 => SHOW_EVENTS_MAX,
            shard_count => (SHOW_EVENTS_PER_SHARD * shard_count).min(SHOW_EVENTS_MAX),
        };
        FeedIntake { producer, feeds, pacer, events_flushed: 0, show_events }
    }

    /// Splits hot keys with all other producers of the join.
    pub(super) fn split_by(mut self, splitter: Splitter) -> FeedIntake {
        self.producer = self.producer.split_by(splitter);
        self
    }

    /// Gives each feed a turn. Returns whether anything moved.
    fn poll(&mut self, clock: &MonotonicClock, linger_ns: u64) -> Result<bool, SourceError> {
        if self.feeds.is_empty() && !self.producer.needs_flush() {
            return Ok(false);
        }
        let now_ns = clock.now_ns();
        self.producer.set_now(now_ns);
        if self.producer.flow() == Flow::Blocked && self.flush()? == Flow::Blocked {
            return Ok(false);
        }
        let mut moved = false;
        let mut next = 0;
        while next < self.feeds.len() && self.producer.flow() == Flow::Open {
            let feed = &mut self.feeds[next];
            if feed.slot().is_some_and(|slot| !self.pacer.admits(slot, None)) {
                next += 1;
                continue;
            }
            match feed.poll(&mut self.producer, clock)? {
                FeedProgress::Busy => moved = true,
                FeedProgress::Blocked | FeedProgress::Waiting => {}
                FeedProgress::Finished => {
                    moved = true;
                    self.feeds.remove(next);
                    continue;
                }
            }
            next += 1;
        }
        // The next round begins with another feed, so that none is starved when lanes are full.
        if self.feeds.len() > 1 {
            self.feeds.rotate_left(1);
        }
        if self.producer.needs_flush() && (!moved || self.is_flush_due(now_ns, linger_ns)) {
            moved |= self.flush()? == Flow::Open;
        }
        Ok(moved)
    }

    /// Whether what was pushed has waited long enough, or others go by a watermark that is too old.
    fn is_flush_due(&self, now_ns: u64, linger_ns: u64) -> bool {
        let oldest_ns = self.producer.oldest_pending_ns();
        let lingers = oldest_ns.is_some_and(|ns| now_ns.saturating_sub(ns) >= linger_ns);
        let events = self.producer.counters().events - self.events_flushed;
        lingers || events >= self.show_events
    }

    /// As [`poll`](Self::poll), unless a shard has ended: why it did is said there, and this worker
    /// is stopped, or done, soon.
    pub(super) fn poll_unless_refused(
        &mut self,
        clock: &MonotonicClock,
        linger_ns: u64,
    ) -> Result<bool, Fault> {
        let polled = self.poll(clock, linger_ns);
        polled
            .or_else(|error| if self.is_refused() { Ok(false) } else { Err(Fault::Source(error)) })
    }

    pub(super) fn has_feeds(&self) -> bool {
        !self.feeds.is_empty()
    }

    /// Events that were not sent, and those that were pushed.
    pub(super) fn sent(&self) -> (usize, u64) {
        (self.producer.unsent_events(), self.producer.counters().events)
    }

    /// Whether a shard is gone; the feeds are not asked again then.
    fn is_refused(&mut self) -> bool {
        let refused = self.producer.flush().is_err();
        if refused {
            self.feeds.clear();
        }
        refused
    }

    fn flush(&mut self) -> Result<Flow, SourceError> {
        self.events_flushed = self.producer.counters().events;
        self.producer.flush().map_err(|error| SourceError { message: error.to_string() })
    }
}

impl<S: Sink, J: Operator> EngineWorker<S, J> {
    pub(super) fn new(
        (index, worker_count): (usize, usize),
        shard: Shard<S, J>,
        intake: Option<FeedIntake>,
        shared: Arc<Shared>,
    ) -> EngineWorker<S, J> {
        EngineWorker {
            index,
            worker_count,
            earlier: Vec::new(),
            shard: Some(shard),
            intake,
            served: Vec::new(),
            sources_seen: 0,
            wait_max: REST,
            clock: MonotonicClock,
            closed: None,
            shared: EndGuard { shared, armed: true },
        }
    }

    /// Puts a stage before those that it has.
    pub(super) fn put_before(&mut self, stage: EarlierStage<J>) {
        self.earlier.insert(0, stage);
    }

    pub(super) fn into_closed(self) -> Option<Closed<S>> {
        self.closed
    }

    fn try_step(&mut self) -> Result<StepOutcome<Fault>, Fault> {
        let mut moved = self.step_earlier()?;
        let stage = self.earlier.len();
        let Some(shard) = &mut self.shard else { return Ok(StepOutcome::Done) };
        let progress = shard.step(STEP_EVENTS, &self.clock);
        match progress.map_err(|error| Fault::Shard(error).in_last_stage(stage))? {
            Progress::Finished => {
                self.check_sent()?;
                self.close(|_| Ok(()))?;
                return Ok(StepOutcome::Done);
            }
            Progress::Busy => moved = true,
            Progress::Idle => {}
        };
        self.wait_max = REST;
        let linger_ns = self.shared.shared.linger_ns;
        if let Some(intake) = &mut self.intake {
            let polled = intake.poll_unless_refused(&self.clock, linger_ns);
            moved |= polled.map_err(|fault| fault.in_last_stage(stage))?;
        }
        if self.has_feeds() {
            self.wait_max = FEED_WAIT;
        }
        moved |= self.serve_sources();
        self.note_ticks();
        Ok(if moved { StepOutcome::Busy } else { StepOutcome::Idle })
    }

    /// Sleeps no longer than until a shard is to be stepped because of the time.
    fn note_ticks(&mut self) {
        let last = self.shard.as_ref().and_then(|shard| shard.steps_in_ns(&self.clock));
        let earlier = self.earlier.iter().filter_map(|stage| stage.steps_in_ns(&self.clock));
        if let Some(ns) = earlier.chain(last).min() {
            self.wait_max = self.wait_max.min(Duration::from_nanos(ns.max(TICK_NS_MIN)));
        }
    }

    /// Whether any stage has feeds that are still to be asked.
    fn has_feeds(&self) -> bool {
        self.intake.as_ref().is_some_and(FeedIntake::has_feeds)
            || self.earlier.iter().any(EarlierStage::has_feeds)
    }

    /// Gives each stage before the last its turn.
    fn step_earlier(&mut self) -> Result<bool, Fault> {
        let (mut moved, linger_ns) = (false, self.shared.shared.linger_ns);
        for (number, stage) in self.earlier.iter_mut().enumerate() {
            let stepped = stage.step(&self.clock, linger_ns);
            moved |= stepped.map_err(|fault| fault.in_stage(number))?;
        }
        Ok(moved)
    }

    /// Sends what has lingered in the sources that this core serves.
    fn serve_sources(&mut self) -> bool {
        let shared = &self.shared.shared;
        let place = (self.index, self.worker_count);
        self.sources_seen = shared.registry.serve_from(self.sources_seen, place, &mut self.served);
        if self.served.is_empty() {
            return false;
        }
        let now_ns = self.clock.now_ns();
        let mut moved = false;
        for cell in &self.served {
            match cell.serve(now_ns, shared.linger_ns) {
                Served::Nothing => {}
                Served::Flushed => moved = true,
                Served::DueIn(ns) => {
                    self.wait_max = self.wait_max.min(Duration::from_nanos(ns));
                }
            }
        }
        moved
    }

    /// All sources have ended, so nothing may be left in this core's hands.
    fn check_sent(&self) -> Result<(), Fault> {
        let unsent = self.intake.as_ref().map_or(0, |intake| intake.sent().0);
        let unsent = unsent + self.earlier.iter().map(EarlierStage::unsent).sum::<usize>();
        if unsent == 0 && self.earlier.iter().all(EarlierStage::is_over) {
            return Ok(());
        }
        Err(Fault::Shard(ShardError::Join(JoinError::Unbalanced(format!(
            "{unsent} events were not sent when all sources had ended"
        )))))
    }

    /// Closes the lanes, so that producers are refused, and keeps what the report needs.
    fn close(&mut self, last: impl FnOnce(&mut S) -> Result<(), Fault>) -> Result<(), Fault> {
        let Some(shard) = self.shard.take() else { return Ok(()) };
        let (_, mut sink, report) = shard.into_parts();
        let result = last(&mut sink);
        let intake = self.intake.take();
        let events_pushed = intake.map_or(0, |intake| intake.sent().1);
        let earlier = self.earlier.drain(..).filter_map(EarlierStage::into_closed).collect();
        self.closed = Some(Closed { sink, report, events_pushed, earlier });
        self.shared.ring();
        result
    }
}

impl<S, J> Worker for EngineWorker<S, J>
where
    S: Sink + 'static,
    J: Operator + Send + 'static,
{
    type Error = Fault;

    fn step(&mut self) -> StepOutcome<Fault> {
        match self.try_step() {
            Ok(outcome) => outcome,
            Err(fault) => {
                // The first fault stands.
                let _ = self.close(|_| Ok(()));
                StepOutcome::Failed(fault)
            }
        }
    }

    fn stop(&mut self) -> Result<(), Fault> {
        // What was joined so far goes out whole; `finish` would say that it is all there is.
        self.close(|sink| sink.flush().map_err(|error| Fault::Shard(ShardError::Sink(error))))
    }

    fn park_max(&self) -> Duration {
        self.wait_max
    }

    fn polls(&self) -> bool {
        self.has_feeds()
    }
}
