//! Why an engine could not start, or stopped.

use std::fmt;

use crate::error::{JoinError, RuntimeError, SourceError, SpecError};
use crate::exchange::TooManySources;
use crate::join::SinkError;
use crate::shard::ShardError;

/// Why an engine could not start, or stopped. The first cause stands; what followed from it is
/// not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineError {
    /// The operator cannot do what the spec asks for.
    Spec(SpecError),
    /// Its workers could not be started.
    Runtime(RuntimeError),
    /// A side has no room for another source.
    Sources(TooManySources),
    /// A source failed.
    Source(SourceError),
    /// The join of a shard refused to go on.
    Join {
        /// The shard.
        shard: usize,
        /// Why.
        error: JoinError,
    },
    /// The sink of a shard failed.
    Sink {
        /// The shard.
        shard: usize,
        /// Why.
        error: SinkError,
    },
    /// Code that runs on a shard's core panicked: the engine's own, a sink's or a source's.
    Panicked {
        /// The shard.
        shard: usize,
        /// What the panic said.
        message: String,
    },
    /// The thread that held a [`Source`](crate::engine::Source) panicked, so what it would have
    /// pushed is missing.
    SourcePanicked,
    /// The engine was told that no source would be added any more.
    Sealed,
    /// The engine has stopped; [`Engine::finish`](crate::engine::Engine::finish) says why.
    Stopped,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Spec(error) => error.fmt(f),
            EngineError::Runtime(error) => error.fmt(f),
            EngineError::Sources(error) => error.fmt(f),
            EngineError::Source(error) => error.fmt(f),
            EngineError::Join { error, .. } => error.fmt(f),
            EngineError::Sink { error, .. } => error.fmt(f),
            EngineError::Panicked { shard, message } => {
                write!(f, "shard {shard} panicked: {message}")
            }
            EngineError::SourcePanicked => f.write_str(
                "a thread panicked while it held a source; what it would have pushed is missing",
            ),
            EngineError::Sealed => {
                f.write_str("the engine takes no more sources: it was sealed; add them before")
            }
            EngineError::Stopped => f.write_str("the engine has stopped; `finish` says why"),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<SpecError> for EngineError {
    fn from(error: SpecError) -> EngineError {
        EngineError::Spec(error)
    }
}

impl From<RuntimeError> for EngineError {
    fn from(error: RuntimeError) -> EngineError {
        EngineError::Runtime(error)
    }
}

impl From<TooManySources> for EngineError {
    fn from(error: TooManySources) -> EngineError {
        EngineError::Sources(error)
    }
}

/// Why a worker stopped, before it is known which one it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Shard(ShardError),
    Source(SourceError),
}

impl Fault {
    pub(super) fn on_shard(self, shard: usize) -> EngineError {
        match self {
            Fault::Shard(ShardError::Join(error)) => EngineError::Join { shard, error },
            Fault::Shard(ShardError::Sink(error)) => EngineError::Sink { shard, error },
            Fault::Source(error) => EngineError::Source(error),
        }
    }
}
