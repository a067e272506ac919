//! Every capacity of the engine, with its reason. Nothing grows without one of these.

/// Longest key in bytes: its length is stored in two bytes before it.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Longest row in bytes: far over any sane record, small enough that a batch of a few fits memory.
pub const ROW_BYTES_MAX: usize = 64 << 20;

/// Events in a batch: enough to hide memory latency by prefetching a batch ahead, few enough that
/// the scratch space of a batch stays in the first-level cache.
pub const BATCH_EVENTS_MAX: usize = 256;

/// Row bytes at which an open batch is sent although it has room for more events: what two batches
/// in flight hold should fit a second-level cache.
pub const BATCH_ROW_BYTES_TARGET: usize = 256 << 10;

/// Row bytes that a spent batch may keep for its next use. More is freed, so that one huge row does
/// not pin its memory once for every batch in flight.
pub const BATCH_KEPT_ROW_BYTES_MAX: usize = 1 << 20;

/// The smallest piece of memory that a time bucket of state takes: sparse data has few rows in a
/// bucket, on every core.
pub const STATE_CHUNK_BYTES_MIN: u64 = 1 << 10;

/// The largest: what the handle of a run reaches.
pub const STATE_CHUNK_BYTES_MAX: u64 = 32 << 20;

/// A bound on state has room for so many chunks of the size that was asked for, or that size is
/// refused: every bucket of either side has one at least, on each core, and the events of one
/// batch, which goes in whole, may each make a bucket.
pub const STATE_CHUNKS_WITHIN_BOUND: u64 = 4 * BATCH_EVENTS_MAX as u64;

/// Batches that fit a lane. The ring of one lane is two pages of pointers at most.
pub const LANE_BATCHES_DEFAULT: usize = 64;

/// Batches of the largest lane: beyond this, waiting in lanes only adds latency.
pub const LANE_BATCHES_MAX: usize = 1 << 14;

/// Keys that are split over all shards at the same time: few are too much for one core, and every
/// producer looks through all of them.
pub const HOT_KEYS_MAX: usize = 16;

/// Every so-manieth event of a producer is a sample of its keys. A prime, so that input that comes
/// in turns is sampled evenly.
pub const HOT_SAMPLE_EVENTS: u32 = 61;

/// Samples of all producers that hot keys are found by: enough that a key of a few hundredths of
/// all events is told from chance, few enough that one is found after some ten thousand events.
pub const HOT_WINDOW_SAMPLES: usize = 1024;

/// Samples that a producer collects before it hands them over.
pub const HOT_SAMPLES_KEPT: usize = 32;

/// Rows of a split key that a producer sends to one shard before it goes on to the next: a run of
/// them is matched together.
pub const HOT_RUN_EVENTS: u32 = 16;

/// Files that a core has open at the most for one join whose rows are put into files: some of each
/// side, some of rows that wait for their turn, and those that are just made of others.
pub const SPILL_FILES_PER_CORE: usize = 76;

/// The files of rows that wait for their turn, of both sides together: few enough for the limits
/// that processes have, enough that each row is written anew a few times at the most.
pub const SPILL_SHELF_FILES: usize = 24;

/// Windows that one row can be in: each has a list of its own, so more would multiply state.
pub const WINDOWS_PER_ROW_MAX: i64 = 4096;

/// Shards of one engine: their number and their mesh of lanes (n * n) stay small.
pub const SHARD_COUNT_MAX: usize = 256;

/// Sources of one side: a watermark table is scanned whole by every shard at every step.
pub const SOURCE_COUNT_MAX: usize = 1024;

/// Bytes of a file that one core parses at a time: far over the cost of handing a block out, small
/// enough that it and the events made of it stay in a second-level cache.
pub const BLOCK_BYTES_DEFAULT: usize = 256 << 10;

/// Smallest block worth handing out.
pub const BLOCK_BYTES_MIN: usize = 16 << 10;

/// Bytes that all blocks at work should not exceed, however many files and cores there are.
pub const BLOCK_BYTES_TOTAL: usize = 64 << 20;

/// Events that a parser hands over at a time: enough that handing over costs nothing, few enough
/// that they are still in the first- or second-level cache when they are spread over the shards.
///
/// Somewhat less than two batches: of two shards one often gets a little more than half, which must
/// not make a batch of a few events.
pub const CHUNK_EVENTS_MAX: usize = 480;

/// Events of the first chunk of a file; each further one has twice as many, up to the most. So the
/// watermark of a small file moves, too, and files find out early how far they are apart.
pub const CHUNK_EVENTS_FIRST: usize = 16;

/// Rows that a source may always be ahead of the slowest one, however far that is in event time:
/// cores that push two sources then need not wait for each other at every chunk.
pub const ROWS_AHEAD_MAX: u64 = 4 * CHUNK_EVENTS_MAX as u64;

/// Bytes of batches that were sent and not yet joined, at which sources wait for the shards: what
/// shards take up in one go can be freed only afterwards, so it bounds what state has beyond need.
pub const IN_FLIGHT_BYTES_BASE: usize = 128 << 10;

/// The same, for each shard: some work for a core while others have their turn.
pub const IN_FLIGHT_BYTES_PER_SHARD: usize = 32 << 10;

/// Of a bound on state, one part in so many may be in flight.
pub const IN_FLIGHT_STATE_SHARE: i64 = 64;

/// Blocks of one file that may be worked on at the same time: every core of a large host can have
/// one, and a core that is held up on the oldest lets the others run ahead only so far.
pub const BLOCKS_AHEAD_MAX: usize = 64;

/// Blocks that a reading thread holds ready.
pub const READ_AHEAD_BLOCKS: usize = 4;

/// Row bytes at which a parser hands over fewer events.
pub const CHUNK_ROW_BYTES_TARGET: usize = 128 << 10;

const _: () = assert!(HOT_SAMPLES_KEPT <= HOT_WINDOW_SAMPLES);
const _: () = assert!(STATE_CHUNK_BYTES_MIN.is_power_of_two());
const _: () = assert!(STATE_CHUNK_BYTES_MAX.is_power_of_two());
const _: () = assert!(BATCH_EVENTS_MAX.is_power_of_two());
const _: () = assert!(LANE_BATCHES_DEFAULT.is_power_of_two());
const _: () = assert!(LANE_BATCHES_DEFAULT <= LANE_BATCHES_MAX);
const _: () = assert!(BATCH_ROW_BYTES_TARGET <= BATCH_KEPT_ROW_BYTES_MAX);
// A batch of the longest rows and keys must be addressable by its 32-bit row ends.
const _: () = assert!((ROW_BYTES_MAX + KEY_BYTES_MAX + 2) * 2 < u32::MAX as usize);

/// What one engine, or one [`Join`](crate::join::Join), may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of buffered state over all shards: index, arenas and pools as allocated. Reaching it
    /// gives backpressure or an error, never an out-of-memory kill. Where shards make room, what is
    /// under way may come on top for a moment: a batch a core, and what one batch of a stage of a
    /// chain finds.
    pub state_bytes_max: Option<u64>,
    /// Rows in buffered state over all shards, of both sides, those counted that are freed and
    /// whose bucket is not. Reaching it does what reaching the bound on bytes does; what is under
    /// way, a batch a core, may come on top.
    pub state_rows_max: Option<u64>,
    /// What becomes of rows when a bound comes near.
    pub overflow: Overflow,
}

/// What becomes of rows when state comes near its bound.
///
/// ```
/// use intervale::event::{Event, Key, Side};
/// use intervale::join::{Join, JoinSpec};
/// use intervale::limits::{Limits, Overflow};
/// use intervale::time::Bound;
///
/// let run = |overflow| {
///     let limits = Limits { state_rows_max: Some(100), overflow, ..Limits::UNBOUNDED };
///     let spec = JoinSpec::between(Bound::Closed(-500), Bound::Closed(500)).bucket_width(16);
///     let mut join = Join::new(spec.build(&limits)?, limits)?;
///     let mut pairs = 0;
///     let mut out = |_: Event<'_>, _: Event<'_>| pairs += 1;
///     for side in Side::BOTH {
///         (0..200).try_for_each(|ts| join.push(side, Key::Int(ts as u64), ts, b"row", &mut out))?;
///     }
///     join.finish(&mut out);
///     Ok::<u32, Box<dyn std::error::Error>>(pairs)
/// };
/// assert!(run(Overflow::Refuse).is_err(), "there is no room for 200 rows");
/// assert!(run(Overflow::Shed)? < 200, "those that were given up match nothing");
/// assert_eq!(run(Overflow::Spill)?, 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// They stay. Whoever pushes waits or is refused, and a join that needs more fails.
    #[default]
    Refuse,
    /// The oldest are given up, a time bucket at a time: those whose end is the next, of either
    /// side. They match nothing any more, and do not come out as unmatched either, because nobody
    /// knows whether they would have been matched: they are counted
    /// ([`SideCounters::shed`](crate::join::SideCounters::shed)). Events of times that were shed
    /// are joined as ever with what there is. For interval joins of all matches: where one match is
    /// chosen, another would take the place of one that was given up, and rows of a window have
    /// their turn at its end, so that results would be wrong and not merely fewer.
    Shed,
    /// The oldest go into files, in the folder that
    /// [`JoinSpecBuilder::spill_to`](crate::join::JoinSpecBuilder::spill_to) names, and are read
    /// back when events look for them: results are the same, and take longer. Pages are found by
    /// what stays in memory of each row, some bits, and no more than a bound has room for. The
    /// files have no names, so nothing of them is left, however the process ends. Rows that wait
    /// for their end stand in them a second time, in the order in which they come out.
    ///
    /// It goes with every join of two streams. Where one match is chosen, the bytes of rows that
    /// wait for theirs go as well, and what says which match is best so far stays in memory. All
    /// rows of windows go at once, and each window's are read back when it ends; what stays is the
    /// window itself, some 500 bytes. A window has to fit memory, for its pairs come out together.
    ///
    /// ```
    /// use intervale::event::{BatchKind, Event, EventBatch, Key, KeyHasher, KeyKind, Side};
    /// use intervale::join::{JoinSpec, Window, WindowJoin};
    /// use intervale::limits::{Limits, Overflow};
    /// use intervale::time::Timestamp;
    ///
    /// let overflow = Overflow::Spill;
    /// let limits = Limits { state_rows_max: Some(20), overflow, ..Limits::UNBOUNDED };
    /// let spec = JoinSpec::window(Window::tumbling(1_000)).build(&limits)?;
    /// let hasher = KeyHasher::random(KeyKind::Int);
    /// let mut join = WindowJoin::new(spec, hasher.clone(), limits)?;
    /// let mut pairs = 0;
    /// let mut out = |_: Event<'_>, _: Event<'_>| pairs += 1;
    /// for ts in 0..200 {
    ///     let mut batch = EventBatch::default();
    ///     batch.reset(Side::BOTH[ts as usize % 2], 0, BatchKind::Keyed);
    ///     batch.push(&hasher, Key::Int(7), Timestamp::new(ts).ok_or("no time")?, b"row")?;
    ///     join.on_batch(&batch, &mut out)?;
    /// }
    /// assert!(join.rows_in_memory() <= 20);
    /// join.advance(1_000, 1_000);
    /// while join.work(1_024, &mut out) {}
    /// assert_eq!(pairs, 100 * 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Each core has up to [`SPILL_FILES_PER_CORE`] files open for each join: a process of many
    /// cores raises its limit on them (`ulimit -n`, `setrlimit`) first. Under a limit on the size
    /// of files (`ulimit -f`) the system ends a process that passes it, with SIGXFSZ; one that
    /// ignores that signal gets an error, which ends the join. The command line does both.
    Spill,
}

impl Limits {
    /// No bounds on state. An interval without an end is refused under these limits.
    pub const UNBOUNDED: Limits =
        Limits { state_bytes_max: None, state_rows_max: None, overflow: Overflow::Refuse };

    /// Whether state has a bound of some kind.
    pub fn bound_state(&self) -> bool {
        self.state_bytes_max.is_some() || self.state_rows_max.is_some()
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::UNBOUNDED
    }
}
