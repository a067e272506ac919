//! Joins event streams by key and time interval: one host, one thread a core, sharing nothing.

#![warn(missing_docs)]

pub mod engine;
pub mod error;
pub mod event;
pub mod exchange;
pub mod join;
pub mod limits;
pub mod runtime;
pub mod shard;
#[cfg(feature = "cli")]
pub mod source;
pub mod state;
pub mod time;

#[cfg(feature = "cli")]
pub mod sink;

#[cfg(feature = "cli")]
pub mod cli;
pub mod workload;

/// The library example of the README is compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
