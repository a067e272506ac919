//! Pieces of bytes in files, each found by its place: rows that nobody looks for before their turn.
//!
//! Pieces are written many at a time, into a file of their own and in the order in which they will
//! be wanted, so that those which are wanted together stand on a page. A file is given back when
//! none of its pieces is wanted any more. Whoever holds places puts the pieces of several files
//! into one when there are too many: see [`Shelf::to_merge`].

use std::num::NonZeroU64;
use std::path::Path;

use super::{PageFile, PageWriter, SpillError};
use crate::limits::SPILL_SHELF_FILES;

/// What a page should hold.
const PAGE_BYTES: usize = 16 << 10;
/// A page that was read stays in memory, unless a single piece has made it longer than this.
const KEPT_PAGE_BYTES_MAX: usize = 8 * PAGE_BYTES;
/// So many files become one when there are more than allowed.
const MERGED: usize = 8;

const _: () = assert!(MERGED < SPILL_SHELF_FILES && SPILL_SHELF_FILES < 1 << 16);
const _: () = assert!(PAGE_BYTES <= 1 << 16, "pieces start at offsets of 16 bits");

/// Where a piece stands: file, page and offset, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(NonZeroU64);

impl Place {
    fn new(file: u16, page: u32, offset: u16) -> Place {
        let word = u64::from(file) << 48 | u64::from(page) << 16 | u64::from(offset);
        // Files are few, so that this is not 0.
        Place(NonZeroU64::MIN.saturating_add(word))
    }

    fn parts(self) -> (usize, u32, usize) {
        let word = self.0.get() - 1;
        ((word >> 48) as usize, (word >> 16) as u32, (word & 0xFFFF) as usize)
    }
}

/// Files of pieces.
#[derive(Default)]
pub(crate) struct Shelf {
    files: Vec<Option<Pieces>>,
}

struct Pieces {
    file: PageFile,
    /// Pieces that are still wanted.
    wanted: u64,
    /// The page that was read last.
    page: Option<u32>,
    bytes: Vec<u8>,
}

/// A file of pieces that is being written.
pub(crate) struct ShelfWriter {
    file: PageWriter,
    number: u16,
    page: Vec<u8>,
    page_number: u32,
    pieces: u64,
}

impl Shelf {
    /// Begins a file. No other one is begun before it is closed.
    pub(crate) fn open(&mut self, folder: &Path) -> Result<ShelfWriter, SpillError> {
        let free = self.files.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.files.push(None);
            self.files.len() - 1
        });
        Ok(ShelfWriter {
            file: PageWriter::create(folder)?,
            number: number as u16,
            page: Vec::new(),
            page_number: 0,
            pieces: 0,
        })
    }

    /// Ends a file, whose pieces can be read from here on.
    pub(crate) fn close(&mut self, mut writer: ShelfWriter) -> Result<(), SpillError> {
        writer.end_page()?;
        let ShelfWriter { file, number, pieces, .. } = writer;
        let file = file.finish()?;
        if pieces > 0 {
            let pieces = Pieces { file, wanted: pieces, page: None, bytes: Vec::new() };
            self.files[usize::from(number)] = Some(pieces);
        }
        Ok(())
    }

    /// A piece, read a page at a time.
    pub(crate) fn read(&mut self, place: Place) -> Result<&[u8], SpillError> {
        let (file, page, offset) = place.parts();
        let Some(pieces) = &mut self.files[file] else { return Ok(&[]) };
        if pieces.page != Some(page) {
            pieces.page = None;
            pieces.file.read(page as usize, &mut pieces.bytes)?;
            pieces.page = Some(page);
        }
        // The page is as it was written, so the piece is there.
        let piece = pieces.bytes.get(offset..).and_then(|rest| rest.split_first_chunk());
        let Some((len, rest)) = piece else { return Ok(&[]) };
        Ok(rest.get(..u32::from_ne_bytes(*len) as usize).unwrap_or(&[]))
    }

    /// A piece is wanted no more.
    pub(crate) fn drop_piece(&mut self, place: Place) {
        let (number, ..) = place.parts();
        let Some(pieces) = &mut self.files[number] else { return };
        pieces.wanted -= 1;
        if pieces.bytes.capacity() > KEPT_PAGE_BYTES_MAX {
            (pieces.page, pieces.bytes) = (None, Vec::new());
        }
        if pieces.wanted == 0 {
            self.files[number] = None;
        }
    }

    /// Which files are to become one, by their numbers: those with the fewest pieces, if there are
    /// too many files. Whoever holds places writes the pieces of these anew.
    pub(crate) fn to_merge(&self) -> Option<Vec<bool>> {
        let mut files: Vec<(u64, usize)> = self
            .files
            .iter()
            .enumerate()
            .filter_map(|(number, pieces)| Some((pieces.as_ref()?.wanted, number)))
            .collect();
        if files.len() <= SPILL_SHELF_FILES {
            return None;
        }
        files.sort_unstable();
        let mut merged = vec![false; self.files.len()];
        files.iter().take(MERGED).for_each(|&(_, number)| merged[number] = true);
        Some(merged)
    }

    /// Whether a piece stands in one of some files.
    pub(crate) fn is_in(place: Place, files: &[bool]) -> bool {
        files.get(place.parts().0).copied().unwrap_or(false)
    }

    /// Has memory keep no more than it must.
    pub(crate) fn forget(&mut self) {
        for pieces in self.files.iter_mut().flatten() {
            (pieces.page, pieces.bytes) = (None, Vec::new());
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pieces = self.files.iter().flatten();
        let each = pieces.map(|pieces| pieces.file.memory_bytes() + pieces.bytes.capacity());
        each.sum::<usize>() + self.files.capacity() * size_of::<Option<Pieces>>()
    }
}

impl ShelfWriter {
    /// Adds a piece, of less than 4 GiB.
    pub(crate) fn piece(&mut self, parts: &[&[u8]]) -> Result<Place, SpillError> {
        // A page ends before a piece would start beyond its length.
        let place = Place::new(self.number, self.page_number, self.page.len() as u16);
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.page.extend_from_slice(&(len as u32).to_ne_bytes());
        parts.iter().for_each(|part| self.page.extend_from_slice(part));
        self.pieces += 1;
        if self.page.len() >= PAGE_BYTES {
            self.end_page()?;
        }
        Ok(place)
    }

    fn end_page(&mut self) -> Result<(), SpillError> {
        if !self.page.is_empty() {
            self.file.page(&self.page)?;
            self.page.clear();
            self.page_number += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_and_files_go_with_their_last_piece() {
        let mut shelf = Shelf::default();
        let folder = std::env::temp_dir();
        let piece = |number: usize| vec![number as u8; number * 37 % 3_000];
        let mut places = Vec::new();
        for file in 0..3 {
            let mut writer = shelf.open(&folder).unwrap();
            for number in file * 100..file * 100 + 100 {
                let bytes = piece(number);
                let (one, two) = bytes.split_at(bytes.len() / 2);
                places.push(writer.piece(&[one, two]).unwrap());
            }
            shelf.close(writer).unwrap();
        }
        for (number, &place) in places.iter().enumerate().rev() {
            assert_eq!(shelf.read(place).unwrap(), piece(number));
        }
        assert!(shelf.to_merge().is_none());
        places[100..200].iter().for_each(|&place| shelf.drop_piece(place));
        assert_eq!(shelf.files.iter().flatten().count(), 2);
        let mut writer = shelf.open(&folder).unwrap();
        let place = writer.piece(&[&[9; 100_000]]).unwrap();
        shelf.close(writer).unwrap();
        assert_eq!(shelf.files.len(), 3, "the number of a file that went is free");
        assert_eq!(shelf.read(place).unwrap(), [9; 100_000]);
        shelf.drop_piece(place);
        assert_eq!(shelf.files.iter().flatten().count(), 2);
    }

    #[test]
    fn the_files_with_the_fewest_pieces_become_one() {
        let mut shelf = Shelf::default();
        for file in 0..=SPILL_SHELF_FILES {
            let mut writer = shelf.open(&std::env::temp_dir()).unwrap();
            for _ in 0..=file {
                writer.piece(&[b"piece"]).unwrap();
            }
            shelf.close(writer).unwrap();
        }
        let merged = shelf.to_merge().unwrap();
        assert!(merged[..MERGED].iter().all(|is_one| *is_one));
        assert!(!merged[MERGED..].iter().any(|is_one| *is_one));
        assert!(Shelf::is_in(Place::new(0, 3, 7), &merged));
        assert!(!Shelf::is_in(Place::new(MERGED as u16, 3, 7), &merged));
    }
}
