//! Where symbolic links lead: to nothing yet, or to what is open already.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// As many links as the system itself follows.
const LINKS_MAX: usize = 40;

/// Where the links that start at `path` end, whether there is something or not.
///
/// # Errors
/// When they go round in a circle.
pub fn link_end(path: &Path) -> io::Result<PathBuf> {
    let mut end = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match next(&end) {
            Some(next) => end = next,
            None => return Ok(end),
        }
    }
    Err(io::Error::other("its links lead in a circle"))
}

/// Whether a path leads, by whatever links, to a descriptor that a process has open. What that is
/// redirected to must not be replaced.
pub(super) fn is_descriptor(path: &Path) -> bool {
    let links = std::iter::successors(Some(path.to_path_buf()), |path| next(path));
    links.take(LINKS_MAX).any(|path| {
        let folder = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
        folder.is_some_and(|folder| folder.starts_with("/proc") && folder.ends_with("fd"))
    })
}

/// What a link names; a target that is not absolute is meant from the link's own directory.
fn next(path: &Path) -> Option<PathBuf> {
    let target = fs::read_link(path).ok()?;
    Some(path.parent().unwrap_or(Path::new("")).join(target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::{OpenMode, Output};

    #[test]
    fn a_link_to_nothing_yet_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        let [link, next] = ["link", "data/next"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink("data/next", &link).unwrap();
        std::os::unix::fs::symlink("real", &next).unwrap();
        let (output, _) = Output::open(&link, OpenMode::Replace).unwrap();
        output.write(b"row\n", 1).unwrap();
        output.commit().unwrap();
        assert!([link, next].iter().all(|path| fs::symlink_metadata(path).unwrap().is_symlink()));
        assert_eq!(fs::read(dir.path().join("data/real")).unwrap(), b"row\n");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn descriptors_are_known_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let [link, file] = ["link", "fd"].map(|name| dir.path().join(name));
        std::os::unix::fs::symlink("/dev/stdout", &link).unwrap();
        fs::write(&file, "").unwrap();
        for name in ["/dev/../dev/stdout", "/proc/thread-self/fd/1", link.to_str().unwrap()] {
            assert!(is_descriptor(Path::new(name)), "{name}");
        }
        assert!(!is_descriptor(&file));
    }

    #[test]
    fn a_circle_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("link", &link).unwrap();
        assert!(link_end(&link).is_err());
    }
}
