//! What an output of fixed columns had no place for.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Fields of JSON rows for which a CSV or TSV output has no column, and how often each came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    fields: BTreeMap<(usize, Vec<u8>), u64>,
    /// Of fields beyond [`LeftOut::NAMES_MAX`].
    others: u64,
}

impl LeftOut {
    /// Names that are kept apart.
    const NAMES_MAX: usize = 20;

    /// Counts values of a field.
    #[cold]
    pub(super) fn add(&mut self, stream: usize, name: &[u8], times: u64) {
        let field = (stream, name.to_vec());
        if self.fields.len() < LeftOut::NAMES_MAX || self.fields.contains_key(&field) {
            *self.fields.entry(field).or_default() += times;
        } else {
            self.others += times;
        }
    }

    /// Adds what another core has left out.
    pub(super) fn merge(&mut self, other: LeftOut) {
        self.others += other.others;
        for ((stream, name), times) in other.fields {
            self.add(stream, &name, times);
        }
    }

    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The fields that are kept apart: stream (0 for left, 1 for right), name, how often; by stream
    /// and name.
    pub fn fields(&self) -> impl Iterator<Item = (usize, Cow<'_, str>, u64)> {
        let fields = self.fields.iter();
        fields.map(|((stream, name), times)| (*stream, String::from_utf8_lossy(name), *times))
    }

    /// Values of all other fields.
    pub fn others(&self) -> u64 {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_by_side_and_beyond_some_only_counted() {
        let (mut all, mut one) = (LeftOut::default(), LeftOut::default());
        one.add(1, b"b", 2);
        one.add(0, b"z", 1);
        all.merge(one.clone());
        all.merge(one);
        let fields: Vec<_> = all.fields().collect();
        assert_eq!(fields, [(0, "z".into(), 2), (1, "b".into(), 4)]);
        for number in 0..LeftOut::NAMES_MAX {
            all.add(0, format!("f{number}").as_bytes(), 1);
        }
        assert_eq!((all.fields().count(), all.others()), (LeftOut::NAMES_MAX, 2));
        all.add(1, b"b", 1);
        assert_eq!(all.fields().last(), Some((1, "b".into(), 5)));
    }
}
