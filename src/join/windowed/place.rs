//! Which window a row goes to: windows are opened, sessions grow and become one.

use std::cmp::Reverse;

use super::rows::KeyRef;
use super::{Live, Member, Turn, WindowJoin};
use crate::event::Side;
use crate::join::window::{Span, Window};

/// An event on its way into its windows.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    pub(super) side: Side,
    pub(super) ts: i64,
    pub(super) key: KeyRef<'a>,
    pub(super) row: u32,
}

impl WindowJoin {
    /// Adds a row to the window of its key with this very span, which is made if need be.
    pub(super) fn join_window(&mut self, span: Span, arrived: Arrived<'_>) -> u64 {
        let listed = self.keys.get(&arrived.key);
        let place = listed.map(|list| list.binary_search_by_key(&span.start, |(start, _)| *start));
        if let (Some(list), Some(Ok(at))) = (listed, place) {
            let window = list[at].1;
            self.add(window, arrived);
            return window;
        }
        self.open(span, arrived)
    }

    /// Adds a row to the session of its key that it is near to; sessions that it connects become
    /// one.
    pub(super) fn join_session(&mut self, span: Span, arrived: Arrived<'_>) -> u64 {
        let list = self.keys.get(&arrived.key).map_or(&[][..], |list| &list[..]);
        let meets = |&&(start, window): &&(i128, u64)| {
            let end = self.windows.get(&window).map_or(start, |live| live.span.end);
            start < span.end && span.start < end
        };
        let met: Vec<u64> = list.iter().filter(meets).map(|(_, window)| *window).collect();
        let Some((&window, others)) = met.split_first() else { return self.open(span, arrived) };
        let others: Vec<Live> =
            others.iter().filter_map(|&other| self.remove(other, Some(arrived.key))).collect();
        if let Some(live) = self.windows.get_mut(&window) {
            let (before, since) = (live.span, live.since);
            let bytes = live.member_bytes();
            for other in others {
                live.arrival = live.arrival.min(other.arrival);
                live.since = live.since.min(other.since);
                live.span.end = live.span.end.max(other.span.end);
                live.parts.extend(other.parts);
                for (members, more) in live.members.iter_mut().zip(other.members) {
                    members.extend(more);
                    members.sort_by_key(|member| self.rows.arrival(member.row));
                }
            }
            live.since = live.since.min(arrived.ts);
            live.span.start = live.span.start.min(span.start);
            live.span.end = live.span.end.max(span.end);
            self.member_bytes += live.member_bytes() - bytes;
            let (after, now_since) = (live.span, live.since);
            if before.end != after.end {
                // It fires again, for those that have not met.
                live.is_fired = false;
            }
            if since != now_since {
                self.count_since(since, false);
                self.count_since(now_since, true);
            }
            if before != after {
                self.moved(window, before, after, arrived);
            }
        }
        self.add(window, arrived);
        window
    }

    /// A session has another start or end than before.
    fn moved(&mut self, window: u64, before: Span, after: Span, arrived: Arrived<'_>) {
        if before.start != after.start
            && let Some(list) = self.keys.get_mut(&arrived.key)
            && let Some(entry) = list.iter_mut().find(|(_, other)| *other == window)
        {
            entry.0 = after.start;
        }
        self.schedule(window);
    }

    fn open(&mut self, span: Span, arrived: Arrived<'_>) -> u64 {
        self.next_window += 1;
        let window = self.next_window;
        let arrival = self.rows.arrival(arrived.row);
        let key = arrived.key.value;
        let members = Default::default();
        let since = arrived.ts;
        let parts = Vec::new();
        let live = Live { span, since, arrival, key, members, parts, is_fired: false };
        self.windows.insert(window, live);
        let list = match self.keys.get_mut(&arrived.key) {
            Some(list) => list,
            None => self.keys.entry(arrived.key.to_owned()).or_default(),
        };
        let at = list.partition_point(|(start, _)| *start < span.start);
        list.insert(at, (span.start, window));
        self.count_since(since, true);
        self.schedule(window);
        self.add(window, arrived);
        window
    }

    fn add(&mut self, window: u64, arrived: Arrived<'_>) {
        let Some(live) = self.windows.get_mut(&window) else { return };
        let members = &mut live.members[arrived.side.index()];
        let before = members.capacity();
        members.push(Member { row: arrived.row, is_paired: false, group: 0 });
        self.member_bytes += (members.capacity() - before) * size_of::<Member>();
    }

    /// Enters the turns of a window as it is now.
    pub(super) fn schedule(&mut self, window: u64) {
        let Some(live) = self.windows.get(&window) else { return };
        let (arrival, start, end) = (live.arrival, live.span.start, live.span.end);
        for (after, closes) in [(self.fires_after(), false), (self.closes_after(), true)] {
            let at = end + after - 1;
            self.turns.push(Reverse(Turn { at, closes, arrival, start, window }));
        }
    }

    fn count_since(&mut self, since: i64, is_more: bool) {
        if !matches!(self.window, Window::Session { .. }) {
            return;
        }
        let count = self.starts.entry(since).or_default();
        *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.starts.remove(&since);
        }
    }

    /// Takes a window out of all lists; its rows stay. Without its key, one of its rows is in
    /// memory.
    pub(super) fn remove(&mut self, window: u64, key: Option<KeyRef<'_>>) -> Option<Live> {
        let live = self.windows.remove(&window)?;
        let WindowJoin { keys, rows, hasher, .. } = self;
        let member = live.members.iter().flatten().next();
        let of_member = || member.map(|member| rows.key(member.row, live.key, hasher.kind()));
        if let Some(key) = key.or_else(of_member)
            && let Some(list) = keys.get_mut(&key)
        {
            list.retain(|(_, other)| *other != window);
            if list.is_empty() {
                keys.remove(&key);
            }
        }
        self.member_bytes -= live.member_bytes();
        self.count_since(live.since, false);
        Some(live)
    }
}
