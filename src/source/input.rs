//! Where blocks come from: a reader that the asking core runs, or one on a thread of its own.

use std::io::Read;

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};

use super::blocks::{Block, BlockReader, ReadError};
use crate::limits::READ_AHEAD_BLOCKS;

/// A reader of any kind of stream.
pub type AnyReader = BlockReader<Box<dyn Read + Send>>;

/// The blocks of one stream.
pub(super) enum Input {
    /// Read by whoever asks: for files, whose reads do not wait for anybody.
    Direct(Box<AnyReader>),
    /// Read by a thread, so that no core ever waits in a read: for pipes.
    Threaded { full: Receiver<Result<Block, ReadError>>, spent: Sender<Block> },
}

/// What came of asking for a block.
pub(super) enum Taken {
    Block,
    /// There is none yet.
    Nothing,
    End,
}

impl Input {
    /// Starts a thread that reads ahead. It ends with the stream, or at the first block after the
    /// input was dropped; a read that never returns keeps it until the process ends.
    pub(super) fn threaded(mut reader: AnyReader) -> std::io::Result<Input> {
        let (full_sender, full) = bounded(READ_AHEAD_BLOCKS);
        let (spent, spent_receiver) = bounded::<Block>(READ_AHEAD_BLOCKS + 1);
        let read_ahead = move || {
            loop {
                let mut block = spent_receiver.try_recv().unwrap_or_default();
                let read = match reader.read_block(&mut block) {
                    Ok(true) => Ok(block),
                    Ok(false) => return,
                    Err(error) => Err(error),
                };
                let failed = read.is_err();
                if full_sender.send(read).is_err() || failed {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("intervale-read".to_owned()).spawn(read_ahead)?;
        Ok(Input::Threaded { full, spent })
    }

    /// Takes the next block into `block`.
    pub(super) fn take(&mut self, block: &mut Block) -> Result<Taken, ReadError> {
        match self {
            Input::Direct(reader) => {
                Ok(if reader.read_block(block)? { Taken::Block } else { Taken::End })
            }
            Input::Threaded { full, spent } => match full.try_recv() {
                Ok(next) => {
                    let old = std::mem::replace(block, next?);
                    // If the way back is full the memory is simply freed.
                    let _ = spent.try_send(old);
                    Ok(Taken::Block)
                }
                Err(TryRecvError::Empty) => Ok(Taken::Nothing),
                Err(TryRecvError::Disconnected) => Ok(Taken::End),
            },
        }
    }
}
