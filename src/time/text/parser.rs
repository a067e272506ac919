//! Times as they stand in files, into ticks.

use std::fmt;

use jiff::fmt::strtime::BrokenDownTime;

use super::civil::Civil;
use super::{TimeFormat, TimeUnit, Zone};

/// Reads the times of one input. Pure: the same text gives the same ticks, on any core.
///
/// A whole number costs about 10 ns, the usual `YYYY-MM-DD HH:MM:SS` shapes about 30 ns in UTC or
/// with an offset and 80 ns in other zones; other shapes and patterns go through jiff, 100 to 200.
///
/// A local time that a zone skips counts as if the clock had not yet been put forward, one that
/// it has twice is the first of the two.
#[derive(Clone, Debug)]
pub struct TimeParser {
    form: Form,
    zone: Zone,
    zone_is_utc: bool,
    unit: TimeUnit,
    /// Nanoseconds of the unit that numbers count.
    number_ns: i64,
    /// Ticks of one such unit; 1 where a tick is longer than it.
    ticks_a_number: i64,
    /// Such units of one tick; 1 where they are longer than it.
    numbers_a_tick: i64,
}

#[derive(Clone, Debug)]
enum Form {
    Auto,
    Number,
    Rfc3339,
    Pattern(String),
}

/// Why a text is no time of the input's format. The text itself is the caller's to show.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeTextError {
    /// There is no text.
    Empty,
    /// The text has not the form.
    NotATime {
        /// The form that was expected.
        expected: String,
        /// What is wrong with it, where that is known; may be empty.
        why: String,
    },
    /// RFC 3339 text must carry an offset.
    NoOffset,
    /// A number that, taken as milliseconds, lies outside the years 1971 to 2200.
    Implausible {
        /// The unit (`s`, `us`, `ns`) in which it would lie within them.
        looks_like: Option<&'static str>,
    },
    /// The time is finer than a tick.
    Finer {
        /// The engine's unit.
        unit: TimeUnit,
    },
    /// The time does not fit 64-bit ticks.
    OutOfRange {
        /// The engine's unit.
        unit: TimeUnit,
    },
}

impl fmt::Display for TimeTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeTextError::Empty => write!(f, "the time is empty"),
            TimeTextError::NotATime { expected, why } => {
                write!(f, "it is no time; expected {expected}")?;
                if why.is_empty() { Ok(()) } else { write!(f, " ({why})") }
            }
            TimeTextError::NoOffset => write!(
                f,
                "it carries no offset, as rfc3339 demands; use --time-format auto, with --timezone"
            ),
            TimeTextError::Implausible { looks_like: Some(unit) } => write!(
                f,
                "taken as milliseconds it lies outside the years 1971 to 2200; it looks like \
                 {}: give --time-format {unit}",
                unit_words(unit)
            ),
            TimeTextError::Implausible { looks_like: None } => write!(
                f,
                "taken as milliseconds it lies outside the years 1971 to 2200; name its unit with \
                 --time-format s, ms, us or ns"
            ),
            TimeTextError::Finer { unit } => {
                write!(f, "it is finer than the time unit of this run ({unit}); ")?;
                match unit {
                    TimeUnit::Ms => write!(f, "set a finer one: --time-unit us"),
                    TimeUnit::Us => write!(f, "set a finer one: --time-unit ns"),
                    TimeUnit::Ns => write!(f, "round it"),
                }
            }
            TimeTextError::OutOfRange { unit } => {
                write!(f, "it does not fit 64-bit times in {unit}")
            }
        }
    }
}

impl std::error::Error for TimeTextError {}

fn unit_words(unit: &str) -> &'static str {
    match unit {
        "s" => "seconds",
        "us" => "microseconds",
        _ => "nanoseconds",
    }
}

/// 1971-01-01 in milliseconds: the first that `auto` takes for milliseconds.
const PLAUSIBLE_FROM_MS: i64 = 31_536_000_000;
/// 2201-01-01 in milliseconds: the first that it does not.
const PLAUSIBLE_TO_MS: i64 = 7_289_654_400_000;

impl TimeParser {
    /// A parser of times of `format`, in `zone` where they carry none, into ticks of `unit`.
    pub fn new(format: &TimeFormat, zone: &Zone, unit: TimeUnit) -> TimeParser {
        let (form, number_ns) = match format {
            TimeFormat::Auto => (Form::Auto, 1_000_000),
            TimeFormat::S => (Form::Number, 1_000_000_000),
            TimeFormat::Ms => (Form::Number, 1_000_000),
            TimeFormat::Us => (Form::Number, 1_000),
            TimeFormat::Ns => (Form::Number, 1),
            TimeFormat::Rfc3339 => (Form::Rfc3339, 1),
            TimeFormat::Pattern(pattern) => (Form::Pattern(pattern.clone()), 1),
        };
        let zone_is_utc = zone.inner().to_fixed_offset().is_ok_and(|offset| offset.is_zero());
        TimeParser {
            form,
            zone: zone.clone(),
            zone_is_utc,
            unit,
            number_ns,
            ticks_a_number: (number_ns / unit.ns()).max(1),
            numbers_a_tick: (unit.ns() / number_ns).max(1),
        }
    }

    /// The unit of the ticks.
    pub fn unit(&self) -> TimeUnit {
        self.unit
    }

    /// The ticks of a time; never `i64::MIN`. Spaces around it do not count.
    ///
    /// # Errors
    /// [`TimeTextError`]; nothing is rounded, wrapped or guessed.
    #[inline]
    pub fn parse(&self, text: &[u8]) -> Result<i64, TimeTextError> {
        match &self.form {
            Form::Auto | Form::Number => {
                if let Some(value) = parse_integer(text) {
                    return self.integer(value);
                }
            }
            Form::Rfc3339 | Form::Pattern(_) => {}
        }
        if let (Form::Auto | Form::Rfc3339, Some(civil)) = (&self.form, Civil::parse(text)) {
            return self.civil(civil);
        }
        self.general(text.trim_ascii())
    }

    #[inline]
    fn integer(&self, value: i64) -> Result<i64, TimeTextError> {
        if matches!(self.form, Form::Auto) {
            check_plausible(value)?;
        }
        let ticks = if self.numbers_a_tick == 1 {
            value.checked_mul(self.ticks_a_number)
        } else {
            if value % self.numbers_a_tick != 0 {
                return Err(TimeTextError::Finer { unit: self.unit });
            }
            Some(value / self.numbers_a_tick)
        };
        // i64::MIN stands for "no time".
        ticks
            .filter(|&ticks| ticks != i64::MIN)
            .ok_or(TimeTextError::OutOfRange { unit: self.unit })
    }

    fn civil(&self, civil: Civil) -> Result<i64, TimeTextError> {
        let offset_s = match civil.offset_s {
            Some(offset_s) => offset_s,
            None if matches!(self.form, Form::Rfc3339) => return Err(TimeTextError::NoOffset),
            None if self.zone_is_utc => 0,
            None => {
                let Civil { year, month, day, hour, minute, second, subsec_ns, .. } = civil;
                let datetime = jiff::civil::date(year, month as i8, day as i8).at(
                    hour as i8,
                    minute as i8,
                    second as i8,
                    subsec_ns as i32,
                );
                return self.local(datetime);
            }
        };
        let seconds = civil.epoch_seconds() - i64::from(offset_s);
        let subsec_ns = i64::from(civil.subsec_ns);
        if subsec_ns % self.unit.ns() != 0 {
            return Err(TimeTextError::Finer { unit: self.unit });
        }
        let subsec_ticks = subsec_ns / self.unit.ns();
        seconds
            .checked_mul(self.unit.ticks_per_second())
            .and_then(|ticks| ticks.checked_add(subsec_ticks))
            .filter(|&ticks| ticks != i64::MIN)
            .ok_or(TimeTextError::OutOfRange { unit: self.unit })
    }

    /// Everything that is not one of the usual shapes.
    #[cold]
    fn general(&self, text: &[u8]) -> Result<i64, TimeTextError> {
        if text.is_empty() {
            return Err(TimeTextError::Empty);
        }
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(self.not_a_time("it is not UTF-8".to_owned()));
        };
        match &self.form {
            Form::Pattern(pattern) => self.pattern(pattern, text),
            Form::Auto if is_number(text.as_bytes()) => self.decimal(text),
            Form::Number => self.decimal(text),
            Form::Auto | Form::Rfc3339 => {
                if let Some(civil) = Civil::parse(text.as_bytes()) {
                    return self.civil(civil);
                }
                let error = match text.parse::<jiff::Timestamp>() {
                    Ok(timestamp) => return self.exact(timestamp.as_nanosecond()),
                    Err(error) => error,
                };
                match (text.parse::<jiff::civil::DateTime>(), &self.form) {
                    (Ok(_), Form::Rfc3339) => Err(TimeTextError::NoOffset),
                    (Ok(datetime), _) => self.local(datetime),
                    (Err(_), _) => Err(self.not_a_time(error.to_string())),
                }
            }
        }
    }

    fn pattern(&self, pattern: &str, text: &str) -> Result<i64, TimeTextError> {
        let fail = |error: jiff::Error| self.not_a_time(error.to_string());
        let time = BrokenDownTime::parse(pattern, text).map_err(fail)?;
        if let Some(timestamp) = time.timestamp() {
            // A fraction beside a count of seconds adds to it.
            let subsec_ns = i128::from(time.subsec_nanosecond().unwrap_or(0));
            return self.exact(timestamp.as_nanosecond() + subsec_ns);
        }
        if time.iana_time_zone().is_some() {
            let zoned = time.to_zoned_datetime().map_err(fail)?;
            return self.exact(zoned.timestamp().as_nanosecond());
        }
        if time.offset().is_some() {
            return self.exact(time.to_timestamp().map_err(fail)?.as_nanosecond());
        }
        let date = time.to_date().map_err(fail)?;
        // A pattern of a date alone means its midnight.
        let midnight = jiff::civil::Time::midnight();
        let clock = if time.hour().is_some() { time.to_time().map_err(fail)? } else { midnight };
        self.local(date.to_datetime(clock))
    }

    fn local(&self, datetime: jiff::civil::DateTime) -> Result<i64, TimeTextError> {
        match self.zone.inner().to_timestamp(datetime) {
            Ok(timestamp) => self.exact(timestamp.as_nanosecond()),
            Err(error) => Err(self.not_a_time(error.to_string())),
        }
    }

    fn exact(&self, ns: i128) -> Result<i64, TimeTextError> {
        let tick_ns = i128::from(self.unit.ns());
        if ns % tick_ns != 0 {
            return Err(TimeTextError::Finer { unit: self.unit });
        }
        i64::try_from(ns / tick_ns)
            .ok()
            .filter(|&ticks| ticks != i64::MIN)
            .ok_or(TimeTextError::OutOfRange { unit: self.unit })
    }

    /// A number with a sign, a fraction, or more digits than the fast path takes.
    fn decimal(&self, text: &str) -> Result<i64, TimeTextError> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty()
            || !digits(whole)
            || !digits(fraction)
            || (fraction.is_empty() && unsigned.ends_with('.'))
        {
            return Err(self.not_a_time(String::new()));
        }
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        if whole.len() > 19 {
            return Err(TimeTextError::OutOfRange { unit: self.unit });
        }
        if fraction.len() > 9 {
            return Err(TimeTextError::Finer { unit: self.unit });
        }
        let number = |part: &str| part.bytes().fold(0, |sum, b| sum * 10 + i128::from(b - b'0'));
        let negative = text.starts_with('-');
        let sign = if negative { -1 } else { 1 };
        if matches!(self.form, Form::Auto) {
            // Over the range of i64 it is no more plausible than at its end.
            check_plausible((sign * number(whole)).clamp(i64::MIN.into(), i64::MAX.into()) as i64)?;
        }
        // At most 10^19 * 10^9, and less than one more: within i128.
        let number_ns = i128::from(self.number_ns);
        let scale = 10i128.pow(fraction.len() as u32);
        if (number(fraction) * number_ns) % scale != 0 {
            return Err(TimeTextError::Finer { unit: self.unit });
        }
        self.exact(sign * (number(whole) * number_ns + number(fraction) * number_ns / scale))
    }

    fn not_a_time(&self, why: String) -> TimeTextError {
        let expected = match &self.form {
            Form::Auto => {
                "RFC 3339 or YYYY-MM-DD HH:MM:SS text, or milliseconds since 1970".to_owned()
            }
            Form::Number => format!(
                "a number of {} since 1970",
                match self.number_ns {
                    1_000_000_000 => "seconds",
                    1_000_000 => "milliseconds",
                    1_000 => "microseconds",
                    _ => "nanoseconds",
                }
            ),
            Form::Rfc3339 => "RFC 3339 text like 2013-01-01T10:00:00Z".to_owned(),
            Form::Pattern(pattern) => format!("text like '{pattern}'"),
        };
        TimeTextError::NotATime { expected, why }
    }
}

/// Refuses what cannot be meant as milliseconds, and says what it looks like.
#[inline]
fn check_plausible(ms: i64) -> Result<(), TimeTextError> {
    const PLAUSIBLE: std::ops::Range<i64> = PLAUSIBLE_FROM_MS..PLAUSIBLE_TO_MS;
    if PLAUSIBLE.contains(&ms) {
        return Ok(());
    }
    let looks_like = if PLAUSIBLE.contains(&ms.saturating_mul(1_000)) {
        Some("s")
    } else if PLAUSIBLE.contains(&(ms / 1_000)) {
        Some("us")
    } else if PLAUSIBLE.contains(&(ms / 1_000_000)) {
        Some("ns")
    } else {
        None
    };
    Err(TimeTextError::Implausible { looks_like })
}

/// Whether a text consists of what numbers consist of: a sign, digits, a point.
pub(super) fn is_number(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(|&b| b.is_ascii_digit() || b == b'.')
}

/// 1 to 18 digits, perhaps after a minus sign; `None` for anything else. Cannot overflow.
#[inline]
fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, mut digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    if let 9..=16 = digits.len() {
        // The usual lengths: the last eight digits, and those before them with zeros in front.
        let (first, last) = (digits.first_chunk::<8>()?, digits.last_chunk::<8>()?);
        let front_bits = (digits.len() - 8) * 8;
        let front = u64::from_le_bytes(*first).unbounded_shl(64 - front_bits as u32)
            | ZEROS.unbounded_shr(front_bits as u32);
        let front = i64::from(parse_eight(front)?);
        let value = front * 100_000_000 + i64::from(parse_eight(u64::from_le_bytes(*last))?);
        return Some(if negative { -value } else { value });
    }
    let mut value = 0i64;
    while let Some((chunk, rest)) = digits.split_first_chunk::<8>() {
        value = value * 100_000_000 + i64::from(parse_eight(u64::from_le_bytes(*chunk))?);
        digits = rest;
    }
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// Eight times `0`.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Eight digits at once, the first in the lowest byte: neighbours are joined to numbers of two,
/// four and eight digits by three multiplications.
#[inline]
fn parse_eight(bytes: u64) -> Option<u32> {
    let digits = bytes.wrapping_sub(ZEROS);
    // A byte over 9 sets its high bit here, one under b'0' has set it above (or has borrowed from
    // the next one, but then it is set itself).
    let over_nine = digits.wrapping_add(0x7676_7676_7676_7676);
    if (digits | over_nine) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = (digits.wrapping_mul(10)).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100)).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000)).wrapping_add(fours >> 32) as u32)
}

#[cfg(test)]
mod tests;
