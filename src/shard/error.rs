//! Why a shard stopped.

use std::fmt;

use crate::error::JoinError;
use crate::join::SinkError;

/// Why a shard stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardError {
    /// The operator refused to go on.
    Join(JoinError),
    /// The sink failed.
    Sink(SinkError),
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardError::Join(error) => error.fmt(f),
            ShardError::Sink(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ShardError {}
