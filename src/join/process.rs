//! Custom operators: a caller's own code over two keyed inputs, with state and timers for each key.

mod keyed;
#[cfg(test)]
mod tests;

use crate::error::JoinError;
use crate::event::{BatchKind, Event, EventBatch, Key, KeyHasher, KeyKind, Side, split_keyed_row};
use crate::join::counters::check_rows;
use crate::join::late::{on_time_from, take_late};
use crate::join::{Counters, Emit, JoinSpec};
use crate::limits::Limits;
use crate::time::{WATERMARK_END, WATERMARK_START};
use keyed::Keys;

pub use keyed::Keyed;

/// What a caller's code does with the events of two inputs, key by key: what Flink's `connect` and
/// `KeyedCoProcessFunction` give. [`ProcessJoin`] runs it.
///
/// All events of a key come to the same `Process`, one call after the other, as they arrive: out of
/// order in time, unless what they are read from is in order. What is kept of them is kept in the
/// key's state ([`Keyed::state`]); what is to happen later, when no event with an earlier time can
/// come any more, is asked for by a timer ([`Keyed::set_timer`]).
///
/// Rows go to the sink: pairs, single rows, and [`Emit::output`] for whatever else there is, the
/// outputs beside the main one included.
///
/// An order that is not paid within its time is an alarm; a payment after that corrects it:
///
/// ```
/// use intervale::engine::Engine;
/// use intervale::event::{Event, Key, Side};
/// use intervale::join::{Emit, JoinSpec, Keyed, Process, ProcessJoin, Sink, Timer};
/// use intervale::limits::Limits;
/// use intervale::runtime::CoreChoice;
/// use intervale::time::Bound;
///
/// const ALARMS: usize = 0;
/// const CORRECTIONS: usize = 1;
///
/// struct Unpaid {
///     within: i64,
/// }
///
/// #[derive(Default)]
/// struct Order {
///     row: Option<Vec<u8>>,
///     is_paid: bool,
///     is_alarmed: bool,
/// }
///
/// impl Process for Unpaid {
///     type State = Order;
///
///     fn on_left(&mut self, order: Event<'_>, key: &mut Keyed<'_, Order>, _: &mut dyn Emit) {
///         key.set_timer(order.ts + self.within);
///         key.state().get_or_insert_default().row = Some(order.row.to_vec());
///     }
///
///     fn on_right(&mut self, payment: Event<'_>, key: &mut Keyed<'_, Order>, out: &mut dyn Emit) {
///         let order = key.state().get_or_insert_default();
///         order.is_paid = true;
///         if order.is_alarmed {
///             out.output(CORRECTIONS, payment);
///             key.state().take();
///         }
///     }
///
///     fn on_timer(&mut self, timer: Timer<'_>, key: &mut Keyed<'_, Order>, out: &mut dyn Emit) {
///         let Some(order) = key.state() else { return };
///         if order.is_paid {
///             key.state().take();
///             return;
///         }
///         order.is_alarmed = true;
///         let row = order.row.as_deref().unwrap_or_default();
///         out.output(ALARMS, Event { key: timer.key, ts: timer.ts, row });
///     }
/// }
///
/// #[derive(Default)]
/// struct Alarms(Vec<(usize, i64)>);
///
/// impl Emit for Alarms {
///     fn pair(&mut self, _: Event<'_>, _: Event<'_>) {}
///
///     fn output(&mut self, output: usize, event: Event<'_>) {
///         self.0.push((output, event.ts));
///     }
/// }
///
/// impl Sink for Alarms {}
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(60)).build(&Limits::default())?;
/// let engine = Engine::builder(spec.clone())
///     .cores(CoreChoice::count(1).unwrap_or_default())
///     .sinks(|_shard| Alarms::default())
///     .start_with(|_shard, hasher, limits| {
///         Ok(ProcessJoin::new(Unpaid { within: 60 }, spec.clone(), hasher.clone(), limits))
///     })?;
/// let mut orders = engine.source(Side::Left)?;
/// let mut payments = engine.source(Side::Right)?;
/// orders.push(Key::Int(1), 1_000, b"paid in time")?;
/// orders.push(Key::Int(2), 1_000, b"paid late")?;
/// payments.push(Key::Int(1), 1_040, b"")?;
/// orders.watermark(1_061)?;
/// payments.watermark(1_061)?;
/// engine.flush()?;
/// payments.push(Key::Int(2), 1_075, b"")?;
/// orders.finish()?;
/// payments.finish()?;
/// let finished = engine.finish()?;
/// assert_eq!(finished.sinks[0].0, [(ALARMS, 1_060), (CORRECTIONS, 1_075)]);
/// # Ok(())
/// # }
/// ```
pub trait Process: Send {
    /// What is kept of a key.
    type State: Send;

    /// An event of the left input.
    fn on_left(&mut self, event: Event<'_>, key: &mut Keyed<'_, Self::State>, out: &mut dyn Emit);

    /// An event of the right input.
    fn on_right(&mut self, event: Event<'_>, key: &mut Keyed<'_, Self::State>, out: &mut dyn Emit);

    /// The watermark has reached a timer: all events of both inputs with smaller times are in.
    fn on_timer(&mut self, timer: Timer<'_>, key: &mut Keyed<'_, Self::State>, out: &mut dyn Emit) {
        let _ = (timer, key, out);
    }

    /// An event without a key, which has no state and no timers. It is counted in any case.
    fn on_null_key(&mut self, side: Side, event: Event<'_>, out: &mut dyn Emit) {
        let _ = (side, event, out);
    }

    /// Bytes that a state holds beside its own size: strings, lists. They count against the
    /// bound on state; it is asked before and after each call.
    fn heap_bytes(&self, state: &Self::State) -> usize {
        let _ = state;
        0
    }

    /// How far behind the watermark a row's time may be when it is put out, in ticks: the output
    /// watermark is held back by so much.
    fn hold_back(&self) -> i64 {
        0
    }
}

/// A timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer<'a> {
    /// The key that it was set for.
    pub key: Key<'a>,
    /// The time that it was set to (ticks).
    pub ts: i64,
}

/// The operator of one shard that runs a [`Process`]; driven as
/// [`IntervalJoin`](crate::join::IntervalJoin) is.
///
/// Of its spec the kind of keys and the lateness count. Late events go the way the policy says;
/// under [`LatePolicy::Join`](crate::time::LatePolicy::Join) they come to the process, which can
/// tell by [`Keyed::lag`].
///
/// A call costs a look into a hash table, and what the process itself does; setting a timer and
/// firing it, the logarithm of how many there are.
pub struct ProcessJoin<P: Process> {
    process: P,
    spec: JoinSpec,
    hasher: KeyHasher,
    limits: Limits,
    keys: Keys<P::State>,
    counters: Counters,
    /// By [`Side::index`].
    watermarks: [i64; 2],
    finished: bool,
    /// What a call has failed with.
    failure: Option<String>,
}

impl<P: Process> ProcessJoin<P> {
    /// An operator without state. `hasher` is the one that makes the batches' key values.
    pub fn new(process: P, spec: JoinSpec, hasher: KeyHasher, limits: Limits) -> ProcessJoin<P> {
        ProcessJoin {
            process,
            spec,
            hasher,
            limits,
            keys: Keys::new(),
            counters: Counters::default(),
            watermarks: [WATERMARK_START; 2],
            finished: false,
            failure: None,
        }
    }

    /// Hands the events of a batch to the process.
    ///
    /// # Errors
    /// [`JoinError::StateFull`] when the bound on state does not allow the batch, of which nothing
    /// was taken then; [`JoinError::Late`] under
    /// [`LatePolicy::Fail`](crate::time::LatePolicy::Fail); [`JoinError::Process`] when the process
    /// has failed. After the last two the operator must not be used any more.
    pub fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        let side = batch.side();
        self.check_state(batch)?;
        self.counters.sides[side.index()].rows += batch.len() as u64;
        for index in 0..batch.len() {
            let event = batch.event(index, &self.hasher);
            if batch.kind == BatchKind::NullKey {
                self.counters.sides[side.index()].null_key += 1;
                self.process.on_null_key(side, event, out);
                continue;
            }
            let lag = self.lag(batch, index);
            let counters = &mut self.counters.sides[side.index()];
            if let Some(lag) = lag {
                counters.late += 1;
                if !take_late(self.spec.lateness().policy, (side, event), lag, out)? {
                    continue;
                }
            } else {
                counters.on_time += 1;
            }
            self.call(side, batch, index, lag, out)?;
        }
        Ok(())
    }

    /// Applies both sides' watermarks (smaller ones than before are ignored). The timers that they
    /// have reached fire in the following calls of [`work`](Self::work).
    pub fn advance(&mut self, left: i64, right: i64) {
        self.watermarks[0] = self.watermarks[0].max(left);
        self.watermarks[1] = self.watermarks[1].max(right);
    }

    /// All input has ended: every timer fires in the following calls of [`work`](Self::work).
    pub fn finish(&mut self) {
        self.watermarks = [WATERMARK_END; 2];
        self.finished = true;
    }

    /// Fires up to `budget` timers that the watermark has reached, in the order of their times and
    /// then in that in which they were set. Returns whether more is left.
    pub fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        let watermark = self.watermark();
        for _ in 0..budget {
            if self.failure.is_some() {
                return false;
            }
            let Some((slot, ts)) = self.keys.take_due(watermark) else {
                if self.finished {
                    self.keys.clear();
                }
                return false;
            };
            let ProcessJoin { process, keys, hasher, failure, finished, .. } = self;
            let before = keys.heap_bytes_of(slot, process);
            let owned = keys.key_of(slot);
            let key = match hasher.kind() {
                KeyKind::Int => Key::Int(hasher.unmix_int(owned.value)),
                KeyKind::Bytes => Key::Bytes(&owned.bytes),
            };
            let mut keyed = keys.keyed(slot, watermark, None, *finished, failure);
            process.on_timer(Timer { key, ts }, &mut keyed, out);
            keys.settle(slot, before, process);
        }
        true
    }

    /// No row with a smaller time will follow, once [`work`](Self::work) has returned `false`.
    pub fn output_watermark(&self) -> i64 {
        let watermark = self.watermark();
        if self.finished || watermark == WATERMARK_START {
            return watermark;
        }
        watermark.saturating_sub(self.process.hold_back().max(0))
    }

    /// [`JoinError::Process`] once the process has failed; the operator does nothing more then.
    pub fn failure(&self) -> Option<JoinError> {
        self.failure.clone().map(JoinError::Process)
    }

    /// The counts so far: of rows only, as what a process makes of them is its own.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of keys, states and timers, about.
    pub fn state_bytes(&self) -> u64 {
        self.keys.bytes() as u64
    }

    /// The process, for what it has gathered.
    pub fn process(&self) -> &P {
        &self.process
    }

    fn watermark(&self) -> i64 {
        self.watermarks[0].min(self.watermarks[1])
    }

    fn check_state(&mut self, batch: &EventBatch) -> Result<(), JoinError> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        check_rows(&self.limits, self.counters.buffered(), batch)?;
        let Some(bytes_max) = self.limits.state_bytes_max else { return Ok(()) };
        let bytes = self.state_bytes() + batch.row_bytes() as u64;
        if bytes > bytes_max { Err(JoinError::StateFull { bytes, bytes_max }) } else { Ok(()) }
    }

    /// How far an event is behind what is still on time, if it is.
    fn lag(&self, batch: &EventBatch, index: usize) -> Option<i64> {
        let ts = batch.timestamps()[index];
        let from = on_time_from(self.spec.lateness(), self.watermark(), batch, index);
        (batch.kind == BatchKind::Late || ts < from).then(|| from.saturating_sub(ts))
    }

    fn call<E: Emit>(
        &mut self,
        side: Side,
        batch: &EventBatch,
        index: usize,
        lag: Option<i64>,
        out: &mut E,
    ) -> Result<(), JoinError> {
        let watermark = self.watermark();
        let event = batch.event(index, &self.hasher);
        let bytes = match self.hasher.kind() {
            KeyKind::Int => &[],
            KeyKind::Bytes => split_keyed_row(batch.stored_row(index)).0,
        };
        let ProcessJoin { process, keys, failure, finished, .. } = self;
        let Some(slot) = keys.find_or_add(batch.keys()[index], bytes) else {
            return Err(JoinError::Exhausted { bytes: keys.bytes() as u64 });
        };
        let before = keys.heap_bytes_of(slot, process);
        let mut keyed = keys.keyed(slot, watermark, lag, *finished, failure);
        match side {
            Side::Left => process.on_left(event, &mut keyed, out),
            Side::Right => process.on_right(event, &mut keyed, out),
        }
        keys.settle(slot, before, process);
        self.failure().map_or(Ok(()), Err)
    }
}
