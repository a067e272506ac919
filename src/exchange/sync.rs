//! Atomics and cells: the standard ones, or loom's when the crate is built with `--cfg loom`.
//!
//! Every ordering that carries an obligation has a name, an [`Edge`], so that the loom tests can
//! weaken one at a time and show that the tests notice.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering, fence},
};

/// The orderings that the protocols rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// A lane's sender makes a value visible.
    LanePublish,
    /// A lane's receiver sees values.
    LaneObserve,
    /// A lane's receiver gives a slot back.
    LaneFree,
    /// A lane's sender sees free slots.
    LaneReuse,
    /// A source stores its watermark.
    WatermarkStore,
    /// A shard loads watermarks.
    WatermarkLoad,
    /// Both fences of a doorbell.
    DoorbellFence,
    /// Both fences between a version of the split keys and those who route by it.
    SplitFence,
    /// A producer says that it has seen a version, after what it routed before.
    SplitSaw,
    /// A producer says that it is quiet, after what it routed.
    SplitLeave,
    /// Whoever splits keys sees what a producer has seen.
    SplitSeen,
}

/// The ordering of one edge: `sound`, unless a loom test planted a fault there.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn at(_edge: Edge, sound: Ordering) -> Ordering {
    sound
}

#[cfg(loom)]
pub(crate) use planted::at;

/// Faults for loom tests. All threads of a loom model run on the test's own thread, so a
/// thread-local reaches them and no other test.
#[cfg(loom)]
pub(crate) mod planted {
    use super::{Edge, Ordering};
    use std::cell::Cell;

    std::thread_local! {
        static FAULT: Cell<Option<Edge>> = const { Cell::new(None) };
    }

    /// The ordering of one edge: `sound`, or relaxed where the fault was planted.
    pub(crate) fn at(edge: Edge, sound: Ordering) -> Ordering {
        if FAULT.get() == Some(edge) { Ordering::Relaxed } else { sound }
    }

    /// Runs `model` with its fault at `edge`, if any, and returns what loom had to say about it:
    /// an empty text when it found nothing.
    pub(crate) fn complaint(
        edge: Option<Edge>,
        model: impl Fn() + Sync + Send + 'static,
    ) -> String {
        FAULT.set(edge);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loom::model(model)));
        FAULT.set(None);
        let Err(panic) = outcome else { return String::new() };
        match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast_ref::<&str>().unwrap_or(&"").to_string(),
        }
    }
}

/// [`std::cell::UnsafeCell`] with loom's interface.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
        access(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}
