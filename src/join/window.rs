//! Windows of time, and which of them an event lies in.

use crate::error::SpecError;
use crate::limits::WINDOWS_PER_ROW_MAX;

/// What is joined with each other in a window join: rows of one key in one window.
///
/// ```
/// use intervale::join::{JoinKind, JoinSpec, Window};
/// use intervale::limits::Limits;
///
/// // What happens in the same five minutes, counted from 00:01:00 on.
/// let window = Window::tumbling(300_000).starting_at(60_000);
/// let spec = JoinSpec::window(window).kind(JoinKind::Left).build(&Limits::default())?;
/// assert_eq!(spec.windows(), Some(window));
///
/// // What the kinds of windows make of the same rows, by the reference:
/// use intervale::event::Side;
/// use intervale::join::oracle::Oracle;
/// let pairs = |window: Window| {
///     let spec = JoinSpec::window(window).build(&Limits::default())?;
///     let mut oracle = Oracle::new(&spec, 1, 1);
///     for (side, ts) in [(Side::Left, 4), (Side::Right, 6), (Side::Left, 11)] {
///         oracle.event(side, 0, Some(b"key"), ts, ts as u64)?;
///     }
///     Ok::<usize, Box<dyn std::error::Error>>(oracle.end().len())
/// };
/// assert_eq!(pairs(Window::tumbling(10))?, 1); // [0, 10) has 4 and 6
/// assert_eq!(pairs(Window::hopping(10, 5))?, 2); // [0, 10) again, and [5, 15) has 6 and 11
/// assert_eq!(pairs(Window::session(6))?, 2); // 4, 6 and 11 follow each other by less than 6
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Which windows are over
///
/// A row gets into those of its windows whose end is after `W - allowed`. `W` is the merged
/// watermark, and under [`LatenessClock::Own`](crate::time::LatenessClock::Own) that of the row's
/// own source, so that the same rows are late however far other sources have come; all that comes
/// out waits for the merged watermark. From that follow rules that a single clock has no need of:
///
/// 1. A window that the merged watermark has closed is over whatever the own clock says: a row
///    whose source was idle meanwhile may be on time for none of its windows. It is not late, is in
///    no window, and comes out at once where its side comes out unmatched.
/// 2. To a session, a row before `W - allowed` belongs as if it stood there: it joins a session
///    that goes on beyond `W - allowed`, and none that had ended by then, even if the merged
///    watermark still keeps that one open. It is late when the session that it would have alone is
///    over.
/// 3. The pairs of a session come out at `end + allowed` under that clock, together with its rows
///    without a pair, and not at its end: until then a row may make it longer, and pairs have the
///    time of its end, which must not depend on how far other sources are. Tumbling and hopping
///    windows give their pairs at their end, and at once what comes for them later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Windows of `size` ticks that start `slide` ticks after each other, one of them at `offset`.
    /// With `slide == size` every event is in one window.
    Hopping {
        /// Length, in ticks.
        size: i64,
        /// From one start to the next, in ticks; not over `size`.
        slide: i64,
        /// The start of some window, in ticks.
        offset: i64,
    },
    /// Events of a key, of either side, that follow each other by less than `gap` ticks; the
    /// window ends `gap` ticks after the last.
    Session {
        /// In ticks.
        gap: i64,
    },
}

/// One window: from `start` on, up to but not including `end`, in ticks beyond the range of `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: i128,
    pub(super) end: i128,
}

impl Window {
    /// Windows of `size` ticks, one after the other, one of which starts at 0.
    pub const fn tumbling(size: i64) -> Window {
        Window::hopping(size, size)
    }

    /// Windows of `size` ticks, of which one starts every `slide` ticks, and one at 0.
    pub const fn hopping(size: i64, slide: i64) -> Window {
        Window::Hopping { size, slide, offset: 0 }
    }

    /// Windows that last as long as events follow each other by less than `gap` ticks.
    pub const fn session(gap: i64) -> Window {
        Window::Session { gap }
    }

    /// One of the windows starts at `offset` instead of 0; sessions have no such grid.
    pub const fn starting_at(self, offset: i64) -> Window {
        match self {
            Window::Hopping { size, slide, .. } => Window::Hopping { size, slide, offset },
            session @ Window::Session { .. } => session,
        }
    }

    pub(super) fn check(self) -> Result<(), SpecError> {
        let problem = match self {
            Window::Hopping { size, slide, .. } if size < 1 || slide < 1 => {
                "a window is at least one tick long, and so is its slide"
            }
            Window::Hopping { size, slide, .. } if slide > size => {
                "windows slide further than they are long, so that events would lie in none; make \
                 the slide at most the size"
            }
            Window::Hopping { size, slide, .. } if size / slide >= WINDOWS_PER_ROW_MAX => {
                "each event would lie in more than 4096 windows; make the slide longer"
            }
            Window::Session { gap } if gap < 1 => "a session's gap is at least one tick",
            _ => return Ok(()),
        };
        Err(SpecError::Window(problem))
    }

    /// The length of the window of a single event, in ticks.
    pub(super) fn span(self) -> i64 {
        match self {
            Window::Hopping { size, .. } => size,
            Window::Session { gap } => gap,
        }
    }

    /// The windows of an event at `ts`, earliest first; in a session join that of the event alone.
    pub(super) fn spans(self, ts: i64) -> impl Iterator<Item = Span> {
        let ts = i128::from(ts);
        let (first, slide, count) = match self {
            Window::Session { .. } => (ts, 1, 1),
            Window::Hopping { size, slide, offset } => {
                let (size, slide) = (i128::from(size), i128::from(slide));
                let offset = i128::from(offset);
                let last = (ts - offset).div_euclid(slide) * slide + offset;
                // The windows that start after `ts - size`.
                let count = (last - (ts - size) + slide - 1) / slide;
                (last - (count - 1) * slide, slide, count)
            }
        };
        let length = i128::from(self.span());
        (0..count).map(move |number| {
            let start = first + number * slide;
            Span { start, end: start + length }
        })
    }

    /// Those of [`spans`](Self::spans) that are not over at `over`. A session is as if the event
    /// had come at that time, if it is before it: what ended by then, it is no part of.
    pub(super) fn open_spans(self, ts: i64, over: i64) -> impl Iterator<Item = Span> {
        let over = i128::from(over);
        let cut = move |span: Span| match self {
            Window::Session { .. } => Span { start: span.start.max(over), end: span.end },
            Window::Hopping { .. } => span,
        };
        self.spans(ts).filter(move |span| span.end > over).map(cut)
    }

    /// The end of the last window of an event at `ts`.
    pub(super) fn last_end(self, ts: i64) -> i128 {
        match self {
            Window::Session { gap } => i128::from(ts) + i128::from(gap),
            Window::Hopping { size, slide, offset } => {
                let (slide, offset) = (i128::from(slide), i128::from(offset));
                (i128::from(ts) - offset).div_euclid(slide) * slide + offset + i128::from(size)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn negative_times_fall_where_they_should() {
        let starts =
            |window: Window, ts| -> Vec<i128> { window.spans(ts).map(|span| span.start).collect() };
        let tumbling = Window::tumbling(10);
        for (ts, start) in [(-11, -20), (-10, -10), (-1, -10), (0, 0), (9, 0), (10, 10)] {
            assert_eq!(starts(tumbling, ts), [start], "{ts}");
        }
        assert_eq!(starts(tumbling.starting_at(3), 2), [-7]);
        assert_eq!(starts(tumbling.starting_at(-7), 2), [-7]);
        assert_eq!(starts(Window::hopping(10, 4), -1), [-8, -4]);
        assert_eq!(starts(Window::hopping(10, 4), 0), [-8, -4, 0]);
        assert_eq!(starts(Window::session(5), -3), [-3]);
    }

    proptest! {
        #[test]
        fn the_windows_of_an_event_are_those_that_it_lies_in(
            ts in prop_oneof![-60..60i64, Just(i64::MIN + 1), Just(i64::MAX)],
            slide in 1..12i64,
            more in 0..30i64,
            offset in -20..20i64,
        ) {
            let window = Window::Hopping { size: slide + more, slide, offset };
            let at = i128::from(ts);
            let around = at.div_euclid(i128::from(slide));
            let expected: Vec<Span> = (around - 60..around + 60)
                .map(|k| k * i128::from(slide) + i128::from(offset))
                .map(|start| Span { start, end: start + i128::from(slide + more) })
                .filter(|span| span.start <= at && at < span.end)
                .collect();
            prop_assert_eq!(window.last_end(ts), expected.last().unwrap().end);
            prop_assert_eq!(window.spans(ts).collect::<Vec<_>>(), expected);
        }
    }
}
