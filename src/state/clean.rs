//! Cleaning rounds: what makes a retired chunk's number safe to use again.
//!
//! Dead handles stay where they are, in index entries and in runs that name an older run. A round
//! passes over all of them once, a little with every batch, and zeroes the dead ones. The numbers
//! that were retired before it began are then named by no handle any more. A round starts when half
//! of the numbers are used up, so it has many thousands of batches to end in.

use super::State;
use super::arena::{Arena, CHUNK_NUMBERS, DIRECTORY_CHUNK, Handle};
use super::directory::{Directories, is_directory};
use super::index::Index;
use super::ring::Ring;
use super::run::{Run, run_bytes};
use super::table::Arenas;
use crate::event::Side;

/// Free numbers of a side under which a round starts.
const FREE_LOW: usize = CHUNK_NUMBERS / 2;
/// Index lines, and runs, that are passed over with one batch: they lie side by side, so a step
/// costs well under a microsecond. Half the numbers last for at least as many batches.
const LINES_PER_STEP: usize = 64;
const RUNS_PER_STEP: usize = 64;

/// Where the current round stands.
pub(crate) struct Cleaner {
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    /// No round is under way.
    Rest,
    /// Passing over the index, from this line on.
    Index { line: usize },
    /// Passing over the runs of a side: chunk number and bytes passed.
    Runs { side: Side, number: usize, offset: usize },
}

impl Cleaner {
    pub(crate) fn new() -> Cleaner {
        Cleaner { stage: Stage::Rest }
    }
}

impl State {
    /// A bounded piece of the current round, if one is under way or needed. Once a batch.
    #[inline]
    pub(super) fn clean_step(&mut self) {
        let low = self.arenas.iter().any(|arena| arena.free_number_count() < FREE_LOW)
            || self.directories.iter().any(Directories::are_many);
        if low || !matches!(self.cleaner.stage, Stage::Rest) {
            self.clean_piece();
        }
    }

    /// Makes the index as small as its keys allow, after many of them have gone.
    pub(super) fn shrink_index(&mut self) {
        self.index.shrink(&self.arenas);
        if let Stage::Index { line } = &mut self.cleaner.stage {
            // Its lines are others.
            *line = 0;
        }
    }

    /// Ends the current round and passes through a whole further one, when numbers have run out
    /// before a round could end in its own time.
    #[cold]
    pub(super) fn clean_now(&mut self) {
        for _ in 0..2 {
            loop {
                self.clean_piece();
                if matches!(self.cleaner.stage, Stage::Rest) {
                    break;
                }
            }
        }
    }

    #[cold]
    fn clean_piece(&mut self) {
        let State { cleaner, index, arenas, rings, directories, .. } = self;
        cleaner.stage = match cleaner.stage {
            Stage::Rest => {
                arenas.iter_mut().for_each(Arena::begin_round);
                for (directories, arena) in directories.iter_mut().zip(arenas.iter()) {
                    directories.clean(arena);
                }
                Stage::Index { line: 0 }
            }
            Stage::Index { line } => clean_index(index, line, arenas, directories),
            Stage::Runs { side, number, offset } => {
                let (arena, ring) = (&mut arenas[side.index()], &rings[side.index()]);
                match clean_runs(ring, arena, number, offset) {
                    Some((number, offset)) => Stage::Runs { side, number, offset },
                    None if side == Side::Left => {
                        Stage::Runs { side: Side::Right, number: 1, offset: 0 }
                    }
                    None => {
                        arenas.iter_mut().for_each(Arena::end_round);
                        directories.iter_mut().for_each(Directories::end_round);
                        Stage::Rest
                    }
                }
            }
        };
    }
}

fn clean_index(
    index: &mut Index,
    line: usize,
    arenas: &Arenas,
    directories: &[Directories; 2],
) -> Stage {
    let is_dead = |side: usize, head: Handle| {
        if is_directory(head) {
            directories[side].is_dead(head)
        } else {
            !arenas[side].is_live(head)
        }
    };
    match index.clean(line, LINES_PER_STEP, is_dead) {
        Some(line) => Stage::Index { line },
        None => Stage::Runs { side: Side::Left, number: 1, offset: 0 },
    }
}

/// Zeroes dead "older" handles in some runs from chunk `number`, `offset` on; returns where to go
/// on, or `None` after the last chunk.
fn clean_runs(
    ring: &Ring,
    arena: &Arena,
    mut number: usize,
    mut offset: usize,
) -> Option<(usize, usize)> {
    let mut budget = RUNS_PER_STEP;
    while number < DIRECTORY_CHUNK {
        // A chunk that was retired meanwhile needs no cleaning: its handles die with it.
        let Some((start, used)) = ring.live_chunk(number, arena) else {
            (number, offset) = (number + 1, 0);
            continue;
        };
        while offset < used {
            if budget == 0 {
                return Some((number, offset));
            }
            budget -= 1;
            // SAFETY: runs lie side by side from the start of a chunk to the end of what is used,
            // and `offset` only moves from one to the next.
            let run = unsafe { Run::at(start.add(offset)) };
            if !run.is_moved() && !arena.is_live(run.older()) {
                run.set_older(0);
            }
            offset += run_bytes(run.capacity_log2());
        }
        (number, offset) = (number + 1, 0);
    }
    None
}
