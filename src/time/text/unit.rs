//! The length of a tick.

use std::fmt;

/// How long one tick of the engine is. Ordered from coarse to fine.
///
/// ```
/// use intervale::time::text::TimeUnit;
/// assert_eq!(TimeUnit::Ms.max(TimeUnit::Us), TimeUnit::Us);
/// assert_eq!(TimeUnit::Ms.format(1_357_034_400_000), "2013-01-01T10:00:00Z");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeUnit {
    /// Milliseconds: 292 million years around 1970.
    #[default]
    Ms,
    /// Microseconds: 292 thousand years around 1970.
    Us,
    /// Nanoseconds: 1677 to 2262.
    Ns,
}

impl TimeUnit {
    /// All units, coarse to fine.
    pub const ALL: [TimeUnit; 3] = [TimeUnit::Ms, TimeUnit::Us, TimeUnit::Ns];

    /// Nanoseconds in a tick.
    pub const fn ns(self) -> i64 {
        match self {
            TimeUnit::Ms => 1_000_000,
            TimeUnit::Us => 1_000,
            TimeUnit::Ns => 1,
        }
    }

    /// Ticks in a second.
    pub const fn ticks_per_second(self) -> i64 {
        1_000_000_000 / self.ns()
    }

    /// `ms`, `us` or `ns`: as in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Ms => "ms",
            TimeUnit::Us => "us",
            TimeUnit::Ns => "ns",
        }
    }

    /// The unit of that name.
    pub fn from_name(name: &str) -> Option<TimeUnit> {
        TimeUnit::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// Digits of a second's fraction that a tick can hold: 3, 6 or 9.
    pub const fn fraction_digits(self) -> usize {
        match self {
            TimeUnit::Ms => 3,
            TimeUnit::Us => 6,
            TimeUnit::Ns => 9,
        }
    }

    /// The coarsest unit that holds a fraction of that many digits; nanoseconds from 7 on.
    pub const fn for_fraction_digits(digits: usize) -> TimeUnit {
        match digits {
            0..=3 => TimeUnit::Ms,
            4..=6 => TimeUnit::Us,
            _ => TimeUnit::Ns,
        }
    }

    /// An instant as RFC 3339 text in UTC, exactly; outside the years -9999 to 9999 as ticks.
    /// `i64::MIN` and `i64::MAX` are `-` and `end`, as watermarks have them.
    pub fn format(self, ticks: i64) -> String {
        match ticks {
            i64::MIN => return "-".to_owned(),
            i64::MAX => return "end".to_owned(),
            _ => {}
        }
        match self.instant(ticks) {
            Some(timestamp) => timestamp.to_string(),
            None => format!("{ticks} {}", self.name()),
        }
    }

    /// Whether an instant has a date, in the years -9999 to 9999.
    pub(crate) fn has_date(self, ticks: i64) -> bool {
        self.instant(ticks).is_some()
    }

    fn instant(self, ticks: i64) -> Option<jiff::Timestamp> {
        jiff::Timestamp::from_nanosecond(i128::from(ticks) * i128::from(self.ns())).ok()
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_exactly_and_ends_have_names() {
        assert_eq!(TimeUnit::Us.format(1_500_000), "1970-01-01T00:00:01.5Z");
        assert_eq!(TimeUnit::Ns.format(-1), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(TimeUnit::Ms.format(i64::MAX), "end");
        assert_eq!(TimeUnit::Ms.format(i64::MIN), "-");
        assert_eq!(TimeUnit::Ms.format(i64::MAX - 1), "9223372036854775806 ms");
    }

    #[test]
    fn names_and_digits_agree() {
        for unit in TimeUnit::ALL {
            assert_eq!(TimeUnit::from_name(unit.name()), Some(unit));
            assert_eq!(TimeUnit::for_fraction_digits(unit.fraction_digits()), unit);
            assert_eq!(10i64.pow(unit.fraction_digits() as u32), unit.ticks_per_second());
        }
        assert_eq!(TimeUnit::from_name("s"), None);
    }
}
