//! `--bucket-width`, `--chunk` and `--reserve`: how a join lays out its state.

use std::fmt;
use std::time::Duration;

use crate::cli::join::{memory_bytes, parse_size, show_size};
use crate::limits::{STATE_CHUNK_BYTES_MAX, STATE_CHUNK_BYTES_MIN};
use crate::time::text::TimeSpan;
use crate::workload::LayoutHints;

/// The value that leaves it to the library.
pub(super) const AUTO: &str = "auto";

/// Options of commands that run one join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub(super) struct LayoutArgs {
    /// How wide the time buckets are in which rows are kept and freed (auto: by the interval and by
    /// what is seen of the rows); --window has none
    #[arg(
        long, value_name = "DURATION", default_value = AUTO, value_parser = bucket_width,
        allow_hyphen_values = true
    )]
    pub(super) bucket_width: BucketWidth,
    /// The smallest piece of memory that a bucket takes, 1KiB to 32MiB (auto: 1KiB, and larger
    /// where buckets were so); --window has none. Both are those of every stage of a chain
    #[arg(long, value_name = "SIZE", default_value = AUTO, value_parser = chunk)]
    pub(super) chunk: ChunkSize,
    /// Memory that each core takes and touches before the first row: state that stays within it
    /// never waits for the system to find a page. Stages of a chain share it; --window has none
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = reserve)]
    pub(super) reserve: u64,
}

impl LayoutArgs {
    pub(super) fn hints(self) -> LayoutHints {
        LayoutHints {
            bucket_width: self.bucket_width.wall(),
            chunk_bytes: self.chunk.0,
            reserve_bytes: self.reserve,
        }
    }
}

/// A width of time buckets, or what the library chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketWidth(Option<TimeSpan>);

impl BucketWidth {
    pub(super) fn wall(self) -> Option<Duration> {
        // It was one when it was read.
        self.0.and_then(|span| span.to_wall().ok())
    }
}

impl fmt::Display for BucketWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str(AUTO),
            Some(span) => span.fmt(f),
        }
    }
}

/// Bytes of the smallest chunk, or what the library chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkSize(pub(super) Option<u64>);

/// For clap, and for profiles.
///
/// # Errors
/// A sentence that says what to give instead.
pub(super) fn bucket_width(text: &str) -> Result<BucketWidth, String> {
    if text == AUTO {
        return Ok(BucketWidth(None));
    }
    let span: TimeSpan = text.parse().map_err(|error| format!("{error}, or {AUTO}"))?;
    match span.to_wall() {
        Ok(Duration::ZERO) => Err(format!("give more than 0, or {AUTO}")),
        Ok(_) => Ok(BucketWidth(Some(span))),
        Err(error) => Err(error.to_string()),
    }
}

/// For clap, and for profiles.
///
/// # Errors
/// A sentence that says what to give instead.
pub(super) fn chunk(text: &str) -> Result<ChunkSize, String> {
    if text == AUTO {
        return Ok(ChunkSize(None));
    }
    let bytes = parse_size(text).ok();
    let good =
        bytes.filter(|bytes| (STATE_CHUNK_BYTES_MIN..=STATE_CHUNK_BYTES_MAX).contains(bytes));
    match good {
        Some(bytes) => Ok(ChunkSize(Some(bytes))),
        None => Err(format!("give a size from 1KiB to 32MiB, or {AUTO}")),
    }
}

/// For clap, and for profiles.
///
/// # Errors
/// A sentence that says what to give instead.
pub(super) fn reserve(text: &str) -> Result<u64, String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    reserve_within(text, memory_bytes() / 2 / cpus)
}

fn reserve_within(text: &str, bytes_max: u64) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    match parse_size(text).map_err(|error| error.to_string())? {
        bytes if bytes <= bytes_max => Ok(bytes),
        _ => Err(format!(
            "each core would take that much; give at most {}, its part of half of the memory here",
            show_size(bytes_max)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_and_sizes_are_read_and_refused() {
        assert_eq!(bucket_width("auto"), Ok(BucketWidth(None)));
        let width = bucket_width("1m30s").unwrap();
        assert_eq!(
            (width.wall(), width.to_string()),
            (Some(Duration::from_secs(90)), "1m30s".into())
        );
        assert_eq!(chunk("auto"), Ok(ChunkSize(None)));
        assert_eq!(chunk("64k"), Ok(ChunkSize(Some(65_536))));
        assert_eq!(chunk("32MiB"), Ok(ChunkSize(Some(STATE_CHUNK_BYTES_MAX))));
        assert_eq!(reserve("0"), Ok(0));
        assert_eq!(reserve_within("64MiB", 64 << 20), Ok(64 << 20));
        assert!(reserve_within("64MiB", (64 << 20) - 1).unwrap_err().contains("give at most"));
        assert!(reserve_within("lots", u64::MAX).is_err());
        for wrong in ["", "0", "-1s", "5", "9999999w", "Auto"] {
            assert!(bucket_width(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "1023", "33MiB", "lots", "-1k"] {
            let error = chunk(wrong).unwrap_err();
            assert!(error.contains("1KiB to 32MiB"), "{wrong}: {error}");
        }
    }
}
