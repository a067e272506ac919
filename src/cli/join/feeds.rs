//! The input files as feeds of an engine.

use std::sync::Arc;

use crate::cli::Failure;
use crate::cli::join::open::Inputs;
use crate::cli::join::plan::{Plan, SidePlan};
use crate::cli::join::run::ticks;
use crate::engine::{ChainBuilder, EngineBuilder, EngineError, NoSinks, Stream};
use crate::error::SourceError;
use crate::event::{KeyHasher, Side};
use crate::exchange::WatermarkSlot;
use crate::sink::BadRows;
use crate::source::{
    BadRow, BlockParser, FailOnBadRow, FileFeed, FileOptions, FileSource, OnBadRow, ParseOptions,
    SkipBadRows, SourceInfo,
};
use crate::time::Lateness;
use crate::time::text::{TimeParser, TimeUnit};

/// Feeds of a file on each core: while one waits for its block's turn, another parses ahead.
const FEEDS_PER_CORE: usize = 2;

/// Handles to the sources, for their counts.
pub(super) struct Feeds {
    /// With the streams that they are of.
    sources: Vec<(usize, FileSource)>,
    /// Bytes of all files; none if one of them is a stream.
    bytes_total: Option<u64>,
}

impl Feeds {
    /// Bad rows of one stream so far.
    pub(super) fn bad_rows(&self, stream: usize) -> u64 {
        let of_stream = self.sources.iter().filter(|(of, _)| *of == stream);
        of_stream.map(|(_, source)| source.counts().bad).sum()
    }

    /// Bytes read of bytes there are.
    pub(super) fn bytes(&self) -> Option<(u64, u64)> {
        let read = self.sources.iter().map(|(_, source)| source.counts().bytes).sum();
        Some((read, self.bytes_total?))
    }
}

/// What the durations of the plan are in ticks of the run.
pub(super) struct SourceTimes {
    /// By stream.
    disorder: Vec<i64>,
    max_jump: Option<i64>,
}

impl SourceTimes {
    /// # Errors
    /// [`Failure::Usage`] names the option that does not fit the unit.
    pub(super) fn new(plan: &Plan, unit: TimeUnit) -> Result<SourceTimes, Failure> {
        let of = |stream: &SidePlan| ticks("--out-of-orderness", stream.disorder, unit);
        let disorder = plan.streams().map(of).collect::<Result<_, Failure>>()?;
        let max_jump = plan.max_jump.map(|span| ticks("--max-jump", span, unit)).transpose()?;
        Ok(SourceTimes { disorder, max_jump })
    }
}

/// What feeds are added to.
pub(super) trait Builder: Sized {
    /// The hasher of the engine's keys.
    fn key_hasher(&self) -> KeyHasher;

    /// A source of a stream.
    fn slot(&self, stream: usize) -> Result<WatermarkSlot, EngineError>;

    /// Adds a feed of a stream.
    fn with_feed(self, stream: usize, feed: FileFeed) -> Self;
}

impl Builder for EngineBuilder<NoSinks> {
    fn key_hasher(&self) -> KeyHasher {
        self.hasher()
    }

    fn slot(&self, stream: usize) -> Result<WatermarkSlot, EngineError> {
        self.source_slot(side_of(stream))
    }

    fn with_feed(self, _: usize, feed: FileFeed) -> Self {
        self.feed(feed)
    }
}

impl Builder for ChainBuilder<NoSinks> {
    fn key_hasher(&self) -> KeyHasher {
        self.hasher(Stream::LEFT)
    }

    fn slot(&self, stream: usize) -> Result<WatermarkSlot, EngineError> {
        self.source_slot(Stream::of_index(stream))
    }

    fn with_feed(self, stream: usize, feed: FileFeed) -> Self {
        self.feed(Stream::of_index(stream), feed)
    }
}

/// Further streams are right inputs of their stages.
fn side_of(stream: usize) -> Side {
    if stream == 0 { Side::Left } else { Side::Right }
}

/// Adds the inputs to an engine of `cores` cores: each file is a source, on which all cores work.
///
/// # Errors
/// [`Failure::Failed`] when a source cannot be added or its thread cannot be started.
pub(super) fn add<B: Builder>(
    mut builder: B,
    plan: &Plan,
    times: &SourceTimes,
    inputs: Inputs,
    lateness: Lateness,
    cores: usize,
    bad_rows: Option<BadRows>,
) -> Result<(B, Feeds), Failure> {
    // From here on everybody waits as long as it takes.
    inputs.setup.end();
    let unit = inputs.unit;
    let hasher = builder.key_hasher();
    let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    let mut feeds = Feeds { sources: Vec::new(), bytes_total: Some(0) };
    let inputs = inputs.sides.into_iter().chain(inputs.then);
    for (stream, (side_plan, input)) in plan.streams().zip(inputs).enumerate() {
        let side = side_of(stream);
        let on_bad_row: Arc<dyn OnBadRow> = match bad_rows.clone() {
            Some(output) => Arc::new(Written { output, stream: side_plan.name.clone() }),
            None if plan.skip_bad_rows => Arc::new(SkipBadRows),
            None => Arc::new(FailOnBadRow),
        };
        for (file, number) in input.files.into_iter().zip(0..) {
            let slot = builder.slot(stream).map_err(|error| failed(&error))?;
            let parser = BlockParser::new(
                Arc::clone(&input.schema),
                TimeParser::new(&side_plan.time_format, &plan.zone, unit),
                hasher.clone(),
                ParseOptions { side, source: number, with_position: plan.machine.deterministic },
            );
            let options = FileOptions {
                disorder: times.disorder[stream],
                max_jump: times.max_jump,
                lateness,
                idle_timeout: plan.idle_timeout,
                threaded: file.bytes.is_none(),
            };
            let bad = Arc::clone(&on_bad_row);
            let source = FileSource::new(&file.name, file.reader, parser, slot, bad, options)
                .map_err(|error| failed(&error))?;
            // Feeds are dealt out in turn, so that each core gets as many.
            for _ in 0..cores * FEEDS_PER_CORE {
                builder = builder.with_feed(stream, source.feed());
            }
            feeds.sources.push((stream, source));
            feeds.bytes_total = feeds.bytes_total.zip(file.bytes).map(|(sum, bytes)| sum + bytes);
        }
    }
    Ok((builder, feeds))
}

/// Bad rows go to their output.
struct Written {
    output: BadRows,
    stream: String,
}

impl OnBadRow for Written {
    fn bad_row(&self, source: &SourceInfo, row: &BadRow) -> Result<(), SourceError> {
        let column = row.column.and_then(|column| source.columns.get(column));
        let column = column.map_or("", String::as_str);
        let reason = row.why.to_string();
        self.output
            .write(&self.stream, &source.name, row.line, column, &reason, &row.text)
            .map_err(|error| SourceError { message: error.message })
    }
}
