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
    /// A stage of a chain is to blame, counted from 0.
    Stage {
        /// The stage.
        stage: usize,
        /// What happened in it.
        error: Box<EngineError>,
    },
    /// There is no such chain, or no such stream in it; the text says why.
    Chain(&'static str),
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
            EngineError::Stage { stage, error } => write!(f, "stage {stage}: {error}"),
            EngineError::Chain(why) => f.write_str(why),
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
    /// Of one of several stages.
    Stage(usize, Box<Fault>),
}

impl Fault {
    /// It happened in a stage of a chain.
    pub(super) fn in_stage(self, stage: usize) -> Fault {
        Fault::Stage(stage, Box::new(self))
    }

    /// It happened in the last stage, whose number this is. The sink there is no stage's but the
    /// user's; nor is there much to say of the only stage there is.
    pub(super) fn in_last_stage(self, stage: usize) -> Fault {
        let is_sink = matches!(self, Fault::Shard(ShardError::Sink(_)));
        if stage == 0 || is_sink { self } else { self.in_stage(stage) }
    }

    pub(super) fn on_shard(self, shard: usize) -> EngineError {
        match self {
            Fault::Shard(ShardError::Join(error)) => EngineError::Join { shard, error },
            Fault::Shard(ShardError::Sink(error)) => EngineError::Sink { shard, error },
            Fault::Source(error) => EngineError::Source(error),
            Fault::Stage(stage, fault) => {
                EngineError::Stage { stage, error: Box::new(fault.on_shard(shard)) }
            }
        }
    }
}
