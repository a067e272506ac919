//! Whichever operator a spec calls for.

use crate::error::{JoinError, SpecError};
use crate::event::{EventBatch, KeyHasher};
use crate::join::{Counters, Emit, IntervalJoin, JoinSpec, WindowJoin};
use crate::limits::Limits;
use crate::state::Simd;

/// The operator of a spec, chosen once: what it does with a batch is the operator's own code.
///
/// ```
/// use intervale::event::{BatchKind, Event, EventBatch, Key, KeyHasher, KeyKind, Side};
/// use intervale::join::{AnyJoin, JoinSpec, Window};
/// use intervale::limits::Limits;
/// use intervale::time::Timestamp;
///
/// // Views and clicks of the same minute. In an engine:
/// // `builder.start_with(|_, hasher, limits| AnyJoin::new(spec, hasher.clone(), limits, None))`.
/// let limits = Limits::default();
/// let spec = JoinSpec::window(Window::tumbling(60_000)).build(&limits)?;
/// let hasher = KeyHasher::random(KeyKind::Int);
/// let mut join = AnyJoin::new(spec, hasher.clone(), limits, None)?;
/// let mut pairs = Vec::new();
/// let mut out = |view: Event<'_>, click: Event<'_>| pairs.push((view.ts, click.ts));
/// for (side, ts) in [(Side::Left, 1_000), (Side::Right, 59_000), (Side::Right, 61_000)] {
///     let mut batch = EventBatch::default();
///     batch.reset(side, 0, BatchKind::Keyed);
///     batch.push(&hasher, Key::Int(7), Timestamp::new(ts).ok_or("no time")?, b"row")?;
///     join.on_batch(&batch, &mut out)?;
/// }
/// join.advance(60_000, 60_000);
/// while join.work(1_024, &mut out) {}
/// assert_eq!(pairs, [(1_000, 59_000)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum AnyJoin {
    /// Of interval and as-of joins.
    Interval(Box<IntervalJoin>),
    /// Of window joins.
    Window(Box<WindowJoin>),
}

/// The same call on whichever it is.
macro_rules! on_operator {
    ($any:expr, $join:ident => $call:expr) => {
        match $any {
            AnyJoin::Interval($join) => $call,
            AnyJoin::Window($join) => $call,
        }
    };
}

impl AnyJoin {
    /// An operator with empty state; `simd` as for
    /// [`IntervalJoin::with_simd`], the best there is by default.
    ///
    /// # Errors
    /// [`SpecError::Overflow`] when rows are to be given up and the operator cannot.
    pub fn new(
        spec: JoinSpec,
        hasher: KeyHasher,
        limits: Limits,
        simd: Option<Simd>,
    ) -> Result<AnyJoin, SpecError> {
        if spec.windows().is_some() {
            return Ok(AnyJoin::Window(Box::new(WindowJoin::new(spec, hasher, limits)?)));
        }
        let simd = simd.unwrap_or_else(Simd::detect);
        let join = IntervalJoin::with_simd(spec, hasher, limits, simd)?;
        Ok(AnyJoin::Interval(Box::new(join)))
    }

    /// As [`IntervalJoin::on_batch`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        on_operator!(self, join => join.on_batch(batch, out))
    }

    /// As [`IntervalJoin::advance`].
    pub fn advance(&mut self, left: i64, right: i64) {
        on_operator!(self, join => join.advance(left, right));
    }

    /// As [`IntervalJoin::finish`].
    pub fn finish(&mut self) {
        on_operator!(self, join => join.finish());
    }

    /// As [`IntervalJoin::work`].
    pub fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        on_operator!(self, join => join.work(budget, out))
    }

    /// As [`IntervalJoin::failure`].
    pub fn failure(&self) -> Option<JoinError> {
        on_operator!(self, join => join.failure())
    }

    /// As [`IntervalJoin::output_watermark`].
    pub fn output_watermark(&self) -> i64 {
        on_operator!(self, join => join.output_watermark())
    }

    /// The counts so far.
    #[inline]
    pub fn counters(&self) -> &Counters {
        on_operator!(self, join => join.counters())
    }

    /// As [`IntervalJoin::trim`].
    pub fn trim(&mut self, keep_bytes: u64) {
        on_operator!(self, join => join.trim(keep_bytes));
    }

    /// As [`IntervalJoin::tick`]; rows of windows have no time to live.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) -> bool {
        match self {
            AnyJoin::Interval(join) => join.tick(now_ns),
            AnyJoin::Window(_) => false,
        }
    }

    /// As [`IntervalJoin::next_tick_ns`].
    pub fn next_tick_ns(&self) -> Option<u64> {
        match self {
            AnyJoin::Interval(join) => join.next_tick_ns(),
            AnyJoin::Window(_) => None,
        }
    }

    /// As [`IntervalJoin::make_room`].
    ///
    /// # Errors
    /// As there.
    pub fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        on_operator!(self, join => join.make_room(bytes_max, rows_max))
    }

    /// As [`IntervalJoin::rows_in_memory`].
    pub fn rows_in_memory(&self) -> u64 {
        on_operator!(self, join => join.rows_in_memory())
    }

    /// Bytes of state.
    pub fn state_bytes(&self) -> u64 {
        on_operator!(self, join => join.state_bytes())
    }

    /// As [`IntervalJoin::reserved_bytes`]; windows take nothing before the first row.
    pub fn reserved_bytes(&self) -> u64 {
        match self {
            AnyJoin::Interval(join) => join.reserved_bytes(),
            AnyJoin::Window(_) => 0,
        }
    }

    /// As [`IntervalJoin::pooled_bytes`]; windows pool nothing that would be known.
    pub fn pooled_bytes(&self) -> u64 {
        match self {
            AnyJoin::Interval(join) => join.pooled_bytes(),
            AnyJoin::Window(_) => 0,
        }
    }
}
