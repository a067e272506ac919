//! More than two streams: a left-deep chain of joins on the same cores.
//!
//! The first stage joins two streams; each further one joins what came out before with one stream
//! more. What a stage gives out is given a new key, is spread over the cores by it, and is the left
//! input of the next stage. Its interval is relative to the time of a **named** earlier stream, the
//! anchor, never to an implied one. A stage's output watermark is the next one's input watermark,
//! held back by as much as an anchor's time may lie behind it, so that no joined row is ever late.
//!
//! A row without its anchor (an outer join has padded it) matches nothing in that stage: a left
//! join pads it again, an inner one counts it as without a key. So does a row that had no key in an
//! earlier stage and came out there behind its time, as no row without a key is ever late:
//! [`Report::left_behind`] counts these.
//!
//! A stage may be of any kind and form: an interval, an as-of join, a choice, windows. Only behind
//! a session window, whose rows may lie any time apart, all stages must be anchored to streams of
//! the same side of it.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use intervale::engine::{Engine, JoinedRow, Stream, Then};
//! use intervale::event::Key;
//! use intervale::join::JoinSpec;
//! use intervale::limits::Limits;
//! use intervale::time::Bound;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Orders, their payments within 5 minutes, and the parcel of each payment within an hour.
//! let within = |ticks| JoinSpec::between(Bound::Closed(0), Bound::Closed(ticks));
//! let payments = within(300_000).build(&Limits::default())?;
//! let parcels = within(3_600_000).build(&Limits::default())?;
//!
//! // A payment's row is the number under which it is known to the post.
//! let number_of_payment = |row: JoinedRow<'_>| {
//!     let bytes = row.part(Stream::RIGHT)?.row.first_chunk()?;
//!     Some(u64::from_le_bytes(*bytes))
//! };
//! let found = Arc::new(Mutex::new(Vec::new()));
//! let chain = Engine::builder(payments)
//!     .then(Then::new(parcels, Stream::RIGHT, move |row, _| {
//!         number_of_payment(row).map_or(Key::Null, Key::Int)
//!     }))
//!     .sinks(|_core| {
//!         let found = Arc::clone(&found);
//!         move |row: JoinedRow<'_>| {
//!             let times: Vec<_> = row.parts().flatten().map(|part| part.ts).collect();
//!             found.lock().unwrap().push(times);
//!         }
//!     })
//!     .start()?;
//!
//! let mut orders = chain.source(Stream::LEFT)?;
//! let mut payments = chain.source(Stream::RIGHT)?;
//! let mut parcels = chain.source(Stream::then(1))?;
//! orders.push(Key::Int(7), 1_000, b"order 7")?;
//! payments.push(Key::Int(7), 60_000, &4711_u64.to_le_bytes())?;
//! parcels.push(Key::Int(4711), 900_000, b"parcel")?;
//! orders.finish()?;
//! payments.finish()?;
//! parcels.finish()?;
//!
//! let finished = chain.finish()?;
//! assert_eq!(found.lock().unwrap()[..], [vec![1_000, 60_000, 900_000]]);
//! assert_eq!(finished.reports[1].counters.pairs, 1);
//! # Ok(())
//! # }
//! ```

mod hand_over;
mod plan;
mod row;
#[cfg(all(test, not(loom)))]
mod sim;
mod sink;

use std::fmt;
use std::time::Duration;

use crate::engine::{Ending, Engine, EngineError, Metrics, Report, Source, Stages};
use crate::event::Side;
use crate::exchange::Promise;
use crate::join::AnyJoin;

pub(super) use hand_over::{HandOver, HandOverPlan, LateBox};
pub use plan::{ChainBuilder, Then};
pub use row::{JoinedRow, Part, Stream};
pub use sink::ChainSink;
use sink::Last;

/// A running chain of joins; see [`ChainBuilder`]. Dropping it stops it.
pub struct Chain<S: ChainSink + 'static> {
    engine: Engine<Last<S>, AnyJoin>,
}

/// What a chain that ended by itself, or was shut down, leaves.
#[derive(Debug)]
pub struct ChainFinished<S> {
    /// What each stage did. A stage's left rows are what the one before gave out.
    pub reports: Vec<Report>,
    /// Most rows in the state of all stages at the same time.
    pub state_rows_peak: u64,
    /// Most bytes of the state of all stages at the same time, as allocated.
    pub state_bytes_peak: u64,
    /// The sinks, by core.
    pub sinks: Vec<S>,
}

impl<S> ChainFinished<S> {
    /// How it ended.
    pub fn ending(&self) -> Ending {
        self.reports.last().map_or(Ending::Complete, |report| report.ending.clone())
    }
}

impl<S: ChainSink + 'static> Chain<S> {
    /// Adds a source to a stream, as [`Engine::source`] does to a side.
    ///
    /// # Errors
    /// As there; [`EngineError::Chain`] when there is no such stream.
    pub fn source(&self, stream: Stream) -> Result<Source, EngineError> {
        self.source_with(stream, Promise::Explicit)
    }

    /// Adds a source whose watermark comes about as `promise` says.
    ///
    /// # Errors
    /// As [`source`](Self::source).
    pub fn source_with(&self, stream: Stream, promise: Promise) -> Result<Source, EngineError> {
        if stream.stage() >= self.engine.stage_count() {
            return Err(EngineError::Chain(NO_SUCH_STREAM));
        }
        self.engine.source_of_stage(stream.stage(), side_of(stream), promise)
    }

    /// A barrier through all stages, as [`Engine::flush`].
    ///
    /// # Errors
    /// As there.
    pub fn flush(&self) -> Result<(), EngineError> {
        self.engine.flush()
    }

    /// What each stage did so far, as [`Engine::metrics`]; `None` for one that has ended.
    pub fn metrics(&self) -> Vec<Option<Metrics>> {
        (0..self.engine.stage_count()).map(|stage| self.engine.metrics_of_stage(stage)).collect()
    }

    /// As [`Engine::notes`].
    pub fn notes(&self) -> &[String] {
        self.engine.notes()
    }

    /// As [`Engine::seal`], of all streams.
    pub fn seal(&self) {
        self.engine.seal();
    }

    /// As [`Engine::wait`].
    pub fn wait(&self, timeout: Duration) -> bool {
        self.engine.wait(timeout)
    }

    /// Waits until all sources of all streams have ended and everything is joined and handed on;
    /// then checks that the counts of each stage add up, and that each got all that the one before
    /// gave out. **Finish or drop every [`Source`] first**, or on another thread.
    ///
    /// # Errors
    /// As [`Engine::finish`]; [`EngineError::Stage`] says which stage it was, if one is to blame.
    pub fn finish(self) -> Result<ChainFinished<S>, EngineError> {
        self.engine.finish_stages().map(ChainFinished::new)
    }

    /// Stops in the middle, as [`Engine::shutdown`]: what has come through all stages is flushed to
    /// the sinks, the rest is given up.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn shutdown(self) -> Result<ChainFinished<S>, EngineError> {
        self.engine.shutdown_stages().map(ChainFinished::new)
    }
}

impl<S: ChainSink> ChainFinished<S> {
    fn new(ended: Stages<Last<S>>) -> ChainFinished<S> {
        let Stages { reports, sinks, state_peaks } = ended;
        let (state_rows_peak, state_bytes_peak) = state_peaks;
        let sinks = sinks.into_iter().map(|last| last.sink).collect();
        ChainFinished { reports, state_rows_peak, state_bytes_peak, sinks }
    }
}

const NO_SUCH_STREAM: &str = "there is no such stream: a chain has one more than it has stages";

fn side_of(stream: Stream) -> Side {
    if stream == Stream::LEFT { Side::Left } else { Side::Right }
}

impl<S: ChainSink + 'static> fmt::Debug for Chain<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("engine", &self.engine).finish()
    }
}
