//! One worker's turns, as both drivers take them: steps, faults, waiting.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::runtime::idle::{Idler, Wait};
use crate::runtime::{Control, End, Ended, Seat, StepOutcome, Worker, panic_message};

/// What the driver does next.
pub(super) enum Turn {
    /// Take another turn.
    Again,
    /// Sleep until called, at most that long, then say [`Stepper::awake`].
    Park(Duration),
    /// The worker has ended.
    Over,
}

/// A worker with what it takes to step it.
pub(super) struct Stepper<W: Worker> {
    index: usize,
    worker: W,
    idler: Idler,
    control: Arc<Control>,
    end: End<W::Error>,
}

impl<W: Worker> Stepper<W> {
    pub(super) fn new(seat: &Seat<W>, worker: W) -> Stepper<W> {
        Stepper {
            index: seat.index,
            worker,
            idler: Idler::new(seat.idle, seat.oversubscribed),
            control: Arc::clone(&seat.control),
            end: End::Stopped,
        }
    }

    /// Steps the worker once. `waker` gets the driver out of its sleep.
    #[inline]
    pub(super) fn turn(&mut self, waker: &Waker) -> Turn {
        if self.control.is_stopped() {
            return self.stop();
        }
        // Unwind safety: after a panic the worker is dropped, never stepped again.
        match catch_unwind(AssertUnwindSafe(|| self.worker.step())) {
            Ok(StepOutcome::Busy) => {
                if self.idler.busy() {
                    self.control.calls[self.index].disarm();
                }
                Turn::Again
            }
            Ok(StepOutcome::Idle) => match self.idle() {
                Wait::Again => Turn::Again,
                Wait::Arm => {
                    self.control.calls[self.index].arm(waker);
                    Turn::Again
                }
                Wait::Park(wait) => Turn::Park(wait),
            },
            Ok(StepOutcome::Done) => self.over(End::Done),
            Ok(StepOutcome::Failed(error)) => {
                self.control.fault(self.index);
                self.over(End::Failed(error))
            }
            Err(panic) => {
                self.control.fault(self.index);
                self.over(End::Panicked(panic_message(&*panic)))
            }
        }
    }

    fn idle(&mut self) -> Wait {
        self.idler.idle(self.worker.park_max(), self.worker.polls())
    }

    /// The sleep is over, by a call or by its time.
    pub(super) fn awake(&self) {
        self.control.calls[self.index].disarm();
    }

    #[cold]
    fn stop(&mut self) -> Turn {
        let end = match catch_unwind(AssertUnwindSafe(|| self.worker.stop())) {
            Ok(Ok(())) => End::Stopped,
            Ok(Err(error)) => End::Failed(error),
            Err(panic) => End::Panicked(panic_message(&*panic)),
        };
        if end_is_fault(&end) {
            self.control.fault(self.index);
        }
        self.over(end)
    }

    #[cold]
    fn over(&mut self, end: End<W::Error>) -> Turn {
        self.end = end;
        Turn::Over
    }

    /// The worker and how it ended; call it after [`Turn::Over`].
    pub(super) fn into_ended(self) -> Ended<W> {
        self.control.calls[self.index].forget();
        let Stepper { worker, end, .. } = self;
        if !matches!(end, End::Panicked(_)) {
            return Ended { worker: Some(worker), end };
        }
        // What a panic has left behind may panic again while it is dropped; the first one stands.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(worker)));
        Ended { worker: None, end }
    }
}

fn end_is_fault<E>(end: &End<E>) -> bool {
    matches!(end, End::Failed(_) | End::Panicked(_))
}
