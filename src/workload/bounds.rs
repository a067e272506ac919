//! What bounds the state of a measured join, and what came of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::event::Side;
use crate::join::{Counters, JoinSpecBuilder};
use crate::limits::{Limits, Overflow};

/// Bounds on state beside watermarks; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes, rows, and what happens when these come near.
    pub limits: Limits,
    /// Whether an engine that nears its bound goes on and fails, instead of having its feeds wait.
    pub fail_when_full: bool,
    /// How long rows live by the clock on the wall.
    pub ttl: Option<Duration>,
    /// Where [`Overflow::Spill`] puts rows, if not into the system's folder for temporary files.
    pub spill_dir: Option<PathBuf>,
}

impl Bounds {
    /// Whether rows may be gone before their end, so that which pairs come out depends on when
    /// rows came, and fewer may than without bounds.
    pub fn give_up(&self) -> bool {
        self.ttl.is_some() || self.limits.overflow == Overflow::Shed
    }

    /// Adds to a spec what it has to know of them.
    pub fn add_to(&self, spec: JoinSpecBuilder) -> JoinSpecBuilder {
        bounded(spec, self.ttl, self.spill_dir.as_deref())
    }
}

/// A spec with a time to live and a folder for files, where they are given.
pub fn bounded(
    spec: JoinSpecBuilder,
    ttl: Option<Duration>,
    spill_dir: Option<&Path>,
) -> JoinSpecBuilder {
    let spec = match ttl {
        Some(ttl) => spec.ttl(ttl),
        None => spec,
    };
    match spill_dir {
        Some(folder) => spec.spill_to(folder),
        None => spec,
    }
}

/// Rows that bounds have cost their place in memory, of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Rows that outlived their time to live.
    pub timed_out: u64,
    /// Rows that were given up.
    pub shed: u64,
    /// Rows that were put into files.
    pub spilled: u64,
}

impl Moved {
    /// What a join has counted.
    pub fn of(counters: &Counters) -> Moved {
        let sum = |of: fn(&crate::join::SideCounters) -> u64| {
            Side::BOTH.iter().map(|&side| of(counters.side(side))).sum()
        };
        Moved {
            timed_out: sum(|side| side.timed_out),
            shed: sum(|side| side.shed),
            spilled: sum(|side| side.spilled),
        }
    }

    /// Both together, as for the stages of a chain.
    #[must_use]
    pub fn plus(self, other: Moved) -> Moved {
        Moved {
            timed_out: self.timed_out + other.timed_out,
            shed: self.shed + other.shed,
            spilled: self.spilled + other.spilled,
        }
    }
}
