//! What an output of fixed columns had no place for.

use std::collections::BTreeMap;
use std::fmt;

use crate::event::Side;

/// Fields of JSON rows for which a CSV or TSV output has no column, and how often each came. Shown:
/// the first few by side and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    fields: BTreeMap<(bool, Vec<u8>), u64>,
    /// Of fields beyond [`LeftOut::NAMES_MAX`].
    others: u64,
}

impl LeftOut {
    /// Names that are kept apart.
    const NAMES_MAX: usize = 20;

    /// Counts values of a field.
    #[cold]
    pub(super) fn add(&mut self, side: Side, name: &[u8], times: u64) {
        let field = (side == Side::Right, name.to_vec());
        if self.fields.len() < LeftOut::NAMES_MAX || self.fields.contains_key(&field) {
            *self.fields.entry(field).or_default() += times;
        } else {
            self.others += times;
        }
    }

    /// Adds what another core has left out.
    pub(super) fn merge(&mut self, other: LeftOut) {
        self.others += other.others;
        for ((is_right, name), times) in other.fields {
            let side = if is_right { Side::Right } else { Side::Left };
            self.add(side, &name, times);
        }
    }

    /// How many values were left out.
    pub fn count(&self) -> u64 {
        self.fields.values().sum::<u64>() + self.others
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, ((is_right, name), times)) in self.fields.iter().enumerate() {
            let side = if *is_right { Side::Right } else { Side::Left };
            f.write_str(if place > 0 { ", " } else { "" })?;
            let (name, s) = (String::from_utf8_lossy(name), if *times == 1 { "" } else { "s" });
            write!(f, "{} \"{}\" ({times} time{s})", side.name(), name.escape_debug())?;
        }
        if self.others > 0 { write!(f, " and {} of other names", self.others) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_by_side_and_beyond_some_only_counted() {
        let (mut all, mut one) = (LeftOut::default(), LeftOut::default());
        one.add(Side::Right, b"b", 2);
        one.add(Side::Left, b"z", 1);
        all.merge(one.clone());
        all.merge(one);
        assert_eq!(all.to_string(), "left \"z\" (2 times), right \"b\" (4 times)");
        for number in 0..LeftOut::NAMES_MAX {
            all.add(Side::Left, format!("f{number}").as_bytes(), 1);
        }
        assert!(all.to_string().ends_with(" and 2 of other names"), "{all}");
        assert_eq!(all.count(), 6 + LeftOut::NAMES_MAX as u64);
    }
}
