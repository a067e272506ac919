//! What the engine's tests share: rows, a collecting sink, a feed over memory, a nested loop.

use intervale::engine::{Engine, EngineBuilder, Finished, NoSinks, Source};
use intervale::error::{PushError, SourceError};
use intervale::event::{Event, Key, KeyKind, Side};
use intervale::exchange::{Feed, FeedProgress, Flow, PortId, Producer, Promise, WatermarkSlot};
use intervale::join::{Emit, JoinKind, JoinSpec, Sink, SinkError};
use intervale::limits::Limits;
use intervale::runtime::{CoreChoice, RuntimeChoice};
use intervale::shard::Operator;
use intervale::time::{Bound, Clock};

pub const RUNTIMES: [RuntimeChoice; 2] = [RuntimeChoice::Threads, RuntimeChoice::Auto];
pub const SHARDS: [usize; 3] = [1, 2, 8];
/// Large against the disorder of [`events`], so that nothing is late.
pub const DISORDER: i64 = 64;

/// (key, time, number): the number is the row.
pub type Row = (u64, i64, u64);

/// Keeps what comes out; what it does beside is its plan.
#[derive(Debug, Default)]
pub struct Collect {
    pub pairs: Vec<(Row, Row)>,
    pub singles: Vec<(Side, Row)>,
    pub late: u64,
    pub finished: bool,
    pub fault: Option<SinkError>,
    pub panic_at: Option<usize>,
}

pub fn row(event: Event<'_>) -> Row {
    let key = match event.key {
        Key::Int(key) => key,
        Key::Bytes(bytes) => u64::from_le_bytes(bytes.try_into().unwrap()),
        Key::Null => u64::MAX,
    };
    (key, event.ts, u64::from_le_bytes(event.row.try_into().unwrap()))
}

impl Emit for Collect {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self.pairs.push((row(left), row(right)));
        assert_ne!(Some(self.pairs.len()), self.panic_at, "planned");
    }

    fn single(&mut self, side: Side, event: Event<'_>) {
        self.singles.push((side, row(event)));
    }

    fn late(&mut self, _: Side, _: Event<'_>, _: i64) {
        self.late += 1;
    }
}

impl Sink for Collect {
    fn flush(&mut self) -> Result<(), SinkError> {
        match &self.fault {
            Some(fault) if !self.pairs.is_empty() => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.finished = true;
        self.flush()
    }
}

pub fn spec(kind: JoinKind, keys: KeyKind) -> JoinSpec {
    let between = JoinSpec::between(Bound::Closed(-20), Bound::Closed(30));
    between.kind(kind).keys(keys).build(&Limits::default()).unwrap()
}

pub fn builder(kind: JoinKind, shards: usize, runtime: RuntimeChoice) -> EngineBuilder<NoSinks> {
    Engine::builder(spec(kind, KeyKind::Int))
        .cores(CoreChoice::count(shards).unwrap())
        .runtime(runtime)
}

pub fn collect(_: usize) -> Collect {
    Collect::default()
}

/// Events of one side: times ascend with a disorder of less than 16, keys repeat.
pub fn events(seed: u64, count: u64) -> Vec<Row> {
    let mut state = seed;
    let mut next = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    (0..count)
        .map(|number| (next(97), (number / 4 + next(16)) as i64, seed << 32 | number))
        .collect()
}

pub fn nested_loop(left: &[Row], right: &[Row]) -> Vec<(Row, Row)> {
    let mut pairs = Vec::new();
    for &l in left {
        let partners = right.iter().filter(|r| r.0 == l.0 && (-20..=30).contains(&(r.1 - l.1)));
        pairs.extend(partners.map(|&r| (l, r)));
    }
    pairs.sort_unstable();
    pairs
}

pub fn pairs_of(finished: &Finished<Collect>) -> Vec<(Row, Row)> {
    let mut pairs: Vec<_> = finished.sinks.iter().flat_map(|sink| sink.pairs.clone()).collect();
    pairs.sort_unstable();
    pairs
}

pub fn push(source: &mut Source, &(key, ts, number): &Row) -> Result<(), PushError> {
    source.push(Key::Int(key), ts, &number.to_le_bytes())
}

/// Pushes rows from a thread of its own; the source ends with it.
pub fn feed_from_thread(mut source: Source, rows: Vec<Row>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for row in &rows {
            push(&mut source, row).unwrap();
        }
    })
}

/// A feed over rows in memory; `fault_at` makes it fail there.
pub struct Rows {
    pub slot: WatermarkSlot,
    pub port: Option<PortId>,
    pub rows: std::vec::IntoIter<Row>,
    pub fault_at: Option<u64>,
    pub rows_a_poll: usize,
}

impl Rows {
    pub fn new(builder: &EngineBuilder<NoSinks>, side: Side, rows: Vec<Row>) -> Rows {
        let slot = builder.source_slot(side).unwrap();
        Rows { slot, port: None, rows: rows.into_iter(), fault_at: None, rows_a_poll: 100 }
    }
}

impl Feed for Rows {
    fn poll(
        &mut self,
        producer: &mut Producer,
        _: &dyn Clock,
    ) -> Result<FeedProgress, SourceError> {
        let failed = |error: PushError| SourceError { message: error.to_string() };
        let slot = &self.slot;
        let port = *self
            .port
            .get_or_insert_with(|| producer.add_port(slot.clone(), Promise::Disorder(DISORDER)));
        for _ in 0..self.rows_a_poll {
            let Some(&(key, ts, number)) = self.rows.as_slice().first() else {
                producer.finish(port);
                return match producer.flush().map_err(failed)? {
                    Flow::Open => Ok(FeedProgress::Finished),
                    Flow::Blocked => Ok(FeedProgress::Blocked),
                };
            };
            if self.fault_at == Some(number & 0xFFFF_FFFF) {
                return Err(SourceError { message: "orders.csv, line 3: no time".to_owned() });
            }
            let ts = intervale::time::Timestamp::new(ts).unwrap();
            let flow = producer.push(port, Key::Int(key), ts, &number.to_le_bytes());
            self.rows.next();
            if flow.map_err(failed)? == Flow::Blocked {
                return Ok(FeedProgress::Blocked);
            }
        }
        Ok(FeedProgress::Busy)
    }

    fn slot(&self) -> Option<&WatermarkSlot> {
        Some(&self.slot)
    }
}

/// Pushes matching rows to both sides until the engine has stopped.
pub fn push_until_refused<S: Sink, J: Operator + Send>(engine: &Engine<S, J>) -> PushError {
    let mut sources = Side::BOTH.map(|side| engine.source(side).unwrap());
    for number in 0.. {
        for source in &mut sources {
            if let Err(error) = push(source, &(number, number as i64 / 8, number)) {
                return error;
            }
        }
    }
    unreachable!()
}
