//! State under layouts and data that make very many buckets: it makes do with fewer, and finds all.

use std::sync::Arc;
use std::time::Duration;

use intervale::error::SpecError;
use intervale::join::{JoinKind, JoinSpec};
use intervale::limits::{Limits, STATE_CHUNK_BYTES_MAX};
use intervale::state::Simd;
use intervale::time::Bound;
use intervale::workload::{
    Bounds, Events, Form, KeyRule, LayoutHints, SingleJoin, StepClock, Workload, drive, offline,
};

const BATCH: usize = 256;

/// Joins and compares; returns the most bytes that were in state.
fn joined(workload: Workload, events_per_side: u32, layouts: &[LayoutHints]) -> Vec<u64> {
    let events = Arc::new(Events::new(workload, 42, events_per_side));
    let form = Form::default();
    let plain = form.spec(&workload, JoinKind::Inner).expect("a good spec");
    let expected = offline(&events, &plain).outcome;
    assert!(expected.pairs > 0);
    let peak = |layout: &LayoutHints| {
        let spec = form.spec_within(&workload, JoinKind::Inner, *layout, &Bounds::default());
        let spec = spec.expect("a good spec");
        let mut join = SingleJoin::new(spec, Simd::detect()).expect("an interval join");
        let measured = drive(&mut join, &events, BATCH, StepClock::Wall)
            .unwrap_or_else(|error| panic!("{layout:?}: {error}"));
        assert_eq!(measured.outcome, expected, "{layout:?}");
        measured.peak.bytes
    };
    layouts.iter().map(peak).collect()
}

fn width(bucket_width: Duration) -> LayoutHints {
    LayoutHints { bucket_width: Some(bucket_width), ..LayoutHints::default() }
}

/// A minute of disorder beside an interval of 10 ms: there would be 60,000 buckets of the width
/// that goes with the interval.
#[test]
fn disorder_far_beyond_the_interval_has_room() {
    let workload = Workload {
        keys: KeyRule::Uniform(100),
        rate: 50_000,
        between: (0, 10),
        disorder_ms: 60_000,
        ..Workload::FREE
    };
    joined(workload, 800_000, &[LayoutHints::default()]);
}

/// Long runs over twenty seconds, in buckets much too narrow for them.
#[test]
fn buckets_that_are_given_too_narrow_are_made_wider() {
    let w4 = Workload::by_name("w4").expect("there is one");
    let workload = Workload { between: (-20_000, -19_990), ..w4 };
    let ms = Duration::from_millis;
    joined(workload, 600_000, &[width(ms(1)), width(ms(64)), width(ms(256))]);
}

/// What is given is what there is, where nothing speaks against it: rows stay as long as their
/// bucket does.
#[test]
fn wide_buckets_keep_rows_and_large_chunks_take_memory() {
    let workload = Workload::by_name("w2").expect("there is one");
    let chunk = |bytes| LayoutHints { chunk_bytes: Some(bytes), ..LayoutHints::default() };
    let (narrow, wide) = (width(Duration::from_secs(1)), width(Duration::from_secs(64)));
    let layouts = [narrow, wide, LayoutHints::default(), chunk(16 << 20)];
    let peaks = joined(workload, 200_000, &layouts);
    assert!(peaks[1] > 2 * peaks[0], "{peaks:?}");
    assert!(peaks[3] > 2 * (16 << 20) && peaks[3] > 2 * peaks[2], "{peaks:?}");
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let spec = || JoinSpec::between(Bound::Closed(0), Bound::Closed(10));
    let bounded = |bytes| Limits { state_bytes_max: Some(bytes), ..Limits::UNBOUNDED };
    for ticks in [0, -1, i64::MIN] {
        let error = spec().bucket_width(ticks).build(&Limits::UNBOUNDED).unwrap_err();
        assert_eq!(error, SpecError::BucketWidth(ticks));
        assert!(error.to_string().contains("1 or more"), "{error}");
    }
    for (bytes, bytes_max, limits) in [
        (0, STATE_CHUNK_BYTES_MAX, Limits::UNBOUNDED),
        (1023, STATE_CHUNK_BYTES_MAX, Limits::UNBOUNDED),
        (STATE_CHUNK_BYTES_MAX + 1, STATE_CHUNK_BYTES_MAX, Limits::UNBOUNDED),
        (1 << 20, 512 << 10, bounded(1 << 29)),
        (64 << 10, 32 << 10, bounded((64 << 20) - 1024)),
        (2048, 1024, bounded(1)),
    ] {
        let error = spec().chunk_bytes(bytes).build(&limits).unwrap_err();
        assert_eq!(error, SpecError::ChunkBytes { bytes, bytes_max });
        assert!(error.to_string().contains(&format!("1024 to {bytes_max}")), "{error}");
        let good = spec().chunk_bytes(bytes_max).bucket_width(i64::MAX).build(&limits).unwrap();
        assert_eq!((good.chunk_bytes(), good.bucket_width()), (Some(bytes_max), Some(i64::MAX)));
    }
}
