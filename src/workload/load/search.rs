//! Looks for the highest rate that an engine sustains.

/// Ends when the lowest bad rate is less than this above the highest good one.
const RATIO_MIN: f64 = 1.05;
/// A rate at which the host got in the way has this many tries in all, to see it without.
const TRIES_DISTURBED: usize = 5;
/// Rates beyond are not tried: no clock tells single events of them apart.
const RATE_MAX: f64 = 1e9;
/// A rate is bad when it fails this often in a row: a shared machine has its moments.
const TRIES: usize = 2;

/// A descent goes in steps of this: each may take two whole loads.
const DOWN: f64 = 4.0;

/// What a try of a rate came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It is sustained.
    Good,
    /// It is not.
    Bad,
    /// It was not, and the host is enough to explain that: this says nothing about the engine.
    Disturbed,
}

/// The highest good rate, to 5 %: from `first` on it doubles (or is quartered, not below `least`)
/// until it has a good and a bad rate, then cuts the ratio between them in half, geometrically.
/// A rate is bad after two bad tries, or after five of which some were disturbed. `None` when
/// `least` is bad as well, or `first` if that is lower.
///
/// # Errors
/// The first one of `try_rate`.
pub fn find_max<E>(
    first: f64,
    least: f64,
    mut try_rate: impl FnMut(f64) -> Result<Tried, E>,
) -> Result<Option<f64>, E> {
    let mut is_good = |rate: f64| -> Result<bool, E> {
        let mut bad = 0;
        for _ in 0..TRIES_DISTURBED {
            match try_rate(rate)? {
                Tried::Good => return Ok(true),
                Tried::Bad => bad += 1,
                Tried::Disturbed => {}
            }
            if bad == TRIES {
                break;
            }
        }
        Ok(false)
    };
    let (mut good, mut bad) = (None, None);
    let mut rate = first.clamp(1.0, RATE_MAX);
    let least = least.clamp(1.0, rate);
    loop {
        if is_good(rate)? {
            good = Some(rate);
        } else {
            bad = Some(rate);
        }
        rate = match (good, bad) {
            (Some(good), Some(bad)) if bad / good < RATIO_MIN => return Ok(Some(good)),
            (Some(good), Some(bad)) => (good * bad).sqrt(),
            (Some(good), None) if good >= RATE_MAX => return Ok(Some(good)),
            (Some(good), None) => (good * 2.0).min(RATE_MAX),
            (None, Some(bad)) if bad <= least => return Ok(None),
            (None, _) => (rate / DOWN).max(least),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good_if(is_good: bool) -> Tried {
        if is_good { Tried::Good } else { Tried::Bad }
    }

    fn found(first: f64, least: f64, limit: f64) -> (Option<f64>, usize) {
        let mut tries = 0;
        let result = find_max(first, least, |rate| {
            tries += 1;
            Ok::<Tried, ()>(good_if(rate <= limit))
        });
        (result.unwrap(), tries)
    }

    #[test]
    fn the_limit_is_found_from_either_side() {
        for limit in [12.0, 1_100.0, 123_456.0, 5e6] {
            for first in [1.0, 777.0, 100_000.0, 1e9] {
                let (rate, _) = found(first, 10.0, limit);
                let rate = rate.unwrap();
                assert!(rate <= limit && rate * RATIO_MIN >= limit, "{limit} from {first}: {rate}");
            }
        }
        // 1e5, 25e3, 6,250, 1,562, 391, 98, 24, and the least.
        assert_eq!(found(1e5, 10.0, 0.0), (None, 2 * 8));
        assert_eq!(found(1e5, 10.0, 10.0).0, Some(10.0), "the least is tried itself");
        assert_eq!(found(5.0, 10.0, 0.0), (None, 2), "not below where the user begins");
        assert_eq!(found(1e5, 10.0, f64::INFINITY).0, Some(RATE_MAX));
        assert!(found(1e5, 10.0, 3e6).1 < 20);
    }

    #[test]
    fn a_moment_of_weakness_is_forgiven_and_errors_are_not() {
        let mut tries = 0;
        let rate = find_max(1e3, 1.0, |rate| {
            tries += 1;
            Ok::<Tried, ()>(good_if(rate <= 1e4 && tries % 2 == 0))
        });
        assert!(rate.unwrap().unwrap() > 9e3);
        assert_eq!(find_max(1e3, 1.0, |_| Err::<Tried, i32>(7)), Err(7));
    }

    #[test]
    fn a_disturbed_try_is_none_and_there_is_an_end_of_them() {
        // Every rate is disturbed three times before it shows what it is.
        let (mut last, mut tries) = (0.0, 0);
        let mut shy = |rate: f64| {
            tries = if rate == last { tries + 1 } else { 1 };
            last = rate;
            Ok::<Tried, ()>(if tries <= 3 { Tried::Disturbed } else { good_if(rate <= 1e4) })
        };
        let rate = find_max(1e3, 1.0, &mut shy).unwrap().unwrap();
        assert!(rate > 9e3 && rate <= 1e4, "{rate}");
        let mut tries = 0;
        let none = find_max(1e3, 1e3, |_| {
            tries += 1;
            Ok::<Tried, ()>(Tried::Disturbed)
        });
        assert_eq!((none, tries), (Ok(None), TRIES_DISTURBED));
    }
}
