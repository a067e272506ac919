//! Keys of several columns, as one text.
//!
//! A key of one column is its text. A key of several is their texts with the bytes `00 01` between
//! them, and each `00` inside a text written as `00 FF`. Different keys have different bytes, and
//! keys sort as their texts do, first column first.

use std::borrow::Cow;

use memchr::memchr;

/// Appends one more column's text to a key of several columns.
#[inline]
pub fn push_part(key: &mut Vec<u8>, part: &[u8], is_first: bool) {
    if !is_first {
        key.extend_from_slice(&[0, 1]);
    }
    let mut rest = part;
    while let Some(at) = memchr(0, rest) {
        key.extend_from_slice(&rest[..=at]);
        key.push(0xFF);
        rest = &rest[at + 1..];
    }
    key.extend_from_slice(rest);
}

/// The columns' texts of a key of several columns.
pub fn parts(key: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while let Some(found) = memchr(0, &key[at..]) {
        let zero = at + found;
        if key.get(zero + 1) == Some(&1) {
            parts.push(unescape(&key[start..zero]));
            start = zero + 2;
        }
        at = (zero + 2).min(key.len());
    }
    parts.push(unescape(&key[start..]));
    parts
}

fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr(0, text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr(0, rest) {
        plain.extend_from_slice(&rest[..=at]);
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    plain.extend_from_slice(rest);
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut key = Vec::new();
        for (place, part) in parts.iter().enumerate() {
            push_part(&mut key, part, place == 0);
        }
        key
    }

    fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let byte = prop::sample::select(vec![0u8, 1, b'a', 0xFE, 0xFF]);
        prop::collection::vec(prop::collection::vec(byte, 0..5), 2..4)
    }

    proptest! {
        #[test]
        fn parts_come_back(texts in texts()) {
            let key = encode(&texts);
            prop_assert_eq!(parts(&key), texts);
        }

        #[test]
        fn keys_sort_as_their_texts(a in texts(), b in texts()) {
            prop_assume!(a.len() == b.len());
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
        }
    }
}
