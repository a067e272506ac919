//! Pages of bytes in files that are nobody's: room for what does not fit memory.
//!
//! A file has no name once it is open, so nothing of it is left when the process ends, however it
//! does. Pages are written once, one behind the other, and read back by their number; each is
//! checked against a checksum that is kept in memory. The files are this process's own, so their
//! bytes are in no format that has to last.

mod shelf;

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::FixedState;

use crate::limits::SPILL_FILES_PER_CORE;
pub(crate) use shelf::{Place, Shelf, ShelfWriter};

/// Codes of Unix: the process has as many files open as it may, and the whole system has; a file
/// is as large as it may be.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;
const EFBIG: i32 = 27;

/// Why rows could not be kept in a file, or read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillError {
    /// The file, which may have no name any more.
    pub path: PathBuf,
    /// What could not be done, and why.
    pub problem: String,
}

impl fmt::Display for SpillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows kept in {}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for SpillError {}

#[cfg(feature = "cli")]
impl SpillError {
    /// Whether the process had as many files open as it may.
    pub(crate) fn is_for_want_of_descriptors(&self) -> bool {
        self.problem.contains(ULIMIT_FILES)
    }
}

const ULIMIT_FILES: &str = "(ulimit -n)";

/// A file whose pages are being written.
pub struct PageWriter {
    file: BufWriter<File>,
    path: PathBuf,
    pages: Vec<Page>,
    end: u64,
}

/// A file of pages. It takes its room on the disk until it is dropped.
pub struct PageFile {
    file: File,
    path: PathBuf,
    pages: Vec<Page>,
}

/// Where a page ends (it starts where the one before it does), and its checksum.
#[derive(Clone, Copy)]
struct Page {
    end: u64,
    sum: u64,
}

impl PageWriter {
    /// Makes a file in `folder`.
    ///
    /// # Errors
    /// [`SpillError`] when it cannot be made.
    pub fn create(folder: &Path) -> Result<PageWriter, SpillError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Relaxed: a number that nobody else gets is all that is asked.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".intervale-{}-{number}.spill", std::process::id()));
        let failed = |what: &str, error: &io::Error| SpillError {
            path: path.clone(),
            problem: format!("cannot {what}: {error}; {}", help_to_make(error)),
        };
        // Left by a process of the same number that was killed before its file had lost its name.
        let _ = fs::remove_file(&path);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|error| failed("be made", &error))?;
        fs::remove_file(&path).map_err(|error| failed("lose its name", &error))?;
        Ok(PageWriter { file: BufWriter::new(file), path, pages: Vec::new(), end: 0 })
    }

    /// Adds a page.
    ///
    /// # Errors
    /// [`SpillError`], for example when the disk is full.
    pub fn page(&mut self, bytes: &[u8]) -> Result<(), SpillError> {
        self.file.write_all(bytes).map_err(|error| cannot_write(&self.path, &error))?;
        self.end += bytes.len() as u64;
        self.pages.push(Page { end: self.end, sum: sum_of(bytes) });
        Ok(())
    }

    /// No page follows.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn finish(self) -> Result<PageFile, SpillError> {
        let PageWriter { file, path, mut pages, .. } = self;
        let file = file.into_inner().map_err(|error| cannot_write(&path, error.error()))?;
        pages.shrink_to_fit();
        Ok(PageFile { file, path, pages })
    }
}

impl PageFile {
    /// Reads a page into `bytes`, in place of what is there.
    ///
    /// # Errors
    /// [`SpillError`] when it cannot be read, or is not what was written.
    pub fn read(&self, number: usize, bytes: &mut Vec<u8>) -> Result<(), SpillError> {
        let Page { end, sum } = self.pages[number];
        let start = number.checked_sub(1).map_or(0, |before| self.pages[before].end);
        bytes.clear();
        bytes.resize((end - start) as usize, 0);
        let mut file = &self.file;
        let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(bytes));
        let problem = match read {
            Err(error) => format!("cannot be read back: {error}"),
            Ok(()) if sum_of(bytes) != sum => {
                format!("bytes {start} to {end} are not those that were written; see to that disk")
            }
            Ok(()) => return Ok(()),
        };
        Err(SpillError { path: self.path.clone(), problem })
    }

    /// Bytes of some pages that follow each other.
    pub fn bytes_of(&self, pages: Range<usize>) -> u64 {
        let end = |count: usize| count.checked_sub(1).map_or(0, |last| self.pages[last].end);
        end(pages.end) - end(pages.start)
    }

    /// How many pages there are.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<PageFile>() + self.pages.capacity() * size_of::<Page>()
    }
}

fn help_to_make(error: &io::Error) -> String {
    let limit = match error.raw_os_error() {
        Some(EMFILE) if cfg!(unix) => ULIMIT_FILES,
        Some(ENFILE) if cfg!(unix) => "(fs.file-max)",
        _ => return "choose another folder for them".to_owned(),
    };
    format!(
        "each core has up to {SPILL_FILES_PER_CORE} of them open for each join: raise the limit \
         {limit}, or use fewer cores"
    )
}

fn cannot_write(path: &Path, error: &io::Error) -> SpillError {
    let help = match error.raw_os_error() {
        Some(EFBIG) if cfg!(unix) => "raise the limit on the size of files (ulimit -f)",
        _ => "make room there, or choose another folder",
    };
    SpillError { path: path.to_owned(), problem: format!("cannot be written: {error}; {help}") }
}

fn sum_of(bytes: &[u8]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(pages: &[&[u8]]) -> PageFile {
        let mut writer = PageWriter::create(&std::env::temp_dir()).unwrap();
        pages.iter().for_each(|page| writer.page(page).unwrap());
        writer.finish().unwrap()
    }

    #[test]
    fn pages_come_back_as_they_were() {
        let file = file_of(&[b"one", b"", b"three"]);
        assert!(!file.path.exists(), "it has no name");
        assert_eq!(file.page_count(), 3);
        assert_eq!((file.bytes_of(0..3), file.bytes_of(1..2), file.bytes_of(2..3)), (8, 0, 5));
        let mut bytes = b"rest of something".to_vec();
        for (number, page) in [(2, &b"three"[..]), (0, b"one"), (1, b"")] {
            file.read(number, &mut bytes).unwrap();
            assert_eq!(bytes, page);
        }
    }

    #[test]
    fn a_page_that_changed_is_told() {
        let file = file_of(&[b"one", b"two"]);
        (&file.file).seek(SeekFrom::Start(4)).unwrap();
        (&file.file).write_all(b"o").unwrap();
        let mut bytes = Vec::new();
        file.read(0, &mut bytes).unwrap();
        let error = file.read(1, &mut bytes).unwrap_err();
        assert!(error.to_string().contains("bytes 3 to 6"), "{error}");
        file.file.set_len(4).unwrap();
        let error = file.read(1, &mut bytes).unwrap_err();
        assert!(error.to_string().contains("cannot be read back"), "{error}");
    }

    #[test]
    #[cfg(unix)]
    fn limits_of_the_process_are_told() {
        let text = help_to_make(&io::Error::from_raw_os_error(EMFILE));
        assert!(text.contains("ulimit -n") && text.contains("up to 76"), "{text}");
        let text = help_to_make(&io::Error::from_raw_os_error(2));
        assert!(text.contains("another folder") && !text.contains("ulimit"), "{text}");
        let error = cannot_write(Path::new("f"), &io::Error::from_raw_os_error(EFBIG));
        assert!(error.to_string().contains("ulimit -f"), "{error}");
    }

    #[test]
    fn a_folder_that_is_none_is_told() {
        let Err(error) = PageWriter::create(Path::new("/no/such/folder")) else {
            panic!("there is no such folder");
        };
        let text = error.to_string();
        assert!(text.contains("/no/such/folder/.intervale-"), "{text}");
    }
}
