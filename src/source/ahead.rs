//! Streams that are opened and read before anybody asks, for as long as a run is being set up.
//!
//! Setting up waits for the header and the first row of one stream after another. Their writer may
//! be one process, which fills the others meanwhile and cannot go on when nobody reads them. So a
//! thread opens each (a named pipe waits for its writer there) and reads what comes into memory, up
//! to a bound. When the run has begun it hands the stream over, and reading costs nothing extra.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of a read: as many as a pipe holds.
const READ_BYTES: usize = 64 << 10;

type Stream = Box<dyn Read + Send>;

/// A stream that is read ahead.
pub struct ReadAhead {
    queue: Arc<Queue>,
    /// What was taken from the queue; from `at` on it is still to be given out.
    taken: Vec<u8>,
    at: usize,
    /// What follows, once the thread has handed it over.
    rest: Option<Stream>,
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: usize,
}

#[derive(Default)]
struct State {
    opened: Option<io::Result<()>>,
    bytes: Vec<u8>,
    /// What follows `bytes`: the stream itself, nothing, or why it cannot be read on.
    rest: Option<io::Result<Stream>>,
    /// Nobody will ask any more.
    dropped: bool,
}

impl ReadAhead {
    /// Calls `open` on a thread and reads at most about `bytes_max` bytes until `done` is set.
    ///
    /// # Errors
    /// When the thread cannot be started. It ends with the stream, or at the first read after
    /// `done` or after the drop of this; a read that never returns keeps it until the process ends.
    pub fn start(
        open: impl FnOnce() -> io::Result<Stream> + Send + 'static,
        bytes_max: usize,
        done: Arc<AtomicBool>,
    ) -> io::Result<ReadAhead> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let queue = Arc::new(Queue { state, changed, bytes_max });
        let of_thread = Arc::clone(&queue);
        std::thread::Builder::new().name("intervale-open".to_owned()).spawn(
            move || match open() {
                Ok(stream) => {
                    of_thread.change(|state| state.opened = Some(Ok(())));
                    let rest = of_thread.fill(stream, &done);
                    of_thread.change(|state| state.rest = Some(rest));
                }
                Err(error) => of_thread.change(|state| state.opened = Some(Err(error))),
            },
        )?;
        Ok(ReadAhead { queue, taken: Vec::new(), at: 0, rest: None })
    }

    /// Waits until the stream is open; ask once.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn wait_opened(&self) -> io::Result<()> {
        let mut state = self.queue.lock();
        loop {
            match state.opened.take() {
                Some(opened) => return opened,
                None => state = self.queue.wait(state),
            }
        }
    }

    /// Waits for more bytes, or for the stream that follows them.
    fn take(&mut self) -> io::Result<()> {
        let queue = Arc::clone(&self.queue);
        let mut state = queue.lock();
        loop {
            if !state.bytes.is_empty() {
                self.taken = std::mem::take(&mut state.bytes);
                self.at = 0;
                queue.changed.notify_all();
                return Ok(());
            }
            if let Some(rest) = state.rest.take() {
                self.taken = Vec::new();
                self.at = 0;
                let (rest, result) = match rest {
                    Ok(rest) => (rest, Ok(())),
                    Err(error) => (Box::new(io::empty()) as Stream, Err(error)),
                };
                self.rest = Some(rest);
                return result;
            }
            state = queue.wait(state);
        }
    }
}

impl Read for ReadAhead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.taken.len() && self.rest.is_none() {
            self.take()?;
        }
        if self.at < self.taken.len() {
            let count = (&self.taken[self.at..]).read(buffer)?;
            self.at += count;
            return Ok(count);
        }
        self.rest.as_mut().map_or(Ok(0), |rest| rest.read(buffer))
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.queue.change(|state| state.dropped = true);
    }
}

impl Queue {
    /// Reads until it is enough; returns what follows.
    fn fill(&self, mut stream: Stream, done: &AtomicBool) -> io::Result<Stream> {
        let mut buffer = vec![0; READ_BYTES];
        // Relaxed: advice, which nothing is read on the strength of.
        while !done.load(Ordering::Relaxed) {
            let count = match stream.read(&mut buffer) {
                Ok(0) => return Ok(Box::new(io::empty())),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut state = self.lock();
            state.bytes.extend_from_slice(&buffer[..count]);
            self.changed.notify_all();
            while state.bytes.len() >= self.bytes_max && !state.dropped {
                state = self.wait(state);
            }
            if state.dropped {
                break;
            }
        }
        Ok(stream)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under this lock panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_ahead(text: &'static [u8], bytes_max: usize, done: bool) -> Vec<u8> {
        let done = Arc::new(AtomicBool::new(done));
        let open = move || Ok(Box::new(text) as Stream);
        let mut stream = ReadAhead::start(open, bytes_max, done).unwrap();
        stream.wait_opened().unwrap();
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
        read
    }

    #[test]
    fn it_gives_out_all_of_the_stream_whoever_reads_it() {
        let text: &'static [u8] = &[7; 3 * READ_BYTES + 1];
        for done in [false, true] {
            for bytes_max in [1, READ_BYTES + 1, usize::MAX] {
                assert!(read_ahead(text, bytes_max, done) == text, "{done} {bytes_max}");
            }
        }
    }

    #[test]
    fn why_it_cannot_be_opened_is_said() {
        let open = || Err(io::ErrorKind::PermissionDenied.into());
        let stream = ReadAhead::start(open, 1, Arc::default()).unwrap();
        assert_eq!(stream.wait_opened().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn an_error_comes_after_the_bytes_before_it() {
        struct Breaks;
        impl Read for Breaks {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let open = || Ok(Box::new((&b"ab"[..]).chain(Breaks)) as Stream);
        let mut stream = ReadAhead::start(open, 64, Arc::default()).unwrap();
        let mut read = Vec::new();
        let error = stream.read_to_end(&mut read).unwrap_err();
        assert_eq!((&read[..], error.kind()), (&b"ab"[..], io::ErrorKind::ConnectionReset));
    }
}
