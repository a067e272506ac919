//! A lane: a bounded ring from one core to one other.
//!
//! The simple algorithm: `tail` counts the values ever pushed, `head` the values ever popped, and
//! slot `count & mask` holds a value. The lane is full when `tail - head == capacity` and empty
//! when they are equal; both counts wrap, which a power-of-two capacity makes harmless. Three
//! departures:
//!
//! 1. Each end keeps its own count in a plain field and the other end's in a cache, and looks at
//!    the other end's line only when the cache says full (or empty).
//! 2. The two counts stand on cache lines of their own, so the ends do not slow each other.
//! 3. An end that goes says so: the receiver then reads on to the last value and the sender is
//!    told at its next push.
//!
//! This file and `deal` are those of the exchange with `unsafe` code.

#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::mem::MaybeUninit;

use crossbeam::utils::CachePadded;

use crate::exchange::sync::{Arc, AtomicBool, AtomicUsize, Edge, Ordering, UnsafeCell, at};

/// The end that pushes. Dropping it ends the stream.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    /// Values ever pushed; the truth of which `ring.tail` is the published copy.
    tail: usize,
    /// Values ever popped, as last seen.
    head_seen: usize,
}

/// The end that pops. Dropping it makes every later push fail.
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    /// Values ever popped; the truth of which `ring.head` is the published copy.
    head: usize,
    /// Values ever pushed, as last seen.
    tail_seen: usize,
}

/// Why a push was refused; the value comes back.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused<T> {
    /// The lane is full: try again when the receiver has popped.
    Full(T),
    /// The receiver is gone: nothing will ever be popped.
    Abandoned(T),
}

struct Ring<T> {
    tail: CachePadded<AtomicUsize>,
    head: CachePadded<AtomicUsize>,
    ends: CachePadded<Ends>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

struct Ends {
    sender_gone: AtomicBool,
    receiver_gone: AtomicBool,
}

// SAFETY: the ring hands each value from one thread to one other, so `T: Send` is what it needs;
// the slots are only touched by the end that owns them at that moment (see `try_push`, `try_pop`).
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above; no two threads ever reach the same slot at once, so `T: Sync` is not needed.
unsafe impl<T: Send> Sync for Ring<T> {}

/// A lane of at least `capacity` values (rounded up to a power of two, at least 1).
///
/// Pushing and popping never allocate, block or spin.
pub fn lane<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let slot_count = capacity.max(1).next_power_of_two();
    let ring = Arc::new(Ring {
        tail: CachePadded::new(AtomicUsize::new(0)),
        head: CachePadded::new(AtomicUsize::new(0)),
        ends: CachePadded::new(Ends {
            sender_gone: AtomicBool::new(false),
            receiver_gone: AtomicBool::new(false),
        }),
        slots: (0..slot_count).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    (Sender { ring: ring.clone(), tail: 0, head_seen: 0 }, Receiver { ring, head: 0, tail_seen: 0 })
}

impl<T: Send> Sender<T> {
    /// Appends a value.
    ///
    /// # Errors
    /// [`Refused`] hands the value back when the lane is full or its receiver is gone.
    #[inline]
    pub fn try_push(&mut self, value: T) -> Result<(), Refused<T>> {
        // Acquire pairs with the Release in the receiver's drop: whatever it did before going is
        // visible to whoever is told.
        if self.ring.ends.receiver_gone.load(Ordering::Acquire) {
            return Err(Refused::Abandoned(value));
        }
        if self.tail.wrapping_sub(self.head_seen) == self.ring.slots.len() {
            // Acquire pairs with the Release store in `try_pop`: the receiver has read the slot
            // out before we write to it again.
            self.head_seen = self.ring.head.load(at(Edge::LaneReuse, Ordering::Acquire));
            if self.tail.wrapping_sub(self.head_seen) == self.ring.slots.len() {
                return Err(Refused::Full(value));
            }
        }
        self.ring.slot(self.tail).with_mut(|slot| {
            // SAFETY: `slot` points into the ring, which `self` keeps alive. It is ours alone:
            // `tail - head_seen < capacity`, so the receiver has popped what stood here (the
            // Acquire load saw it) and does not come back before the store below publishes it.
            unsafe { (*slot).write(value) };
        });
        self.tail = self.tail.wrapping_add(1);
        // Release pairs with the Acquire loads of `tail` in the receiver: the value is complete.
        self.ring.tail.store(self.tail, at(Edge::LanePublish, Ordering::Release));
        Ok(())
    }

    /// How many values the lane holds at the most.
    pub fn capacity(&self) -> usize {
        self.ring.slots.len()
    }

    /// Whether the receiver is gone.
    pub fn is_abandoned(&self) -> bool {
        // Acquire: as in `try_push`.
        self.ring.ends.receiver_gone.load(Ordering::Acquire)
    }
}

impl<T: Send> Receiver<T> {
    /// Takes the oldest value, if there is one.
    #[inline]
    pub fn try_pop(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            // Acquire pairs with the Release store in `try_push`: the value below is complete.
            self.tail_seen = self.ring.tail.load(at(Edge::LaneObserve, Ordering::Acquire));
            if self.head == self.tail_seen {
                return None;
            }
        }
        let value = self.ring.slot(self.head).with_mut(|slot| {
            // SAFETY: `slot` points into the ring, which `self` keeps alive. `head != tail_seen`,
            // so the sender has written it (the Acquire load saw it) and does not write again
            // before the store below; `head` moves on, so the value is read out once only.
            unsafe { (*slot).assume_init_read() }
        });
        self.head = self.head.wrapping_add(1);
        // Release pairs with the Acquire load in `try_push`: the value has been read out.
        self.ring.head.store(self.head, at(Edge::LaneFree, Ordering::Release));
        Some(value)
    }

    /// Shows the oldest value that is known of, if there is one.
    #[inline]
    pub fn peek(&mut self, show: impl FnOnce(&T)) {
        if self.head == self.tail_seen {
            return;
        }
        self.ring.slot(self.head).with(|slot| {
            // SAFETY: `slot` points into the ring, which `self` keeps alive. `head != tail_seen`,
            // so the sender has written it (the Acquire load that saw it was made before) and does
            // not write again before the store in `try_pop`, which `&mut self` keeps away.
            show(unsafe { (*slot).assume_init_ref() });
        });
    }

    /// How many values the lane holds now: at least those whose push happened before this call.
    #[inline]
    pub fn len(&mut self) -> usize {
        // Acquire pairs with the Release store in `try_push`, as in `try_pop`, which relies on
        // `tail_seen` afterwards.
        self.tail_seen = self.ring.tail.load(at(Edge::LaneObserve, Ordering::Acquire));
        self.tail_seen.wrapping_sub(self.head)
    }

    /// Whether the lane holds nothing now.
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Whether the sender is gone and everything it pushed has been popped: the end of the stream.
    pub fn is_closed(&mut self) -> bool {
        // Acquire pairs with the Release in the sender's drop: its last push is visible to
        // `is_empty`, which must therefore come second.
        self.ring.ends.sender_gone.load(Ordering::Acquire) && self.is_empty()
    }
}

impl<T> Ring<T> {
    #[inline]
    fn slot(&self, count: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // `slots.len()` is a power of two, so the mask keeps the index in bounds.
        &self.slots[count & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `is_closed`: every push comes before it.
        self.ring.ends.sender_gone.store(true, Ordering::Release);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `try_push` and `is_abandoned`.
        self.ring.ends.receiver_gone.store(true, Ordering::Release);
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Relaxed: both ends are gone, and the Arc's own count orders their work before this.
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        while head != tail {
            self.slot(head).with_mut(|slot| {
                // SAFETY: `&mut self` means that no end is left. Slots from `head` to `tail` were
                // written and not read out, and each is dropped once.
                unsafe { (*slot).assume_init_drop() };
            });
            head = head.wrapping_add(1);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("pushed", &self.tail).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("popped", &self.head).finish_non_exhaustive()
    }
}
