//! Paths: which format a file has, and which paths are the same file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::Failure;
use crate::cli::join::args::Format;
use crate::event::Side;

/// Standard input or output.
pub(super) const STANDARD: &str = "-";

/// The format of a side's files: as given, else by their endings, which must agree.
///
/// # Errors
/// [`Failure::Usage`] for an ending that says nothing, and for two that differ.
pub(super) fn side_format(
    side: Side,
    paths: &[PathBuf],
    given: Option<Format>,
) -> Result<Format, Failure> {
    let mut known: Option<(Format, &Path)> = None;
    for path in paths {
        let format = input_format(side, path, given)?;
        match known {
            Some((other, first)) if other != format => {
                let name = side.name();
                return Err(Failure::usage(format!(
                    "--{name} {} and {} have different formats; the files of a side must have the \
                     same: convert one, or give --{name}-format",
                    first.display(),
                    path.display()
                )));
            }
            Some(_) => {}
            None => known = Some((format, path)),
        }
    }
    // The option is required, so there is a file.
    Ok(known.map_or(Format::Csv, |(format, _)| format))
}

/// The format of an input file: as given, else by its ending.
fn input_format(side: Side, path: &Path, given: Option<Format>) -> Result<Format, Failure> {
    if let Some(format) = given {
        return Ok(format);
    }
    if path == Path::new(STANDARD) {
        return Ok(Format::Csv);
    }
    by_ending(path).ok_or_else(|| {
        let name = side.name();
        let hint = match ending(path).as_deref() {
            Some("gz" | "zst") => "; compressed files are not read yet: unpack it, or pipe it in",
            Some("parquet" | "arrow" | "feather") => "; that format is not read yet",
            _ => "",
        };
        Failure::usage(format!(
            "--{name} {}: the file's ending does not say its format{hint}; \
             give --{name}-format csv, tsv or jsonl",
            path.display()
        ))
    })
}

/// The format of an output: as given, else by its ending, else CSV.
///
/// # Errors
/// [`Failure::Usage`] for an ending that promises what is not written.
pub(super) fn output_format(
    option: &str,
    path: &Path,
    given: Option<Format>,
) -> Result<Format, Failure> {
    if let Some(format) = given.or_else(|| by_ending(path)) {
        return Ok(format);
    }
    match ending(path).as_deref() {
        Some(ending @ ("parquet" | "arrow" | "feather" | "gz" | "zst")) => {
            Err(Failure::usage(format!(
                "{option} {}: .{ending} is not written yet; choose another ending, or say what it \
                 shall hold with --output-format csv, tsv or jsonl",
                path.display()
            )))
        }
        _ => Ok(Format::Csv),
    }
}

/// Refuses an output that is another output, or an input.
///
/// # Errors
/// [`Failure::Usage`] names both options.
pub(super) fn check_distinct(
    outputs: &[(&str, &Path)],
    inputs: &[(String, &Path)],
) -> Result<(), Failure> {
    for (index, (option, path)) in outputs.iter().enumerate() {
        for (other, other_path) in &outputs[..index] {
            if *path == Path::new(STANDARD) && path == other_path {
                return Err(Failure::usage(format!(
                    "{other} and {option} are both standard output; send one of them to a file"
                )));
            }
            if same_file(path, other_path) {
                return Err(Failure::usage(format!(
                    "{other} and {option} are the same file, {}; give each its own",
                    path.display()
                )));
            }
        }
        for (input, input_path) in inputs {
            if same_file(path, input_path) {
                return Err(Failure::usage(format!(
                    "{option} {} is the same file as {input} {}; write somewhere else",
                    path.display(),
                    input_path.display()
                )));
            }
        }
    }
    Ok(())
}

/// Whether two paths are one regular file, or would be once it is created. Devices and pipes may
/// be named more than once.
fn same_file(a: &Path, b: &Path) -> bool {
    let standard = Path::new(STANDARD);
    if a == standard || b == standard {
        return false;
    }
    match (place(a), place(b)) {
        (Some(a), Some(b)) => a == b && fs::metadata(&a).map_or(true, |found| found.is_file()),
        _ => false,
    }
}

/// The file's real path; that of its directory and its name when it does not exist yet.
fn place(path: &Path) -> Option<PathBuf> {
    if let Ok(place) = fs::canonicalize(path) {
        return Some(place);
    }
    let parent = match path.parent()? {
        parent if parent.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    };
    Some(fs::canonicalize(parent).ok()?.join(path.file_name()?))
}

fn by_ending(path: &Path) -> Option<Format> {
    match ending(path)?.as_str() {
        "csv" => Some(Format::Csv),
        "tsv" | "tab" => Some(Format::Tsv),
        "jsonl" | "ndjson" => Some(Format::Jsonl),
        _ => None,
    }
}

fn ending(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_say_the_format() {
        let input = |path: &str| input_format(Side::Left, Path::new(path), None);
        assert_eq!(input("a.csv"), Ok(Format::Csv));
        assert_eq!(input("a.TSV"), Ok(Format::Tsv));
        assert_eq!(input("a.b.ndjson"), Ok(Format::Jsonl));
        assert_eq!(input("-"), Ok(Format::Csv));
        assert!(input("a.csv.gz").unwrap_err().message().unwrap().contains("compressed"));
        assert!(input("csv").is_err());
        let output = |path: &str| output_format("--output", Path::new(path), None);
        assert_eq!(output("-"), Ok(Format::Csv));
        assert_eq!(output("out.txt"), Ok(Format::Csv));
        assert_eq!(output("out.jsonl"), Ok(Format::Jsonl));
        assert!(output("out.parquet").is_err());
    }

    #[test]
    fn one_file_by_two_names_is_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("a"), "").unwrap();
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        assert!(same_file(&path("a"), &path("./a")));
        assert!(same_file(&path("a"), &path("link")));
        assert!(same_file(&path("new"), &path("./new")), "neither exists yet");
        assert!(!same_file(&path("a"), &path("new")));
        assert!(!same_file(Path::new("/dev/null"), Path::new("/dev/null")));
        assert!(!same_file(Path::new("-"), Path::new("-")));
    }
}
