//! Keys: what two events must have in common to match.

use std::hash::{BuildHasher, Hasher};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use crate::error::PushError;
use crate::limits::KEY_BYTES_MAX;

/// Which keys the events of a join carry. Both sides carry the same kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyKind {
    /// 64-bit integers. The mixed value *is* the key, so equality is exact and costs nothing.
    #[default]
    Int,
    /// Bytes of any length up to [`KEY_BYTES_MAX`](crate::limits::KEY_BYTES_MAX). They are hashed
    /// for routing and look-up, and compared on every hit.
    Bytes,
}

/// A key as it is handed to a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key<'a> {
    /// No key: such an event matches nothing.
    Null,
    /// An integer key.
    Int(u64),
    /// A key of bytes.
    Bytes(&'a [u8]),
}

/// Turns keys into the 64-bit values that route events and index state.
///
/// Integers go through a seeded bijection (two rounds of SplitMix64's finaliser, Stafford's mix
/// 13), so distinct integers stay distinct. Bytes go through foldhash, seeded as well, so that
/// nobody who does not know the seed can aim collisions at a table; a collision only costs time,
/// because bytes are compared on every hit.
///
/// All sources and shards of an engine use the same hasher.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    kind: KeyKind,
    seed: u64,
    bytes: SeedableRandomState,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX_1: u64 = 0xBF58_476D_1CE4_E5B9;
const MIX_2: u64 = 0x94D0_49BB_1331_11EB;

impl KeyHasher {
    /// A hasher for keys of `kind`; the same seed gives the same values.
    pub fn new(kind: KeyKind, seed: u64) -> KeyHasher {
        let bytes = SeedableRandomState::with_seed(mix(seed ^ GOLDEN), SharedSeed::global_fixed());
        KeyHasher { kind, seed: mix(seed), bytes }
    }

    /// A hasher with a seed from the operating system.
    pub fn random(kind: KeyKind) -> KeyHasher {
        KeyHasher::new(kind, std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// The kind of keys this hasher was made for.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The value of a key; 0 for [`Key::Null`].
    ///
    /// # Errors
    /// [`PushError`] when the key is not of the hasher's kind or over [`KEY_BYTES_MAX`].
    #[inline]
    pub fn value(&self, key: Key<'_>) -> Result<u64, PushError> {
        match (key, self.kind) {
            (Key::Null, _) => Ok(0),
            (Key::Int(key), KeyKind::Int) => Ok(self.int(key)),
            (Key::Bytes(key), KeyKind::Bytes) if key.len() <= KEY_BYTES_MAX => Ok(self.bytes(key)),
            (Key::Bytes(key), KeyKind::Bytes) => {
                Err(PushError::KeyTooLong { bytes: key.len(), bytes_max: KEY_BYTES_MAX })
            }
            (_, expected) => Err(PushError::KeyKind { expected }),
        }
    }

    /// The value of an integer key.
    #[inline]
    pub fn int(&self, key: u64) -> u64 {
        mix(key.wrapping_add(self.seed))
    }

    /// The integer key of a value that [`int`](Self::int) returned.
    #[inline]
    pub fn unmix_int(&self, value: u64) -> u64 {
        unmix(value).wrapping_sub(self.seed)
    }

    /// The value of a key of bytes.
    #[inline]
    pub fn bytes(&self, key: &[u8]) -> u64 {
        let mut hasher = self.bytes.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

/// Stafford's mix 13, the finaliser of SplitMix64: a bijection of `u64`.
#[inline]
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(MIX_1);
    z = (z ^ (z >> 27)).wrapping_mul(MIX_2);
    z ^ (z >> 31)
}

/// The inverse of [`mix`].
#[inline]
const fn unmix(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(inverse(MIX_2));
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(inverse(MIX_1));
    z ^ (z >> 30) ^ (z >> 60)
}

/// The multiplicative inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut round = 0;
    while round < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        round += 1;
    }
    x
}

/// Splits a stored row of a [`KeyKind::Bytes`] join into its key and the caller's row.
///
/// Such rows are stored as the key's length (two bytes, little endian), the key, the row.
#[inline]
pub fn split_keyed_row(stored: &[u8]) -> (&[u8], &[u8]) {
    let key_len = usize::from(u16::from_le_bytes([stored[0], stored[1]]));
    stored[2..].split_at(key_len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_come_back(key: u64, seed: u64) {
            let hasher = KeyHasher::new(KeyKind::Int, seed);
            prop_assert_eq!(hasher.unmix_int(hasher.int(key)), key);
        }
    }

    #[test]
    fn seeds_change_the_values_and_nothing_else_does() {
        let (a, b) = (KeyHasher::new(KeyKind::Bytes, 1), KeyHasher::new(KeyKind::Bytes, 2));
        assert_eq!(a.bytes(b"order-1"), a.clone().bytes(b"order-1"));
        assert_ne!(a.bytes(b"order-1"), b.bytes(b"order-1"));
        assert_ne!(a.int(1), b.int(1));
    }
}
