use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::mpsc;

use super::*;
use crate::event::{BatchKind, Key, KeyHasher, KeyKind, Side};
use crate::exchange::{Doorbell, LinkReceiver, Mesh, ProducerOptions, Watermarks, mesh};
use crate::source::bad::{FailOnBadRow, SkipBadRows};
use crate::source::blocks::{BlockReader, ReadOptions};
use crate::source::parse::{ParseOptions, split_position};
use crate::source::schema::{RowFormat, RowSchema};
use crate::source::{BadRow, OnBadRow};
use crate::time::text::{TimeFormat, TimeParser, TimeUnit, Zone};
use crate::time::{BoundedDisorder, LatePolicy, ManualClock, WATERMARK_END};
use proptest::prelude::*;

const DISORDER: i64 = 5;

/// One source, some cores that feed from it and as many shards, and no thread.
struct Rig {
    source: FileSource,
    feeds: Vec<Option<FileFeed>>,
    producers: Vec<Producer>,
    shards: Vec<Vec<LinkReceiver>>,
    watermarks: Watermarks,
    clock: ManualClock,
    /// By position in the stream: kind and lag of each event that arrived.
    arrived: BTreeMap<u64, (BatchKind, Option<i64>, i64)>,
    /// By position: the watermark that its shard had applied when it arrived.
    applied_before: BTreeMap<u64, i64>,
    /// What each shard has applied.
    applied: Vec<i64>,
}

fn lateness(clock: LatenessClock) -> Lateness {
    Lateness { policy: LatePolicy::Output, clock, allowed: 2 }
}

impl Rig {
    fn new(
        input: Box<dyn Read + Send>,
        cores: usize,
        block_bytes: usize,
        credits: usize,
        options: FileOptions,
        bad_rows: Arc<dyn OnBadRow>,
    ) -> Rig {
        let hasher = KeyHasher::new(KeyKind::Bytes, 1);
        let watermarks = Watermarks::with_capacity(1);
        let slot = watermarks.add_source(Side::Left).unwrap();
        watermarks.seal();
        let columns = ["k", "ts"].map(str::to_owned).to_vec();
        let schema = RowSchema::new(RowFormat::CSV, columns, &["k"], "ts").unwrap();
        let parser = BlockParser::new(
            Arc::new(schema),
            TimeParser::new(&TimeFormat::Ms, &Zone::UTC, TimeUnit::Ms),
            hasher.clone(),
            ParseOptions { side: Side::Left, source: 0, with_position: true },
        );
        let eager = options.threaded;
        let reader = BlockReader::new(input, RowFormat::CSV, ReadOptions { block_bytes, eager });
        let source = FileSource::new("in.csv", reader, parser, slot, bad_rows, options).unwrap();
        let bells = vec![Doorbell::silent(); cores];
        let Mesh { senders, receivers } = mesh(credits, &bells, &bells);
        let producer_options =
            ProducerOptions { hasher, lateness: options.lateness, batch_events: 4 };
        Rig {
            feeds: (0..cores).map(|_| Some(source.feed())).collect(),
            source,
            producers: senders
                .into_iter()
                .map(|links| Producer::new(links, producer_options.clone()))
                .collect(),
            shards: receivers,
            watermarks,
            clock: ManualClock::default(),
            arrived: BTreeMap::new(),
            applied_before: BTreeMap::new(),
            applied: vec![i64::MIN; cores],
        }
    }

    /// Polls one core's feed as a core does: not while its producer is blocked.
    fn poll(&mut self, core: usize) -> Result<Option<FeedProgress>, SourceError> {
        let producer = &mut self.producers[core];
        let Some(feed) = &mut self.feeds[core] else { return Ok(None) };
        if producer.flush().unwrap() == Flow::Blocked {
            return Ok(Some(FeedProgress::Blocked));
        }
        let progress = feed.poll(producer, &self.clock)?;
        if progress == FeedProgress::Finished {
            self.feeds[core] = None;
        }
        Ok(Some(progress))
    }

    /// One round of a shard: load the watermarks, drain what the lanes hold, apply what was loaded.
    fn drain(&mut self, shard: usize) {
        let watermark = self.watermarks.side(Side::Left);
        let hasher = KeyHasher::new(KeyKind::Bytes, 1);
        for lane in &mut self.shards[shard] {
            for _ in 0..lane.len() {
                let batch = lane.try_recv().unwrap();
                for index in 0..batch.len() {
                    let event = batch.event(index, &hasher);
                    assert_eq!(event.key == Key::Null, batch.kind == BatchKind::NullKey);
                    let position = split_position(event.row).unwrap().0.offset();
                    let lag = batch.lags().get(index).copied().filter(|&lag| lag > 0);
                    let twice = self.arrived.insert(position, (batch.kind, lag, event.ts));
                    assert_eq!(twice, None, "an event came twice");
                    self.applied_before.insert(position, self.applied[shard]);
                }
                lane.give_back(batch);
            }
        }
        self.applied[shard] = watermark;
    }

    fn is_over(&self) -> bool {
        self.feeds.iter().all(Option::is_none)
    }

    /// Runs to the end; `choices` say which core does what next, for as long as they last.
    fn run(&mut self, choices: &[u8]) -> Result<(), SourceError> {
        let cores = self.producers.len();
        for &choice in choices {
            let core = usize::from(choice / 3) % cores;
            match choice % 3 {
                0 => self.drain(core),
                _ => drop(self.poll(core)?),
            }
        }
        while !self.is_over() {
            for core in 0..cores {
                self.poll(core)?;
                self.drain(core);
            }
        }
        (0..cores).for_each(|core| self.drain(core));
        assert_eq!(self.producers.iter().map(Producer::unsent_events).sum::<usize>(), 0);
        assert_eq!(self.watermarks.side(Side::Left), WATERMARK_END);
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Line {
    key: String,
    ts: Option<i64>,
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    let key = prop::sample::select(vec!["a", "b", "c", "d", ""]).prop_map(str::to_owned);
    let step = prop_oneof![12 => (0i64..20).prop_map(Some), 1 => Just(None)];
    prop::collection::vec((key, step), 0..60).prop_map(|lines| {
        let of = |(at, (key, step)): (usize, (String, Option<i64>))| Line {
            key,
            ts: step.map(|step| at as i64 * 2 - step),
        };
        lines.into_iter().enumerate().map(of).collect()
    })
}

fn text(lines: &[Line]) -> String {
    let ts = |line: &Line| line.ts.map_or("x".to_owned(), |ts| ts.to_string());
    lines.iter().map(|line| format!("{},{}\n", line.key, ts(line))).collect()
}

/// By position: time, whether the key is null, and the watermark of everything before; and how many
/// were further ahead than the limit.
fn expected(lines: &[Line], max_jump: Option<i64>) -> (BTreeMap<u64, (i64, bool, i64)>, u64) {
    let (mut at, mut expected) = (0, BTreeMap::new());
    let mut seen = BoundedDisorder::new(DISORDER);
    if let Some(ticks) = max_jump {
        seen = seen.limit_jumps(ticks);
    }
    for line in lines {
        if let Some(ts) = line.ts {
            expected.insert(at, (ts, line.key.is_empty(), seen.watermark()));
            seen.observe(ts);
        }
        at += text(std::slice::from_ref(line)).len() as u64;
    }
    (expected, seen.jumps())
}

fn options(clock: LatenessClock) -> FileOptions {
    FileOptions { disorder: DISORDER, lateness: lateness(clock), ..FileOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_event_arrives_once_and_no_watermark_overtakes_it(
        lines in lines(),
        cores in 1usize..4,
        block_bytes in 1usize..60,
        credits in 1usize..4,
        choices in prop::collection::vec(any::<u8>(), 0..300),
        max_jump in prop::option::of(1i64..12),
    ) {
        let input = Box::new(io::Cursor::new(text(&lines)));
        let options = FileOptions { max_jump, ..options(LatenessClock::Merged) };
        let mut rig = Rig::new(input, cores, block_bytes, credits, options, Arc::new(SkipBadRows));
        rig.run(&choices).unwrap();
        let (expected, jumped) = expected(&lines, max_jump);
        prop_assert_eq!(rig.watermarks.jumped(Side::Left), jumped);
        prop_assert_eq!(rig.arrived.len(), expected.len());
        for (position, (ts, null_key, watermark)) in &expected {
            let kind = if *null_key { BatchKind::NullKey } else { BatchKind::Keyed };
            prop_assert_eq!(rig.arrived.get(position), Some(&(kind, None, *ts)));
            // What is on time in the order of the file is on time in a shard.
            prop_assert!(rig.applied_before[position] <= *ts || ts < watermark);
        }
        let counts = rig.source.counts();
        prop_assert_eq!(counts.rows, lines.len() as u64);
        prop_assert_eq!(counts.bad, (lines.len() - expected.len()) as u64);
        prop_assert_eq!(counts.null_key, expected.values().filter(|row| row.1).count() as u64);
        prop_assert_eq!((counts.late, counts.bytes), (0, text(&lines).len() as u64));
        prop_assert_eq!(rig.watermarks.regressed(Side::Left), 0);
    }

    #[test]
    fn lateness_at_the_source_follows_the_file_on_any_number_of_cores(
        lines in lines(),
        cores in 1usize..4,
        block_bytes in 1usize..60,
        choices in prop::collection::vec(any::<u8>(), 0..300),
        max_jump in prop::option::of(1i64..12),
    ) {
        let input = Box::new(io::Cursor::new(text(&lines)));
        let options = FileOptions { max_jump, ..options(LatenessClock::Own) };
        let mut rig = Rig::new(input, cores, block_bytes, 2, options, Arc::new(SkipBadRows));
        rig.run(&choices).unwrap();
        let ((expected, jumped), mut late) = (expected(&lines, max_jump), 0);
        prop_assert_eq!(rig.watermarks.jumped(Side::Left), jumped);
        prop_assert_eq!(rig.arrived.len(), expected.len());
        for (position, (ts, null_key, watermark)) in expected {
            let threshold = options.lateness.threshold(watermark);
            let lag = (ts < threshold).then(|| threshold - ts);
            late += u64::from(lag.is_some() && !null_key);
            let kind = match (null_key, lag) {
                (true, _) => BatchKind::NullKey,
                (false, Some(_)) => BatchKind::Late,
                (false, None) => BatchKind::Keyed,
            };
            prop_assert_eq!(rig.arrived.get(&position), Some(&(kind, lag, ts)));
            prop_assert!(rig.applied_before[&position] <= ts || ts < watermark);
        }
        prop_assert_eq!(rig.source.counts().late, late);
    }
}

#[test]
fn the_first_bad_row_of_the_file_stops_the_run_whoever_finds_it() {
    let data = "a,1\n".repeat(40) + "a,x\n" + &"a,1\n".repeat(9) + "a,y\n";
    for cores in 1..4 {
        let input = Box::new(io::Cursor::new(data.clone()));
        let options = options(LatenessClock::Merged);
        let mut rig = Rig::new(input, cores, 16, 4, options, Arc::new(FailOnBadRow));
        let error = rig.run(&[]).unwrap_err();
        let start = "in.csv, line 41, column \"ts\": \"x\": ";
        assert!(error.message.starts_with(start), "{}", error.message);
        assert!(error.message.ends_with("--bad-rows skip"), "{}", error.message);
    }
}

#[test]
fn skipped_rows_come_in_the_order_of_the_file() {
    #[derive(Default)]
    struct Lines(Mutex<Vec<u64>>);
    impl OnBadRow for Lines {
        fn bad_row(&self, _: &SourceInfo, row: &BadRow) -> Result<(), SourceError> {
            self.0.lock().unwrap().push(row.line);
            Ok(())
        }
    }
    let input = Box::new(io::Cursor::new("a,x\na,1\n".repeat(50)));
    let lines = Arc::new(Lines::default());
    let options = options(LatenessClock::Merged);
    let mut rig = Rig::new(input, 3, 10, 2, options, Arc::clone(&lines) as Arc<dyn OnBadRow>);
    let choices: Vec<u8> = (0..=255).rev().collect();
    rig.run(&choices).unwrap();
    assert_eq!(*lines.0.lock().unwrap(), (0..50).map(|n| 2 * n + 1).collect::<Vec<_>>());
}

#[test]
fn a_file_that_cannot_be_read_says_which() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    for threaded in [false, true] {
        let options = FileOptions { threaded, ..options(LatenessClock::Merged) };
        let mut rig = Rig::new(Box::new(Broken), 1, 16, 2, options, Arc::new(SkipBadRows));
        let error = loop {
            match rig.poll(0) {
                Err(error) => break error,
                Ok(Some(FeedProgress::Waiting)) => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        };
        let expected = "in.csv: reading failed at byte 0: the disk is gone;";
        assert!(error.message.starts_with(expected), "{error}");
    }
}

/// A pipe: what is sent can be read, and it ends when the sender is dropped.
struct Pipe(mpsc::Receiver<&'static str>);

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let text = self.0.recv().unwrap_or("");
        into[..text.len()].copy_from_slice(text.as_bytes());
        Ok(text.len())
    }
}

#[test]
fn a_silent_pipe_goes_idle_and_wakes_up() {
    let (sender, receiver) = mpsc::channel();
    let options = FileOptions {
        threaded: true,
        idle_timeout: Some(Duration::from_secs(1)),
        ..options(LatenessClock::Merged)
    };
    let mut rig = Rig::new(Box::new(Pipe(receiver)), 2, 64, 4, options, Arc::new(SkipBadRows));
    let slot = rig.source.0.slot.clone();
    // A core never waits in the read: it comes back at once, and time passes.
    assert_eq!(rig.poll(0).unwrap(), Some(FeedProgress::Waiting));
    rig.clock.advance_ns(999_999_999);
    rig.poll(0).unwrap();
    assert!(!slot.is_idle(), "it has been silent for less than a second");
    rig.clock.advance_ns(1);
    rig.poll(1).unwrap();
    assert!(slot.is_idle());
    sender.send("a,100\n").unwrap();
    while rig.arrived.is_empty() {
        rig.poll(0).unwrap();
        rig.drain(0);
        rig.drain(1);
    }
    assert!(!slot.is_idle());
    drop(sender);
    rig.run(&[]).unwrap();
    assert_eq!((rig.source.counts().rows, slot.promised()), (1, 95));
}

#[test]
fn empty_files_end() {
    for threaded in [false, true] {
        let options = FileOptions { threaded, ..options(LatenessClock::Own) };
        let mut rig = Rig::new(Box::new(io::empty()), 2, 16, 1, options, Arc::new(FailOnBadRow));
        rig.run(&[]).unwrap();
        assert_eq!(rig.source.counts(), SourceCounts::default());
    }
}
