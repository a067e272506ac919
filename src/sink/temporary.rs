//! Names that a file has until it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const TEMPORARY_SUFFIX: &str = ".tmp";
const PARTIAL_SUFFIX: &str = ".partial";
/// As many bytes as file systems allow.
const FILE_NAME_BYTES_MAX: usize = 255;
/// More of a name does not go into names made from it that would be too long.
const NAME_BYTES_MAX: usize = 200;

/// Creates `.NAME.PID-N.tmp` beside the target (a rename never crosses file systems then) and locks
/// it for as long as it is open, so that others see that somebody writes it.
pub(super) fn create_temporary(target: &Path) -> io::Result<(File, PathBuf)> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    remove_stale(target, name);
    for attempt in 0.. {
        let mut hidden = temporary_prefix(name);
        hidden.push(format!("{}-{attempt}{TEMPORARY_SUFFIX}", std::process::id()));
        let path = target.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => {
                // A file system without locks is one where nothing is ever found stale.
                let _ = file.lock();
                if is_at(&file, &path) {
                    return Ok((file, path));
                }
                // Somebody took it for stale before it was locked.
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if attempt == 1000 {
            break;
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn temporary_prefix(name: &OsStr) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(shortened(name));
    prefix.push(".");
    prefix
}

fn shortened(name: &OsStr) -> &OsStr {
    OsStr::from_bytes(&name.as_bytes()[..name.len().min(NAME_BYTES_MAX)])
}

/// Removes temporaries of the same target that nobody writes any more: what a killed run left.
fn remove_stale(target: &Path, name: &OsStr) {
    let prefix = temporary_prefix(name);
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    // Whatever cannot be looked at or removed stays; it is in nobody's way.
    let Ok(entries) = fs::read_dir(parent.unwrap_or(Path::new("."))) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_one = path.file_name().is_some_and(|name| is_temporary(name, &prefix));
        if !is_one || !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
            continue;
        }
        if let Ok(file) = OpenOptions::new().write(true).open(&path)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether a name is the prefix, a process's number, an attempt's, and the suffix.
fn is_temporary(name: &OsStr, prefix: &OsStr) -> bool {
    let numbers = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
    let numbers = numbers.and_then(|rest| rest.strip_suffix(TEMPORARY_SUFFIX.as_bytes()));
    let Some(numbers) = numbers else { return false };
    let mut parts = numbers.split(|&byte| byte == b'-');
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    parts.next().is_some_and(is_number)
        && parts.next().is_some_and(is_number)
        && parts.next().is_none()
}

/// Whether an open file is still what its path names.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => id(&open) == id(&named),
        _ => false,
    }
}

/// The path of `<target>.partial`, where rows go that a stopped run has written. A name that would
/// be too long then is cut, and what was cut is told by its hash.
pub fn partial_path(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default();
    let mut partial = name.to_owned();
    if name.len() + PARTIAL_SUFFIX.len() > FILE_NAME_BYTES_MAX {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        partial = shortened(name).to_owned();
        partial.push(format!("~{:016x}", hasher.finish()));
    }
    partial.push(PARTIAL_SUFFIX);
    target.with_file_name(partial)
}
