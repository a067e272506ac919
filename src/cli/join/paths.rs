//! Paths: which format a file has, and which paths are the same file.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::Failure;
use crate::cli::choices::Format;
use crate::sink::{is_standard_output, link_end, partial_path};

/// Standard input or output.
pub(super) const STANDARD: &str = "-";

/// The format of a side's files (those of `--left`, say): as given, else by their endings, which
/// must agree.
///
/// # Errors
/// [`Failure::Usage`] for an ending that says nothing, and for two that differ.
pub(super) fn side_format(
    side: &str,
    paths: &[PathBuf],
    given: Option<Format>,
) -> Result<Format, Failure> {
    let mut known: Option<(Format, &Path)> = None;
    for path in paths {
        let format = input_format(side, path, given)?;
        match known {
            Some((other, first)) if other != format => {
                return Err(Failure::usage(format!(
                    "--{side} {} and {} have different formats; the files of a side must have the \
                     same: convert one, or give --{side}-format",
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
fn input_format(side: &str, path: &Path, given: Option<Format>) -> Result<Format, Failure> {
    if let Some(format) = given {
        return Ok(format);
    }
    if path == Path::new(STANDARD) {
        return Ok(Format::Csv);
    }
    Format::by_ending(path).ok_or_else(|| {
        let hint = match ending(path).as_deref() {
            Some("gz" | "zst") => "; compressed files are not read yet: unpack it, or pipe it in",
            Some("parquet" | "arrow" | "feather") => "; that format is not read yet",
            _ => "",
        };
        Failure::usage(format!(
            "--{side} {}: the file's ending does not say its format{hint}; \
             give --{side}-format csv, tsv or jsonl",
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
    if let Some(format) = given.or_else(|| Format::by_ending(path)) {
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

/// Refuses an output that is another output, or an input: by whatever name, link or redirection.
///
/// # Errors
/// [`Failure::Usage`] names both options.
pub(in crate::cli) fn check_distinct(
    outputs: &[(&str, &Path)],
    inputs: &[(String, &Path)],
) -> Result<(), Failure> {
    let written: Vec<_> =
        outputs.iter().map(|(_, path)| Place::of(path, io::stdout().as_fd())).collect();
    for (index, (option, path)) in outputs.iter().enumerate() {
        for (other_index, (other, other_path)) in outputs[..index].iter().enumerate() {
            if is_standard_output(path) && is_standard_output(other_path) {
                return Err(Failure::usage(format!(
                    "{other} and {option} are both standard output; send one of them to a file"
                )));
            }
            if written[index].is_file_of(&written[other_index]) {
                return Err(Failure::usage(format!(
                    "{other} and {option} are the same file, {}; give each its own",
                    path.display()
                )));
            }
        }
        let partial = link_end(path)
            .map_or(Place::Other, |end| Place::of(&partial_path(&end), io::stdout().as_fd()));
        for (input, input_path) in inputs {
            if partial.is_file_of(&Place::of(input_path, io::stdin().as_fd())) {
                return Err(Failure::usage(format!(
                    "{input} {} is where the rows of {option} {} go when the run is stopped; \
                     rename it, or write somewhere else",
                    input_path.display(),
                    path.display()
                )));
            }
            if written[index].is_file_of(&Place::of(input_path, io::stdin().as_fd())) {
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

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// A regular file: its device and its number there, the same for all its names.
    File(u64, u64),
    /// Nothing yet: the real path of the directory, and the name in it.
    New(PathBuf),
    /// A device or a pipe, which may be named more than once, or nothing that could be opened.
    Other,
}

impl Place {
    /// The place of a path, or of the stream that `-` stands for.
    fn of(path: &Path, standard: BorrowedFd<'_>) -> Place {
        let found = if path == Path::new(STANDARD) {
            standard.try_clone_to_owned().map(fs::File::from).and_then(|file| file.metadata())
        } else {
            fs::metadata(path)
        };
        match found {
            Ok(found) if found.is_file() => Place::File(found.dev(), found.ino()),
            Ok(_) => Place::Other,
            Err(_) => new_place(path).map_or(Place::Other, Place::New),
        }
    }

    /// Whether both are one file, or would be once it is created.
    fn is_file_of(&self, other: &Place) -> bool {
        *self != Place::Other && self == other
    }
}

fn new_place(path: &Path) -> Option<PathBuf> {
    let path = link_end(path).ok()?;
    let parent = match path.parent()? {
        parent if parent.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    };
    Some(fs::canonicalize(parent).ok()?.join(path.file_name()?))
}

fn ending(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_say_the_format() {
        let input = |path: &str| input_format("left", Path::new(path), None);
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
        let same_file = |a: &Path, b: &Path| {
            let null = fs::File::open("/dev/null").unwrap();
            Place::of(a, null.as_fd()).is_file_of(&Place::of(b, null.as_fd()))
        };
        fs::write(path("a"), "").unwrap();
        fs::write(path("b"), "").unwrap();
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        fs::hard_link(path("a"), path("hard")).unwrap();
        assert!(same_file(&path("a"), &path("./a")));
        assert!(same_file(&path("a"), &path("link")));
        assert!(same_file(&path("link"), &path("hard")));
        assert!(same_file(&path("new"), &path("./new")), "neither exists yet");
        assert!(!same_file(&path("a"), &path("new")));
        assert!(!same_file(&path("a"), &path("b")));
        assert!(!same_file(Path::new("/dev/null"), Path::new("/dev/null")));
        assert!(!same_file(Path::new("-"), Path::new("-")));
        let stream = fs::File::open(path("hard")).unwrap();
        let standard = Place::of(Path::new("-"), stream.as_fd());
        assert!(standard.is_file_of(&Place::of(&path("a"), stream.as_fd())), "redirected");
    }
}
