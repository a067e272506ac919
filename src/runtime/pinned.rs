//! The driver that is always there: one pinned thread a worker.

use std::sync::Arc;
use std::task::{Wake, Waker};

use core_affinity::CoreId;
use crossbeam::sync::{Parker, Unparker};

use crate::runtime::stepper::{Stepper, Turn};
use crate::runtime::{Ended, Seat, Worker};

/// The body of a worker's thread.
pub(super) fn drive<W: Worker>(seat: Seat<W>) -> Option<Ended<W>> {
    let note = seat.cpu.and_then(pin);
    let worker = seat.take_worker(Ok(note))?;
    let parker = Parker::new();
    let waker = Waker::from(Arc::new(ThreadWaker(parker.unparker().clone())));
    let mut stepper = Stepper::new(&seat, worker);
    loop {
        match stepper.turn(&waker) {
            Turn::Again => {}
            Turn::Park(wait) => {
                parker.park_timeout(wait);
                stepper.awake();
            }
            Turn::Over => return Some(stepper.into_ended()),
        }
    }
}

/// Pins the calling thread to one CPU and reads it back; returns a note when that failed.
fn pin(cpu: usize) -> Option<String> {
    let core = CoreId { id: cpu };
    // Numbers beyond what the call's mask holds would be out of its bounds.
    let pinned = cpu < CPU_MASK_BITS
        && core_affinity::set_for_current(core)
        && core_affinity::get_core_ids().is_none_or(|allowed| allowed == [core]);
    (!pinned).then(|| format!("a worker could not be pinned to CPU {cpu}; the system places it"))
}

/// CPUs that an affinity mask of the C library holds.
const CPU_MASK_BITS: usize = 1024;

struct ThreadWaker(Unparker);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_is_verified_and_its_failure_is_a_note() {
        let allowed = core_affinity::get_core_ids().unwrap_or_default();
        let Some(last) = allowed.last().copied() else { return };
        std::thread::spawn(move || {
            assert_eq!(pin(last.id), None);
            assert_eq!(core_affinity::get_core_ids(), Some(vec![last]));
            let note = pin(CPU_MASK_BITS - 1).unwrap();
            assert!(note.contains("CPU 1023"), "{note}");
            assert!(pin(1 << 20).is_some());
        })
        .join()
        .unwrap();
    }
}
