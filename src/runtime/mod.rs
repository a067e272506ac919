//! Drivers: they give each [`Worker`] a thread of its own, on a core of its own where that is
//! possible, and step it until it is done. Knows nothing of formats.
//!
//! [`start`] runs workers on pinned threads ([`RuntimeKind::Threads`]) or on io_uring executors
//! ([`RuntimeKind::Glommio`]); a worker cannot tell the difference. Waiting is a choice
//! ([`IdleStrategy`]); the doorbells of a [`Control`] call sleeping workers back. A worker that
//! fails or panics stops all the others, and [`Running::join`] says which and why.
//!
//! [`sim`] runs shards and producers on one thread instead, in an order drawn from a seed.

mod cores;
mod idle;
mod pinned;
mod probe;
pub mod sim;
mod stepper;
mod topology;
#[cfg(all(feature = "glommio", target_os = "linux"))]
mod uring;

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};

use crate::error::RuntimeError;
use crate::exchange::Doorbell;
use crate::runtime::idle::Call;

pub use cores::{CoreChoice, CoreChoiceError, Placement};
pub use idle::{IdleStrategy, IdleStrategyError};
pub use probe::{IoUring, KernelVersion};
#[cfg(feature = "cli")]
pub(crate) use topology::parse_cpu_list;
pub use topology::{Cpu, KERNEL_MIN, MEMLOCK_BYTES_MIN, Topology};

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome<E> {
    /// Something was done; more may be waiting.
    Busy,
    /// Nothing was there to do.
    Idle,
    /// Nothing will ever be there to do.
    Done,
    /// It cannot go on; all the other workers are stopped, too.
    Failed(E),
}

/// The longest sleep of a worker that is called whenever there is work for it.
const PARK_MAX: Duration = Duration::from_millis(100);

/// What runs on one core: it is stepped until it is done, always by the same thread.
pub trait Worker: Send + 'static {
    /// Why it may fail.
    type Error: Send + 'static;

    /// Does a bounded amount of work and returns; never blocks.
    fn step(&mut self) -> StepOutcome<Self::Error>;

    /// Called once instead of further steps when everything is stopped: put things in order.
    ///
    /// # Errors
    /// As a failing step.
    fn stop(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// How long it may sleep in one go, if nobody calls it.
    fn park_max(&self) -> Duration {
        PARK_MAX
    }

    /// Whether it looks for work that nobody calls it for; its first sleeps are short then.
    fn polls(&self) -> bool {
        false
    }
}

/// Which driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// io_uring executors where this host allows them, else threads, with a note that says why.
    #[default]
    Auto,
    /// io_uring executors, or an error.
    Glommio,
    /// Pinned threads.
    Threads,
}

impl FromStr for RuntimeChoice {
    type Err = RuntimeChoiceError;

    fn from_str(text: &str) -> Result<RuntimeChoice, RuntimeChoiceError> {
        match text {
            "auto" => Ok(RuntimeChoice::Auto),
            "glommio" => Ok(RuntimeChoice::Glommio),
            "threads" => Ok(RuntimeChoice::Threads),
            _ => Err(RuntimeChoiceError(text.to_owned())),
        }
    }
}

/// A text that is no [`RuntimeChoice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeChoiceError(String);

impl fmt::Display for RuntimeChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no runtime; choose auto, glommio or threads", self.0)
    }
}

impl std::error::Error for RuntimeChoiceError {}

/// The driver that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// io_uring executors.
    Glommio,
    /// Pinned threads.
    Threads,
}

impl RuntimeKind {
    /// `glommio` or `threads`, as in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            RuntimeKind::Glommio => "glommio",
            RuntimeKind::Threads => "threads",
        }
    }
}

/// What the workers, their driver and whoever feeds them share: calls and the order to stop.
#[derive(Debug)]
pub struct Control {
    calls: Box<[Call]>,
    stop: AtomicBool,
    first_fault: OnceLock<usize>,
}

impl Control {
    /// For `worker_count` workers.
    pub fn new(worker_count: usize) -> Control {
        let calls = (0..worker_count).map(|_| Call::new()).collect();
        Control { calls, stop: AtomicBool::new(false), first_fault: OnceLock::new() }
    }

    /// The doorbell of one worker: ring it after making work for it.
    ///
    /// # Panics
    /// When there are not so many workers.
    pub fn doorbell(&self, worker: usize) -> Doorbell {
        self.calls[worker].bell().clone()
    }

    /// Makes every worker stop at its next step, and wakes those that sleep.
    pub fn stop(&self) {
        // Relaxed: the flag carries nothing else, and the doorbells have the fence that keeps a
        // worker from sleeping without having seen it.
        self.stop.store(true, Ordering::Relaxed);
        self.calls.iter().for_each(|call| call.bell().ring());
    }

    /// Whether [`stop`](Self::stop) was called or a worker has failed.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        // Relaxed: see `stop`.
        self.stop.load(Ordering::Relaxed)
    }

    /// The worker that failed or panicked first.
    pub fn first_fault(&self) -> Option<usize> {
        self.first_fault.get().copied()
    }

    fn fault(&self, worker: usize) {
        // A later fault is most likely a consequence of the first, which stands.
        let _ = self.first_fault.set(worker);
        self.stop();
    }
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End<E> {
    /// It was done.
    Done,
    /// It was stopped before it was done.
    Stopped,
    /// A step, or the call to stop, failed.
    Failed(E),
    /// It panicked with this message.
    Panicked(String),
}

/// A worker that has ended.
#[derive(Debug)]
pub struct Ended<W: Worker> {
    /// The worker itself, unless it panicked.
    pub worker: Option<W>,
    /// How it ended.
    pub end: End<W::Error>,
}

/// Workers that run. Dropping it lets them run on, unattended.
#[derive(Debug)]
pub struct Running<W: Worker> {
    kind: RuntimeKind,
    notes: Vec<String>,
    threads: Vec<JoinHandle<Option<Ended<W>>>>,
}

impl<W: Worker> Running<W> {
    /// The driver that runs them.
    pub fn kind(&self) -> RuntimeKind {
        self.kind
    }

    /// What the user should know about how they run, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether all of them have ended, so that [`join`](Self::join) returns at once.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all of them have ended. In the order in which they were given.
    pub fn join(self) -> Vec<Ended<W>> {
        self.threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(Some(ended)) => ended,
                // The driver itself panicked (a worker's panics are caught before), or never got
                // its worker; say so rather than lose it.
                Ok(None) => {
                    Ended { worker: None, end: End::Panicked("it never started".to_owned()) }
                }
                Err(panic) => Ended { worker: None, end: End::Panicked(panic_message(&*panic)) },
            })
            .collect()
    }
}

/// Runs `workers`, each on its own thread, placed as `placement` says (one place a worker).
///
/// # Errors
/// [`RuntimeError`] when a thread cannot be started, when there are not as many places as workers,
/// and when [`RuntimeChoice::Glommio`] is asked for where it cannot run. Nothing runs then.
pub fn start<W: Worker>(
    workers: Vec<W>,
    placement: &Placement,
    choice: RuntimeChoice,
    idle: IdleStrategy,
    topology: &Topology,
    control: &Arc<Control>,
) -> Result<Running<W>, RuntimeError> {
    if workers.len() != placement.cpus.len() {
        return Err(RuntimeError::Cores(format!(
            "{} workers do not fit {} places",
            workers.len(),
            placement.cpus.len()
        )));
    }
    let mut notes = placement.notes.clone();
    if choice != RuntimeChoice::Threads {
        let refusal = match glommio_driver::<W>(topology) {
            Ok(driver) => match seat(driver, placement, idle, control) {
                Ok(seated) => return Ok(seated.release(RuntimeKind::Glommio, workers, notes)),
                Err(error) => error.to_string(),
            },
            Err(refusal) => refusal,
        };
        if choice == RuntimeChoice::Glommio {
            return Err(RuntimeError::Glommio(refusal));
        }
        notes.push(format!("runtime: threads instead of glommio, because {refusal}"));
    }
    let seated = seat(pinned::drive::<W>, placement, idle, control)?;
    Ok(seated.release(RuntimeKind::Threads, workers, notes))
}

/// The body of a worker's thread: prepares itself, reports, takes its worker, drives it.
type Driver<W> = fn(Seat<W>) -> Option<Ended<W>>;

#[cfg(all(feature = "glommio", target_os = "linux"))]
fn glommio_driver<W: Worker>(topology: &Topology) -> Result<Driver<W>, String> {
    topology.io_uring_refusal().map_or(Ok(uring::drive::<W>), Err)
}

#[cfg(not(all(feature = "glommio", target_os = "linux")))]
fn glommio_driver<W: Worker>(_: &Topology) -> Result<Driver<W>, String> {
    Err("this build has no io_uring driver (feature `glommio`, Linux)".to_owned())
}

/// What a driver's thread is given.
struct Seat<W> {
    index: usize,
    cpu: Option<usize>,
    idle: IdleStrategy,
    oversubscribed: bool,
    control: Arc<Control>,
    ready: Sender<Result<Option<String>, String>>,
    has_reported: Cell<bool>,
    worker: Receiver<W>,
}

impl<W> Drop for Seat<W> {
    fn drop(&mut self) {
        if !self.has_reported.get() {
            // A driver that panics says nothing else, and this seat would be waited for in vain.
            let _ = self.ready.send(Err("a thread panicked while it was set up".to_owned()));
        } else if std::thread::panicking() {
            // A worker's own panics are caught before; this is the driver's.
            self.control.stop();
        }
    }
}

impl<W> Seat<W> {
    /// Reports how the preparation went (`Ok` with a note, or why the seat cannot be used) and
    /// waits for the worker; `None` when the start was called off.
    fn take_worker(&self, prepared: Result<Option<String>, String>) -> Option<W> {
        self.has_reported.set(true);
        self.ready.send(prepared).ok()?;
        self.worker.recv().ok()
    }
}

/// Threads that are ready for their workers.
struct Seated<W: Worker> {
    threads: Vec<JoinHandle<Option<Ended<W>>>>,
    workers: Vec<Sender<W>>,
    notes: Vec<String>,
}

/// Starts a thread for each place and waits until all are ready; when one is not, all go.
fn seat<W: Worker>(
    driver: Driver<W>,
    placement: &Placement,
    idle: IdleStrategy,
    control: &Arc<Control>,
) -> Result<Seated<W>, RuntimeError> {
    let (ready, readiness) = unbounded();
    let mut seated = Seated { threads: Vec::new(), workers: Vec::new(), notes: Vec::new() };
    let mut fault = None;
    for (index, &cpu) in placement.cpus.iter().enumerate() {
        let (give, worker) = bounded(1);
        let seat = Seat {
            index,
            cpu,
            idle,
            oversubscribed: placement.oversubscribed,
            control: Arc::clone(control),
            ready: ready.clone(),
            has_reported: Cell::new(false),
            worker,
        };
        let thread = std::thread::Builder::new().name(format!("intervale-{index}"));
        match thread.spawn(move || driver(seat)) {
            Ok(thread) => {
                seated.threads.push(thread);
                seated.workers.push(give);
            }
            Err(error) => {
                fault = Some(RuntimeError::Spawn(error.to_string()));
                break;
            }
        }
    }
    drop(ready);
    for _ in 0..seated.threads.len() {
        match readiness.recv() {
            Ok(Ok(note)) => seated.notes.extend(note),
            Ok(Err(error)) => fault = fault.or(Some(RuntimeError::Spawn(error))),
            // A driver panicked while it prepared itself and dropped its sender.
            Err(_) => fault = fault.or(Some(RuntimeError::Spawn("a thread panicked".to_owned()))),
        }
    }
    match fault {
        None => Ok(seated),
        Some(fault) => {
            drop(seated.workers);
            for thread in seated.threads {
                // Whatever it says, the fault that stands came before.
                let _ = thread.join();
            }
            Err(fault)
        }
    }
}

impl<W: Worker> Seated<W> {
    fn release(self, kind: RuntimeKind, workers: Vec<W>, mut notes: Vec<String>) -> Running<W> {
        for (give, worker) in self.workers.iter().zip(workers) {
            // A thread that died since it was ready is reported by `Running::join`.
            let _ = give.send(worker);
        }
        let mut own_notes = self.notes;
        own_notes.sort_unstable();
        notes.extend(own_notes);
        Running { kind, notes, threads: self.threads }
    }
}

/// What a panic said.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests;
