//! The input files as feeds of an engine.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use crate::cli::Failure;
use crate::cli::join::open::Inputs;
use crate::cli::join::plan::Plan;
use crate::cli::join::run::ticks;
use crate::engine::{EngineBuilder, NoSinks};
use crate::error::SourceError;
use crate::event::{KeyHasher, KeyKind, Side};
use crate::sink::BadRows;
use crate::source::{
    BadRow, BlockParser, FailOnBadRow, FileOptions, FileSource, OnBadRow, ParseOptions,
    SkipBadRows, SourceInfo,
};
use crate::time::Lateness;
use crate::time::text::{TimeParser, TimeUnit};

/// Feeds of a file on each core: while one waits for its block's turn, another parses ahead.
const FEEDS_PER_CORE: usize = 2;

/// Handles to the sources, for their counts.
pub(super) struct Feeds {
    sources: Vec<FileSource>,
    /// Bytes of all files; none if one of them is a stream.
    bytes_total: Option<u64>,
}

impl Feeds {
    /// Bad rows of one side so far.
    pub(super) fn bad_rows(&self, side: Side) -> u64 {
        let of_side = self.sources.iter().filter(|source| source.info().side == side);
        of_side.map(|source| source.counts().bad).sum()
    }

    /// Bytes read of bytes there are.
    pub(super) fn bytes(&self) -> Option<(u64, u64)> {
        let read = self.sources.iter().map(|source| source.counts().bytes).sum();
        Some((read, self.bytes_total?))
    }
}

/// What the durations of the plan are in ticks of the run.
pub(super) struct SourceTimes {
    /// By [`Side::index`].
    disorder: [i64; 2],
    max_jump: Option<i64>,
}

impl SourceTimes {
    /// # Errors
    /// [`Failure::Usage`] names the option that does not fit the unit.
    pub(super) fn new(plan: &Plan, unit: TimeUnit) -> Result<SourceTimes, Failure> {
        let of = |side| ticks("--out-of-orderness", plan.side(side).disorder, unit);
        let disorder = [of(Side::Left)?, of(Side::Right)?];
        let max_jump = plan.max_jump.map(|span| ticks("--max-jump", span, unit)).transpose()?;
        Ok(SourceTimes { disorder, max_jump })
    }
}

/// Adds the inputs to an engine of `cores` cores: each file is a source, on which all cores work.
///
/// # Errors
/// [`Failure::Failed`] when a source cannot be added or its thread cannot be started.
pub(super) fn add(
    mut builder: EngineBuilder<NoSinks>,
    plan: &Plan,
    times: &SourceTimes,
    inputs: Inputs,
    lateness: Lateness,
    cores: usize,
    bad_rows: Option<BadRows>,
) -> Result<(EngineBuilder<NoSinks>, Feeds), Failure> {
    let unit = inputs.unit;
    let seed = std::hash::RandomState::new().build_hasher().finish();
    let hasher = KeyHasher::new(KeyKind::Bytes, seed);
    builder = builder.hash_seed(seed);
    let on_bad_row: Arc<dyn OnBadRow> = match bad_rows {
        Some(output) => Arc::new(Written(output)),
        None if plan.skip_bad_rows => Arc::new(SkipBadRows),
        None => Arc::new(FailOnBadRow),
    };
    let mut feeds = Feeds { sources: Vec::new(), bytes_total: Some(0) };
    for (side, input) in Side::BOTH.into_iter().zip(inputs.sides) {
        let side_plan = plan.side(side);
        let disorder = times.disorder[side.index()];
        for (file, number) in input.files.into_iter().zip(0..) {
            let slot =
                builder.source_slot(side).map_err(|error| Failure::failed(error.to_string()))?;
            let parser = BlockParser::new(
                Arc::clone(&input.schema),
                TimeParser::new(&side_plan.time_format, &plan.zone, unit),
                hasher.clone(),
                ParseOptions { side, source: number, with_position: plan.machine.deterministic },
            );
            let options = FileOptions {
                disorder,
                max_jump: times.max_jump,
                lateness,
                idle_timeout: plan.idle_timeout,
                threaded: file.bytes.is_none(),
            };
            let source = FileSource::new(
                &file.name,
                file.reader,
                parser,
                slot,
                Arc::clone(&on_bad_row),
                options,
            )
            .map_err(|error| Failure::failed(error.to_string()))?;
            // Feeds are dealt out in turn, so that each core gets as many.
            for _ in 0..cores * FEEDS_PER_CORE {
                builder = builder.feed(source.feed());
            }
            feeds.sources.push(source);
            feeds.bytes_total = feeds.bytes_total.zip(file.bytes).map(|(sum, bytes)| sum + bytes);
        }
    }
    Ok((builder, feeds))
}

/// Bad rows go to their output.
struct Written(BadRows);

impl OnBadRow for Written {
    fn bad_row(&self, source: &SourceInfo, row: &BadRow) -> Result<(), SourceError> {
        let column = row.column.and_then(|column| source.columns.get(column));
        let column = column.map_or("", String::as_str);
        let reason = row.why.to_string();
        self.0
            .write(source.side, &source.name, row.line, column, &reason, &row.text)
            .map_err(|error| SourceError { message: error.message })
    }
}
