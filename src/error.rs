//! The errors of the engine: one small enum a layer, each saying what is wrong and what to do.

use std::fmt;

use crate::event::{KeyKind, Side};
use crate::limits::{STATE_CHUNK_BYTES_MAX, STATE_CHUNK_BYTES_MIN};
pub use crate::spill::SpillError;
use crate::time::IntervalError;

/// Why an event was refused by [`EventBatch::push`](crate::event::EventBatch::push) and by handles.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// The key is not of the kind that the join's spec names.
    KeyKind {
        /// The kind that the spec names.
        expected: KeyKind,
    },
    /// The key is over [`KEY_BYTES_MAX`](crate::limits::KEY_BYTES_MAX).
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The row is over [`ROW_BYTES_MAX`](crate::limits::ROW_BYTES_MAX).
    RowTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The batch holds as many bytes as it can; hand it over and start another.
    BatchFull,
    /// Columns that belong together have different lengths.
    ColumnLengths,
    /// The time is `i64::MIN`, which is no time.
    NoTimestamp,
    /// A lane is full, or state is for the moment, and the caller went on pushing: try again.
    Backpressure,
    /// State is too near its bound to take the event, which was not taken, and nothing that the
    /// watermarks allow is left to be freed. The engine goes on: push again when a source has
    /// promised more, is idle or has ended; see
    /// [`EngineBuilder::when_full`](crate::engine::EngineBuilder::when_full).
    StateFull {
        /// Bytes in use.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// As [`StateFull`](Self::StateFull), by the bound on rows.
    RowsFull {
        /// Rows in state.
        rows: u64,
        /// The bound.
        rows_max: u64,
    },
    /// The source has ended: it can take no more events.
    Ended,
    /// The engine has stopped; the report says why.
    Stopped,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::KeyKind { expected: KeyKind::Int } => {
                write!(f, "the join's keys are integers; push Key::Int")
            }
            PushError::KeyKind { expected: KeyKind::Bytes } => {
                write!(f, "the join's keys are bytes; push Key::Bytes")
            }
            PushError::KeyTooLong { bytes, bytes_max } => {
                write!(f, "the key has {bytes} bytes; {bytes_max} are the most")
            }
            PushError::RowTooLong { bytes, bytes_max } => {
                write!(f, "the row has {bytes} bytes; {bytes_max} are the most")
            }
            PushError::BatchFull => write!(f, "the batch's rows are over 4 GiB; start another"),
            PushError::ColumnLengths => write!(f, "the columns have different lengths"),
            PushError::NoTimestamp => write!(f, "i64::MIN is no time; give the event's time"),
            PushError::Backpressure => {
                write!(f, "a lane is full; flush until everything is sent, then push again")
            }
            PushError::StateFull { bytes, bytes_max } => write!(
                f,
                "buffered state has {bytes} of {bytes_max} bytes, and no watermark lets any of it \
                 go; push again when a source has promised more, or raise the bound"
            ),
            PushError::RowsFull { rows, rows_max } => write!(
                f,
                "buffered state has {rows} of {rows_max} rows, and no watermark lets any of them \
                 go; push again when a source has promised more, or raise the bound"
            ),
            PushError::Ended => write!(f, "the source has ended and takes no more events"),
            PushError::Stopped => write!(f, "the engine has stopped; its report says why"),
        }
    }
}

impl std::error::Error for PushError {}

/// Why a [`JoinSpec`](crate::join::JoinSpec) could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The interval is empty or lies at the edge of the time range.
    Interval(IntervalError),
    /// The allowed lateness is negative.
    NegativeLateness(i64),
    /// The interval has no end, and no bound on state was given.
    UnboundedWithoutLimit,
    /// A choice among the matches of left rows goes with `inner`, `left`, `semi` and `anti` joins.
    MatchKind,
    /// The tolerance of an as-of join is negative.
    NegativeTolerance(i64),
    /// The windows are none, or go with another operator or late policy; the text says which.
    Window(&'static str),
    /// A time to live is more than nothing, and goes with interval joins of all matches.
    Ttl(&'static str),
    /// What is to become of rows when state is full does not go with the join; the text says why.
    Overflow(&'static str),
    /// The width of state's time buckets, in ticks, is under 1.
    BucketWidth(i64),
    /// The smallest chunk of state is not within
    /// [`STATE_CHUNK_BYTES_MIN`] and the most that the bound
    /// on state allows.
    ChunkBytes {
        /// What was asked for.
        bytes: u64,
        /// The most.
        bytes_max: u64,
    },
    /// Hot keys of this join cannot be split, and were to be; the text says why.
    Splitting(&'static str),
    /// An as-of join with another choice, or a strict `nearest` one that is semi or anti.
    AsofKind,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Interval(error) => error.fmt(f),
            SpecError::NegativeLateness(ticks) => {
                write!(f, "the allowed lateness is {ticks} ticks; it must be 0 or more")
            }
            SpecError::UnboundedWithoutLimit => write!(
                f,
                "the interval has no end, so nothing would ever be freed; bound the state or the \
                 interval"
            ),
            SpecError::NegativeTolerance(ticks) => {
                write!(f, "the tolerance is {ticks} ticks; it must be 0 or more")
            }
            SpecError::Window(problem) => f.write_str(problem),
            SpecError::Ttl(why) => f.write_str(why),
            SpecError::Splitting(why) => write!(f, "hot keys cannot be split: {why}"),
            SpecError::Overflow(why) => f.write_str(why),
            SpecError::BucketWidth(ticks) => {
                write!(f, "a bucket's width is {ticks} ticks; it must be 1 or more")
            }
            SpecError::ChunkBytes { bytes, bytes_max } => write!(
                f,
                "chunks of state have {bytes} bytes at least; give {STATE_CHUNK_BYTES_MIN} to \
                 {bytes_max}{}",
                if *bytes_max < STATE_CHUNK_BYTES_MAX {
                    ", as every time bucket takes one, or raise the bound on state"
                } else {
                    ""
                }
            ),
            SpecError::AsofKind => write!(
                f,
                "an as-of join makes its own choice, and a strict one by `nearest` goes with inner \
                 and left joins only"
            ),
            SpecError::MatchKind => {
                write!(
                    f,
                    "a choice among the matches of left rows goes with inner, left, semi and anti \
                     joins only"
                )
            }
        }
    }
}

impl std::error::Error for SpecError {}

impl From<IntervalError> for SpecError {
    fn from(error: IntervalError) -> SpecError {
        SpecError::Interval(error)
    }
}

/// Why a source failed; the message says where and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// What happened, in a sentence that names the file and line.
    pub message: String,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SourceError {}

/// Why a running join stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinError {
    /// A late event arrived under `LatePolicy::Fail`.
    Late {
        /// Its side.
        side: Side,
        /// Its time, in ticks.
        ts: i64,
        /// How far it lay behind what was still on time, in ticks.
        lag: i64,
        /// The caller's bytes, as they were pushed.
        row: Box<[u8]>,
    },
    /// State would have passed its bound, and the policy is to fail.
    StateFull {
        /// Bytes in use.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// The same by the bound on rows.
    RowsFull {
        /// Rows in state, with those that should have come to it.
        rows: u64,
        /// The bound.
        rows_max: u64,
    },
    /// State holds as much as it can name, whatever the bound.
    Exhausted {
        /// Bytes in use.
        bytes: u64,
    },
    /// An event was refused, and nothing was changed.
    Refused(PushError),
    /// Rows could not be put into files, or read back, under
    /// [`Overflow::Spill`](crate::limits::Overflow::Spill).
    Spill(SpillError),
    /// A caller's [`Process`](crate::join::Process) has failed, and says why.
    Process(String),
    /// The counts of a run do not add up: a fault of the engine, never of the input.
    Unbalanced(String),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Late { side, ts, lag, .. } => write!(
                f,
                "a {} event at {ts} is {lag} ticks later than what still joins; raise the \
                 out-of-orderness or the allowed lateness, or choose to drop late events",
                side.name()
            ),
            JoinError::StateFull { bytes, bytes_max } => write!(
                f,
                "buffered state needs {bytes} bytes and {bytes_max} are allowed; raise the bound, \
                 narrow the interval, or see which watermark stands still"
            ),
            JoinError::RowsFull { rows, rows_max } => write!(
                f,
                "buffered state needs {rows} rows and {rows_max} are allowed; raise the bound, \
                 narrow the interval, or see which watermark stands still"
            ),
            JoinError::Exhausted { bytes } => write!(
                f,
                "buffered state has {bytes} bytes, which are as many rows as it can hold; narrow \
                 the interval, use more cores, or see which watermark stands still"
            ),
            JoinError::Refused(error) => error.fmt(f),
            JoinError::Spill(error) => error.fmt(f),
            JoinError::Process(why) => f.write_str(why),
            JoinError::Unbalanced(what) => {
                write!(f, "the counts of this run do not add up ({what}); please report this")
            }
        }
    }
}

impl std::error::Error for JoinError {}

/// Why the workers of an engine could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The cores that were asked for are not to be had.
    Cores(String),
    /// The io_uring driver was asked for and cannot run here.
    Glommio(String),
    /// A thread could not be started.
    Spawn(String),
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuntimeError::Cores(why) => f.write_str(why),
            RuntimeError::Glommio(why) => {
                write!(f, "the glommio runtime cannot run: {why}; or choose the threads runtime")
            }
            RuntimeError::Spawn(why) => write!(f, "a worker's thread could not start: {why}"),
        }
    }
}

impl std::error::Error for RuntimeError {}
