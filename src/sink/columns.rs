//! The columns of the output.

use std::collections::HashSet;

use crate::event::stream_name;

/// The names of the output's columns: all left ones, then all right ones, then those of further
/// streams.
///
/// A right column whose name is taken gets the suffix `_right`, as often as it takes; one of the
/// first further stream `_then1`, and so on.
///
/// ```
/// use intervale::sink::Columns;
/// let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
/// let columns = Columns::new(&names(&["id", "ts"]), &names(&["id", "paid"]));
/// assert_eq!(columns.left(), ["id", "ts"]);
/// assert_eq!(columns.right(), ["id_right", "paid"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    streams: Vec<Vec<String>>,
}

impl Columns {
    /// Names for the columns of both inputs, as the inputs name them.
    pub fn new(left: &[String], right: &[String]) -> Columns {
        Columns::of(&[left, right])
    }

    /// Names for the columns of any number of streams.
    pub fn of(streams: &[&[String]]) -> Columns {
        let (first, rest) = streams.split_first().unwrap_or((&(&[] as &[String]), &[]));
        let taken = first.iter().cloned().collect();
        let mut columns = Columns { streams: vec![first.to_vec()] };
        columns.add(rest, 1, taken);
        columns
    }

    /// The left columns.
    pub fn left(&self) -> &[String] {
        self.stream(0)
    }

    /// The right columns, as the output names them.
    pub fn right(&self) -> &[String] {
        self.stream(1)
    }

    /// The columns of a stream, as the output names them.
    pub fn stream(&self, stream: usize) -> &[String] {
        self.streams.get(stream).map_or(&[], Vec::as_slice)
    }

    /// The same columns behind `before`, which keep their names: a left column of such a name gets
    /// the suffix `_left`.
    pub fn behind(&self, before: &[&str]) -> Columns {
        let streams: Vec<&[String]> = self.streams.iter().map(Vec::as_slice).collect();
        let mut columns = Columns::default();
        columns.add(&streams, 0, before.iter().map(|name| name.to_string()).collect());
        columns
    }

    fn add(&mut self, streams: &[&[String]], first: usize, mut taken: HashSet<String>) {
        for (stream, names) in (first..).zip(streams) {
            let suffix = format!("_{}", stream_name(stream));
            let free = names.iter().map(|name| free_name(name, &suffix, &mut taken));
            self.streams.push(free.collect());
        }
    }
}

fn free_name(name: &str, suffix: &str, taken: &mut HashSet<String>) -> String {
    let mut name = name.to_owned();
    while taken.contains(&name) {
        name.push_str(suffix);
    }
    taken.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_stay_distinct() {
        let columns = Columns::new(&names(&["a", "a_right"]), &names(&["a", "b", "b"]));
        assert_eq!(columns.right(), ["a_right_right", "b", "b_right"]);
        let three = [names(&["a"]), names(&["a"]), names(&["a", "a_right"])];
        let three = Columns::of(&three.each_ref().map(Vec::as_slice));
        assert_eq!(three.stream(2), ["a_then1", "a_right_then1"]);
        let late = Columns::new(&names(&["side"]), &names(&["side"])).behind(&["side"]);
        assert_eq!(
            (late.left(), late.right()),
            (&names(&["side_left"])[..], &names(&["side_right"])[..])
        );
    }
}
