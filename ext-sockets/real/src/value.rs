//! Values of socket options.

use std::ffi::c_int;

/// The octets of an option's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    octets: [u8; Self::MAX],
    len: usize,
}

impl Value {
    const MAX: usize = 512;

    /// Makes the value of an option that is an int in C.
    pub fn int(value: c_int) -> Self {
        Self::octets(&value.to_ne_bytes())
    }

    /// Makes a value of the first 512 of these octets.
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
