//! The one fixed shape of dates and times that nearly all files have, read digit by digit:
//! `YYYY-MM-DD?HH:MM:SS[.fraction][Z|±HH:MM]`, where `?` is `T`, `t` or a space.
//!
//! Anything else is left to jiff, which is also what this is tested against.

/// A date and time as written. All parts are in range, and the day exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub year: i16,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub subsec_ns: u32,
    /// Digits of the fraction as written, 0 to 9.
    pub fraction_digits: u8,
    /// Seconds east of UTC, if the text says so.
    pub offset_s: Option<i32>,
}

impl Civil {
    /// Reads the fixed shape; `None` for anything else.
    #[inline]
    pub(super) fn parse(text: &[u8]) -> Option<Civil> {
        let (head, tail) = text.split_first_chunk::<19>()?;
        let separators = head[4] == b'-'
            && head[7] == b'-'
            && matches!(head[10], b'T' | b't' | b' ')
            && head[13] == b':'
            && head[16] == b':';
        if !separators {
            return None;
        }
        // Each digit that is none sets a bit over 9, which is looked at once at the end.
        let mut wrong = 0u8;
        let mut two = |at: usize| {
            let (tens, ones) = (head[at].wrapping_sub(b'0'), head[at + 1].wrapping_sub(b'0'));
            wrong |= u8::from(tens > 9) | u8::from(ones > 9);
            tens.wrapping_mul(10).wrapping_add(ones)
        };
        let year = i16::from(two(0)) * 100 + i16::from(two(2));
        let (month, day) = (two(5), two(8));
        let (hour, minute, second) = (two(11), two(14), two(17));
        if wrong != 0
            || !(1..=12).contains(&month)
            || day == 0
            || day > days_in_month(year, month)
            || hour > 23
            || minute > 59
            || second > 59
        {
            return None;
        }
        let (subsec_ns, fraction_digits, tail) = parse_fraction(tail)?;
        let offset_s = parse_offset(tail)?;
        Some(Civil { year, month, day, hour, minute, second, subsec_ns, fraction_digits, offset_s })
    }

    /// Seconds since 1970 if the text were in UTC.
    #[inline]
    pub(super) fn epoch_seconds(&self) -> i64 {
        let days = days_from_civil(i64::from(self.year), self.month, self.day);
        days * 86_400
            + i64::from(self.hour) * 3_600
            + i64::from(self.minute) * 60
            + i64::from(self.second)
    }
}

/// `.digits`, if the text starts so: nanoseconds, digits as written, what follows.
#[inline]
fn parse_fraction(text: &[u8]) -> Option<(u32, u8, &[u8])> {
    let Some((b'.', rest)) = text.split_first() else { return Some((0, 0, text)) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&digits) {
        return None;
    }
    let mut ns = 0u32;
    for &digit in &rest[..digits] {
        ns = ns * 10 + u32::from(digit - b'0');
    }
    Some((ns * 10u32.pow(9 - digits as u32), digits as u8, &rest[digits..]))
}

/// The offset that ends a text: nothing, `Z` or `±HH:MM`. The outer option is the shape.
#[inline]
fn parse_offset(text: &[u8]) -> Option<Option<i32>> {
    match *text {
        [] => Some(None),
        [b'Z' | b'z'] => Some(Some(0)),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let digits = [h1, h2, m1, m2];
            if !digits.iter().all(u8::is_ascii_digit) {
                return None;
            }
            let [h1, h2, m1, m2] = digits.map(|digit| i32::from(digit - b'0'));
            let (hours, minutes) = (h1 * 10 + h2, m1 * 10 + m2);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = hours * 3_600 + minutes * 60;
            Some(Some(if sign == b'-' { -seconds } else { seconds }))
        }
        _ => None,
    }
}

#[inline]
fn days_in_month(year: i16, month: u8) -> u8 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar. Years begin in March here, so that
/// the leap day is the last of its year.
#[inline]
fn days_from_civil(year: i64, month: u8, day: u8) -> i64 {
    let month = i64::from(month);
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = if month <= 2 { month + 9 } else { month - 3 };
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days from 0000-03-01 to 1970-01-01.
    year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with_jiff(text: &str) -> Option<i128> {
        match text.parse::<jiff::Timestamp>() {
            Ok(timestamp) => Some(timestamp.as_nanosecond()),
            Err(_) => {
                let datetime: jiff::civil::DateTime = text.parse().ok()?;
                Some(jiff::tz::TimeZone::UTC.to_timestamp(datetime).ok()?.as_nanosecond())
            }
        }
    }

    fn ours(text: &str) -> Option<i128> {
        let civil = Civil::parse(text.as_bytes())?;
        let seconds = civil.epoch_seconds() - i64::from(civil.offset_s.unwrap_or(0));
        Some(i128::from(seconds) * 1_000_000_000 + i128::from(civil.subsec_ns))
    }

    #[test]
    fn days_of_every_year_and_month() {
        for year in 0..=9999 {
            for month in 1..=12u8 {
                let last = days_in_month(year, month);
                let first = jiff::civil::date(year, month as i8, 1);
                assert_eq!(first.days_in_month() as u8, last);
                let days = days_from_civil(i64::from(year), month, 1);
                let expected = first.duration_since(jiff::civil::date(1970, 1, 1)).as_hours() / 24;
                assert_eq!(days, expected, "{year}-{month}");
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_jiff(
            year in 0i16..=9998, month in 0u8..=13, day in 0u8..=32,
            hour in 0u8..=24, minute in 0u8..=60, second in 0u8..=59,
            separator in prop::sample::select(vec!['T', 't', ' ', '_']),
            fraction in prop_oneof![Just(String::new()), "\\.[0-9]{0,10}"],
            offset in prop_oneof![
                Just(String::new()), Just("Z".to_owned()), Just("z".to_owned()),
                "[+-][0-2][0-9]:[0-6][0-9]",
            ],
        ) {
            let text = format!(
                "{year:04}-{month:02}-{day:02}{separator}{hour:02}:{minute:02}:{second:02}\
                 {fraction}{offset}"
            );
            // What the fixed shape refuses goes to jiff anyway, so only a wrong value is a fault,
            // or a sound text that is not read here.
            match (ours(&text), with_jiff(&text)) {
                (Some(ours), theirs) => prop_assert_eq!(Some(ours), theirs, "{}", text),
                (None, Some(_)) => {
                    // jiff knows 24:00 and offsets of a day and more.
                    let long_offset = offset.starts_with("+2") || offset.starts_with("-2");
                    prop_assert!(hour == 24 || long_offset, "{}", text);
                }
                (None, None) => {}
            }
        }

        #[test]
        fn broken_texts_are_left_alone(text in "[-0-9T:.Z+ a]{0,30}") {
            if let Some(ours) = ours(&text) {
                prop_assert_eq!(Some(ours), with_jiff(&text), "{}", text);
            }
        }
    }
}
