//! The whole engine as a subject: sources, lanes, shards on threads, sinks.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use intervale::engine::{Engine, Source};
use intervale::error::JoinError;
use intervale::event::{Event, Key, KeyKind, Side};
use intervale::exchange::HotKeys;
use intervale::join::oracle::Output;
use intervale::join::{AnyJoin, Emit, JoinSpec, Sink};
use intervale::runtime::{CoreChoice, RuntimeChoice};

use super::limits;
use super::operator::{id_of, int_key};
use super::subject::{Arrival, Subject};

/// Everything that the sinks of all shards took.
pub type Taken = Arc<Mutex<Vec<Output>>>;

/// An engine with a barrier after every step, so that it is known which step caused what.
pub struct EngineSubject {
    engine: Option<Engine<Record, AnyJoin>>,
    /// Until they end.
    sources: [Vec<Option<Source>>; 2],
    keys: KeyKind,
    taken: Taken,
    /// Copies of rows that the engines of all such subjects made.
    copies: Arc<AtomicU64>,
}

/// Takes what comes out, under the ids in the rows.
pub struct Record(Taken);

impl EngineSubject {
    pub fn new(
        spec: &JoinSpec,
        sources: [usize; 2],
        shard_count: usize,
        runtime: RuntimeChoice,
    ) -> EngineSubject {
        let hot_keys = (HotKeys::Auto, 1);
        EngineSubject::splitting(spec, sources, shard_count, runtime, hot_keys, Arc::default())
    }

    /// With keys split in turns that are drawn from a seed; counts the copies.
    pub fn splitting(
        spec: &JoinSpec,
        sources: [usize; 2],
        shard_count: usize,
        runtime: RuntimeChoice,
        (hot_keys, seed): (HotKeys, u64),
        copies: Arc<AtomicU64>,
    ) -> EngineSubject {
        let (taken, spec) = (Taken::default(), spec.clone());
        // Each shard gets an equal part.
        let mut whole = limits();
        whole.state_bytes_max = whole.state_bytes_max.map(|bytes| bytes * shard_count as u64);
        let engine = Engine::builder(spec.clone())
            .cores(CoreChoice::count(shard_count).expect("a count of shards"))
            .runtime(runtime)
            .limits(whole)
            .hot_keys(hot_keys)
            .hash_seed(seed)
            .sinks(|_| Record(Arc::clone(&taken)))
            .start_with(|_, hasher, limits| {
                AnyJoin::new(spec.clone(), hasher.clone(), limits, None)
            })
            .expect("the engine starts");
        let sources = Side::BOTH.map(|side| {
            let add = |_| Some(engine.source(side).expect("a source more"));
            (0..sources[side.index()]).map(add).collect()
        });
        engine.seal();
        EngineSubject { engine: Some(engine), sources, keys: spec.keys(), taken, copies }
    }

    fn source(&mut self, side: Side, source: usize) -> &mut Source {
        self.sources[side.index()][source].as_mut().expect("the source has not ended")
    }

    /// Waits until the step has been carried out; after the last source's end, until all is over.
    fn outputs(&mut self) -> Vec<Output> {
        let ended = self.sources.iter().flatten().all(Option::is_none);
        match &self.engine {
            Some(_) if ended => {
                let engine = self.engine.take().expect("it is there");
                let ended = engine.finish().expect("it ends well, with counts that add up");
                let counters = ended.report.counters;
                let copies = Side::BOTH.map(|side| counters.side(side).copies);
                self.copies.fetch_add(copies[0] + copies[1], Ordering::Relaxed);
            }
            Some(engine) => engine.flush().expect("the engine runs"),
            None => {}
        }
        mem::take(&mut *self.taken.lock().expect("no sink panicked"))
    }
}

impl Subject for EngineSubject {
    fn event(&mut self, event: &Arrival) -> Result<Vec<Output>, JoinError> {
        let key = match (&event.key, self.keys) {
            (None, _) => Key::Null,
            (Some(key), KeyKind::Bytes) => Key::Bytes(key),
            (Some(key), KeyKind::Int) => Key::Int(int_key(key)),
        };
        let ts = event.ts.max(i64::MIN + 1);
        let row = event.id.to_le_bytes();
        self.source(event.side, event.source).push(key, ts, &row).expect("it is taken");
        Ok(self.outputs())
    }

    fn watermark(&mut self, side: Side, source: usize, ts: i64) -> Vec<Output> {
        self.source(side, source).watermark(ts).expect("it is taken");
        self.outputs()
    }

    fn idle(&mut self, side: Side, source: usize) -> Vec<Output> {
        self.source(side, source).idle().expect("it is taken");
        self.outputs()
    }

    fn finish(&mut self, side: Side, source: usize) -> Vec<Output> {
        if let Some(source) = self.sources[side.index()][source].take() {
            source.finish().expect("it ends");
        }
        self.outputs()
    }

    fn end(&mut self) -> Vec<Output> {
        for source in self.sources.iter_mut().flatten().filter_map(Option::take) {
            source.finish().expect("it ends");
        }
        self.outputs()
    }
}

impl Record {
    pub fn new(taken: Taken) -> Record {
        Record(taken)
    }

    fn take(&mut self, output: Output) {
        self.0.lock().expect("no sink panicked").push(output);
    }
}

impl Emit for Record {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        let ts = left.ts.max(right.ts);
        self.take(Output::Pair { left: id_of(&left), right: id_of(&right), ts });
    }

    fn pair_at(&mut self, left: Event<'_>, right: Event<'_>, ts: i64) {
        self.take(Output::Pair { left: id_of(&left), right: id_of(&right), ts });
    }

    fn single(&mut self, side: Side, event: Event<'_>) {
        self.take(Output::Single { side, id: id_of(&event) });
    }

    fn late(&mut self, side: Side, event: Event<'_>, lag: i64) {
        self.take(Output::Late { side, id: id_of(&event), lag });
    }
}

impl Sink for Record {}
