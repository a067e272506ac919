//! Rows of windows in files: what a window has there is read back when its turn comes.
//!
//! Nobody looks at the rows of a window before its end, so that all rows may go at any time. Each
//! window's go together, as one piece of a file in which windows stand in the order of their ends;
//! memory keeps its span, its turns and the places of its pieces. Where windows overlap a row goes
//! with each of its windows; what is known of it as a whole stays in memory.

use std::path::Path;

use super::rows::Parcel;
use super::{Live, Member, WindowJoin};
use crate::error::JoinError;
use crate::event::Side;
use crate::join::room::{MakesRoom, SPILL_LEAST};
use crate::limits::{Limits, Overflow};
use crate::spill::{Place, Shelf, SpillError};

/// A window with more bytes of rows is several pieces.
const PIECE_BYTES_MAX: usize = 64 << 20;
/// Bytes of a row in a piece beside its own: group, time, arrival, length and bits.
const ROW_HEADER: usize = 28;
/// In the word of the length, which is under 128 MiB.
const IS_RIGHT: u32 = 1 << 31;
const IS_PAIRED: u32 = 1 << 30;
/// Turns are made anew when so many times as many stand there as windows are.
const TURNS_PER_WINDOW: usize = 4;

impl MakesRoom for WindowJoin {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn state_bytes(&self) -> u64 {
        WindowJoin::state_bytes(self)
    }

    fn rows_in_memory(&self) -> u64 {
        WindowJoin::rows_in_memory(self)
    }

    fn trim(&mut self, keep_bytes: u64) {
        WindowJoin::trim(self, keep_bytes);
    }

    fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        WindowJoin::make_room(self, bytes_max, rows_max)
    }
}

impl WindowJoin {
    /// Rows in memory. One that was read back counts for each window that it was read for.
    pub fn rows_in_memory(&self) -> u64 {
        self.rows.len() as u64
    }

    /// What has gone wrong in [`work`](Self::work), which says that nothing more is left then: see
    /// [`IntervalJoin::failure`](crate::join::IntervalJoin::failure).
    pub fn failure(&self) -> Option<JoinError> {
        self.failure.clone()
    }

    /// As [`IntervalJoin::make_room`](crate::join::IntervalJoin::make_room): all rows go into files
    /// when there are more bytes or rows.
    ///
    /// # Errors
    /// As there.
    pub fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        if self.limits.overflow != Overflow::Spill {
            return Ok(());
        }
        let now = self.state_bytes();
        let is_too_much = now > bytes_max || self.rows_in_memory() > rows_max;
        let row_bytes = (self.rows.bytes() + self.member_bytes) as u64;
        // It is windows that fill memory, and what is known of files.
        let is_hollow = now > bytes_max && bytes_max > 0 && row_bytes * SPILL_LEAST < now;
        if is_too_much && !is_hollow {
            self.spill().map_err(JoinError::Spill)?;
            if bytes_max == 0 {
                self.shelf.forget();
            }
            self.trim(0);
        }
        Ok(())
    }

    /// Puts all rows into files.
    fn spill(&mut self) -> Result<(), SpillError> {
        let has_rows = |live: &Live| live.members.iter().any(|members| !members.is_empty());
        let order = self.in_order(has_rows);
        if order.is_empty() {
            return Ok(());
        }
        let folder = self.spec.spill_to().map_or_else(std::env::temp_dir, Path::to_owned);
        let mut writer = self.shelf.open(&folder)?;
        let mut piece = Vec::new();
        for window in order {
            let Some(live) = self.windows.get_mut(&window) else { continue };
            self.member_bytes -= live.member_bytes();
            let members = std::mem::take(&mut live.members);
            for (side, member) in of_both(&members) {
                push(&mut piece, side, &member, &self.rows.parcel(member.row));
                if piece.len() >= PIECE_BYTES_MAX {
                    live.parts.push(writer.piece(&[&piece])?);
                    piece.clear();
                }
            }
            if !piece.is_empty() {
                live.parts.push(writer.piece(&[&piece])?);
                piece.clear();
            }
            self.member_bytes += live.member_bytes();
            for (side, member) in of_both(&members) {
                let is_first_time = !self.rows.is_from_file(member.row);
                let is_gone = self.rows.forget(member.row);
                self.counters.sides[side.index()].spilled += u64::from(is_gone && is_first_time);
            }
        }
        self.shelf.close(writer)?;
        self.rows.shrink();
        self.merge(&folder)?;
        self.renew_turns();
        Ok(())
    }

    /// Reads the rows of a window back, as far as they are in files.
    pub(super) fn load(&mut self, window: u64) -> Result<(), JoinError> {
        let WindowJoin { windows, shelf, rows, .. } = self;
        let Some(live) = windows.get_mut(&window).filter(|live| !live.parts.is_empty()) else {
            return Ok(());
        };
        let before = live.member_bytes();
        for place in std::mem::take(&mut live.parts) {
            let mut bytes = shelf.read(place).map_err(JoinError::Spill)?;
            while let Some((side, mut member, parcel)) = next(&mut bytes) {
                let Some(row) = rows.put_back(live.key, &parcel) else {
                    return Err(JoinError::Exhausted { bytes: self.state_bytes() });
                };
                member.row = row;
                live.members[side.index()].push(member);
            }
            shelf.drop_piece(place);
        }
        for members in &mut live.members {
            members.sort_unstable_by_key(|member| rows.arrival(member.row));
        }
        self.member_bytes = self.member_bytes + live.member_bytes() - before;
        Ok(())
    }

    /// Writes what stands in many files into fewer.
    fn merge(&mut self, folder: &Path) -> Result<(), SpillError> {
        while let Some(files) = self.shelf.to_merge() {
            let is_there = |live: &Live| live.parts.iter().any(|&part| Shelf::is_in(part, &files));
            let order = self.in_order(is_there);
            let WindowJoin { shelf, windows, .. } = self;
            let mut writer = shelf.open(folder)?;
            for window in order {
                let Some(live) = windows.get_mut(&window) else { continue };
                let parts = live.parts.iter_mut().filter(|part| Shelf::is_in(**part, &files));
                for part in parts {
                    let moved = writer.piece(&[shelf.read(*part)?])?;
                    shelf.drop_piece(std::mem::replace(part, moved));
                }
            }
            shelf.close(writer)?;
        }
        Ok(())
    }

    /// Some windows, in the order in which they come up.
    fn in_order(&self, is_wanted: impl Fn(&Live) -> bool) -> Vec<u64> {
        let wanted = self.windows.iter().filter(|(_, live)| is_wanted(live));
        let mut order: Vec<(i128, u64, u64)> =
            wanted.map(|(&window, live)| (live.span.end, live.arrival, window)).collect();
        order.sort_unstable();
        order.into_iter().map(|(.., window)| window).collect()
    }

    /// Drops turns that are stale, if they are most.
    fn renew_turns(&mut self) {
        if self.turns.len() > TURNS_PER_WINDOW * self.windows.len() {
            self.turns.clear();
            let windows: Vec<u64> = self.windows.keys().copied().collect();
            windows.into_iter().for_each(|window| self.schedule(window));
        }
    }
}

impl Live {
    /// Bytes of what names its rows.
    pub(super) fn member_bytes(&self) -> usize {
        let members: usize = self.members.iter().map(Vec::capacity).sum();
        members * size_of::<Member>() + self.parts.capacity() * size_of::<Place>()
    }
}

/// The members of both sides.
fn of_both(members: &[Vec<Member>; 2]) -> impl Iterator<Item = (Side, Member)> {
    let of = |side: Side| members[side.index()].iter().map(move |&member| (side, member));
    of(Side::Left).chain(of(Side::Right))
}

/// Adds a row to a piece.
fn push(piece: &mut Vec<u8>, side: Side, member: &Member, parcel: &Parcel<'_>) {
    // Rows are at most 64 MiB and keys 64 KiB.
    let mut word = parcel.stored.len() as u32;
    word |= if side == Side::Right { IS_RIGHT } else { 0 };
    word |= if member.is_paired { IS_PAIRED } else { 0 };
    piece.extend_from_slice(&member.group.to_ne_bytes());
    piece.extend_from_slice(&parcel.ts.to_ne_bytes());
    piece.extend_from_slice(&parcel.arrival.to_ne_bytes());
    piece.extend_from_slice(&word.to_ne_bytes());
    piece.extend_from_slice(parcel.stored);
}

/// Takes the next row out of a piece. Where a row has one window only, it has a match if it has one
/// there.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(Side, Member, Parcel<'a>)> {
    let (header, rest) = bytes.split_first_chunk::<ROW_HEADER>()?;
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| header[at + byte]));
    let bits = u32::from_ne_bytes(std::array::from_fn(|byte| header[24 + byte]));
    let (stored, rest) = rest.split_at_checked((bits & !(IS_RIGHT | IS_PAIRED)) as usize)?;
    *bytes = rest;
    let is_paired = bits & IS_PAIRED != 0;
    let side = if bits & IS_RIGHT != 0 { Side::Right } else { Side::Left };
    let (group, ts, arrival) = (word(0), word(8) as i64, word(16));
    let member = Member { row: 0, is_paired, group };
    Some((side, member, Parcel { ts, arrival, is_matched: is_paired, stored }))
}
