//! Options that change one thing of a workload each: `gen`, `bench` and `load` have them.

use crate::cli::Failure;
use crate::cli::bench::count;
use crate::cli::number::whole;
use crate::event::Side;
use crate::time::text::{TimeSpan, TimeUnit};
use crate::workload::random::ZipfShape;
use crate::workload::{Burst, KeyRule, LateEvents, Workload};

/// The options that `gen` and `load` have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args)]
pub(super) struct ShapeArgs {
    /// How many keys there are; unique: each event of a side has one of its own
    #[arg(long, value_name = "N|unique", value_parser = keys, allow_negative_numbers = true)]
    pub(super) keys: Option<Keys>,
    /// Key k is drawn in proportion to 1 / k^S: 0 evenly, 1 as words in a language (up to 10)
    #[arg(long, value_name = "S", value_parser = skew, allow_negative_numbers = true)]
    pub(super) skew: Option<Skew>,
    /// Right events happen up to this long after the left ones of the same number
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) delay: Option<TimeSpan>,
    /// Events arrive up to this long after their time: watermarks have to trail by as much, as
    /// with --out-of-orderness
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) disorder: Option<TimeSpan>,
    /// This share of each side's events, to the nearest whole number, arrives later than that, and
    /// is late: 0.01 or 1%
    #[arg(long, value_name = "SHARE", value_parser = share, allow_negative_numbers = true)]
    pub(super) late_share: Option<Share>,
    /// Bytes of a payload beside the id
    #[arg(
        long, value_name = "BYTES",
        value_parser = whole::<u32>(0, PAYLOAD_MAX), allow_negative_numbers = true
    )]
    pub(super) payload: Option<u32>,
}

/// What the user wants to be otherwise than in the workload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shape {
    pub(super) keys: Option<Keys>,
    pub(super) skew: Option<Skew>,
    /// Events a second and side, in event time.
    pub(super) rate: Option<u64>,
    pub(super) delay: Option<TimeSpan>,
    pub(super) disorder: Option<TimeSpan>,
    pub(super) late_share: Option<Share>,
    pub(super) payload: Option<u32>,
    pub(super) burst: Option<Burst>,
}

impl ShapeArgs {
    /// The shape, with what commands give each in their own way.
    pub(super) fn shape(&self, rate: Option<u64>, burst: Option<Burst>) -> Shape {
        let ShapeArgs { keys, skew, delay, disorder, late_share, payload } = *self;
        Shape { keys, skew, rate, delay, disorder, late_share, payload, burst }
    }
}

/// Events a second that there may be in event time.
const EVENT_RATE_MAX: u64 = 1_000_000_000;

/// A row of this length leaves room for batches of them.
pub(super) const PAYLOAD_MAX: u64 = 65_536;

/// The value of `--keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    Unique,
    Count(u64),
}

/// The exponent of Zipf's law, in hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Skew(pub(super) u32);

/// So many in a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(u32);

/// Events arrive at most so long after their turn: two hours. The generator has a slot for each
/// millisecond of it.
const ARRIVAL_MS_MAX: u64 = 7_200_000;

/// The generator holds at most so many events that have not arrived yet: 2.4 GB of them.
const PENDING_MAX: u64 = 100_000_000;

impl Shape {
    /// The workload with the changes.
    ///
    /// # Errors
    /// [`Failure::Usage`] names the options that do not go together, or ask for too much.
    pub(super) fn of(&self, workload: Workload, events_per_side: u64) -> Result<Workload, Failure> {
        let ms = |option: &str, span: TimeSpan| {
            let ticks = span.ticks_non_negative(TimeUnit::Ms);
            let ticks = ticks.map_err(|error| Failure::usage(format!("{option}: {error}")))?;
            let ms = ticks.unsigned_abs();
            if ms > ARRIVAL_MS_MAX {
                return Err(Failure::usage(format!(
                    "{option}: {span} is too long; 2h at the most"
                )));
            }
            Ok(ms)
        };
        let mut shaped = Workload { keys: self.key_rule(workload.keys)?, ..workload };
        if let Some(rate) = self.rate {
            shaped = shaped.with_rate(rate);
        }
        if let Some(delay) = self.delay {
            shaped.right_delay_ms = ms("--delay", delay)? + 1;
        }
        if let Some(disorder) = self.disorder {
            shaped.disorder_ms = ms("--disorder", disorder)?;
        }
        if let Some(Share(ppm)) = self.late_share {
            shaped.late_ppm = ppm;
        }
        if let Some(bytes) = self.payload {
            shaped.payload_bytes = bytes;
        }
        shaped.burst = self.burst.or(shaped.burst);
        check_memory(&shaped, events_per_side)?;
        Ok(shaped)
    }

    fn key_rule(&self, own: KeyRule) -> Result<KeyRule, Failure> {
        let own_count = match own {
            KeyRule::Unique => None,
            KeyRule::Uniform(count) => Some(count),
            KeyRule::Zipf(shape) => Some(shape.keys),
        };
        let count = match self.keys {
            Some(Keys::Unique) => None,
            Some(Keys::Count(count)) => Some(count),
            None => own_count,
        };
        let skew = match (self.skew, own) {
            (Some(Skew(hundredths)), _) => hundredths,
            (None, KeyRule::Zipf(shape)) if count.is_some() => shape.exponent_hundredths,
            _ => 0,
        };
        match count {
            None if skew > 0 => Err(Failure::usage(
                "--skew: each key comes once a side, so there is nothing to skew; give --keys N",
            )),
            None => Ok(KeyRule::Unique),
            Some(count) if skew == 0 => Ok(KeyRule::Uniform(count)),
            Some(keys) if keys <= ZipfShape::KEYS_MAX => {
                Ok(KeyRule::Zipf(ZipfShape { keys, exponent_hundredths: skew }))
            }
            Some(keys) => Err(Failure::usage(format!(
                "--keys {keys}: skewed keys come from a table of at most {}; give fewer, or \
                 --skew 0",
                ZipfShape::KEYS_MAX
            ))),
        }
    }
}

/// Refuses what would not be made in bounded memory.
fn check_memory(workload: &Workload, events_per_side: u64) -> Result<(), Failure> {
    let span_ms = workload.arrival_span_ms(Side::Right);
    if span_ms > 2 * ARRIVAL_MS_MAX {
        return Err(Failure::usage(format!(
            "--delay, --disorder, --late-share and --burst: events would arrive up to {} s after \
             their turn, and {} s are allowed; give shorter ones",
            span_ms / 1_000,
            2 * ARRIVAL_MS_MAX / 1_000
        )));
    }
    let pending = workload.rate.saturating_mul(span_ms) / 1_000;
    if pending.min(events_per_side) > PENDING_MAX {
        return Err(Failure::usage(format!(
            "--rate {}: {pending} events would be on their way at a time, and {PENDING_MAX} are \
             allowed; give a lower rate, or a shorter --delay and --disorder",
            workload.rate
        )));
    }
    Ok(())
}

/// Refuses a share of late events that so few cannot have.
///
/// # Errors
/// [`Failure::Usage`] says how many there can be.
pub(super) fn check_late(
    workload: &Workload,
    seed: u64,
    events_per_side: u64,
) -> Result<(), Failure> {
    for side in Side::BOTH {
        let LateEvents { wanted, possible } = LateEvents::of(workload, side, seed, events_per_side);
        if wanted > possible {
            return Err(Failure::usage(format!(
                "--late-share: {wanted} of {events_per_side} {} events are to be late, and \
                 {possible} can be: the watermark trails by {} ms (--disorder), and others have to \
                 move it past an event before that comes; give a smaller share, a shorter \
                 --disorder, or more events",
                side.name(),
                workload.disorder_ms
            )));
        }
    }
    Ok(())
}

/// Events a second in event time, for clap.
pub(super) fn event_rate(text: &str) -> Result<u64, String> {
    let rate = count(text).ok().filter(|rate| (1..=EVENT_RATE_MAX).contains(rate));
    rate.ok_or_else(|| "give events a second from 1 to 1e9, such as 2_000 or 2e3".to_owned())
}

/// `unique` or a count, for clap.
pub(super) fn keys(text: &str) -> Result<Keys, String> {
    match text {
        "unique" => Ok(Keys::Unique),
        _ => match count(text) {
            Ok(0) | Err(_) => Err("give a number of keys from 1, or unique".to_owned()),
            Ok(count) => Ok(Keys::Count(count)),
        },
    }
}

/// An exponent with two digits behind the point, for clap.
pub(super) fn skew(text: &str) -> Result<Skew, String> {
    let wrong = || "give a number from 0 to 10 with two digits at the most, like 1 or 0.75";
    let hundredths = decimal(text, 2).ok_or_else(wrong)?;
    match u32::try_from(hundredths) {
        Ok(hundredths) if hundredths <= ZipfShape::EXPONENT_HUNDREDTHS_MAX => Ok(Skew(hundredths)),
        _ => Err(wrong().to_owned()),
    }
}

fn share(text: &str) -> Result<Share, String> {
    let ppm = match text.strip_suffix('%') {
        Some(percent) => decimal(percent, 4),
        None => decimal(text, 6),
    };
    match ppm.and_then(|ppm| u32::try_from(ppm).ok()) {
        Some(ppm) if ppm <= 1_000_000 => Ok(Share(ppm)),
        _ => Err("give a share from 0 to 1, like 0.01, or 1%".to_owned()),
    }
}

/// A period and a factor, for clap.
pub(super) fn burst(text: &str) -> Result<Burst, String> {
    let wrong = || "give a period and how many times as fast, like 10s,5".to_owned();
    let (period, factor) = text.split_once(',').ok_or_else(wrong)?;
    let period: TimeSpan = period.trim().parse().map_err(|error| format!("the period: {error}"))?;
    let period = period.ticks_non_negative(TimeUnit::Ms).map_err(|error| error.to_string())?;
    let factor = factor.trim().parse().ok().filter(|factor| (1..=1_000_000).contains(factor));
    match (period.unsigned_abs(), factor) {
        (period_ms @ 1..=ARRIVAL_MS_MAX, Some(factor)) => Ok(Burst { period_ms, factor }),
        _ => Err(wrong()),
    }
}

/// A number that is not negative, times 10 to the power of `digits`; `None` if it has more digits
/// behind the point or is none.
fn decimal(text: &str, digits: usize) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if rest.len() > digits
        || (whole.len() + rest.len()) == 0
        || !is_number(whole)
        || !is_number(rest)
    {
        return None;
    }
    format!("{whole}{rest:0<digits$}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn w(name: &str) -> Workload {
        Workload::by_name(name).unwrap()
    }

    #[test]
    fn numbers_are_read_exactly() {
        assert_eq!(skew("0.75"), Ok(Skew(75)));
        assert_eq!(skew("1"), Ok(Skew(100)));
        assert_eq!(share("1%"), share("0.01"));
        assert_eq!(share("0.5%"), Ok(Share(5_000)));
        assert_eq!(burst("10s,5"), Ok(Burst { period_ms: 10_000, factor: 5 }));
        assert_eq!(keys("1e6"), Ok(Keys::Count(1_000_000)));
        assert_eq!([event_rate("2e3"), event_rate("1e9")], [Ok(2_000), Ok(EVENT_RATE_MAX)]);
        assert!(["0", "1e10", "1.5", "-1", ""].map(event_rate).iter().all(Result::is_err));
        for wrong in ["", ".", "-1", "1e1", "0.755", "11", "x"] {
            assert!(skew(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["", "2", "101%", "-0.1", "0.0000001"] {
            assert!(share(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["", "10s", "10s,0", "0s,5", "5,5", "3h,2"] {
            assert!(burst(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn each_option_changes_one_thing() {
        assert_eq!(Shape::default().of(w("w3a"), 1).unwrap(), w("w3a"));
        let shape = Shape { keys: Some(Keys::Count(9)), ..Shape::default() };
        let skewed = KeyRule::Zipf(ZipfShape { keys: 9, exponent_hundredths: 100 });
        assert_eq!(shape.of(w("w3a"), 1).unwrap(), Workload { keys: skewed, ..w("w3a") });
        let even = Workload { keys: KeyRule::Uniform(9), ..w("w1a") };
        assert_eq!(shape.of(w("w1a"), 1).unwrap(), even);
        let flat = Shape { skew: Some(Skew(0)), ..Shape::default() };
        assert_eq!(flat.of(w("w3a"), 1).unwrap().keys, KeyRule::Uniform(1_000_000));
        let delay = Shape { delay: "60s".parse().ok(), ..Shape::default() };
        assert_eq!(delay.of(w("w1a"), 1).unwrap(), w("w1a"));
    }

    #[test]
    fn what_makes_no_sense_or_takes_too_much_is_refused() {
        let none = Shape::default();
        let skewed = Shape { skew: Some(Skew(100)), ..none };
        let long = Shape { disorder: "1d".parse().ok(), ..none };
        let dense = Shape { rate: Some(1_000_000_000), ..none };
        for (shape, name, told) in [
            (skewed, "w1a", "--keys"),
            (Shape { keys: Some(Keys::Count(20_000_000)), ..skewed }, "w2", "--keys"),
            (Shape { keys: Some(Keys::Unique), ..skewed }, "w2", "--skew"),
            (long, "w2", "--disorder"),
            (dense, "w1a", "--rate"),
        ] {
            let failure = shape.of(w(name), 1 << 40).unwrap_err();
            assert!(failure.message().unwrap().contains(told), "{failure:?}");
        }
        assert!(dense.of(w("w1a"), 1_000).is_ok(), "few events are few, however dense");
    }
}
