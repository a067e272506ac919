//! Durations as people write them: `250ms`, `-20m`, `1h30m`.

use std::fmt;
use std::str::FromStr;

use super::TimeUnit;

/// A length of event time, exact to the nanosecond and signed.
///
/// Written as numbers with units, larger units first: `250ms`, `5s`, `-20m`, `1h30m`, `2d`,
/// `1.5s`; the sign is that of the whole. Units: `w d h m s ms us ns`, each a fixed length (a day
/// is 24 hours). `0` needs no unit.
///
/// ```
/// use intervale::time::text::{TimeSpan, TimeUnit};
/// let span: TimeSpan = "-1h30m".parse().unwrap();
/// assert_eq!(span.ticks(TimeUnit::Ms), Ok(-5_400_000));
/// assert_eq!(span.to_string(), "-1h30m");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan {
    ns: i128,
}

/// Why a text is no duration, or why a duration does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DurationError {
    /// The text is no duration; `why` says which part is wrong.
    Syntax {
        /// The whole text.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The duration is finer than a tick of the engine's unit.
    Finer {
        /// The duration.
        span: TimeSpan,
        /// The engine's unit.
        unit: TimeUnit,
    },
    /// The duration is longer than 64-bit ticks of the engine's unit hold.
    TooLong {
        /// The duration.
        span: TimeSpan,
        /// The engine's unit.
        unit: TimeUnit,
    },
    /// The duration is negative where only 0 or more makes sense.
    Negative {
        /// The duration.
        span: TimeSpan,
    },
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DurationError::Syntax { text, why } => write!(
                f,
                "\"{text}\" is no duration: {why}; write it like 250ms, 5s, -20m, 1h30m, 2d or 0"
            ),
            DurationError::Finer { span, unit } => write!(
                f,
                "{span} is finer than the time unit of this run ({unit}); round it, or choose a \
                 finer --time-unit"
            ),
            DurationError::TooLong { span, unit } => {
                write!(f, "{span} does not fit 64-bit times in {unit}; make it shorter")
            }
            DurationError::Negative { span } => {
                write!(f, "{span} is negative; give a duration of 0 or more")
            }
        }
    }
}

impl std::error::Error for DurationError {}

/// Units with their length in nanoseconds, large to small: the order in which they may be written.
const UNITS: [(&str, i128); 8] = [
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl TimeSpan {
    /// No time at all.
    pub const ZERO: TimeSpan = TimeSpan { ns: 0 };

    /// A span of that many ticks.
    pub const fn from_ticks(ticks: i64, unit: TimeUnit) -> TimeSpan {
        TimeSpan { ns: ticks as i128 * unit.ns() as i128 }
    }

    /// The coarsest unit in which the span is a whole number of ticks.
    pub const fn unit_needed(self) -> TimeUnit {
        if self.ns % 1_000_000 == 0 {
            TimeUnit::Ms
        } else if self.ns % 1_000 == 0 {
            TimeUnit::Us
        } else {
            TimeUnit::Ns
        }
    }

    /// The span in ticks, exactly.
    ///
    /// # Errors
    /// [`DurationError::Finer`] and [`DurationError::TooLong`]; nothing is rounded or wrapped.
    pub fn ticks(self, unit: TimeUnit) -> Result<i64, DurationError> {
        let tick_ns = i128::from(unit.ns());
        if self.ns % tick_ns != 0 {
            return Err(DurationError::Finer { span: self, unit });
        }
        i64::try_from(self.ns / tick_ns).map_err(|_| DurationError::TooLong { span: self, unit })
    }

    /// As [`ticks`](Self::ticks), for durations that cannot be negative (disorder, lateness).
    ///
    /// # Errors
    /// Those of [`ticks`](Self::ticks), and [`DurationError::Negative`].
    pub fn ticks_non_negative(self, unit: TimeUnit) -> Result<i64, DurationError> {
        if self.ns < 0 { Err(DurationError::Negative { span: self }) } else { self.ticks(unit) }
    }

    /// The span as wall time (idle timeouts).
    ///
    /// # Errors
    /// [`DurationError::Negative`], and [`DurationError::TooLong`] from 584 years on.
    pub fn to_wall(self) -> Result<std::time::Duration, DurationError> {
        if self.ns < 0 {
            return Err(DurationError::Negative { span: self });
        }
        u64::try_from(self.ns)
            .map(std::time::Duration::from_nanos)
            .map_err(|_| DurationError::TooLong { span: self, unit: TimeUnit::Ns })
    }
}

impl FromStr for TimeSpan {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<TimeSpan, DurationError> {
        let fail = |why| DurationError::Syntax { text: text.to_owned(), why };
        let trimmed = text.trim();
        let (negative, mut rest) = match trimmed.as_bytes().first() {
            Some(b'-') => (true, &trimmed[1..]),
            Some(b'+') => (false, &trimmed[1..]),
            Some(_) => (false, trimmed),
            None => return Err(fail("it is empty")),
        };
        if !rest.is_empty() && rest.bytes().all(|byte| byte == b'0') {
            return Ok(TimeSpan::ZERO);
        }
        let (mut total, mut units_left) = (0i128, &UNITS[..]);
        loop {
            let number_len = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
            let (number, after) = rest.split_at(number_len);
            let unit_len = after.bytes().take_while(|b| !b.is_ascii_digit() && *b != b'.').count();
            let (unit, after) = after.split_at(unit_len);
            let position = find_unit(unit, units_left).map_err(fail)?;
            let part = part_ns(number, units_left[position].1).map_err(fail)?;
            total = total.checked_add(part).ok_or_else(|| fail("it is too long"))?;
            units_left = &units_left[position + 1..];
            rest = after;
            if rest.is_empty() {
                return Ok(TimeSpan { ns: if negative { -total } else { total } });
            }
        }
    }
}

/// The place of a unit among those that may still follow.
fn find_unit(unit: &str, units_left: &[(&str, i128)]) -> Result<usize, &'static str> {
    let unit = match unit {
        "" => return Err("a number has no unit"),
        // The micro sign and the Greek letter.
        "\u{b5}s" | "\u{3bc}s" => "us",
        other => other,
    };
    match units_left.iter().position(|(name, _)| *name == unit) {
        Some(position) => Ok(position),
        None if UNITS.iter().any(|(name, _)| *name == unit) => {
            Err("larger units come first, each once")
        }
        None => Err("the units are w, d, h, m, s, ms, us, ns"),
    }
}

/// `1.5` of a unit, in nanoseconds.
fn part_ns(number: &str, unit_ns: i128) -> Result<i128, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.ends_with('.')) {
        return Err("a number is missing or malformed");
    }
    // Over 40 digits cannot fit in any case, and their powers of ten would overflow.
    if whole.len() > 24 || fraction.len() > 18 {
        return Err("a number has too many digits");
    }
    let whole: i128 = whole.parse().map_err(|_| "a number is malformed")?;
    let mut total = whole.checked_mul(unit_ns).ok_or("it is too long")?;
    if !fraction.is_empty() {
        let scale = 10i128.pow(fraction.len() as u32);
        let parts: i128 = fraction.parse().map_err(|_| "a number is malformed")?;
        // At most 10^18 times 6 * 10^14: within i128.
        let ns = parts * unit_ns;
        if ns % scale != 0 {
            return Err("it is finer than a nanosecond");
        }
        total = total.checked_add(ns / scale).ok_or("it is too long")?;
    }
    Ok(total)
}

impl fmt::Display for TimeSpan {
    /// The shortest text in days and smaller units that reads back as the same span.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ns == 0 {
            return f.write_str("0");
        }
        if self.ns < 0 {
            f.write_str("-")?;
        }
        let mut rest = self.ns.unsigned_abs();
        for (name, unit_ns) in &UNITS[1..] {
            let unit_ns = unit_ns.unsigned_abs();
            if rest >= unit_ns {
                write!(f, "{}{name}", rest / unit_ns)?;
                rest %= unit_ns;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(text: &str) -> Result<i64, DurationError> {
        text.parse::<TimeSpan>()?.ticks(TimeUnit::Ms)
    }

    #[test]
    fn what_people_write() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("5s", 5_000),
            ("+5s", 5_000),
            ("-20m", -1_200_000),
            ("1h30m", 5_400_000),
            ("-1h30m", -5_400_000),
            ("2d", 172_800_000),
            ("1w1ms", 604_800_001),
            ("1.5s", 1_500),
            ("0.25h", 900_000),
            ("1000us", 1),
            ("1000\u{b5}s", 1),
            ("1000000ns", 1),
            (" 5s ", 5_000),
        ] {
            assert_eq!(ms(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_refused_says_why() {
        for (text, why) in [
            ("", "it is empty"),
            ("-", "a number has no unit"),
            ("5", "a number has no unit"),
            ("1h5", "a number has no unit"),
            ("s", "a number is missing or malformed"),
            ("5 s", "the units are w, d, h, m, s, ms, us, ns"),
            ("5min", "the units are w, d, h, m, s, ms, us, ns"),
            ("--5s", "the units are w, d, h, m, s, ms, us, ns"),
            ("30m1h", "larger units come first, each once"),
            ("1s1s", "larger units come first, each once"),
            ("1.s", "a number is missing or malformed"),
            (".5s", "a number is missing or malformed"),
            ("1..5s", "a number is missing or malformed"),
            ("0.5ns", "it is finer than a nanosecond"),
            ("99999999999999999999999999s", "a number has too many digits"),
            ("5\u{661}s", "the units are w, d, h, m, s, ms, us, ns"),
        ] {
            match text.parse::<TimeSpan>() {
                Err(DurationError::Syntax { why: seen, .. }) => assert_eq!(seen, why, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn nothing_is_rounded_or_wrapped() {
        assert!(matches!(ms("1us"), Err(DurationError::Finer { unit: TimeUnit::Ms, .. })));
        assert!(matches!(ms("300000000000d"), Err(DurationError::TooLong { .. })));
        let century: TimeSpan = "200000d".parse().unwrap();
        assert!(matches!(century.ticks(TimeUnit::Ns), Err(DurationError::TooLong { .. })));
        assert!(century.ticks(TimeUnit::Us).is_ok());
        let back: TimeSpan = "-1ms".parse().unwrap();
        assert!(matches!(back.to_wall(), Err(DurationError::Negative { .. })));
        assert!(matches!(
            back.ticks_non_negative(TimeUnit::Ms),
            Err(DurationError::Negative { .. })
        ));
    }

    #[test]
    fn the_unit_needed_is_the_coarsest_that_is_exact() {
        for (text, unit) in [
            ("0", TimeUnit::Ms),
            ("5m", TimeUnit::Ms),
            ("1.0005s", TimeUnit::Us),
            ("250us", TimeUnit::Us),
            ("1ns", TimeUnit::Ns),
        ] {
            assert_eq!(text.parse::<TimeSpan>().unwrap().unit_needed(), unit, "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_reads_back_as_the_same_span(ns in any::<i64>()) {
            let span = TimeSpan { ns: i128::from(ns) };
            prop_assert_eq!(span.to_string().parse::<TimeSpan>(), Ok(span));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.a-z\u{b5} ]{0,24}") {
            let _ = text.parse::<TimeSpan>();
        }
    }
}
