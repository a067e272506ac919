//! Which form the times of an input have, and the zone of those that carry none.

use std::fmt;
use std::str::FromStr;

use jiff::fmt::strtime;
use jiff::tz::TimeZone;

use super::parser::{TimeParser, is_number};
use super::{TimeTextError, TimeUnit};

/// The form of the times of an input: `auto`, `s`, `ms`, `us`, `ns`, `rfc3339`, or a pattern such
/// as `%d.%m.%Y %H:%M:%S` (strptime's directives).
///
/// The four units are counts since 1970, before it negative; they may have a decimal fraction.
/// `auto` takes RFC 3339 text, `YYYY-MM-DD HH:MM:SS[.fraction]` text in the zone given, and
/// milliseconds since 1970 within the years 1971 to 2200.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TimeFormat {
    /// Text or milliseconds, whichever it is.
    #[default]
    Auto,
    /// Seconds since 1970.
    S,
    /// Milliseconds since 1970.
    Ms,
    /// Microseconds since 1970.
    Us,
    /// Nanoseconds since 1970.
    Ns,
    /// RFC 3339 text: it carries its offset.
    Rfc3339,
    /// Text of that pattern.
    Pattern(String),
}

/// Why a text is no time format.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// Neither a known name nor a pattern.
    Unknown(String),
    /// A pattern that no time can be read with.
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Unknown(text) => write!(
                f,
                "\"{text}\" is no time format; use auto, s, ms, us, ns, rfc3339, or a pattern \
                 like '%Y-%m-%d %H:%M:%S'"
            ),
            FormatError::Pattern { pattern, why } => {
                write!(f, "no time can be read with the pattern '{pattern}': {why}")
            }
        }
    }
}

impl std::error::Error for FormatError {}

impl TimeFormat {
    /// The format of that name, or a pattern, which is tried out on one instant.
    ///
    /// # Errors
    /// [`FormatError`] lists the names, or says what is wrong with the pattern.
    pub fn parse(text: &str) -> Result<TimeFormat, FormatError> {
        Ok(match text {
            "auto" => TimeFormat::Auto,
            "s" => TimeFormat::S,
            "ms" => TimeFormat::Ms,
            "us" => TimeFormat::Us,
            "ns" => TimeFormat::Ns,
            "rfc3339" => TimeFormat::Rfc3339,
            pattern if pattern.contains('%') => {
                try_pattern(pattern)?;
                TimeFormat::Pattern(pattern.to_owned())
            }
            other => return Err(FormatError::Unknown(other.to_owned())),
        })
    }

    /// The unit that times of this format call for before any is seen. For `auto` see
    /// [`unit_of_sample`](Self::unit_of_sample).
    pub fn unit_needed(&self) -> TimeUnit {
        match self {
            TimeFormat::Auto | TimeFormat::S | TimeFormat::Ms => TimeUnit::Ms,
            TimeFormat::Us | TimeFormat::Rfc3339 => TimeUnit::Us,
            TimeFormat::Ns => TimeUnit::Ns,
            TimeFormat::Pattern(pattern) => {
                let fraction = ["%f", "%.", "%N"].iter().any(|part| pattern.contains(part))
                    || pattern.contains(|c: char| c.is_ascii_digit());
                if fraction { TimeUnit::Us } else { TimeUnit::Ms }
            }
        }
    }

    /// The unit that one time of the input calls for: text has microseconds even where this one
    /// has no fraction (writers leave a fraction of zero out), and nanoseconds from the seventh
    /// digit on. Look at as many as are at hand and take the finest.
    ///
    /// ```
    /// use intervale::time::text::{TimeFormat, TimeUnit};
    /// assert_eq!(TimeFormat::Auto.unit_of_sample(b"1704103200000"), TimeUnit::Ms);
    /// assert_eq!(TimeFormat::Auto.unit_of_sample(b"2013-01-01T10:00:00Z"), TimeUnit::Us);
    /// ```
    pub fn unit_of_sample(&self, text: &[u8]) -> TimeUnit {
        let fraction_digits = match text.iter().rposition(|&byte| byte == b'.' || byte == b',') {
            Some(point) => text[point + 1..].iter().take_while(|b| b.is_ascii_digit()).count(),
            None => 0,
        };
        let digits = match self {
            TimeFormat::Auto if !is_number(text) => fraction_digits,
            TimeFormat::Rfc3339 | TimeFormat::Pattern(_) | TimeFormat::S => fraction_digits,
            _ if fraction_digits == 0 => 0,
            TimeFormat::Auto | TimeFormat::Ms => fraction_digits + 3,
            TimeFormat::Us | TimeFormat::Ns => fraction_digits + 6,
        };
        let floor = match self {
            TimeFormat::Auto if !is_number(text) => TimeUnit::Us,
            _ => self.unit_needed(),
        };
        TimeUnit::for_fraction_digits(digits).max(floor)
    }
}

impl FromStr for TimeFormat {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<TimeFormat, FormatError> {
        TimeFormat::parse(text)
    }
}

impl fmt::Display for TimeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeFormat::Auto => "auto",
            TimeFormat::S => "s",
            TimeFormat::Ms => "ms",
            TimeFormat::Us => "us",
            TimeFormat::Ns => "ns",
            TimeFormat::Rfc3339 => "rfc3339",
            TimeFormat::Pattern(pattern) => pattern,
        })
    }
}

/// Writes an instant with the pattern and reads it back: a pattern without a year, or with a
/// directive that can only be written, is found before any input is read.
fn try_pattern(pattern: &str) -> Result<(), FormatError> {
    let fail = |why: String| Err(FormatError::Pattern { pattern: pattern.to_owned(), why });
    let instant = jiff::civil::date(2024, 7, 14).at(21, 14, 59, 123_456_789);
    let text = match instant
        .to_zoned_datetime(TimeZone::UTC)
        .map(|zoned| strtime::format(pattern, &zoned))
    {
        Ok(Ok(text)) => text,
        Ok(Err(error)) | Err(error) => return fail(error.to_string()),
    };
    let format = TimeFormat::Pattern(pattern.to_owned());
    match TimeParser::new(&format, &Zone::UTC, TimeUnit::Ns).parse(text.as_bytes()) {
        Ok(_) => Ok(()),
        Err(TimeTextError::NotATime { why, .. }) if !why.is_empty() => fail(why),
        Err(error) => fail(error.to_string()),
    }
}

/// The zone of times that carry none.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

/// A zone of that name is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneError(String);

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is no known time zone; use an IANA name like UTC, Europe/Berlin or \
             America/New_York",
            self.0
        )
    }
}

impl std::error::Error for ZoneError {}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// The zone of an IANA name, from the system's data or, where there is none, from our own.
    ///
    /// # Errors
    /// [`ZoneError`] for an unknown name.
    pub fn parse(name: &str) -> Result<Zone, ZoneError> {
        TimeZone::get(name).map(Zone).map_err(|_| ZoneError(name.to_owned()))
    }

    /// The zone's own type.
    pub(super) fn inner(&self) -> &TimeZone {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_listed() {
        for name in ["auto", "s", "ms", "us", "ns", "rfc3339", "%d.%m.%Y %H:%M"] {
            assert_eq!(TimeFormat::parse(name).unwrap().to_string(), name);
        }
        let message = TimeFormat::parse("iso").unwrap_err().to_string();
        assert!(message.contains("rfc3339") && message.contains("\"iso\""), "{message}");
    }

    #[test]
    fn patterns_are_tried_before_any_input_is_read() {
        for pattern in ["%Y-%m-%d", "%s", "%d/%b/%Y:%H:%M:%S %z", "%Y%m%d%H%M%S%3f", "%F %T%.f"] {
            assert!(TimeFormat::parse(pattern).is_ok(), "{pattern}");
        }
        for pattern in ["%H:%M", "%Y-%m", "%!", "100%", "%c"] {
            let error = TimeFormat::parse(pattern);
            assert!(matches!(error, Err(FormatError::Pattern { .. })), "{pattern}: {error:?}");
        }
    }

    #[test]
    fn samples_choose_the_unit() {
        use TimeFormat::{Auto, Ms, Ns, Rfc3339, S, Us};
        for (format, text, unit) in [
            (Auto, "1704103200000", TimeUnit::Ms),
            (Auto, "1704103200000.5", TimeUnit::Us),
            (Auto, "2013-01-01 10:00:00", TimeUnit::Us),
            (Auto, "2013-01-01 10:00:00.123456789", TimeUnit::Ns),
            (Rfc3339, "2013-01-01T10:00:00.5Z", TimeUnit::Us),
            (S, "1704103200", TimeUnit::Ms),
            (S, "1704103200.1234", TimeUnit::Us),
            (S, "1704103200.1234567", TimeUnit::Ns),
            (Ms, "1704103200000.0005", TimeUnit::Ns),
            (Us, "1", TimeUnit::Us),
            (Ns, "1", TimeUnit::Ns),
        ] {
            assert_eq!(format.unit_of_sample(text.as_bytes()), unit, "{format} {text}");
        }
    }

    #[test]
    fn zones() {
        assert!(Zone::parse("Europe/Berlin").is_ok());
        let message = Zone::parse("Europe/Atlantis").unwrap_err().to_string();
        assert!(message.contains("\"Europe/Atlantis\""), "{message}");
    }
}
