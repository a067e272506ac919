//! Whether something grows over the second half of a long run: a robust slope, set against a
//! threshold and against the noise.

use crate::workload::{MAD_TO_SIGMA, median};

/// Points beyond this are thinned out by medians of neighbours: slopes are taken between all pairs.
const POINTS_MAX: usize = 300;
/// Fewer say nothing.
const POINTS_MIN: usize = 8;

/// What is said of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does not grow by more than the threshold.
    Steady,
    /// It grows by more than the threshold, and by more than its noise.
    Grows,
    /// It seems to grow by more than the threshold, which is within its noise: run longer.
    Unclear,
    /// There are too few values.
    TooFew,
}

impl Verdict {
    /// In one word, for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Steady => "steady",
            Verdict::Grows => "grows",
            Verdict::Unclear => "unclear",
            Verdict::TooFew => "too_few",
        }
    }
}

/// How a series moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Of the values.
    pub median: f64,
    /// The median of the slopes between all pairs of points (Theil and Sen), a second.
    pub slope_per_s: f64,
    /// What that comes to from the first point to the last, of the median.
    pub growth: f64,
    /// How far values lie from that line: their standard deviation, estimated by the median
    /// distance, of the median.
    pub noise: f64,
    /// What that means.
    pub verdict: Verdict,
}

/// The trend of points (seconds, value). `growth_max` is the share of the median that it may grow
/// by from the first point to the last.
///
/// A slope by medians does not move for single outliers, however large: a pause of the machine or
/// one growth step of a table is none.
pub fn trend(points: &[(f64, f64)], growth_max: f64) -> Trend {
    let points = thinned(points);
    let median = median(points.iter().map(|point| point.1).collect());
    let none =
        Trend { median, slope_per_s: 0.0, growth: 0.0, noise: 0.0, verdict: Verdict::TooFew };
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return none };
    if points.len() < POINTS_MIN || median <= 0.0 {
        return none;
    }
    let slopes = points.iter().enumerate().flat_map(|(index, a)| {
        points[index + 1..].iter().filter(|b| b.0 > a.0).map(|b| (b.1 - a.1) / (b.0 - a.0))
    });
    let slope_per_s = self::median(slopes.collect());
    let rests: Vec<f64> = points.iter().map(|point| point.1 - slope_per_s * point.0).collect();
    let base = self::median(rests.clone());
    let distances = rests.iter().map(|rest| (rest - base).abs());
    let noise = MAD_TO_SIGMA * self::median(distances.collect()) / median;
    let growth = slope_per_s * (last.0 - first.0) / median;
    let verdict = match growth {
        growth if growth <= growth_max => Verdict::Steady,
        growth if growth <= 2.0 * noise => Verdict::Unclear,
        _ => Verdict::Grows,
    };
    Trend { median, slope_per_s, growth, noise, verdict }
}

fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(POINTS_MAX).max(1);
    let of = |group: &[(f64, f64)]| {
        let values = |of: fn(&(f64, f64)) -> f64| median(group.iter().map(of).collect());
        (values(|point| point.0), values(|point| point.1))
    };
    points.chunks(size).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::random::rand;

    /// A line with noise of at most `noise` to either side.
    fn points(count: usize, slope: f64, noise: f64) -> Vec<(f64, f64)> {
        let value = |x: u64| {
            let drawn = rand(9, x) as f64 / u64::MAX as f64 - 0.5;
            100.0 + slope * x as f64 + 2.0 * noise * drawn
        };
        (0..count as u64).map(|x| (x as f64, value(x))).collect()
    }

    #[test]
    fn growth_is_told_from_noise() {
        assert_eq!(trend(&points(100, 0.0, 20.0), 0.05).verdict, Verdict::Steady);
        assert_eq!(trend(&points(100, -0.5, 1.0), 0.05).verdict, Verdict::Steady);
        assert_eq!(trend(&points(100, 0.01, 1.0), 0.05).verdict, Verdict::Steady);
        assert_eq!(trend(&points(100, 0.2, 3.0), 0.05).verdict, Verdict::Grows);
        assert_eq!(trend(&points(100, 0.2, 60.0), 0.05).verdict, Verdict::Unclear);
        let line = trend(&points(100, 0.5, 0.0), 0.05);
        assert!((line.slope_per_s - 0.5).abs() < 1e-9 && line.noise < 1e-9, "{line:?}");
        assert!((line.growth - 49.5 / 124.75).abs() < 1e-9, "{line:?}");
    }

    #[test]
    fn outliers_and_steps_of_short_length_are_no_growth() {
        let mut points = points(100, 0.0, 1.0);
        points.iter_mut().skip(70).step_by(7).for_each(|point| point.1 *= 50.0);
        assert_eq!(trend(&points, 0.05).verdict, Verdict::Steady);
        // Saw teeth: state that grows until buckets are freed.
        let teeth: Vec<_> = (0..120).map(|x| (f64::from(x), 100.0 + f64::from(x % 12))).collect();
        assert_eq!(trend(&teeth, 0.05).verdict, Verdict::Steady);
    }

    #[test]
    fn many_points_are_thinned_and_few_say_nothing() {
        let many = trend(&points(50_000, 0.01, 1.0), 0.05);
        assert!((many.slope_per_s - 0.01).abs() < 1e-4, "{many:?}");
        assert_eq!(many.verdict, Verdict::Grows);
        assert_eq!(trend(&points(7, 9.0, 0.0), 0.05).verdict, Verdict::TooFew);
        assert_eq!(trend(&[], 0.05).verdict, Verdict::TooFew);
        let zeros: Vec<_> = (0..50).map(|x| (f64::from(x), 0.0)).collect();
        assert_eq!(trend(&zeros, 0.05).verdict, Verdict::TooFew);
    }
}
