//! What options of measuring commands may be, read from what the user typed.

use clap::ValueEnum;

use crate::cli::Failure;
use crate::runtime::CoreChoice;
use crate::time::Bound;
use crate::time::text::{IntervalText, TimeUnit};
use crate::workload::Workload;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Api {
    /// The engine: partition, lanes, shards on --cores
    #[default]
    Engine,
    /// The single-threaded join, no runtime
    Join,
    /// The peers alone
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ConditionChoice {
    /// All matches are pairs
    None,
    /// Those whose ids are both even or both odd
    Half,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Peer {
    /// A hash map of queues a side, event by event; on several cores a thread and a channel each
    Naive,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum Clock {
    #[default]
    Wall,
    Cpu,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    #[default]
    Text,
    Json,
    Csv,
}

/// The workload of that name, for clap.
pub(in crate::cli) fn workload(name: &str) -> Result<Workload, String> {
    Workload::by_name(name).ok_or_else(|| {
        let all = Workload::ALL.iter().chain([&Workload::FREE]);
        let known: Vec<String> = all.map(|w| format!("  {:<4} {}", w.name, w.about)).collect();
        format!("there is no such workload; there are\n{}", known.join("\n"))
    })
}

/// A count as people write large ones: `2000000`, `2_000_000`, `2e6`.
pub(in crate::cli) fn count(text: &str) -> Result<u64, String> {
    let wrong = || "give a whole number, such as 2000000, 2_000_000 or 2e6".to_owned();
    let digits = text.replace('_', "");
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((&digits, "0"));
    let mantissa: u64 = mantissa.parse().map_err(|_| wrong())?;
    let exponent: u32 = exponent.parse().map_err(|_| wrong())?;
    let scale = 10u64.checked_pow(exponent).ok_or_else(wrong)?;
    mantissa.checked_mul(scale).ok_or_else(wrong)
}

/// Both ends in milliseconds, as a closed interval.
///
/// # Errors
/// [`Failure::Usage`] for what has no end, or is finer.
pub(in crate::cli) fn closed_ms(text: &IntervalText) -> Result<(i64, i64), Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("--interval: {error}"));
    let (lo, hi) = text.bounds(TimeUnit::Ms).map_err(|error| wrong(&error))?;
    let lo = match lo {
        Bound::Closed(ms) => ms,
        Bound::Open(ms) => ms.saturating_add(1),
        Bound::Unbounded => return Err(wrong(&"it has no end, so nothing would be freed")),
    };
    let hi = match hi {
        Bound::Closed(ms) => ms,
        Bound::Open(ms) => ms.saturating_sub(1),
        Bound::Unbounded => return Err(wrong(&"it has no end, so nothing would be freed")),
    };
    Ok((lo, hi))
}

/// The value of `--cores`: several choices, to sweep, or one list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CoresText(pub(super) Vec<CoreChoice>);

/// Reads `all`, counts with commas between, or a list of CPUs as `join` has it. What has no range
/// in it is counts, so a list of lone CPUs is written with one: `0-0,2,4`.
pub(super) fn cores(text: &str) -> Result<CoresText, String> {
    let parse = |text: &str| text.parse::<CoreChoice>();
    let choices = match text.contains('-') {
        true => parse(text).map(|list| vec![list]),
        false => text.split(',').map(parse).collect(),
    };
    choices.map(CoresText).map_err(|error| match error.to_string() {
        told if text.contains(',') => format!("{told}; here, lone numbers are counts to sweep"),
        told => told,
    })
}

/// The value of `--interval`: one interval, or several to sweep.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct IntervalsText(pub(super) Vec<IntervalText>);

/// Reads intervals with commas between; commas within brackets stand between the ends of one.
pub(super) fn intervals(text: &str) -> Result<IntervalsText, String> {
    let (mut within, mut parts) = (false, vec![String::new()]);
    for letter in text.chars() {
        match letter {
            '[' | '(' => within = true,
            ']' | ')' => within = false,
            ',' if !within => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().into_iter().for_each(|part| part.push(letter));
    }
    let parsed = parts.iter().map(|part| part.parse().map_err(told));
    parsed.collect::<Result<_, _>>().map(IntervalsText)
}

fn told(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_people_write_them() {
        assert_eq!(count("2000000"), Ok(2_000_000));
        assert_eq!(count("2_000_000"), Ok(2_000_000));
        assert_eq!(count("20e6"), Ok(20_000_000));
        for wrong in ["", "-1", "2.5", "1e", "e6", "1e99", "99999999999e18"] {
            assert!(count(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn cores_are_counts_to_sweep_or_one_list_of_cpus() {
        let count = |count| CoreChoice::count(count).unwrap();
        let read = |text: &str| cores(text).map(|CoresText(choices)| choices);
        assert_eq!(read("1,2,all"), Ok(vec![count(1), count(2), CoreChoice::All]));
        assert_eq!(read("0-1"), Ok(vec![CoreChoice::List(vec![0, 1])]));
        assert_eq!(read("0,2-3"), Ok(vec![CoreChoice::List(vec![0, 2, 3])]));
        assert_eq!(read("0-0,2"), Ok(vec![CoreChoice::List(vec![0, 2])]));
        for wrong in ["0", "1,0", "257", "", "none", "2-1"] {
            assert!(read(wrong).unwrap_err().contains("names no cores"), "{wrong:?}");
        }
    }

    #[test]
    fn intervals_are_split_outside_of_brackets_only() {
        let read = |text: &str| {
            let parsed = intervals(text).map(|IntervalsText(intervals)| intervals);
            parsed.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let texts = |texts: &[&str]| Ok(texts.iter().map(|&text| text.to_owned()).collect());
        assert_eq!(read("[-1s,1s)"), texts(&["[-1s..1s)"]));
        assert_eq!(read("-1s..1s,(0,5s],0..0"), texts(&["[-1s..1s]", "(0..5s]", "[0..0]"]));
        for wrong in ["", "1s", "-1s..1s,", "[-1s,1s", "1s..2s,x"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
