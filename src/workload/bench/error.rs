//! Why a measurement gives no figures.

use std::fmt;

use crate::engine::EngineError;
use crate::error::{JoinError, SpecError};
use crate::workload::Outcome;

/// Why a measurement gave no figures.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BenchError {
    /// The join cannot be built.
    Spec(SpecError),
    /// The join stopped.
    Join(JoinError),
    /// The engine did not start, or stopped.
    Engine(EngineError),
    /// The naive peer knows inner joins of all pairs in an interval only.
    NaiveKind,
    /// A run found other pairs than it should: figures of a wrong join mean nothing.
    Mismatch {
        /// Which configuration.
        subject: &'static str,
        /// Which of its runs, from 1.
        run: u32,
        /// What it found.
        found: Outcome,
        /// What it should have found.
        expected: Outcome,
        /// Who says so.
        authority: &'static str,
    },
    /// A run let other numbers of rows come out alone than it should.
    Singles {
        /// Which configuration.
        subject: &'static str,
        /// How many came out.
        found: u64,
        /// How many should have.
        expected: u64,
        /// Who says so.
        authority: &'static str,
    },
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Spec(error) => error.fmt(f),
            BenchError::Join(error) => error.fmt(f),
            BenchError::Engine(error) => error.fmt(f),
            BenchError::NaiveKind => {
                write!(f, "the naive peer knows inner interval joins only; leave it out")
            }
            BenchError::Mismatch { subject, run, found, expected, authority } => write!(
                f,
                "{subject}, run {run}: found {found}, but {authority} has {expected}; \
                 the join is wrong, so there are no figures"
            ),
            BenchError::Singles { subject, found, expected, authority } => write!(
                f,
                "{subject}: {found} rows came out alone, but {authority} has {expected}; the join \
                 is wrong, so there are no figures"
            ),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<SpecError> for BenchError {
    fn from(error: SpecError) -> BenchError {
        BenchError::Spec(error)
    }
}

impl From<JoinError> for BenchError {
    fn from(error: JoinError) -> BenchError {
        BenchError::Join(error)
    }
}

impl From<EngineError> for BenchError {
    fn from(error: EngineError) -> BenchError {
        BenchError::Engine(error)
    }
}
