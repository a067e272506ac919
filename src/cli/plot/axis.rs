//! One axis of a chart: from values to pixels, and where its ticks stand.

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Scale {
    Linear,
    /// Linear, for counts: ticks are whole numbers.
    Whole,
    /// Linear, with 0 at the lower end: lengths can be compared.
    FromZero,
    /// The same, with ticks that are whole numbers of KiB, MiB and so on.
    Bytes,
    /// Values from 0 down stand at the lower end.
    Log,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Where the ends are, in pixels.
    from: f64,
    to: f64,
}

/// Ticks that a linear axis has, about.
const TICKS_LINEAR: f64 = 6.0;

impl Axis {
    /// An axis that has room for all of `values`.
    pub(super) fn new(
        scale: Scale,
        values: impl Iterator<Item = f64>,
        (from, to): (f64, f64),
    ) -> Axis {
        let usable = |value: &f64| value.is_finite() && (scale != Scale::Log || *value > 0.0);
        let (mut low, mut high) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        match scale {
            Scale::FromZero | Scale::Bytes => {
                (low, high) = (low.min(0.0), high.max(low.min(0.0) + 1e-9) * 1.05)
            }
            Scale::Linear | Scale::Whole if low == high => (low, high) = (low - 1.0, high + 1.0),
            Scale::Linear | Scale::Whole => {}
            // A little air at both ends.
            Scale::Log => (low, high) = (low / 1.25, high * 1.25),
        }
        Axis { scale, low, high, from, to }
    }

    /// Where a value stands; values outside stand at the ends.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear | Scale::Whole | Scale::FromZero | Scale::Bytes => {
                (value - self.low) / (self.high - self.low)
            }
            Scale::Log if value <= 0.0 => 0.0,
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The values that get a tick, ascending.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let ticks = match self.scale {
            Scale::Linear | Scale::FromZero => self.linear_ticks(1.0),
            Scale::Whole => self.whole_ticks(),
            Scale::Bytes => {
                let rough = (self.high - self.low) / TICKS_LINEAR;
                let units = [4, 3, 2, 1].map(|power| 1024f64.powi(power));
                let unit = units.into_iter().find(|unit| rough >= unit / 2.0);
                self.linear_ticks(unit.unwrap_or(1.0))
            }
            Scale::Log => self.log_ticks(),
        };
        self.within(&ticks)
    }

    /// Of some values, those that lie on the axis.
    pub(super) fn within(&self, values: &[f64]) -> Vec<f64> {
        values.iter().copied().filter(|value| (self.low..=self.high).contains(value)).collect()
    }

    /// Ticks at round numbers of a unit.
    fn linear_ticks(&self, unit: f64) -> Vec<f64> {
        let rough = (self.high - self.low) / TICKS_LINEAR / unit;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|&step| step >= rough).unwrap_or(rough);
        let step = step * unit;
        let first = (self.low / step).ceil();
        (0..=(2.0 * TICKS_LINEAR) as u32).map(|n| (first + f64::from(n)) * step).collect()
    }

    /// Ticks at whole numbers, however little there is between the ends.
    fn whole_ticks(&self) -> Vec<f64> {
        let ticks = match self.high - self.low < TICKS_LINEAR {
            true => {
                let first = self.low.ceil();
                (0..=TICKS_LINEAR as u32).map(|n| first + f64::from(n)).collect()
            }
            // Steps of 1, 2, 5 and so on, but for sums that are not exact.
            false => self.linear_ticks(1.0),
        };
        ticks.into_iter().map(f64::round).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = match decades {
            d if d < 1.5 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            d if d < 3.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let powers = (first..=last).map(|power| 10f64.powi(power));
        powers.flat_map(|power| factors.iter().map(move |factor| factor * power)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_between_the_ends_in_order() {
        for scale in [Scale::Linear, Scale::Whole, Scale::FromZero, Scale::Bytes, Scale::Log] {
            let axis = Axis::new(scale, [3.0, 7.0, 500.0].into_iter(), (100.0, 0.0));
            let places: Vec<f64> = [3.0, 7.0, 500.0].map(|value| axis.at(value)).to_vec();
            assert!(places.is_sorted_by(|a, b| a > b), "{places:?}");
            assert!(places.iter().all(|place| (0.0..=100.0).contains(place)), "{places:?}");
            let ticks = axis.ticks();
            assert!((3..15).contains(&ticks.len()) && ticks.is_sorted(), "{ticks:?}");
        }
    }

    #[test]
    fn counts_have_ticks_at_whole_numbers() {
        for (values, expected) in [
            ([1.0, 2.0], vec![1.0, 2.0]),
            ([1.0, 4.0], vec![1.0, 2.0, 3.0, 4.0]),
            ([1.0, 8.0], vec![2.0, 4.0, 6.0, 8.0]),
            ([2.0, 2.0], vec![1.0, 2.0, 3.0]),
            ([1.0, 64.0], vec![20.0, 40.0, 60.0]),
        ] {
            let axis = Axis::new(Scale::Whole, values.into_iter(), (0.0, 100.0));
            assert_eq!(axis.ticks(), expected, "{values:?}");
        }
    }

    #[test]
    fn bytes_have_ticks_at_binary_units() {
        for (high, unit) in [(800.0, 1.0), (9e3, 1024.0), (3e7, 1048576.0), (7e10, 1073741824.0)] {
            let ticks = Axis::new(Scale::Bytes, [high].into_iter(), (100.0, 0.0)).ticks();
            assert!((3..12).contains(&ticks.len()), "{ticks:?}");
            // Halves and fifths at the smallest.
            assert!(ticks.iter().all(|tick| (10.0 * tick / unit).fract() == 0.0), "{ticks:?}");
        }
    }

    #[test]
    fn nothing_to_show_is_no_trouble() {
        for values in [vec![], vec![0.0], vec![f64::NAN, f64::INFINITY], vec![-1.0, -1.0]] {
            for scale in [Scale::Linear, Scale::Whole, Scale::FromZero, Scale::Log] {
                let axis = Axis::new(scale, values.iter().copied(), (0.0, 10.0));
                assert!(axis.at(0.0).is_finite() && axis.ticks().len() < 30, "{values:?}");
            }
        }
    }
}
