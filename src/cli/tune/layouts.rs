//! Which widths of time buckets and sizes of chunks are worth a try.

use crate::cli::join::{memory_bytes, parse_size};
use crate::cli::tune::trial::Subject;
use crate::limits::STATE_CHUNKS_WITHIN_BOUND;
use crate::state::Layout;
use crate::time::text::{IntervalText, TimeSpan, TimeUnit};
use crate::time::{Bound, Interval};
use crate::workload::Workload;

/// Widths beside the one that is chosen by itself, as multiples of it.
const WIDTHS: [(i64, i64); 4] = [(1, 4), (4, 1), (16, 1), (64, 1)];
/// Beside the smallest there is; from the last one on, chunks have huge pages.
const CHUNKS: [(&str, u64); 3] = [("16KiB", 16 << 10), ("256KiB", 256 << 10), ("2MiB", 2 << 20)];

/// Widths to try; none where the join has no interval with ends.
pub(super) fn bucket_widths(subject: &Subject) -> Vec<String> {
    let Some((interval, unit)) = interval(subject) else { return Vec::new() };
    if interval.is_unbounded() {
        return Vec::new();
    }
    let own = 1i64 << Layout::for_interval(interval, 0).bucket_shift;
    let widths =
        WIDTHS.iter().filter_map(|(times, part)| own.checked_mul(*times)?.checked_div(*part));
    let widths = widths.filter(|&ticks| ticks > 0);
    widths.map(|ticks| TimeSpan::from_ticks(rounded(ticks), unit).to_string()).collect()
}

/// To two digits: the nearest power of two, which is what counts, stays the same.
fn rounded(ticks: i64) -> i64 {
    let digits = ticks.ilog10().saturating_sub(1);
    let step = 10i64.pow(digits);
    (ticks + step / 2) / step * step
}

/// Sizes to try: those that go with the bound on state, if one was given.
pub(super) fn chunks(subject: &Subject) -> Vec<String> {
    let most = match subject {
        Subject::Join { options } => {
            let given = value(options, "--max-state").and_then(|text| parse_size(text).ok());
            // What a join has by default.
            given.unwrap_or(memory_bytes() / 2)
        }
        _ => u64::MAX,
    };
    let fits = |bytes: u64| bytes <= most / STATE_CHUNKS_WITHIN_BOUND;
    CHUNKS.iter().filter(|chunk| fits(chunk.1)).map(|chunk| chunk.0.to_owned()).collect()
}

fn interval(subject: &Subject) -> Option<(Interval, TimeUnit)> {
    let options = match subject {
        Subject::Join { options } => options,
        Subject::Bench { workload, .. } | Subject::Load { workload, .. } => {
            let (lo, hi) = Workload::by_name(workload)?.between;
            let interval = Interval::new(Bound::Closed(lo), Bound::Closed(hi)).ok()?;
            return Some((interval, TimeUnit::Ms));
        }
    };
    // In microseconds, which times as text are in, if they go that far.
    [TimeUnit::Us, TimeUnit::Ms].into_iter().find_map(|unit| {
        let (lo, hi) = match value(options, "--between") {
            Some(text) => text.parse::<IntervalText>().ok()?.bounds(unit).ok()?,
            None => {
                let tolerance: TimeSpan = value(options, "--tolerance")?.parse().ok()?;
                (Bound::Closed(0), Bound::Closed(tolerance.ticks(unit).ok()?))
            }
        };
        Some((Interval::new(lo, hi).ok()?, unit))
    })
}

/// The value of an option, as `--name value` or `--name=value`.
fn value<'a>(options: &'a [String], name: &str) -> Option<&'a str> {
    let place = options.iter().position(|option| option.split('=').next() == Some(name))?;
    match options[place].split_once('=') {
        Some((_, value)) => Some(value),
        None => options.get(place + 1).map(String::as_str),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::layout::{bucket_width, chunk};

    fn join(options: &str) -> Subject {
        Subject::Join { options: options.split_whitespace().map(str::to_owned).collect() }
    }

    #[test]
    fn widths_are_multiples_of_the_one_that_is_chosen() {
        // A sixteenth of 2 s is 125 ms, and the nearest power of two 128.
        let bench = Subject::Bench { workload: "w2", events: 2 };
        assert_eq!(bucket_widths(&bench), ["32ms", "510ms", "2s", "8s200ms"]);
        for text in ["--between -1s..1s --left a", "--left a --between=-1s,1s"] {
            let widths = bucket_widths(&join(text));
            assert_eq!(widths[0], "33ms", "{text}");
            assert!(widths.iter().all(|width| bucket_width(width).is_ok()), "{widths:?}");
        }
        assert_eq!(bucket_widths(&join("--asof backward --tolerance 2s")).len(), 4);
        // Narrower than a tick there is nothing.
        assert_eq!(bucket_widths(&join("--between 0..0")).len(), 3);
        for none in ["--window tumble:5s", "--between", "--between 0..inf", "--between x"] {
            assert!(bucket_widths(&join(none)).is_empty(), "{none}");
        }
    }

    #[test]
    fn a_rounded_width_is_the_same_power_of_two() {
        for power in 0..62 {
            let ticks = rounded(1 << power);
            let layout = Layout::for_interval(Interval::closed(0, 1).unwrap(), 0);
            assert_eq!(layout.with(Some(ticks), None).bucket_shift, power, "{ticks}");
        }
    }

    #[test]
    fn chunks_go_with_the_bound() {
        let bench = Subject::Bench { workload: "w2", events: 2 };
        assert_eq!(chunks(&bench), ["16KiB", "256KiB", "2MiB"]);
        assert_eq!(chunks(&join("--max-state 4GiB")), ["16KiB", "256KiB", "2MiB"]);
        assert_eq!(chunks(&join("--max-state 1GiB")), ["16KiB", "256KiB"]);
        assert!(chunks(&join("--max-state=1000")).is_empty());
        assert!(CHUNKS.iter().all(|(text, bytes)| chunk(text).unwrap().0 == Some(*bytes)));
    }
}
