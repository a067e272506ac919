//! Events and batches of them. Knows nothing of state.

mod batch;
mod key;
mod prefetch;

pub use batch::{BatchKind, Event, EventBatch};
pub use key::{Key, KeyHasher, KeyKind, split_keyed_row};
pub(crate) use prefetch::{prefetch, prefetch_for_write};

/// What a stream of a join is called: `left`, `right`, then `then1` and on.
pub fn stream_name(stream: usize) -> String {
    match stream {
        0 => "left".to_owned(),
        1 => "right".to_owned(),
        stream => format!("then{}", stream - 1),
    }
}

/// One of the two inputs of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Side {
    /// The left input, whose time the interval is relative to.
    Left = 0,
    /// The right input.
    Right = 1,
}

impl Side {
    /// Both sides, left first.
    pub const BOTH: [Side; 2] = [Side::Left, Side::Right];

    /// The other side.
    #[inline]
    pub const fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }

    /// 0 for left, 1 for right: the place in arrays of both sides.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// `left` or `right`, as in messages and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Side::Left => "left",
            Side::Right => "right",
        }
    }
}
