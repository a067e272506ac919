//! Patterns of LIKE.

/// A pattern: `%` stands for any text, `_` for one character, a backslash takes the meaning from
/// what follows.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    parts: Vec<Part>,
    any_case: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Bytes(Vec<u8>),
    One,
    Any,
}

impl Pattern {
    pub(super) fn new(pattern: &[u8], any_case: bool) -> Pattern {
        let pattern = if any_case { lowered(pattern) } else { pattern.to_vec() };
        let mut parts: Vec<Part> = Vec::new();
        let mut bytes = pattern.iter();
        while let Some(&byte) = bytes.next() {
            let plain = match byte {
                b'%' => {
                    if parts.last() != Some(&Part::Any) {
                        parts.push(Part::Any);
                    }
                    continue;
                }
                b'_' => {
                    parts.push(Part::One);
                    continue;
                }
                b'\\' => bytes.next().copied().unwrap_or(byte),
                byte => byte,
            };
            match parts.last_mut() {
                Some(Part::Bytes(plain_bytes)) => plain_bytes.push(plain),
                _ => parts.push(Part::Bytes(vec![plain])),
            }
        }
        Pattern { parts, any_case }
    }

    /// Whether the whole text is what the pattern says. In time of the text's length times the
    /// pattern's at the worst.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        if self.any_case { self.fits(&lowered(text)) } else { self.fits(text) }
    }

    fn fits(&self, text: &[u8]) -> bool {
        let (mut part, mut at) = (0, 0);
        // Where to go on when what follows the last `%` does not fit: it takes one more byte.
        let mut again: Option<(usize, usize)> = None;
        loop {
            let next = match self.parts.get(part) {
                None if at == text.len() => return true,
                None => None,
                Some(Part::Any) if part + 1 == self.parts.len() => return true,
                Some(Part::Any) => {
                    again = Some((part + 1, at));
                    Some(at)
                }
                Some(Part::One) => (at < text.len()).then(|| at + char_len(&text[at..])),
                Some(Part::Bytes(bytes)) => text[at..].starts_with(bytes).then(|| at + bytes.len()),
            };
            match (next, &mut again) {
                (Some(next), _) => (part, at) = (part + 1, next),
                (None, Some((from, start))) if *start < text.len() => {
                    *start += char_len(&text[*start..]);
                    (part, at) = (*from, *start);
                }
                (None, _) => return false,
            }
        }
    }
}

fn lowered(text: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(text) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => text.to_ascii_lowercase(),
    }
}

/// The length of the character that a text begins with; 1 where it is none.
fn char_len(text: &[u8]) -> usize {
    let len = match text.first() {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    len.min(text.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By the definition.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('%', rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            Some(('_', rest)) => !text.is_empty() && naive(rest, &text[1..]),
            Some((c, rest)) => text.first() == Some(c) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn as_defined(pattern in "[aé%_]{0,7}", text in "[aéb]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = naive(&chars(&pattern), &chars(&text));
            let pattern = Pattern::new(pattern.as_bytes(), false);
            prop_assert_eq!(pattern.matches(text.as_bytes()), expected);
        }
    }

    #[test]
    fn escapes_and_cases() {
        let like = |text: &str, pattern: &str| {
            Pattern::new(pattern.as_bytes(), false).matches(text.as_bytes())
        };
        assert!(like("100%", r"100\%") && !like("1000", r"100\%"));
        assert!(like("a_b", r"a\_b") && like(r"a\", r"a\"));
        assert!(Pattern::new("É%".as_bytes(), true).matches("éCLAIR".as_bytes()));
        assert!(!Pattern::new(b"a_", false).matches(b"a"));
        assert!(Pattern::new(b"%\xff_", false).matches(b"x\xffy"), "bytes that are no UTF-8");
    }
}
