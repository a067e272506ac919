//! The single-threaded operator as a subject, on one shard or on several that share the keys.

use intervale::error::JoinError;
use intervale::event::{BatchKind, Event, EventBatch, Key, KeyHasher, KeyKind, Side};
use intervale::join::oracle::Output;
use intervale::join::{AnyJoin, Counters, Emit, JoinSpec};
use intervale::limits::Limits;
use intervale::state::Simd;
use intervale::time::{LatenessClock, SideClock, Timestamp};

use super::limits;
use super::subject::{Arrival, Subject};

/// Operators behind the clocks that an engine's sources and exchange would keep.
pub struct OperatorSubject {
    spec: JoinSpec,
    hasher: KeyHasher,
    clocks: [SideClock; 2],
    shards: Vec<AnyJoin>,
    /// Rows that one call of `work` may free; small, so that the loop around it is exercised.
    work_budget: usize,
    ended: bool,
}

impl OperatorSubject {
    pub fn new(spec: &JoinSpec, sources: [usize; 2], shard_count: usize) -> OperatorSubject {
        OperatorSubject::with_simd(spec, sources, shard_count, Simd::detect())
    }

    pub fn with_simd(
        spec: &JoinSpec,
        sources: [usize; 2],
        shard_count: usize,
        simd: Simd,
    ) -> OperatorSubject {
        OperatorSubject::under(limits(), spec, sources, shard_count, simd)
    }

    /// Under other limits than the tests' own, which each shard has for itself.
    pub fn under(
        limits: Limits,
        spec: &JoinSpec,
        sources: [usize; 2],
        shard_count: usize,
        simd: Simd,
    ) -> OperatorSubject {
        let hasher = KeyHasher::new(spec.keys(), 42);
        let shard = || AnyJoin::new(spec.clone(), hasher.clone(), limits, Some(simd)).unwrap();
        OperatorSubject {
            spec: spec.clone(),
            clocks: sources.map(SideClock::new),
            shards: (0..shard_count).map(|_| shard()).collect(),
            hasher,
            work_budget: 3,
            ended: false,
        }
    }

    /// The counts of all shards together.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for shard in &self.shards {
            shard.counters().check().expect("every shard's counts add up");
            sum.add(shard.counters());
        }
        sum
    }

    /// The time below which no shard will emit.
    pub fn output_watermark(&self) -> i64 {
        self.shards.iter().map(AnyJoin::output_watermark).min().expect("at least one shard")
    }

    /// Whether the input has ended, once at least.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    fn key_value(&self, key: &[u8]) -> u64 {
        match self.spec.keys() {
            KeyKind::Bytes => self.hasher.bytes(key),
            KeyKind::Int => self.hasher.int(int_key(key)),
        }
    }

    fn shard_of(&self, event: &Arrival) -> usize {
        let value = event.key.as_deref().map_or(0, |key| self.key_value(key));
        (value % self.shards.len() as u64) as usize
    }

    /// What a source would tell the shard about an event, judging it by its own watermark.
    fn kind_of(&self, event: &Arrival) -> (BatchKind, i64) {
        if event.key.is_none() {
            return (BatchKind::NullKey, 0);
        }
        let lateness = self.spec.lateness();
        if lateness.clock == LatenessClock::Own {
            let own = self.clocks[event.side.index()].source_watermark(event.source);
            let on_time_from = lateness.threshold(own);
            if event.ts < on_time_from {
                return (BatchKind::Late, on_time_from.saturating_sub(event.ts));
            }
        }
        (BatchKind::Keyed, 0)
    }

    fn push(&self, batch: &mut EventBatch, event: &Arrival, lag: i64) {
        let key = match (&event.key, self.spec.keys()) {
            (None, _) => Key::Null,
            (Some(key), KeyKind::Bytes) => Key::Bytes(key),
            (Some(key), KeyKind::Int) => Key::Int(int_key(key)),
        };
        // The corpus has one row at `i64::MIN`, which is no time here; it goes in as the next tick.
        let ts = Timestamp::new(event.ts).unwrap_or(Timestamp::MIN);
        let row = event.id.to_le_bytes();
        if batch.kind == BatchKind::Late {
            let mut single = EventBatch::with_capacity(event.side, 1, row.len());
            single.push(&self.hasher, key, ts, &row).expect("a small row");
            batch.push_late_from(&single, 0, lag);
        } else {
            batch.push(&self.hasher, key, ts, &row).expect("a small row");
        }
    }

    fn hand_over(
        &mut self,
        shard: usize,
        batch: &EventBatch,
        out: &mut Collected,
    ) -> Result<(), JoinError> {
        self.shards[shard].on_batch(batch, out)?;
        while self.shards[shard].work(self.work_budget, out) {}
        Ok(())
    }

    /// Tells all shards what the clocks say now, and has the work done.
    fn apply_clocks(&mut self, input_ended: bool) -> Vec<Output> {
        let mut out = Collected::default();
        self.ended |= input_ended;
        let [left, right] = [self.clocks[0].watermark(), self.clocks[1].watermark()];
        for shard in &mut self.shards {
            shard.advance(left, right);
            if input_ended {
                shard.finish();
            }
            while shard.work(self.work_budget, &mut out) {}
        }
        out.0
    }
}

impl Subject for OperatorSubject {
    fn event(&mut self, event: &Arrival) -> Result<Vec<Output>, JoinError> {
        self.events(std::slice::from_ref(event))
    }

    fn events(&mut self, events: &[Arrival]) -> Result<Vec<Output>, JoinError> {
        let mut out = Collected::default();
        let mut start = 0;
        while start < events.len() {
            // As many as fit one batch: of one side, source, shard and kind.
            let first = &events[start];
            let (shard, (kind, _)) = (self.shard_of(first), self.kind_of(first));
            let together = events[start..].iter().take_while(|event| {
                event.side == first.side
                    && event.source == first.source
                    && self.shard_of(event) == shard
                    && self.kind_of(event).0 == kind
            });
            let end = start + together.count();
            let mut batch = EventBatch::default();
            batch.reset(first.side, first.source as u32, kind);
            for event in &events[start..end] {
                self.push(&mut batch, event, self.kind_of(event).1);
            }
            self.hand_over(shard, &batch, &mut out)?;
            start = end;
        }
        Ok(out.0)
    }

    fn watermark(&mut self, side: Side, source: usize, ts: i64) -> Vec<Output> {
        self.clocks[side.index()].advance(source, ts);
        self.apply_clocks(false)
    }

    fn idle(&mut self, side: Side, source: usize) -> Vec<Output> {
        self.clocks[side.index()].idle(source);
        self.apply_clocks(false)
    }

    fn finish(&mut self, side: Side, source: usize) -> Vec<Output> {
        self.clocks[side.index()].finish(source);
        self.apply_clocks(self.clocks.iter().all(SideClock::is_finished))
    }

    fn end(&mut self) -> Vec<Output> {
        for clock in &mut self.clocks {
            for source in 0..clock.source_count() {
                clock.finish(source);
            }
        }
        self.apply_clocks(true)
    }

    fn tick(&mut self, ns: u64) -> Vec<Output> {
        let mut out = Collected::default();
        for shard in &mut self.shards {
            if shard.tick(ns) {
                while shard.work(self.work_budget, &mut out) {}
            }
        }
        out.0
    }
}

/// Tests write keys as text; an integer join takes the first eight bytes of it.
pub fn int_key(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    assert!(key.len() <= 8, "the tests' keys fit an integer");
    bytes[..key.len()].copy_from_slice(key);
    u64::from_le_bytes(bytes)
}

/// Everything that came out, by the ids in the rows.
#[derive(Default)]
struct Collected(Vec<Output>);

/// The test's name of an event: its row.
pub fn id_of(event: &Event<'_>) -> u64 {
    u64::from_le_bytes(event.row.try_into().expect("a row is its id"))
}

impl Emit for Collected {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        assert_eq!(left.key, right.key, "a pair has one key");
        let ts = left.ts.max(right.ts);
        self.0.push(Output::Pair { left: id_of(&left), right: id_of(&right), ts });
    }

    fn pair_at(&mut self, left: Event<'_>, right: Event<'_>, ts: i64) {
        assert_eq!(left.key, right.key, "a pair has one key");
        self.0.push(Output::Pair { left: id_of(&left), right: id_of(&right), ts });
    }

    fn single(&mut self, side: Side, event: Event<'_>) {
        self.0.push(Output::Single { side, id: id_of(&event) });
    }

    fn late(&mut self, side: Side, event: Event<'_>, lag: i64) {
        self.0.push(Output::Late { side, id: id_of(&event), lag });
    }
}
