//! Time to live: rows that end a while after they were stored, by the clock on the wall.

use std::time::Duration;

/// Of the time to live, so much is the time that rows are stored in as one: they end that much
/// later at the most.
const GRANULES: u64 = 8;

/// When rows end by the clock, whose times come from outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ttl {
    ttl_ns: u64,
    granule_ns: u64,
    /// Rows are taken as one since then.
    since_ns: Option<u64>,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Rows up to now were stored before this time.
    pub(super) close_ns: Option<u64>,
    /// Rows that were stored up to this time end.
    pub(super) end_ns: Option<u64>,
}

impl Ttl {
    pub(super) fn new(ttl: Duration) -> Ttl {
        let ttl_ns = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX).max(1);
        Ttl { ttl_ns, granule_ns: (ttl_ns / GRANULES).max(1), since_ns: None }
    }

    /// What the time calls for.
    #[inline]
    pub(super) fn due(&mut self, now_ns: u64) -> Due {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let closes = now_ns.saturating_sub(since_ns) >= self.granule_ns;
        if closes {
            self.since_ns = Some(now_ns);
        }
        Due { close_ns: closes.then_some(now_ns), end_ns: now_ns.checked_sub(self.ttl_ns) }
    }

    /// When something is due next, given when the oldest rows that were closed off were stored.
    pub(super) fn next_ns(&self, oldest_closed_ns: Option<u64>) -> u64 {
        let close_ns = self.since_ns.map_or(0, |since| since.saturating_add(self.granule_ns));
        let end_ns = oldest_closed_ns.map_or(u64::MAX, |oldest| oldest.saturating_add(self.ttl_ns));
        close_ns.min(end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_after_their_time_and_an_eighth_of_it_at_the_most() {
        let mut ttl = Ttl::new(Duration::from_nanos(800));
        assert_eq!(ttl.next_ns(None), 0, "it is to be told the time");
        assert_eq!(ttl.due(1_000), Due { close_ns: None, end_ns: Some(200) });
        assert_eq!(ttl.due(1_099), Due { close_ns: None, end_ns: Some(299) });
        assert_eq!(ttl.next_ns(Some(300)), 1_100);
        assert_eq!(ttl.due(1_100), Due { close_ns: Some(1_100), end_ns: Some(300) });
        assert_eq!(ttl.due(1_150), Due { close_ns: None, end_ns: Some(350) });
        assert_eq!((ttl.next_ns(Some(390)), ttl.next_ns(None)), (1_190, 1_200));
        assert_eq!(Ttl::new(Duration::MAX).due(5), Due { close_ns: None, end_ns: None });
        let mut least = Ttl::new(Duration::ZERO);
        assert_eq!((least.due(5).close_ns, least.due(6).close_ns), (None, Some(6)));
    }
}
