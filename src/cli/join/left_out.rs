//! Fields of JSON rows that came too late to be columns: what to tell about them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use memchr::memmem;

use crate::cli::join::plan::Plan;
use crate::sink::LeftOut;
use crate::source::fields::json_names;

/// Fields whose first line is looked for.
const LOOKED_FOR: usize = 3;

/// The warning; none if nothing was left out. Reads the files again, up to the first line of the
/// first few fields, at the speed of a text search.
pub(super) fn message(plan: &Plan, left_out: &LeftOut) -> Option<String> {
    if left_out.is_empty() {
        return None;
    }
    let mut fields = Vec::new();
    for (place, (stream, name, times)) in left_out.fields().enumerate() {
        let Some(stream) = plan.streams().nth(stream) else { continue };
        let mut files = stream.files.iter().filter(|_| place < LOOKED_FOR);
        let first = files.find_map(|path| {
            let line = first_line(path, &name)?;
            Some(format!(", first in {}, line {line}", path.display()))
        });
        let (side, name, first) = (&stream.name, name.escape_debug(), first.unwrap_or_default());
        let s = if times == 1 { "" } else { "s" };
        fields.push(format!("{side} \"{name}\" ({times} time{s}{first})"));
    }
    if left_out.others() > 0 {
        fields.push(format!("{} values of other fields", left_out.others()));
    }
    Some(format!(
        "fields that no row near the start of its file has are no columns of the output and were \
         left out: {}; name all columns with --left-columns{} and --right-columns, or choose \
         --output-format jsonl",
        fields.join(", "),
        if plan.then.is_empty() { "" } else { ", --then-columns" }
    ))
}

/// The first line of a file that has a field, counted from 1. `None` as well where the name is
/// written with escapes, and for what is no file.
fn first_line(path: &Path, field: &str) -> Option<u64> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let quoted = serde_json::to_string(field).ok()?;
    let finder = memmem::Finder::new(&quoted);
    let mut reader = BufReader::with_capacity(1 << 18, File::open(path).ok()?);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if reader.read_until(b'\n', &mut text).ok()? == 0 {
            break;
        }
        let names = finder.find(&text).and_then(|_| json_names(text.trim_ascii()).ok());
        if names.is_some_and(|names| names.iter().any(|name| name == field)) {
            return Some(line);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_where_the_field_is_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l.jsonl");
        let rows = "{\"a\":\"x\"}\n\n\"x\"\n{\"b\":{\"x\":1}}\n{\"a\":1,\"x\":2}\n{\"x\":3}";
        fs::write(&path, rows).unwrap();
        assert_eq!(first_line(&path, "x"), Some(5));
        assert_eq!(first_line(&path, "a"), Some(1));
        assert_eq!(first_line(&path, "y"), None);
        assert_eq!(first_line(dir.path(), "x"), None);
    }
}
