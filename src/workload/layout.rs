//! What a user may choose of how a join lays out its state.

use std::time::Duration;

use crate::join::JoinSpecBuilder;

/// How state is to be laid out; what is `None` is left to the library. It never changes results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayoutHints {
    /// The width of time buckets; see [`JoinSpecBuilder::bucket_width`].
    pub bucket_width: Option<Duration>,
    /// Bytes of the smallest chunk; see [`JoinSpecBuilder::chunk_bytes`].
    pub chunk_bytes: Option<u64>,
    /// Bytes that each core takes before the first row; see [`JoinSpecBuilder::reserve_bytes`].
    pub reserve_bytes: u64,
}

impl LayoutHints {
    /// Adds them to a spec whose times are in so many ticks a millisecond. A width under a tick is
    /// one.
    pub fn add_to(self, spec: JoinSpecBuilder, ticks_per_ms: i64) -> JoinSpecBuilder {
        let spec = match self.bucket_width {
            None => spec,
            Some(width) => {
                let ticks = width.as_nanos() * u128::from(ticks_per_ms.unsigned_abs()) / 1_000_000;
                spec.bucket_width(i64::try_from(ticks).unwrap_or(i64::MAX).max(1))
            }
        };
        let spec = spec.reserve_bytes(self.reserve_bytes);
        match self.chunk_bytes {
            Some(bytes) => spec.chunk_bytes(bytes),
            None => spec,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::JoinKind;
    use crate::limits::Limits;
    use crate::workload::Workload;

    #[test]
    fn a_width_is_turned_into_ticks() {
        let workload = Workload::by_name("w2").expect("there is one");
        let width = |width, ticks_per_ms| {
            let hints = LayoutHints {
                bucket_width: Some(width),
                chunk_bytes: Some(4096),
                reserve_bytes: 1,
            };
            let spec = hints.add_to(workload.spec(JoinKind::Inner), ticks_per_ms);
            let spec = spec.build(&Limits::UNBOUNDED).expect("a good spec");
            assert_eq!((spec.chunk_bytes(), spec.reserve_bytes()), (Some(4096), 1));
            spec.bucket_width()
        };
        assert_eq!(width(Duration::from_millis(1_500), 1), Some(1_500));
        assert_eq!(width(Duration::from_micros(1_500), 1_000), Some(1_500));
        assert_eq!(width(Duration::from_nanos(1), 1), Some(1));
        assert_eq!(width(Duration::MAX, 1 << 21), Some(i64::MAX));
        let plain = LayoutHints::default().add_to(workload.spec(JoinKind::Inner), 1);
        let plain = plain.build(&Limits::UNBOUNDED).expect("a good spec");
        assert_eq!((plain.bucket_width(), plain.chunk_bytes()), (None, None));
    }
}
