//! Where a late row stands that ended the run.

use std::fs::File;
use std::io::{BufRead, BufReader};

use crate::cli::join::paths::STANDARD;
use crate::cli::join::plan::Plan;

/// Lines that are named at the most.
const LINES_MAX: usize = 3;

/// Characters of the row that are shown at the most.
const SHOWN_MAX: usize = 200;

/// The file and the line that a row of a stream stands in, as the beginning of a message. Files are
/// looked through for it, so of rows that are the same all lines are named; of a pipe nothing is
/// left to look at.
pub(super) fn place_of(plan: &Plan, stream: usize, row: &[u8]) -> String {
    let Some(side) = plan.streams().nth(stream) else { return String::new() };
    let row = without_line_end(row);
    for path in side.files.iter().filter(|path| path.as_os_str() != STANDARD) {
        let Ok(file) = File::open(path) else { continue };
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        let lines = lines_of(BufReader::new(file), row);
        if !lines.is_empty() {
            let s = if lines.len() == 1 { "" } else { "s" };
            return format!("{}, line{s} {}: ", path.display(), lines.join(" or "));
        }
    }
    String::new()
}

/// The numbers of the lines that a row begins in, which may itself be of several.
fn lines_of(mut file: impl BufRead, row: &[u8]) -> Vec<String> {
    let (mut found, mut number) = (Vec::new(), 0_u64);
    let first = row.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut line = Vec::new();
    while found.len() < LINES_MAX {
        line.clear();
        match file.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => number += 1,
        }
        if without_line_end(&line) == without_line_end(first) {
            found.push(number.to_string());
        }
    }
    found
}

/// The row as it stands, or its beginning.
pub(super) fn shown(row: &[u8]) -> String {
    let text = String::from_utf8_lossy(without_line_end(row));
    let short: String = text.chars().take(SHOWN_MAX).collect();
    if short.len() < text.len() { short + "..." } else { short }
}

fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one_and_all_of_a_kind_are_named() {
        let file = b"id,t\na,1\r\nb,2\na,1\n\"c\nd\",3\na,1\na,1";
        assert_eq!(lines_of(&file[..], b"b,2"), ["3"]);
        assert_eq!(lines_of(&file[..], b"a,1"), ["2", "4", "7"]);
        assert_eq!(lines_of(&file[..], b"\"c\nd\",3"), ["5"]);
        assert!(lines_of(&file[..], b"e").is_empty());
    }
}
