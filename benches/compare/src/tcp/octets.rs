//! Octets that begin a page.
//!
//! The speed of the kernel's copies depends on where in a page the octets lie, and an allocator's
//! choice depends on everything else that was allocated: with a library preloaded, on that.

use std::ops::{Deref, DerefMut};

const PAGE: usize = 4096;

pub(super) struct Octets {
    room: Vec<u8>,
    start: usize,
    len: usize,
}

impl Octets {
    /// Makes octets, each as `octet` returns it.
    pub(super) fn new(len: usize, octet: impl Fn(usize) -> u8) -> Self {
        let mut room = vec![0; len + PAGE];
        let start = room.as_ptr().align_offset(PAGE).min(PAGE);
        for (at, place) in room[start..start + len].iter_mut().enumerate() {
            *place = octet(at);
        }
        Octets { room, start, len }
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.room[self.start..self.start + self.len]
    }
}

impl DerefMut for Octets {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + self.len]
    }
}
