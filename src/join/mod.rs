//! Joins: what matches, what comes out and when. Knows nothing of threads or files.
//!
//! [`JoinSpec`] says what to join. [`IntervalJoin`] is the operator that a shard runs, as-of joins
//! among its specs, and [`WindowJoin`] that of window joins; [`AnyJoin`] is whichever a spec calls
//! for. [`ProcessJoin`] runs a caller's own [`Process`]; [`Rules`] change while a join runs.
//! [`Join`] wraps the first for a caller's own loop, and [`oracle`] is the reference that all of
//! them are held to.

mod aging;
mod any;
mod asof;
mod choice;
mod condition;
mod counters;
mod emit;
mod interval;
mod kept;
mod late;
pub mod oracle;
mod pairing;
mod process;
mod room;
mod rules;
mod single;
mod slots;
mod spec;
mod splitting;
mod ttl;
mod visit;
mod window;
mod windowed;

pub use any::AnyJoin;
pub use asof::Asof;
pub use condition::Condition;
pub use counters::{Counters, SideCounters};
pub use emit::{Emit, Sink, SinkError};
pub use interval::IntervalJoin;
pub use process::{Keyed, Process, ProcessJoin, Timer};
pub use rules::{Rule, RuleError, Rules};
pub use single::Join;
pub use spec::{JoinKind, JoinSpec, JoinSpecBuilder, MatchChoice};
pub use window::Window;
pub use windowed::WindowJoin;
