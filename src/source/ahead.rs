//! Streams that are opened and read before anybody asks, for as long as a run is being set up.
//!
//! Setting up waits for the header and the first row of one stream after another. Their writer may
//! be one process, which fills the others meanwhile and cannot go on when nobody reads them. So a
//! thread opens each (a named pipe waits for its writer there) and reads what comes into memory, up
//! to a bound. When the run has begun it hands the stream over, and reading costs nothing extra.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a read: as many as a pipe holds.
const READ_BYTES: usize = 64 << 10;

type Stream = Box<dyn Read + Send>;
/// After how long a wait is said, and how.
type OnWait = (Duration, Box<dyn FnOnce() + Send>);

/// A stream that is read ahead.
pub struct ReadAhead {
    queue: Arc<Queue>,
    /// What was taken from the queue; from `at` on it is still to be given out.
    taken: Vec<u8>,
    at: usize,
    /// What follows, once the thread has handed it over.
    rest: Option<Stream>,
    /// Called when setting up has waited for this stream for so long.
    on_wait: Option<OnWait>,
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: usize,
    setup: Arc<Setup>,
}

/// What setting up a run says to the streams that are read ahead meanwhile.
#[derive(Debug, Default)]
pub struct Setup {
    /// It is over.
    done: AtomicBool,
    /// When who reads gives up.
    until: Mutex<Option<Instant>>,
}

impl Setup {
    /// It is over: threads hand their streams over, and reads wait as long as it takes.
    pub fn end(&self) {
        // Relaxed: advice for the threads that read ahead.
        self.done.store(true, Ordering::Relaxed);
        self.set_until(None);
    }

    /// From now on, and until the end of setting up, who reads gives up at that time where nothing
    /// has come, with [`io::ErrorKind::TimedOut`]. Nothing is lost: later reads go on.
    pub fn wait_until(&self, until: Instant) {
        self.set_until(Some(until));
    }

    fn set_until(&self, until: Option<Instant>) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// How long to wait at the most, if not for ever.
    fn left(&self) -> Option<Duration> {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map(|until| until.saturating_duration_since(Instant::now()))
    }
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
    /// Calls `open` on a thread and reads at most about `bytes_max` bytes until setting up ends.
    ///
    /// # Errors
    /// When the thread cannot be started. It ends with the stream, or at the first read after
    /// that or after the drop of this; a read that never returns keeps it until the process ends.
    pub fn start(
        open: impl FnOnce() -> io::Result<Stream> + Send + 'static,
        bytes_max: usize,
        setup: Arc<Setup>,
    ) -> io::Result<ReadAhead> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let queue = Arc::new(Queue { state, changed, bytes_max, setup });
        let of_thread = Arc::clone(&queue);
        std::thread::Builder::new().name("intervale-open".to_owned()).spawn(
            move || match open() {
                Ok(stream) => {
                    of_thread.change(|state| state.opened = Some(Ok(())));
                    let rest = of_thread.fill(stream);
                    of_thread.change(|state| state.rest = Some(rest));
                }
                Err(error) => of_thread.change(|state| state.opened = Some(Err(error))),
            },
        )?;
        Ok(ReadAhead { queue, taken: Vec::new(), at: 0, rest: None, on_wait: None })
    }

    /// Has `call` called, once, when setting up has waited for this stream for `after`.
    pub fn on_wait(mut self, after: Duration, call: impl FnOnce() + Send + 'static) -> ReadAhead {
        self.on_wait = Some((after, Box::new(call)));
        self
    }

    /// Waits until the stream is open; ask once.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn wait_opened(&mut self) -> io::Result<()> {
        let queue = Arc::clone(&self.queue);
        let mut state = queue.lock();
        loop {
            match state.opened.take() {
                Some(opened) => return opened,
                None => state = queue.wait_and_say(state, &mut self.on_wait, None),
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
            let left = queue.setup.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            state = queue.wait_and_say(state, &mut self.on_wait, left);
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
    fn fill(&self, mut stream: Stream) -> io::Result<Stream> {
        let mut buffer = vec![0; READ_BYTES];
        // Relaxed: advice, which nothing is read on the strength of.
        while !self.setup.done.load(Ordering::Relaxed) {
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

    /// As [`wait`](Self::wait), for `most` at the most; says so, once, when it takes long and the
    /// run has not begun.
    fn wait_and_say<'a>(
        &self,
        state: MutexGuard<'a, State>,
        on_wait: &mut Option<OnWait>,
        most: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let after = on_wait.as_ref().map(|(after, _)| *after);
        let Some(first) = after.into_iter().chain(most).min() else { return self.wait(state) };
        let waited = self.changed.wait_timeout(state, first);
        let (state, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        // Relaxed: see `fill`.
        if timed_out.timed_out()
            && after == Some(first)
            && !self.setup.done.load(Ordering::Relaxed)
            && let Some((_, call)) = on_wait.take()
        {
            call();
        }
        state
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
        let setup = Arc::new(Setup::default());
        if done {
            setup.end();
        }
        let open = move || Ok(Box::new(text) as Stream);
        let mut stream = ReadAhead::start(open, bytes_max, setup).unwrap();
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
    fn a_long_wait_is_said_once_until_the_run_begins() {
        let (said, heard) = std::sync::mpsc::channel();
        let (go, may_open) = std::sync::mpsc::channel();
        let open = move || {
            may_open.recv().unwrap();
            Ok(Box::new(&b"ab"[..]) as Stream)
        };
        let stream = ReadAhead::start(open, 64, Arc::default()).unwrap();
        // The stream opens when the wait was said, so this ends only if it is.
        let mut stream = stream.on_wait(Duration::ZERO, move || {
            said.send(()).unwrap();
            go.send(()).unwrap();
        });
        stream.wait_opened().unwrap();
        assert_eq!(heard.iter().count(), 1, "the call is gone with its only use");
    }

    #[test]
    fn who_reads_gives_up_in_time_and_loses_nothing() {
        let (writer, reader) = std::sync::mpsc::channel::<u8>();
        struct Bytes(std::sync::mpsc::Receiver<u8>);
        impl Read for Bytes {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                Ok(self.0.recv().map_or(0, |byte| {
                    buffer[0] = byte;
                    1
                }))
            }
        }
        let setup = Arc::new(Setup::default());
        let open = move || Ok(Box::new(Bytes(reader)) as Stream);
        let mut stream = ReadAhead::start(open, 64, Arc::clone(&setup)).unwrap();
        writer.send(1).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        setup.wait_until(Instant::now());
        for _ in 0..2 {
            assert_eq!(stream.read(&mut byte).unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        setup.end();
        writer.send(2).unwrap();
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [2]);
        drop(writer);
        assert_eq!(stream.read(&mut byte).unwrap(), 0);
    }

    #[test]
    fn why_it_cannot_be_opened_is_said() {
        let open = || Err(io::ErrorKind::PermissionDenied.into());
        let mut stream = ReadAhead::start(open, 1, Arc::default()).unwrap();
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
