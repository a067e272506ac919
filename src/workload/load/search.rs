//! Looks for the highest rate that an engine sustains.

/// Ends when the lowest bad rate is less than this above the highest good one.
const RATIO_MIN: f64 = 1.05;
/// Rates beyond are not tried: no clock tells single events of them apart.
const RATE_MAX: f64 = 1e9;
/// A rate is bad when it fails this often in a row: a shared machine has its moments.
const TRIES: usize = 2;

/// A rate as low as this that is bad, or a tenth of the first one if that is lower, is the last one
/// of a descent: what misses its bound there does so for another reason than the rate.
const RATE_LOW: f64 = 1_000.0;

/// The highest good rate, to 5 %: from `first` on it doubles (or halves) until it has a good and a
/// bad rate, then cuts the ratio between them in half, geometrically. `None` when a low rate, of at
/// most 1,000 or a tenth of the first, is bad as well.
///
/// # Errors
/// The first one of `try_rate`.
pub fn find_max<E>(
    first: f64,
    mut try_rate: impl FnMut(f64) -> Result<bool, E>,
) -> Result<Option<f64>, E> {
    let mut is_good = |rate: f64| -> Result<bool, E> {
        for _ in 0..TRIES {
            if try_rate(rate)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let (mut good, mut bad) = (None, None);
    let mut rate = first.clamp(1.0, RATE_MAX);
    let low = RATE_LOW.min(rate / 10.0).max(1.0);
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
            (None, Some(bad)) if bad <= low => return Ok(None),
            (None, _) => (rate / 2.0).max(1.0),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(first: f64, limit: f64) -> (Option<f64>, usize) {
        let mut tries = 0;
        let result = find_max(first, |rate| {
            tries += 1;
            Ok::<bool, ()>(rate <= limit)
        });
        (result.unwrap(), tries)
    }

    #[test]
    fn the_limit_is_found_from_either_side() {
        for limit in [1_100.0, 123_456.0, 5e6] {
            for first in [1.0, 777.0, 100_000.0, 1e9] {
                let (rate, _) = found(first, limit);
                let rate = rate.unwrap();
                assert!(rate <= limit && rate * RATIO_MIN >= limit, "{limit} from {first}: {rate}");
            }
        }
        // What is not good at 781 a second is not looked for at one.
        assert_eq!(found(1e5, 0.0), (None, 2 * 8));
        assert_eq!(found(600.0, 100.0).0.map(f64::round), Some(97.0));
        assert_eq!(found(600.0, 20.0), (None, 2 * 5));
        assert_eq!(found(2.0, 0.0), (None, 2 * 2));
        assert_eq!(found(1e5, f64::INFINITY).0, Some(RATE_MAX));
        assert!(found(1e5, 3e6).1 < 20);
    }

    #[test]
    fn a_moment_of_weakness_is_forgiven_and_errors_are_not() {
        let mut tries = 0;
        let rate = find_max(1e3, |rate| {
            tries += 1;
            Ok::<bool, ()>(rate <= 1e4 && tries % 2 == 0)
        });
        assert!(rate.unwrap().unwrap() > 9e3);
        assert_eq!(find_max(1e3, |_| Err::<bool, i32>(7)), Err(7));
    }
}
