//! A quick hash for looking up names, thousands of them in a request.
//!
//! Nothing is ever listed in a map's order, and names come from the cluster's own API, not from
//! strangers, so neither secrecy nor quality beyond spreading is needed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map for look-ups only.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

/// Multiply and fold, eight bytes at a time.
#[derive(Default)]
pub struct Quick(u64);

impl Quick {
    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word ^ 0x9E37_79B9_7F4A_7C15) * 0x9FB2_1C65_1E98_DF25;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        // The last eight once more, rather than a copy of the few that are left.
        let last = bytes.last_chunk::<8>().map(|last| u64::from_le_bytes(*last));
        let last =
            last.unwrap_or_else(|| rest.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)));
        self.mix(last ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, byte: u8) {
        self.mix(byte.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
