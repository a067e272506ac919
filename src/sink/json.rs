//! JSON objects taken apart into members, and text made into JSON strings.

use std::borrow::Cow;

use memchr::memchr2;

/// The members of one JSON object, in order: each name and each value as it stands there (a name
/// with its quotes). Meant for objects that were checked when they were read; where the text is
/// broken, the iterator ends.
pub(super) struct Members<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Members<'a> {
    pub(super) fn new(object: &'a [u8]) -> Members<'a> {
        let open = object.iter().position(|&byte| byte == b'{');
        Members { text: object, at: open.map_or(object.len(), |open| open + 1) }
    }

    fn skip_blanks(&mut self) -> Option<u8> {
        while let Some(&byte) = self.text.get(self.at) {
            if !byte.is_ascii_whitespace() {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Behind the string that starts at `at`.
    fn string_end(&self, at: usize) -> Option<usize> {
        let mut at = at + 1;
        loop {
            at += memchr2(b'"', b'\\', self.text.get(at..)?)?;
            if self.text[at] == b'"' {
                return Some(at + 1);
            }
            at += 2;
        }
    }

    /// Behind the value that starts at `at`.
    fn value_end(&self, mut at: usize) -> Option<usize> {
        let mut depth = 0_usize;
        loop {
            match *self.text.get(at)? {
                b'"' => at = self.string_end(at)?,
                b'{' | b'[' => {
                    depth += 1;
                    at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    at += 1;
                }
                b',' | b'}' | b']' if depth == 0 => return Some(at),
                byte if byte.is_ascii_whitespace() && depth == 0 => return Some(at),
                _ => {
                    at += 1;
                    continue;
                }
            }
            if depth == 0 {
                return Some(at);
            }
        }
    }

    fn member(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        if self.skip_blanks()? == b',' {
            self.at += 1;
        }
        if self.skip_blanks()? != b'"' {
            return None;
        }
        let name = self.at..self.string_end(self.at)?;
        self.at = name.end;
        if self.skip_blanks()? != b':' {
            return None;
        }
        self.at += 1;
        self.skip_blanks()?;
        let value = self.at..self.value_end(self.at)?;
        self.at = value.end;
        Some((&self.text[name], &self.text[value]))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let member = self.member();
        if member.is_none() {
            self.at = self.text.len();
        }
        member
    }
}

/// The text of a JSON string as it stands in a row, quotes included; what is no string as it is.
pub(super) fn string_text(raw: &[u8]) -> Cow<'_, [u8]> {
    match raw {
        [b'"', inner @ .., b'"'] if memchr::memchr(b'\\', inner).is_none() => Cow::Borrowed(inner),
        [b'"', ..] => match serde_json::from_slice::<String>(raw) {
            Ok(text) => Cow::Owned(text.into_bytes()),
            // An escape that names no character, such as half a surrogate pair: as it stands.
            Err(_) => Cow::Borrowed(raw),
        },
        _ => Cow::Borrowed(raw),
    }
}

/// Appends bytes as a JSON string. What is not UTF-8 becomes U+FFFD: JSON cannot hold it.
pub(super) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    match std::str::from_utf8(text) {
        Ok(_) => push_escaped(out, text),
        Err(_) => push_escaped(out, String::from_utf8_lossy(text).as_bytes()),
    }
    out.push(b'"');
}

fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut done = 0;
    for (at, &byte) in text.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..0x20 => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(&text[done..at]);
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
                done = at + 1;
                continue;
            }
            _ => continue,
        };
        out.extend_from_slice(&text[done..at]);
        out.extend_from_slice(escape);
        done = at + 1;
    }
    out.extend_from_slice(&text[done..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(text: &str) -> Vec<(String, String)> {
        let owned = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Members::new(text.as_bytes()).map(|(name, value)| (owned(name), owned(value))).collect()
    }

    #[test]
    fn members_come_as_they_stand() {
        let text = r#" { "a" : 1.50 ,"b\"":"x,}\\", "c":{"d":[1,{"e":"]"}]} , "f":null}"#;
        let expected = [
            (r#""a""#, "1.50"),
            (r#""b\"""#, r#""x,}\\""#),
            (r#""c""#, r#"{"d":[1,{"e":"]"}]}"#),
            (r#""f""#, "null"),
        ];
        assert_eq!(members(text), expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert_eq!(members("{}"), []);
        for broken in ["", "{", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":\"", "{\"a\\", "[1]", "{1:2}"]
        {
            assert_eq!(members(broken), [], "{broken}");
        }
    }

    #[test]
    fn strings_are_read() {
        assert_eq!(&*string_text(br#""plain""#), b"plain");
        assert_eq!(&*string_text(br#""a\nb\u00e9""#), "a\nb\u{e9}".as_bytes());
        assert_eq!(&*string_text(b"12"), b"12");
        assert_eq!(&*string_text(br#""\ud800""#), br#""\ud800""#);
    }

    proptest! {
        #[test]
        fn strings_come_back(text: String) {
            let mut out = Vec::new();
            push_string(&mut out, text.as_bytes());
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text.clone());
            prop_assert_eq!(&*string_text(&out), text.as_bytes());
        }

        #[test]
        fn no_text_makes_it_panic(text: Vec<u8>, tail in "[{}\\[\\]\",:\\\\ a1]*") {
            let _ = Members::new(&text).count();
            let _ = Members::new(format!("{{{tail}").as_bytes()).count();
        }
    }
}
