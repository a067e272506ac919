//! Durations and times as people write them.
