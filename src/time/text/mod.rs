//! Durations, intervals and times as people write them.
//!
//! # The engine's unit
//!
//! A run has one unit, milliseconds unless something needs a finer one: the durations given
//! ([`TimeSpan::unit_needed`]), the time formats ([`TimeFormat::unit_needed`]) and, for `auto`,
//! the first times of each input ([`TimeFormat::unit_of_sample`]). The finest of them wins
//! ([`TimeUnit`] is ordered: `max`). Nothing is rounded afterwards: a duration or a time that
//! the unit cannot hold is an error that says so.

mod calendar;
mod civil;
mod duration;
mod format;
mod interval;
mod parser;
mod unit;

pub use calendar::{CalendarPart, format_pattern};
pub use duration::{DurationError, TimeSpan};
pub use format::{FormatError, TimeFormat, Zone, ZoneError};
pub use interval::{IntervalText, IntervalTextError, SpanBound};
pub use parser::{TimeParser, TimeTextError};
pub use unit::TimeUnit;
