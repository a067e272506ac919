//! Symbolic links that lead to nothing yet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the links that start at `path` end, whether there is something or not.
///
/// # Errors
/// When they go round in a circle.
pub fn link_end(path: &Path) -> io::Result<PathBuf> {
    let mut end = path.to_path_buf();
    // As many as the system itself follows.
    for _ in 0..40 {
        match fs::read_link(&end) {
            // A target that is not absolute is meant from the link's own directory.
            Ok(next) => end = end.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(end),
        }
    }
    Err(io::Error::other("its links lead in a circle"))
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
    fn a_circle_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("link", &link).unwrap();
        assert!(link_end(&link).is_err());
    }
}
