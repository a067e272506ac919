//! Lines of JSON: the values of some names, without building anything.

use std::borrow::Cow;
use std::fmt;

use serde_core::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_core::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Error};

use super::flat;

/// Of each name the JSON text of its value; `None` where the object lacks the name.
pub(super) type Values<'a> = Vec<Option<&'a str>>;

/// Puts the JSON text of each name's value into `values`, at the name's place. Of a name that comes
/// twice the last counts. Fastest when the object's names come in the order of `names`.
pub(super) fn values<'a>(
    line: &'a [u8],
    names: &[impl AsRef<str>],
    values: &mut Values<'a>,
) -> Result<(), Error> {
    let is_flat = flat::values(line, names, none_yet(names, values));
    if is_flat { Ok(()) } else { any_values(line, names, values) }
}

/// The same for any line: nested, with escapes, or unsound.
pub(super) fn any_values<'a>(
    line: &'a [u8],
    names: &[impl AsRef<str>],
    values: &mut Values<'a>,
) -> Result<(), Error> {
    let mut json = Deserializer::from_slice(line);
    json.deserialize_map(Fields { names, values: none_yet(names, values) })?;
    json.end()
}

/// What is wrong with a line, in words for whoever wrote it.
#[cold]
pub(super) fn explain(error: &Error, line: &[u8]) -> String {
    let text = error.to_string();
    // Lines are counted by whoever shows this.
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    let hint = if line.trim_ascii_start().starts_with(b"[") {
        "; write one object a line instead of an array, as jq -c '.[]' does"
    } else if error.is_eof() {
        "; write each object on one line, as jq -c . does"
    } else {
        ""
    };
    match error.column() {
        0 => format!("{what}{hint}"),
        column => format!("{what} at byte {column}{hint}"),
    }
}

fn none_yet<'v, 'a, N>(names: &[N], values: &'v mut Values<'a>) -> &'v mut Values<'a> {
    values.clear();
    values.resize(names.len(), None);
    values
}

/// The names of an object, in order; one that comes twice is there twice.
pub(super) fn names(line: &[u8]) -> Result<Vec<String>, Error> {
    let mut json = Deserializer::from_slice(line);
    let names = json.deserialize_map(Names)?;
    json.end()?;
    Ok(names)
}

/// Whether a value that is a string says something: half of a surrogate pair does not, and that is
/// the one fault that reading a line leaves in it.
#[inline]
pub(super) fn is_sound(json: &str) -> bool {
    let bytes = json.as_bytes();
    bytes.first() != Some(&b'"')
        || memchr::memchr(b'\\', bytes).is_none()
        || serde_json::from_str::<String>(json).is_ok()
}

/// The text of a value: of a string what it says, of anything else its JSON; `None` for `null`.
#[inline]
pub(super) fn text(json: &str) -> Option<Cow<'_, [u8]>> {
    match json.as_bytes() {
        b"null" => None,
        [b'"', text @ .., b'"'] if memchr::memchr(b'\\', text).is_none() => {
            Some(Cow::Borrowed(text))
        }
        [b'"', ..] => match serde_json::from_str::<String>(json) {
            Ok(text) => Some(Cow::Owned(text.into_bytes())),
            // Half of a surrogate pair: see `is_sound`.
            Err(_) => Some(Cow::Borrowed(json.as_bytes())),
        },
        other => Some(Cow::Borrowed(other)),
    }
}

struct Fields<'n, 'v, 'a, N> {
    names: &'n [N],
    values: &'v mut [Option<&'a str>],
}

impl<'a, N: AsRef<str>> Visitor<'a> for Fields<'_, '_, 'a, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let mut expected = 0;
        while let Some(place) = map.next_key_seed(Place { names: self.names, expected })? {
            match place {
                Some(place) => {
                    self.values[place] = Some(map.next_value::<&RawValue>()?.get());
                    expected = place + 1;
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Finds a name's place, first where it is expected.
struct Place<'n, N> {
    names: &'n [N],
    expected: usize,
}

impl<'a, N: AsRef<str>> DeserializeSeed<'a> for Place<'_, N> {
    type Value = Option<usize>;

    fn deserialize<D: serde_core::Deserializer<'a>>(
        self,
        json: D,
    ) -> Result<Option<usize>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<N: AsRef<str>> Visitor<'_> for Place<'_, N> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        match self.names.get(self.expected) {
            Some(expected) if expected.as_ref() == name => Ok(Some(self.expected)),
            _ => Ok(self.names.iter().position(|other| other.as_ref() == name)),
        }
    }
}

struct Names;

impl<'a> Visitor<'a> for Names {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
        let mut names = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            map.next_value::<IgnoredAny>()?;
            names.push(name);
        }
        Ok(names)
    }
}

struct Name(String);

impl<'a> Deserialize<'a> for Name {
    fn deserialize<D: serde_core::Deserializer<'a>>(json: D) -> Result<Name, D::Error> {
        json.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl Visitor<'_> for NameVisitor {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Name, E> {
        Ok(Name(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(line: &'a str, names: &[&str]) -> Result<Vec<Option<&'a str>>, String> {
        let mut out = Vec::new();
        values(line.as_bytes(), names, &mut out).map_err(|error| error.to_string())?;
        Ok(out)
    }

    #[test]
    fn values_are_found_by_name_in_any_order() {
        let line = r#" {"x":{"a":[1,{"a":2}]},"a":1.0,"b":"q\"uo" , "n":null} "#;
        let found = read(line, &["a", "b", "missing", "x", "n"]);
        let expected =
            [Some("1.0"), Some(r#""q\"uo""#), None, Some(r#"{"a":[1,{"a":2}]}"#), Some("null")];
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn the_last_of_two_equal_names_counts_and_escaped_names_are_the_same() {
        assert_eq!(read(r#"{"a":1,"a":2}"#, &["a"]).unwrap(), [Some("2")]);
        assert_eq!(read(r#"{"\u0061":1}"#, &["a"]).unwrap(), [Some("1")]);
        assert_eq!(names(br#"{"b":1,"a":2,"b":3}"#).unwrap(), ["b", "a", "b"]);
    }

    #[test]
    fn broken_lines_are_refused() {
        for line in
            ["", "[1]", "1", r#"{"a":1"#, r#"{"a":1} x"#, r#"{"a":}"#, r#"{a:1}"#, "{'a':1}"]
        {
            assert!(read(line, &["a"]).is_err(), "{line}");
            assert!(names(line.as_bytes()).is_err(), "{line}");
        }
        assert!(values(b"{\"a\":\"\xff\"}", &["a"], &mut Vec::new()).is_err());
    }

    #[test]
    fn faults_are_explained() {
        let explained = |line: &str| {
            let error = values(line.as_bytes(), &["a"], &mut Vec::new()).unwrap_err();
            explain(&error, line.as_bytes()).replace("; ", ";\n    ")
        };
        expect_test::expect![[r#"
            invalid type: sequence, expected an object;
                write one object a line instead of an array, as jq -c '.[]' does
            EOF while parsing an object at byte 1;
                write each object on one line, as jq -c . does
            key must be a string at byte 2
            trailing characters at byte 9"#]]
        .assert_eq(&["[", "{", "{a:1}", "{\"a\":1} x"].map(explained).join("\n"));
    }

    #[test]
    fn half_of_a_surrogate_pair_is_no_text() {
        for sound in ["1", "null", r#""a""#, r#""\ud83d\ude00""#, r#""\\ud800""#] {
            assert!(is_sound(sound), "{sound}");
        }
        for half in [r#""\ud800""#, r#""a\udc00b""#] {
            assert!(read(&format!("{{\"a\":{half}}}"), &["a"]).is_ok(), "{half}");
            assert!(!is_sound(half), "{half}");
        }
    }

    #[test]
    fn texts() {
        for (json, expected) in [
            ("null", None),
            ("12.50", Some("12.50")),
            ("true", Some("true")),
            (r#""""#, Some("")),
            (r#""a b""#, Some("a b")),
            (r#""a\tb\u8ba2""#, Some("a\tb订")),
            ("[1, 2]", Some("[1, 2]")),
        ] {
            let found = text(json);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{json}");
        }
    }
}
