//! The join for a caller's own loop: one thread, no runtime.

use crate::error::{JoinError, PushError, SpecError};
use crate::event::{BatchKind, EventBatch, Key, KeyHasher, Side};
use crate::join::{Counters, Emit, IntervalJoin, JoinSpec};
use crate::limits::Limits;
use crate::time::{LatenessClock, Timestamp, WATERMARK_START};

/// Rows freed at a time while a watermark is applied.
const WORK_ROWS: usize = 1024;

/// An interval join in the caller's own thread: every call does its work and returns. It starts no
/// thread, makes no system call and, once warm, allocates nothing.
///
/// ```
/// use intervale::event::{Event, Key, Side};
/// use intervale::join::{Join, JoinSpec};
/// use intervale::limits::Limits;
/// use intervale::time::Bound;
///
/// let limits = Limits::default();
/// let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(60_000)).build(&limits)?;
/// let mut join = Join::new(spec, limits)?;
/// let mut delays = Vec::new();
/// let mut out = |order: Event<'_>, payment: Event<'_>| delays.push(payment.ts - order.ts);
///
/// join.push(Side::Left, Key::Int(17), 1_000, b"order", &mut out)?;
/// join.push(Side::Right, Key::Int(17), 4_500, b"payment", &mut out)?;
/// join.advance(Side::Left, 90_000, &mut out);
/// join.advance(Side::Right, 90_000, &mut out);
/// join.finish(&mut out);
/// assert_eq!(delays, [3_500]);
/// assert_eq!(join.counters().side(Side::Left).matched, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Join {
    operator: IntervalJoin,
    hasher: KeyHasher,
    batch: EventBatch,
    /// By [`Side::index`]: what the caller has promised.
    promised: [i64; 2],
}

impl Join {
    /// An empty join. Its keys are hashed with a seed from the operating system.
    ///
    /// # Errors
    /// As for [`IntervalJoin::new`].
    pub fn new(spec: JoinSpec, limits: Limits) -> Result<Join, SpecError> {
        let hasher = KeyHasher::random(spec.keys());
        Ok(Join {
            operator: IntervalJoin::new(spec, hasher.clone(), limits)?,
            hasher,
            batch: EventBatch::with_capacity(Side::Left, 1, 64),
            promised: [WATERMARK_START; 2],
        })
    }

    /// Matches an event with the other side, emits, and keeps it while it may still match. Well
    /// under a microsecond; filling a batch and [`push_batch`](Self::push_batch) is several times
    /// faster an event.
    ///
    /// # Errors
    /// [`JoinError::Refused`] and [`JoinError::StateFull`] leave the join as it was: after the
    /// latter, push again when [`advance`](Self::advance) has freed some. State is over its bound
    /// by one growth of its index at the most. After any other error the join must not be used.
    #[inline]
    pub fn push<E: Emit>(
        &mut self,
        side: Side,
        key: Key<'_>,
        ts: i64,
        row: &[u8],
        out: &mut E,
    ) -> Result<(), JoinError> {
        let at = Timestamp::new(ts).ok_or(JoinError::Refused(PushError::NoTimestamp))?;
        let lag = self.own_lag(side, ts);
        let kind = match (key, lag) {
            (Key::Null, _) => BatchKind::NullKey,
            (_, Some(_)) => BatchKind::Late,
            (_, None) => BatchKind::Keyed,
        };
        self.batch.reset(side, 0, kind);
        self.batch.push(&self.hasher, key, at, row).map_err(JoinError::Refused)?;
        if let (BatchKind::Late, Some(lag)) = (kind, lag) {
            self.batch.set_lag(lag);
        }
        self.operator.on_batch(&self.batch, out)
    }

    /// Matches a batch of one side, made with [`hasher`](Self::hasher); its events do not match
    /// each other. Batches of [`BATCH_EVENTS_MAX`](crate::limits::BATCH_EVENTS_MAX) are fastest.
    ///
    /// Under `LatenessClock::Own` the batch's kind says whether its events are late: the caller has
    /// judged.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn push_batch<E: Emit>(
        &mut self,
        batch: &EventBatch,
        out: &mut E,
    ) -> Result<(), JoinError> {
        self.operator.on_batch(batch, out)
    }

    /// A side promises that no event with a smaller time follows; a smaller promise than before is
    /// ignored. Rows that this frees are padded where the join's kind says so.
    pub fn advance<E: Emit>(&mut self, side: Side, watermark: i64, out: &mut E) {
        let promised = &mut self.promised[side.index()];
        *promised = (*promised).max(watermark);
        self.operator.advance(self.promised[0], self.promised[1]);
        while self.operator.work(WORK_ROWS, out) {}
    }

    /// Tells the time, in nanoseconds since some fixed moment, for the spec's
    /// [`ttl`](crate::join::JoinSpecBuilder::ttl), which goes by what is told here: rows that have
    /// outlived it are gone, and come out unmatched where the kind says so.
    pub fn tick<E: Emit>(&mut self, now_ns: u64, out: &mut E) {
        if self.operator.tick(now_ns) {
            while self.operator.work(WORK_ROWS, out) {}
        }
    }

    /// Both sides have ended: everything left is freed, and padded where the kind says so.
    pub fn finish<E: Emit>(&mut self, out: &mut E) {
        self.operator.finish();
        while self.operator.work(WORK_ROWS, out) {}
    }

    /// What has gone wrong in a call that returns no error, of those before: rows could not be read
    /// back from the files of [`Overflow::Spill`](crate::limits::Overflow::Spill), so that results
    /// are missing. To be asked once [`finish`](Self::finish) was called; a push would say it too.
    pub fn failure(&self) -> Option<JoinError> {
        self.operator.failure()
    }

    /// What makes the key values of batches.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// The counts so far.
    pub fn counters(&self) -> &Counters {
        self.operator.counters()
    }

    /// No result with a smaller time will follow.
    pub fn output_watermark(&self) -> i64 {
        self.operator.output_watermark()
    }

    /// Bytes of state as allocated.
    pub fn state_bytes(&self) -> u64 {
        self.operator.state_bytes()
    }

    /// How late an event is by its own side's promise, where the spec's clock says so.
    #[inline]
    fn own_lag(&self, side: Side, ts: i64) -> Option<i64> {
        let lateness = self.operator.spec().lateness();
        let threshold = lateness.threshold(self.promised[side.index()]);
        let is_late = lateness.clock == LatenessClock::Own && ts < threshold;
        is_late.then(|| threshold.saturating_sub(ts))
    }
}
