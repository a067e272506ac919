//! Where bytes go: standard output, a file that appears when it is complete, a file that grows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::join::SinkError;
use crate::sink::links::{is_descriptor, link_end};
use crate::sink::temporary::{create_temporary, partial_path};

/// An output that all cores share. They hand it whole blocks of complete rows, so rows are never
/// torn or mixed, whoever writes next.
///
/// A file is written under a temporary name beside its own and renamed by [`commit`](Self::commit);
/// dropped before that, the temporary is removed. One that a killed process has left is removed by
/// the next that writes the same file. After a failed write every further one returns the same
/// error.
#[derive(Debug)]
pub struct Output {
    name: String,
    inner: Mutex<Inner>,
}

/// What becomes of the target when an output opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// It is replaced, all at once, by the commit.
    Replace,
    /// Rows are added at its end as they come.
    Append,
}

#[derive(Debug)]
struct Inner {
    file: File,
    fate: Fate,
    /// The last line of a file that grows has no end yet.
    owes_newline: bool,
    /// Whether a reader that has gone is an end and no fault.
    may_close: bool,
    rows: u64,
    failed: Option<SinkError>,
}

/// What has to be done with the file besides writing.
#[derive(Debug)]
enum Fate {
    /// Nothing: standard output, a device, a pipe.
    Stream,
    /// A regular file that rows are added to.
    Grows,
    /// A temporary that takes the target's place.
    Replaces { temporary: PathBuf, target: PathBuf },
    /// Committed or kept; nothing is left to do.
    Settled,
}

/// Whether a path names the standard output. What it is redirected to must not be replaced by a
/// file of ours.
pub fn is_standard_output(path: &Path) -> bool {
    STDOUT_NAMES.iter().any(|name| path == Path::new(name))
}

const STDOUT_NAMES: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
/// Folders of descriptors that are open already.
const DESCRIPTOR_FOLDERS: [&str; 2] = ["/dev/fd", "/proc/self/fd"];

impl Output {
    /// Opens `path`; `-` is standard output. Pipes and devices are written directly. Returns the
    /// output and whether it starts empty (and so wants a header).
    ///
    /// # Errors
    /// [`SinkError`] names the path, the cause and what to do.
    pub fn open(path: &Path, mode: OpenMode) -> Result<(Output, bool), SinkError> {
        let name = if path == Path::new("-") {
            "standard output".to_owned()
        } else {
            path.display().to_string()
        };
        let opened = if is_standard_output(path) { open_stdout() } else { open_path(path, mode) };
        let (file, fate, empty) = opened.map_err(|error| cannot("open", &name, &error))?;
        // Written before the first row, so that an output opened in vain leaves the file as it is.
        let owes_newline = matches!(fate, Fate::Grows)
            && !empty
            && !ends_with_a_line(path).map_err(|error| cannot("open", &name, &error))?;
        let may_close = true;
        let inner = Inner { file, fate, owes_newline, may_close, rows: 0, failed: None };
        Ok((Output { name, inner: Mutex::new(inner) }, empty))
    }

    /// Makes a reader that goes away a fault of this output: other rows depend on the run.
    pub fn must_stay_open(&self) {
        self.lock().may_close = false;
    }

    /// The path as the user gave it, or `standard output`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes a block of `rows` complete rows (a header is none). Blocks while the reader of a pipe
    /// is slow.
    ///
    /// # Errors
    /// [`SinkError`], and from then on the same one for every call.
    pub fn write(&self, block: &[u8], rows: u64) -> Result<(), SinkError> {
        let mut inner = self.lock();
        if let Some(error) = &inner.failed {
            return Err(error.clone());
        }
        if let Err(error) = inner.write_block(block) {
            let mut error = cannot("write to", &self.name, &error);
            error.closed &= inner.may_close;
            inner.failed = Some(error.clone());
            return Err(error);
        }
        inner.rows += rows;
        Ok(())
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.lock().rows
    }

    /// The output is complete: a temporary file takes its target's place.
    ///
    /// # Errors
    /// [`SinkError`] when an earlier write failed or the rename does.
    pub fn commit(&self) -> Result<(), SinkError> {
        let mut inner = self.lock();
        if let Some(error) = &inner.failed {
            return Err(error.clone());
        }
        if let Fate::Replaces { temporary, target } = &inner.fate {
            fs::rename(temporary, target).map_err(|error| cannot("finish", &self.name, &error))?;
        }
        inner.fate = Fate::Settled;
        Ok(())
    }

    /// The output ends early but what is there is good: a temporary file becomes
    /// `<target>.partial`, whose path is returned; the target stays as it was.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn keep_partial(&self) -> Result<Option<PathBuf>, SinkError> {
        let mut inner = self.lock();
        if let Some(error) = &inner.failed {
            return Err(error.clone());
        }
        let mut kept = None;
        if let Fate::Replaces { temporary, target } = &inner.fate {
            let partial = partial_path(target);
            let kept_as = partial.display().to_string();
            fs::rename(temporary, &partial)
                .map_err(|error| cannot("keep the rows as", &kept_as, &error))?;
            kept = Some(partial);
        }
        inner.fate = Fate::Settled;
        Ok(kept)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A core that panicked while it wrote has left a whole number of blocks or a failure.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Fate::Replaces { temporary, .. } = &inner.fate {
            // Nothing better can be done about a temporary that does not go away.
            let _ = fs::remove_file(temporary);
        }
    }
}

impl Inner {
    fn write_block(&mut self, block: &[u8]) -> io::Result<()> {
        if std::mem::take(&mut self.owes_newline) {
            self.write_block(b"\n")?;
        }
        let mut rest = block;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.take_back(block.len() - rest.len());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Cuts the torn end of a failed block off a file that stays, standard output included.
    fn take_back(&mut self, torn_bytes: usize) {
        if torn_bytes == 0 || !matches!(self.fate, Fate::Grows | Fate::Stream) {
            return;
        }
        let (Ok(metadata), Ok(position)) = (self.file.metadata(), self.file.stream_position())
        else {
            return;
        };
        // Only what we wrote, and only where nothing stands behind it.
        if metadata.is_file() && position == metadata.len() {
            let whole = position.saturating_sub(torn_bytes as u64);
            // The first failure is what the user must hear of, not this one.
            let _ = self.file.set_len(whole);
            let _ = self.file.seek(SeekFrom::Start(whole));
        }
    }
}

fn open_stdout() -> io::Result<(File, Fate, bool)> {
    // A descriptor of our own: the standard handle would look for line ends in every block.
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // Redirected with `>>`, or shared with what was printed before us: a header is wanted all the
    // same, as every command's output has one.
    Ok((file, Fate::Stream, true))
}

fn open_path(path: &Path, mode: OpenMode) -> io::Result<(File, Fate, bool)> {
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let is_open = DESCRIPTOR_FOLDERS.iter().any(|folder| path.starts_with(folder))
        || path == Path::new("/dev/stderr")
        || is_descriptor(path);
    if is_open {
        return Ok((OpenOptions::new().append(true).open(path)?, Fate::Stream, true));
    }
    let existing = match fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(metadata) = &existing {
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            return Ok((OpenOptions::new().write(true).open(path)?, Fate::Stream, true));
        }
    }
    if mode == OpenMode::Append {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let empty = file.metadata()?.len() == 0;
        return Ok((file, Fate::Grows, empty));
    }
    let target = match &existing {
        // A link stays a link: what it points at is replaced.
        Some(_) => fs::canonicalize(path)?,
        // So does a link whose target is still to be made.
        None => link_end(path)?,
    };
    if existing.is_some() {
        // Replacing needs leave to write the file itself, not just its directory.
        OpenOptions::new().write(true).open(&target)?;
    }
    let (file, temporary) = create_temporary(&target)?;
    let fate = Fate::Replaces { temporary, target };
    if let Some(metadata) = existing {
        // The new file is as readable as the old one was. Failing that, it is still complete.
        let _ = file.set_permissions(metadata.permissions());
    }
    Ok((file, fate, true))
}

/// Whether the last byte of a file that is not empty ends a line.
fn ends_with_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn cannot(what: &str, name: &str, error: &io::Error) -> SinkError {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or choose an output on another disk"
        }
        io::ErrorKind::NotFound if has_directory(name) => {
            "; its directory is there, but no file can be made in it: choose another"
        }
        io::ErrorKind::NotFound => "; create its directory first",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose an output that this user may write"
        }
        io::ErrorKind::IsADirectory => "; name a file in it",
        _ => "",
    };
    SinkError {
        message: format!("{name}: cannot {what} it: {error}{advice}"),
        closed: error.kind() == io::ErrorKind::BrokenPipe,
    }
}

/// Whether the directory is there that a file of this name would be in.
fn has_directory(name: &str) -> bool {
    let parent = Path::new(name).parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_when_it_is_complete_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairs.csv");
        fs::write(&path, "old").unwrap();
        let (output, empty) = Output::open(&path, OpenMode::Replace).unwrap();
        assert!(empty);
        output.write(b"new\n", 1).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        output.commit().unwrap();
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"new\n");
        assert_eq!(names(dir.path()), ["pairs.csv"]);
    }

    #[test]
    fn an_abandoned_output_leaves_nothing_and_a_partial_one_its_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairs.csv");
        let (output, _) = Output::open(&path, OpenMode::Replace).unwrap();
        output.write(b"row\n", 1).unwrap();
        drop(output);
        assert!(names(dir.path()).is_empty());
        let (output, _) = Output::open(&path, OpenMode::Replace).unwrap();
        output.write(b"row\n", 1).unwrap();
        let kept = output.keep_partial().unwrap().unwrap();
        drop(output);
        assert_eq!(fs::read(kept).unwrap(), b"row\n");
        assert_eq!(names(dir.path()), ["pairs.csv.partial"]);
    }

    #[test]
    fn names_as_long_as_there_are_can_be_written_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let name = "n".repeat(255);
        let path = dir.path().join(&name);
        let open = || Output::open(&path, OpenMode::Replace).unwrap().0;
        open().commit().unwrap();
        assert_eq!(names(dir.path()), [name]);
        assert!(open().keep_partial().unwrap().unwrap().exists());
    }

    #[test]
    fn appending_adds_and_knows_whether_a_header_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairs.csv");
        for expect_empty in [true, false] {
            let (output, empty) = Output::open(&path, OpenMode::Append).unwrap();
            assert_eq!(empty, expect_empty);
            output.write(b"row\n", 1).unwrap();
            output.commit().unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"row\nrow\n");
    }

    #[test]
    fn a_temporary_that_nobody_writes_is_removed_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairs.csv");
        let (busy, _) = Output::open(&path, OpenMode::Replace).unwrap();
        let writing = names(dir.path()).remove(0);
        let others = [".pairs.csv.1-x.tmp", ".pairs.csv.7.tmp", ".other.csv.1-0.tmp", "a.1-0.tmp"];
        for name in others.into_iter().chain([".pairs.csv.1-0.tmp", ".pairs.csv.99999999-12.tmp"]) {
            fs::write(dir.path().join(name), "left behind").unwrap();
        }
        drop(Output::open(&path, OpenMode::Replace).unwrap());
        let mut expected = others.map(str::to_owned).to_vec();
        expected.push(writing);
        expected.sort();
        assert_eq!(names(dir.path()), expected);
        busy.commit().unwrap();
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real.csv"), dir.path().join("link.csv"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let (output, _) = Output::open(&link, OpenMode::Replace).unwrap();
        output.write(b"new", 1).unwrap();
        output.commit().unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn failures_say_where_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("no/such/pairs.csv");
        let error = Output::open(&missing, OpenMode::Replace).unwrap_err();
        assert!(error.message.contains("no/such/pairs.csv"), "{error}");
        assert!(error.message.contains("create its directory"), "{error}");
        let error = Output::open(dir.path(), OpenMode::Replace).unwrap_err();
        assert!(error.message.contains("name a file in it"), "{error}");
        let error = Output::open(&dir.path().join("new/"), OpenMode::Replace).unwrap_err();
        assert!(
            error.message.contains("name a file in it"),
            "not only when it is finished: {error}"
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_device_fails_once_and_for_all() {
        let (output, _) = Output::open(Path::new("/dev/full"), OpenMode::Replace).unwrap();
        let first = output.write(b"row\n", 1).unwrap_err();
        assert!(first.message.contains("free some space") && !first.closed, "{first}");
        assert_eq!(output.write(b"row\n", 1).unwrap_err(), first);
        assert_eq!(output.commit().unwrap_err(), first);
    }
}
