//! Wakes a core that went to sleep because it had nothing to do.
//!
//! The sleeper calls [`Doorbell::prepare`], looks for work once more, and sleeps only when there is
//! none; a ringer makes work visible first and rings afterwards. Of the two, at least one sees the
//! other, so no ring is lost. Ringing somebody who is awake costs a fence and a read of a line
//! that nobody writes.

use std::fmt;

use crate::exchange::sync::{Arc, AtomicBool, Edge, Ordering, at, fence};

/// One sleeper's bell. Clones ring the same bell.
#[derive(Clone)]
pub struct Doorbell(Arc<Bell>);

struct Bell {
    asleep: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Doorbell {
    /// A bell whose sleeper is woken by `wake` (unparks a thread, writes an eventfd). It may be
    /// called when the sleeper is awake already; the next sleep must then end at once, as with
    /// [`std::thread::Thread::unpark`].
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Doorbell {
        Doorbell(Arc::new(Bell { asleep: AtomicBool::new(false), wake: Box::new(wake) }))
    }

    /// The bell of somebody who never sleeps.
    pub fn silent() -> Doorbell {
        Doorbell::new(|| ())
    }

    /// Wakes the sleeper if it sleeps or is about to. Work must have been made visible before.
    #[inline]
    pub fn ring(&self) {
        // SeqCst, with the fence in `prepare`: either we see `asleep`, or the sleeper's last look
        // sees the work that was stored before this.
        fence_seq_cst();
        // Relaxed: the fence orders it. The swap lets one ringer of many do the waking.
        if self.0.asleep.load(Ordering::Relaxed) && self.0.asleep.swap(false, Ordering::Relaxed) {
            (self.0.wake)();
        }
    }

    /// The sleeper says that it is about to sleep. It must look for work once more before it does.
    pub fn prepare(&self) {
        // Relaxed: the fence below orders it before the sleeper's last look.
        self.0.asleep.store(true, Ordering::Relaxed);
        // SeqCst, with the fence in `ring`.
        fence_seq_cst();
    }

    /// The sleeper is awake: it was woken, or its last look found work.
    pub fn awake(&self) {
        // Relaxed: a ringer that still sees `true` wakes once too often, which is allowed.
        self.0.asleep.store(false, Ordering::Relaxed);
    }
}

#[inline]
fn fence_seq_cst() {
    // A planted fault removes the fence altogether; there is no relaxed fence.
    if matches!(at(Edge::DoorbellFence, Ordering::SeqCst), Ordering::SeqCst) {
        fence(Ordering::SeqCst);
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").field("asleep", &self.0.asleep).finish_non_exhaustive()
    }
}
