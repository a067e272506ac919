//! The columns of the output.

use std::collections::HashSet;

/// The names of the output's columns: all left ones, then all right ones.
///
/// A right column whose name is taken gets the suffix `_right`, as often as it takes.
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
    left: Vec<String>,
    right: Vec<String>,
}

impl Columns {
    /// Names for the columns of both inputs, as the inputs name them.
    pub fn new(left: &[String], right: &[String]) -> Columns {
        let mut taken: HashSet<String> = left.iter().cloned().collect();
        let right = right.iter().map(|name| free_name(name, "_right", &mut taken)).collect();
        Columns { left: left.to_vec(), right }
    }

    /// The left columns.
    pub fn left(&self) -> &[String] {
        &self.left
    }

    /// The right columns, as the output names them.
    pub fn right(&self) -> &[String] {
        &self.right
    }

    /// The same columns behind `before`, which keep their names: a left column of such a name gets
    /// the suffix `_left`.
    pub fn behind(&self, before: &[&str]) -> Columns {
        let mut taken: HashSet<String> = before.iter().map(|name| name.to_string()).collect();
        let left: Vec<_> =
            self.left.iter().map(|name| free_name(name, "_left", &mut taken)).collect();
        let right = self.right.iter().map(|name| free_name(name, "_right", &mut taken)).collect();
        Columns { left, right }
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
        let late = Columns::new(&names(&["side"]), &names(&["side"])).behind(&["side"]);
        assert_eq!(
            (late.left(), late.right()),
            (&names(&["side_left"])[..], &names(&["side_right"])[..])
        );
    }
}
