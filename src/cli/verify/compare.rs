//! The offline join, and what a result has of it.

use std::collections::HashMap;

use crate::cli::Failure;
use crate::cli::join::{Row, Table, Tables};
use crate::cli::verify::result::{Cells, ResultFile, Used};
use crate::event::Side;
use crate::time::text::TimeSpan;

/// Stands for a row that the inputs do not have.
const NO_ROW: u32 = u32::MAX;

/// What a result came to.
#[derive(Default)]
pub(super) struct Comparison {
    /// Pairs of the offline join.
    pub(super) offline: u64,
    /// Rows of the result.
    pub(super) result: u64,
    /// Of the offline pairs, those that the result has.
    pub(super) found: u64,
    pub(super) missing: u64,
    pub(super) extra: u64,
    /// Of the missing ones, those with a row that its own source's watermark had passed.
    pub(super) missing_late: u64,
    /// The first few, as words.
    pub(super) missing_shown: Vec<String>,
    pub(super) extra_shown: Vec<String>,
}

/// Pairs that are shown of each kind.
const SHOWN: usize = 10;
/// Letters of a row that are shown.
const ROW_LETTERS: usize = 120;

/// A pair by the contents of its rows, and where it was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    /// The number of each row's content. Rows of equal content are one.
    contents: [u32; 2],
    /// Offline: the numbers of the rows. In a result: its line.
    place: (u64, u64),
}

/// Compares a result with the offline join of the inputs.
///
/// # Errors
/// [`Failure`] for a result that cannot be read.
pub(super) fn compare(
    tables: &Tables,
    used: &Used,
    file: &mut ResultFile,
) -> Result<Comparison, Failure> {
    let left = Contents::new(&tables.sides[0], &used.inputs[0])?;
    let right = Contents::new(&tables.sides[1], &used.inputs[1])?;
    let mut offline = offline_pairs(tables, &left, &right);
    let mut result = Vec::new();
    file.rows(used, |[left_cells, right_cells], line| {
        let contents = [left.number(&left_cells), right.number(&right_cells)];
        result.push(Pair { contents, place: (line, 0) });
    })?;
    offline.sort_unstable();
    result.sort_unstable();
    let mut comparison = Comparison {
        offline: offline.len() as u64,
        result: result.len() as u64,
        ..Comparison::default()
    };
    let (missing, extra) = differences(&offline, &result);
    comparison.missing = missing.len() as u64;
    comparison.extra = extra.len() as u64;
    comparison.found = comparison.offline - comparison.missing;
    let words = Words { tables, contents: [&left, &right] };
    comparison.missing_late =
        missing.iter().filter(|pair| words.late_row(pair).is_some()).count() as u64;
    comparison.missing_shown = first(missing).iter().map(|pair| words.missing(pair)).collect();
    comparison.extra_shown = first(extra).iter().map(|pair| words.extra(pair, &offline)).collect();
    Ok(comparison)
}

/// Those that come first in the inputs, or in the result.
fn first(mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.sort_unstable_by_key(|pair| pair.place);
    pairs.truncate(SHOWN);
    pairs
}

/// What is in one sorted list only, each as often as it is there more often.
fn differences(offline: &[Pair], result: &[Pair]) -> (Vec<Pair>, Vec<Pair>) {
    let (mut missing, mut extra) = (Vec::new(), Vec::new());
    let (mut a, mut b) = (0, 0);
    while a < offline.len() || b < result.len() {
        match (offline.get(a), result.get(b)) {
            (Some(left), Some(right)) if left.contents == right.contents => (a, b) = (a + 1, b + 1),
            (Some(left), right) if right.is_none_or(|right| left.contents < right.contents) => {
                missing.push(*left);
                a += 1;
            }
            (_, Some(right)) => {
                extra.push(*right);
                b += 1;
            }
            (_, None) => break,
        }
    }
    (missing, extra)
}

/// The contents of a table's rows, numbered.
struct Contents {
    numbers: HashMap<Vec<u8>, u32>,
    /// By row.
    of_row: Vec<u32>,
    /// By content: a row that has it.
    row: Vec<usize>,
}

impl Contents {
    fn new(table: &Table, places: &[usize]) -> Result<Contents, Failure> {
        let cells = Cells::of_table(table);
        let mut contents =
            Contents { numbers: HashMap::new(), of_row: Vec::new(), row: Vec::new() };
        for (index, row) in table.rows.iter().enumerate() {
            // The parser has found the row sound.
            let joined = cells.joined(table.text(row), places).map_err(Failure::Failed)?;
            // Over 4 billion rows do not fit memory beside their texts.
            let next = contents.row.len() as u32;
            let number = *contents.numbers.entry(joined).or_insert(next);
            if number == next {
                contents.row.push(index);
            }
            contents.of_row.push(number);
        }
        Ok(contents)
    }

    fn number(&self, cells: &[u8]) -> u32 {
        self.numbers.get(cells).copied().unwrap_or(NO_ROW)
    }
}

/// All pairs, with no watermark and no lateness: both sides sorted by key and time, then merged.
fn offline_pairs(tables: &Tables, left: &Contents, right: &Contents) -> Vec<Pair> {
    let [left_table, right_table] = &tables.sides;
    let (lefts, rights) = (left_table.by_key_and_time(), right_table.by_key_and_time());
    let mut pairs = Vec::new();
    let mut first = 0;
    for &l in &lefts {
        let row = &left_table.rows[l];
        let key = left_table.key(row);
        let (from, to) = tables.interval.range(row.ts);
        // Left rows ascend by key and time, so the first match only moves forward.
        while let Some(&r) = rights.get(first) {
            let other = &right_table.rows[r];
            if (right_table.key(other), other.ts) >= (key, from) {
                break;
            }
            first += 1;
        }
        let in_reach = |r: &&usize| {
            let other = &right_table.rows[**r];
            right_table.key(other) == key && other.ts <= to
        };
        let near = rights[first..].iter().take_while(in_reach);
        let found = near.filter(|&&r| tables.holds(row, &right_table.rows[r]));
        pairs.extend(found.map(|&r| Pair {
            contents: [left.of_row[l], right.of_row[r]],
            place: (l as u64, r as u64),
        }));
    }
    pairs
}

/// Says what is wrong with single pairs.
struct Words<'a> {
    tables: &'a Tables,
    contents: [&'a Contents; 2],
}

impl Words<'_> {
    /// The side of a missing pair's row that was late, and by how much.
    fn late_row(&self, pair: &Pair) -> Option<(Side, i64)> {
        Side::BOTH.into_iter().find_map(|side| {
            let row = self.offline_row(side, pair);
            let lag = self.tables.lag(side, row);
            (lag > 0).then_some((side, row.behind))
        })
    }

    fn offline_row(&self, side: Side, pair: &Pair) -> &Row {
        let place = [pair.place.0, pair.place.1][side.index()];
        &self.tables.sides[side.index()].rows[place as usize]
    }

    fn missing(&self, pair: &Pair) -> String {
        let rows = Side::BOTH.map(|side| self.shown(side, self.offline_row(side, pair)));
        let reason = match self.late_row(pair) {
            Some((side, behind)) => format!(
                "late: the {} row is {} behind the largest time before it in its file",
                side.name(),
                TimeSpan::from_ticks(behind, self.tables.unit)
            ),
            None => "reason unknown: neither row is late by its own file".to_owned(),
        };
        format!("{} | {}\n    {reason}", rows[0], rows[1])
    }

    fn extra(&self, pair: &Pair, offline: &[Pair]) -> String {
        let line = pair.place.0;
        let unknown: Vec<&str> = Side::BOTH
            .into_iter()
            .filter(|side| pair.contents[side.index()] == NO_ROW)
            .map(Side::name)
            .collect();
        if !unknown.is_empty() {
            let sides = unknown.join(" and no such ");
            return format!("line {line}: no such {sides} row in the inputs");
        }
        let [left, right] = Side::BOTH.map(|side| {
            let row = self.contents[side.index()].row[pair.contents[side.index()] as usize];
            &self.tables.sides[side.index()].rows[row]
        });
        let tables = &self.tables.sides;
        let known = offline.partition_point(|other| other.contents < pair.contents);
        let is_pair = offline.get(known).is_some_and(|other| other.contents == pair.contents);
        let reason = if is_pair {
            "more often than the inputs have it".to_owned()
        } else if !left.has_key || !right.has_key {
            "null key: a row without a key matches nothing".to_owned()
        } else if tables[0].key(left) != tables[1].key(right) {
            "the keys differ".to_owned()
        } else if self.tables.interval.contains(left.ts, right.ts) {
            "--where does not hold of the two".to_owned()
        } else {
            let delta = right.ts.saturating_sub(left.ts);
            let sign = if delta < 0 { "" } else { "+" };
            let delta = TimeSpan::from_ticks(delta, self.tables.unit);
            format!("outside the interval: right.time is left.time {sign}{delta}")
        };
        let rows = [self.shown(Side::Left, left), self.shown(Side::Right, right)];
        format!("line {line}: {} | {}\n    {reason}", rows[0], rows[1])
    }

    fn shown(&self, side: Side, row: &Row) -> String {
        let table = &self.tables.sides[side.index()];
        let file = table.files.get(row.file as usize).map_or("", String::as_str);
        let text = String::from_utf8_lossy(table.text(row));
        match text.char_indices().nth(ROW_LETTERS) {
            Some((end, _)) => format!("{file}: {}...", &text[..end]),
            None => format!("{file}: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_more_often_is_a_difference() {
        let pairs = |contents: &[u32]| -> Vec<Pair> {
            contents.iter().map(|&n| Pair { contents: [n, 0], place: (0, 0) }).collect()
        };
        let names = |pairs: Vec<Pair>| pairs.iter().map(|p| p.contents[0]).collect::<Vec<_>>();
        let (missing, extra) = differences(&pairs(&[1, 2, 2, 4, 6]), &pairs(&[2, 3, 4, 4, 7]));
        assert_eq!((names(missing), names(extra)), (vec![1, 2, 6], vec![3, 4, 7]));
        let (missing, extra) = differences(&pairs(&[]), &pairs(&[NO_ROW]));
        assert_eq!((missing.len(), extra.len()), (0, 1));
    }
}
