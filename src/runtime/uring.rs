//! The driver on io_uring: one single-threaded executor a worker, which IO can share.
//!
//! The worker is a task that steps, and yields whenever the executor asks for it; it sleeps in the
//! executor, so that IO completions are served meanwhile.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use glommio::{Latency, LocalExecutor, LocalExecutorBuilder, Placement, Shares};

use crate::runtime::stepper::{Stepper, Turn};
use crate::runtime::{Ended, Seat, Worker};

/// Memory that an executor registers for IO. The worker does none of its own.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// How long work of another queue waits for the worker to yield, unless its IO completes: that
/// makes the worker yield at once. A short time would not help IO, and see [`LADDER_RUNGS`].
const YIELD_AFTER: Duration = Duration::from_millis(100);
/// Timers that keep the executor from sleeping for ever: each is [`LADDER_STEP`] times as long as
/// the one before, from [`LADDER_FIRST`] to some months.
///
/// When the executor's thread loses the CPU between arming the yield timer and running tasks, and
/// the timer expires meanwhile, the executor takes "time to yield" for "nothing to run" and sleeps
/// until its next timer, beside tasks that could run. Timers that have expired, too, are no help;
/// with these there is always one more, due about as late as the interruption was long.
const LADDER_RUNGS: u32 = 14;
const LADDER_FIRST: Duration = Duration::from_millis(50);
const LADDER_STEP: u32 = 4;

/// The body of a worker's thread.
pub(super) fn drive<W: Worker>(seat: Seat<W>) -> Option<Ended<W>> {
    // The executor pins its thread itself; pinning it by other means as well would fight with it.
    let placement = seat.cpu.map_or(Placement::Unbound, Placement::Fixed);
    let executor =
        LocalExecutorBuilder::new(placement).name("intervale").io_memory(IO_MEMORY_BYTES).make();
    match executor {
        Ok(executor) => {
            let worker = seat.take_worker(Ok(None))?;
            run(&executor, Stepper::new(&seat, worker), Rc::new(seat))
        }
        Err(error) => {
            seat.take_worker(Err(format!("an io_uring executor could not be made: {error}")));
            None
        }
    }
}

fn run<W: Worker>(
    executor: &LocalExecutor,
    stepper: Stepper<W>,
    seat: Rc<Seat<W>>,
) -> Option<Ended<W>> {
    executor.run(async move {
        let queue = glommio::executor().create_task_queue(
            Shares::default(),
            Latency::Matters(YIELD_AFTER),
            "shard",
        );
        // The queue was made a line above, so it exists; if not, the caller reports no worker.
        let task = glommio::spawn_local_into(step_all(stepper, seat), queue).ok()?;
        let ladder: Vec<_> =
            (0..LADDER_RUNGS).map(|rung| glommio::spawn_local(climb(rung))).collect();
        let ended = task.await;
        for rung in ladder {
            rung.cancel().await;
        }
        Some(ended)
    })
}

async fn climb(rung: u32) {
    loop {
        glommio::timer::sleep(LADDER_FIRST * LADDER_STEP.pow(rung)).await;
    }
}

async fn step_all<W: Worker>(mut stepper: Stepper<W>, seat: Rc<Seat<W>>) -> Ended<W> {
    let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    loop {
        match stepper.turn(&waker) {
            Turn::Again => glommio::yield_if_needed().await,
            Turn::Park(wait) => {
                park(&seat, wait, &waker).await;
                stepper.awake();
            }
            Turn::Over => return stepper.into_ended(),
        }
    }
}

/// Sleeps until the worker is called, at most `wait`. The call was armed before, with `waker`.
async fn park<W: Worker>(seat: &Seat<W>, wait: Duration, waker: &Waker) {
    let mut timer = pin!(glommio::timer::Timer::new(wait));
    poll_fn(|context| {
        debug_assert!(context.waker().will_wake(waker), "one task, one waker");
        if seat.control.calls[seat.index].is_called() {
            return Poll::Ready(());
        }
        timer.as_mut().poll(context).map(|_| ())
    })
    .await;
}
