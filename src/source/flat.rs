//! The JSON lines that nearly all files have, read byte by byte: one flat object without escapes.
//!
//! Anything else, sound or not, is left to serde_json, which is also what this is tested against.

/// Puts the JSON text of each name's value into `values`, at the name's place. Returns whether the
/// line is a sound flat object; if not, `values` may hold anything.
pub(super) fn values<'a>(
    line: &'a [u8],
    names: &[impl AsRef<str>],
    values: &mut [Option<&'a str>],
) -> bool {
    match std::str::from_utf8(line) {
        Ok(text) => Flat { text, at: 0 }.object(names, values).is_some(),
        Err(_) => false,
    }
}

struct Flat<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Flat<'a> {
    fn object(&mut self, names: &[impl AsRef<str>], values: &mut [Option<&'a str>]) -> Option<()> {
        self.expect(b'{')?;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return self.end();
        }
        let mut expected = 0;
        loop {
            let place = self.name(names, expected)?;
            self.expect(b':')?;
            self.skip_space();
            let start = self.at;
            self.value()?;
            if let Some(place) = place {
                // Values start and end with ASCII bytes.
                values[place] = self.text.get(start..self.at);
                expected = place + 1;
            }
            self.skip_space();
            let next = self.peek()?;
            self.at += 1;
            match next {
                b',' => self.skip_space(),
                b'}' => return self.end(),
                _ => return None,
            }
        }
    }

    /// A name, and its place if it is wanted: looked for first where it is expected.
    #[inline]
    fn name(&mut self, names: &[impl AsRef<str>], expected: usize) -> Option<Option<usize>> {
        if let Some(name) = names.get(expected).map(|name| name.as_ref().as_bytes())
            && let Some([b'"', rest @ ..]) = self.text.as_bytes().get(self.at..)
            && let Some([b'"', ..]) = rest.strip_prefix(name)
            && !name.iter().any(|&byte| is_special(byte))
        {
            self.at += name.len() + 2;
            return Some(Some(expected));
        }
        let start = self.at + 1;
        self.string()?;
        let name = self.text.get(start..self.at - 1)?;
        Some(names.iter().position(|other| other.as_ref() == name))
    }

    /// A value that is no array and no object.
    #[inline]
    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => None,
        }
    }

    /// A string without escapes and control characters.
    #[inline]
    fn string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        let rest = self.text.as_bytes().get(self.at..)?;
        let len = rest.iter().position(|&byte| is_special(byte))?;
        self.at += len + 1;
        (rest[len] == b'"').then_some(())
    }

    fn number(&mut self) -> Option<()> {
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Some(())
    }

    /// One digit or more.
    #[inline]
    fn digits(&mut self) -> Option<()> {
        let rest = &self.text.as_bytes()[self.at..];
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += len;
        (len > 0).then_some(())
    }

    fn literal(&mut self, word: &str) -> Option<()> {
        let found = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        found.then_some(())
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// That byte, behind any white space.
    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += 1;
        found.then_some(())
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn end(&mut self) -> Option<()> {
        self.skip_space();
        (self.at == self.text.len()).then_some(())
    }
}

/// What ends the plain part of a string.
#[inline]
fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::jsonl;
    use proptest::prelude::*;

    const NAMES: [&str; 4] = ["a", "b", "订", "c\"d"];

    fn agrees(line: &[u8]) -> Result<bool, TestCaseError> {
        let mut found = vec![None; NAMES.len()];
        let is_flat = values(line, &NAMES, &mut found);
        if is_flat {
            let mut expected = Vec::new();
            let sound = jsonl::any_values(line, &NAMES, &mut expected);
            prop_assert!(sound.is_ok(), "{:?}: {:?}", String::from_utf8_lossy(line), sound);
            prop_assert_eq!(found, expected);
        }
        Ok(is_flat)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_sound_flat_object_is_what_serde_reads(
            members in prop::collection::vec((
                prop::sample::select(vec!["a", "b", "订", "x", "aa", ""]),
                prop_oneof![
                    "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3})?([eE][-+]?[0-9]{1,4})?",
                    "\"[a-c订 ,:{}\\[\\]\x7f]{0,12}\"",
                    prop::sample::select(vec!["true", "false", "null"]).prop_map(str::to_owned),
                ],
            ), 0..6),
            space in "[ \t\r]{0,2}",
        ) {
            let members: Vec<_> = members
                .iter()
                .map(|(name, value)| format!("{space}\"{name}\"{space}:{space}{value}{space}"))
                .collect();
            let line = format!("{space}{{{}}}{space}", members.join(","));
            prop_assert!(agrees(line.as_bytes())?, "{line:?} is flat");
        }

        #[test]
        fn nothing_unsound_is_taken(
            pieces in prop::collection::vec(prop::sample::select(vec![
                &b"{"[..], b"}", b"\"a\":", b"\"b\"", b"\"c\\\"d\":1", b"1", b"-", b"0", b".5",
                b"e", b"+", b":", b",", b" ", b"nul", b"null", b"true", b"\"", b"\\", b"\x01",
                b"\xff", b"[", b"]", b"\"a\":1,", b"\xe8\xae\xa2",
            ]), 0..12),
        ) {
            agrees(&pieces.concat())?;
            agrees(&[b"{\"a\":", &pieces.concat()[..], b"}"].concat())?;
        }
    }

    #[test]
    fn a_wanted_name_that_needs_an_escape_is_left_to_serde() {
        let mut found = vec![None; NAMES.len()];
        assert!(!values(br#"{"c\"d":1}"#, &NAMES, &mut found));
        assert!(!values(br#"{"c"d":1}"#, &["c\"d"], &mut found));
    }
}
