//! Values of socket options.

use std::ffi::c_int;

/// An option's octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    octets: [u8; Self::MAX],
    len: usize,
}

impl Value {
    const MAX: usize = 512;

    /// An int, as C has it.
    pub fn int(value: c_int) -> Self {
        Self::octets(&value.to_ne_bytes())
    }

    /// What the program gets: at most 512 of these.
    pub fn octets(from: &[u8]) -> Self {
        let len = from.len().min(Self::MAX);
        let mut octets = [0; Self::MAX];
        octets[..len].copy_from_slice(&from[..len]);
        Value { octets, len }
    }
}

impl std::ops::Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}
