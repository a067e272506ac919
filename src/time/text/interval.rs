//! Intervals as people write them: `-5m..5m`, `[-5m,5m)`.

use std::fmt;
use std::str::FromStr;

use super::{DurationError, TimeSpan, TimeUnit};
use crate::time::Bound;

/// One end of an interval as written, before the engine's unit is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanBound {
    /// The end belongs to the interval.
    Closed(TimeSpan),
    /// The end does not.
    Open(TimeSpan),
    /// `-inf` or `inf`: no end on this side.
    Unbounded,
}

/// An interval as written: `LO..HI` or `LO,HI`, both ends closed, or with brackets that say which
/// ends belong to it: `[LO,HI]`, `[LO,HI)`, `(LO,HI]`, `(LO,HI)`. An end may be `-inf` or `inf`.
///
/// ```
/// use intervale::time::Bound;
/// use intervale::time::text::{IntervalText, TimeUnit};
/// let text: IntervalText = "[-5m,5m)".parse().unwrap();
/// assert_eq!(text.bounds(TimeUnit::Ms), Ok((Bound::Closed(-300_000), Bound::Open(300_000))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalText {
    /// The lower end.
    pub lo: SpanBound,
    /// The upper end.
    pub hi: SpanBound,
}

/// Why a text is no interval.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IntervalTextError {
    /// The text has not the form of an interval.
    Syntax {
        /// The whole text.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// One of its ends is no duration.
    End {
        /// `lower` or `upper`.
        which: &'static str,
        /// What is wrong with it.
        error: DurationError,
    },
}

impl fmt::Display for IntervalTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntervalTextError::Syntax { text, why } => write!(
                f,
                "\"{text}\" is no interval: {why}; write it like -5m..5m or, to leave an end out, \
                 [-5m,5m)"
            ),
            IntervalTextError::End { which, error } => write!(f, "the {which} end: {error}"),
        }
    }
}

impl std::error::Error for IntervalTextError {}

impl IntervalText {
    /// The coarsest unit in which both ends are exact.
    pub fn unit_needed(&self) -> TimeUnit {
        self.lo.unit_needed().max(self.hi.unit_needed())
    }

    /// Both ends in ticks, for [`JoinSpec::between`](crate::join::JoinSpec::between), which
    /// refuses an empty interval.
    ///
    /// # Errors
    /// [`IntervalTextError::End`] for an end that the unit cannot hold exactly.
    pub fn bounds(&self, unit: TimeUnit) -> Result<(Bound, Bound), IntervalTextError> {
        let end = |which, error| IntervalTextError::End { which, error };
        let lo = self.lo.ticks(unit).map_err(|error| end("lower", error))?;
        let hi = self.hi.ticks(unit).map_err(|error| end("upper", error))?;
        Ok((lo, hi))
    }
}

impl fmt::Display for IntervalText {
    /// With brackets, as it reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lo {
            SpanBound::Closed(span) => write!(f, "[{span}..")?,
            SpanBound::Open(span) => write!(f, "({span}..")?,
            SpanBound::Unbounded => write!(f, "(-inf..")?,
        }
        match self.hi {
            SpanBound::Closed(span) => write!(f, "{span}]"),
            SpanBound::Open(span) => write!(f, "{span})"),
            SpanBound::Unbounded => write!(f, "inf)"),
        }
    }
}

impl SpanBound {
    fn unit_needed(self) -> TimeUnit {
        match self {
            SpanBound::Closed(span) | SpanBound::Open(span) => span.unit_needed(),
            SpanBound::Unbounded => TimeUnit::Ms,
        }
    }

    fn ticks(self, unit: TimeUnit) -> Result<Bound, DurationError> {
        Ok(match self {
            SpanBound::Closed(span) => Bound::Closed(span.ticks(unit)?),
            SpanBound::Open(span) => Bound::Open(span.ticks(unit)?),
            SpanBound::Unbounded => Bound::Unbounded,
        })
    }
}

impl FromStr for IntervalText {
    type Err = IntervalTextError;

    fn from_str(text: &str) -> Result<IntervalText, IntervalTextError> {
        let fail = |why| IntervalTextError::Syntax { text: text.to_owned(), why };
        let trimmed = text.trim();
        let lo_open = match trimmed.as_bytes().first() {
            Some(b'[') => Some(false),
            Some(b'(') => Some(true),
            _ => None,
        };
        let hi_open = match trimmed.as_bytes().last() {
            Some(b']') => Some(false),
            Some(b')') => Some(true),
            _ => None,
        };
        let (lo_open, hi_open, inner) = match (lo_open, hi_open) {
            (None, None) => (false, false, trimmed),
            // Two different bytes, so the text is at least that long.
            (Some(lo), Some(hi)) => (lo, hi, &trimmed[1..trimmed.len() - 1]),
            _ => return Err(fail("it has a bracket on one end only")),
        };
        let Some((lo, hi)) = inner.split_once("..").or_else(|| inner.split_once(',')) else {
            return Err(fail("it has no .. between its ends"));
        };
        let end = |which, error| IntervalTextError::End { which, error };
        Ok(IntervalText {
            lo: parse_end(lo, "-inf", lo_open).map_err(|error| end("lower", error))?,
            hi: parse_end(hi, "inf", hi_open).map_err(|error| end("upper", error))?,
        })
    }
}

fn parse_end(text: &str, infinity: &str, open: bool) -> Result<SpanBound, DurationError> {
    let text = text.trim();
    if text == infinity || text.strip_prefix('+') == Some(infinity) {
        return Ok(SpanBound::Unbounded);
    }
    let span = text.parse()?;
    Ok(if open { SpanBound::Open(span) } else { SpanBound::Closed(span) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Bound::{Closed, Open, Unbounded};

    #[test]
    fn every_form() {
        for (text, expected) in [
            ("-5m..5m", (Closed(-300_000), Closed(300_000))),
            ("-2h..0", (Closed(-7_200_000), Closed(0))),
            ("[-5m,5m)", (Closed(-300_000), Open(300_000))),
            ("(-5m,5m]", (Open(-300_000), Closed(300_000))),
            ("(0,1s)", (Open(0), Open(1_000))),
            ("[ -1ms , 1ms ]", (Closed(-1), Closed(1))),
            ("[1s..2s)", (Closed(1_000), Open(2_000))),
            ("1s,2s", (Closed(1_000), Closed(2_000))),
            ("1.5s..2.5s", (Closed(1_500), Closed(2_500))),
            ("-inf..0", (Unbounded, Closed(0))),
            ("0..inf", (Closed(0), Unbounded)),
            ("5m..-5m", (Closed(300_000), Closed(-300_000))),
        ] {
            let interval: IntervalText = text.parse().unwrap();
            assert_eq!(interval.bounds(TimeUnit::Ms), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_refused_names_the_part() {
        for (text, part) in [
            ("", "no .."),
            ("5m", "no .."),
            ("[-5m,5m", "one end only"),
            ("-5m,5m)", "one end only"),
            ("[", "one end only"),
            ("[]", "no .."),
            ("..5m", "lower end"),
            ("-5m..", "upper end"),
            ("-5m..5", "upper end: \"5\" is no duration: a number has no unit"),
            ("inf..0", "lower end"),
            ("1s..2s..3s", "upper end"),
        ] {
            let message = text.parse::<IntervalText>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["[-5m..1h30m]", "(0..250ms]", "[-1s..0)", "(-inf..inf)", "(-inf..3us]"] {
            let interval: IntervalText = text.parse().unwrap();
            assert_eq!(interval.to_string(), text);
        }
    }

    #[test]
    fn an_end_finer_than_the_unit_is_an_error_not_a_rounding() {
        let interval: IntervalText = "-1us..1s".parse().unwrap();
        assert_eq!(interval.unit_needed(), TimeUnit::Us);
        assert!(interval.bounds(TimeUnit::Ms).is_err());
        assert_eq!(interval.bounds(TimeUnit::Us), Ok((Closed(-1), Closed(1_000_000))));
    }
}
