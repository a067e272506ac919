//! The keys of a process: their states, and the timers of all of them in one queue.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use hashbrown::HashTable;

use super::Process;

/// Queue entries beyond twice the timers that are set, from which on deleted ones are thrown out.
const STALE_MAX: usize = 1024;

/// What a [`Process`] has at hand in a call: the state and the timers of the event's key.
pub struct Keyed<'a, S> {
    state: &'a mut Option<S>,
    timers: &'a mut Vec<SetTimer>,
    queue: &'a mut Queue,
    slot: u32,
    watermark: i64,
    lag: Option<i64>,
    has_ended: bool,
    failure: &'a mut Option<String>,
}

impl<S> Keyed<'_, S> {
    /// What is kept of the key; `None` at its first event, and once it was taken out. A key that
    /// has neither state nor timers takes no memory.
    #[inline]
    pub fn state(&mut self) -> &mut Option<S> {
        self.state
    }

    /// Calls [`Process::on_timer`] once for this key when the watermark reaches `ts` (ticks): when
    /// no event with a smaller time can come. A time that it has reached already fires before the
    /// next events. A second timer of the key at the same time changes nothing.
    pub fn set_timer(&mut self, ts: i64) {
        if self.timers.iter().any(|timer| timer.ts == ts) {
            return;
        }
        self.queue.orders += 1;
        let order = self.queue.orders;
        self.timers.push(SetTimer { ts, order });
        self.queue.set += 1;
        self.queue.due.push(Reverse(Due { ts, order, slot: self.slot }));
    }

    /// The key's timer at `ts` does not fire; nothing happens where there is none.
    pub fn delete_timer(&mut self, ts: i64) {
        if let Some(at) = self.timers.iter().position(|timer| timer.ts == ts) {
            self.timers.remove(at);
            self.queue.set -= 1;
        }
    }

    /// The smaller of the two inputs' watermarks.
    pub fn watermark(&self) -> i64 {
        self.watermark
    }

    /// How far the event is behind what is still on time, in ticks, if it is late.
    pub fn lag(&self) -> Option<i64> {
        self.lag
    }

    /// All input has ended, and all timers fire, those that are set now as well: whoever sets one
    /// again and again must stop here.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Ends the engine with [`JoinError::Process`](crate::error::JoinError::Process). The first
    /// reason counts.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.failure.get_or_insert_with(|| why.into());
    }
}

/// A key, and what is kept of it.
struct Entry<S> {
    key: OwnedKey,
    state: Option<S>,
    timers: Vec<SetTimer>,
}

/// A key as it is kept.
#[derive(Clone)]
pub(super) struct OwnedKey {
    pub(super) value: u64,
    /// Of keys of bytes; shared with a call that may make the key's entry go.
    pub(super) bytes: Arc<[u8]>,
}

#[derive(Clone, Copy)]
struct SetTimer {
    ts: i64,
    order: u64,
}

/// In the order in which timers fire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    ts: i64,
    order: u64,
    slot: u32,
}

/// The timers of all keys. One that was deleted stays in line, and is passed over.
#[derive(Default)]
struct Queue {
    due: BinaryHeap<Reverse<Due>>,
    /// Timers that were ever set: their order, which is never used again.
    orders: u64,
    /// Timers that are set now.
    set: usize,
}

/// All keys that have state or timers.
pub(super) struct Keys<S> {
    slots: Vec<Option<Entry<S>>>,
    free: Vec<u32>,
    table: HashTable<u32>,
    queue: Queue,
    /// Bytes of keys and timers, and what states say they hold.
    heap_bytes: usize,
    /// Those of keys that are integers.
    no_bytes: Arc<[u8]>,
}

impl<S> Keys<S> {
    pub(super) fn new() -> Keys<S> {
        Keys {
            slots: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            queue: Queue::default(),
            heap_bytes: 0,
            no_bytes: Arc::from([]),
        }
    }

    /// Bytes as allocated, those in states as far as the process tells.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Entry<S>>>()
            + self.free.capacity() * size_of::<u32>()
            + self.table.capacity() * (size_of::<u32>() + 1)
            + self.queue.due.capacity() * size_of::<Reverse<Due>>()
            + self.heap_bytes
    }

    /// The slot of a key; `None` when all that can be numbered are taken.
    pub(super) fn find_or_add(&mut self, value: u64, bytes: &[u8]) -> Option<u32> {
        let Keys { slots, free, table, .. } = self;
        let is_key = |&slot: &u32| {
            slots[slot as usize]
                .as_ref()
                .is_some_and(|entry| entry.key.value == value && *entry.key.bytes == *bytes)
        };
        if let Some(&slot) = table.find(value, is_key) {
            return Some(slot);
        }
        let bytes = if bytes.is_empty() { Arc::clone(&self.no_bytes) } else { Arc::from(bytes) };
        self.heap_bytes += bytes.len();
        let key = OwnedKey { value, bytes };
        let entry = Some(Entry { key, state: None, timers: Vec::new() });
        let slot = match free.pop() {
            Some(slot) => {
                slots[slot as usize] = entry;
                slot
            }
            None => {
                let slot = u32::try_from(slots.len()).ok()?;
                slots.push(entry);
                slot
            }
        };
        let value_of = |&slot: &u32| slots[slot as usize].as_ref().map_or(0, |e| e.key.value);
        table.insert_unique(value, slot, value_of);
        Some(slot)
    }

    /// The key of a slot that is in use.
    pub(super) fn key_of(&self, slot: u32) -> OwnedKey {
        match &self.slots[slot as usize] {
            Some(entry) => entry.key.clone(),
            None => OwnedKey { value: 0, bytes: Arc::clone(&self.no_bytes) },
        }
    }

    /// Bytes of a slot's timers, and what its state says it holds.
    pub(super) fn heap_bytes_of<P: Process<State = S>>(&self, slot: u32, process: &P) -> usize {
        let Some(entry) = &self.slots[slot as usize] else { return 0 };
        let held = entry.state.as_ref().map_or(0, |state| process.heap_bytes(state));
        held + entry.timers.capacity() * size_of::<SetTimer>()
    }

    /// A slot, which is in use, as a call sees it.
    pub(super) fn keyed<'a>(
        &'a mut self,
        slot: u32,
        watermark: i64,
        lag: Option<i64>,
        has_ended: bool,
        failure: &'a mut Option<String>,
    ) -> Keyed<'a, S> {
        let no_key = || OwnedKey { value: 0, bytes: Arc::clone(&self.no_bytes) };
        let entry = self.slots[slot as usize].get_or_insert_with(|| Entry {
            key: no_key(),
            state: None,
            timers: Vec::new(),
        });
        Keyed {
            state: &mut entry.state,
            timers: &mut entry.timers,
            queue: &mut self.queue,
            slot,
            watermark,
            lag,
            has_ended,
            failure,
        }
    }

    /// After a call: counts what a slot holds, which held `before`, and lets it go if that is
    /// nothing.
    pub(super) fn settle<P: Process<State = S>>(&mut self, slot: u32, before: usize, process: &P) {
        let after = self.heap_bytes_of(slot, process);
        self.heap_bytes = (self.heap_bytes + after).saturating_sub(before);
        let Some(entry) = &self.slots[slot as usize] else { return };
        if entry.state.is_none() && entry.timers.is_empty() {
            self.heap_bytes = self.heap_bytes.saturating_sub(after + entry.key.bytes.len());
            let value = entry.key.value;
            if let Ok(found) = self.table.find_entry(value, |&other| other == slot) {
                found.remove();
            }
            self.slots[slot as usize] = None;
            self.free.push(slot);
        }
        self.sweep();
    }

    /// Throws deleted timers out of the queue once they are most of it.
    fn sweep(&mut self) {
        let Keys { queue, slots, .. } = self;
        if queue.due.len() > 2 * queue.set + STALE_MAX {
            queue.due.retain(|Reverse(due)| is_set(slots, due));
            queue.due.shrink_to(2 * queue.set);
        }
    }

    /// Takes the next timer that the watermark has reached: its key's slot, and its time.
    pub(super) fn take_due(&mut self, watermark: i64) -> Option<(u32, i64)> {
        while let Some(&Reverse(due)) = self.queue.due.peek() {
            if due.ts > watermark {
                return None;
            }
            self.queue.due.pop();
            let Some(entry) = &mut self.slots[due.slot as usize] else { continue };
            let is_it = |timer: &SetTimer| timer.order == due.order;
            if let Some(at) = entry.timers.iter().position(is_it) {
                entry.timers.remove(at);
                self.queue.set -= 1;
                return Some((due.slot, due.ts));
            }
        }
        None
    }

    /// Lets everything go.
    pub(super) fn clear(&mut self) {
        *self =
            Keys { queue: Queue { orders: self.queue.orders, ..Queue::default() }, ..Keys::new() };
    }
}

fn is_set<S>(slots: &[Option<Entry<S>>], due: &Due) -> bool {
    let entry = slots[due.slot as usize].as_ref();
    entry.is_some_and(|entry| entry.timers.iter().any(|timer| timer.order == due.order))
}
