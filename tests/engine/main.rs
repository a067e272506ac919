//! The engine as a user meets it: both runtimes, 1, 2 and 8 shards, barriers, faults, ends.

mod chain;
mod ends;
mod faults;
mod joins;
mod process;
mod room;
mod rules;
mod support;
