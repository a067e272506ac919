//! Joined rows: what several streams have put together.

use crate::event::{Event, Key, Side};

/// One of the streams of a chain, by its place: the left one, the right one, then the right one of
/// each further stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(usize);

impl Stream {
    /// The left input of the first stage.
    pub const LEFT: Stream = Stream(0);
    /// The right input of the first stage.
    pub const RIGHT: Stream = Stream(1);

    /// The right input of the `number`th stage behind the first one, counted from 1; 0 is
    /// [`RIGHT`](Self::RIGHT).
    pub const fn then(number: usize) -> Stream {
        Stream(number + 1)
    }

    /// 0 for the left one, 1 for the right one, 2 and on for those behind.
    pub const fn index(self) -> usize {
        self.0
    }

    /// The stream of that index.
    pub const fn of_index(index: usize) -> Stream {
        Stream(index)
    }

    /// The stage whose input it is: both of the first stage are of stage 0.
    pub const fn stage(self) -> usize {
        self.0.saturating_sub(1)
    }
}

/// What one stream has put into a joined row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The event's time, in ticks.
    pub ts: i64,
    /// The caller's bytes, as they were pushed.
    pub row: &'a [u8],
}

/// A row of several streams; one that found no partner in an outer join lacks the parts of those it
/// was not joined with. It is borrowed for a call.
#[derive(Clone, Copy, Debug)]
pub struct JoinedRow<'a> {
    before: Before<'a>,
    newest: Option<Part<'a>>,
    /// The time at which it came out, where that is later than its parts'.
    reached: i64,
    /// See [`is_behind`](Self::is_behind).
    is_behind: bool,
}

/// All streams but the newest.
#[derive(Clone, Copy, Debug)]
enum Before<'a> {
    /// The left row of the first stage.
    First(Part<'a>),
    /// What earlier stages have joined: times, ends of the rows, rows.
    Packed { bytes: &'a [u8], streams: usize },
    /// Nothing: the newest found no partner in a right or full join.
    Nothing { streams: usize },
}

/// A time and an end of a packed row.
const TIME_BYTES: usize = size_of::<i64>();
const END_BYTES: usize = size_of::<u32>();

/// The last byte of a packed row that came out behind its time.
const BEHIND: u8 = 1;

/// Stands in a packed row for the time of a stream that has no part: it is no event's time.
const NO_TIME: i64 = i64::MIN;

impl<'a> JoinedRow<'a> {
    /// What a stage has before it gives it out, whose left rows are of so many streams: one in the
    /// first stage, two in the second. For the [`Condition`](crate::join::Condition) of a stage,
    /// whose left events are rows that were joined before.
    pub fn new(streams: usize, left: Event<'a>, right: Option<Event<'a>>) -> JoinedRow<'a> {
        let part = |event: Event<'a>| Part { ts: event.ts, row: event.row };
        let before = match streams {
            1 => Before::First(part(left)),
            _ => Before::Packed { bytes: left.row, streams },
        };
        let is_behind = streams > 1 && left.row.last() == Some(&BEHIND);
        JoinedRow { before, newest: right.map(part), reached: left.ts, is_behind }
    }

    /// A row of either side of a stage that comes out by itself.
    pub(super) fn single(streams: usize, side: Side, event: Event<'a>) -> JoinedRow<'a> {
        match side {
            Side::Left => JoinedRow::new(streams, event, None),
            Side::Right => JoinedRow {
                before: Before::Nothing { streams },
                newest: Some(Part { ts: event.ts, row: event.row }),
                reached: event.ts,
                is_behind: false,
            },
        }
    }

    /// The same row, which came out at this time.
    pub(super) fn at(self, ts: i64) -> JoinedRow<'a> {
        JoinedRow { reached: ts, ..self }
    }

    /// The same row, which came out when this time was reached and its own had passed.
    pub(super) fn behind(self, ts: i64) -> JoinedRow<'a> {
        JoinedRow { reached: ts, is_behind: true, ..self }
    }

    /// Whether it came out behind its time: it was a row without a key, which is never late. Later
    /// stages may have freed whom it would meet there, so it meets nobody.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    fn parts_ts(&self) -> i64 {
        self.parts().flatten().map(|part| part.ts).max().unwrap_or(NO_TIME)
    }

    /// How many streams it is of, those included that lack their part.
    pub fn streams(&self) -> usize {
        match self.before {
            Before::First(_) => 2,
            Before::Packed { streams, .. } | Before::Nothing { streams } => streams + 1,
        }
    }

    /// What a stream has put into it; `None` where it found no partner, and for streams that come
    /// later in the chain.
    #[inline]
    pub fn part(&self, stream: Stream) -> Option<Part<'a>> {
        match self.before {
            _ if stream.index() + 1 == self.streams() => self.newest,
            Before::First(part) => (stream == Stream::LEFT).then_some(part),
            Before::Packed { bytes, streams } => packed_part(bytes, streams, stream.index()),
            Before::Nothing { .. } => None,
        }
    }

    /// Its parts, those that are missing included, in the order of the streams.
    pub fn parts(&self) -> impl Iterator<Item = Option<Part<'a>>> {
        let row = *self;
        (0..self.streams()).map(move |index| row.part(Stream(index)))
    }

    /// Its output time: the largest of its parts', or what is later: the last tick of the window
    /// that it came out of, the time that was reached when it came out without a key and late.
    pub fn ts(&self) -> i64 {
        self.parts_ts().max(self.reached)
    }

    /// Appends it as the left row of the next stage; `None` when it is too long for that.
    pub(super) fn pack(&self, out: &mut Vec<u8>) -> Option<()> {
        for part in self.parts() {
            out.extend_from_slice(&part.map_or(NO_TIME, |part| part.ts).to_le_bytes());
        }
        let mut end = 0_u32;
        for part in self.parts() {
            let bytes = u32::try_from(part.map_or(0, |part| part.row.len())).ok()?;
            end = end.checked_add(bytes)?;
            out.extend_from_slice(&end.to_le_bytes());
        }
        self.parts().flatten().for_each(|part| out.extend_from_slice(part.row));
        out.push(if self.is_behind { BEHIND } else { 0 });
        Some(())
    }
}

fn packed_part(bytes: &[u8], streams: usize, index: usize) -> Option<Part<'_>> {
    if index >= streams {
        return None;
    }
    let (times, rest) = bytes.split_at_checked(streams * TIME_BYTES)?;
    let (ends, rows) = rest.split_at_checked(streams * END_BYTES)?;
    let ts = i64::from_le_bytes(*times[index * TIME_BYTES..].first_chunk()?);
    if ts == NO_TIME {
        return None;
    }
    let end = |index: usize| {
        let end = ends[index * END_BYTES..].first_chunk()?;
        Some(u32::from_le_bytes(*end) as usize)
    };
    let start = if index == 0 { 0 } else { end(index - 1)? };
    Some(Part { ts, row: rows.get(start..end(index)?)? })
}

/// A key that outlives its event.
#[derive(Clone, Debug)]
pub(super) enum KeptKey {
    Null,
    Int(u64),
    Bytes(Box<[u8]>),
}

impl KeptKey {
    pub(super) fn new(key: Key<'_>) -> KeptKey {
        match key {
            Key::Null => KeptKey::Null,
            Key::Int(key) => KeptKey::Int(key),
            Key::Bytes(key) => KeptKey::Bytes(key.into()),
        }
    }

    pub(super) fn key(&self) -> Key<'_> {
        match self {
            KeptKey::Null => Key::Null,
            KeptKey::Int(key) => Key::Int(*key),
            KeptKey::Bytes(key) => Key::Bytes(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(ts: i64, row: &[u8]) -> Event<'_> {
        Event { key: Key::Null, ts, row }
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            parts in prop::collection::vec(
                prop::option::of((-9_i64..i64::MAX, prop::collection::vec(any::<u8>(), 0..5))),
                1..6,
            ),
        ) {
            let mut packed = b"first".to_vec();
            let mut expected = vec![Some((7, b"first".to_vec()))];
            for part in parts {
                let right = part.as_ref().map(|(ts, row)| event(*ts, row));
                let joined = JoinedRow::new(expected.len(), event(7, &packed), right);
                expected.push(part.clone());
                let owned = |part: Part<'_>| (part.ts, part.row.to_vec());
                let found: Vec<_> = joined.parts().map(|part| part.map(owned)).collect();
                prop_assert_eq!(&found, &expected);
                let times = expected.iter().flatten().map(|part| part.0);
                prop_assert_eq!(Some(joined.ts()), times.max());
                prop_assert_eq!(joined.part(Stream(expected.len())), None);
                let mut next = Vec::new();
                prop_assert_eq!(joined.pack(&mut next), Some(()));
                packed = next;
            }
        }
    }

    #[test]
    fn streams_are_counted_through_the_chain() {
        assert_eq!([Stream::LEFT, Stream::RIGHT, Stream::then(1)].map(Stream::index), [0, 1, 2]);
        assert_eq!([Stream::LEFT, Stream::RIGHT, Stream::then(1)].map(Stream::stage), [0, 0, 1]);
        assert_eq!(Stream::then(0), Stream::RIGHT);
    }
}
