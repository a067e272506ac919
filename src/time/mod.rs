//! Event time: instants, intervals, watermarks and lateness. Knows nothing of events.
//!
//! All times are `i64` ticks of one unit an engine; all arithmetic saturates.

mod clock;
mod interval;
mod lateness;
mod timestamp;
mod watermark;

#[cfg(feature = "cli")]
pub mod text;

pub use clock::{Clock, ManualClock, MonotonicClock};
pub use interval::{Bound, Interval, IntervalError};
pub use lateness::{LatePolicy, Lateness, LatenessClock};
pub use timestamp::Timestamp;
pub use watermark::{
    BoundedDisorder, SideClock, SourceState, WATERMARK_END, WATERMARK_START, merge_sources,
};
