//! What the join's tests share: steps, scenarios, and the subjects that they run on.

// Every test binary uses its own part of this.
#![allow(dead_code, unused_imports)]

mod engine;
mod operator;
pub mod run;
mod scenario;
mod split;
mod subject;

pub use engine::EngineSubject;
pub use operator::{OperatorSubject, id_of};
pub use scenario::{Scenario, bundles, bundles_in, bundles_laid_out, check};
pub use split::SplitSubject;
pub use subject::{Arrival, OracleSubject, Step, Subject, apply};

use intervale::join::JoinKind;
use intervale::limits::Limits;

/// Every kind of join.
pub const KINDS: [JoinKind; 6] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::Semi,
    JoinKind::Anti,
];

/// Bounded, so that intervals without an end are accepted, and far from the bound.
#[allow(clippy::needless_update)]
pub fn limits() -> Limits {
    Limits { state_bytes_max: Some(1 << 30), ..Limits::default() }
}
