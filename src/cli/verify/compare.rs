//! The offline join, and what a result has of it.

use std::collections::HashMap;

use crate::cli::Failure;
use crate::cli::join::{Row, Table, Tables};
use crate::cli::verify::result::{Cells, ResultFile, Used};
use crate::event::stream_name;
use crate::time::text::TimeSpan;

/// Stands for a row that the inputs do not have.
const NO_ROW: u32 = u32::MAX;
/// Stands for the row of a stream that has no part.
const NO_PART: u32 = u32::MAX - 1;

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

/// A joined row by the contents of its parts, and where it was found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    /// By stream: the number of the part's content. Rows of equal content are one.
    contents: Box<[u32]>,
    /// Offline: the numbers of the rows. In a result: its line.
    place: Box<[u64]>,
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
    let contents = tables.streams.iter().zip(&used.inputs);
    let contents = contents.map(|(table, places)| Contents::new(table, places));
    let contents: Vec<Contents> = contents.collect::<Result<_, Failure>>()?;
    let mut offline = match tables.is_plain() {
        true => offline_pairs(tables, &contents[0], &contents[1]),
        false => offline_rows(tables, &contents),
    };
    let mut result = Vec::new();
    file.rows(used, |parts, line| {
        let number = |(part, contents): (Option<Vec<u8>>, &Contents)| match part {
            Some(cells) => contents.number(&cells),
            None => NO_PART,
        };
        let contents = parts.into_iter().zip(&contents).map(number).collect();
        result.push(Pair { contents, place: [line].into() });
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
    let words = Words { tables, contents: &contents };
    let is_late = |pair: &&Pair| words.late_row(pair).is_some();
    comparison.missing_late = missing.iter().filter(is_late).count() as u64;
    comparison.missing_shown = first(missing).iter().map(|pair| words.missing(pair)).collect();
    comparison.extra_shown = first(extra).iter().map(|pair| words.extra(pair, &offline)).collect();
    Ok(comparison)
}

/// Those that come first in the inputs, or in the result.
fn first(mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.sort_unstable_by(|a, b| a.place.cmp(&b.place));
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
                missing.push(left.clone());
                a += 1;
            }
            (_, Some(right)) => {
                extra.push(right.clone());
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
            if joined.len() <= 4 * places.len() {
                // Empty in all columns that are compared: a result cannot tell it from no part.
                contents.of_row.push(NO_PART);
                continue;
            }
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
    let [left_table, right_table] = tables.sides();
    let interval = tables.specs[0].interval();
    let (lefts, rights) = (left_table.by_key_and_time(), right_table.by_key_and_time());
    let mut pairs = Vec::new();
    let mut first = 0;
    for &l in &lefts {
        let row = &left_table.rows[l];
        let key = left_table.key(row);
        let (from, to) = interval.range(row.ts);
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
            contents: [left.of_row[l], right.of_row[r]].into(),
            place: [l as u64, r as u64].into(),
        }));
    }
    pairs
}

/// What comes out of any other join, by nested loops.
fn offline_rows(tables: &Tables, contents: &[Contents]) -> Vec<Pair> {
    let rows = tables.by_reference().into_iter().map(|row| {
        let parts = row.iter().zip(contents);
        let content = |(part, contents): (&Option<usize>, &Contents)| match part {
            Some(row) => contents.of_row[*row],
            None => NO_PART,
        };
        Pair {
            contents: parts.map(content).collect(),
            place: row.iter().map(|part| part.map_or(u64::MAX, |row| row as u64)).collect(),
        }
    });
    rows.collect()
}

/// Says what is wrong with single pairs.
struct Words<'a> {
    tables: &'a Tables,
    contents: &'a [Contents],
}

impl Words<'_> {
    /// The stream of a missing row's part that was late, and by how much.
    fn late_row(&self, pair: &Pair) -> Option<(usize, i64)> {
        self.offline_parts(pair).find_map(|(stream, row)| {
            (self.tables.lag(stream, row) > 0).then_some((stream, row.behind))
        })
    }

    /// The parts of a row of the offline join, with their streams.
    fn offline_parts(&self, pair: &Pair) -> impl Iterator<Item = (usize, &Row)> {
        let places = pair.place.iter().enumerate().filter(|(_, place)| **place != u64::MAX);
        let rows: Vec<(usize, &Row)> = places
            .map(|(stream, &place)| (stream, &self.tables.streams[stream].rows[place as usize]))
            .collect();
        rows.into_iter()
    }

    fn missing(&self, pair: &Pair) -> String {
        let parts = self.offline_parts(pair).map(|(stream, row)| self.shown(stream, row));
        let parts: Vec<String> = parts.collect();
        let reason = match self.late_row(pair) {
            Some((stream, behind)) => format!(
                "late: the {} row is {} behind the largest time before it in its file",
                stream_name(stream),
                TimeSpan::from_ticks(behind, self.tables.unit)
            ),
            None if self.tables.is_plain() => {
                "reason unknown: neither row is late by its own file".to_owned()
            }
            None => "reason unknown: none of the rows is late by its own file".to_owned(),
        };
        format!("{}\n    {reason}", parts.join(" | "))
    }

    fn extra(&self, pair: &Pair, offline: &[Pair]) -> String {
        let line = pair.place[0];
        let unknown: Vec<String> = (0..pair.contents.len())
            .filter(|&stream| pair.contents[stream] == NO_ROW)
            .map(stream_name)
            .collect();
        if !unknown.is_empty() {
            let streams = unknown.join(" and no such ");
            return format!("line {line}: no such {streams} row in the inputs");
        }
        let parts: Vec<(usize, &Row)> = pair
            .contents
            .iter()
            .enumerate()
            .filter(|(_, content)| **content != NO_PART)
            .map(|(stream, &content)| {
                let row = self.contents[stream].row[content as usize];
                (stream, &self.tables.streams[stream].rows[row])
            })
            .collect();
        let known = offline.partition_point(|other| other.contents < pair.contents);
        let is_right = offline.get(known).is_some_and(|other| other.contents == pair.contents);
        let reason = match parts[..] {
            _ if is_right => "more often than the inputs have it".to_owned(),
            [(0, left), (1, right)] if self.tables.is_plain() => self.no_pair(left, right),
            _ => "the reference does not have it".to_owned(),
        };
        let shown = parts.iter().map(|(stream, row)| self.shown(*stream, row));
        let shown: Vec<String> = shown.collect();
        format!("line {line}: {}\n    {reason}", shown.join(" | "))
    }

    /// Why two rows are no pair of an interval.
    fn no_pair(&self, left: &Row, right: &Row) -> String {
        let [left_table, right_table] = self.tables.sides();
        if !left.has_key || !right.has_key {
            "null key: a row without a key matches nothing".to_owned()
        } else if left_table.key(left) != right_table.key(right) {
            "the keys differ".to_owned()
        } else if self.tables.specs[0].interval().contains(left.ts, right.ts) {
            "--where, or the rule of its time, does not hold of the two".to_owned()
        } else {
            let delta = right.ts.saturating_sub(left.ts);
            let sign = if delta < 0 { "" } else { "+" };
            let delta = TimeSpan::from_ticks(delta, self.tables.unit);
            format!("outside the interval: right.time is left.time {sign}{delta}")
        }
    }

    fn shown(&self, stream: usize, row: &Row) -> String {
        let table = &self.tables.streams[stream];
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
            contents.iter().map(|&n| Pair { contents: [n, 0].into(), place: [0].into() }).collect()
        };
        let names = |pairs: Vec<Pair>| pairs.iter().map(|p| p.contents[0]).collect::<Vec<_>>();
        let (missing, extra) = differences(&pairs(&[1, 2, 2, 4, 6]), &pairs(&[2, 3, 4, 4, 7]));
        assert_eq!((names(missing), names(extra)), (vec![1, 2, 6], vec![3, 4, 7]));
        let (missing, extra) = differences(&pairs(&[]), &pairs(&[NO_ROW]));
        assert_eq!((missing.len(), extra.len()), (0, 1));
    }
}
