//! Intervale joins event streams by key and time interval: on one host, one thread a core, sharing
//! nothing.
//!
//! A pair comes out when `left.key == right.key` and
//! `left.ts + LO <= right.ts <= left.ts + HI`, the moment the second of the two events arrives.
//! Events may come out of order, within what their sources promise by *watermarks*; an event is
//! forgotten as soon as no future event can match it.
//!
//! # A first join
//!
//! ```
//! use intervale::event::{Event, Key, Side};
//! use intervale::join::{Join, JoinSpec};
//! use intervale::limits::Limits;
//! use intervale::time::Bound;
//!
//! // Payments up to five minutes after their order, in milliseconds.
//! let limits = Limits::default();
//! let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(300_000)).build(&limits)?;
//! let mut join = Join::new(spec, limits)?;
//! let mut pairs = 0;
//! let mut out = |_order: Event<'_>, _payment: Event<'_>| pairs += 1;
//! join.push(Side::Left, Key::Int(7), 1_000, b"order 7", &mut out)?;
//! join.push(Side::Right, Key::Int(7), 200_000, b"paid 7", &mut out)?;
//! assert_eq!(pairs, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Three ways in
//!
//! * [`join::Join`]: in the caller's own thread and loop, as above.
//! * [`engine::Engine`]: shards on pinned cores, fed by handles from any thread, results to a sink
//!   a core; [`engine::Chain`] joins more than two streams on them.
//! * the command line: `intervale join` over files; see the README.
//!
//! # The house, from the ground up
//!
//! A module uses only what stands below it; `tests/tidy.rs` holds the table and checks it.
//!
//! | level | room | what lives there |
//! | --- | --- | --- |
//! | 0 | [`limits`], [`error`] | every capacity with its reason; the errors |
//! | 0 | [`time`] | instants, intervals, watermarks, lateness |
//! | 0 | [`event`] | keys, and batches of events in columns |
//! | 1 | [`state`] | buffered events: insert, probe, retire |
//! | 2 | [`join`] | what matches and comes out; the operator; [`join::oracle`], its reference |
//! | 3 | [`exchange`] | lanes between cores, partitioning, the table of watermarks |
//! | 4 | [`shard`] | one core's state machine: no IO, no clock, no thread |
//! | 5 | [`runtime`] | what drives it: pinned threads, io_uring executors, a seeded simulation |
//! | 5 | `source` | bytes to batches, one file a format (feature `cli`) |
//! | 6 | `expr` | conditions and columns as users write them, evaluated on rows (feature `cli`) |
//! | 6 | [`engine`] | spec, sources and sinks to a running engine |
//! | 7 | `sink` | rows of a source to bytes of an output (feature `cli`) |
//! | 7 | [`workload`] | reproducible events, the roofline kernel, measuring |
//! | 8 | `cli` | what the user typed to what it resolves to (feature `cli`) |
//!
//! To read the code, follow one event: [`event::EventBatch::push`] gives its key a 64-bit value,
//! [`exchange::Producer`] sends it to its shard, [`shard::Shard::step`] takes it out of a lane,
//! [`join::IntervalJoin::on_batch`] judges it, [`state::State::join_batch`] finds its partners and
//! keeps it, and [`join::Emit`] gets the pairs.
//!
//! # What is deliberately absent
//!
//! * No lock, no thread, no clock and no IO below the runtime: a join can be replayed from a seed.
//! * No pass over all state: retiring a bucket is O(1), the index grows a few lines with every
//!   batch, dead entries are taken over by the next insert that wants their place.
//! * No parsing of rows: they are opaque bytes, the hot path sees keys and times only.
//! * No silent loss: late, bad and keyless events are counted, and the counts are checked.
//!
//! # Features
//!
//! `cli` (default) adds the command line and file formats, `glommio` (default, Linux) the io_uring
//! driver, `mimalloc` (default) the binary's allocator. Features never change results; the library
//! without them stays lean.

#![warn(missing_docs)]

pub mod error;
pub mod limits;
mod spill;
pub mod time;

pub mod event;

pub mod state;

pub mod join;

pub mod exchange;

pub mod shard;

#[cfg(feature = "cli")]
pub mod expr;
pub mod runtime;
#[cfg(feature = "cli")]
pub mod sink;
#[cfg(feature = "cli")]
pub mod source;

pub mod engine;

pub mod workload;

#[cfg(feature = "cli")]
pub mod cli;

/// The library example of the README is compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
