//! Rows that wait for their turn: their bytes in memory, or in files where there is no room.

use std::path::Path;

use crate::spill::{Place, Shelf, ShelfWriter, SpillError};

/// Row bytes that one which is out leaves for the next.
const SPARE_BYTES_MAX: usize = 256;

/// The bytes of a row.
#[derive(Default)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    /// Where they are, if it is a file.
    place: Option<Place>,
}

/// What is known of the bytes of all rows.
#[derive(Default)]
pub(super) struct Store {
    /// Of rows in memory, as allocated.
    bytes: usize,
    shelf: Shelf,
}

impl Store {
    /// Puts other bytes in the place of a row's.
    pub(super) fn replace(&mut self, kept: &mut Kept, with: &[u8]) {
        self.drop_place(kept);
        let before = kept.bytes.capacity();
        kept.bytes.clear();
        kept.bytes.extend_from_slice(with);
        self.bytes = self.bytes + kept.bytes.capacity() - before;
    }

    /// A row is out: what it takes is freed, if it is much.
    pub(super) fn let_go(&mut self, kept: &mut Kept) {
        self.drop_place(kept);
        if kept.bytes.capacity() > SPARE_BYTES_MAX {
            self.free(kept);
        }
    }

    /// The bytes of a row, read into `room` if they are in a file.
    pub(super) fn read<'a>(
        &mut self,
        kept: &'a Kept,
        room: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], SpillError> {
        let Some(place) = kept.place else { return Ok(&kept.bytes) };
        room.clear();
        room.extend_from_slice(self.shelf.read(place)?);
        Ok(room)
    }

    /// Begins a file.
    pub(super) fn open(&mut self, folder: &Path) -> Result<ShelfWriter, SpillError> {
        self.shelf.open(folder)
    }

    /// Ends a file.
    pub(super) fn close(&mut self, writer: ShelfWriter) -> Result<(), SpillError> {
        self.shelf.close(writer)
    }

    /// Puts the bytes of a row into a file, unless they are in one.
    pub(super) fn put(
        &mut self,
        kept: &mut Kept,
        writer: &mut ShelfWriter,
    ) -> Result<(), SpillError> {
        if kept.place.is_none() && !kept.bytes.is_empty() {
            kept.place = Some(writer.piece(&[&kept.bytes])?);
        }
        self.free(kept);
        Ok(())
    }

    /// See [`Shelf::to_merge`].
    pub(super) fn to_merge(&self) -> Option<Vec<bool>> {
        self.shelf.to_merge()
    }

    /// Writes the bytes of a row anew, if they are in one of some files.
    pub(super) fn put_anew(
        &mut self,
        kept: &mut Kept,
        files: &[bool],
        writer: &mut ShelfWriter,
    ) -> Result<(), SpillError> {
        let Some(place) = kept.place.filter(|&place| Shelf::is_in(place, files)) else {
            return Ok(());
        };
        kept.place = Some(writer.piece(&[self.shelf.read(place)?])?);
        self.shelf.drop_piece(place);
        Ok(())
    }

    /// Frees the memory of a row.
    pub(super) fn free(&mut self, kept: &mut Kept) {
        self.bytes -= kept.bytes.capacity();
        kept.bytes = Vec::new();
    }

    /// Has memory keep no more of rows in files than it must.
    pub(super) fn forget(&mut self) {
        self.shelf.forget();
    }

    /// Bytes of rows in memory, as allocated.
    pub(super) fn row_bytes(&self) -> usize {
        self.bytes
    }

    /// All bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.shelf.memory_bytes()
    }

    fn drop_place(&mut self, kept: &mut Kept) {
        if let Some(place) = kept.place.take() {
            self.shelf.drop_piece(place);
        }
    }
}

impl Kept {
    /// Whether it has bytes in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        self.place.is_none() && !self.bytes.is_empty()
    }
}
