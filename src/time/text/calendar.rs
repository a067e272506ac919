//! Days, weeks and months of instants, in a time zone.

use jiff::civil::{Date, Time};
use jiff::fmt::strtime;
use jiff::{RoundMode, Timestamp, Unit, ZonedDateTime, ZonedDateTimeRound};

use super::{TimeUnit, Zone};

/// A part of the calendar: one that instants are truncated to, or that is taken out of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarPart {
    /// Years of the Gregorian calendar.
    Year,
    /// Quarters: January to March is the first.
    Quarter,
    /// Months, from 1.
    Month,
    /// Weeks of ISO 8601, which begin on Monday.
    Week,
    /// Days of the month, from 1.
    Day,
    /// Hours of the day.
    Hour,
    /// Minutes of the hour.
    Minute,
    /// Seconds of the minute.
    Second,
    /// Days of the year, from 1.
    DayOfYear,
    /// Days of the week, Monday is 1.
    DayOfWeek,
}

impl CalendarPart {
    /// The part of a name, in the singular or plural.
    pub fn from_name(name: &str) -> Option<CalendarPart> {
        let name = name.to_ascii_lowercase();
        Some(match name.strip_suffix('s').unwrap_or(&name) {
            "year" => CalendarPart::Year,
            "quarter" => CalendarPart::Quarter,
            "month" => CalendarPart::Month,
            "week" => CalendarPart::Week,
            "day" => CalendarPart::Day,
            "hour" => CalendarPart::Hour,
            "minute" => CalendarPart::Minute,
            "second" => CalendarPart::Second,
            "doy" => CalendarPart::DayOfYear,
            "dow" | "isodow" => CalendarPart::DayOfWeek,
            _ => return None,
        })
    }

    /// Whether instants can be truncated to it.
    pub fn is_span(self) -> bool {
        !matches!(self, CalendarPart::DayOfYear | CalendarPart::DayOfWeek)
    }

    /// The start of the part that an instant lies in; `None` outside the years -9999 to 9999.
    /// About 100 ns.
    pub fn truncate(self, ticks: i64, unit: TimeUnit, zone: &Zone) -> Option<i64> {
        let zoned = zoned(ticks, unit, zone)?;
        let date = zoned.date();
        let start = match self {
            CalendarPart::Year => date.first_of_year(),
            CalendarPart::Quarter => {
                Date::new(date.year(), (date.month() - 1) / 3 * 3 + 1, 1).ok()?
            }
            CalendarPart::Month => date.first_of_month(),
            CalendarPart::Week => {
                let back = i64::from(date.weekday().to_monday_zero_offset());
                date.checked_sub(jiff::Span::new().days(back)).ok()?
            }
            CalendarPart::Day => date,
            CalendarPart::Hour => return truncated(&zoned, Unit::Hour, unit),
            CalendarPart::Minute => return truncated(&zoned, Unit::Minute, unit),
            CalendarPart::Second => return truncated(&zoned, Unit::Second, unit),
            CalendarPart::DayOfYear | CalendarPart::DayOfWeek => return None,
        };
        let start =
            start.to_datetime(Time::midnight()).to_zoned_datetime(zone.inner().clone()).ok()?;
        ticks_of(start.timestamp(), unit)
    }

    /// The number of the part that an instant lies in; `None` outside the years -9999 to 9999.
    pub fn number(self, ticks: i64, unit: TimeUnit, zone: &Zone) -> Option<i64> {
        let zoned = zoned(ticks, unit, zone)?;
        Some(match self {
            CalendarPart::Year => i64::from(zoned.year()),
            CalendarPart::Quarter => i64::from((zoned.month() - 1) / 3 + 1),
            CalendarPart::Month => i64::from(zoned.month()),
            CalendarPart::Week => i64::from(zoned.date().iso_week_date().week()),
            CalendarPart::Day => i64::from(zoned.day()),
            CalendarPart::Hour => i64::from(zoned.hour()),
            CalendarPart::Minute => i64::from(zoned.minute()),
            CalendarPart::Second => i64::from(zoned.second()),
            CalendarPart::DayOfYear => i64::from(zoned.day_of_year()),
            CalendarPart::DayOfWeek => i64::from(zoned.weekday().to_monday_one_offset()),
        })
    }
}

/// An instant as text by a pattern of `strftime`; `None` where the pattern asks for what is not
/// there, and outside the years -9999 to 9999.
pub fn format_pattern(ticks: i64, unit: TimeUnit, zone: &Zone, pattern: &str) -> Option<String> {
    strtime::format(pattern, &zoned(ticks, unit, zone)?).ok()
}

fn zoned(ticks: i64, unit: TimeUnit, zone: &Zone) -> Option<ZonedDateTime> {
    let timestamp = Timestamp::from_nanosecond(i128::from(ticks) * i128::from(unit.ns())).ok()?;
    Some(timestamp.to_zoned_datetime(zone.inner().clone()))
}

fn truncated(zoned: &ZonedDateTime, to: Unit, unit: TimeUnit) -> Option<i64> {
    let rounded =
        zoned.round(ZonedDateTimeRound::new().smallest(to).mode(RoundMode::Floor)).ok()?;
    ticks_of(rounded.timestamp(), unit)
}

fn ticks_of(timestamp: Timestamp, unit: TimeUnit) -> Option<i64> {
    i64::try_from(timestamp.as_nanosecond().div_euclid(i128::from(unit.ns()))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::text::{TimeFormat, TimeParser};

    fn at(text: &str) -> i64 {
        TimeParser::new(&TimeFormat::Auto, &Zone::UTC, TimeUnit::Ms).parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn parts_start_where_the_zone_says() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        let time = at("2024-03-31T22:47:11.5Z");
        for (name, in_utc, in_berlin) in [
            ("second", "2024-03-31T22:47:11Z", "2024-03-31T22:47:11Z"),
            ("minute", "2024-03-31T22:47:00Z", "2024-03-31T22:47:00Z"),
            ("hours", "2024-03-31T22:00:00Z", "2024-03-31T22:00:00Z"),
            ("day", "2024-03-31T00:00:00Z", "2024-03-31T22:00:00Z"),
            ("week", "2024-03-25T00:00:00Z", "2024-03-31T22:00:00Z"),
            ("Month", "2024-03-01T00:00:00Z", "2024-03-31T22:00:00Z"),
            ("quarter", "2024-01-01T00:00:00Z", "2024-03-31T22:00:00Z"),
            ("year", "2024-01-01T00:00:00Z", "2023-12-31T23:00:00Z"),
        ] {
            let part = CalendarPart::from_name(name).unwrap();
            assert!(part.is_span());
            assert_eq!(part.truncate(time, TimeUnit::Ms, &Zone::UTC), Some(at(in_utc)), "{name}");
            let found = part.truncate(time, TimeUnit::Ms, &berlin);
            assert_eq!(found, Some(at(in_berlin)), "{name} in Berlin");
        }
        assert_eq!(CalendarPart::Day.truncate(-1, TimeUnit::Ms, &Zone::UTC), Some(-86_400_000));
        assert_eq!(CalendarPart::Day.truncate(i64::MAX, TimeUnit::Ms, &Zone::UTC), None);
    }

    #[test]
    fn parts_have_numbers() {
        let time = at("2024-02-05T07:08:09Z");
        for (name, number) in [
            ("year", 2024),
            ("quarter", 1),
            ("month", 2),
            ("week", 6),
            ("day", 5),
            ("hour", 7),
            ("minute", 8),
            ("second", 9),
            ("doy", 36),
            ("dow", 1),
        ] {
            let part = CalendarPart::from_name(name).unwrap();
            assert_eq!(part.number(time, TimeUnit::Ms, &Zone::UTC), Some(number), "{name}");
        }
        assert_eq!(CalendarPart::from_name("fortnight"), None);
        let text = format_pattern(time, TimeUnit::Ms, &Zone::UTC, "%Y-%m %H");
        assert_eq!(text.as_deref(), Some("2024-02 07"));
        assert_eq!(format_pattern(time, TimeUnit::Ms, &Zone::UTC, "%!"), None);
    }
}
