//! Numbers for people.

use std::time::Duration;

use crate::time::text::{TimeSpan, TimeUnit};

/// `1234567` as `1,234,567`.
pub(super) fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with so many digits behind its point: `1234.56` as `1,234.6`.
pub(super) fn show_decimal(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let Ok(count) = whole.parse() else { return format!("{value:.digits$}") };
    let sign = if value < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) {
        "-"
    } else {
        ""
    };
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{part}", show_count(count))
}

/// A number by its size: `950`, `12.3 k`, `4.56 M`.
pub(super) fn show_rate(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e3 => (v / 1e3, " k"),
        v => (v, ""),
    };
    if unit.is_empty() { format!("{value:.0}") } else { format!("{value:.2}{unit}") }
}

/// Nanoseconds in the unit that reads best.
pub(super) fn show_ns(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// A duration as options have it: `1h`, `1m30s`, `100us`.
pub(super) fn show_span(duration: Duration) -> String {
    match i64::try_from(duration.as_nanos()) {
        Ok(ns) => TimeSpan::from_ticks(ns, TimeUnit::Ns).to_string(),
        // Three centuries.
        Err(_) => format!("{duration:?}"),
    }
}

/// Joins the cells of each row with two blanks, all cells of a column aligned to the right.
pub(super) fn columns_right(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(show_count), ["0", "999", "1,000", "1,234,567"]);
        let decimals = [(1234.56, 1), (-1234.56, 0), (-0.04, 1), (999.96, 1), (f64::NAN, 1)];
        assert_eq!(
            decimals.map(|(value, digits)| show_decimal(value, digits)),
            ["1,234.6", "-1,235", "0.0", "1,000.0", "NaN"]
        );
        assert_eq!(
            [0.0, 950.4, 12_345.0, 4.56e6].map(show_rate),
            ["0", "950", "12.35 k", "4.56 M"]
        );
        assert_eq!(
            [5, 1_500, 2_000_000, 3_000_000_000].map(show_ns),
            ["5 ns", "1.5 us", "2.0 ms", "3.00 s"]
        );
        let spans = [0, 100_000, 1_500_000_000, 3_600_000_000_000].map(Duration::from_nanos);
        assert_eq!(spans.map(show_span), ["0", "100us", "1s500ms", "1h"]);
    }
}
